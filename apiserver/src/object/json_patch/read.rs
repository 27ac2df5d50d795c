//! Patches as webhooks write them.

use serde_json::Value;

use super::{JsonPatch, OPERATIONS_LIMIT, Operation};
use crate::error::go_type;
use crate::object::Tree;

impl JsonPatch {
    /// The patch that is written in JSON, as a webhook writes it: what is wrong with a member is found when the operation is
    /// applied.
    ///
    /// # Errors
    /// When it is no list of objects, in Go's words; or has too many operations.
    pub fn read(patch: Value) -> Result<Self, String> {
        let mismatch = |found: &Value, expected: &str| {
            let found = go_type(found);
            format!("json: cannot unmarshal {found} into Go value of type {expected}")
        };
        let items = match patch {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            other => return Err(mismatch(&other, "jsonpatch.Patch")),
        };
        if items.len() > OPERATIONS_LIMIT {
            let operations = items.len();
            return Err(format!("it has {operations} operations, of {OPERATIONS_LIMIT} at most"));
        }
        let operations = items.into_iter().map(|item| match item {
            Value::Object(members) => Ok(Operation::read(members)),
            Value::Null => Ok(Operation::default()),
            other => Err(mismatch(&other, "jsonpatch.Operation")),
        });
        Ok(Self { operations: operations.collect::<Result<_, _>>()? })
    }
}

impl Operation {
    fn read(members: Tree) -> Self {
        let mut operation = Self::default();
        for (name, value) in members {
            let text = match name.as_str() {
                "op" => &mut operation.op,
                "path" => &mut operation.path,
                "from" => &mut operation.from,
                "value" => {
                    operation.value = value;
                    continue;
                }
                _ => continue,
            };
            match value {
                Value::String(given) => *text = given,
                Value::Null => {}
                // No operation has this name.
                _ => operation.op = "unknown".to_owned(),
            }
        }
        operation
    }
}
