//! Strategy: what a kind asks of its objects and of those who write them, beside what
//! its schema says.

use jiff::Timestamp;
use serde_json::Value;

use super::Version;
use super::filled::{Filled, find};
use crate::object::names::{
    check_dns_1035_label, check_dns_1123_label, check_dns_1123_subdomain, check_path_segment,
};
use crate::object::selector::SelectableFields;
use crate::object::{Tree, metadata};

/// How objects of a kind are named, written and deleted. The default is that of a
/// custom resource; each of Kubernetes' own kinds brings one.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// Which names its objects may have.
    pub names: NameRule,
    /// Whether objects have a `metadata.generation`, which counts their changes.
    pub has_generation: bool,
    /// What its objects are selected by, besides name and namespace.
    pub selectable: SelectableFields,
    /// Whether one of its columns is the name, so that tables have no other one.
    pub has_name_column: bool,
    /// Whether an object has run to its end, as its row in a table says.
    pub completed: Option<fn(&Tree) -> Option<Completed>>,
    /// Whether an object may be created with its status.
    pub keeps_status_on_create: bool,
    /// Whether a write to `status` may change labels, annotations, finalizers and owners too.
    pub updates_metadata_with_status: bool,
    /// The fields of that metadata that it resets: `labels`, `annotations`, `finalizers` or
    /// `ownerReferences`.
    pub metadata_reset_by_status: &'static [&'static str],
    /// Whether a change of the annotations counts in the generation.
    pub counts_annotations: bool,
    /// Whether a change of the labels counts in the generation.
    pub counts_labels: bool,
    /// Whether a deletion is answered with the object that is gone, and not with a
    /// Status.
    pub returns_deleted_object: bool,
    /// Whether an update needs no resourceVersion.
    pub allows_unconditional_update: bool,
    /// Whether a PUT to where there is no object creates one.
    pub allows_create_on_update: bool,
    /// Whether all of its objects in a scope can be deleted at once.
    pub deletes_collections: bool,
    /// The default grace period of an object, in seconds. Without this function objects are
    /// removed at once, and so is an object for which it returns `None`, whatever the client
    /// asks for.
    pub grace_period: Option<fn(&Tree) -> Option<i64>>,
    /// A list, as a JSON pointer, that holds an object as finalizers do, while
    /// there is something in it.
    pub held_by: Option<&'static str>,
    /// What else is noted in an object that is deleted while something holds it.
    pub prepare_for_deletion: Option<fn(&mut Tree, Timestamp)>,
    /// Whether `spec.finalizers` are written by a subresource of their own.
    pub has_finalize: bool,
    /// Whether propagation policies apply. Where they do not, a deletion adds no
    /// finalizer of the garbage collector.
    pub is_garbage_collected: bool,
    /// A warning for a deletion without a propagation policy.
    pub warning_without_propagation_policy: Option<&'static str>,
    /// Whether a deletion is marked by its time alone: it counts as no change of the
    /// object, and nothing is said of its grace period.
    pub marked_by_time_alone: bool,
    /// Fields that an update keeps if it omits them: JSON pointers.
    pub kept_if_omitted: &'static [&'static str],
    /// Fields that the system fills in, so that they belong to nobody unless a client says what
    /// they are.
    pub filled_by_system: &'static [Filled],
    /// What kube-apiserver calls the kind in its storage: some messages show it.
    pub storage_prefix: StoragePrefix,
    /// How unknown paths are answered.
    pub routing: Routing,
    /// What its objects use of ResourceQuotas.
    pub quota_usage: QuotaUsage,
    /// Whether a write of it takes so long that the next one waits until it is done, whoever
    /// sends it: the others shall find a worker.
    pub one_at_a_time: bool,
}

/// What the objects of a kind use of ResourceQuotas. All but the exempt ones count as one, under
/// `count/foos.example.com`.
#[derive(Clone, Copy, Debug, Default)]
pub enum QuotaUsage {
    /// Nothing else.
    #[default]
    Count,
    /// One under this name too.
    CountAs(&'static str),
    /// What this function finds in the JSON of an object, too; an update may use more of it.
    Computed(fn(&[u8]) -> Vec<(&'static str, u64)>),
    /// Nothing at all.
    Exempt,
}

/// The condition `Completed` of a row in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// How it ended, in one word.
    pub reason: &'static str,
    /// The same in a sentence.
    pub message: &'static str,
}

/// What kube-apiserver calls a kind in its storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoragePrefix {
    /// `example.com/foos`, as custom resources.
    #[default]
    GroupAndResource,
    /// `pods`
    Resource,
    /// Something else.
    Named(&'static str),
}

/// How unknown paths of a kind are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// As for custom resources: longer paths are accepted, and an unknown subresource is
    /// reported as a missing object.
    #[default]
    CustomResourceHandler,
    /// As for built-in kinds: an unknown path or method is 404 or 405.
    InstalledPaths,
}

/// Which names objects may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// A domain in lower case.
    #[default]
    Dns1123Subdomain,
    /// One label of a domain.
    Dns1123Label,
    /// One label of a domain, which begins with a letter.
    Dns1035Label,
    /// Whatever a path can hold.
    PathSegment,
}

impl NameRule {
    /// What is wrong with a name.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Dns1123Subdomain => check_dns_1123_subdomain(name),
            Self::Dns1123Label => check_dns_1123_label(name),
            Self::Dns1035Label => check_dns_1035_label(name),
            Self::PathSegment => check_path_segment(name),
        }
    }
}

impl Strategy {
    /// Whether something holds an object that is deleted.
    pub fn holds(&self, tree: &Tree) -> bool {
        let list = self.held_by.and_then(|pointer| find(tree, pointer)).and_then(Value::as_array);
        !metadata::finalizers(tree).is_empty() || list.is_some_and(|list| !list.is_empty())
    }

    /// Fills in what a change left out.
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
    /// The fields that a write of an object of this version sets back: JSON pointers.
    pub fn reset_by_main(&self, version: &Version) -> Vec<&'static str> {
        if version.subresources.status { vec!["/status"] } else { Vec::new() }
    }

    /// The fields that a write to `status` sets back.
    pub fn reset_by_status(&self, is_typed: bool) -> Vec<&'static str> {
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
    /// The strategy of a kind of Kubernetes' own of which nothing more is said.
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
