//! Update: field ownership after a write that is not an apply.

use serde_json::{Map, Value};

use super::compare::{Comparison, compare, compare_checked};
use super::field_set::FieldSet;
use super::managers::{Managed, Manager, Managers, Operation};
use super::reconcile::reconcile;
use super::typed::{check, check_loosely, check_loosely_beside};
use super::unowned_fields::without_unowned;
use super::versions::Versions;

/// A change of an object.
pub struct Update<'a> {
    /// The versions of the kind in which managers may own fields.
    pub versions: &'a Versions<'a>,
    /// The manager that changes the object.
    pub manager: &'a Manager,
    /// The object before the change; empty except for its type if it did not exist.
    pub live: &'a Map<String, Value>,
    /// Whether `live` was checked against its type when its managers were recorded.
    pub is_live_checked: bool,
    /// The object after the change.
    pub new: &'a Map<String, Value>,
    /// The current time, in the format of `managedFields`.
    pub now: &'a str,
}

/// Updates the managers of an object after a change.
///
/// # Errors
/// If an object cannot be split into fields as its type demands.
pub fn update(update: &Update<'_>, managers: &mut Managers) -> Result<(), String> {
    let Update { versions, manager, live, is_live_checked, new, now } = *update;
    let gone = "the version of the request is gone";
    let place = versions.place(versions.requested()).ok_or(gone)?;
    let compared = if is_live_checked {
        compare_checked(place, live, new)?
    } else {
        check_loosely(place, new)?;
        check_loosely_beside(place, live, new)?;
        compare(place, live, new)?
    };
    let before = managers.take(manager);
    let (changed, _) = take_changed(versions, (live, new), compared, managers, None)?;
    let Comparison { added, modified, removed } = changed;
    let changed = modified.union(added);
    let ignored = versions.ignored(&manager.api_version);
    let owned = |changed: FieldSet| without_unowned(changed.recursive_difference(ignored));
    let now = Some(now.to_owned());
    let (fields, time) = match before {
        Some(Managed { fields, time, .. }) => {
            let owned = owned(changed.clone());
            let time = if owned.is_empty() { time } else { now };
            // In most writes, a manager changes only fields that it owns already and removes none.
            let is_kept =
                fields.intersection(&removed).is_empty() && fields.intersection(&changed) == owned;
            let fields = match is_kept {
                true => fields,
                false => fields.set().difference(&removed).difference(&changed).union(owned).into(),
            };
            (fields, time)
        }
        None => (owned(changed).into(), now),
    };
    managers.insert(Managed { manager: manager.clone(), fields, time });
    managers.cap();
    Ok(())
}

/// The differences of two objects in the version of the request, and the changed fields that other managers owned.
pub(super) type Changed = (Comparison, Vec<(Manager, FieldSet)>);

/// Removes changed fields from all managers except one. `compared` are the differences in the version of the request.
/// Returns these differences without the fields that a write resets, and the fields that were removed from managers.
pub(super) fn take_changed(
    versions: &Versions<'_>,
    (live, new): (&Map<String, Value>, &Map<String, Value>),
    compared: Comparison,
    managers: &mut Managers,
    except: Option<&Manager>,
) -> Result<Changed, String> {
    let requested = versions.requested();
    let comparison = compared.without(versions.ignored(requested));
    let mut compared: Vec<(String, Comparison)> = vec![(requested.to_owned(), comparison)];
    let mut taken = Vec::new();
    let mut failed = None;
    managers.retain(|manager, fields| {
        let is_other = except.is_none_or(|except| {
            except.operation != manager.operation
                || except.name != manager.name
                || except.subresource != manager.subresource
                || (manager.operation == Operation::Update
                    && except.api_version != manager.api_version)
        });
        if !is_other {
            return Some(fields);
        }
        let version = &manager.api_version;
        if !compared.iter().any(|(known, _)| known == version) {
            let place = versions.place(version)?;
            let compare_there = || {
                let live = versions.convert(live, version);
                let live = live.map_err(|why| format!("failed to convert old object: {why}"))?;
                let new = versions.convert(new, version);
                let new = new.map_err(|why| format!("failed to convert new object: {why}"))?;
                check(place, &live)?;
                check(place, &new)?;
                compare(place, &live, &new)
            };
            match compare_there() {
                Ok(comparison) => {
                    let comparison = comparison.without(versions.ignored(version));
                    compared.push((version.clone(), comparison));
                }
                Err(why) => {
                    failed = Some(why);
                    return Some(fields);
                }
            }
        }
        let (_, change) = compared.iter().find(|(known, _)| known == version)?;
        let conflicts =
            fields.intersection(&change.modified).union(fields.intersection(&change.added));
        if conflicts.is_empty() && fields.intersection(&change.removed).is_empty() {
            return Some(fields);
        }
        let left = fields.difference(&conflicts).difference(&change.removed);
        if !conflicts.is_empty() {
            taken.push((manager.clone(), conflicts));
        }
        Some(left)
    });
    if let Some(why) = failed {
        return Err(why);
    }
    let (_, comparison) = compared.swap_remove(0);
    Ok((comparison, taken))
}

/// Adapts the fields of all managers to the current types, unless they are adapted already. Managers of versions that a
/// built-in kind no longer has are removed.
///
/// # Errors
/// If a manager has a version that its CustomResourceDefinition no longer has, same as kube-apiserver.
pub fn reconciled(
    versions: &Versions<'_>,
    are_current: bool,
    managers: &mut Managers,
) -> Result<(), String> {
    let is_gone = |managed: &&Managed| versions.place(&managed.manager.api_version).is_none();
    if let Some(gone) = managers.iter().find(is_gone)
        && !versions.may_go()
    {
        let version = &gone.manager.api_version;
        return Err(format!("request to convert CR to an invalid group/version: {version}"));
    }
    managers.retain(|manager, fields| {
        let place = versions.place(&manager.api_version)?;
        Some(if are_current { fields } else { reconcile(place, fields.set()).into() })
    });
    Ok(())
}
