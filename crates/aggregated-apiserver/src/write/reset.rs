//! Reset: fields that this write may not set keep their old value, or are removed from a new
//! object.
//!
//! kube-apiserver resets fields when it prepares an object, after mutating admission: webhooks see what the client has sent.
//! The resourceVersion that a client has sent is in the draft, not in the object.

use serde_json::Value;

use super::attributes::{Attributes, Origin, Part};
use super::draft::Draft;
use super::live::Live;
use super::stamp;
use crate::object::{Tree, metadata};
use crate::schema::{self, Malformed};

/// Removes the system fields that a client has sent with a new object. Field managers do not own them.
pub(super) fn wipe_new(attributes: &Attributes<'_>, live: Option<&Live>, draft: &mut Draft) {
    if live.is_none() {
        let is_restored = attributes.origin == Origin::Restored;
        let has_generation = attributes.kind().strategy.has_generation;
        stamp::wipe(&mut draft.tree, is_restored, has_generation);
    }
}

/// Fills in the fields that an update omits and may not remove, before mutating admission. A write to a subresource
/// keeps all fields that it may not set.
pub(super) fn restore_omitted(attributes: &Attributes<'_>, live: Option<&Live>, draft: &mut Draft) {
    let Some(live) = live else { return };
    match attributes.part {
        Part::Main | Part::Scale => attributes.kind().strategy.keep(&mut draft.tree, &live.tree),
        Part::Status | Part::Approval => {}
        // The change of a subresource handler may set fields that clients may not set.
        Part::Handler(_) => restore_system_fields(&mut draft.tree, &live.tree),
        Part::Finalizers => reset_to_finalizers(live, draft),
    }
}

/// Resets the fields that this write may not set, after the plugins of mutating admission. The status of a new object is
/// removed.
pub(super) fn reset(attributes: &Attributes<'_>, live: Option<&Live>, draft: &mut Draft) {
    match live {
        None => drop_status(attributes, draft),
        Some(_) => reset_again(attributes, live, draft),
    }
}

/// Resets an object that the rules of admission have changed after [`reset`]. The status of a new object is not removed,
/// because rules may set it.
pub(super) fn reset_again(attributes: &Attributes<'_>, live: Option<&Live>, draft: &mut Draft) {
    match (live, attributes.part) {
        (None, _) => wipe_new(attributes, live, draft),
        (Some(live), Part::Main | Part::Scale) => reset_main(attributes, live, draft),
        (Some(live), Part::Status) => reset_to_status(attributes, live, draft),
        (Some(live), Part::Approval) => reset_to_approval(live, draft),
        (Some(_), _) => restore_omitted(attributes, live, draft),
    }
}

fn drop_status(attributes: &Attributes<'_>, draft: &mut Draft) {
    let (kind, version) = (attributes.kind(), attributes.version);
    let keeps = kind.strategy.keeps_status_on_create || attributes.origin == Origin::Restored;
    let drops_status = version.subresources.status && !keeps;
    if drops_status && draft.tree.remove("status").is_some() {
        // The status gets its defaults, as if the client had sent none.
        schema::fill_defaults(version.schema.root(), &mut draft.tree);
    }
}

fn reset_main(attributes: &Attributes<'_>, live: &Live, draft: &mut Draft) {
    let (kind, version) = (attributes.kind(), attributes.version);
    restore_system_fields(&mut draft.tree, &live.tree);
    kind.strategy.keep(&mut draft.tree, &live.tree);
    if kind.strategy.has_finalize {
        take_finalizers(&mut draft.tree, &live.tree);
    }
    if kind.strategy.keeps_spec {
        take(&mut draft.tree, &live.tree, "spec");
    }
    if version.subresources.status {
        take(&mut draft.tree, &live.tree, "status");
        // Code of the strategy fills in its own.
        if draft.is_kind && !kind.is_typed() {
            schema::fill_defaults(version.schema.root(), &mut draft.tree);
        }
    }
}

fn reset_to_status(attributes: &Attributes<'_>, live: &Live, draft: &mut Draft) {
    let (strategy, version) = (&attributes.kind().strategy, attributes.version);
    let given = std::mem::replace(&mut draft.tree, live.tree.clone());
    take(&mut draft.tree, &given, "status");
    if strategy.updates_metadata_with_status {
        take_metadata(&mut draft.tree, &given, strategy.metadata_reset_by_status);
    }
    if !draft.is_kind {
        // Objects that state another kind were not pruned.
        let _ = schema::normalize(version.schema.root(), &mut draft.tree, Malformed::Dropped);
    }
}

fn reset_to_approval(live: &Live, draft: &mut Draft) {
    let given = std::mem::replace(&mut draft.tree, live.tree.clone());
    take_metadata(&mut draft.tree, &given, &[]);
    let conditions = given.get("status").and_then(|status| status.get("conditions"));
    let status = draft.tree.entry("status").or_insert_with(|| Value::Object(Tree::new()));
    let Value::Object(status) = status else { return };
    match conditions {
        Some(conditions) => drop(status.insert("conditions".to_owned(), conditions.clone())),
        None => drop(status.remove("conditions")),
    }
}

fn reset_to_finalizers(live: &Live, draft: &mut Draft) {
    let given = std::mem::replace(&mut draft.tree, live.tree.clone());
    take_metadata(&mut draft.tree, &given, &[]);
    take_finalizers(&mut draft.tree, &given);
}

/// Restores the fields that only the system sets, and fills in the immutable fields that the update omits.
fn restore_system_fields(tree: &mut Tree, old: &Tree) {
    let old = metadata::of(old);
    metadata::edit(tree, |metadata| {
        for field in ["selfLink", "resourceVersion"] {
            metadata.remove(field);
        }
        for field in ["creationTimestamp", "generation"] {
            metadata.remove(field);
            if let Some(value) = old.get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        if let Some(time) = old.get("deletionTimestamp") {
            metadata.insert("deletionTimestamp".to_owned(), time.clone());
        }
        for field in ["uid", "deletionGracePeriodSeconds"] {
            if let Some(value) = old.get(field) {
                metadata.entry(field).or_insert_with(|| value.clone());
            }
        }
    });
}

/// Replaces the finalizers by those of another state of the object.
pub(super) fn take_finalizers(tree: &mut Tree, other: &Tree) {
    let given = other.get("spec").and_then(|spec| spec["finalizers"].as_array());
    let spec = tree.entry("spec").or_insert_with(|| Value::Object(Tree::new()));
    let Value::Object(spec) = spec else { return };
    match given.filter(|given| !given.is_empty()) {
        Some(given) => drop(spec.insert("finalizers".to_owned(), given.clone().into())),
        None => drop(spec.remove("finalizers")),
    }
}

/// Replaces a field by that of another state of the object.
fn take(tree: &mut Tree, other: &Tree, field: &str) {
    tree.remove(field);
    if let Some(value) = other.get(field) {
        tree.insert(field.to_owned(), value.clone());
    }
}

/// Replaces labels, annotations, finalizers and owner references by those of another state of the object, except the
/// `kept` ones.
fn take_metadata(tree: &mut Tree, other: &Tree, kept: &[&str]) {
    let other = metadata::of(other);
    metadata::edit(tree, |metadata| {
        let fields = ["annotations", "finalizers", "labels", "ownerReferences"];
        for field in fields.into_iter().filter(|field| !kept.contains(field)) {
            match other.get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
    });
}
