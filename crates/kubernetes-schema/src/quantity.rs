//! Quantities: amounts of resources, as `100m`, `1.5Gi` or `12e6`.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>

use std::fmt;

/// What kube-apiserver says of a text that is none.
const FAULT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// The smallest part of one that is kept; what is smaller is rounded up.
const NANO: i128 = 1_000_000_000;
/// The largest whole amount; what is larger is cut down to it.
const LARGEST: i128 = i64::MAX as i128;
/// At most this many digits behind the point are read.
const KEPT_DIGITS: usize = 18;

/// An amount, and how it was written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    suffix: Suffix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    Decimal,
    Binary,
    Exponent,
}

impl Quantity {
    /// Reads one.
    ///
    /// # Errors
    /// When it is none, in the words of kube-apiserver.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fault = || FAULT.to_owned();
        let (is_negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return Err(fault());
        }
        let (base, power, suffix) = scale(suffix).ok_or_else(fault)?;
        let mut nanos = magnitude(whole, part, base, power).unwrap_or(LARGEST * NANO);
        nanos = nanos.min(LARGEST * NANO);
        Ok(Self { nanos: if is_negative { -nanos } else { nanos }, suffix })
    }

    /// So many whole ones.
    pub fn from_whole(number: u64) -> Self {
        Self { nanos: i128::from(number) * NANO, suffix: Suffix::Decimal }
    }

    /// The sum of both, written as this one is, or as the other one if this one is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let suffix = if self.nanos == 0 { other.suffix } else { self.suffix };
        Self { nanos: self.nanos.saturating_add(other.nanos), suffix }
    }

    /// What is left of this one without the other, written as this one is; nothing, if the other is more.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).max(0), ..self }
    }

    /// The same in thousandths, rounded up: what containers can have of a resource.
    #[must_use]
    pub fn in_thousandths(self) -> Self {
        const MILLI: i128 = NANO / 1_000;
        let rest = self.nanos.rem_euclid(MILLI);
        let more = if rest == 0 { 0 } else { MILLI - rest };
        Self { nanos: self.nanos + more, ..self }
    }

    /// Billionths of it.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }
}

/// The base and power that a suffix stands for.
fn scale(suffix: &str) -> Option<(i128, i32, Suffix)> {
    let decimal = |power| Some((10, power, Suffix::Decimal));
    let binary = |power| Some((1024, power, Suffix::Binary));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => {
            let power = other.strip_prefix(['e', 'E'])?;
            Some((10, power.parse().ok()?, Suffix::Exponent))
        }
    }
}

/// A number in billionths, rounded up; none if it is too large.
fn magnitude(whole: &str, part: &str, base: i128, power: i32) -> Option<i128> {
    // What is far behind the point only says that there is more.
    let part = part.trim_end_matches('0');
    let (part, rest) = part.split_at(part.len().min(KEPT_DIGITS));
    let digits = format!("{whole}{part}{}", if rest.is_empty() { "" } else { "1" });
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let mut value: i128 = digits.parse().ok()?;
    // All of it is `value` times a power of ten, and of two.
    let behind = part.len() + usize::from(!rest.is_empty());
    let mut tens = 9 - i32::try_from(behind).ok()?;
    if base == 1024 {
        value = value.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()?)?)?;
    } else {
        tens = tens.saturating_add(power);
    }
    if tens >= 0 {
        return value.checked_mul(10_i128.checked_pow(u32::try_from(tens).ok()?)?);
    }
    let divisor = 10_i128.checked_pow(tens.unsigned_abs());
    // What is beyond every divisor is still something.
    Some(divisor.map_or(1, |divisor| value / divisor + i128::from(value % divisor != 0)))
}

/// As kube-apiserver writes it: with the largest suffix that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let is_small = self.nanos.abs() < 1024 * NANO;
        // What is no whole number of bytes is written in tens.
        if self.suffix == Suffix::Binary && !is_small && self.nanos % NANO == 0 {
            let mut whole = self.nanos / NANO;
            let mut power = 0;
            while whole % 1024 == 0 && power < 6 {
                whole /= 1024;
                power += 1;
            }
            return write!(f, "{whole}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut number, mut power) = (self.nanos, -9);
        while number % 1000 == 0 && power < 18 {
            number /= 1000;
            power += 3;
        }
        if self.suffix == Suffix::Exponent {
            return match power {
                0 => write!(f, "{number}"),
                power => write!(f, "{number}e{power}"),
            };
        }
        let suffix = match power {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{number}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        for (one, other, expected) in [
            ("100m", "0.9", "1"),
            ("1Gi", "1", "1073741825"),
            ("1Gi", "512Mi", "1536Mi"),
            ("0", "1Ki", "1Ki"),
            ("1Ki", "0", "1Ki"),
            ("1n", "9223372036854775807", "9223372036854775807000000001n"),
        ] {
            let quantity = |text| Quantity::parse(text).unwrap();
            assert_eq!(quantity(one).plus(quantity(other)).to_string(), expected, "{one}");
        }
        for (one, other, expected) in
            [("2", "250m", "1750m"), ("2Gi", "1Mi", "2047Mi"), ("1", "2", "0")]
        {
            let quantity = |text| Quantity::parse(text).unwrap();
            assert_eq!(quantity(one).less(quantity(other)).to_string(), expected, "{one}");
        }
    }

    #[test]
    fn are_written_as_short_as_they_can_be() {
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1500Mi", "1500Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Gi", "107374182400m"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E2", "100"),
            ("1000", "1k"),
            ("1234567", "1234567"),
            ("0", "0"),
            ("-0", "0"),
            ("-1.5", "-1500m"),
            ("+5", "5"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("8Ei", "9223372036854775807"),
            ("1E", "1E"),
            ("0.1000000000000000055511151231257827021181583404541015625", "100000001n"),
            ("0.000000000000000000000000000000000000000000000000000000000000000001Ki", "1n"),
            ("1.5000000000000000000000000000000000000000000000000000000000000000000000", "1500m"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "much", "1.2.3", "1 ", "--1", "1x", "1e", "1mm", ".", "1kk"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert!(Quantity::parse("1e-400").unwrap().nanos() == 1);
        assert!(Quantity::parse("1e999999999").unwrap().nanos() == LARGEST * NANO);
    }
}
