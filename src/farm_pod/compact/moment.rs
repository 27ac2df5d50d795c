//! An optional time in eight bytes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{Deserialize, Deserializer};

use super::parsed;

/// An optional time with a precision of a microsecond. Kubernetes writes at most that precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment(i64);

impl Moment {
    /// No time. No valid time has this value.
    const NONE: Self = Self(i64::MIN);

    /// The time, if there is one.
    pub fn timestamp(self) -> Option<Timestamp> {
        (self != Self::NONE).then(|| Timestamp::from_microsecond(self.0).ok()).flatten()
    }

    /// The time as an API object contains it.
    pub fn time(self) -> Option<Time> {
        self.timestamp().map(Time)
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Self {
        Self(time.as_microsecond())
    }
}

/// An invalid time is read as no time.
impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time =
            parsed(deserializer, |text| text.parse().ok().map(|time: Timestamp| time.into()))?;
        Ok(time.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        #[derive(serde::Deserialize)]
        struct At {
            #[serde(default)]
            at: Moment,
        }
        for (text, expected) in [
            (r#"{"at": "2026-01-01T00:00:00Z"}"#, Some("2026-01-01T00:00:00Z")),
            (r#"{"at": "2026-01-01T01:00:00.5+01:00"}"#, Some("2026-01-01T00:00:00.5Z")),
            (r#"{"at": "2026-01-01T00:00:00.123456Z"}"#, Some("2026-01-01T00:00:00.123456Z")),
            (r#"{"at": "0001-01-01T00:00:00Z"}"#, Some("0001-01-01T00:00:00Z")),
            (r#"{"at": "9999-12-30T00:00:00Z"}"#, Some("9999-12-30T00:00:00Z")),
            (r#"{"at": null}"#, None),
            (r#"{"at": "soon"}"#, None),
            ("{}", None),
        ] {
            let at: At = serde_json::from_str(text).unwrap();
            assert_eq!(at.at.time().map(|at| at.0.to_string()).as_deref(), expected, "{text}");
        }
    }
}
