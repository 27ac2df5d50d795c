//! Pruning: what the schema does not know is dropped.

use serde_json::Value;

use super::{Additional, Schema};
use crate::object::Tree;

/// So many unknown members are told; nobody mends more at a time.
const UNKNOWN_LIMIT: usize = 100;

/// Members of the root that no schema needs to name.
const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Drops the members of a whole object that the schema does not know, and
    /// nulls that are no values; answers with the paths of the former, sorted.
    pub fn prune(&self, tree: &mut Tree) -> Vec<String> {
        let mut unknown = Vec::new();
        prune_members(self, tree, "", &mut unknown);
        unknown.sort_unstable();
        unknown
    }
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
                if unknown.len() < UNKNOWN_LIMIT {
                    unknown.push(path);
                }
                return false;
            }
        };
        // A null that is no value is as good as absent.
        if value.is_null() && !member.nullable {
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
