//! Compact types for the values that are read of Pods, because a cluster has many Pods. A `BTreeMap` of one entry uses
//! half a kilobyte, and a `Vec` of one element the memory of four.

mod address;
mod moment;
mod shared;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

pub use address::Address;
pub use moment::Moment;
pub(crate) use shared::pooled;
pub use shared::{Pool, Pooled, Shared, Word};

/// A string that is never changed after it is read.
pub type Text = Box<str>;

/// A list that never grows after it is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List<T>(Box<[T]>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(elements: Vec<T>) -> Self {
        Self(elements.into_boxed_slice())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
                let mut elements = Vec::new();
                while list.next_element_seed(Push(&mut elements))?.is_some() {}
                Ok(List::from(elements))
            }
        }

        deserializer.deserialize_seq(Reader(PhantomData))
    }
}

/// Deserializes an element into a list.
struct Push<'a, T>(&'a mut Vec<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Push<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.push(T::deserialize(deserializer)?);
        Ok(())
    }
}

/// A map from strings to strings, for example labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pairs(List<(Text, Text)>);

pooled!(Pairs);

impl Pairs {
    /// All pairs, in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// The pairs as a `BTreeMap`; `None` without pairs.
    pub fn map(&self) -> Option<BTreeMap<String, String>> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        (!self.0.is_empty()).then(|| self.iter().map(owned).collect())
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("texts by texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key()? {
                    pairs.push((key, Text::default()));
                    if let Some((_, value)) = pairs.last_mut() {
                        map.next_value_seed(Into(value))?;
                    }
                }
                Ok(Pairs(List::from(pairs)))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

/// Deserializes a string in place.
struct Into<'a>(&'a mut Text);

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.0 = Text::deserialize(deserializer)?;
        Ok(())
    }
}

/// Parses a value from a string without storing the string. The string is deserialized as an identifier, so that memory
/// accounting does not count it.
pub fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    struct Reader<T>(fn(&str) -> Option<T>);

    impl<'de, T> Visitor<'de> for Reader<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E>(self, text: &str) -> Result<Option<T>, E> {
            Ok((self.0)(text))
        }

        fn visit_none<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
            deserializer.deserialize_identifier(self)
        }
    }

    deserializer.deserialize_option(Reader(parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_pairs_are_read() {
        let list: List<u8> = serde_json::from_value(json!([1, 2, 3])).unwrap();
        assert_eq!(&*list, [1, 2, 3]);
        let pairs: Pairs = serde_json::from_str(r#"{"b": "1", "a": ""}"#).unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [("b", "1"), ("a", "")]);
        assert_eq!((pairs.get("a"), pairs.get("c")), (Some(""), None));
        assert!(serde_json::from_str::<Pairs>(r#"{"b": 1}"#).is_err());
        assert!(serde_json::from_str::<List<u8>>("[1,").is_err());
    }
}
