//! Numbers and their bounds, with the checks and messages of kube-apiserver's validator.

use serde_json::Value;

use super::super::faults::Faults;
use super::super::node::{JsonType, Type};
use crate::error::{FieldError, Path, go_float};

/// The largest float that can count as an integer. Larger floats skip integers.
const LARGEST_WHOLE_FLOAT: f64 = 9_007_199_254_740_991.0;

/// Checks a number against the range of its type and its bounds. The bounds must be in that range too.
pub(super) fn check(of: Type<'_>, value: &Value, path: &Path<'_>, faults: &mut Faults) {
    let Some(number) = Number::read(value) else { return };
    let range = Range::of(of);
    let checks = |bound: f64, what: &str, faults: &mut Faults| {
        let is_in_range = range.holds(&Number { whole: None, float: bound });
        if !is_in_range {
            faults.push(range.exceeded(what, path));
        }
        // If a bound is out of range, the number and the bound are compared as floats.
        let whole = number.whole.filter(|_| is_in_range);
        Comparison { number: Number { whole, float: number.float }, bound }
    };
    if !range.holds(&number) {
        faults.push(range.exceeded("Checked", path));
    }
    let Some(constraints) = of.constraints() else { return };
    if let Some(factor) = constraints.multiple_of {
        checks(factor, "MultipleOf", faults).multiple(path, faults);
    }
    if let Some((bound, is_exclusive)) = constraints.minimum {
        let words = if is_exclusive { "greater than" } else { "greater than or equal to" };
        let compared = checks(bound, "Minimum boundary", faults);
        if compared.is_below() || (is_exclusive && !compared.is_above()) {
            compared.refuse(words, path, faults);
        }
    }
    if let Some((bound, is_exclusive)) = constraints.maximum {
        let words = if is_exclusive { "less than" } else { "less than or equal to" };
        let compared = checks(bound, "Maximum boundary", faults);
        if compared.is_above() || (is_exclusive && !compared.is_below()) {
            compared.refuse(words, path, faults);
        }
    }
}

/// Whether a float counts as an integer: it is an integer or nearly one, and is not too large.
pub(super) fn is_json_integer(value: &Value) -> bool {
    value.as_f64().is_some_and(is_nearly_whole)
}

/// Whether a float is an integer, within the precision of binary fractions of decimal numbers.
fn is_nearly_whole(number: f64) -> bool {
    let whole = number.trunc();
    let is_near = || whole > 0.0 && (number - whole) / (number + whole) < 1e-9;
    number.abs() <= LARGEST_WHOLE_FLOAT && (number == whole || is_near())
}

/// A number as Go decodes it: an `int64` or a `float64`.
struct Number {
    whole: Option<i64>,
    float: f64,
}

impl Number {
    fn read(value: &Value) -> Option<Self> {
        Some(Self { whole: value.as_i64(), float: value.as_f64()? })
    }
}

/// The numbers that a type and its format allow.
enum Range {
    /// Integers of 32 or 64 bits, and the words for the format.
    Whole {
        is_short: bool,
        format: &'static str,
    },
    /// Floats of 32 bits.
    Float,
    Any,
}

impl Range {
    fn of(of: Type<'_>) -> Self {
        match (of.json_type, of.format.as_deref()) {
            _ if of.int_or_string => Self::Any,
            (Some(JsonType::Integer), Some("int32")) => {
                Self::Whole { is_short: true, format: "with format int32" }
            }
            (Some(JsonType::Integer), Some("int64")) => {
                Self::Whole { is_short: false, format: "with format int64" }
            }
            (Some(JsonType::Integer), _) => {
                Self::Whole { is_short: false, format: "(default format)" }
            }
            (Some(JsonType::Number), Some("float")) => Self::Float,
            _ => Self::Any,
        }
    }

    fn holds(&self, number: &Number) -> bool {
        match self {
            Self::Whole { is_short, .. } => {
                // Go formats a float and parses the text as an integer.
                let whole = number.whole.or_else(|| number.float.to_string().parse().ok());
                whole.is_some_and(|whole| !is_short || i32::try_from(whole).is_ok())
            }
            #[allow(clippy::cast_possible_truncation)] // the overflow is checked
            Self::Float => (number.float as f32).is_finite(),
            Self::Any => true,
        }
    }

    /// Returns the error about a number, or a bound, that is out of range.
    fn exceeded(&self, what: &str, path: &Path<'_>) -> FieldError {
        let of_type = match self {
            Self::Whole { format, .. } => format!("integer {format}"),
            Self::Float | Self::Any => "number with format float".to_owned(),
        };
        let detail = format!("{what} value must be of type {of_type} in {path}");
        FieldError::invalid("<nil>", "\"\"", &detail)
    }
}

/// A number and a bound. An integer is compared with the integer part of the bound.
struct Comparison {
    number: Number,
    bound: f64,
}

impl Comparison {
    fn is_below(&self) -> bool {
        match self.number.whole {
            Some(whole) => whole < go_integer(self.bound),
            None => self.number.float < self.bound,
        }
    }

    fn is_above(&self) -> bool {
        match self.number.whole {
            Some(whole) => whole > go_integer(self.bound),
            None => self.number.float > self.bound,
        }
    }

    fn multiple(&self, path: &Path<'_>, faults: &mut Faults) {
        let (factor, float) = (self.bound, self.number.float);
        let (is_positive, is_multiple) = match self.number.whole {
            Some(whole) => {
                let factor = go_integer(factor);
                (factor > 0, whole.checked_rem(factor) == Some(0))
            }
            None if factor < 1.0 => (factor > 0.0, is_nearly_whole(1.0 / factor * float)),
            None => (true, is_nearly_whole(float / factor)),
        };
        if !is_positive {
            let factor = self.shown_bound();
            let detail =
                format!("factor MultipleOf declared for {path} must be positive: {factor}");
            faults.push(FieldError::invalid(path, factor, &detail));
        } else if !is_multiple {
            self.refuse("a multiple of", path, faults);
        }
    }

    fn refuse(&self, relation: &str, path: &Path<'_>, faults: &mut Faults) {
        let detail = format!("{path} in body should be {relation} {}", self.shown_bound());
        let shown = match self.number.whole {
            Some(whole) => whole.to_string(),
            None => go_float(self.number.float),
        };
        faults.push(FieldError::invalid(path, shown, &detail));
    }

    fn shown_bound(&self) -> String {
        match self.number.whole {
            Some(_) => go_integer(self.bound).to_string(),
            None => go_float(self.bound),
        }
    }
}

/// Converts a float to an integer as Go does on the processors of servers: a float that does not fit becomes the
/// smallest integer.
fn go_integer(number: f64) -> i64 {
    in_64_bits(number).unwrap_or(i64::MIN)
}

/// Returns the integer part of a float, if it has at most 64 bits.
fn in_64_bits(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation)] // the range is checked
    (-LIMIT..LIMIT).contains(&number).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_count_as_integers_as_in_go() {
        for (number, expected) in [
            (1.0, true),
            (-3.0, true),
            (2.000_000_000_1, true),
            (1.999_999_999_9, false),
            (-2.000_000_000_1, false),
            (0.000_000_000_1, false),
            (9_007_199_254_740_991.0, true),
            (9_007_199_254_740_992.0, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(is_nearly_whole(number), expected, "{number}");
        }
    }

    #[test]
    fn floats_convert_to_integers_as_in_go() {
        assert_eq!(go_integer(-1.9), -1);
        assert_eq!(go_integer(1e21), i64::MIN);
        assert_eq!(go_integer(-1e21), i64::MIN);
    }
}
