//! The serde serializer that writes pruned JSON.

use serde::Serialize;
use serde::ser::{self, Serializer};

use super::name::Name;
use super::{Frame, Open, PrunedJson, Unusual, Written};
use crate::object::write_json;
use crate::quota;
use crate::schema::Type;

/// The destination of a value, and its type.
pub(super) struct Place<'w, 's> {
    pub out: &'w mut PrunedJson,
    /// `None` if nothing is pruned.
    pub of: Option<Type<'s>>,
}

/// Writes an object field by field. For the variant of an enum, `around` is the object with one field that contains it.
pub(super) struct Members<'w, 's> {
    out: &'w mut PrunedJson,
    frame: Frame<'s>,
    name: String,
    around: Option<(Frame<'s>, Open<'s>)>,
}

impl<'w, 's> Members<'w, 's> {
    fn begin(mut place: Place<'w, 's>) -> Result<Self, Unusual> {
        let frame = Frame::begin(&mut place)?;
        Ok(Self { out: place.out, frame, name: String::new(), around: None })
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Written {
        let open = self.frame.open(name, self.out)?;
        value.serialize(Place { out: self.out, of: open.of })?;
        self.frame.close(&open, self.out)
    }

    fn finish(self) -> Written {
        self.frame.end(self.out)?;
        if let Some((mut frame, open)) = self.around {
            frame.close(&open, self.out)?;
            frame.end(self.out)?;
        }
        Ok(())
    }
}

/// Writes a list element by element. For the variant of an enum, `around` is the object that contains it.
pub(super) struct Items<'w, 's> {
    out: &'w mut PrunedJson,
    of: Option<Type<'s>>,
    /// The start of the elements, if the schema does not define their type: fields of objects in the list are pruned.
    bare: Option<usize>,
    count: usize,
    around: Option<(Frame<'s>, Open<'s>)>,
}

impl<'w, 's> Items<'w, 's> {
    fn begin(place: Place<'w, 's>) -> Result<Self, Unusual> {
        place.out.deeper(b'[')?;
        let of = place.of.and_then(Type::of_items);
        let bare = match place.of {
            // Unknown fields of the elements are preserved too.
            Some(list) if list.preserves && of.is_some() => return Err(Unusual),
            Some(list) if !list.preserves && of.is_none() => Some(place.out.json.len()),
            _ => None,
        };
        Ok(Self { out: place.out, of, bare, count: 0, around: None })
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        if self.count > 0 {
            self.out.json.push(b',');
        }
        self.out.spend(quota::of_item(self.count))?;
        self.count += 1;
        value.serialize(Place { out: self.out, of: self.of })
    }

    fn finish(self) -> Written {
        if self.bare.is_some_and(|start| self.out.json[start..].contains(&b'{')) {
            return Err(Unusual);
        }
        self.out.json.push(b']');
        self.out.depth -= 1;
        if let Some((mut frame, open)) = self.around {
            frame.close(&open, self.out)?;
            frame.end(self.out)?;
        }
        Ok(())
    }
}

impl Place<'_, '_> {
    fn null(self) -> Written {
        self.out.json.extend_from_slice(b"null");
        Ok(())
    }

    fn number<T: Serialize>(self, number: &T) -> Written {
        write_json(&mut self.out.json, number);
        Ok(())
    }
}

impl<'w, 's> Serializer for Place<'w, 's> {
    type Ok = ();
    type Error = Unusual;
    type SerializeSeq = Items<'w, 's>;
    type SerializeTuple = Items<'w, 's>;
    type SerializeTupleStruct = Items<'w, 's>;
    type SerializeTupleVariant = Items<'w, 's>;
    type SerializeMap = Members<'w, 's>;
    type SerializeStruct = Members<'w, 's>;
    type SerializeStructVariant = Members<'w, 's>;

    fn serialize_bool(self, value: bool) -> Written {
        self.out.json.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.number(&value)
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.number(&value)
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.number(&value)
    }

    fn serialize_i64(self, value: i64) -> Written {
        self.number(&value)
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.number(&value)
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.number(&value)
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.number(&value)
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.number(&value)
    }

    fn serialize_f32(self, value: f32) -> Written {
        // A tree stores it as a 64-bit float.
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Written {
        // NaN and infinity become null, same as in a tree.
        self.number(&value)
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        self.out.text(value)
    }

    fn serialize_bytes(self, _: &[u8]) -> Written {
        Err(Unusual)
    }

    fn serialize_none(self) -> Written {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.null()
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

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let mut members = Members::begin(self)?;
        members.member(variant, value)?;
        members.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'w, 's>, Unusual> {
        Items::begin(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'w, 's>, Unusual> {
        Items::begin(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'w, 's>, Unusual> {
        Items::begin(self)
    }

    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items<'w, 's>, Unusual> {
        let frame = Frame::begin(&mut self)?;
        let open = frame.open(variant, self.out)?;
        let items = Items::begin(Place { out: self.out, of: open.of })?;
        Ok(Items { around: Some((frame, open)), ..items })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'w, 's>, Unusual> {
        Members::begin(self)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Members<'w, 's>, Unusual> {
        // Raw JSON and numbers of arbitrary size, which serde_json handles itself.
        if name.starts_with("$serde_json::private::") {
            return Err(Unusual);
        }
        Members::begin(self)
    }

    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'w, 's>, Unusual> {
        let frame = Frame::begin(&mut self)?;
        let open = frame.open(variant, self.out)?;
        let members = Members::begin(Place { out: self.out, of: open.of })?;
        Ok(Members { around: Some((frame, open)), ..members })
    }
}

impl ser::SerializeStruct for Members<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        self.member(name, value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeStructVariant for Members<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        self.member(name, value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeMap for Members<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Written {
        self.name.clear();
        name.serialize(Name(&mut self.name))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        let name = std::mem::take(&mut self.name);
        self.member(&name, value)?;
        self.name = name;
        Ok(())
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeSeq for Items<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.item(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeTuple for Items<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.item(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeTupleStruct for Items<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.item(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}

impl ser::SerializeTupleVariant for Items<'_, '_> {
    type Ok = ();
    type Error = Unusual;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.item(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}
