//! Turns a YAML document into a JSON tree: follows anchors and merge keys, and turns keys into strings.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::go_text::{float_32, of_key, of_value};
use super::nodes::{Content, Document};
use super::scalar::{Scalar, resolve};

/// Counts the values of a document, and returns an error when a limit is exceeded.
pub trait Meter {
    /// Counts a value.
    fn value(&mut self) -> Result<(), String>;
    /// Counts a string or a key.
    fn text(&mut self, text: &str) -> Result<(), String>;
    /// Counts an element of a list with this number of elements.
    fn item(&mut self, items: usize) -> Result<(), String>;
    /// Counts a field of an object with this number of fields.
    fn member(&mut self, members: usize) -> Result<(), String>;
}

/// A tree, and the repeated keys: `line 3: key "a" already set in map`.
pub struct Tree {
    pub value: Value,
    pub repeated: Vec<String>,
    /// The first key that a mapping itself repeats. A key that overrides one of a merged mapping does not count.
    pub duplicate: Option<String>,
}

/// The largest number of repeated keys that are reported, and the largest size of their messages in bytes.
const REPEATED: usize = 1_000;
const BYTES: usize = 64 << 10;

/// Decodes a document.
///
/// # Errors
/// The message of go-yaml, of `encoding/json`, or of the meter.
pub fn decode(document: &Document, deepest: usize, meter: &mut impl Meter) -> Result<Tree, String> {
    let mut decoder = Decoder {
        document,
        meter,
        deepest,
        depth: 0,
        aliases: Vec::new(),
        decoded: 0,
        of_aliases: 0,
        repeated: Vec::new(),
        bytes: 0,
        merging: 0,
        duplicate: None,
    };
    let value = match document.root {
        Some(root) => decoder.value(root)?,
        None => Value::Null,
    };
    Ok(Tree { value, repeated: decoder.repeated, duplicate: decoder.duplicate })
}

struct Decoder<'a, M> {
    document: &'a Document,
    meter: &'a mut M,
    deepest: usize,
    depth: usize,
    /// The aliases that are being followed.
    aliases: Vec<usize>,
    decoded: usize,
    of_aliases: usize,
    repeated: Vec<String>,
    bytes: usize,
    /// The nesting depth of merged mappings.
    merging: usize,
    duplicate: Option<String>,
}

/// An object that is being built.
#[derive(Default)]
struct Members {
    map: Map<String, Value>,
    /// The keys that are not strings.
    others: HashSet<String>,
    /// The string forms of these keys.
    other_texts: HashSet<String>,
    /// The keys of merged mappings.
    merged: HashSet<String>,
}

/// A key. Keys of different types are different keys, until they become strings.
#[derive(Clone, PartialEq)]
pub enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

/// A key with its type, because `1` and `1.0` are different keys.
fn of_type(key: &Key) -> String {
    match key {
        Key::Null => "null".to_owned(),
        Key::Bool(is_true) => format!("bool {is_true}"),
        Key::Int(number) => format!("int {number}"),
        Key::Uint(number) => format!("uint {number}"),
        // Zero and negative zero are equal; NaN is equal to nothing.
        Key::Float(number) if *number == 0.0 => "float 0".to_owned(),
        Key::Float(number) => format!("float {number}"),
        Key::Text(text) => format!("string {text}"),
    }
}

impl<M: Meter> Decoder<'_, M> {
    fn value(&mut self, number: usize) -> Result<Value, String> {
        self.count()?;
        if let Content::Alias { target, .. } = &self.document.node(number).content {
            return self.of_alias(number, |decoder| decoder.value(*target));
        }
        self.meter.value()?;
        self.depth += 1;
        if self.depth > self.deepest {
            return Err(format!("nests deeper than {}", self.deepest));
        }
        let value = match &self.document.node(number).content {
            Content::Scalar { text, tag, is_plain } => match scalar(text, tag, *is_plain)? {
                Scalar::Null => Value::Null,
                Scalar::Bool(is_true) => Value::Bool(is_true),
                Scalar::Int(number) => number.into(),
                Scalar::Uint(number) => number.into(),
                Scalar::Float(number) => json_number(number)?,
                Scalar::Text(text) => {
                    self.meter.text(&text)?;
                    Value::String(text)
                }
            },
            Content::Sequence(items) => {
                let mut list = Vec::new();
                for item in items {
                    let item = self.value(*item)?;
                    self.meter.item(list.len())?;
                    list.push(item);
                }
                Value::Array(list)
            }
            Content::Mapping(children) => {
                let mut members = Members::default();
                self.members(children, &mut members)?;
                Value::Object(members.map)
            }
            Content::Alias { .. } => Value::Null,
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Counts a node. Same as go-yaml, it rejects documents in which aliases produce nearly all nodes.
    fn count(&mut self) -> Result<(), String> {
        self.decoded += 1;
        self.of_aliases += usize::from(!self.aliases.is_empty());
        let is_excessive = self.of_aliases > 100
            && self.decoded > 1_000
            && self.of_aliases as f64 / self.decoded as f64 > 0.99;
        match is_excessive {
            true => Err("document contains excessive aliasing".to_owned()),
            false => Ok(()),
        }
    }

    fn of_alias<T>(
        &mut self,
        number: usize,
        follow: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.aliases.contains(&number) {
            let Content::Alias { name, .. } = &self.document.node(number).content else {
                return Err("no alias".to_owned());
            };
            return Err(format!("anchor '{name}' value contains itself"));
        }
        if self.aliases.len() >= self.deepest {
            return Err(format!("nests deeper than {}", self.deepest));
        }
        self.aliases.push(number);
        let followed = follow(self);
        self.aliases.pop();
        followed
    }

    fn members(&mut self, children: &[usize], members: &mut Members) -> Result<(), String> {
        for pair in children.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if self.is_merge(key) {
                self.merge(value, members)?;
                continue;
            }
            let key = self.key(key)?;
            let of_key = self.document.node(value).line;
            let value = self.value(value)?;
            self.insert(members, key, value, of_key)?;
        }
        Ok(())
    }

    fn is_merge(&self, key: usize) -> bool {
        match &self.document.node(key).content {
            Content::Scalar { text, tag, is_plain } => {
                text == "<<" && (*is_plain || tag == "tag:yaml.org,2002:merge")
            }
            _ => false,
        }
    }

    /// Adds the fields of a mapping, or of several mappings; the first of several takes precedence.
    fn merge(&mut self, number: usize, members: &mut Members) -> Result<(), String> {
        match &self.document.node(number).content {
            Content::Sequence(list) => {
                self.count_depth()?;
                for number in list.iter().rev() {
                    self.merge_mapping(*number, members)?;
                }
                self.depth -= 1;
                Ok(())
            }
            _ => self.merge_mapping(number, members),
        }
    }

    fn merge_mapping(&mut self, number: usize, members: &mut Members) -> Result<(), String> {
        let wrong = || "map merge requires map or sequence of maps as the value".to_owned();
        self.count()?;
        match &self.document.node(number).content {
            Content::Mapping(children) => {
                self.count_depth()?;
                self.merging += 1;
                self.members(children, members)?;
                self.merging -= 1;
                self.depth -= 1;
                Ok(())
            }
            Content::Alias { target, .. } => match &self.document.node(*target).content {
                Content::Mapping(_) => {
                    self.of_alias(number, |decoder| decoder.merge_mapping(*target, members))
                }
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }

    fn count_depth(&mut self) -> Result<(), String> {
        self.depth += 1;
        match self.depth > self.deepest {
            true => Err(format!("nests deeper than {}", self.deepest)),
            false => Ok(()),
        }
    }

    fn key(&mut self, number: usize) -> Result<Key, String> {
        match &self.document.node(number).content {
            Content::Scalar { text, tag, is_plain } => {
                self.count()?;
                Ok(match scalar(text, tag, *is_plain)? {
                    Scalar::Null => Key::Null,
                    Scalar::Bool(is_true) => Key::Bool(is_true),
                    Scalar::Int(number) => Key::Int(number),
                    Scalar::Uint(number) => Key::Uint(number),
                    Scalar::Float(number) => Key::Float(number),
                    Scalar::Text(text) => Key::Text(text),
                })
            }
            Content::Alias { target, .. } => {
                self.count()?;
                self.of_alias(number, |decoder| decoder.key(*target))
            }
            Content::Sequence(_) | Content::Mapping(_) => {
                let key = self.value(number)?;
                Err(format!("invalid map key: {}", of_value(&key)))
            }
        }
    }

    fn insert(
        &mut self,
        members: &mut Members,
        key: Key,
        value: Value,
        line: u64,
    ) -> Result<(), String> {
        let shown = || of_key(&key);
        let text = match &key {
            Key::Text(text) => text.clone(),
            Key::Bool(is_true) => is_true.to_string(),
            Key::Int(number) => number.to_string(),
            Key::Float(number) => float_32(*number),
            Key::Null | Key::Uint(_) => {
                let of_type = match key {
                    Key::Null => "%!s(<nil>)",
                    _ => "uint64",
                };
                let value = match &value {
                    Value::Null => "<nil>".to_owned(),
                    value => of_value(value),
                };
                return Err(format!(
                    "unsupported map key of type: {of_type}, key: {}, value: {value}",
                    shown()
                ));
            }
        };
        let is_text = matches!(key, Key::Text(_));
        let is_repeated = match is_text {
            true => members.map.contains_key(&text) && !members.other_texts.contains(&text),
            false => members.others.contains(&of_type(&key)),
        };
        let overrides = self.merging > 0 || members.merged.contains(&text);
        if is_repeated && !overrides && self.duplicate.is_none() {
            self.duplicate = Some(format!("line {line}: key {} already set in map", shown()));
        }
        if is_repeated && self.repeated.len() < REPEATED && self.bytes < BYTES {
            let told = format!("line {line}: key {} already set in map", shown());
            self.bytes += told.len();
            self.repeated.push(told);
        }
        self.meter.text(&text)?;
        self.meter.member(members.map.len())?;
        if !is_text && !is_repeated {
            members.others.insert(of_type(&key));
            members.other_texts.insert(text.clone());
        }
        if self.merging > 0 {
            members.merged.insert(text.clone());
        }
        members.map.insert(text, value);
        Ok(())
    }
}

fn scalar(text: &str, tag: &str, is_plain: bool) -> Result<Scalar, String> {
    match tag.is_empty() && !is_plain {
        true => Ok(Scalar::Text(text.to_owned())),
        false => resolve(tag, text),
    }
}

/// A number after `encoding/json` has encoded and decoded it: an integer below 1e21 has no fraction.
fn json_number(number: f64) -> Result<Value, String> {
    /// The number from which on Go writes an exponent.
    const EXPONENT: f64 = 1e21;
    let unsupported = match number {
        number if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    };
    if let Some(value) = unsupported {
        return Err(format!("json: unsupported value: {value}"));
    }
    if number.fract() == 0.0 && number.abs() < EXPONENT {
        // The shortest digits from which the number can be parsed again.
        let digits = number.to_string();
        if let Ok(whole) = digits.parse::<i64>() {
            return Ok(whole.into());
        }
        if let Ok(whole) = digits.parse::<u64>() {
            return Ok(whole.into());
        }
    }
    Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
}
