//! The values of metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value of a custom metric for an object.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricValue {
    /// The name of the object.
    pub object: String,
    /// The value.
    pub sample: Sample,
}

impl MetricValue {
    /// The value for the object with this name.
    ///
    /// ```
    /// use aggregated_apiserver::paths::metrics_apis::MetricValue;
    ///
    /// assert_eq!(MetricValue::new("web-0", 20).sample.value.0, "20");
    /// ```
    pub fn new(object: impl Into<String>, sample: impl Into<Sample>) -> Self {
        Self { object: object.into(), sample: sample.into() }
    }
}

/// A value of an external metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalValue {
    /// The labels that identify the value among the values of the metric.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub sample: Sample,
}

impl ExternalValue {
    /// The value with these labels.
    ///
    /// ```
    /// use aggregated_apiserver::paths::metrics_apis::ExternalValue;
    ///
    /// let length = ExternalValue::new([("queue", "orders")], 30);
    /// assert_eq!(length.labels["queue"], "orders");
    /// ```
    pub fn new<K: Into<String>, V: Into<String>>(
        labels: impl IntoIterator<Item = (K, V)>,
        sample: impl Into<Sample>,
    ) -> Self {
        let labels = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self { labels, sample: sample.into() }
    }
}

/// A value with its time. A number of Rust, or a [`Quantity`], becomes a value that was measured now. Numbers with a
/// fraction are rounded to thousandths.
///
/// ```
/// use aggregated_apiserver::paths::metrics_apis::Sample;
/// use std::time::Duration;
///
/// let rate = Sample { window: Some(Duration::from_secs(30)), ..Sample::from(12.5) };
/// assert_eq!(rate.value.0, "12500m");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The value.
    pub value: Quantity,
    /// The time of the measurement.
    pub timestamp: Timestamp,
    /// The time over which a rate was measured.
    pub window: Option<Duration>,
}

impl From<Quantity> for Sample {
    fn from(value: Quantity) -> Self {
        Self { value, timestamp: Timestamp::now(), window: None }
    }
}

impl From<f64> for Sample {
    fn from(number: f64) -> Self {
        let has_fraction = number.is_finite() && number.fract() != 0.0;
        let number =
            if has_fraction { format!("{:.0}m", number * 1000.0) } else { number.to_string() };
        Quantity(number).into()
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {
        $(impl From<$integer> for Sample {
            fn from(number: $integer) -> Self {
                Quantity(number.to_string()).into()
            }
        })*
    };
}

from_integers!(i32 i64 u32 u64 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_quantities() {
        for (sample, expected) in [
            (Sample::from(20), "20"),
            (Sample::from(u64::MAX), "18446744073709551615"),
            (Sample::from(12.5), "12500m"),
            (Sample::from(-0.25), "-250m"),
            (Sample::from(3.0), "3"),
            (Sample::from(0.0001), "0m"),
            (Sample::from(1e9), "1000000000"),
            (Sample::from(f64::NAN), "NaN"),
            (Sample::from(f64::INFINITY), "inf"),
        ] {
            assert_eq!(sample.value.0, expected);
        }
    }
}
