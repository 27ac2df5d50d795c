//! JSON as a tree, with the paths of members that were given more than once.
//!
//! Of those the last one counts, as everywhere in Kubernetes, but under
//! `fieldValidation=Strict` they are an error. The depth of a document is
//! bounded by the parser, at 128.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A document.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Its tree.
    pub value: Value,
    /// Paths of members that were given more than once, as they were met.
    pub duplicates: Vec<String>,
}

/// Duplicates beyond this number are not listed: nobody reads them.
const DUPLICATES_LIMIT: usize = 100;
/// So much of the path of a duplicate is said.
const PATH_LIMIT: usize = 256;
/// Values in a document, each member and item. A tree costs up to 200 times
/// the text that it was made of.
const VALUES_LIMIT: usize = 50_000;

/// Parses a document. Where Go has words of its own for what is wrong, the
/// error has them.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    read(bytes).map_err(|error| {
        let text = error.to_string();
        if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else if text.starts_with("trailing characters") && error.line() == 1 {
            let character = bytes.get(error.column().saturating_sub(1)).copied();
            let character = char::from(character.unwrap_or(b'?'));
            format!("invalid character '{character}' after top-level value")
        } else {
            text
        }
    })
}

fn read(bytes: &[u8]) -> Result<Parsed, serde_json::Error> {
    let seen = RefCell::new(Seen::default());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let node = Node { path: &Path::Root, seen: &seen };
    let value = node.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Parsed { value, duplicates: seen.into_inner().duplicates })
}

/// Where in the document we are; written out only when it is needed.
enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    values: usize,
    /// Members given more than once, listed or not.
    repeated: usize,
    duplicates: Vec<String>,
}

impl Seen {
    fn value<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > VALUES_LIMIT {
            return Err(E::custom(format_args!("more than {VALUES_LIMIT} values in one document")));
        }
        Ok(())
    }

    fn repeat(&mut self, path: &Path<'_>) {
        self.repeated += 1;
        if self.repeated > DUPLICATES_LIMIT {
            return;
        }
        let mut text = Beginning::default();
        // It fails when it has enough.
        let _ = write!(text, "{path}");
        if !self.duplicates.contains(&text.0) {
            self.duplicates.push(text.0);
        }
    }
}

/// The beginning of a text that may be long.
#[derive(Default)]
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(PATH_LIMIT - self.0.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    seen: &'a RefCell<Seen>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.seen.borrow_mut().value()?;
        deserializer.deserialize_any(self)
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

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            let node = Node { path: &path, seen: self.seen };
            match items.next_element_seed(node)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = Path::Member(self.path, &name);
            let node = Node { path: &path, seen: self.seen };
            let value = members.next_value_seed(node)?;
            if map.contains_key(&name) {
                self.seen.borrow_mut().repeat(&path);
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_serde_json_reads() {
        let text = r#"{"a":[1,-2,3.5,"x",null,true,{"b":{}}],"c":18446744073709551615}"#;
        let parsed = parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.value, serde_json::from_str::<Value>(text).unwrap());
        assert!(parsed.duplicates.is_empty());
    }

    #[test]
    fn names_what_is_given_twice() {
        let parsed = parse(br#"{"a":1,"l":[{"x":1,"x":2,"x":3}],"a":{"b":1,"b":2}}"#).unwrap();
        assert_eq!(parsed.duplicates, ["l[0].x", "a.b", "a"]);
        assert_eq!(parsed.value["a"]["b"], 2);
    }

    #[test]
    fn is_not_worn_out_by_duplicates_and_small_values() {
        let long = "x".repeat(1_000_000);
        let repeated = "\"a\":1,".repeat(60_000) + "\"a\":1";
        assert!(parse(format!("{{\"{long}\":{{{repeated}}}}}").as_bytes()).is_err());
        let parsed = parse(format!("{{\"{long}\":{{\"a\":1,\"a\":2}}}}").as_bytes()).unwrap();
        assert_eq!(parsed.duplicates[0].len(), PATH_LIMIT);
        let many: Vec<&str> = std::iter::repeat_n("{}", 300_000).collect();
        let error = parse(format!("[{}]", many.join(",")).as_bytes()).unwrap_err();
        assert!(error.starts_with("more than 50000 values"), "{error}");
    }

    #[test]
    fn refuses_what_is_hostile() {
        let deep = "[".repeat(100_000);
        for text in [deep.as_str(), "", "{", "{} {}", "\u{feff}{}", "1e400", "{\"a\":\"\\ud800\"}"]
        {
            assert!(parse(text.as_bytes()).is_err(), "{text:.20}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
    }
}
