//! `fieldsV1`: the encoding of a set of fields in `metadata.managedFields`.
//!
//! Sets are stored as text, and most writes do not need the sets of other managers: [`intersection`] parses only the
//! parts of a text that can be in its result.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::field_set::{FieldSet, Node};
use super::path_element::PathElement;
use crate::error::quote;

/// The key that adds the path of its object to the set, in addition to the paths below it.
const ITSELF: &str = ".";

/// Encodes a set. Keys are in the order of their bytes, as in every encoded object.
pub fn write(set: &FieldSet, out: &mut String) {
    write_node(set, false, out);
}

fn write_node(set: &FieldSet, is_member: bool, out: &mut String) {
    out.push('{');
    let mut comma = "";
    if is_member && !set.is_empty() {
        out.push_str("\".\":{}");
        comma = ",";
    }
    let mut member = |key: &str, node: &Node| {
        out.push_str(comma);
        comma = ",";
        write_json_text(out, key);
        out.push(':');
        write_node(&node.children, node.is_member, out);
    };
    if set.iter().all(|(element, _)| matches!(element, PathElement::Field(_))) {
        set.iter().for_each(|(element, node)| member(&key(element), node));
    } else {
        let mut keys: Vec<(String, &Node)> =
            set.iter().map(|(element, node)| (key(element), node)).collect();
        keys.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        keys.iter().for_each(|(key, node)| member(key, node));
    }
    out.push('}');
}

/// Parses a set. Path elements of an unknown type are omitted, with everything below them.
///
/// # Errors
/// A message, if the text is invalid.
pub fn read(written: &str) -> Result<FieldSet, String> {
    read_part(written, None)
}

/// Returns the paths that are in both sets.
///
/// # Errors
/// A message, if a parsed part of the text is invalid.
pub fn intersection(written: &str, other: &FieldSet) -> Result<FieldSet, String> {
    if other.is_empty() || names_none(written, other) {
        return Ok(FieldSet::default());
    }
    read_part(written, Some(other))
}

/// The largest number of names to search for in a text before the text is parsed.
const LOOKED_FOR: usize = 4;

/// Whether a text cannot contain any path of a small set, because it contains none of the last names of these paths.
fn names_none(written: &str, other: &FieldSet) -> bool {
    // A name might be written with escapes.
    if memmem::find(written.as_bytes(), b"\\u").is_some() {
        return false;
    }
    let mut looked_for = 0;
    are_last_names_missing(written, other, &mut looked_for)
}

fn are_last_names_missing(written: &str, set: &FieldSet, looked_for: &mut usize) -> bool {
    set.iter().all(|(element, Node { is_member, children })| {
        if *is_member {
            *looked_for += 1;
            let PathElement::Field(name) = element else { return false };
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let key = format!("\"f:{name}\"");
            let is_named = memmem::find(written.as_bytes(), key.as_bytes()).is_some();
            if !is_plain || *looked_for > LOOKED_FOR || is_named {
                return false;
            }
        }
        are_last_names_missing(written, children, looked_for)
    })
}

fn read_part(written: &str, within: Option<&FieldSet>) -> Result<FieldSet, String> {
    let mut deserializer = serde_json::Deserializer::from_str(written);
    let read = ReadNode(within.map(|children| Within { is_member: true, children }));
    let read = read.deserialize(&mut deserializer).and_then(|node| {
        deserializer.end()?;
        Ok(node.children)
    });
    read.map_err(|error| error.to_string())
}

/// Returns the text of the set without the paths of another set; an empty string if no path is left. Paths below those
/// of the other set are retained.
///
/// # Errors
/// A message, if a parsed part of the text is invalid.
pub fn difference(written: &str, other: &FieldSet) -> Result<String, String> {
    let mut out = String::with_capacity(written.len());
    let mut deserializer = serde_json::Deserializer::from_str(written);
    let copy = CopyWithout { other, drops_itself: true, out: &mut out };
    copy.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    Ok(out)
}

/// Copies a node without the paths of a set. Returns whether any path is left.
struct CopyWithout<'s> {
    other: &'s FieldSet,
    drops_itself: bool,
    out: &'s mut String,
}

impl<'de> DeserializeSeed<'de> for CopyWithout<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CopyWithout<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        if !self.drops_itself {
            self.out.push_str("{}");
        }
        Ok(!self.drops_itself)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let Self { other, drops_itself, out } = self;
        let start = out.len();
        let mut comma = "{";
        let (mut is_said, mut had_children, mut has_children) = (false, false, false);
        while let Some(key) = members.next_key::<String>()? {
            if key == ITSELF {
                is_said = true;
                members.next_value::<IgnoredAny>()?;
                if !drops_itself {
                    out.extend([comma, "\".\":{}"]);
                    comma = ",";
                }
                continue;
            }
            let found = match key.strip_prefix("f:") {
                Some(name) => other.field(name),
                None => match element(&key).map_err(A::Error::custom)? {
                    Some(element) => other.get(&element),
                    None => {
                        members.next_value::<IgnoredAny>()?;
                        continue;
                    }
                },
            };
            had_children = true;
            let before = out.len();
            out.push_str(comma);
            write_json_text(out, &key);
            out.push(':');
            let is_left = match found {
                None => {
                    out.push_str(members.next_value::<&RawValue>()?.get());
                    true
                }
                Some(Node { is_member, children }) => {
                    let copy = CopyWithout { other: children, drops_itself: *is_member, out };
                    members.next_value_seed(copy)?
                }
            };
            if is_left {
                has_children = true;
                comma = ",";
            } else {
                out.truncate(before);
            }
        }
        if has_children {
            out.push('}');
            return Ok(true);
        }
        out.truncate(start);
        let is_member = (is_said || !had_children) && !drops_itself;
        if is_member {
            out.push_str("{}");
        }
        Ok(is_member)
    }
}

/// The requested part of a node: the paths that are also in this node of another set.
#[derive(Clone, Copy)]
struct Within<'s> {
    is_member: bool,
    children: &'s FieldSet,
}

/// Parses a node completely, or only its requested part.
struct ReadNode<'s>(Option<Within<'s>>);

impl<'de> DeserializeSeed<'de> for ReadNode<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadNode<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node { is_member: self.0.is_none_or(|within| within.is_member), ..Node::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut nodes = Nodes::default();
        let (mut is_said, mut has_children) = (false, false);
        let children = self.0.map(|within| within.children);
        while let Some(read) = members.next_key_seed(ReadKey(children))? {
            has_children |= matches!(read, ReadElement::One(_) | ReadElement::Another);
            match read {
                ReadElement::One(element) => {
                    let within = match children.map(|children| children.get(&element)) {
                        None => None,
                        Some(Some(Node { is_member, children })) => {
                            Some(Within { is_member: *is_member, children })
                        }
                        Some(None) => {
                            members.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    nodes.push((element, members.next_value_seed(ReadNode(within))?));
                }
                ReadElement::Another | ReadElement::Unknown => {
                    members.next_value::<IgnoredAny>()?;
                }
                ReadElement::Itself => {
                    is_said = true;
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        let is_wanted = self.0.is_none_or(|within| within.is_member);
        let is_member = is_wanted && (is_said || !has_children);
        Ok(Node { is_member, children: FieldSet::of(nodes.into_vec()) })
    }
}

/// A list of nodes whose length is not known in advance. It grows by chunks of equal size, because a growing `Vec`
/// frees blocks of many sizes, and the allocator retains them.
#[derive(Default)]
struct Nodes {
    full: Vec<Vec<(PathElement, Node)>>,
    last: Vec<(PathElement, Node)>,
}

impl Nodes {
    const CHUNK: usize = 256;

    fn push(&mut self, node: (PathElement, Node)) {
        if self.last.capacity() == 0 {
            // Many nodes have a single child, but a `Vec` allocates memory for four elements at first.
            self.last.reserve_exact(1);
        } else if self.last.len() == Self::CHUNK {
            let next = Vec::with_capacity(Self::CHUNK);
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        self.last.push(node);
    }

    fn into_vec(self) -> Vec<(PathElement, Node)> {
        if self.full.is_empty() {
            return self.last;
        }
        let mut all = Vec::with_capacity(self.full.len() * Self::CHUNK + self.last.len());
        self.full.into_iter().for_each(|chunk| all.extend(chunk));
        all.extend(self.last);
        all
    }
}

/// A parsed key.
enum ReadElement {
    One(PathElement),
    /// A path element that is not requested.
    Another,
    /// A key of an unknown type.
    Unknown,
    Itself,
}

struct ReadKey<'s>(Option<&'s FieldSet>);

impl<'de> DeserializeSeed<'de> for ReadKey<'_> {
    type Value = ReadElement;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ReadElement, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ReadKey<'_> {
    type Value = ReadElement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<ReadElement, E> {
        if key == ITSELF {
            return Ok(ReadElement::Itself);
        }
        if let Some(within) = self.0 {
            let is_asked_for = match key.strip_prefix("f:") {
                Some(name) => within.field(name).is_some(),
                None => within.has_items(),
            };
            if !is_asked_for && is_known(key) {
                return Ok(ReadElement::Another);
            }
        }
        let element = element(key).map_err(E::custom)?;
        Ok(element.map_or(ReadElement::Unknown, ReadElement::One))
    }
}

/// Whether a key has the prefix of a known type. The rest of the key is not checked.
fn is_known(key: &str) -> bool {
    ["f:", "k:", "v:", "i:"].iter().any(|sort| key.starts_with(sort))
}

fn element(key: &str) -> Result<Option<PathElement>, String> {
    let unreadable = || format!("{} is no path element", quote(key));
    let bytes = key.as_bytes();
    if bytes.len() < 2 || bytes[1] != b':' {
        return Err(unreadable());
    }
    let rest = &key[2..];
    Ok(Some(match bytes[0] {
        b'f' => PathElement::field(rest),
        b'v' => {
            let value: &RawValue = serde_json::from_str(rest).map_err(|_| unreadable())?;
            match scalar(value).map_err(|_| unreadable())? {
                Some(value) => PathElement::Value(value),
                None => PathElement::Composite(key.into()),
            }
        }
        b'k' => {
            let members: BTreeMap<String, &RawValue> =
                serde_json::from_str(rest).map_err(|_| unreadable())?;
            let member = |(name, value): (String, &RawValue)| {
                Ok(scalar(value)?.map(|value| (name.into(), value)))
            };
            let members: serde_json::Result<Option<_>> = members.into_iter().map(member).collect();
            match members.map_err(|_| unreadable())? {
                Some(members) => PathElement::key(members),
                None => PathElement::Composite(key.into()),
            }
        }
        b'i' => PathElement::Index(rest.parse().map_err(|_| unreadable())?),
        _ => return Ok(None),
    }))
}

/// Parses a value that is not a list or an object. Returns `None` for lists and objects, because their parsed form
/// would use eighty times the memory of their text.
fn scalar(written: &RawValue) -> serde_json::Result<Option<Value>> {
    match written.get().starts_with(['[', '{']) {
        true => Ok(None),
        false => serde_json::from_str(written.get()).map(Some),
    }
}

fn key(element: &PathElement) -> String {
    let mut key = String::new();
    match element {
        PathElement::Field(name) => {
            key.push_str("f:");
            key.push_str(name);
        }
        PathElement::Key(members) => {
            key.push_str("k:{");
            for (index, (name, value)) in members.iter().enumerate() {
                key.push_str(if index == 0 { "" } else { "," });
                write_text(&mut key, name);
                key.push(':');
                write_value(&mut key, value);
            }
            key.push('}');
        }
        PathElement::Value(value) => {
            key.push_str("v:");
            write_value(&mut key, value);
        }
        PathElement::Index(index) => {
            let _ = write!(key, "i:{index}");
        }
        PathElement::Composite(written) => key.push_str(written),
    }
    key
}

/// Encodes a value as JSON without spaces, as Go does.
fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => write_float(out, float),
            _ => {
                let _ = write!(out, "{number}");
            }
        },
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_text(out, name);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

/// Writes a float in its shortest form, with an exponent of at least two digits below 1e-6 and from 1e21 on.
fn write_float(out: &mut String, float: f64) {
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        let _ = write!(out, "{float}");
        return;
    }
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
}

/// Appends a JSON string in quotes.
pub fn write_json_text(out: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// Appends a JSON string in quotes, and escapes the characters that have a meaning in HTML.
fn write_text(out: &mut String, text: &str) {
    let mut json = String::with_capacity(text.len() + 2);
    write_json_text(&mut json, text);
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        out.push_str(&json);
        return;
    }
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            plain => out.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::field_set::tests::set;
    use super::*;

    fn text_of(set: &FieldSet) -> String {
        let mut text = String::new();
        write(set, &mut text);
        text
    }

    #[test]
    fn field_sets_survive_decoding_and_encoding() {
        for written in [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {"f:e": {}}}}),
            json!({"f:": {}, "f:a.b/c": {}, "f:f:x": {}}),
            json!({"f:l": {"k:{\"name\":\"z\"}": {".": {}, "f:name": {}}}}),
            json!({"f:l": {"k:{\"port\":443,\"protocol\":\"TCP\"}": {}}}),
            json!({"f:l": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}}),
            json!({"f:s": {"v:\"\\u003c\\u0026\\u003e\"": {}, "v:\"q\\\"x\"": {}, "v:1.5": {}}}),
            json!({"f:s": {"v:1e-07": {}, "v:1e+21": {}, "v:true": {}, "v:null": {}, "i:3": {}}}),
        ] {
            // The keys of a `Value` are in the order of their bytes.
            let written = written.to_string();
            assert_eq!(text_of(&read(&written).unwrap()), written);
        }
        assert_eq!(read(r#"{"f:a":{".":{},"f:b":{}}}"#).unwrap(), set(&["a", "a.b"]));
    }

    #[test]
    fn unusual_fields_v1_input_is_decoded_same_as_in_kube_apiserver() {
        // A path element of an unknown type is omitted. A path with nothing left below it is in the set.
        let odd = json!({"f:a": {"x:b": {"f:c": {}}}, "x:y": {}, ".": {}});
        assert_eq!(read(&odd.to_string()).unwrap(), set(&["a"]));
        // The same element twice, with its number written in two ways.
        let twice = json!({"f:l": {"v:1": {"f:a": {}}, "v:1.0": {"f:b": {}}}});
        let once = r#"{"f:l":{"v:1":{"f:a":{},"f:b":{}}}}"#;
        assert_eq!(text_of(&read(&twice.to_string()).unwrap()), once);
        assert_eq!(read(r#"{"f:a":null}"#).unwrap(), set(&["a"]));
    }

    #[test]
    fn encoded_field_sets_are_parsed_only_for_requested_paths() {
        let sets = [
            set(&[]),
            set(&["a"]),
            set(&["a", "a.b"]),
            set(&["a.b", "a.c.d", "e"]),
            set(&["a.b.c", "a.c"]),
            set(&["e", "a.c"]),
        ];
        for one in &sets {
            for other in &sets {
                let found = intersection(&text_of(one), other).unwrap();
                assert_eq!(found, one.intersection(other), "{one:?} {other:?}");
                let left = one.clone().difference(other);
                let found = difference(&text_of(one), other).unwrap();
                let expected = if left.is_empty() { String::new() } else { text_of(&left) };
                assert_eq!(found, expected, "{one:?} {other:?}");
            }
        }
        let keyed = r#"{"f:l":{"k:{\"a\":1}":{".":{},"f:a":{}},"k:{\"a\":2}":{".":{}}}}"#;
        let all = read(keyed).unwrap();
        assert_eq!(intersection(keyed, &all).unwrap(), all);
        // List elements are not parsed if only fields are requested.
        let odd = r#"{"f:l":{"f:a":{},"k:{":{},"v:":{}}}"#;
        assert_eq!(intersection(odd, &set(&["l.a"])).unwrap(), set(&["l.a"]));
        let one = read(r#"{"f:l":{"k:{\"a\":2}":{}},"f:m":{}}"#).unwrap();
        let both = read(r#"{"f:l":{"k:{\"a\":2}":{}}}"#).unwrap();
        assert_eq!(intersection(keyed, &one).unwrap(), both);
        // Invalid parts that are not requested are not detected.
        let odd = r#"{"f:a":{"f:x":1},"f:b":{"?":{}},"f:c":{}}"#;
        assert!(read(odd).is_err());
        assert_eq!(intersection(odd, &set(&["c"])).unwrap(), set(&["c"]));
        assert!(intersection(odd, &set(&["b.x"])).is_err());
    }

    #[test]
    fn non_scalar_keys_and_values_are_preserved_as_written() {
        let odd = r#"{"f:l":{"k:{\"a\": {\"b\":1}}":{},"v:[[0],1]":{".":{},"f:a":{}}}}"#;
        let set = read(odd).unwrap();
        assert_eq!(text_of(&set), odd);
        assert_eq!(intersection(odd, &set).unwrap(), set);
        assert_eq!(difference(odd, &set).unwrap(), "");
        for odd in [r#"{"v:[":{}}"#, r#"{"v:[1] 2":{}}"#, r#"{"k:{\"a\":[}":{}}"#, r#"{"k:[]":{}}"#]
        {
            assert!(read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn random_fields_v1_strings_are_decoded_or_rejected() {
        let texts = [
            r#"{"f:a":{".":{},"f:b":{}},"f:c":{}}"#,
            r#"{"f:l":{"k:{\"a\":1,\"b\":\"x\"}":{".":{},"f:a":{}}}}"#,
            r#"{"f:s":{"v:1.5":{},"v:\"x\"":{},"i:3":{},"x:y":{"f:a":{}}}}"#,
        ];
        let parts = ["{", "}", "\"", ":", ",", "\\", "f:", "k:", "v:", "i:", ".", "null", "1", "é"];
        let mut random = fastrand::Rng::with_seed(7);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let mut text = texts[random.usize(..texts.len())].to_owned();
            for _ in 0..random.usize(..3) {
                let place = random.usize(..=text.len());
                if text.is_char_boundary(place) {
                    text.insert_str(place, parts[random.usize(..parts.len())]);
                }
            }
            let other = read(texts[random.usize(..texts.len())]).unwrap();
            let Ok(set) = read(&text) else {
                // The intersection can be valid all the same, because it parses only the requested part.
                let _ = intersection(&text, &other);
                bad += 1;
                continue;
            };
            good += 1;
            assert_eq!(read(&text_of(&set)).unwrap(), set, "{text}");
            assert_eq!(intersection(&text, &other).unwrap(), set.intersection(&other), "{text}");
            let left = difference(&text_of(&set), &other).unwrap();
            let left = if left.is_empty() { FieldSet::default() } else { read(&left).unwrap() };
            assert_eq!(left, set.difference(&other), "{text}");
        }
        assert!(good > 1_000 && bad > 1_000, "{good} {bad}");
        let deep = |depth: usize| format!("{}{}", "{\"f:a\":".repeat(depth), "}".repeat(depth));
        assert!(read(&deep(100).replace(":}", ":{}}")).is_ok());
        assert!(read(&deep(100_000).replace(":}", ":{}}")).is_err());
    }

    #[test]
    fn malformed_fields_v1_is_rejected() {
        for written in [
            json!([]),
            json!({"a": {}}),
            json!({"": {}}),
            json!({"fa": {}}),
            json!({"k:1": {}}),
            json!({"k:{} ": {}, "v:": {}}),
            json!({"v:{": {}}),
            json!({"i:x": {}}),
            json!({"f:a": 1}),
            json!({"f:a": {"f:b": "x"}}),
            json!("x"),
        ] {
            assert!(read(&written.to_string()).is_err(), "{written}");
        }
    }
}
