//! Field managers: who owns which fields of an object.

use std::borrow::Cow;

use serde_json::Value;

use super::attributes::{Attributes, Origin, Part};
use super::draft::Draft;
use super::live::Live;
use super::scale_managers;
use super::sent_managers::{SentManagers, without_managed_fields};
use crate::apply::{Manager, Managers, Operation, Update, Versions, reconciled, update};
use crate::clock::to_rfc_3339;
use crate::error::{ApiError, Reason, is_printed};
use crate::kind::{Kind, Said, api_version, is_incomplete};
use crate::object::{Tree, metadata};
use crate::occasionally::{Occasionally, shown};
use crate::quota::{self, Room, TREE_LIMIT};
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
/// How much is taken, in trees of the object, while its managers are told: sets of what has
/// changed, of which each may take as much as two trees, and what the allocator keeps of them.
const TAKEN: usize = 10;
/// And what is compared in another version: two objects of that, one version after the other.
const CONVERTED: usize = 2;
/// And at most so much: half of what one request may take.
const MOST_TAKEN: usize = 2 * TREE_LIMIT;
/// How much a set takes, in bytes of its text.
pub(super) const SET: usize = 40;
/// The managers of an object that is not there.
static NOBODY: Managers = Managers::none();
/// Objects whose managers are not known any more.
static LOST: Occasionally = Occasionally::at_most(1);
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
    track_but(attributes, live, draft, None)
}

/// The same without fields that the system has filled in, beyond what the client has said.
pub(super) fn track_but(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    said: Option<&Said>,
) -> Result<Option<Room>, ApiError> {
    if draft.is_applied || attributes.environment.managed_fields == ManagedFields::Dropped {
        return Ok(None);
    }
    let sent = std::mem::take(&mut draft.sent_managers);
    let is_sent_back = live.and_then(|live| sent.if_of(live).map(|sent| live.managers_are(sent)));
    let kept = is_sent_back.or(live.map(Live::managers)).unwrap_or(&NOBODY);
    let tree = quota::of_tree(&draft.tree).max(live.map_or(0, Live::tree_size));
    let converted = if attributes.kind().is_converted_by_code() { CONVERTED } else { 0 };
    let size = (TAKEN + converted) * tree + SET * (kept.size() + sent.size());
    let room = match attributes.account.reserve(size.min(MOST_TAKEN)) {
        Ok(room) => room,
        // As kube-apiserver lets go of it when an object is too large.
        Err(refused) if refused.reason() == Reason::RequestEntityTooLarge => return Ok(None),
        Err(refused) => return Err(refused),
    };
    // Who sends managers that own nothing does not wish that nobody is told of.
    let mut is_begun = !kept.is_empty() && !sent.is_reset();
    let (mut managers, are_kept) = match attributes.part {
        Part::Main if sent.is_reset() => (Managers::default(), false),
        Part::Main => {
            let (managers, are_kept) = match is_sent_back {
                Some(kept) => (kept.clone(), true),
                None => starting(kept, &sent),
            };
            is_begun |= sent.is_said();
            (managers, are_kept)
        }
        // Code says nothing of managers.
        Part::Handler(_) => {
            draft.managers = kept.clone();
            return Ok(None);
        }
        Part::Status | Part::Scale | Part::Finalizers => (kept.clone(), true),
    };
    let tracked = if attributes.origin == Origin::Restored {
        reconcile(attributes, false, &mut managers).map(|_| managers)
    } else {
        let of_client = said.map_or(Cow::Borrowed(&draft.tree), |said| said.alone(&draft.tree));
        tracked(attributes, live, &of_client, (managers, are_kept, is_begun))
    };
    draft.managers = tracked.unwrap_or_else(|why| {
        if is_incomplete() {
            // It is told again.
            return Managers::default();
        }
        // Validation says why, if it is to be said.
        tracing::debug!("nobody owns what cannot be taken apart: {why}");
        if attributes.kind().is_converted_by_code() && !kept.is_empty() {
            // As kube-apiserver; but code can be mended.
            LOST.log(|suppressed| {
                let (of, name) =
                    (attributes.kind().qualified(), shown(metadata::name(&draft.tree)));
                tracing::error!(
                    suppressed,
                    "what is said of managers of {of} {name} is lost: {why}"
                );
            });
        }
        Managers::default()
    });
    Ok(Some(room))
}

/// What managers an update of the object itself begins with, and whether what they own is as it is
/// kept.
fn starting(kept: &Managers, sent: &SentManagers) -> (Managers, bool) {
    match sent.read(kept) {
        Ok(Some(managers)) => {
            let are_kept = managers.are_of(kept);
            (managers, are_kept)
        }
        _ => (kept.clone(), true),
    }
}

fn tracked(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    tree: &Tree,
    (mut managers, are_kept, is_begun): (Managers, bool, bool),
) -> Result<Managers, String> {
    // Nobody has begun to keep track of an object that is there.
    if managers.is_empty() && live.is_some() && !is_begun {
        return Ok(managers);
    }
    let before = before(attributes, live);
    if attributes.part == Part::Scale {
        return scale_managers::updated(attributes, (&before, tree), &managers);
    }
    let is_current = is_current(attributes, live);
    let versions = reconcile(attributes, are_kept && is_current, &mut managers)?;
    // What was written in another version was held against the types of that one.
    let has_one_version = attributes.kind().all_versions().nth(1).is_none();
    let change = Update {
        versions: &versions,
        manager: &manager(attributes, Operation::Update),
        live: &before,
        is_live_checked: has_one_version && is_current,
        new: tree,
        now: &to_rfc_3339(attributes.now),
    };
    update(&change, &mut managers)?;
    Ok(managers)
}

/// Makes all sets those of the types as they are now, if they are not yet.
///
/// # Errors
/// When somebody owns something in a version that is gone.
pub(super) fn reconcile<'a>(
    attributes: &Attributes<'a>,
    are_current: bool,
    managers: &mut Managers,
) -> Result<Versions<'a>, String> {
    let versions = versions(attributes);
    reconciled(&versions, are_current, managers)?;
    Ok(versions)
}

/// Whether an object was kept with the types of now. Of a kind whose types may change nobody knows:
/// a Scale or a deletion changes an object, too, and looks at nobody's sets.
pub(super) fn is_current(attributes: &Attributes<'_>, live: Option<&Live>) -> bool {
    let kind = attributes.kind();
    !kind.may_change() && live.is_some_and(|live| kind.is_current(&live.kept.object))
}

/// The object as it was; empty but for its type if there was none.
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
    let empty = Versions::new(&named(&attributes.version.name)).that_may_go(kind.is_typed());
    let empty = match kind.is_converted_by_code() {
        true => empty.converted_by(|tree, api_version| {
            kind.convert_tree(tree, api_version).map_err(|why| why.to_string())
        }),
        false => empty,
    };
    // Also those that are not served any more: what was written in them is still somebody's.
    kind.all_versions().fold(empty, |versions, version| {
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
        is_live_checked: false,
        new: live,
        now: &to_rfc_3339(attributes.now),
    };
    update(&change, managers)
}

/// An object with what is said of its managers: JSON, or nothing.
pub(super) fn with_managed_fields(mut tree: Tree, managed_fields: &[u8]) -> Tree {
    if let Ok(said) = serde_json::from_slice::<Value>(managed_fields) {
        metadata::edit(&mut tree, |metadata| {
            metadata.insert("managedFields".to_owned(), said);
        });
    }
    tree
}

/// Takes the times of before, if a write changes nothing but times.
pub(super) fn keep_times(live: &Live, draft: &mut Draft) {
    // Nearly all that changes an object gives it another generation.
    let generation = |tree: &Tree| tree.get("metadata")?.get("generation")?.as_i64();
    if generation(&live.tree) == generation(&draft.tree)
        && live.managers().differ_in_time_only(&draft.managers)
        && live.tree == draft.tree
    {
        draft.managers = live.managers().clone();
    }
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
