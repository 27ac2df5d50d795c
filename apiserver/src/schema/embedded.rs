//! Resources that stand in an object, each with metadata of its own.

use serde_json::Value;

use super::{Additional, Schema};
use crate::error::{FieldError, Path};
use crate::object::metadata::UNKNOWN_LIMIT;
use crate::object::{Tree, metadata, to_json};

impl Schema {
    /// Makes the metadata of each resource in an object what a typed ObjectMeta
    /// would be; answers with the paths of what it does not know.
    ///
    /// # Errors
    /// The first member of a wrong type, unless they are dropped.
    fn coerce_embedded(
        &self,
        tree: &mut Tree,
        malformed: Malformed,
    ) -> Result<Vec<String>, FieldError> {
        let mut unknown = Vec::new();
        coerce_members(self, tree, &Path::Root, malformed, &mut unknown)?;
        Ok(unknown)
    }

    /// Makes an object what this schema knows: what it does not know is
    /// dropped, what is absent filled in. Answers with the paths of the former.
    ///
    /// # Errors
    /// The first member of a wrong type in the metadata of a resource that
    /// stands in it, unless they are dropped.
    pub fn take_in(
        &self,
        tree: &mut Tree,
        malformed: Malformed,
    ) -> Result<Vec<String>, FieldError> {
        let mut unknown = self.prune(tree);
        unknown.extend(self.coerce_embedded(tree, malformed)?);
        self.fill_defaults(tree);
        Ok(unknown)
    }

    /// The same of one value of this schema, which stands at `path`.
    ///
    /// # Errors
    /// The first member of a wrong type.
    pub fn coerce_embedded_in(&self, value: &mut Value, path: &Path<'_>) -> Result<(), FieldError> {
        coerce_node(self, value, path, Malformed::Refused, &mut Vec::new())
    }

    /// The schema of a member and its path, for checks that are not the
    /// schema's own: they tell members that are described from others,
    /// `spec.known`, `spec.map[key]`. Nothing if nothing is said of it.
    pub fn member<'a>(&self, name: &'a str, path: &'a Path<'a>) -> Option<(&Self, Path<'a>)> {
        match (self.properties.get(name), &self.additional) {
            (Some(member), _) => Some((member, Path::Member(path, name))),
            (None, Additional::Of(member)) => Some((member, Path::Key(path, name))),
            _ => None,
        }
    }
}

/// What is done with members of a wrong type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Nothing is done then.
    Refused,
    /// They are dropped.
    Dropped,
}

fn coerce_node(
    schema: &Schema,
    value: &mut Value,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    match value {
        Value::Object(tree) => {
            if schema.embedded {
                coerce_resource(tree, path, malformed, unknown)?;
            }
            coerce_members(schema, tree, path, malformed, unknown)
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce_node(schema, item, &Path::Item(path, index), malformed, unknown)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn coerce_members(
    schema: &Schema,
    tree: &mut Tree,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    for (name, value) in tree {
        if let Some((member, path)) = schema.member(name, path) {
            coerce_node(member, value, &path, malformed, unknown)?;
        }
    }
    Ok(())
}

fn coerce_resource(
    tree: &mut Tree,
    path: &Path<'_>,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        match tree.get(field) {
            None | Some(Value::String(_)) => {}
            Some(_) if malformed == Malformed::Dropped => {
                tree.remove(field);
            }
            Some(other) => {
                let field = format!("{path}.{field}");
                return Err(FieldError::invalid(field, to_json(other), "must be a string"));
            }
        }
    }
    let Some(given) = tree.get("metadata") else { return Ok(()) };
    let is_metadata = given.is_object() || given.is_null();
    let before = (malformed == Malformed::Refused).then(|| given.clone());
    match (metadata::coerce(tree), malformed) {
        (Ok(found), _) => {
            let left = UNKNOWN_LIMIT.saturating_sub(unknown.len());
            unknown.extend(found.into_iter().take(left).map(|member| format!("{path}.{member}")));
        }
        // What was of a wrong type in it is gone already.
        (Err(_), Malformed::Dropped) if is_metadata => {}
        (Err(_), Malformed::Dropped) => {
            tree.remove("metadata");
        }
        (Err(why), Malformed::Refused) => {
            let shown = before.as_ref().map(to_json).unwrap_or_default();
            return Err(FieldError::invalid(format!("{path}.metadata"), shown, &why));
        }
    }
    Ok(())
}
