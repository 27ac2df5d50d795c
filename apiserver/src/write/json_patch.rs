//! JSON patch, RFC 6902, as kube-apiserver applies it: it is milder in a few
//! places, and all of them are kept.

use serde_json::Value;

use super::extent::{DEPTH_LIMIT, Extent};

/// As kube-apiserver.
pub const OPERATIONS_LIMIT: usize = 10_000;
/// What all copies of a patch may add, in bytes of JSON; as kube-apiserver.
const COPY_LIMIT: usize = 3 << 20;
/// Values that all operations together may look at or move: seconds of work.
const WORK_LIMIT: usize = 10_000_000;

/// To move an item of a list is so much cheaper than to look at a value.
const SHIFTED: usize = 16;

/// One operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: String,
    /// Where.
    pub path: String,
    /// Where from, of `move` and `copy`.
    pub from: String,
    /// What; nothing is null.
    pub value: Value,
}

/// Operations, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
}

/// Where a value stands: names and indexes, from the root.
type Steps = Vec<String>;

impl JsonPatch {
    /// A patch of these operations.
    pub(super) fn new(operations: Vec<Operation>) -> Self {
        Self { operations }
    }

    /// Applies all operations.
    ///
    /// # Errors
    /// With what the first one failed for, for the log.
    pub(super) fn apply(&self, mut document: Value) -> Result<Value, String> {
        let mut spent = Spent::default();
        for (index, operation) in self.operations.iter().enumerate() {
            let applied = apply(operation, &mut document, &mut spent);
            applied.map_err(|why| format!("operation {index}: {why}"))?;
        }
        Ok(document)
    }
}

/// What the operations of a patch have cost.
#[derive(Default)]
struct Spent {
    copied: usize,
    work: usize,
}

impl Spent {
    fn work(&mut self, values: usize) -> Result<(), String> {
        self.work += values;
        if self.work > WORK_LIMIT { Err("too much work".to_owned()) } else { Ok(()) }
    }

    /// Room for a value at a path.
    fn place(&mut self, path: &[String], value: &Value) -> Result<(), String> {
        let extent = Extent::of_value(value);
        self.work(extent.values)?;
        if path.len() + extent.depth > DEPTH_LIMIT {
            return Err(format!("deeper than {DEPTH_LIMIT}"));
        }
        Ok(())
    }
}

fn apply(operation: &Operation, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
    let path = steps(&operation.path);
    match operation.op.as_str() {
        "add" => add(document, &path, operation.value.clone(), spent),
        "remove" => remove(document, &path, spent).map(drop),
        "replace" => replace(document, &path, operation.value.clone(), spent),
        "move" => {
            let value = remove(document, &steps(&operation.from), spent)?;
            add(document, &path, value, spent)
        }
        "copy" => {
            let from = steps(&operation.from);
            let value = read(document, &from)?.cloned().unwrap_or(Value::Null);
            spent.copied += value.to_string().len();
            if spent.copied > COPY_LIMIT {
                return Err(format!("copies of more than {COPY_LIMIT} bytes"));
            }
            add(document, &path, value, spent)
        }
        "test" => {
            let found = read(document, &path)?.unwrap_or(&Value::Null);
            if *found == operation.value { Ok(()) } else { Err("it is something else".to_owned()) }
        }
        other => Err(format!("unknown operation {other:?}")),
    }
}

/// So many steps of a path are followed; one more than an object is deep.
const STEPS_LIMIT: usize = DEPTH_LIMIT + 1;

/// What stands before the first slash does not count.
fn steps(pointer: &str) -> Steps {
    // What is deeper than an object may be leads nowhere anyway.
    let steps = pointer.split('/').skip(1).take(STEPS_LIMIT);
    steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// The value that holds what a path leads to, and the last step.
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

/// What a path leads to; `None` is a member that its object does not have.
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

/// An index; counted from the end if it is negative.
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
    spent: &mut Spent,
) -> Result<(), String> {
    spent.place(path, &value)?;
    match container(document, path)? {
        (Value::Object(members), name) => {
            members.insert(name.to_owned(), value);
        }
        (Value::Array(items), "-") => items.push(value),
        (Value::Array(items), step) => {
            // Behind the end there is room for one more.
            let at = place(step, items.len() + usize::from(step.starts_with('-')));
            let at = at.filter(|&at| at <= items.len()).ok_or_else(|| out_of(step))?;
            spent.work((items.len() - at) / SHIFTED)?;
            items.insert(at, value);
        }
        _ => return Err("that has no members".to_owned()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String], spent: &mut Spent) -> Result<Value, String> {
    match container(document, path)? {
        (Value::Object(members), name) => {
            members.remove(name).ok_or_else(|| format!("nothing is at {name:?}"))
        }
        (Value::Array(items), step) => match place(step, items.len()) {
            Some(at) if at < items.len() => {
                spent.work((items.len() - at) / SHIFTED)?;
                Ok(items.remove(at))
            }
            _ => Err(out_of(step)),
        },
        _ => Err("that has no members".to_owned()),
    }
}

/// A member that is not there is set all the same.
fn replace(
    document: &mut Value,
    path: &[String],
    value: Value,
    spent: &mut Spent,
) -> Result<(), String> {
    spent.place(path, &value)?;
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    match container(document, path)? {
        (Value::Object(members), name) => {
            members.insert(name.to_owned(), value);
        }
        (Value::Array(items), step) => {
            let at = place(step, items.len());
            let item = at.and_then(|at| items.get_mut(at)).ok_or_else(|| out_of(step))?;
            *item = value;
        }
        _ => return Err("that has no members".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn check(operations: Value, expected: Option<Value>) {
        let document = json!({"a": {"b": 1}, "l": [1, 2, 3], "a/b": {"m~n": 4}});
        let applied = patch(&operations).apply(document).ok();
        assert_eq!(applied, expected, "{operations}");
    }

    /// One operation that leaves `l` like this.
    fn list(operation: Value, expected: Option<Value>) {
        let expected = expected.map(|l| json!({"a": {"b": 1}, "l": l, "a/b": {"m~n": 4}}));
        check(json!([operation]), expected);
    }

    #[test]
    fn members() {
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
        // What stands before the first slash does not count.
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
    fn what_grows_too_far_is_refused() {
        let copies = |count: usize| {
            let copy = json!({"op": "copy", "from": "/a", "path": "/a/x"});
            patch(&Value::Array(vec![copy; count]))
        };
        let document = || json!({"a": {"text": "x".repeat(1_000)}});
        assert!(copies(5).apply(document()).is_ok());
        assert!(copies(100).apply(document()).unwrap_err().contains("copies of more than"));
        let deeper: Vec<Value> = (1..200)
            .map(|depth| json!({"op": "add", "path": "/a".repeat(depth), "value": {}}))
            .collect();
        let error = patch(&Value::Array(deeper)).apply(json!({})).unwrap_err();
        assert_eq!(error, "operation 126: deeper than 127");
        let many = json!({"a": {"l": vec![0; 40_000]}});
        let moves = (0..1_000).map(|n| {
            let (from, to) = if n % 2 == 0 { ("/a", "/b") } else { ("/b", "/a") };
            json!({"op": "move", "from": from, "path": to})
        });
        let error = patch(&moves.collect()).apply(many).unwrap_err();
        assert!(error.ends_with("too much work"), "{error}");
    }
}
