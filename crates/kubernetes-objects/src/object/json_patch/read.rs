//! The parser of JSON patches from webhooks.

use serde_json::Value;

use super::{JsonPatch, OPERATIONS_LIMIT, Operation};
use crate::error::go_type;
use crate::object::Tree;

impl JsonPatch {
    /// Reads a patch from JSON, in the format of webhooks. An invalid field of an operation causes an error only when
    /// the operation is applied.
    ///
    /// # Errors
    /// If the JSON is not a list of objects, with Go's message; or if the list has too many operations.
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

/// An invalid field of an operation.
pub enum Unfit<'a> {
    /// Operations have no field of this name.
    Unknown(&'a str),
    /// The field of this name must be a string, and this value is not one.
    NoText(&'a str, &'a Value),
}

impl Operation {
    /// Reads an operation from its fields, and calls `unfit` for each invalid field. If `unfit` accepts an unknown
    /// field, the field is ignored. If it accepts a value that is not a string, the operation fails when it is applied.
    ///
    /// # Errors
    /// The errors of `unfit`.
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
                    // No operation is called `unknown`, so it fails when it is applied.
                    operation.op = "unknown".to_owned();
                }
            }
        }
        Ok(operation)
    }
}
