//! `ObjectMeta`: functions that read and change it.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Tree;

/// The largest number of unknown fields that an error reports, because a user does not fix more at a time.
pub const UNKNOWN_LIMIT: usize = 100;

/// Fields that every object has, and that a schema does not need to define.
pub const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Changes the metadata of an object.
///
/// If `metadata` is not an object, for example null, `change` receives an empty object instead.
pub fn edit(tree: &mut Tree, change: impl FnOnce(&mut Tree)) {
    let mut metadata = match tree.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    change(&mut metadata);
    tree.insert("metadata".to_owned(), Value::Object(metadata));
}

/// The metadata of an object; empty if the object has none.
pub fn of(tree: &Tree) -> &Tree {
    static NOTHING: LazyLock<Tree> = LazyLock::new(Tree::new);
    tree.get("metadata").and_then(Value::as_object).unwrap_or(&NOTHING)
}

/// A string field in the metadata of an object; empty if the field is missing.
pub fn text<'a>(tree: &'a Tree, field: &str) -> &'a str {
    of(tree).get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is being deleted. It exists until nothing, such as a finalizer, blocks its deletion.
pub fn is_being_deleted(tree: &Tree) -> bool {
    of(tree).contains_key("deletionTimestamp")
}

/// The finalizers of an object, in their order.
pub fn finalizers(tree: &Tree) -> Vec<&str> {
    let list = of(tree).get("finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The name of an object; empty if it has none.
pub fn name(tree: &Tree) -> &str {
    text(tree, "name")
}

/// The prefix from which a name is generated, if the object has one.
pub fn prefix(tree: &Tree) -> Option<&str> {
    let metadata = tree.get("metadata")?;
    metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty())
}
