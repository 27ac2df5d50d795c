//! A deserializer that passes every value on to the decoded type, and counts the value.

use std::fmt;
use std::hash::DefaultHasher;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::{BLOCK, Counter, Form, NODE, NODE_IN_USE, Position, SMALLEST_LIST, Token};

/// A deserializer, visitor, seed or variant, together with the counter of the values that pass through it.
pub(super) struct Counting<'c, T> {
    inner: T,
    counter: &'c Counter,
    place: Position,
    form: Form,
}

impl<'c, T> Counting<'c, T> {
    /// Counts what a deserializer of an object decodes.
    pub(super) fn of_object(inner: T, counter: &'c Counter) -> Self {
        Self::of_part(inner, counter, Position::Object)
    }

    /// Counts what decodes a part of an object, at this position.
    fn of_part(inner: T, counter: &'c Counter, place: Position) -> Self {
        Self { inner, counter, place, form: Form::Inline }
    }

    /// Splits off the inner value, and counts what passes through another one at the same position.
    fn split<U>(self, inner: U) -> (T, Counting<'c, U>) {
        let Self { inner: outer, counter, place, form } = self;
        (outer, Counting { inner, counter, place, form })
    }

    /// Same as [`split`](Self::split), for a value of this form.
    fn split_as<U>(self, inner: U, form: Form) -> (T, Counting<'c, U>) {
        Self { form, ..self }.split(inner)
    }
}

macro_rules! deserialize {
    ($($method:ident($($name:ident: $type:ty),*) $form:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let (inner, visitor) = self.split_as(visitor, Form::$form);
            inner.$method($($name,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counting<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any() Allocated,
        deserialize_bool() Inline,
        deserialize_i8() Inline,
        deserialize_i16() Inline,
        deserialize_i32() Inline,
        deserialize_i64() Inline,
        deserialize_i128() Inline,
        deserialize_u8() Inline,
        deserialize_u16() Inline,
        deserialize_u32() Inline,
        deserialize_u64() Inline,
        deserialize_u128() Inline,
        deserialize_f32() Inline,
        deserialize_f64() Inline,
        deserialize_char() Inline,
        deserialize_str() Inline,
        deserialize_string() Inline,
        deserialize_bytes() Allocated,
        deserialize_byte_buf() Allocated,
        deserialize_option() Allocated,
        deserialize_unit() Inline,
        deserialize_seq() Allocated,
        deserialize_map() Allocated,
        deserialize_newtype_struct(name: &'static str) Inline,
        deserialize_tuple(length: usize) Inline,
        deserialize_tuple_struct(name: &'static str, length: usize) Inline,
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) Inline,
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) Inline,
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.counter.is_name.set(true);
        let (inner, visitor) = self.split_as(visitor, Form::Identifier);
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

impl<'de, V: Visitor<'de>> Visitor<'de> for Counting<'_, V> {
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
        let counter = self.counter;
        let (visitor, inner) = self.split(inner);
        let value = visitor.visit_some(inner);
        // The presence of a value is information, even if the value is ignored.
        counter.is_ignored.set(false);
        value
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let (visitor, inner) = self.split(inner);
        visitor.visit_newtype_struct(inner)
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
        let counter = self.counter;
        let (visitor, inner) = self.split(inner);
        let value = visitor.visit_enum(inner);
        counter.is_ignored.set(false);
        // The name of a variant is not the name of a field.
        counter.is_name.set(false);
        value
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counting<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let (seed, inner) = self.split(inner);
        seed.deserialize(inner)
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
        let counter = self.counter;
        counter.mix(Token::Element, ());
        let seed = Counting::of_part(seed, counter, Position::Elsewhere);
        let element = self.inner.next_element_seed(seed)?;
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
        let counter = self.counter;
        self.key_size = size_of::<S::Value>();
        let before = counter.content.borrow().clone();
        counter.mix(Token::Member, ());
        counter.is_name.set(false);
        let key = self.next_key_of(Counting::of_part(seed, counter, Position::Elsewhere));
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
        let counter = self.counter;
        let place = std::mem::replace(&mut self.value_place, Position::Elsewhere);
        counter.is_ignored.set(false);
        let value = self.inner.next_value_seed(Counting::of_part(seed, counter, place));
        if counter.is_ignored.take()
            && let Some(before) = self.before.take()
        {
            counter.content.replace(before);
        }
        value
    }
}

impl<'de, 'c, A: EnumAccess<'de>> EnumAccess<'de> for Counting<'c, A> {
    type Error = A::Error;
    type Variant = Counting<'c, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Self { counter, place, form, .. } = self;
        let (access, seed) = self.split(seed);
        let (variant, inner) = access.variant_seed(seed)?;
        Ok((variant, Counting { inner, counter, place, form }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let (variant, seed) = self.split(seed);
        variant.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (variant, visitor) = self.split(visitor);
        variant.tuple_variant(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let (variant, visitor) = self.split(visitor);
        variant.struct_variant(fields, visitor)
    }
}
