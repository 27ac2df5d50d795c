//! Disclosures: the fields of a computed kind that come from lookups, and the readers to which they are visible.

use std::any::TypeId;

use super::kind::SourceKind;
use crate::cluster::SourceType;
use crate::served_kind::LookupRight;

/// The fields of a computed kind that come from lookups ([`Lookup`](super::Lookup)), and the readers to which they are
/// visible.
///
/// A caller that reads the kind is allowed to read its source. Fields that come from lookups need a declaration for
/// each looked-up type:
///
/// - [`shows`](Self::shows): harmless. Every reader of the kind sees these fields.
/// - [`protects`](Self::protects): a reader needs permission for the same verb on the type, in all namespaces. One
///   object needs `get` or `list`, a list needs `list`, and a watch needs `list` and `watch`. A list that is selected
///   by protected labels or fields needs `list` and `watch` too.
/// - [`protects_in_namespace`](Self::protects_in_namespace): the same, but only in the namespace of the request,
///   because the computation looks up nothing in other namespaces.
///
/// Readers without a permission receive the object without those fields: in every response, in events, and in tables,
/// whose cells are computed from the remaining fields. Their selectors do not match those fields either. A warning
/// names the missing permission. A field that is declared for two types is visible to readers with both permissions.
///
/// For a type that is not declared, a reader needs permission for the same verb in all namespaces. Without it the
/// request is rejected, because the fields to omit are not known. The same holds for a protected type with no fields.
///
/// Fields are named by their paths: `status.services`, or `status.claims[*].phase` for all elements of a list. The
/// server does not start if a path is not a field of the kind, or if the schema requires a protected field: clients
/// could not decode an object without it. At most six permissions may be declared.
/// [`check_field_permissions`](super::check_field_permissions) finds undeclared fields.
///
/// The set of omitted fields is a part of each resourceVersion that a reader receives. A watch that continues from a
/// resourceVersion therefore shows no more fields than the response that contained it. When the permissions of a
/// watcher change, the watch ends with 410 three to six minutes later, so that its client lists again.
///
/// ```
/// use aggregated_apiserver::{Computed, FieldPermissions, Lookup};
/// use k8s_openapi::api::core::v1::{Node, Pod, Service};
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// A Pod, and what there is around it.
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Place", namespaced)]
/// pub struct PlaceSpec {
///     pub architecture: Option<String>,
///     pub namesake: Option<String>,
/// }
///
/// impl Computed for Place {
///     type Source = Pod;
///     type Related = (Lookup<Node>, Lookup<Service>);
///
///     fn compute(pod: &Pod, (nodes, services): &Self::Related) -> Option<Self> {
///         let name = pod.metadata.name.as_deref()?;
///         let node = pod.spec.as_ref()?.node_name.as_deref();
///         let node = node.and_then(|name| nodes.get(None, name));
///         let info = node.and_then(|node| node.status.clone()?.node_info);
///         let namesake = services.get(pod.metadata.namespace.as_deref(), name);
///         Some(Self::new(name, PlaceSpec {
///             architecture: info.map(|info| info.architecture),
///             namesake: namesake.and_then(|service| service.metadata.name.clone()),
///         }))
///     }
///
///     fn field_permissions() -> FieldPermissions {
///         FieldPermissions::new()
///             .shows::<Node>(["spec.architecture"])
///             .protects_in_namespace::<Service>(["spec.namesake"])
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FieldPermissions(Vec<Disclosure>);

/// The fields that come from one type.
#[derive(Clone, Debug)]
struct Disclosure {
    type_id: TypeId,
    /// The plural name of the type, for messages.
    plural: String,
    needs: Needs,
    fields: Vec<String>,
}

/// The permission that a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Right,
    RightInNamespace,
}

/// The permissions that readers of a kind need for its lookups.
#[derive(Debug, Default)]
pub struct LookupRights {
    /// Permissions without which requests are rejected.
    pub demanded: Vec<LookupRight>,
    /// Permissions without which fields are omitted.
    pub protected: Vec<LookupRight>,
    /// The paths of fields that are visible to all readers.
    pub shown: Vec<String>,
    /// The errors in the declarations.
    pub faults: Vec<String>,
}

impl FieldPermissions {
    /// No declarations: readers need permission on all looked-up types.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares that these fields come from the type `K` and are visible to every reader of the kind.
    #[must_use]
    pub fn shows<K: SourceType>(self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.with::<K>(Needs::Nothing, fields)
    }

    /// Declares that these fields come from the type `K` and are visible to readers that are allowed to use the same
    /// verb on it in all namespaces.
    #[must_use]
    pub fn protects<K: SourceType>(self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.with::<K>(Needs::Right, fields)
    }

    /// Declares that these fields come from the type `K` and are visible to readers that are allowed to use the same
    /// verb on it in the namespace of the request. A computation that looks up this type outside of the namespace of
    /// its source fails.
    #[must_use]
    pub fn protects_in_namespace<K: SourceType>(
        self,
        fields: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        self.with::<K>(Needs::RightInNamespace, fields)
    }

    fn with<K: SourceType>(
        mut self,
        needs: Needs,
        fields: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        self.0.push(Disclosure {
            type_id: TypeId::of::<K>(),
            plural: K::api().plural.into_owned(),
            needs,
            fields: fields.into_iter().map(str::to_owned).collect(),
        });
        self
    }

    /// The types that may be looked up only in the namespace of a source.
    pub(super) fn in_namespace(&self) -> Vec<TypeId> {
        let narrow = self.0.iter().filter(|one| one.needs == Needs::RightInNamespace);
        narrow.map(|one| one.type_id).collect()
    }

    /// The paths of all fields that are declared for a type.
    pub(super) fn fields_of(&self, type_id: TypeId) -> Option<&[String]> {
        self.0.iter().find(|one| one.type_id == type_id).map(|one| &*one.fields)
    }

    /// The permissions that readers need for a kind that looks up these types.
    pub(super) fn rights(&self, looked_up: &[SourceKind]) -> LookupRights {
        let mut rights = LookupRights::default();
        for (place, disclosure) in self.0.iter().enumerate() {
            let Disclosure { type_id, plural, .. } = disclosure;
            if self.0[..place].iter().any(|earlier| earlier.type_id == *type_id) {
                rights.faults.push(format!("field_permissions: {plural} are declared twice"));
            }
            if !looked_up.iter().any(|kind| kind.type_id == *type_id) {
                let why = "are not looked up as the type that is declared";
                rights.faults.push(format!("field_permissions: {plural} {why}"));
            }
            if disclosure.needs == Needs::Nothing {
                rights.shown.extend(disclosure.fields.iter().cloned());
            }
        }
        for kind in looked_up {
            let declared = self.0.iter().find(|one| one.type_id == kind.type_id);
            let needs = declared.map_or(Needs::Right, |one| one.needs);
            let (fields, all) = match declared {
                Some(_) if needs == Needs::Nothing => continue,
                Some(one) if !one.fields.is_empty() => (one.fields.clone(), &mut rights.protected),
                _ => (Vec::new(), &mut rights.demanded),
            };
            let in_namespace = needs == Needs::RightInNamespace && kind.namespaced;
            let is_same = |right: &&mut LookupRight| {
                (&right.group, &right.resource, right.in_namespace)
                    == (&kind.group, &kind.plural, in_namespace)
            };
            // Two lookups can read one resource as different types.
            if let Some(right) = all.iter_mut().find(is_same) {
                right.fields.extend(fields);
                right.fields.sort();
                right.fields.dedup();
                continue;
            }
            all.push(LookupRight {
                group: kind.group.clone(),
                version: kind.version.clone(),
                resource: kind.plural.clone(),
                in_namespace,
                fields,
            });
        }
        rights
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
    use kube::api::PartialObjectMeta;

    use super::*;
    use crate::cluster::SourceOptions;

    fn rights(field_permissions: &FieldPermissions) -> LookupRights {
        let all = SourceOptions::ALL;
        field_permissions.rights(&[
            SourceKind::of::<Pod>(all),
            SourceKind::of::<PartialObjectMeta<Pod>>(all),
            SourceKind::of::<Pod>(all),
            SourceKind::of::<Node>(all),
            SourceKind::of::<Secret>(all),
            SourceKind::of::<ConfigMap>(all),
        ])
    }

    /// Formats permissions: the resource, whether permission in one namespace is enough, and the fields.
    fn said(rights: &[LookupRight]) -> Vec<String> {
        let one = |right: &LookupRight| {
            let place = if right.in_namespace { " in one" } else { "" };
            format!("{}{place}: {}", right.resource, right.fields.join(","))
        };
        rights.iter().map(one).collect()
    }

    #[test]
    fn a_resource_needs_one_permission_for_all_types_it_is_read_as() {
        let all = FieldPermissions::new()
            .protects_in_namespace::<Pod>(["b", "a"])
            .protects_in_namespace::<PartialObjectMeta<Pod>>(["c", "a"])
            .protects_in_namespace::<Node>(["d"])
            .protects::<Secret>([]);
        let LookupRights { demanded, protected, shown, faults } = rights(&all);
        // Nodes are cluster-scoped, so the permission is not limited to a namespace.
        assert_eq!(said(&protected), ["pods in one: a,b,c", "nodes: d"]);
        assert_eq!(said(&demanded), ["secrets: ", "configmaps: "]);
        assert_eq!((shown, faults), (Vec::new(), Vec::new()));
        assert_eq!(all.in_namespace().len(), 3);
    }

    #[test]
    fn fields_declared_as_visible_need_no_permission() {
        let some =
            FieldPermissions::new().shows::<Pod>(["a"]).protects::<PartialObjectMeta<Pod>>(["b"]);
        let LookupRights { demanded, protected, shown, faults } = rights(&some);
        assert_eq!(said(&protected), ["pods: b"]);
        assert_eq!(said(&demanded), ["nodes: ", "secrets: ", "configmaps: "]);
        assert_eq!((shown, faults), (vec!["a".to_owned()], Vec::new()));
        assert_eq!(some.fields_of(TypeId::of::<Pod>()), Some(&["a".to_owned()][..]));
    }
}
