//! Labels of an object, in a form that takes little room.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ObjectError, Tree};

/// What a label takes besides its texts, in bytes.
const LABEL: usize = 64;

/// Labels, in byte order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

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
        let position = self.0.binary_search_by_key(&key, |(key, _)| key).ok()?;
        self.0.get(position).map(|(_, value)| &**value)
    }

    /// The labels, in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// How many bytes of memory they take, about.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len() + LABEL).sum()
    }
}

impl FromIterator<(Box<str>, Box<str>)> for Labels {
    fn from_iter<T: IntoIterator<Item = (Box<str>, Box<str>)>>(pairs: T) -> Self {
        let mut pairs: Box<[_]> = pairs.into_iter().collect();
        pairs.sort_unstable();
        Self(pairs)
    }
}
