//! Disclosures: what a computed kind shows of what it looks up, and to which readers.

use std::any::TypeId;

use super::kinds::SourceKind;
use crate::cluster::SourceType;
use crate::served_kind::LookupRight;

/// What a computed kind shows of what it looks up ([`Lookup`](super::Lookup)), and to which of its readers.
///
/// A caller who reads the kind has the right to read its source. What comes from lookups is another matter, and is said here for each
/// type that is looked up:
///
/// - [`shows`](Self::shows): harmless. Every reader of the kind sees these fields.
/// - [`protects`](Self::protects): a reader needs the same verb on the type, in all namespaces: `get` or `list` for one object,
///   `list` for a list, `list` and `watch` for a watch, and for a list that is selected by labels or fields which are protected.
/// - [`protects_in_namespace`](Self::protects_in_namespace): the same, in the namespace of the request alone, because
///   nothing is looked up in others.
///
/// A reader who lacks a right is shown the object without those fields: in every answer, in events and tables, whose
/// cells are computed of what is left, and to its selectors. A warning says which right is missing. A
/// field that two lookups name is shown to those who have both rights.
///
/// Where nothing is said of a type a reader needs the same verb on it in all namespaces too, and without it the request is
/// refused, because it is not known what to leave out. The same holds where a right is asked for and no field is named.
///
/// Fields are named by their paths, `status.services`, or `status.claims[*].phase` of all items of a list. A path that is no field of
/// the kind stops the start, and so does a protected field that the schema requires: clients would not be able to read an
/// object without it. At most six rights may be asked for. [`check_disclosures`](super::check_disclosures) finds
/// fields that were forgotten.
///
/// What is left out is a part of the resourceVersions that a reader is given, so a watch that goes on from one shows no more than
/// what it was given with. When the rights of a watcher change the watch ends, three to six
/// minutes later, with 410, so that its client lists again.
///
/// ```
/// use aggregated_apiserver::{Computed, Disclosures, Lookup};
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
///     fn disclosures() -> Disclosures {
///         Disclosures::new()
///             .shows::<Node>(["spec.architecture"])
///             .protects_in_namespace::<Service>(["spec.namesake"])
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Disclosures(Vec<Disclosure>);

/// What is shown of one type.
#[derive(Clone, Debug)]
struct Disclosure {
    type_id: TypeId,
    /// What the type is called, for messages.
    plural: String,
    needs: Needs,
    fields: Vec<String>,
}

/// What a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Right,
    RightInNamespace,
}

/// What readers of a kind need for what it looks up.
#[derive(Debug, Default)]
pub struct LookupRights {
    /// Without these requests are refused.
    pub demanded: Vec<LookupRight>,
    /// Without these fields are left out.
    pub protected: Vec<LookupRight>,
    /// The paths of fields that are shown to all.
    pub shown: Vec<String>,
    /// What is wrong with what was declared.
    pub faults: Vec<String>,
}

impl Disclosures {
    /// Nothing is said: readers need the right to all that is looked up.
    pub fn new() -> Self {
        Self::default()
    }

    /// What comes of this type is harmless: it is in these fields, and whoever reads the kind sees them.
    #[must_use]
    pub fn shows<K: SourceType>(self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.with::<K>(Needs::Nothing, fields)
    }

    /// What comes of this type is in these fields, and shown to those who have the same verb on it in all namespaces.
    #[must_use]
    pub fn protects<K: SourceType>(self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.with::<K>(Needs::Right, fields)
    }

    /// What comes of this type is in these fields, and shown to those who have the same verb on it in the
    /// namespace that they read. A computation that looks for it in another namespace than that of its source fails.
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

    /// The types of which nothing may be looked up outside of the namespace of a source.
    pub(super) fn in_namespace(&self) -> Vec<TypeId> {
        let narrow = self.0.iter().filter(|one| one.needs == Needs::RightInNamespace);
        narrow.map(|one| one.type_id).collect()
    }

    /// The paths of all fields that come of a type.
    pub(super) fn fields_of(&self, type_id: TypeId) -> Option<&[String]> {
        self.0.iter().find(|one| one.type_id == type_id).map(|one| &*one.fields)
    }

    /// What readers need, of a kind that looks up these types.
    pub(super) fn rights(&self, looked_up: &[SourceKind]) -> LookupRights {
        let mut rights = LookupRights::default();
        for (place, disclosure) in self.0.iter().enumerate() {
            let Disclosure { type_id, plural, .. } = disclosure;
            if self.0[..place].iter().any(|earlier| earlier.type_id == *type_id) {
                rights.faults.push(format!("disclosures: {plural} are declared twice"));
            }
            if !looked_up.iter().any(|kind| kind.type_id == *type_id) {
                let why = "are not looked up as the type that is declared";
                rights.faults.push(format!("disclosures: {plural} {why}"));
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
            // Two types may be read of one resource.
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
    use crate::cluster::SourceScope;

    fn rights(disclosures: &Disclosures) -> LookupRights {
        let all = SourceScope::ALL;
        disclosures.rights(&[
            SourceKind::of::<Pod>(all),
            SourceKind::of::<PartialObjectMeta<Pod>>(all),
            SourceKind::of::<Pod>(all),
            SourceKind::of::<Node>(all),
            SourceKind::of::<Secret>(all),
            SourceKind::of::<ConfigMap>(all),
        ])
    }

    /// Resource, whether the right in one namespace is enough, and fields.
    fn said(rights: &[LookupRight]) -> Vec<String> {
        let one = |right: &LookupRight| {
            let place = if right.in_namespace { " in one" } else { "" };
            format!("{}{place}: {}", right.resource, right.fields.join(","))
        };
        rights.iter().map(one).collect()
    }

    #[test]
    fn a_right_is_asked_for_once_whatever_it_is_read_as() {
        let all = Disclosures::new()
            .protects_in_namespace::<Pod>(["b", "a"])
            .protects_in_namespace::<PartialObjectMeta<Pod>>(["c", "a"])
            .protects_in_namespace::<Node>(["d"])
            .protects::<Secret>([]);
        let LookupRights { demanded, protected, shown, faults } = rights(&all);
        // Of Nodes there are none in a namespace.
        assert_eq!(said(&protected), ["pods in one: a,b,c", "nodes: d"]);
        assert_eq!(said(&demanded), ["secrets: ", "configmaps: "]);
        assert_eq!((shown, faults), (Vec::new(), Vec::new()));
        assert_eq!(all.in_namespace().len(), 3);
    }

    #[test]
    fn what_is_harmless_needs_no_right() {
        let some = Disclosures::new().shows::<Pod>(["a"]).protects::<PartialObjectMeta<Pod>>(["b"]);
        let LookupRights { demanded, protected, shown, faults } = rights(&some);
        assert_eq!(said(&protected), ["pods: b"]);
        assert_eq!(said(&demanded), ["nodes: ", "secrets: ", "configmaps: "]);
        assert_eq!((shown, faults), (vec!["a".to_owned()], Vec::new()));
        assert_eq!(some.fields_of(TypeId::of::<Pod>()), Some(&["a".to_owned()][..]));
    }
}
