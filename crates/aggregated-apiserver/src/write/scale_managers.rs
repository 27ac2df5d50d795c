//! Field managers of a Scale: maps them to managers of the object, where they own the path of the replicas.

use serde_json::json;

use super::attributes::Attributes;
use super::field_managers;
use super::scale;
use crate::apply::{
    FieldSet, Managed, Manager, Managers, Operation, PathElement, Update, Versions, update,
};
use crate::clock::to_rfc_3339;
use crate::error::ApiError;
use crate::kind::{self, Version};
use crate::object::Tree;

/// Returns the managers of an object after an update of its Scale.
///
/// # Errors
/// The reason, if the Scale cannot be computed.
pub(super) fn updated(
    attributes: &Attributes<'_>,
    (before, tree): (&Tree, &Tree),
    managers: &Managers,
) -> Result<Managers, String> {
    let (live, new) = (scale_of(attributes, before)?, scale_of(attributes, tree)?);
    let schema = kind::scale().ok_or("there is no Scale")?;
    let versions = versions(&schema.storage);
    let mut of_scale = to_scale(attributes, managers);
    if of_scale.is_empty() {
        // The tracking of the object has not started yet.
        return Ok(managers.clone());
    }
    let change = Update {
        versions: &versions,
        manager: &manager(attributes, Operation::Update),
        live: &live,
        is_live_checked: false,
        new: &new,
        now: &to_rfc_3339(attributes.now),
    };
    update(&change, &mut of_scale)?;
    Ok(to_object(attributes, managers, of_scale))
}

/// The only version of Scale.
pub(super) fn versions(scale: &Version) -> Versions<'_> {
    let version = scale::GROUP_VERSION;
    Versions::new(version).with(version.to_owned(), &scale.schema, &[])
}

/// The manager of a write to the Scale.
pub(super) fn manager(attributes: &Attributes<'_>, operation: Operation) -> Manager {
    let api_version = scale::GROUP_VERSION.to_owned();
    Manager { api_version, ..field_managers::manager(attributes, operation) }
}

/// The part of the Scale of an object that managers can own.
pub(super) fn scale_of(attributes: &Attributes<'_>, tree: &Tree) -> Result<Tree, String> {
    let paths = scale::paths(attributes).map_err(text)?;
    let wanted = scale::wanted(paths, tree).map_err(text)?;
    let mut scale = json!({"apiVersion": scale::GROUP_VERSION, "kind": scale::KIND, "spec": {}});
    if let Some(wanted) = wanted.filter(|wanted| *wanted != 0) {
        scale["spec"]["replicas"] = wanted.into();
    }
    match scale {
        serde_json::Value::Object(scale) => Ok(scale),
        _ => Ok(Tree::new()),
    }
}

fn text(error: ApiError) -> String {
    error.to_string()
}

/// The managers that own the replicas of an object, as managers of its Scale.
pub(super) fn to_scale(attributes: &Attributes<'_>, managers: &Managers) -> Managers {
    let mut of_scale = Managers::default();
    for Managed { manager, fields, time } in managers.iter() {
        let path = path(attributes, &manager.api_version).flatten();
        let is_owned = path.is_some_and(|path| fields.has(path));
        if is_owned {
            let api_version = scale::GROUP_VERSION.to_owned();
            let manager = Manager { api_version, ..manager.clone() };
            of_scale.insert(Managed { manager, fields: replicas().into(), time: time.clone() });
        }
    }
    of_scale
}

/// The managers of an object, after its replicas were assigned to these managers of its Scale.
pub(super) fn to_object(
    attributes: &Attributes<'_>,
    managers: &Managers,
    mut of_scale: Managers,
) -> Managers {
    let mut all = managers.clone();
    all.retain(|manager, fields| {
        let Some(path) = path(attributes, &manager.api_version)? else { return Some(fields) };
        if !fields.has(path.clone()) || of_scale.take(manager).is_some() {
            return Some(fields);
        }
        Some(fields.difference(&FieldSet::of_path(path.into_iter())))
    });
    let requested = field_managers::manager(attributes, Operation::Update).api_version;
    let own = path(attributes, &requested).flatten().unwrap_or_default();
    for Managed { manager, .. } in of_scale.iter() {
        let fields = FieldSet::of_path(own.clone().into_iter()).into();
        let time = managers.get(manager).and_then(|known| known.time.clone());
        let owner = Manager { api_version: requested.clone(), ..manager.clone() };
        // It takes the position of the manager of the Scale.
        all.insert_as(manager, Managed { manager: owner, fields, time });
    }
    all
}

/// The path of the replicas in objects of a version. The outer `None` is a version that does not exist, the inner one a
/// version without `scale`.
#[allow(clippy::option_option)] // a missing version, and a version without Scale
fn path(attributes: &Attributes<'_>, api_version: &str) -> Option<Option<Vec<PathElement>>> {
    let kind = attributes.kind();
    let version =
        kind.all_versions().find(|version| kind.api_version(&version.name) == api_version)?;
    let paths = version.subresources.scale.as_ref();
    Some(paths.map(|paths| paths.spec_replicas.steps().map(PathElement::field).collect()))
}

/// The path of the replicas in a Scale.
fn replicas() -> FieldSet {
    FieldSet::of_path(["spec", "replicas"].map(PathElement::field).into_iter())
}
