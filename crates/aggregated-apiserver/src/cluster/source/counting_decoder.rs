//! Decodes an object of the cluster, and counts the memory of the decoded object during decoding.
//!
//! The length of the JSON is not a measure of the memory: a Pod of 10 kB may become a view of 500 bytes, and
//! `{"":{"":{}}}` uses a hundred times its length. The count therefore covers the decoded type: its strings, the
//! elements of its lists and the nodes of its maps. Ignored fields cost nothing. The content of a `Box` is counted
//! without its outermost size, because it is not visible to the counter. Values that are decoded and then discarded are
//! counted.
//!
//! The decoded values are hashed, too. Two documents that differ only in ignored fields become equal objects, and
//! nothing has to be computed again.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny,
    IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The memory that the allocator uses for a block in addition to its content, in bytes.
const BLOCK: usize = 16;
/// The number of entries in a node of a `BTreeMap`, and the smallest number of used entries.
const NODE: usize = 11;
const NODE_IN_USE: usize = 6;
/// The smallest capacity of a `Vec` that is not empty.
const SMALLEST_LIST: usize = 4;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The reason why an object was not decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The object exceeds the memory limit.
    TooLarge,
    /// The object does not match its type.
    Malformed(serde_json::Error),
}

/// A decoded object.
pub(super) struct Decoded<K> {
    pub object: K,
    /// The memory that the object uses, in bytes.
    pub bytes: usize,
    /// The hash of the decoded values. Equal values have equal hashes, and collisions are very unlikely.
    pub content: u64,
}

/// Decodes an object that may use `free_bytes` bytes. The managed fields and the last-applied annotation of kubectl are
/// omitted: they are often the largest part of an object, and no computation needs them.
pub(super) fn decode<K: DeserializeOwned>(
    text: &str,
    free_bytes: usize,
    hasher: &RandomState,
) -> Result<Decoded<K>, DecodeError> {
    let counter = Counter {
        left: Cell::new(free_bytes),
        is_exceeded: Cell::new(false),
        content: RefCell::new(hasher.build_hasher()),
        is_ignored: Cell::new(false),
        is_name: Cell::new(false),
    };
    let decode_error = |error| match counter.is_exceeded.get() {
        true => DecodeError::TooLarge,
        false => DecodeError::Malformed(error),
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let place = Position::Object;
    counter.take::<serde_json::Error>(size_of::<K>() + BLOCK).map_err(decode_error)?;
    let object =
        K::deserialize(CountingDeserializer { inner: &mut json, counter: &counter, place });
    let object = object.map_err(decode_error)?;
    json.end().map_err(DecodeError::Malformed)?;
    let (bytes, content) = (free_bytes - counter.left.get(), counter.content.borrow().finish());
    Ok(Decoded { object, bytes, content })
}

struct Counter {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
    /// The hasher of the decoded values.
    content: RefCell<DefaultHasher>,
    /// Whether the type ignores the value that was read last.
    is_ignored: Cell<bool>,
    /// Whether the key that was read last is the name of a field. An unknown field leaves nothing in the decoded
    /// object. A map stores its keys, even if it ignores their values.
    is_name: Cell<bool>,
}

/// The form of a decoded value, which is part of the hash, so that different forms have different hashes: `[1]` and
/// `1`, `"true"` and `true`.
#[derive(Clone, Copy, Hash)]
enum Token {
    Scalar,
    Text,
    Nothing,
    Element,
    Member,
    End,
}

impl Counter {
    /// Adds a value to the hash.
    fn mix(&self, token: Token, value: impl Hash) {
        (token, value).hash(&mut *self.content.borrow_mut());
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => {
                self.is_exceeded.set(true);
                return Err(E::custom("too large"));
            }
        }
        Ok(())
    }
}

/// The position of a value in the object.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Object,
    Metadata,
    Annotations,
    Elsewhere,
}

impl Position {
    /// The position of a field.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Metadata, "annotations") => Self::Annotations,
            _ => Self::Elsewhere,
        }
    }

    /// Whether a field is omitted.
    fn leaves_out(self, name: &str) -> bool {
        matches!(
            (self, name),
            (Self::Metadata, "managedFields") | (Self::Annotations, LAST_APPLIED)
        )
    }
}

/// Whether a list or map has its own allocation, or is part of the value that contains it.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Inline,
    Allocated,
    /// A string that is not stored, for example the name of a field.
    Identifier,
}

struct CountingDeserializer<'c, D> {
    inner: D,
    counter: &'c Counter,
    place: Position,
}

struct CountingAdapter<'c, T> {
    inner: T,
    counter: &'c Counter,
    place: Position,
    form: Form,
}

impl<'c, D> CountingDeserializer<'c, D> {
    fn split<V>(self, visitor: V, form: Form) -> (D, CountingAdapter<'c, V>) {
        let Self { inner, counter, place } = self;
        (inner, CountingAdapter { inner: visitor, counter, place, form })
    }
}

macro_rules! deserialize {
    ($($method:ident $form:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let (inner, visitor) = self.split(visitor, Form::$form);
            inner.$method(visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for CountingDeserializer<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any Allocated,
        deserialize_bool Inline,
        deserialize_i8 Inline,
        deserialize_i16 Inline,
        deserialize_i32 Inline,
        deserialize_i64 Inline,
        deserialize_i128 Inline,
        deserialize_u8 Inline,
        deserialize_u16 Inline,
        deserialize_u32 Inline,
        deserialize_u64 Inline,
        deserialize_u128 Inline,
        deserialize_f32 Inline,
        deserialize_f64 Inline,
        deserialize_char Inline,
        deserialize_str Inline,
        deserialize_string Inline,
        deserialize_bytes Allocated,
        deserialize_byte_buf Allocated,
        deserialize_option Allocated,
        deserialize_unit Inline,
        deserialize_seq Allocated,
        deserialize_map Allocated,
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.counter.is_name.set(true);
        let (inner, visitor) = self.split(visitor, Form::Identifier);
        inner.deserialize_identifier(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.counter.is_ignored.set(true);
        self.inner.deserialize_ignored_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.split(visitor, Form::Inline);
        inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.split(visitor, Form::Inline);
        inner.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.split(visitor, Form::Inline);
        inner.deserialize_tuple_struct(name, length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.split(visitor, Form::Inline);
        inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.split(visitor, Form::Inline);
        inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident $value:ty,)*) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.counter.mix(Token::Scalar, value);
            self.inner.$method(value)
        })*
    };
}

macro_rules! visit_block {
    ($($method:ident $value:ty,)*) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            if self.form != Form::Identifier {
                self.counter.take(value.len() + BLOCK)?;
            }
            self.counter.mix(Token::Text, &value);
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for CountingAdapter<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool bool,
        visit_i8 i8,
        visit_i16 i16,
        visit_i32 i32,
        visit_i64 i64,
        visit_i128 i128,
        visit_u8 u8,
        visit_u16 u16,
        visit_u32 u32,
        visit_u64 u64,
        visit_u128 u128,
        visit_char char,
    }

    fn visit_f32<E: Error>(self, value: f32) -> Result<V::Value, E> {
        self.counter.mix(Token::Scalar, value.to_bits());
        self.inner.visit_f32(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.counter.mix(Token::Scalar, value.to_bits());
        self.inner.visit_f64(value)
    }

    visit_block! {
        visit_str &str,
        visit_borrowed_str &'de str,
        visit_string String,
        visit_bytes &[u8],
        visit_borrowed_bytes &'de [u8],
        visit_byte_buf Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.counter.mix(Token::Nothing, ());
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.counter.mix(Token::Nothing, ());
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { counter, place, .. } = self;
        let value = self.inner.visit_some(CountingDeserializer { inner, counter, place });
        // The presence of a value is information, even if the value is ignored.
        counter.is_ignored.set(false);
        value
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { counter, place, .. } = self;
        self.inner.visit_newtype_struct(CountingDeserializer { inner, counter, place })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, form, .. } = self;
        let value = self.inner.visit_seq(Elements { inner, counter, form, count: 0, capacity: 0 });
        counter.mix(Token::End, ());
        value
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        let value_place = Position::Elsewhere;
        let (count, key_size, before) = (0, 0, None);
        let members = Members { inner, counter, place, form, value_place, count, key_size, before };
        let value = self.inner.visit_map(members);
        counter.mix(Token::End, ());
        value
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        let value = self.inner.visit_enum(CountingAdapter { inner, counter, place, form });
        counter.is_ignored.set(false);
        // The name of a variant is not the name of a field.
        counter.is_name.set(false);
        value
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for CountingAdapter<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let Self { counter, place, .. } = self;
        self.inner.deserialize(CountingDeserializer { inner, counter, place })
    }
}

struct Elements<'c, A> {
    inner: A,
    counter: &'c Counter,
    form: Form,
    count: usize,
    capacity: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let (counter, place, form) = (self.counter, Position::Elsewhere, Form::Inline);
        counter.mix(Token::Element, ());
        let element =
            self.inner.next_element_seed(CountingAdapter { inner: seed, counter, place, form })?;
        counter.is_ignored.set(false);
        if element.is_some() {
            self.count += 1;
            if self.form == Form::Allocated && self.count > self.capacity {
                let grown = (2 * self.capacity).max(SMALLEST_LIST);
                counter.take((grown - self.capacity) * size_of::<S::Value>())?;
                self.capacity = grown;
            }
        }
        Ok(element)
    }
}

struct Members<'c, A> {
    inner: A,
    counter: &'c Counter,
    place: Position,
    form: Form,
    /// The position of the value that is read next.
    value_place: Position,
    count: usize,
    key_size: usize,
    /// The hash before the entry whose value is read next, if the entry is a field.
    before: Option<DefaultHasher>,
}

impl<'de, A: MapAccess<'de>> Members<'_, A> {
    /// Returns the next key that is not omitted.
    fn next_key_of<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if self.place == Position::Elsewhere {
            return self.inner.next_key_seed(seed);
        }
        while let Some(name) = self.inner.next_key::<String>()? {
            if self.place.leaves_out(&name) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            self.value_place = self.place.member(&name);
            let name: StringDeserializer<A::Error> = name.into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        Ok(None)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let (counter, place, form) = (self.counter, Position::Elsewhere, Form::Inline);
        self.key_size = size_of::<S::Value>();
        let before = counter.content.borrow().clone();
        counter.mix(Token::Member, ());
        counter.is_name.set(false);
        let seed = CountingAdapter { inner: seed, counter, place, form };
        let key = self.next_key_of(seed);
        self.before = counter.is_name.take().then_some(before);
        key
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.form == Form::Allocated {
            if self.count.is_multiple_of(NODE_IN_USE) {
                let node = NODE * (self.key_size + size_of::<S::Value>());
                self.counter.take(node + BLOCK)?;
            }
            self.count += 1;
        }
        let (counter, place) = (self.counter, self.value_place);
        self.value_place = Position::Elsewhere;
        counter.is_ignored.set(false);
        let value = self.inner.next_value_seed(CountingAdapter {
            inner: seed,
            counter,
            place,
            form: Form::Inline,
        });
        if counter.is_ignored.take()
            && let Some(before) = self.before.take()
        {
            counter.content.replace(before);
        }
        value
    }
}

impl<'de, 'c, A: EnumAccess<'de>> EnumAccess<'de> for CountingAdapter<'c, A> {
    type Error = A::Error;
    type Variant = CountingAdapter<'c, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self { inner, counter, place, form } = self;
        let (variant, inner) =
            inner.variant_seed(CountingAdapter { inner: seed, counter, place, form })?;
        Ok((variant, CountingAdapter { inner, counter, place, form }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for CountingAdapter<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.newtype_variant_seed(CountingAdapter { inner: seed, counter, place, form })
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.tuple_variant(length, CountingAdapter { inner: visitor, counter, place, form })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.struct_variant(fields, CountingAdapter { inner: visitor, counter, place, form })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::api::PartialObjectMeta;
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    const ROOM: usize = 100_000_000;

    fn size<K: DeserializeOwned>(object: &Value) -> usize {
        decode_in::<K>(&object.to_string(), ROOM).unwrap().bytes
    }

    fn decode_in<K: DeserializeOwned>(
        text: &str,
        free_bytes: usize,
    ) -> Result<Decoded<K>, DecodeError> {
        decode(text, free_bytes, &RandomState::new())
    }

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "p", "labels": {"a": "b"}, "annotations": {"c": "d", LAST_APPLIED: "e"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
            },
            "spec": {
                "containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}],
                "terminationGracePeriodSeconds": 30,
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        })
    }

    #[test]
    fn a_counted_object_equals_the_object_that_serde_json_reads() {
        let mut read = decode_in::<Pod>(&pod().to_string(), ROOM).unwrap().object;
        let mut expected: Pod = serde_json::from_value(pod()).unwrap();
        assert!(expected.metadata.managed_fields.take().is_some());
        assert!(expected.metadata.annotations.as_mut().unwrap().remove(LAST_APPLIED).is_some());
        assert_eq!(read, expected);
        read.metadata.name = None;
        assert_ne!(read, expected);
    }

    #[test]
    fn counted_reads_support_every_shape_of_serde_types() {
        #[derive(Debug, PartialEq, Deserialize)]
        enum Choice {
            Unit,
            Newtype(String),
            Tuple(u8, String),
            Struct { a: Option<bool> },
        }
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(i64),
            Text(String),
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Forms {
            choices: Vec<Choice>,
            either: (Either, Either),
            numbered: BTreeMap<u32, f64>,
            nothing: Option<()>,
            any: Value,
            #[serde(flatten)]
            more: BTreeMap<String, Value>,
        }
        let given = json!({
            "choices": ["Unit", {"Newtype": "a"}, {"Tuple": [1, "b"]}, {"Struct": {"a": true}}],
            "either": [1, "c"], "numbered": {"1": 0.5}, "nothing": null,
            "any": {"a": [null, 1, -1, 1.5, "d", {"b": {}}]}, "e": "f",
        });
        let forms = decode_in::<Forms>(&given.to_string(), ROOM).unwrap().object;
        assert_eq!(forms, serde_json::from_value(given.clone()).unwrap());
        assert_eq!(decode_in::<Value>(&given.to_string(), ROOM).unwrap().object, given);
    }

    #[test]
    fn dropped_fields_do_not_count_towards_the_object_size() {
        let mut given = pod();
        let (whole, metadata) = (size::<Pod>(&given), size::<PartialObjectMeta<Pod>>(&given));
        assert!(metadata < whole, "{metadata} {whole}");
        given["metadata"]["managedFields"][0]["fieldsV1"] = json!("x".repeat(100_000));
        given["metadata"]["annotations"][LAST_APPLIED] = "x".repeat(100_000).into();
        given["spec"]["unknown"] = "x".repeat(100_000).into();
        assert_eq!(size::<Pod>(&given), whole);
        given["metadata"]["annotations"]["a"] = "x".repeat(100_000).into();
        assert!(size::<PartialObjectMeta<Pod>>(&given) > metadata + 100_000);
    }

    /// Densely nested values use far more memory than the length of their JSON.
    #[test]
    fn object_sizes_include_memory_beyond_the_json_bytes() {
        let names: BTreeMap<String, &str> = (0..1_000).map(|n| (n.to_string(), "")).collect();
        let config_map = json!({"data": names});
        let least = 1_000 * 2 * size_of::<String>();
        assert!(size::<ConfigMap>(&config_map) > least);
        assert!(size::<Value>(&config_map) > least);
        let finalizers = json!({"metadata": {"finalizers": vec![""; 1_000]}});
        assert!(size::<ReplicaSet>(&finalizers) > 1_000 * size_of::<String>());
        let deep = (0..100).fold(json!(0), |inner, _| json!({"": inner}));
        assert!(size::<Value>(&deep) > 100 * NODE * size_of::<Value>());
    }

    #[test]
    fn objects_beyond_the_memory_budget_are_not_read() {
        let given = pod().to_string();
        let size = decode_in::<Pod>(&given, ROOM).unwrap().bytes;
        assert_eq!(decode_in::<Pod>(&given, size).unwrap().bytes, size);
        assert!(matches!(decode_in::<Pod>(&given, size - 1), Err(DecodeError::TooLarge)));
        assert!(matches!(decode_in::<Pod>("[]", ROOM), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode_in::<Pod>("{} {}", ROOM), Err(DecodeError::Malformed(_))));
    }

    /// A type that decodes some fields of an object.
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Seen {
        number: Option<i64>,
        text: Option<String>,
        list: Vec<SeenElement>,
        any: BTreeMap<String, Value>,
        presence: Option<IgnoredAny>,
        names: BTreeMap<String, IgnoredAny>,
        numbers: BTreeMap<u8, IgnoredAny>,
        choices: BTreeMap<Chosen, IgnoredAny>,
        wrapped: BTreeMap<Wrapped, IgnoredAny>,
        choice: Option<Chosen>,
        floating: f64,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct SeenElement {
        a: Option<bool>,
    }

    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Chosen {
        One,
        Other,
    }

    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Wrapped(String);

    /// Objects with different decoded values have different hashes, and ignored fields do not change the hash.
    #[test]
    fn content_hashes_cover_exactly_the_fields_that_are_read() {
        let hasher = RandomState::new();
        let content =
            |object: &Value| decode::<Seen>(&object.to_string(), ROOM, &hasher).unwrap().content;
        let objects = [
            json!({}),
            json!({"number": null}),
            json!({"number": 1}),
            json!({"number": 2}),
            json!({"text": "1"}),
            json!({"text": ""}),
            json!({"list": []}),
            json!({"list": [{}]}),
            json!({"list": [{}, {}]}),
            json!({"list": [{"a": true}, {}]}),
            json!({"list": [{}, {"a": true}]}),
            json!({"list": [{"a": false}, {}]}),
            json!({"list": [{"a": null}, {}]}),
            json!({"any": {}}),
            json!({"any": {"a": {}}}),
            json!({"any": {"a": []}}),
            json!({"any": {"a": [[], []]}}),
            json!({"any": {"a": [[[]]]}}),
            json!({"any": {"a": "b", "c": "d"}}),
            json!({"any": {"a": "bc", "": "d"}}),
            json!({"any": {"a": true}}),
            json!({"any": {"a": "true"}}),
            json!({"any": {"a": 1}}),
            json!({"any": {"a": 1.5}}),
            json!({"presence": {"a": 1}}),
            json!({"names": {"a": 1}}),
            json!({"names": {"b": 1}}),
            json!({"names": {"a": 1, "b": 1}}),
            json!({"numbers": {"1": 1}}),
            json!({"numbers": {"2": 1}}),
            json!({"choices": {"One": 1}}),
            json!({"choices": {"Other": 1}}),
            json!({"choices": {"One": 1, "Other": 1}}),
            json!({"wrapped": {"a": 1}}),
            json!({"wrapped": {"b": 1}}),
            json!({"choice": "One"}),
            json!({"choice": "Other"}),
            json!({"floating": 0.5}),
        ];
        for (index, object) in objects.iter().enumerate() {
            for other in &objects[..index] {
                assert_ne!(content(object), content(other), "{object} {other}");
            }
            let mut more = object.clone();
            more["unknown"] = json!({"number": [1, {"list": "2"}]});
            more["another"] = json!(null);
            if let Some(element) = more.pointer_mut("/list/0") {
                element["unknown"] = json!([{}]);
            }
            assert_eq!(content(&more), content(object), "{more}");
        }
        // Only the keys of these maps are decoded, so their values do not count.
        for name in ["names", "wrapped"] {
            let one = content(&json!({name: {"a": 1, "b": {"c": 2}}}));
            assert_eq!(one, content(&json!({name: {"a": [{}], "b": null}})), "{name}");
        }
        let presence = |inner: Value| content(&json!({"presence": inner}));
        assert_eq!(presence(json!(1)), presence(json!({"b": []})));
        let metadata = |metadata: Value| {
            let object = json!({"metadata": metadata}).to_string();
            decode::<ConfigMap>(&object, ROOM, &hasher).unwrap().content
        };
        let name = metadata(json!({"name": "a"}));
        assert_eq!(name, metadata(json!({"name": "a", "managedFields": [{"manager": "m"}]})));
        assert_ne!(name, metadata(json!({"name": "a", "resourceVersion": "1"})));
    }
}
