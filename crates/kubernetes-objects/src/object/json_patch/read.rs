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
            Value::Object(members) => Operation::read(members, |_| Ok(())),
            Value::Null => Ok(Operation::default()),
            other => Err(mismatch(&other, "jsonpatch.Operation")),
        });
        Ok(Self { operations: operations.collect::<Result<_, _>>()? })
    }
}

/// A member that an operation cannot have.
pub enum Unfit<'a> {
    /// No operation has a member of this name.
    Unknown(&'a str),
    /// The member of this name is a text, and this is none.
    NoText(&'a str, &'a Value),
}

impl Operation {
    /// The operation of these members. `unfit` is asked about those that do not fit; where it lets one pass, an unknown
    /// member is left out, and an operation whose text is none fails when it is applied.
    ///
    /// # Errors
    /// Those of `unfit`.
    pub fn read(
        members: Tree,
        mut unfit: impl FnMut(Unfit<'_>) -> Result<(), String>,
    ) -> Result<Self, String> {
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
                name => {
                    unfit(Unfit::Unknown(name))?;
                    continue;
                }
            };
            match value {
                Value::String(given) => *text = given,
                Value::Null => {}
                other => {
                    unfit(Unfit::NoText(&name, &other))?;
                    // No operation has this name.
                    operation.op = "unknown".to_owned();
                }
            }
        }
        Ok(operation)
    }
}
