//! Serializes a value of a Rust type to the JSON that its pruned tree would have. Fields are sorted, and numbers are
//! formatted in the same way as in Go. Fields that the schema does not know, and nulls that it does not require, are
//! omitted. Values that this module does not support are rejected; the caller must then use a tree.

mod name;
mod place;

use std::fmt;

use serde::{Serialize, ser};
use thiserror::Error;

use place::Place;

use crate::object::extent::DEPTH_LIMIT;
use crate::object::metadata::OF_EVERY_OBJECT;
use crate::object::write_json;
use crate::quota;
use crate::schema::{Additional, Type};

/// The memory limit in bytes. Larger values are converted with a tree, which has a limit of its own.
const LARGEST: usize = quota::TREE_LIMIT / 4;

/// The value is not supported here. The conversion with a tree reports the actual error.
#[derive(Debug, Error)]
#[error("it is unusual")]
pub struct Unusual;

impl ser::Error for Unusual {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Written = Result<(), Unusual>;

/// The position of a field in the JSON.
#[derive(Clone, Copy, Debug)]
pub struct WrittenMember {
    /// The start of `"name":…`.
    start: usize,
    /// The length of the name.
    name: usize,
    /// The end of the value.
    end: usize,
    /// The memory of the value as a tree, in bytes.
    memory: usize,
}

/// Serialized JSON.
#[derive(Debug, Default)]
pub struct PrunedJson {
    json: Vec<u8>,
    /// The fields of all unfinished objects; at the end, the fields of the root.
    members: Vec<WrittenMember>,
    /// A buffer for sorting fields.
    scratch: Vec<u8>,
    depth: usize,
    /// The memory of the tree, in bytes.
    memory: usize,
    /// The memory of everything that was written, including what was omitted later.
    made: usize,
}

impl PrunedJson {
    /// Serializes an object of this type.
    ///
    /// # Errors
    /// If the value is not supported.
    pub fn of<T: Serialize + ?Sized>(of: Type<'_>, value: &T) -> Result<Self, Unusual> {
        // The typical size of an object.
        let (json, members) = (Vec::with_capacity(2 << 10), Vec::with_capacity(24));
        let mut written = Self { json, members, ..Self::default() };
        value.serialize(Place { out: &mut written, of: Some(of) })?;
        match written.depth {
            0 if written.json.first() == Some(&b'{') => Ok(written),
            _ => Err(Unusual),
        }
    }

    /// The fields of the root object in order: the name, the JSON of the value, and the memory of the value as a tree.
    pub fn members(&self) -> impl Iterator<Item = (&[u8], &[u8], usize)> {
        self.members.iter().map(|member| {
            let name = member.start + 1;
            let value = name + member.name + 2;
            let name = &self.json[name..name + member.name];
            (name, &self.json[value..member.end], member.memory)
        })
    }

    /// The JSON of a field of the root object.
    pub fn member(&self, name: &[u8]) -> Option<&[u8]> {
        self.members().find(|(known, ..)| *known == name).map(|(_, value, _)| value)
    }

    fn spend(&mut self, memory: usize) -> Written {
        self.memory += memory;
        self.made += memory;
        if self.made > LARGEST { Err(Unusual) } else { Ok(()) }
    }

    fn text(&mut self, text: &str) -> Written {
        self.spend(quota::of_text(text))?;
        if text.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
            write_json(&mut self.json, text);
        } else {
            self.json.reserve(text.len() + 2);
            self.json.push(b'"');
            self.json.extend_from_slice(text.as_bytes());
            self.json.push(b'"');
        }
        Ok(())
    }

    fn deeper(&mut self, bracket: u8) -> Written {
        self.depth += 1;
        self.json.push(bracket);
        if self.depth > DEPTH_LIMIT { Err(Unusual) } else { Ok(()) }
    }
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// An object that is being written.
struct Frame<'s> {
    of: Option<Type<'s>>,
    is_root: bool,
    /// The position of its first field.
    start: usize,
    /// The number of fields of other objects before its own.
    before: usize,
    is_sorted: bool,
}

/// A field that is being written.
struct Open<'s> {
    /// The start of the field, including the comma before it.
    from: usize,
    start: usize,
    name: usize,
    memory: usize,
    of: Option<Type<'s>>,
    /// The memory of everything before the value.
    value_memory: usize,
    stays: bool,
    stays_if_null: bool,
}

impl<'s> Frame<'s> {
    fn begin(place: &mut Place<'_, 's>) -> Result<Self, Unusual> {
        let is_root = place.out.depth == 0;
        place.out.deeper(b'{')?;
        let (start, before) = (place.out.json.len(), place.out.members.len());
        Ok(Self { of: place.of, is_root, start, before, is_sorted: true })
    }

    fn open(&self, name: &str, out: &mut PrunedJson) -> Result<Open<'s>, Unusual> {
        if name.bytes().any(is_escaped) {
            return Err(Unusual);
        }
        let (of, stays, stays_if_null) = self.member(name)?;
        let index = out.members.len() - self.before;
        let (from, memory) = (out.json.len(), out.memory);
        out.spend(quota::of_member(index) + quota::of_text(name))?;
        if index > 0 {
            out.json.push(b',');
        }
        let start = out.json.len();
        out.json.push(b'"');
        out.json.extend_from_slice(name.as_bytes());
        out.json.extend_from_slice(b"\":");
        let value_memory = out.memory;
        Ok(Open { from, start, name: name.len(), memory, value_memory, of, stays, stays_if_null })
    }

    /// The type of a field, whether the field stays, and whether it stays if it is null.
    fn member(&self, name: &str) -> Result<(Option<Type<'s>>, bool, bool), Unusual> {
        let Some(of) = self.of else { return Ok((None, true, true)) };
        if self.is_root && OF_EVERY_OBJECT.contains(&name) {
            return Ok((None, true, true));
        }
        if let Some((_, member)) = of.member(name) {
            let is_required = || {
                let required = of.constraints().map(|constraints| &constraints.required);
                required.is_some_and(|required| required.iter().any(|required| required == name))
            };
            return Ok((Some(member), true, member.nullable && is_required()));
        }
        match &of.node().additional {
            Additional::Of(values) => {
                let values = of.at(values);
                let stays_if_null = values.nullable || of.default_of_element.is_some();
                Ok((Some(values), true, stays_if_null))
            }
            Additional::Any if of.preserves => Ok((None, true, true)),
            Additional::Any | Additional::Pruned => Ok((None, false, false)),
            Additional::Unspecified | Additional::Forbidden => Err(Unusual),
        }
    }

    fn close(&mut self, open: &Open<'s>, out: &mut PrunedJson) -> Written {
        let value = open.start + open.name + 3;
        let is_null = out.json[value..] == *b"null";
        let name = |start: usize, length: usize| &out.json[start + 1..start + 1 + length];
        let own = name(open.start, open.name);
        let before = &out.members[self.before..];
        let is_behind = before.last().is_none_or(|last| name(last.start, last.name) < own);
        if !open.stays || (is_null && !open.stays_if_null) {
            // In a tree, an omitted field would also remove an earlier field with the same name.
            let is_twice = || before.iter().any(|other| name(other.start, other.name) == own);
            if !(self.is_sorted && is_behind) && is_twice() {
                return Err(Unusual);
            }
            out.json.truncate(open.from);
            out.memory = open.memory;
            return Ok(());
        }
        self.is_sorted &= is_behind;
        out.members.push(WrittenMember {
            start: open.start,
            name: open.name,
            end: out.json.len(),
            memory: out.memory - open.value_memory,
        });
        Ok(())
    }

    fn end(self, out: &mut PrunedJson) -> Written {
        let PrunedJson { json, members, scratch, .. } = &mut *out;
        if !self.is_sorted {
            let own = &mut members[self.before..];
            let name = |member: &WrittenMember| {
                let start = member.start + 1;
                &json[start..start + member.name]
            };
            own.sort_unstable_by(|one, other| name(one).cmp(name(other)));
            if own.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return Err(Unusual);
            }
            scratch.clear();
            scratch.reserve(json.len() - self.start);
            for member in own {
                if !scratch.is_empty() {
                    scratch.push(b',');
                }
                let start = self.start + scratch.len();
                scratch.extend_from_slice(&json[member.start..member.end]);
                member.end = self.start + scratch.len();
                member.start = start;
            }
            json.truncate(self.start);
            json.extend_from_slice(scratch);
        }
        json.push(b'}');
        out.depth -= 1;
        if !self.is_root {
            out.members.truncate(self.before);
        }
        Ok(())
    }
}
