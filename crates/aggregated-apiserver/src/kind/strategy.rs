//! Strategy: the rules of a kind for its objects and for writes, besides its schema.

use jiff::Timestamp;
use serde_json::Value;

use super::filled_fields::{FilledField, find};
use super::{QuotaUsage, Version};
use crate::object::names::{
    check_dns_1035_label, check_dns_1123_label, check_dns_1123_subdomain, check_path_segment,
};
use crate::object::selector::SelectableFields;
use crate::object::{Tree, metadata};

/// The rules for naming, writing and deleting objects of a kind. The default is that of a custom resource; each
/// built-in kind has its own.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// The rule for names.
    pub names: NameRule,
    /// Whether a generated name has a random suffix. If not, the name is `generateName` itself.
    pub adds_name_suffix: bool,
    /// Whether objects have a `metadata.generation`.
    pub has_generation: bool,
    /// The fields by which objects can be selected, besides name and namespace.
    pub selectable: SelectableFields,
    /// Whether one of the columns is the name, so that tables add no name column.
    pub has_name_column: bool,
    /// Returns the condition `RowCondition` of an object's table row, if the object has completed.
    pub completed: Option<fn(&Tree) -> Option<RowCondition>>,
    /// Whether an object may be created with its status.
    pub keeps_status_on_create: bool,
    /// Whether a write to `status` may change labels, annotations, finalizers and owners too.
    pub updates_metadata_with_status: bool,
    /// The metadata fields that a write to `status` resets: `labels`, `annotations`, `finalizers` or `ownerReferences`.
    pub metadata_reset_by_status: &'static [&'static str],
    /// Whether a change of the annotations increments the generation.
    pub counts_annotations: bool,
    /// Whether a change of the labels increments the generation.
    pub counts_labels: bool,
    /// Whether a deletion returns the deleted object instead of a Status.
    pub returns_deleted_object: bool,
    /// Whether an update without resourceVersion is allowed.
    pub allows_unconditional_update: bool,
    /// Whether a PUT creates an object that does not exist.
    pub allows_create_on_update: bool,
    /// Whether collections of objects can be deleted.
    pub deletes_collections: bool,
    /// The default grace period of an object, in seconds. Without this function objects are
    /// removed at once, and so is an object for which it returns `None`, whatever the client
    /// asks for.
    pub grace_period: Option<fn(&Tree) -> Option<i64>>,
    /// A list, as a JSON pointer. While it is not empty, it prevents the removal of a deleted object in the same way as
    /// finalizers.
    pub held_by: Option<&'static str>,
    /// Makes further changes to an object when it is marked as deleted.
    pub prepare_for_deletion: Option<fn(&mut Tree, Timestamp)>,
    /// Whether `spec.finalizers` are written by a subresource.
    pub has_finalize: bool,
    /// Whether the conditions in the status are also written by the subresource `approval`.
    pub has_approval: bool,
    /// Whether only the subresources change an object after its creation: an update keeps the spec.
    pub keeps_spec: bool,
    /// Whether propagation policies apply. If not, a deletion adds no finalizer of the garbage collector.
    pub is_garbage_collected: bool,
    /// A warning for a deletion without a propagation policy.
    pub warning_without_propagation_policy: Option<&'static str>,
    /// Whether a deletion sets only `deletionTimestamp`: the generation is not incremented, and no grace period is set.
    pub marked_by_time_alone: bool,
    /// Fields that an update keeps if it omits them, as JSON pointers.
    pub kept_if_omitted: &'static [&'static str],
    /// Fields that the system fills in. They have no owner unless a client has sent them.
    pub filled_by_system: &'static [FilledField],
    /// The name of the kind in kube-apiserver's storage, which some messages contain.
    pub storage_prefix: StoragePrefix,
    /// The response for unknown paths.
    pub routing: Routing,
    /// The usage that objects add to ResourceQuotas.
    pub quota_usage: QuotaUsage,
    /// Whether writes of the kind run one at a time for all users, because each takes so long that several would occupy
    /// all workers.
    pub one_at_a_time: bool,
}

/// The condition `RowCondition` of a row in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    /// The reason, in one word.
    pub reason: &'static str,
    /// The message, as a sentence.
    pub message: &'static str,
}

/// The name of a kind in kube-apiserver's storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoragePrefix {
    /// `example.com/foos`, same as custom resources.
    #[default]
    GroupAndResource,
    /// The resource, such as `pods`.
    Resource,
    /// Another name.
    Named(&'static str),
}

/// The response for unknown paths of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// Same as for custom resources: longer paths are accepted, and an unknown subresource is reported as a missing
    /// object.
    #[default]
    CustomResourceHandler,
    /// Same as for built-in kinds: an unknown path or method is 404 or 405.
    InstalledPaths,
}

/// A rule for the names of objects.
#[derive(Clone, Copy, Debug, Default)]
pub enum NameRule {
    /// A lower-case domain.
    #[default]
    Dns1123Subdomain,
    /// A label of a domain.
    Dns1123Label,
    /// A label of a domain that begins with a letter.
    Dns1035Label,
    /// Any valid path segment.
    PathSegment,
    /// A name without errors according to this function.
    Checked(fn(&str) -> Vec<String>),
}

impl NameRule {
    /// The errors in a name.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Dns1123Subdomain => check_dns_1123_subdomain(name),
            Self::Dns1123Label => check_dns_1123_label(name),
            Self::Dns1035Label => check_dns_1035_label(name),
            Self::PathSegment => check_path_segment(name),
            Self::Checked(check) => check(name),
        }
    }
}

impl Strategy {
    /// Whether finalizers or the list `held_by` prevent the removal of an object.
    pub fn holds(&self, tree: &Tree) -> bool {
        let list = self.held_by.and_then(|pointer| find(tree, pointer)).and_then(Value::as_array);
        !metadata::finalizers(tree).is_empty() || list.is_some_and(|list| !list.is_empty())
    }

    /// Copies the fields of `kept_if_omitted` that an update has omitted from the old object.
    pub fn keep(&self, tree: &mut Tree, old: &Tree) {
        for pointer in self.kept_if_omitted {
            let (parents, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
            let Some(value) = find(old, pointer) else { continue };
            let mut members = Some(&mut *tree);
            for step in parents.split('/').skip(1) {
                members = members.and_then(|members| members.get_mut(step)?.as_object_mut());
            }
            if let Some(members) = members {
                members.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
}

impl Strategy {
    /// The fields that a write of an object of this version resets, as JSON pointers.
    pub fn reset_by_main(&self, version: &Version) -> Vec<&'static str> {
        let spec = self.keeps_spec.then_some("/spec");
        let status = version.subresources.status.then_some("/status");
        spec.into_iter().chain(status).collect()
    }

    /// The fields that a write to `approval` resets, as JSON pointers.
    pub fn reset_by_approval(&self) -> Vec<&'static str> {
        vec!["/spec", "/status/certificate"]
    }

    /// The fields that a write to `status` resets, as JSON pointers.
    pub fn reset_by_status(&self, is_typed: bool) -> Vec<&'static str> {
        if self.has_approval {
            return vec!["/spec", "/status/conditions"];
        }
        if !is_typed || !self.updates_metadata_with_status {
            return vec!["/metadata", "/spec"];
        }
        let of_metadata = self.metadata_reset_by_status.iter().map(|field| match *field {
            "labels" => "/metadata/labels",
            "annotations" => "/metadata/annotations",
            "ownerReferences" => "/metadata/ownerReferences",
            _ => "/metadata/finalizers",
        });
        of_metadata.chain(["/spec"]).collect()
    }
}

impl Strategy {
    /// The default strategy of a built-in kind.
    pub fn built_in() -> Self {
        Self {
            storage_prefix: StoragePrefix::Resource,
            routing: Routing::InstalledPaths,
            ..Self::default()
        }
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self {
            names: NameRule::default(),
            adds_name_suffix: true,
            has_generation: true,
            selectable: SelectableFields::default(),
            has_name_column: false,
            completed: None,
            keeps_status_on_create: false,
            updates_metadata_with_status: false,
            metadata_reset_by_status: &[],
            counts_annotations: false,
            counts_labels: false,
            returns_deleted_object: false,
            allows_unconditional_update: false,
            allows_create_on_update: false,
            deletes_collections: true,
            grace_period: None,
            held_by: None,
            prepare_for_deletion: None,
            has_finalize: false,
            has_approval: false,
            keeps_spec: false,
            is_garbage_collected: true,
            warning_without_propagation_policy: None,
            marked_by_time_alone: false,
            kept_if_omitted: &[],
            filled_by_system: &[],
            storage_prefix: StoragePrefix::default(),
            routing: Routing::default(),
            quota_usage: QuotaUsage::default(),
            one_at_a_time: false,
        }
    }
}
