//! The last-applied annotation of kubectl: client-side apply records the applied object in it. When kubectl switches to
//! server-side apply, it becomes the owner of the fields in the annotation.

use serde_json::Value;

use crate::apply::{Conflicts, Place, check, compare, owned};
use crate::object::{Tree, metadata, to_html_json};

/// The field manager of kubectl in server-side apply.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The largest size of all annotations of an object together, in bytes; same as kube-apiserver.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Returns the conflicts that remain if kubectl owns the fields that it has applied last; `None` if no conflict
/// remains.
pub(super) fn left(
    place: Place<'_>,
    (live, version): (&Tree, &str),
    conflicts: Conflicts,
) -> Option<Conflicts> {
    let Some(allowed) = allowed(place, live, version) else { return Some(conflicts) };
    if conflicts.paths().difference(&allowed).is_empty() {
        return None;
    }
    Some(conflicts.without(&allowed))
}

/// The fields that kubectl has applied last and whose values have not changed since.
fn allowed(place: Place<'_>, live: &Tree, version: &str) -> Option<crate::apply::FieldSet> {
    let last = annotation(live)?;
    let Ok(Value::Object(last)) = serde_json::from_str(last) else { return None };
    if last.get("apiVersion").and_then(Value::as_str) != Some(version) {
        return None;
    }
    check(place, &last).ok()?;
    check(place, live).ok()?;
    let changed = compare(place, &last, live).ok()?;
    let owned = owned(place, &last).difference(&changed.modified).difference(&changed.added);
    Some(owned.difference(&changed.removed))
}

/// Updates the last-applied annotation, if the object has one.
pub(super) fn renew(tree: &mut Tree, sent: &Tree) {
    if annotation(tree).is_none() {
        return;
    }
    let mut sent = sent.clone();
    if let Some(Value::Object(annotations)) =
        sent.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(ANNOTATION);
    }
    let applied = to_html_json(&Value::Object(sent)) + "\n";
    let annotations = metadata::of(tree).get("annotations").and_then(Value::as_object);
    let others = annotations.into_iter().flatten().filter(|(name, _)| *name != ANNOTATION);
    let size: usize =
        others.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    let fits = size + ANNOTATION.len() + applied.len() <= ANNOTATIONS_LIMIT;
    metadata::edit(tree, |metadata| {
        let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
        if fits {
            annotations.insert(ANNOTATION.to_owned(), applied.into());
        } else {
            annotations.remove(ANNOTATION);
        }
    });
}

fn annotation(tree: &Tree) -> Option<&str> {
    let annotations = metadata::of(tree).get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}
