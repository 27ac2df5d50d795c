//! Versions: the types of a kind by the names of its versions, and what a write of each sets back.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::complete::complete;
use super::field_set::FieldSet;
use super::lent::Lent;
use super::path_element::PathElement;
use super::place::Place;
use crate::schema::Schema;

/// The versions of a kind, as far as managers of fields must know them.
pub struct Versions<'a> {
    requested: String,
    all: Vec<Version<'a>>,
    nothing: FieldSet,
    may_go: bool,
    convert: Option<Box<Convert<'a>>>,
}

/// Makes an object of any version one of the version of this name.
type Convert<'a> = dyn for<'t> Fn(&'t Map<String, Value>, &str) -> Result<Cow<'t, Map<String, Value>>, String>
    + 'a;

struct Version<'a> {
    /// As `example.com/v1`.
    name: String,
    schema: &'a Schema,
    ignored: FieldSet,
}

impl<'a> Versions<'a> {
    /// The versions of a kind, and which one a request is about.
    pub fn new(requested: &str) -> Self {
        let requested = requested.to_owned();
        let nothing = FieldSet::default();
        Self { requested, all: Vec::new(), nothing, may_go: false, convert: None }
    }

    /// The same; an object of one version becomes one of another by this.
    #[must_use]
    pub fn converted_by(
        self,
        convert: impl for<'t> Fn(
            &'t Map<String, Value>,
            &str,
        ) -> Result<Cow<'t, Map<String, Value>>, String>
        + 'a,
    ) -> Self {
        Self { convert: Some(Box::new(convert)), ..self }
    }

    /// An object as this version has it.
    ///
    /// # Errors
    /// When it cannot be converted.
    pub fn convert<'t>(
        &self,
        tree: &'t Map<String, Value>,
        name: &str,
    ) -> Result<Cow<'t, Map<String, Value>>, String> {
        match &self.convert {
            Some(convert) => convert(tree, name),
            None => Ok(Cow::Borrowed(tree)),
        }
    }

    /// The same; `may_go` says whether managers of a missing version are dropped without an error.
    #[must_use]
    pub fn that_may_go(self, may_go: bool) -> Self {
        Self { may_go, ..self }
    }

    /// Whether some may go.
    pub fn may_go(&self) -> bool {
        self.may_go
    }

    /// A part of an object of one version as another has it. What its type demands, and the part does not
    /// have, is taken from the whole object, and so are the metadata that no manager owns: code that reads
    /// types cannot convert it otherwise. Where it cannot all the same, the answer is the whole object,
    /// so that nothing is taken away that should stay.
    ///
    /// # Errors
    /// When the whole object cannot be converted either.
    pub fn convert_part(
        &self,
        (whole, mut part): (&Map<String, Value>, Map<String, Value>),
        (from, to): (&str, &str),
    ) -> Result<Map<String, Value>, String> {
        let (Some(convert), Some(version)) = (&self.convert, self.find(from)) else {
            return Ok(part);
        };
        if from == to {
            return Ok(part);
        }
        complete(version.schema.root(), whole, &mut part);
        let lent = Lent::to(&mut part, whole);
        match convert(&part, to) {
            Ok(converted) => Ok(lent.taken_from(converted.into_owned())),
            Err(why) => {
                tracing::debug!("a part cannot be converted from {from} to {to}: {why}");
                convert(whole, to).map(Cow::into_owned)
            }
        }
    }

    /// Adds a version, with the fields that writes of it set back: JSON pointers.
    #[must_use]
    pub fn with(mut self, name: String, schema: &'a Schema, ignored: &[&str]) -> Self {
        let path = |pointer: &&str| {
            let steps: Vec<PathElement> =
                pointer.split('/').skip(1).map(PathElement::field).collect();
            FieldSet::of_path(steps.into_iter())
        };
        let ignored = ignored.iter().map(path).fold(FieldSet::default(), FieldSet::union);
        self.all.push(Version { name, schema, ignored });
        self
    }

    /// The version of the request.
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// Where an object of a version begins; nothing if there is no such version.
    pub fn place(&self, name: &str) -> Option<Place<'a>> {
        self.find(name).map(|version| Place::root(version.schema.root()))
    }

    /// What writes of a version set back.
    pub fn ignored(&self, name: &str) -> &FieldSet {
        self.find(name).map_or(&self.nothing, |version| &version.ignored)
    }

    fn find(&self, name: &str) -> Option<&Version<'a>> {
        self.all.iter().find(|version| version.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_that_cannot_be_converted_is_the_whole() {
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {
            "either": {"type": "object", "properties": {"a": {"type": "string"}}},
        }}));
        let versions = Versions::new("v1")
            .converted_by(|tree, to| match &tree["either"] {
                Value::Object(members) if members.is_empty() => Err("of no variant".to_owned()),
                either => Ok(Cow::Owned([(to.to_owned(), either.clone())].into_iter().collect())),
            })
            .with("v1".to_owned(), &schema, &[])
            .with("v2".to_owned(), &schema, &[]);
        let tree = |value: Value| value.as_object().cloned().unwrap();
        let whole = tree(json!({"either": {"a": "x"}}));
        for either in [json!({}), json!({"a": "x"})] {
            let part = tree(json!({"either": either}));
            let converted = versions.convert_part((&whole, part), ("v1", "v2"));
            assert_eq!(converted, Ok(tree(json!({"v2": {"a": "x"}}))));
        }
    }
}
