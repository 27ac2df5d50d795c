//! JSON as a tree, with the problems of duplicate fields.
//!
//! The last of several duplicate fields counts, same as everywhere in Kubernetes, but under `fieldValidation=Strict`
//! duplicates are an error. A document nests at most 128 levels deep.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::go_text;
use super::managed_fields::{self, ManagedFieldsText, Met};
use crate::error::{ApiError, Path};
use crate::quota::{self, Account, Growth};

/// A parsed document.
#[derive(Debug)]
pub struct Parsed {
    /// The tree of the document.
    pub value: Value,
    /// The problems of duplicate fields, in the words and the order of kube-apiserver.
    pub duplicates: Vec<String>,
    /// The `managedFields` of an object that [`object_from_json`] sets apart.
    pub managed_fields: Option<ManagedFieldsText>,
}

/// The reason for which a body cannot be parsed.
#[derive(Debug)]
pub enum ParseError {
    /// The body is malformed; the reason.
    Malformed(String),
    /// The tree exceeds a memory limit.
    Refused(ApiError),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => f.write_str(why),
            Self::Refused(error) => write!(f, "{error}"),
        }
    }
}

impl From<ApiError> for ParseError {
    fn from(refused: ApiError) -> Self {
        Self::Refused(refused)
    }
}

impl From<String> for ParseError {
    fn from(why: String) -> Self {
        Self::Malformed(why)
    }
}

/// The largest number of duplicate fields that are listed.
const DUPLICATES_LIMIT: usize = 100;
/// The largest number of values in a document: fields and list elements. A tree uses up to 130 times the memory of its
/// JSON, and more for YAML.
pub const VALUES_LIMIT: usize = 50_000;

/// The largest size of all strings in a document together, in bytes. An anchor of YAML repeats a string without its
/// bytes.
const TEXTS_LIMIT: usize = 3 << 20;
/// The memory of one path in a parsed field set, in bytes. Field sets are nested.
const PATH: usize = 400;
/// The largest nesting depth of a document; same as in the JSON parser.
pub(super) const DEPTH_LIMIT: usize = 128;

/// Parses JSON. Errors have the words of Go, where Go has its own.
pub fn from_json(bytes: &[u8], account: &Account) -> Result<Parsed, ParseError> {
    let seen = RefCell::new(Seen::new(account.clone()));
    let value = read(bytes, &seen)?;
    Ok(Parsed { value, duplicates: seen.into_inner().duplicates, managed_fields: None })
}

/// Parses the JSON of an object. Its `metadata.managedFields` remain JSON, and become null in the tree, if they have
/// the format of servers. They make up half of the object, and nearly always the client sends them back unchanged.
///
/// # Errors
/// Same as [`from_json`].
pub fn object_from_json(bytes: &[u8], account: &Account) -> Result<Parsed, ParseError> {
    let seen = Seen { managers: Managers::SetApart, ..Seen::new(account.clone()) };
    let seen = RefCell::new(seen);
    let value = read(bytes, &seen)?;
    let Seen { duplicates, managed_fields, .. } = seen.into_inner();
    Ok(Parsed { value, duplicates, managed_fields })
}

/// Parses JSON of at most this number of values, which is embedded in another document.
pub fn from_json_within(
    bytes: &[u8],
    values: usize,
    account: &Account,
) -> Result<Within, ParseError> {
    let mut seen = Seen::new(account.clone());
    seen.values = VALUES_LIMIT.saturating_sub(values);
    let before = seen.values;
    let seen = RefCell::new(seen);
    let value = read(bytes, &seen)?;
    let seen = seen.into_inner();
    Ok(Within { value, values: seen.values - before, tree: seen.growth.tree() })
}

/// JSON that is embedded in another document.
pub struct Within {
    pub value: Value,
    /// The number of values.
    pub values: usize,
    /// The memory of the tree, in bytes.
    pub tree: usize,
}

/// Parses JSON with the rules of Go: invalid characters become U+FFFD.
fn read(bytes: &[u8], seen: &RefCell<Seen>) -> Result<Value, ParseError> {
    let before = seen.borrow().values;
    let again = |bytes: &[u8]| {
        // The tree of the first attempt was dropped.
        let account = seen.borrow().growth.give_back();
        let managers = seen.borrow().managers;
        *seen.borrow_mut() = Seen { values: before, managers, ..Seen::new(account) };
        parse(bytes, seen)
    };
    let mut read = parse(bytes, seen);
    seen.borrow_mut().settle()?;
    if seen.borrow().managers == Managers::NeedSecondLook {
        read = again(bytes);
        seen.borrow_mut().settle()?;
    }
    let mended;
    let mut bytes = bytes;
    if read.is_err()
        && let Some(text) = go_text::mended(bytes)
    {
        mended = text;
        bytes = &mended;
        read = again(bytes);
        seen.borrow_mut().settle()?;
    }
    let read = read.map_err(|error| {
        let text = error.to_string();
        if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else if text.starts_with("trailing characters") && error.line() == 1 {
            let character = bytes.get(error.column().saturating_sub(1)).copied();
            let character = char::from(character.unwrap_or(b'?'));
            format!("invalid character '{character}' after top-level value")
        } else if text.starts_with("recursion limit exceeded") {
            format!(
                "nests deeper than {} levels, which is more than this server reads",
                DEPTH_LIMIT - 1
            )
        } else {
            text
        }
    });
    Ok(read?)
}

fn parse(bytes: &[u8], seen: &RefCell<Seen>) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &Path::Root, seen }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    seen.borrow_mut().set_apart(bytes)?;
    Ok(value)
}

/// The treatment of `managedFields`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Managers {
    /// They are part of the tree.
    Read,
    /// They remain JSON, if they have the format of servers.
    SetApart,
    /// They were to remain JSON, but have an unusual format, so the document is parsed again.
    NeedSecondLook,
}

/// The state of the parser.
pub(super) struct Seen {
    growth: Growth,
    /// The memory limit that is exceeded.
    refused: Option<ApiError>,
    /// The depth of the current value.
    depth: usize,
    values: usize,
    texts: usize,
    /// The number of duplicate fields, listed or not.
    repeated: usize,
    duplicates: Vec<String>,
    managers: Managers,
    /// The `managedFields` that are set apart, while the document is parsed.
    met: Option<Met>,
    /// The `managedFields` that are set apart, at the end of the document.
    managed_fields: Option<ManagedFieldsText>,
}

impl Seen {
    pub(super) fn new(account: Account) -> Self {
        Self {
            growth: Growth::new(account),
            refused: None,
            depth: 0,
            values: 0,
            texts: 0,
            repeated: 0,
            duplicates: Vec::new(),
            managers: Managers::Read,
            met: None,
            managed_fields: None,
        }
    }

    /// Charges the memory of the growing tree.
    pub(super) fn grow<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        if self.refused.is_none() {
            self.refused = self.growth.grow(bytes).err();
        }
        match self.refused {
            Some(_) => Err(E::custom("it takes too much memory")),
            None => Ok(()),
        }
    }

    /// Charges the remaining memory.
    pub(super) fn settle(&mut self) -> Result<(), ParseError> {
        match self.refused.take() {
            Some(refused) => Err(refused.into()),
            None => Ok(self.growth.settle()?),
        }
    }

    pub(super) fn value<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > VALUES_LIMIT {
            return Err(E::custom(format_args!("more than {VALUES_LIMIT} values in one document")));
        }
        Ok(())
    }

    pub(super) fn text<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        self.texts += text.len();
        if self.texts > TEXTS_LIMIT {
            return Err(E::custom(format_args!("more than {TEXTS_LIMIT} bytes of texts")));
        }
        self.grow(quota::of_text(text))
    }

    /// Sets the `managedFields` of an object apart.
    fn set_apart(&mut self, document: &[u8]) -> Result<(), serde_json::Error> {
        let Some(met) = self.met.take() else { return Ok(()) };
        let Some(said) = met.text_in(document) else { return Err(self.need_second_look()) };
        // The paths of the field sets are counted, because they are parsed later.
        let paths = managed_fields::most_in(&said.text);
        self.values += paths;
        self.value()?;
        self.grow(paths * PATH)?;
        self.text(std::str::from_utf8(&said.text).map_err(serde_json::Error::custom)?)?;
        self.managed_fields = Some(said);
        Ok(())
    }

    fn need_second_look<E: serde::de::Error>(&mut self) -> E {
        self.managers = Managers::NeedSecondLook;
        E::custom("managers need a second look")
    }

    fn repeat(&mut self, path: &Path<'_>) {
        self.repeated += 1;
        if self.repeated > DUPLICATES_LIMIT {
            return;
        }
        let problem = format!("duplicate field \"{path}\"");
        if !self.duplicates.contains(&problem) {
            self.duplicates.push(problem);
        }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    seen: &'a RefCell<Seen>,
}

/// Whether this is the path of `managedFields`.
fn is_managers(path: &Path<'_>) -> bool {
    matches!(path, Path::Member(Path::Member(Path::Root, "metadata"), "managedFields"))
}

/// Whether this path is within the fields of a manager, which Go does not parse.
fn is_within_fields(path: &Path<'_>) -> bool {
    match path {
        Path::Root => false,
        Path::Member(Path::Item(list, _), "fieldsV1") if is_managers(list) => true,
        Path::Member(parent, _) | Path::Key(parent, _) | Path::Item(parent, _) => {
            is_within_fields(parent)
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let mut seen = self.seen.borrow_mut();
        seen.value()?;
        seen.depth += 1;
        if seen.depth > DEPTH_LIMIT {
            return Err(serde::de::Error::custom(format_args!("nests deeper than {DEPTH_LIMIT}")));
        }
        let is_set_apart = seen.managers == Managers::SetApart && is_managers(self.path);
        if matches!(self.path, Path::Member(Path::Root, "metadata")) {
            // The last of several duplicate fields counts.
            seen.met = None;
        }
        drop(seen);
        let shared = self.seen;
        let value = if is_set_apart {
            let met = Met::read(deserializer);
            let mut seen = shared.borrow_mut();
            seen.met = Some(met.ok_or_else(|| seen.need_second_look())?);
            Value::Null
        } else {
            deserializer.deserialize_any(self)?
        };
        shared.borrow_mut().depth -= 1;
        Ok(value)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).map(Value::Number);
        number.ok_or_else(|| E::custom(format_args!("json: unsupported value: {value}")))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.seen.borrow_mut().text(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            let node = Node { path: &path, seen: self.seen };
            match items.next_element_seed(node)? {
                Some(item) => {
                    self.seen.borrow_mut().grow(quota::of_item(list.len()))?;
                    list.push(item);
                }
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.seen.borrow_mut().text(&name)?;
            self.seen.borrow_mut().grow(quota::of_member(map.len()))?;
            let path = Path::Member(self.path, &name);
            if map.contains_key(&name) && !is_within_fields(self.path) {
                self.seen.borrow_mut().repeat(&path);
            }
            let node = Node { path: &path, seen: self.seen };
            let value = members.next_value_seed(node)?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_(bytes: &[u8]) -> Result<Parsed, String> {
        from_json(bytes, &Account::own()).map_err(|unread| unread.to_string())
    }

    #[test]
    fn json_is_parsed_to_the_same_value_as_serde_json() {
        let text = r#"{"a":[1,-2,3.5,"x",null,true,{"b":{}}],"c":18446744073709551615}"#;
        let parsed = read_(text.as_bytes()).unwrap();
        assert_eq!(parsed.value, serde_json::from_str::<Value>(text).unwrap());
        assert!(parsed.duplicates.is_empty());
    }

    #[test]
    fn duplicate_json_fields_are_reported_with_their_path() {
        let parsed = read_(br#"{"a":1,"l":[{"x":1,"x":2,"x":3}],"a":{"b":1,"b":2}}"#).unwrap();
        let expected = ["l[0].x", "a", "a.b"].map(|path| format!("duplicate field \"{path}\""));
        assert_eq!(parsed.duplicates, expected);
        assert_eq!(parsed.value["a"]["b"], 2);
    }

    #[test]
    fn is_not_worn_out_by_duplicates_and_small_values() {
        let long = "x".repeat(1_000_000);
        let repeated = "\"a\":1,".repeat(60_000) + "\"a\":1";
        assert!(read_(format!("{{\"{long}\":{{{repeated}}}}}").as_bytes()).is_err());
        let parsed = read_(format!("{{\"{long}\":{{\"a\":1,\"a\":2}}}}").as_bytes()).unwrap();
        assert!(parsed.duplicates[0].len() < 10_000, "{}", parsed.duplicates[0].len());
        let many: Vec<&str> = std::iter::repeat_n("{}", 300_000).collect();
        let error = read_(format!("[{}]", many.join(",")).as_bytes()).unwrap_err();
        assert!(error.starts_with("more than 50000 values"), "{error}");
    }

    #[test]
    fn malformed_or_deeply_nested_json_is_rejected() {
        let deep = "[".repeat(100_000);
        for text in [deep.as_str(), "", "{", "{} {}", "\u{feff}{}", "1e400", "{\"a\":\"\\ud8\"}"] {
            assert!(read_(text.as_bytes()).is_err(), "{text:.20}");
        }
        let error = read_(deep.as_bytes()).unwrap_err();
        assert_eq!(error, "nests deeper than 127 levels, which is more than this server reads");
    }

    #[test]
    fn invalid_characters_in_json_strings_are_read_as_in_go() {
        let parsed = read_(b"{\"a\":\"\\ud800 \xff\",\"b\":\"\\ud83d\\ude00\"}").unwrap();
        assert_eq!(parsed.value, serde_json::json!({"a": "\u{fffd} \u{fffd}", "b": "\u{1f600}"}));
    }

    #[test]
    fn counts_values() {
        assert_eq!(from_json_within(b"[1,{\"a\":2}]", 4, &Account::own()).unwrap().values, 4);
        assert!(from_json_within(b"[1,{\"a\":2}]", 3, &Account::own()).is_err());
    }
}
