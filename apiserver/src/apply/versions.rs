//! Versions: the types of a kind by the names of its versions, and what a write of each sets back.

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
}

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
        Self { requested, all: Vec::new(), nothing: FieldSet::default(), may_go: false }
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
