//! What becomes of an object that is deleted while something holds it.

use serde_json::Value;

use super::metadata_rules::{FOREGROUND, ORPHAN};
use super::update;
use crate::ambient::{Ambient, to_seconds};
use crate::error::ApiError;
use crate::object::{Object, Tree, metadata};

/// What becomes of what an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It goes after its owner.
    Background,
    /// It goes first.
    Foreground,
    /// It stays, and loses its owner.
    Orphan,
}

/// Marks an object as being deleted, with the finalizers that the propagation
/// asks for; `None` if nothing holds it, so that it can go at once.
///
/// # Errors
/// None that could be met: it was an object before.
pub fn mark(
    object: &Object,
    propagation: Option<Propagation>,
    ambient: &Ambient,
) -> Result<Option<Object>, ApiError> {
    let mut tree = object.to_tree();
    set_finalizers(&mut tree, propagation);
    if metadata::finalizers(&tree).is_empty() {
        return Ok(None);
    }
    if !metadata::of(&tree).contains_key("deletionTimestamp") {
        update::add_generation(&mut tree);
        metadata::edit(&mut tree, |metadata| {
            let now = to_seconds(ambient.now());
            metadata.insert("deletionTimestamp".to_owned(), now.into());
        });
    }
    metadata::edit(&mut tree, |metadata| {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    });
    // However large it is: what cannot be marked could never go.
    Object::from_tree(&tree).map(Some).map_err(ApiError::internal)
}

/// Those of the garbage collector follow the propagation; where none is asked
/// for, they stay as they are.
fn set_finalizers(tree: &mut Tree, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let before = metadata::finalizers(tree);
    let mut after: Vec<&str> =
        before.iter().copied().filter(|name| ![ORPHAN, FOREGROUND].contains(name)).collect();
    after.extend(wanted);
    let sorted = |names: &[&str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names.join("\n")
    };
    if sorted(&before) == sorted(&after) {
        return;
    }
    let after: Vec<Value> = after.into_iter().map(Value::from).collect();
    metadata::edit(tree, |metadata| {
        if after.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), after.into());
        }
    });
}
