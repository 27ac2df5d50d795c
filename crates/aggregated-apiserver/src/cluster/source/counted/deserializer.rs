//! A deserializer that passes every value on to the decoded type, and counts the value.

use std::fmt;
use std::hash::DefaultHasher;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::{BLOCK, Counter, Form, Mark, NODE, NODE_IN_USE, Position, SMALLEST_LIST};

pub(super) struct Counting<'c, D> {
    pub inner: D,
    pub counter: &'c Counter,
    pub place: Position,
}

struct Watched<'c, T> {
    inner: T,
    counter: &'c Counter,
    place: Position,
    form: Form,
}

impl<'c, D> Counting<'c, D> {
    fn split<V>(self, visitor: V, form: Form) -> (D, Watched<'c, V>) {
        let Self { inner, counter, place } = self;
        (inner, Watched { inner: visitor, counter, place, form })
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

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counting<'_, D> {
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
            self.counter.mix(Mark::Scalar, value);
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
            self.counter.mix(Mark::Text, &value);
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watched<'_, V> {
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
        self.counter.mix(Mark::Scalar, value.to_bits());
        self.inner.visit_f32(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.counter.mix(Mark::Scalar, value.to_bits());
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
        self.counter.mix(Mark::Nothing, ());
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.counter.mix(Mark::Nothing, ());
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { counter, place, .. } = self;
        let value = self.inner.visit_some(Counting { inner, counter, place });
        // The presence of a value is information, even if the value is ignored.
        counter.is_ignored.set(false);
        value
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { counter, place, .. } = self;
        self.inner.visit_newtype_struct(Counting { inner, counter, place })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, form, .. } = self;
        let value = self.inner.visit_seq(Elements { inner, counter, form, count: 0, capacity: 0 });
        counter.mix(Mark::End, ());
        value
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        let value_place = Position::Elsewhere;
        let (count, key_size, before) = (0, 0, None);
        let members = Members { inner, counter, place, form, value_place, count, key_size, before };
        let value = self.inner.visit_map(members);
        counter.mix(Mark::End, ());
        value
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        let value = self.inner.visit_enum(Watched { inner, counter, place, form });
        counter.is_ignored.set(false);
        // The name of a variant is not the name of a field.
        counter.is_name.set(false);
        value
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Watched<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let Self { counter, place, .. } = self;
        self.inner.deserialize(Counting { inner, counter, place })
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
        counter.mix(Mark::Element, ());
        let element =
            self.inner.next_element_seed(Watched { inner: seed, counter, place, form })?;
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
        counter.mix(Mark::Member, ());
        counter.is_name.set(false);
        let seed = Watched { inner: seed, counter, place, form };
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
        let value =
            self.inner.next_value_seed(Watched { inner: seed, counter, place, form: Form::Inline });
        if counter.is_ignored.take()
            && let Some(before) = self.before.take()
        {
            counter.content.replace(before);
        }
        value
    }
}

impl<'de, 'c, A: EnumAccess<'de>> EnumAccess<'de> for Watched<'c, A> {
    type Error = A::Error;
    type Variant = Watched<'c, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self { inner, counter, place, form } = self;
        let (variant, inner) = inner.variant_seed(Watched { inner: seed, counter, place, form })?;
        Ok((variant, Watched { inner, counter, place, form }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Watched<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.newtype_variant_seed(Watched { inner: seed, counter, place, form })
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.tuple_variant(length, Watched { inner: visitor, counter, place, form })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Self { counter, place, form, .. } = self;
        self.inner.struct_variant(fields, Watched { inner: visitor, counter, place, form })
    }
}
