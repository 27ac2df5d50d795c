//! Serializes map keys.

use std::fmt::Write as _;

use serde::Serialize;
use serde::ser::{Impossible, Serializer};

use super::Unusual;

type Written = Result<(), Unusual>;
type No = Impossible<(), Unusual>;

/// The buffer for a map key.
pub(super) struct Name<'a>(pub &'a mut String);

impl Name<'_> {
    fn number(self, number: impl std::fmt::Display) -> Written {
        write!(self.0, "{number}").map_err(|_| Unusual)
    }
}

impl Serializer for Name<'_> {
    type Ok = ();
    type Error = Unusual;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    fn serialize_str(self, value: &str) -> Written {
        self.0.push_str(value);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Written {
        self.0.push(value);
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Written {
        value.serialize(self)
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.number(value)
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.number(value)
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.number(value)
    }

    fn serialize_i64(self, value: i64) -> Written {
        self.number(value)
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.number(value)
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.number(value)
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.number(value)
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.number(value)
    }

    fn serialize_bool(self, _: bool) -> Written {
        Err(Unusual)
    }

    fn serialize_f32(self, _: f32) -> Written {
        Err(Unusual)
    }

    fn serialize_f64(self, _: f64) -> Written {
        Err(Unusual)
    }

    fn serialize_bytes(self, _: &[u8]) -> Written {
        Err(Unusual)
    }

    fn serialize_none(self) -> Written {
        Err(Unusual)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Written {
        Err(Unusual)
    }

    fn serialize_unit(self) -> Written {
        Err(Unusual)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        Err(Unusual)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Written {
        Err(Unusual)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_tuple(self, _: usize) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<No, Unusual> {
        Err(Unusual)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Unusual> {
        Err(Unusual)
    }
}
