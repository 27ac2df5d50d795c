//! Stripped: fields that no manager owns, because the server sets them.

use std::sync::LazyLock;

use super::field_set::FieldSet;
use super::path_element::PathElement;

/// Unowned fields of an object, and of its metadata.
const OF_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];
const OF_METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Returns a set without the fields that no manager owns.
#[must_use]
pub fn without_unowned(set: FieldSet) -> FieldSet {
    set.difference(nobodys())
}

/// Returns a set without the fields that no manager owns, and the fields that were removed from it.
#[must_use]
pub fn split(set: FieldSet) -> (FieldSet, FieldSet) {
    let nobodys = nobodys();
    let of_nobody = set.intersection(nobodys);
    (set.difference(nobodys), of_nobody)
}

fn nobodys() -> &'static FieldSet {
    static NOBODYS: LazyLock<FieldSet> = LazyLock::new(|| {
        let path = |steps: &[&str]| {
            let steps: Vec<PathElement> =
                steps.iter().map(|step| PathElement::field(step)).collect();
            FieldSet::of_path(steps.into_iter())
        };
        let of_object = OF_OBJECT.map(|name| path(&[name]));
        let of_metadata = OF_METADATA.map(|name| path(&["metadata", name]));
        of_object.into_iter().chain(of_metadata).fold(FieldSet::default(), FieldSet::union)
    });
    &NOBODYS
}
