//! Drops what the schema does not know.

use serde_json::Value;

use crate::kind::{Additional, Schema};
use crate::object::Tree;

/// What happens to members that are unknown or given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped, with a `Warning` header each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// Members of the root that no schema needs to name.
const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops the members that the schema does not know; answers with their paths.
pub(super) fn prune(schema: &Schema, tree: &mut Tree) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_members(schema, tree, "", &mut unknown);
    unknown.sort_unstable();
    unknown
}

fn prune_members(schema: &Schema, tree: &mut Tree, path: &str, unknown: &mut Vec<String>) {
    let is_root = path.is_empty();
    tree.retain(|key, value| {
        if is_root && ROOT.contains(&key.as_str()) {
            return true;
        }
        let path = if is_root { key.clone() } else { format!("{path}.{key}") };
        let member = match (schema.properties.get(key), &schema.additional) {
            (Some(member), _) => member,
            (None, Additional::Of(member)) => member,
            (None, Additional::Any) => return true,
            (None, Additional::Pruned) => {
                if unknown.len() < super::ERRORS_LIMIT {
                    unknown.push(path);
                }
                return false;
            }
        };
        // A null that is no value is as good as absent.
        if value.is_null() && !member.nullable && member.json_type.is_some() {
            return false;
        }
        prune_value(member, value, &path, unknown);
        true
    });
}

fn prune_value(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => prune_members(schema, members, path, unknown),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(schema, item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// What is said about members that were unknown or given twice: warnings, or
/// under `Strict` the error.
pub(super) fn report(
    field_validation: FieldValidation,
    duplicates: Vec<String>,
    unknown: Vec<String>,
) -> Result<Vec<String>, String> {
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\""));
    let unknown = unknown.into_iter().map(|path| format!("unknown field \"{path}\""));
    let problems: Vec<String> = duplicates.chain(unknown).collect();
    match field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !problems.is_empty() => Err(problems.join(", ")),
        FieldValidation::Warn | FieldValidation::Strict => Ok(problems),
    }
}
