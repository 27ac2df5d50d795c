//! Stripped: fields that nobody owns, because the system says what they are.

use std::sync::LazyLock;

use super::field_set::FieldSet;
use super::path_element::PathElement;

/// Members of an object, and of its metadata.
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

/// A set without what nobody owns.
#[must_use]
pub fn stripped(set: FieldSet) -> FieldSet {
    set.difference(nobodys())
}

/// The same, and what nobody owns of the set.
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
