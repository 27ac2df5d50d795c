//! Field managers: who owns which fields of an object.

use std::borrow::Cow;

use serde_json::Value;

use super::attributes::{Attributes, Origin, Part};
use super::draft::Draft;
use super::live::Live;
use super::scale_managers;
use crate::apply::{Manager, Managers, Operation, Update, Versions, reconciled, update};
use crate::clock::to_rfc_3339;
use crate::error::{ApiError, Reason, is_printed};
use crate::kind::{Kind, api_version};
use crate::object::{Tree, metadata};
use crate::quota::{self, Room};
use crate::schema::{self, Malformed};

/// Whether objects say who owns which of their fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagedFields {
    /// They do.
    #[default]
    Kept,
    /// They do not, so nobody can apply.
    Dropped,
}

impl ManagedFields {
    /// An object with what it says of its managers, or without.
    #[must_use]
    pub fn of(self, tree: Tree) -> Tree {
        match self {
            Self::Kept => tree,
            Self::Dropped => without_managed_fields(tree).0,
        }
    }
}

/// What fields of which nobody knows better belong to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// How much is taken, in trees of the object, while its managers are told: sets, and how they are
/// written down.
const TAKEN: usize = 5;
/// What a manager without a name is called.
const UNKNOWN: &str = "unknown";

/// Notes which fields the manager of a write owns from now on. It is told before mutating
/// admission, because what plugins change is not the client's.
///
/// # Errors
/// 429 when there is no room for it now.
pub(super) fn track(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<Option<Room>, ApiError> {
    track_but(attributes, live, draft, &[])
}

/// The same without fields that the system has filled in: JSON pointers.
pub(super) fn track_but(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    filled_by_system: &[&str],
) -> Result<Option<Room>, ApiError> {
    if attributes.origin == Origin::Restored || draft.is_applied {
        return Ok(None);
    }
    if attributes.environment.managed_fields == ManagedFields::Dropped {
        set(&mut draft.tree, Vec::new());
        return Ok(None);
    }
    let kept = live.map(|live| managed_fields(&live.tree)).unwrap_or_default();
    let (tree, sent) = without_managed_fields(std::mem::take(&mut draft.tree));
    draft.tree = tree;
    let managers = match attributes.part {
        // Code says nothing of managers.
        Part::Handler(_) => {
            set(&mut draft.tree, kept.to_vec());
            return Ok(None);
        }
        Part::Main => starting(kept, &sent),
        Part::Status | Part::Scale | Part::Finalizers => Managers::read(kept).unwrap_or_default(),
    };
    let room = match attributes.account.reserve(TAKEN * quota::of_tree(&draft.tree)) {
        Ok(room) => room,
        // As kube-apiserver lets go of it when an object is too large.
        Err(refused) if refused.reason() == Reason::RequestEntityTooLarge => {
            set(&mut draft.tree, Vec::new());
            return Ok(None);
        }
        Err(refused) => return Err(refused),
    };
    let of_client = without_fields(&draft.tree, filled_by_system);
    let tracked = tracked(attributes, live, &of_client, managers);
    let written = tracked.unwrap_or_else(|why| {
        // Validation says why, if it is to be said.
        tracing::debug!("nobody owns what cannot be taken apart: {why}");
        Vec::new()
    });
    set(&mut draft.tree, written);
    Ok(Some(room))
}

/// An object without these fields: JSON pointers.
fn without_fields<'a>(tree: &'a Tree, pointers: &[&str]) -> Cow<'a, Tree> {
    if pointers.is_empty() {
        return Cow::Borrowed(tree);
    }
    let mut tree = tree.clone();
    for pointer in pointers {
        let (parents, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let mut members = Some(&mut tree);
        for step in parents.split('/').skip(1) {
            members = members.and_then(|members| members.get_mut(step)?.as_object_mut());
        }
        if let Some(members) = members {
            members.remove(name);
        }
    }
    Cow::Owned(tree)
}

/// What managers an update of the object itself begins with.
fn starting(kept: &[Value], sent: &[Value]) -> Managers {
    if is_reset(sent) {
        return Managers::default();
    }
    let sent = Managers::read(sent).unwrap_or_default();
    if sent.is_empty() { Managers::read(kept).unwrap_or_default() } else { sent }
}

/// Whether a client wishes that nobody owns anything.
fn is_reset(sent: &[Value]) -> bool {
    matches!(sent, [Value::Object(one)] if one.values().all(is_nothing))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn tracked(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    tree: &Tree,
    mut managers: Managers,
) -> Result<Vec<Value>, String> {
    // Nobody has begun to keep track of an object that is there.
    if managers.is_empty() && live.is_some() {
        return Ok(Vec::new());
    }
    let before = before(attributes, live);
    if attributes.part == Part::Scale {
        return scale_managers::updated(attributes, (&before, tree), &managers)
            .map(|managers| managers.write());
    }
    let versions = versions(attributes);
    reconciled(&versions, &mut managers);
    let change = Update {
        versions: &versions,
        manager: &manager(attributes, Operation::Update),
        live: &before,
        new: tree,
        now: &to_rfc_3339(attributes.now),
    };
    update(&change, &mut managers)?;
    Ok(managers.write())
}

/// The object as it was; empty but for its type if there was none. What is said of managers may
/// stand in it: nobody owns that.
pub(super) fn before<'a>(attributes: &Attributes<'_>, live: Option<&'a Live>) -> Cow<'a, Tree> {
    match live {
        Some(live) => Cow::Borrowed(&live.tree),
        None => Cow::Owned(nothing(attributes)),
    }
}

/// An object of which nothing is known but its type.
pub(super) fn nothing(attributes: &Attributes<'_>) -> Tree {
    let (kind, version) = (attributes.kind(), attributes.version);
    let name = kind.api_version(&version.name);
    let members = [("apiVersion", name), ("kind", kind.names.kind.clone())];
    let mut nothing =
        members.map(|(name, text)| (name.to_owned(), text.into())).into_iter().collect();
    if kind.is_typed() {
        // With what Go writes down of nothing.
        let _ = schema::normalize(version.schema.root(), &mut nothing, Malformed::Dropped);
    }
    nothing
}

/// Who writes.
pub(super) fn manager(attributes: &Attributes<'_>, operation: Operation) -> Manager {
    let name = &attributes.options.field_manager;
    Manager {
        name: if name.is_empty() { UNKNOWN.to_owned() } else { name.clone() },
        operation,
        api_version: api_version(&attributes.kind().group, &attributes.version.name),
        subresource: attributes.part.subresource().to_owned(),
    }
}

/// The versions of a kind, and what a write of this part sets back of each.
pub(super) fn versions<'a>(attributes: &Attributes<'a>) -> Versions<'a> {
    let kind: &'a Kind = attributes.kind();
    let named = |name: &str| api_version(&kind.group, name);
    let empty = Versions::new(&named(&attributes.version.name));
    kind.versions.iter().fold(empty, |versions, version| {
        let is_requested = version.name == attributes.version.name;
        let reset = match attributes.part {
            Part::Main if is_requested || kind.is_typed() => kind.strategy.reset_by_main(version),
            Part::Status => kind.strategy.reset_by_status(kind.is_typed()),
            Part::Main | Part::Scale | Part::Finalizers | Part::Handler(_) => Vec::new(),
        };
        versions.with(named(&version.name), &version.schema, &reset)
    })
}

/// Attributes all that is there to nobody in particular, before somebody applies for the first
/// time.
///
/// # Errors
/// When the object cannot be taken apart as its type says.
pub(super) fn before_first_apply(
    attributes: &Attributes<'_>,
    live: &Tree,
    managers: &mut Managers,
) -> Result<(), String> {
    let manager = manager(attributes, Operation::Update);
    let change = Update {
        versions: &versions(attributes),
        manager: &Manager { name: BEFORE_FIRST_APPLY.to_owned(), ..manager },
        live: &nothing(attributes),
        new: live,
        now: &to_rfc_3339(attributes.now),
    };
    update(&change, managers)
}

/// What an object says of its managers.
pub(super) fn managed_fields(tree: &Tree) -> &[Value] {
    let written = metadata::of(tree).get("managedFields").and_then(Value::as_array);
    written.map_or(&[], Vec::as_slice)
}

/// An object without what it says of its managers, and that.
pub(super) fn without_managed_fields(mut tree: Tree) -> (Tree, Vec<Value>) {
    let Some(Value::Object(metadata)) = tree.get_mut("metadata") else { return (tree, Vec::new()) };
    let said = match metadata.remove("managedFields") {
        Some(Value::Array(said)) => said,
        _ => Vec::new(),
    };
    (tree, said)
}

/// Says in an object who its managers are.
pub(super) fn set(tree: &mut Tree, written: Vec<Value>) {
    let is_there = metadata::of(tree).contains_key("managedFields");
    if written.is_empty() && !is_there {
        return;
    }
    metadata::edit(tree, |metadata| {
        if written.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), written.into());
        }
    });
}

/// Puts back what was said of managers, if admission has made something of it that cannot be
/// read.
pub(super) fn mend(tree: &mut Tree, before: Vec<Value>) {
    let said = managed_fields(tree);
    let is_readable = said.len() == before.len() || !said.is_empty() || before.is_empty();
    if !is_readable || Managers::read(said).is_err() {
        set(tree, before);
    }
}

/// Takes the times of before, if a write changes nothing but times.
pub(super) fn keep_times(live: &Live, draft: &mut Draft) {
    let (old, new) = (managed_fields(&live.tree), managed_fields(&draft.tree));
    let differ_by_time = old.len() == new.len()
        && old != new
        && old.iter().zip(new).all(|(old, new)| without_time(old) == without_time(new));
    if !differ_by_time {
        return;
    }
    let (old, new) = (&live.tree, &mut draft.tree);
    let kept = std::mem::take(new);
    let (kept, written) = without_managed_fields(kept);
    let is_same = old.len() == kept.len()
        && kept.iter().all(|(name, value)| match (name.as_str(), old.get(name)) {
            ("metadata", Some(Value::Object(old))) => {
                let old = old.iter().filter(|(name, _)| *name != "managedFields");
                value.as_object().is_some_and(|new| old.eq(new))
            }
            (_, old) => old == Some(value),
        });
    *new = kept;
    set(new, if is_same { managed_fields(old).to_vec() } else { written });
}

fn without_time(entry: &Value) -> impl PartialEq {
    let members = entry.as_object().into_iter().flatten();
    members.filter(|(name, _)| *name != "time").collect::<Vec<_>>()
}

/// Names of field managers are at most this long, in bytes; as kube-apiserver.
const LENGTH_LIMIT: usize = 128;

/// The manager of a client that does not name one: the beginning of its User-Agent, as far
/// as it can be printed.
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for character in product.chars().filter(|character| is_printed(*character)) {
        if manager.len() + character.len_utf8() > LENGTH_LIMIT {
            break;
        }
        manager.push(character);
    }
    manager
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_a_manager() {
        for (user_agent, expected) in [
            ("kubectl/v1.36.0 (linux/amd64) kubernetes/abc", "kubectl"),
            ("kube-rs", "kube-rs"),
            ("", ""),
            ("/v1", ""),
            ("a\tb\u{7f}c d/1", "abc d"),
        ] {
            assert_eq!(manager_of_user_agent(user_agent), expected, "{user_agent}");
        }
        assert_eq!(manager_of_user_agent(&"a".repeat(200)).len(), LENGTH_LIMIT);
        // No character is cut in two.
        assert_eq!(manager_of_user_agent(&"é".repeat(200)).len(), LENGTH_LIMIT);
        assert_eq!(manager_of_user_agent(&format!("a{}", "é".repeat(200))).len(), 127);
    }
}
