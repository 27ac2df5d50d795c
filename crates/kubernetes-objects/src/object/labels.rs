//! Labels of an object, in one block of memory.

use std::fmt::{self, Write as _};

use arcstr::ArcStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{ObjectError, Tree};

/// What labels take besides their texts, in bytes.
const LABELS: usize = 32;
/// What a label takes besides its texts: how long they are is written down.
const LABEL: usize = 6;

/// Labels, in byte order of their keys. A copy takes no more room.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(
    /// Keys and values in turns, each behind its length: `3:app3:web`.
    ArcStr,
);

impl Labels {
    /// The labels in an object's metadata.
    ///
    /// # Errors
    /// When one is not a text.
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

    /// How many bytes of memory they take, about.
    pub fn size(&self) -> usize {
        self.0.len() + if self.0.is_empty() { 0 } else { LABELS }
    }

    fn collect(mut pairs: Vec<(Box<str>, Box<str>)>) -> Self {
        pairs.sort_unstable();
        let texts = pairs.iter().map(|(key, value)| key.len() + value.len() + LABEL);
        let mut written = String::with_capacity(texts.sum());
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            // A text takes what is written to it.
            let _ = write!(written, "{}:{text}", text.len());
        }
        Self(written.into())
    }
}

/// The next text, taken away from what follows.
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

/// As pairs: stores keep them so.
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
    fn are_what_was_given() {
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

    /// It is the form in which stores have kept them.
    #[test]
    fn are_written_as_pairs() {
        let labels: Labels =
            [("b".into(), "2".into()), ("a".into(), "1".into())].into_iter().collect();
        let written = serde_json::to_string(&labels).unwrap();
        assert_eq!(written, r#"[["a","1"],["b","2"]]"#);
        assert_eq!(serde_json::from_str::<Labels>(&written).unwrap(), labels);
    }
}
