//! Quantities: amounts of resources, such as `100m`, `1.5Gi` or `12e6`.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>

use std::fmt;

/// kube-apiserver's message about a text that is not a quantity.
const FAULT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// The number of stored units in one whole. Smaller parts are rounded up to a unit.
const NANO: i128 = 1_000_000_000;
/// The largest whole amount. Larger amounts are reduced to it.
const LARGEST: i128 = i64::MAX as i128;
/// The largest number of digits after the decimal point that are read.
const KEPT_DIGITS: usize = 18;

/// An amount and its notation.
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
    /// Parses a quantity.
    ///
    /// # Errors
    /// The message of kube-apiserver, if the text is not a quantity.
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

    /// Returns a quantity of whole units.
    pub fn from_whole(number: u64) -> Self {
        Self { nanos: i128::from(number) * NANO, suffix: Suffix::Decimal }
    }

    /// Returns the sum in the notation of this quantity, or in the notation of `other` if this quantity is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let suffix = if self.nanos == 0 { other.suffix } else { self.suffix };
        Self { nanos: self.nanos.saturating_add(other.nanos), suffix }
    }

    /// Returns the difference in the notation of this quantity; zero if `other` is larger.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).max(0), ..self }
    }

    /// Returns the quantity in thousandths, rounded up: the precision of the resources of a container.
    #[must_use]
    pub fn in_thousandths(self) -> Self {
        const MILLI: i128 = NANO / 1_000;
        let rest = self.nanos.rem_euclid(MILLI);
        let more = if rest == 0 { 0 } else { MILLI - rest };
        Self { nanos: self.nanos + more, ..self }
    }

    /// Returns the amount in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }
}

/// Returns the base, the power and the notation of a suffix.
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

/// Returns a number in billionths, rounded up; `None` if it is too large.
fn magnitude(whole: &str, part: &str, base: i128, power: i32) -> Option<i128> {
    // Digits beyond `KEPT_DIGITS` only affect rounding.
    let part = part.trim_end_matches('0');
    let (part, rest) = part.split_at(part.len().min(KEPT_DIGITS));
    let digits = format!("{whole}{part}{}", if rest.is_empty() { "" } else { "1" });
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let mut value: i128 = digits.parse().ok()?;
    // The amount is `value` times a power of ten. A power of 1024 is multiplied into `value`.
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
    // An amount that is smaller than a billionth is rounded up.
    Some(divisor.map_or(1, |divisor| value / divisor + i128::from(value % divisor != 0)))
}

/// Formats the quantity as kube-apiserver does: with the largest suffix that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let is_small = self.nanos.abs() < 1024 * NANO;
        // Small amounts, and amounts that are not whole numbers, have decimal suffixes.
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
    fn quantities_are_written_in_canonical_form() {
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
