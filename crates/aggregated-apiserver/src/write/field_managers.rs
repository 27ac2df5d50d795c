//! Field managers: tracks which manager owns which fields of an object.

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
use crate::kind::{Kind, SentValues, api_version, is_incomplete};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::{Tree, metadata};
use crate::quota::{self, Room, TREE_LIMIT};
use crate::schema::{self, Malformed};
use crate::served_kind::ServedKind;

/// Whether objects have `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ManagedFields {
    /// `managedFields` are stored.
    #[default]
    Kept,
    /// `managedFields` are not stored, so server-side apply is not available.
    Dropped,
}

impl ManagedFields {
    /// Returns the object with its `managedFields`, or without them.
    #[must_use]
    pub fn of(self, tree: Tree) -> Tree {
        match self {
            Self::Kept => tree,
            Self::Dropped => without_managed_fields(tree).0,
        }
    }

    /// Whether objects of a kind have `managedFields`: the backend of a direct kind may not store them.
    #[must_use]
    pub fn of_kind(self, served: &ServedKind) -> Self {
        if served.keeps_managed_fields() { self } else { Self::Dropped }
    }
}

/// The manager of the fields whose owner is unknown at the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The memory that the tracking uses, in trees of the object: the sets of changed fields, each as large as two trees,
/// and the memory that the allocator retains for them.
const TAKEN: usize = 10;
/// The additional memory if objects are compared in another version, in trees of the object: two objects, for one
/// version at a time.
const CONVERTED: usize = 2;
/// The largest memory reservation for the tracking, in bytes: half of the limit of one request.
const MOST_TAKEN: usize = 2 * TREE_LIMIT;
/// The memory of a set, in bytes per byte of its JSON.
pub(super) const SET: usize = 40;
/// The managers of an object that does not exist.
static NOBODY: Managers = Managers::none();
/// Throttles the log about objects whose managers are lost.
static LOST: LogThrottle = LogThrottle::at_most(1);
/// The name of a manager without a name.
const UNKNOWN: &str = "unknown";

/// The managers of a write, and the fields that they own from now on.
#[derive(Debug, Default)]
pub(super) struct TrackedManagers {
    pub managers: Managers,
    /// The memory of the tracking. The allocator retains it until the write ends.
    pub memory: Option<Room>,
}

impl From<Managers> for TrackedManagers {
    fn from(managers: Managers) -> Self {
        Self { managers, memory: None }
    }
}

/// Computes the fields that the manager of a write owns from now on. This happens before mutating admission, because the
/// fields that plugins change are not the client's. `sent` has the values that the client has sent for the fields that
/// the system fills in: the client does not own other values of these fields.
///
/// # Errors
/// 429 if there is not enough memory now.
pub(super) fn track(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &Draft,
    filled: &SentValues,
) -> Result<TrackedManagers, ApiError> {
    if draft.is_applied {
        return Ok(draft.managers.clone().into());
    }
    if attributes.environment.managed_fields == ManagedFields::Dropped {
        return Ok(TrackedManagers::default());
    }
    let sent = &draft.sent_managers;
    let is_sent_back = live.and_then(|live| sent.if_of(live).map(|sent| live.managers_are(sent)));
    let kept = is_sent_back.or(live.map(Live::managers)).unwrap_or(&NOBODY);
    let tree = quota::of_tree(&draft.tree).max(live.map_or(0, Live::tree_size));
    let converted = if attributes.kind().is_converted_by_code() { CONVERTED } else { 0 };
    let size = (TAKEN + converted) * tree + SET * (kept.size() + sent.size());
    let room = match attributes.account.reserve(size.min(MOST_TAKEN)) {
        Ok(room) => room,
        // kube-apiserver, too, drops `managedFields` when an object is too large.
        Err(refused) if refused.reason() == Reason::RequestEntityTooLarge => {
            return Ok(TrackedManagers::default());
        }
        Err(refused) => return Err(refused),
    };
    // A client that sends an empty entry resets `managedFields`; it does not turn off the tracking.
    let mut is_begun = !kept.is_empty() && !sent.is_reset();
    let (mut managers, are_kept) = match attributes.part {
        Part::Main if sent.is_reset() => (Managers::default(), false),
        Part::Main => {
            let (managers, are_kept) = match is_sent_back {
                Some(kept) => (kept.clone(), true),
                None => starting(kept, sent),
            };
            is_begun |= sent.is_said();
            (managers, are_kept)
        }
        // Code does not change `managedFields`.
        Part::Handler(_) => return Ok(kept.clone().into()),
        Part::Status | Part::Scale | Part::Finalizers | Part::Approval => (kept.clone(), true),
    };
    let tracked = if attributes.origin == Origin::Restored {
        reconcile(attributes, false, &mut managers).map(|_| managers)
    } else {
        let of_client = filled.without_filled(&draft.tree);
        tracked(attributes, live, &of_client, (managers, are_kept, is_begun))
    };
    let managers = tracked.unwrap_or_else(|why| {
        if is_incomplete() {
            // The tracking runs again.
            return Managers::default();
        }
        // Validation reports the reason, if the client must know it.
        tracing::debug!(error = %why, "cannot compute managedFields; ownership is not recorded");
        if attributes.kind().is_converted_by_code() && !kept.is_empty() {
            // Same as kube-apiserver. It is logged, because the code of the conversion can be fixed.
            LOST.log(|suppressed| {
                let (of, name) =
                    (attributes.kind().qualified(), shown(metadata::name(&draft.tree)));
                tracing::error!(
                    suppressed,
                    kind = %of,
                    object = %name,
                    error = %why,
                    "dropped invalid managedFields"
                );
            });
        }
        Managers::default()
    });
    Ok(TrackedManagers { managers, memory: Some(room) })
}

/// Returns the managers that an update of the object itself starts with, and whether their field sets are the stored
/// ones.
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
    // The tracking of an existing object has not started yet.
    if managers.is_empty() && live.is_some() && !is_begun {
        return Ok(managers);
    }
    let before = before(attributes, live);
    if attributes.part == Part::Scale {
        return scale_managers::updated(attributes, (&before, tree), &managers);
    }
    let is_current = is_current(attributes, live);
    let versions = reconcile(attributes, are_kept && is_current, &mut managers)?;
    // An object that was written in another version was checked against the types of that version.
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

/// Converts all field sets to the current types, unless they match them already.
///
/// # Errors
/// The reason, if a manager owns fields in a version that no longer exists.
pub(super) fn reconcile<'a>(
    attributes: &Attributes<'a>,
    are_current: bool,
    managers: &mut Managers,
) -> Result<Versions<'a>, String> {
    let versions = versions(attributes);
    reconciled(&versions, are_current, managers)?;
    Ok(versions)
}

/// Whether an object was stored with the current types. It is false for a kind whose types may change: a Scale or a
/// deletion also changes an object, and does not read the field sets.
pub(super) fn is_current(attributes: &Attributes<'_>, live: Option<&Live>) -> bool {
    let kind = attributes.kind();
    !kind.may_change() && live.is_some_and(|live| kind.is_current(&live.kept.object))
}

/// The object before the write; one with only its type if there was none.
pub(super) fn before<'a>(attributes: &Attributes<'_>, live: Option<&'a Live>) -> Cow<'a, Tree> {
    match live {
        Some(live) => Cow::Borrowed(&live.tree),
        None => Cow::Owned(nothing(attributes)),
    }
}

/// An empty object of the type.
pub(super) fn nothing(attributes: &Attributes<'_>) -> Tree {
    let (kind, version) = (attributes.kind(), attributes.version);
    let name = kind.api_version(&version.name);
    let members = [("apiVersion", name), ("kind", kind.names.kind.clone())];
    let mut nothing =
        members.map(|(name, text)| (name.to_owned(), text.into())).into_iter().collect();
    if kind.is_typed() {
        // Go encodes some fields of an empty object.
        let _ = schema::normalize(version.schema.root(), &mut nothing, Malformed::Dropped);
    }
    nothing
}

/// The manager of a write.
pub(super) fn manager(attributes: &Attributes<'_>, operation: Operation) -> Manager {
    let name = &attributes.options.field_manager;
    Manager {
        name: if name.is_empty() { UNKNOWN.to_owned() } else { name.clone() },
        operation,
        api_version: api_version(&attributes.kind().group, &attributes.version.name),
        subresource: attributes.part.subresource().to_owned(),
    }
}

/// The versions of a kind, each with the fields that a write to this part resets.
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
    // The versions include those that are not served any more, because managers may still own fields in them.
    kind.all_versions().fold(empty, |versions, version| {
        let is_requested = version.name == attributes.version.name;
        let reset = match attributes.part {
            Part::Main | Part::Finalizers if is_requested || kind.is_typed() => {
                kind.strategy.reset_by_main(version)
            }
            Part::Status => kind.strategy.reset_by_status(kind.is_typed()),
            Part::Approval => kind.strategy.reset_by_approval(),
            Part::Main | Part::Scale | Part::Finalizers | Part::Handler(_) => Vec::new(),
        };
        versions.with(named(&version.name), &version.schema, &reset)
    })
}

/// Attributes all fields of an object to the manager `before-first-apply`, at the first apply.
///
/// # Errors
/// The reason, if the object does not match its type.
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

/// Returns an object with these `managedFields`, which are JSON or empty.
pub(super) fn with_managed_fields(mut tree: Tree, managed_fields: &[u8]) -> Tree {
    if let Ok(said) = serde_json::from_slice::<Value>(managed_fields) {
        metadata::edit(&mut tree, |metadata| {
            metadata.insert("managedFields".to_owned(), said);
        });
    }
    tree
}

/// Keeps the previous timestamps if a write changes only timestamps.
pub(super) fn keep_times(live: &Live, draft: &mut Draft) {
    // Nearly every change of an object increases its generation.
    let generation = |tree: &Tree| tree.get("metadata")?.get("generation")?.as_i64();
    if generation(&live.tree) == generation(&draft.tree)
        && live.managers().differ_in_time_only(&draft.managers)
        && live.tree == draft.tree
    {
        draft.managers = live.managers().clone();
    }
}

/// The largest length of the name of a field manager, in bytes; same as kube-apiserver.
const LENGTH_LIMIT: usize = 128;

/// The manager of a client that does not name one: the printable characters of its User-Agent up to the first slash.
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
        // A character is never split.
        assert_eq!(manager_of_user_agent(&"é".repeat(200)).len(), LENGTH_LIMIT);
        assert_eq!(manager_of_user_agent(&format!("a{}", "é".repeat(200))).len(), 127);
    }
}
