//! JSON patch, RFC 6902, with the behavior of kube-apiserver, including the places where it is more lenient than the
//! RFC.

mod read;

pub use read::Unfit;

use serde_json::Value;

use super::extent::{DEPTH_LIMIT, Extent};
use crate::error::{ApiError, Details, Reason};
use crate::quota::{self, Room};

/// The largest number of operations in a patch; same as kube-apiserver.
pub const OPERATIONS_LIMIT: usize = 10_000;
/// The largest size of all copies of a patch, in bytes of JSON; same as kube-apiserver.
const COPY_LIMIT: usize = 3 << 20;
/// The largest number of values that all operations together may read or move. This many values take seconds.
const WORK_LIMIT: usize = 10_000_000;

/// The number of bytes of a string that cost as much work to read as one value.
const TEXT: usize = 16;
/// The number of list items that cost as much work to move as one value to read.
const SHIFTED: usize = 16;

/// One operation of a patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: String,
    /// The JSON pointer to the target.
    pub path: String,
    /// The JSON pointer to the source of `move` and `copy`.
    pub from: String,
    /// The value of `add`, `replace` and `test`; null if it is missing.
    pub value: Value,
}

/// A list of operations, which are applied in order.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
}

/// A parsed JSON pointer: names and indexes, from the root.
type Steps = Vec<String>;

impl JsonPatch {
    /// A patch with these operations.
    pub fn new(operations: Vec<Operation>) -> Self {
        Self { operations }
    }

    /// Whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether an operation refers to the value at the path `wanted`, to a parent of it, or to a value inside of it.
    pub fn looks_at(&self, wanted: [&str; 2]) -> bool {
        let is_about = |path: &str| steps(path).iter().zip(wanted).all(|(one, other)| one == other);
        self.operations.iter().any(|operation| {
            let has_from = matches!(operation.op.as_str(), "move" | "copy");
            is_about(&operation.path) || (has_from && is_about(&operation.from))
        })
    }

    /// Applies all operations in order.
    ///
    /// # Errors
    /// 422 with the reason why the first failing operation failed, for the log; 413 and 429 if the result exceeds a
    /// memory limit.
    pub fn apply(&self, mut document: Value, room: &mut Room) -> Result<Value, ApiError> {
        let tree = quota::of_value(&document);
        let mut spent = Spent { copied: 0, work: 0, tree, room };
        spent.room.grow_to(tree)?;
        for (index, operation) in self.operations.iter().enumerate() {
            apply(operation, &mut document, &mut spent).map_err(|refused| match refused {
                Refused::Unfit(why) => rejected().caused_by(format!("operation {index}: {why}")),
                Refused::NoRoom(error) => error,
            })?;
        }
        Ok(document)
    }
}

fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::new(Reason::Invalid, message).with_details(Details::default())
}

/// The reason why an operation cannot be applied.
enum Refused {
    /// The operation is invalid; the message is for the log.
    Unfit(String),
    /// The result exceeds a memory limit.
    NoRoom(ApiError),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Unfit(why)
    }
}

impl From<&str> for Refused {
    fn from(why: &str) -> Self {
        Self::Unfit(why.to_owned())
    }
}

/// The resources that the operations of a patch have used.
struct Spent<'a> {
    copied: usize,
    work: usize,
    /// The memory of the document, in bytes.
    tree: usize,
    room: &'a mut Room,
}

impl Spent<'_> {
    fn work(&mut self, values: usize) -> Result<(), Refused> {
        self.work += values;
        if self.work > WORK_LIMIT { Err("too much work".into()) } else { Ok(()) }
    }

    /// Counts the work of visiting a value.
    fn look_at(&mut self, extent: Extent) -> Result<(), Refused> {
        self.work(extent.values + extent.texts / TEXT)
    }

    /// Charges the memory of a value that is added to the document.
    fn grow(&mut self, value: &Value) -> Result<(), Refused> {
        // The place of the value is counted like the first field of an object, even if the value is an item of a list.
        self.tree += quota::of_value(value) + quota::of_member(0);
        self.room.grow_to(self.tree).map_err(Refused::NoRoom)
    }

    /// Counts the work of removing a value from the document, and subtracts its memory.
    fn shrink(&mut self, value: &Value) -> Result<(), Refused> {
        self.look_at(Extent::of_value(value))?;
        self.tree = self.tree.saturating_sub(quota::of_value(value));
        Ok(())
    }

    /// Checks that a value at a path is within the depth limit.
    fn place(&mut self, path: &[String], value: &Value) -> Result<(), Refused> {
        let extent = Extent::of_value(value);
        self.look_at(extent)?;
        if path.len() + extent.depth > DEPTH_LIMIT {
            return Err(format!("deeper than {DEPTH_LIMIT}").into());
        }
        Ok(())
    }
}

fn apply(
    operation: &Operation,
    document: &mut Value,
    spent: &mut Spent<'_>,
) -> Result<(), Refused> {
    let path = steps(&operation.path);
    match operation.op.as_str() {
        "add" => {
            spent.grow(&operation.value)?;
            add(document, &path, operation.value.clone(), spent)
        }
        "remove" => {
            let removed = remove(document, &path, spent)?;
            spent.shrink(&removed)
        }
        "replace" => {
            spent.grow(&operation.value)?;
            replace(document, &path, operation.value.clone(), spent)
        }
        "move" => {
            let value = remove(document, &steps(&operation.from), spent)?;
            add(document, &path, value, spent)
        }
        "copy" => {
            let from = steps(&operation.from);
            let value = read(document, &from)?.unwrap_or(&Value::Null);
            spent.copied += value.to_string().len();
            if spent.copied > COPY_LIMIT {
                return Err(format!("copies of more than {COPY_LIMIT} bytes").into());
            }
            spent.grow(value)?;
            let value = value.clone();
            add(document, &path, value, spent)
        }
        "test" => {
            let found = read(document, &path)?.unwrap_or(&Value::Null);
            if *found == operation.value { Ok(()) } else { Err("it is something else".into()) }
        }
        other => Err(format!("unknown operation {other:?}").into()),
    }
}

/// The largest number of steps of a path that are followed: one more than the largest depth of an object.
const STEPS_LIMIT: usize = DEPTH_LIMIT + 1;

/// The steps of a JSON pointer. Characters before the first slash are ignored.
fn steps(pointer: &str) -> Steps {
    // A path that is deeper than an object can be refers to no value.
    let steps = pointer.split('/').skip(1).take(STEPS_LIMIT);
    steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// The parent of the value at a path, and the last step of the path.
fn container<'a, 'b>(
    document: &'a mut Value,
    path: &'b [String],
) -> Result<(&'a mut Value, &'b str), String> {
    let (last, before) = path.split_last().ok_or("the path is empty")?;
    let mut value = document;
    for step in before {
        let found = match value {
            Value::Object(members) => members.get_mut(step),
            Value::Array(items) => place(step, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        };
        value = found.ok_or_else(|| format!("nothing is at {step:?}"))?;
    }
    Ok((value, last))
}

/// The value at a path, or `None` if the parent is an object without this field.
fn read<'a>(document: &'a mut Value, path: &[String]) -> Result<Option<&'a Value>, String> {
    if path.is_empty() {
        return Ok(Some(document));
    }
    match container(document, path)? {
        (Value::Object(members), name) => Ok(members.get(name)),
        (Value::Array(items), step) => {
            let at = place(step, items.len());
            at.and_then(|at| items.get(at)).map(Some).ok_or_else(|| out_of(step))
        }
        _ => Err("that has no members".to_owned()),
    }
}

/// Parses an index. A negative index counts from the end.
fn place(step: &str, length: usize) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    if index < 0 {
        return length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
    }
    usize::try_from(index).ok().filter(|&index| index <= length)
}

fn out_of(step: &str) -> String {
    format!("there is no item {step}")
}

fn add(
    document: &mut Value,
    path: &[String],
    value: Value,
    spent: &mut Spent<'_>,
) -> Result<(), Refused> {
    spent.place(path, &value)?;
    match container(document, path)? {
        (Value::Object(members), name) => {
            let old = members.insert(name.to_owned(), value);
            old.map_or(Ok(()), |old| spent.shrink(&old))?;
        }
        (Value::Array(items), "-") => items.push(value),
        (Value::Array(items), step) => {
            // A negative index counts from the position behind the last item, so that -1 appends.
            let at = place(step, items.len() + usize::from(step.starts_with('-')));
            let at = at.filter(|&at| at <= items.len()).ok_or_else(|| out_of(step))?;
            spent.work((items.len() - at) / SHIFTED)?;
            items.insert(at, value);
        }
        _ => return Err("that has no members".into()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String], spent: &mut Spent<'_>) -> Result<Value, Refused> {
    match container(document, path)? {
        (Value::Object(members), name) => {
            members.remove(name).ok_or_else(|| format!("nothing is at {name:?}").into())
        }
        (Value::Array(items), step) => match place(step, items.len()) {
            Some(at) if at < items.len() => {
                spent.work((items.len() - at) / SHIFTED)?;
                Ok(items.remove(at))
            }
            _ => Err(out_of(step).into()),
        },
        _ => Err("that has no members".into()),
    }
}

/// Replaces the value at a path. A field that is missing is added.
fn replace(
    document: &mut Value,
    path: &[String],
    value: Value,
    spent: &mut Spent<'_>,
) -> Result<(), Refused> {
    spent.place(path, &value)?;
    if path.is_empty() {
        let old = std::mem::replace(document, value);
        return spent.shrink(&old);
    }
    match container(document, path)? {
        (Value::Object(members), name) => {
            let old = members.insert(name.to_owned(), value);
            old.map_or(Ok(()), |old| spent.shrink(&old))?;
        }
        (Value::Array(items), step) => {
            let at = place(step, items.len());
            let item = at.and_then(|at| items.get_mut(at)).ok_or_else(|| out_of(step))?;
            let old = std::mem::replace(item, value);
            spent.shrink(&old)?;
        }
        _ => return Err("that has no members".into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Account;
    use serde_json::json;

    fn patch(operations: &Value) -> JsonPatch {
        let text = |operation: &Value, key: &str| operation[key].as_str().unwrap_or("").to_owned();
        let operation = |operation: &Value| Operation {
            op: text(operation, "op"),
            path: text(operation, "path"),
            from: text(operation, "from"),
            value: operation["value"].clone(),
        };
        JsonPatch::new(operations.as_array().unwrap().iter().map(operation).collect())
    }

    /// The result of a patch, or the reason why it failed, for the log.
    fn apply_(patch: &JsonPatch, document: Value) -> Result<Value, String> {
        let mut room = Account::own().room(0).unwrap();
        patch.apply(document, &mut room).map_err(|error| {
            std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string)
        })
    }

    fn check(operations: Value, expected: Option<Value>) {
        let document = json!({"a": {"b": 1}, "l": [1, 2, 3], "a/b": {"m~n": 4}});
        let applied = apply_(&patch(&operations), document).ok();
        assert_eq!(applied, expected, "{operations}");
    }

    /// Checks the content of `l` after one operation.
    fn list(operation: Value, expected: Option<Value>) {
        let expected = expected.map(|l| json!({"a": {"b": 1}, "l": l, "a/b": {"m~n": 4}}));
        check(json!([operation]), expected);
    }

    #[test]
    fn json_patch_operations_on_object_fields() {
        let whole = |a: Value| Some(json!({"a": a, "l": [1, 2, 3], "a/b": {"m~n": 4}}));
        check(json!([]), whole(json!({"b": 1})));
        check(json!([{"op": "add", "path": "/a/c", "value": 2}]), whole(json!({"b": 1, "c": 2})));
        check(json!([{"op": "add", "path": "/a/c"}]), whole(json!({"b": 1, "c": null})));
        check(
            json!([{"op": "replace", "path": "/a/c", "value": 2}]),
            whole(json!({"b": 1, "c": 2})),
        );
        check(json!([{"op": "remove", "path": "/a/b"}]), whole(json!({})));
        check(json!([{"op": "remove", "path": "/a/c"}]), None);
        check(json!([{"op": "move", "from": "/a/b", "path": "/a/c"}]), whole(json!({"c": 1})));
        check(json!([{"op": "move", "from": "/a/x", "path": "/a/c"}]), None);
        check(
            json!([{"op": "copy", "from": "/a/x", "path": "/a/c"}]),
            whole(json!({"b": 1, "c": null})),
        );
        check(json!([{"op": "add", "path": "/x/c", "value": 2}]), None);
        check(json!([{"op": "add", "path": "", "value": {}}]), None);
        check(json!([{"op": "remove", "path": ""}]), None);
        check(json!([{"op": "replace", "path": "", "value": {"x": 1}}]), Some(json!({"x": 1})));
        // Characters before the first slash are ignored.
        check(json!([{"op": "replace", "path": "x/a", "value": 2}]), whole(json!(2)));
        check(json!([{"op": "poem", "path": "/a"}]), None);
    }

    #[test]
    fn tests() {
        let same = || Some(json!({"a": {"b": 1}, "l": [1, 2, 3], "a/b": {"m~n": 4}}));
        check(json!([{"op": "test", "path": "/a/b", "value": 1}]), same());
        check(json!([{"op": "test", "path": "/a/b", "value": 2}]), None);
        check(json!([{"op": "test", "path": "/a/x", "value": null}]), same());
        check(json!([{"op": "test", "path": "/a/x"}]), same());
        check(json!([{"op": "test", "path": "/a~1b/m~0n", "value": 4}]), same());
        check(json!([{"op": "test", "path": "/l/-1", "value": 3}]), same());
    }

    #[test]
    fn items() {
        list(json!({"op": "add", "path": "/l/0", "value": 0}), Some(json!([0, 1, 2, 3])));
        list(json!({"op": "add", "path": "/l/01", "value": 0}), Some(json!([1, 0, 2, 3])));
        list(json!({"op": "add", "path": "/l/3", "value": 4}), Some(json!([1, 2, 3, 4])));
        list(json!({"op": "add", "path": "/l/-", "value": 4}), Some(json!([1, 2, 3, 4])));
        list(json!({"op": "add", "path": "/l/-1", "value": 4}), Some(json!([1, 2, 3, 4])));
        list(json!({"op": "add", "path": "/l/4", "value": 4}), None);
        list(json!({"op": "add", "path": "/l/x", "value": 4}), None);
        list(json!({"op": "remove", "path": "/l/-1"}), Some(json!([1, 2])));
        list(json!({"op": "remove", "path": "/l/3"}), None);
        list(json!({"op": "replace", "path": "/l/-1", "value": 9}), Some(json!([1, 2, 9])));
        list(json!({"op": "replace", "path": "/l/3", "value": 9}), None);
        list(json!({"op": "remove", "path": "/l/-4"}), None);
    }

    #[test]
    fn json_patches_that_exceed_copy_depth_or_work_limits_are_rejected() {
        let copies = |count: usize| {
            let copy = json!({"op": "copy", "from": "/a", "path": "/a/x"});
            patch(&Value::Array(vec![copy; count]))
        };
        let document = || json!({"a": {"text": "x".repeat(1_000)}});
        assert!(apply_(&copies(5), document()).is_ok());
        assert!(apply_(&copies(100), document()).unwrap_err().contains("copies of more than"));
        let deeper: Vec<Value> = (1..200)
            .map(|depth| json!({"op": "add", "path": "/a".repeat(depth), "value": {}}))
            .collect();
        let error = apply_(&patch(&Value::Array(deeper)), json!({})).unwrap_err();
        assert_eq!(error, "operation 126: deeper than 127");
        let many = json!({"a": {"l": vec![0; 40_000]}});
        let moves = (0..1_000).map(|n| {
            let (from, to) = if n % 2 == 0 { ("/a", "/b") } else { ("/b", "/a") };
            json!({"op": "move", "from": from, "path": to})
        });
        let error = apply_(&patch(&moves.collect()), many).unwrap_err();
        assert!(error.ends_with("too much work"), "{error}");
    }
}
