//! Versions: the types of a kind by the names of its versions, and what a write of each sets back.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::complete::complete;
use super::field_set::FieldSet;
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
    /// have, is taken from the whole object: code that reads types cannot convert it otherwise.
    ///
    /// # Errors
    /// When it cannot be converted.
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
        convert(&part, to).map(Cow::into_owned)
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
