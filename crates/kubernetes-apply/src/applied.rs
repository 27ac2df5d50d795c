//! Applied: the object and its managers that result from a server-side apply.

use serde_json::{Map, Value};

use super::compare::compare;
use super::conflicts::Conflicts;
use super::field_set::FieldSet;
use super::fields::Fields;
use super::managers::{Managed, Manager, Managers};
use super::merge::merge;
use super::owned::owned;
use super::place::Place;
use super::remove::{remove, with_declared_parents};
use super::unchanged::is_unchanged;
use super::unowned_fields::split;
use super::update::take_changed;
use super::value::are_same;
use super::versions::Versions;

/// The input of [`apply`].
pub struct Application<'a> {
    /// The versions of the kind in which managers may own fields.
    pub versions: &'a Versions<'a>,
    /// The manager that applies the object.
    pub manager: &'a Manager,
    /// The live object; empty except for its type if it does not exist.
    pub live: &'a Map<String, Value>,
    /// The applied object.
    pub applied: &'a Map<String, Value>,
    /// Whether conflicting fields are taken from the managers that own them.
    pub force: bool,
    /// The current time, in the format of `managedFields`.
    pub now: &'a str,
}

/// The reason why an object cannot be applied.
#[derive(Debug)]
pub enum Refused {
    /// Other managers own fields that would change.
    Conflicts(Conflicts),
    /// An object cannot be split into fields as its type demands.
    Untyped(String),
    /// An object cannot be converted to another version, or compared in it.
    Inconvertible(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Untyped(why)
    }
}

/// The result of an apply.
#[derive(Debug)]
pub struct Outcome {
    /// The merged object; `None` if nothing has changed.
    pub object: Option<Map<String, Value>>,
    /// The managers after the apply, with the fields that they own.
    pub managers: Managers,
}

/// Applies an object.
///
/// # Errors
/// The conflicts with other managers, unless `force` is set. See [`Refused`] for other errors.
pub fn apply(application: &Application<'_>, managers: &Managers) -> Result<Outcome, Refused> {
    let Application { versions, manager, live, applied, force, now } = *application;
    let mut managers = managers.clone();
    let gone = || "the version of the request is gone".to_owned();
    let place = versions.place(versions.requested()).ok_or_else(gone)?;
    let set = owned(place, applied);
    let set = set.recursive_difference(versions.ignored(versions.requested()));
    let (set, of_nobody) = split(set);
    let last = managers.take(manager);
    let time = last.as_ref().and_then(|last| last.time.clone());
    let fields = Fields::from(&set);
    if is_unchanged(place, live, applied)
        && last.as_ref().is_none_or(|last| last.is_within(manager, (&fields, &set)))
    {
        managers.insert(Managed { manager: manager.clone(), fields, time });
        return Ok(Outcome { object: None, managers });
    }
    let merged = merge(place, live, applied)?;
    let new = match last {
        // An apply that contains all fields of the previous one removes nothing.
        Some(last) if last.is_within(manager, (&fields, &set)) => merged,
        Some(last) => {
            let owner =
                |managed: &Managed| (managed.manager.api_version.clone(), managed.fields.set());
            let mut owners: Vec<(String, FieldSet)> = managers.iter().map(owner).collect();
            // Fields that are never recorded, such as `metadata.name`, are retained too.
            owners.push((manager.api_version.clone(), set.union(of_nobody)));
            let pruned =
                prune(versions, merged, (&last.manager.api_version, &last.fields.set()), &owners);
            pruned
                .map_err(|why| Refused::Inconvertible(format!("failed to prune fields: {why}")))?
        }
        None => merged,
    };
    let mut of_others = managers.clone();
    let compared = compare(place, live, &new)?;
    let taken = take_changed(versions, (live, &new), compared, &mut of_others, Some(manager));
    let (_, taken) = taken.map_err(Refused::Inconvertible)?;
    if !taken.is_empty() && !force {
        return Err(Refused::Conflicts(Conflicts::of(taken)));
    }
    let is_same = are_same(live, &new);
    let time = if is_same { time } else { Some(now.to_owned()) };
    of_others.insert(Managed { manager: manager.clone(), fields, time });
    Ok(Outcome { object: (!is_same).then_some(new), managers: of_others })
}

impl Managed {
    /// Whether this entry has the version of `manager` and owns only fields of the given set.
    fn is_within(&self, manager: &Manager, (fields, set): (&Fields, &FieldSet)) -> bool {
        self.manager.api_version == manager.api_version
            && (self.fields.is_same_text(fields) || self.fields.set().is_within(set))
    }
}

/// Returns the object without fields that its manager applied before and that no manager owns now. Each set is
/// evaluated in its own version, to which the object is converted.
///
/// # Errors
/// If the object cannot be converted.
fn prune(
    versions: &Versions<'_>,
    merged: Map<String, Value>,
    (version, last): (&String, &FieldSet),
    owners: &[(String, FieldSet)],
) -> Result<Map<String, Value>, String> {
    let Some(place) = versions.place(version) else { return Ok(merged) };
    let with_parents = |place: Place<'_>, set: &FieldSet| with_declared_parents(place, set.clone());
    let last_set = with_parents(place, last);
    let failed =
        |why: String| format!("failed to convert merged object to last applied version: {why}");
    let merged = versions.convert(&merged, version).map_err(failed)?.into_owned();
    let mut pruned = remove(place, &merged, &last_set);
    // Fields that any manager owns are added back, one version at a time.
    let mut seen: Vec<&String> = vec![version];
    for (other, _) in owners {
        if !seen.contains(&other) {
            seen.push(other);
        }
    }
    // The merged object in version `at`; `pruned` is in the same version.
    let (mut of_version, mut at) = (merged.clone(), version);
    for other in seen {
        let Some(place) = versions.place(other) else { continue };
        let sets = owners.iter().filter(|(of, _)| of == other).map(|(_, set)| (*set).clone());
        let owned_by_all = FieldSet::union_of(sets);
        if owned_by_all.is_empty() {
            continue;
        }
        let failed = |which: &str, why: String| {
            format!(
                "failed add back owned items: failed to convert {which} object at version {other}: {why}"
            )
        };
        let converted = versions.convert(&of_version, other);
        let converted = converted.map_err(|why| failed("merged", why))?.into_owned();
        pruned = versions
            .convert_part((&of_version, pruned), (at, other))
            .map_err(|why| failed("pruned", why))?;
        (of_version, at) = (converted, other);
        let of_merged = with_parents(place, &owned(place, &of_version));
        let of_pruned = with_parents(place, &owned(place, &pruned));
        let kept = of_pruned.union(with_parents(place, &owned_by_all));
        pruned = remove(place, &of_version, &of_merged.difference(&kept));
    }
    // Fields that are not in the previous set of the manager are added back, too.
    let failed = |why: String| {
        format!(
            "failed add back dangling items: failed to convert pruned object to last applied version: {why}"
        )
    };
    let pruned = versions.convert_part((&of_version, pruned), (at, version)).map_err(failed)?;
    let of_merged = with_parents(place, &owned(place, &merged));
    let of_pruned = with_parents(place, &owned(place, &pruned));
    let left = remove(place, &merged, &of_merged.difference(&of_pruned).intersection(&last_set));
    versions.convert_part((&merged, left), (version, versions.requested()))
}
