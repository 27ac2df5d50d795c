//! Quantities: `100m`, `1.5Gi`.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Extension, Native};
use crate::value::{Failure, Outcome, Value};

/// A quantity of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// The amount in billionths.
    amount: i128,
    /// Whether Go stores the amount as an integer, not as a scaled or a decimal number.
    is_whole: bool,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
    }
}

/// The number of billionths in one.
const ONE: i128 = 1_000_000_000;
/// The largest amount, in billionths.
const LARGEST: i128 = i64::MAX as i128 * ONE;

const WRONG_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "quantity" => |_, all| match all {
            [Value::String(text)] => parse(text.as_str()).map(value).map_err(Failure::new),
            _ => Err(Failure::no_such_overload()),
        },
        "isQuantity" => |_, all| match all {
            [Value::String(text)] => Ok(Value::Bool(parse(text.as_str()).is_ok())),
            _ => Err(Failure::no_such_overload()),
        },
        "sign" => |_, all| one(all, |of| Ok(Value::Int(of.amount.signum() as i64))),
        "isInteger" => |_, all| one(all, |of| Ok(Value::Bool(of.whole().is_some()))),
        "asInteger" => |_, all| {
            one(all, |of| {
                let whole = of.whole().map(Value::Int);
                whole.ok_or_else(|| Failure::new("cannot convert value to integer"))
            })
        },
        "asApproximateFloat" => |_, all| {
            one(all, |of| {
                let (whole, rest) = (of.amount / ONE, of.amount % ONE);
                Ok(Value::Double(whole as f64 + rest as f64 / ONE as f64))
            })
        },
        "add" => |_, all| with(all, i128::saturating_add),
        "sub" => |_, all| with(all, i128::saturating_sub),
        _ => return None,
    })
}

fn value(of: Quantity) -> Value<'static> {
    Value::Extension(Arc::new(Extension::Quantity(of)))
}

fn one<'v>(all: &[Value<'v>], of: fn(Quantity) -> Outcome<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match **value {
            Extension::Quantity(quantity) => of(quantity),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn with<'v>(all: &[Value<'v>], of: fn(i128, i128) -> i128) -> Outcome<'v> {
    let quantity = |value: &Value<'v>| match value {
        Value::Int(number) => Some(Quantity { amount: i128::from(*number) * ONE, is_whole: true }),
        Value::Extension(of) => match **of {
            Extension::Quantity(quantity) => Some(quantity),
            _ => None,
        },
        _ => None,
    };
    match all {
        [Value::Extension(_), _] => match (quantity(&all[0]), quantity(&all[1])) {
            (Some(a), Some(b)) => {
                let amount = of(a.amount, b.amount);
                // Adding zero keeps the representation of the other amount.
                let is_whole = match (a.amount, b.amount) {
                    (_, 0) => a.is_whole,
                    (0, _) => b.is_whole,
                    _ => a.is_whole && b.is_whole,
                };
                Ok(value(Quantity { amount, is_whole }))
            }
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

impl Quantity {
    fn whole(self) -> Option<i64> {
        (self.is_whole && self.amount % ONE == 0).then(|| i64::try_from(self.amount / ONE).ok())?
    }

    pub(super) fn order(self, other: Self) -> Ordering {
        self.amount.cmp(&other.amount)
    }
}

/// Parses an amount. Fractions of a billionth are rounded up.
fn parse(text: &str) -> Result<Quantity, &'static str> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A unit without digits is zero, because Go accepts `k` and `-`.
    if text.is_empty() || fraction.contains('.') {
        return Err(WRONG_FORM);
    }
    let (base, exponent) = scale(suffix)?;
    // The number in billionths, times a power of ten or of two.
    let mut digits: Vec<u8> =
        whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
    let mut point = whole.len() as i64 + 9;
    if base == 10 {
        point += i64::from(exponent);
    }
    let mut rounds_up = false;
    let mut amount: i128 = 0;
    if point < digits.len() as i64 {
        let kept = usize::try_from(point).unwrap_or_default();
        // With a binary suffix, the digits are multiplied before they are cut off.
        if base == 10 {
            rounds_up = digits[kept..].iter().any(|digit| *digit != 0);
            digits.truncate(kept);
        }
    }
    let mut extra = 0_u32;
    for (at, digit) in digits.iter().enumerate() {
        if base == 2 && at as i64 >= point {
            extra += 1;
            if extra > 9 {
                rounds_up |= *digit != 0;
                extra = 9;
                continue;
            }
        }
        amount = amount.saturating_mul(10).saturating_add(i128::from(*digit));
        if amount > LARGEST.saturating_mul(ONE) {
            amount = LARGEST.saturating_mul(ONE);
        }
    }
    for _ in digits.len() as i64..point {
        amount = amount.saturating_mul(10).min(LARGEST.saturating_mul(2));
    }
    if base == 2 {
        for _ in 0..exponent {
            amount = amount.saturating_mul(2);
        }
        let divisor = 10_i128.pow(extra);
        rounds_up |= amount % divisor != 0;
        amount /= divisor;
    }
    /// The number of digits that Go always stores in an integer.
    const DIGITS: usize = 18;
    let is_short = whole.len() + fraction.len() <= DIGITS && amount <= LARGEST;
    let is_whole = match base {
        10 => is_short && exponent >= fraction.len() as i32,
        _ => is_short && fraction.is_empty(),
    };
    amount = (amount + i128::from(rounds_up)).min(LARGEST);
    Ok(Quantity { amount: if is_negative { -amount } else { amount }, is_whole })
}

/// The base and the exponent of a suffix: a power of ten or of two.
fn scale(suffix: &str) -> Result<(u32, i32), &'static str> {
    Ok(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        other => {
            let Some(exponent) = other.strip_prefix(['e', 'E']) else {
                let form = |char: char| "eEinumkKMGTP".contains(char);
                let is_form = other.trim_start_matches(form).is_empty();
                return Err(if is_form { WRONG_SUFFIX } else { WRONG_FORM });
            };
            let exponent: i32 = exponent.parse().map_err(|_| WRONG_SUFFIX)?;
            (10, exponent.clamp(-100, 100))
        }
    })
}
