//! Strict problems: fields of an object of a Go type that are unknown or duplicate, in the order of the document.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::node::{GoType, Type};
use crate::error::Path;

/// The largest number of reported problems, as in kube-apiserver.
const LIMIT: usize = 100;
/// The largest nesting depth of a document.
const DEPTH_LIMIT: usize = 128;

/// Returns `duplicate field "a.b"` and `unknown field "a.c"` for each such field of a JSON document. The contents of an
/// unknown field are not checked. Go types with a decoder of their own, such as quantities, are not checked either.
/// Returns `None` if the document cannot be parsed.
pub fn strict_problems(of: Type<'_>, json: &[u8]) -> Option<Vec<String>> {
    let found = RefCell::new(Found::default());
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let node = Node { of: Some(of), path: &Path::Root, depth: 0, found: &found };
    node.deserialize(&mut deserializer).ok()?;
    Some(found.into_inner().problems)
}

#[derive(Default)]
struct Found {
    problems: Vec<String>,
    /// All reported problems, so that each is reported once.
    seen: BTreeSet<String>,
}

impl Found {
    fn note(&mut self, what: &str, path: &Path<'_>) {
        if self.problems.len() >= LIMIT {
            return;
        }
        let problem = format!("{what} field \"{path}\"");
        if self.seen.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }
}

/// A value, and its type if anything is known about its fields.
struct Node<'a> {
    of: Option<Type<'a>>,
    path: &'a Path<'a>,
    depth: usize,
    found: &'a RefCell<Found>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth > DEPTH_LIMIT {
            return Err(D::Error::custom("nests too deep"));
        }
        let is_followed = self.of.is_some_and(|of| {
            matches!(of.go, Some(GoType::Struct | GoType::Map | GoType::List | GoType::Strings))
        });
        match is_followed {
            true => deserializer.deserialize_any(self),
            false => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let of = self.of.and_then(Type::of_items);
        for index in 0.. {
            let path = Path::Item(self.path, index);
            let node = Node { of, path: &path, depth: self.depth + 1, found: self.found };
            if items.next_element_seed(node)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = Path::Member(self.path, &name);
            let of = self.of.and_then(|of| of.of_member(&name));
            if of.is_none() && self.of.is_some_and(|of| of.go == Some(GoType::Struct)) {
                self.found.borrow_mut().note("unknown", &path);
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            if names.contains(&name) {
                self.found.borrow_mut().note("duplicate", &path);
            }
            let node = Node { of, path: &path, depth: self.depth + 1, found: self.found };
            members.next_value_seed(node)?;
            names.insert(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Types;
    use super::*;

    const TABLE: &str = "\
package example.com/api/foo/v1 foo/v1
Foo kind
 metadata 1 Meta +
 spec 2 Spec +
Meta
 name 1 string
 labels 2 map[string]string
Part
 name 1 string +
Spec
 parts 2 []Part
 port 5 util/intstr.IntOrString
";

    #[test]
    fn problems_are_in_the_order_of_the_document() {
        let types = Arc::new(Types::parse(&[TABLE]).unwrap());
        types.check().unwrap();
        let schema = types.schema("foo", "v1", "Foo").unwrap();
        let json = br#"{"z":1,"z":2,"kind":"Foo","kind":"Foo","spec":{"parts":[{"b":{"b":1,"b":2},"a":1,"name":"x","name":"y","name":"z"},5],
            "port":{"x":1,"x":2},"parts":[]},"metadata":{"labels":{"a":"b","a":"c"},"y":[]}}"#;
        let expected = [
            r#"unknown field "z""#,
            r#"duplicate field "kind""#,
            r#"unknown field "spec.parts[0].b""#,
            r#"unknown field "spec.parts[0].a""#,
            r#"duplicate field "spec.parts[0].name""#,
            r#"duplicate field "spec.parts""#,
            r#"duplicate field "metadata.labels.a""#,
            r#"unknown field "metadata.y""#,
        ];
        assert_eq!(strict_problems(schema.root(), json).unwrap(), expected);
        assert_eq!(strict_problems(schema.root(), b"{\"spec\":"), None);
    }
}
