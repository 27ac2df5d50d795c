//! Versions: the types of a kind by the names of its versions, and the fields that writes of each version reset.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::added_metadata::AddedMetadata;
use super::complete::complete;
use super::field_set::FieldSet;
use super::path_element::PathElement;
use super::place::Place;
use crate::schema::Schema;

/// The versions of a kind, as far as field ownership requires them.
pub struct Versions<'a> {
    requested: String,
    all: Vec<Version<'a>>,
    nothing: FieldSet,
    may_go: bool,
    convert: Option<Box<Convert<'a>>>,
}

/// Converts an object of any version to the version of this name.
type Convert<'a> = dyn for<'t> Fn(&'t Map<String, Value>, &str) -> Result<Cow<'t, Map<String, Value>>, String>
    + 'a;

struct Version<'a> {
    /// Such as `example.com/v1`.
    name: String,
    schema: &'a Schema,
    ignored: FieldSet,
}

impl<'a> Versions<'a> {
    /// Creates an empty collection. `requested` is the version of the request.
    pub fn new(requested: &str) -> Self {
        let requested = requested.to_owned();
        let nothing = FieldSet::default();
        Self { requested, all: Vec::new(), nothing, may_go: false, convert: None }
    }

    /// Sets the function that converts an object from one version to another.
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

    /// Converts an object to this version.
    ///
    /// # Errors
    /// If the object cannot be converted.
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

    /// Sets whether managers of a missing version are removed without an error.
    #[must_use]
    pub fn that_may_go(self, may_go: bool) -> Self {
        Self { may_go, ..self }
    }

    /// Whether managers of a missing version are removed without an error.
    pub fn may_go(&self) -> bool {
        self.may_go
    }

    /// Converts a part of an object to another version. Decoders of typed objects need fields that the part may lack,
    /// so these are taken from the whole object: required fields, the type, and metadata except annotations. If the
    /// part still cannot be converted, returns the converted whole object, so that no field is removed by mistake.
    ///
    /// # Errors
    /// If the whole object cannot be converted either.
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
        let lent = AddedMetadata::to(&mut part, whole);
        match convert(&part, to) {
            Ok(converted) => Ok(lent.taken_from(converted.into_owned())),
            Err(why) => {
                tracing::debug!(%from, %to, error = %why, "cannot convert a part of an object");
                convert(whole, to).map(Cow::into_owned)
            }
        }
    }

    /// Adds a version. `ignored` are the fields that writes of this version reset, as JSON pointers.
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

    /// Returns the version of the request.
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// Returns the place of an object of this version; `None` if the version does not exist.
    pub fn place(&self, name: &str) -> Option<Place<'a>> {
        self.find(name).map(|version| Place::root(version.schema.root()))
    }

    /// Returns the fields that writes of this version reset.
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
    fn an_unconvertible_part_is_replaced_by_the_converted_object() {
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
