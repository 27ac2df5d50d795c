//! ObjectMeta: what is read and changed of it.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Tree;

/// At most this many unknown members are reported; nobody fixes more at a time.
pub const UNKNOWN_LIMIT: usize = 100;

/// Members that every object has, and no schema needs to name.
pub const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Changes the metadata of an object.
///
/// Anything else under `metadata`, null among it, is replaced by an empty object.
pub fn edit(tree: &mut Tree, change: impl FnOnce(&mut Tree)) {
    let mut metadata = match tree.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    change(&mut metadata);
    tree.insert("metadata".to_owned(), Value::Object(metadata));
}

/// The metadata of an object; nothing if there is none.
pub fn of(tree: &Tree) -> &Tree {
    static NOTHING: LazyLock<Tree> = LazyLock::new(Tree::new);
    tree.get("metadata").and_then(Value::as_object).unwrap_or(&NOTHING)
}

/// A text in the metadata of an object, or nothing.
pub fn text<'a>(tree: &'a Tree, field: &str) -> &'a str {
    of(tree).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is being deleted: it is there until nothing holds it.
pub fn is_being_deleted(tree: &Tree) -> bool {
    of(tree).contains_key("deletionTimestamp")
}

/// The finalizers of an object, in their order.
pub fn finalizers(tree: &Tree) -> Vec<&str> {
    let list = of(tree).get("finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The name of an object, or nothing.
pub fn name(tree: &Tree) -> &str {
    text(tree, "name")
}

/// The prefix that a name is made from, if one is given.
pub fn prefix(tree: &Tree) -> Option<&str> {
    let metadata = tree.get("metadata")?;
    metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty())
}
