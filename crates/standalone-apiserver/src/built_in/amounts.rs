//! Amounts with the rounding of Go: whole numbers or thousandths, both rounded up.

use aggregated_apiserver::types::Quantity;

/// An amount in whole numbers.
pub(crate) fn whole_value(amount: Quantity) -> i128 {
    rounded_up(amount.nanos(), 1_000_000_000)
}

/// An amount in thousandths.
pub(crate) fn milli_value(amount: Quantity) -> i128 {
    rounded_up(amount.nanos(), 1_000_000)
}

/// Go rounds away from zero.
fn rounded_up(nanos: i128, unit: i128) -> i128 {
    let rest = nanos % unit;
    nanos / unit + rest.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_away_from_zero() {
        for (text, whole, milli) in [
            ("1", 1, 1_000),
            ("1500m", 2, 1_500),
            ("1n", 1, 1),
            ("-1n", -1, -1),
            ("1Ki", 1_024, 1_024_000),
        ] {
            let amount = Quantity::parse(text).unwrap();
            assert_eq!((whole_value(amount), milli_value(amount)), (whole, milli), "{text}");
        }
    }
}
