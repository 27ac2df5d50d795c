//! The labels of an object, in one allocation.

use std::fmt::{self, Write as _};

use arcstr::ArcStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{ObjectError, Tree};

/// The memory of labels besides their strings, in bytes.
const LABELS: usize = 32;
/// The memory of a label besides its strings, in bytes: the encoded lengths of both strings.
const LABEL: usize = 6;

/// The labels of an object, in byte order of their keys. Copies share their memory.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(
    /// Keys and values alternately, each behind its length: `3:app3:web`.
    ArcStr,
);

impl Labels {
    /// The labels in the metadata of an object.
    ///
    /// # Errors
    /// If a value is not a string.
    pub(super) fn of(metadata: &Tree) -> Result<Self, ObjectError> {
        let Some(Value::Object(labels)) = metadata.get("labels") else {
            return Ok(Self::default());
        };
        let pair = |(key, value): (&String, &Value)| match value {
            Value::String(value) => Ok((Box::from(key.as_str()), Box::from(value.as_str()))),
            _ => Err(ObjectError(format!("metadata.labels.{key}: must be a text"))),
        };
        let pairs: Result<Vec<_>, _> = labels.iter().map(pair).collect();
        Ok(pairs?.into_iter().collect())
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// The labels, in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || Some((take(&mut rest)?, take(&mut rest)?)))
    }

    /// The approximate memory of the labels, in bytes.
    pub fn size(&self) -> usize {
        self.0.len() + if self.0.is_empty() { 0 } else { LABELS }
    }

    fn collect(mut pairs: Vec<(Box<str>, Box<str>)>) -> Self {
        pairs.sort_unstable();
        let texts = pairs.iter().map(|(key, value)| key.len() + value.len() + LABEL);
        let mut written = String::with_capacity(texts.sum());
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            // Writing to a string cannot fail.
            let _ = write!(written, "{}:{text}", text.len());
        }
        Self(written.into())
    }
}

/// Removes the next string from the beginning of `rest`.
fn take<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (length, texts) = rest.split_once(':')?;
    let (text, behind) = texts.split_at_checked(length.parse().ok()?)?;
    *rest = behind;
    Some(text)
}

impl FromIterator<(Box<str>, Box<str>)> for Labels {
    fn from_iter<T: IntoIterator<Item = (Box<str>, Box<str>)>>(pairs: T) -> Self {
        Self::collect(pairs.into_iter().collect())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Labels are serialized as pairs, which is their format in stores.
impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_return_the_given_values_in_key_order() {
        let given = [("tier", "front"), ("app", "web:1"), ("", ""), ("ü", "3:x"), ("empty", "")];
        let labels: Labels =
            given.map(|(key, value)| (key.into(), value.into())).into_iter().collect();
        let mut expected = given;
        expected.sort_unstable();
        assert!(labels.iter().eq(expected));
        for (key, value) in given {
            assert_eq!(labels.get(key), Some(value));
        }
        assert_eq!((labels.get("front"), Labels::default().get("")), (None, None));
        assert_eq!(format!("{labels:?}").matches("web:1").count(), 1);
    }

    /// The serialized form must stay the same, because stores contain it.
    #[test]
    fn are_written_as_pairs() {
        let labels: Labels =
            [("b".into(), "2".into()), ("a".into(), "1".into())].into_iter().collect();
        let written = serde_json::to_string(&labels).unwrap();
        assert_eq!(written, r#"[["a","1"],["b","2"]]"#);
        assert_eq!(serde_json::from_str::<Labels>(&written).unwrap(), labels);
    }
}
