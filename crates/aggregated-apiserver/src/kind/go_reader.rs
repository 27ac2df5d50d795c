//! Deserializes objects that Go has written as Rust types, which are stricter: Go's zero time is null, and Go's times
//! reach one day further than those of Rust.

use jiff::Timestamp;
use jiff::civil::DateTime;
use serde::Deserializer;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// The limit below which all whole numbers are exact as floats.
const EXACT: f64 = 9e15;

/// Go's zero time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Deserializes an object in the same way as Go decodes it: a null for a time is Go's zero time, and `1.0` is a whole
/// number.
///
/// # Errors
/// If a field has another type.
pub fn read<K: DeserializeOwned>(value: &Value) -> Result<K, Error> {
    K::deserialize(GoReader(value))
}

/// Deserializes a JSON object in the same way as [`read`].
///
/// # Errors
/// If a field has another type.
pub fn read_object<K: DeserializeOwned>(object: &Map<String, Value>) -> Result<K, Error> {
    K::deserialize(ObjectReader(object))
}

/// A deserializer of a value.
struct GoReader<'a>(&'a Value);

/// A deserializer of a JSON object.
struct ObjectReader<'a>(&'a Map<String, Value>);

/// Iterates over the fields of an object.
struct Fields<'a> {
    fields: serde_json::map::Iter<'a>,
    value: Option<&'a Value>,
}

/// Iterates over the elements of a list.
struct Elements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Fields<'a> {
    fn of(object: &'a Map<String, Value>) -> Self {
        Self { fields: object.iter(), value: None }
    }
}

impl GoReader<'_> {
    /// The number as an integer, if it is a float without a fraction.
    fn whole(&self) -> Option<i64> {
        let float = self.0.as_f64().filter(|_| self.0.is_f64())?;
        #[allow(clippy::cast_possible_truncation)] // it is whole, and small enough
        (float.fract() == 0.0 && float.abs() < EXACT).then_some(float as i64)
    }

    /// The time that replaces this value for Rust.
    fn time(&self) -> Option<String> {
        match self.0 {
            Value::Null => Some(ZERO_TIME.to_owned()),
            Value::String(text) if text.parse::<Timestamp>().is_err() => {
                // Go's largest times are on a day that Rust's range does not fully contain because of time zones.
                let time: DateTime = text.strip_suffix('Z')?.parse().ok()?;
                (time.year() == 9999).then(|| Timestamp::MAX.to_string())
            }
            _ => None,
        }
    }
}

impl<'de> Deserializer<'de> for GoReader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(object) => visitor.visit_map(Fields::of(object)),
            Value::Array(items) => visitor.visit_seq(Elements(items.iter())),
            Value::String(text) => visitor.visit_borrowed_str(text),
            other => match self.whole() {
                Some(number) => visitor.visit_i64(number),
                None => other.deserialize_any(visitor),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if matches!(name, "Time" | "MicroTime")
            && let Some(time) = self.time()
        {
            let time: StringDeserializer<Error> = time.into_deserializer();
            return visitor.visit_newtype_struct(time);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for ObjectReader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields::of(self.0))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(GoReader(self.value.take().unwrap_or(&Value::Null)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(GoReader(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Event, Service};
    use serde_json::json;

    #[test]
    fn a_null_is_the_zero_time() {
        let conditions = json!([{"type": "a", "status": "True", "lastTransitionTime": null}]);
        let service = json!({"status": {"conditions": conditions}});
        let service: Service = read(&service).unwrap();
        let condition = &service.status.unwrap().conditions.unwrap()[0];
        assert_eq!(condition.last_transition_time.0.to_string(), ZERO_TIME);
        let event = json!({"metadata": {}, "involvedObject": {}, "eventTime": null});
        assert_eq!(read::<Event>(&event).unwrap().event_time, None);
    }

    #[test]
    fn the_latest_go_time_is_read_as_the_latest_timestamp() {
        for time in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"] {
            let service = json!({"metadata": {"creationTimestamp": time}});
            let service: Service = read(&service).unwrap();
            assert_eq!(service.metadata.creation_timestamp.unwrap().0, Timestamp::MAX);
        }
        let service = json!({"metadata": {"creationTimestamp": "now"}});
        assert!(read::<Service>(&service).is_err());
    }

    #[test]
    fn whole_floats_are_read_as_integers_and_others_are_rejected() {
        let port = |port: Value| {
            let service = json!({"spec": {"ports": [{"port": port, "targetPort": port}]}});
            let service = read_object::<Service>(service.as_object().unwrap());
            service.map(|service| service.spec.unwrap().ports.unwrap()[0].port).ok()
        };
        assert_eq!((port(json!(7.0)), port(json!(7))), (Some(7), Some(7)));
        assert_eq!((port(json!(7.5)), port(json!(1e10)), port(json!("x"))), (None, None, None));
    }
}
