//! The versions in which objects of a kind are served, and their conversions.

use std::any::Any;
use std::marker::PhantomData;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Convert, Stored, located_errors};
use crate::kind::{
    DirectCode, ErasedColumns, ErasedConversion, Hub, PrunedJson, Unconvertible, VersionCode,
};
use crate::object::Tree;

/// The versions of a kind besides the hub, which is the version of the kind's type.
///
/// Every version has its own type. The type defines the schema, columns, selectable fields, subresources, and whether
/// the version is served or deprecated (`#[kube(deprecated = "…", served = false)]`). Discovery lists the most stable
/// version first, independent of the hub. Rules in Rust are those of the hub and check objects of all versions.
///
/// # Storage version
///
/// Objects are stored in the version of the hub, unless [`storage_version`](Self::storage_version) names another one. A
/// change of the storage version rewrites no object: an object is read in the version in which it was stored, as long
/// as that version is declared, served or not. A release that introduces a version should therefore continue to store
/// the old one. Otherwise replicas of the previous release could not read new objects, neither during the upgrade nor
/// after a rollback. The next release may store the new version. Then run the command `migrate`, which rewrites objects
/// that are still stored in the old version, before you remove the old version.
pub struct Versions<H> {
    others: Vec<Other>,
    kept: Vec<String>,
    hub: PhantomData<fn() -> H>,
}

struct Other {
    definition: CustomResourceDefinition,
    cells: Option<ErasedColumns>,
    code: VersionCode,
}

/// A kind with all its versions.
pub(super) struct Merged {
    pub definition: CustomResourceDefinition,
    /// The computed cells of the versions besides the hub.
    pub cells: Vec<ErasedColumns>,
    pub conversion: Option<ErasedConversion>,
    /// Errors in the declarations.
    pub faults: Vec<String>,
}

impl<H> Default for Versions<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> Versions<H> {
    /// No version besides the hub.
    pub fn new() -> Self {
        Self { others: Vec::new(), kept: Vec::new(), hub: PhantomData }
    }
}

impl<H: Stored> Versions<H> {
    /// Adds a version.
    #[must_use]
    pub fn version<V: Convert<H>>(mut self) -> Self {
        let definition = V::crd();
        let cells = V::printer_columns().erased();
        self.others.push(Other { definition, cells, code: code::<V, H>() });
        self
    }

    /// Adds a version and makes it the storage version.
    #[must_use]
    pub fn storage_version<V: Convert<H>>(mut self) -> Self {
        self.kept.push(V::version(&()).into_owned());
        self.version::<V>()
    }

    /// Merges all versions into one definition.
    pub(super) fn merged(self) -> Merged {
        let mut definition = H::crd();
        let mut faults = Vec::new();
        if self.others.is_empty() {
            return Merged { definition, cells: Vec::new(), conversion: None, faults };
        }
        let hub = H::version(&()).into_owned();
        let (mut cells, mut codes) = (Vec::new(), vec![code_of_hub::<H>()]);
        for Other { definition: other, cells: of_other, code } in self.others {
            let (spec, own) = (&other.spec, &definition.spec);
            for (field, of_other, of_hub) in [
                ("spec.group", &spec.group, &own.group),
                ("spec.scope", &spec.scope, &own.scope),
                ("spec.names.kind", &spec.names.kind, &own.names.kind),
                ("spec.names.plural", &spec.names.plural, &own.names.plural),
            ] {
                if of_other != of_hub {
                    let version = &code.version;
                    faults.push(format!(
                        "{field}: is {of_hub:?} in {hub}, and {of_other:?} in {version}"
                    ));
                }
            }
            let (names, own) = (&spec.names, &own.names);
            for (field, of_other, of_hub) in [
                ("singular", names.singular.as_slice(), own.singular.as_slice()),
                ("listKind", names.list_kind.as_slice(), own.list_kind.as_slice()),
                ("shortNames", list(&names.short_names), list(&own.short_names)),
                ("categories", list(&names.categories), list(&own.categories)),
            ] {
                // Names that a version does not declare are those of the hub.
                if !of_other.is_empty() && of_other != of_hub {
                    let version = &code.version;
                    faults.push(format!(
                        "spec.names.{field}: is {of_hub:?} in {hub}, and {of_other:?} in {version}"
                    ));
                }
            }
            definition.spec.versions.extend(other.spec.versions);
            cells.extend(of_other);
            codes.push(code);
        }
        if self.kept.len() > 1 {
            faults.push(format!(
                "spec.versions: objects are kept in one version, not in {:?}",
                self.kept
            ));
        }
        let kept = self.kept.into_iter().next().unwrap_or(hub);
        for version in &mut definition.spec.versions {
            version.storage = version.name == kept;
        }
        Merged { definition, cells, conversion: Some(ErasedConversion::new(codes)), faults }
    }
}

fn list(names: &Option<Vec<String>>) -> &[String] {
    names.as_deref().unwrap_or_default()
}

fn code_of_hub<H: Stored>() -> VersionCode {
    VersionCode {
        version: H::version(&()).into_owned(),
        read: Box::new(|object| Ok(Box::new(read::<H>(object)?) as Hub)),
        write: Box::new(|hub| Ok(written(&*of_type::<H>(hub)?)?)),
        direct: Some(DirectCode {
            read: Box::new(|json| Some(Box::new(serde_json::from_str::<H>(json).ok()?) as Hub)),
            write: Box::new(|hub, of| PrunedJson::of(of, &*of_type::<H>(hub).ok()?).ok()),
        }),
    }
}

fn code<V: Convert<H>, H: Stored>() -> VersionCode {
    VersionCode {
        version: V::version(&()).into_owned(),
        read: Box::new(|object| {
            let hub = read::<V>(object)?.into_hub();
            Ok(Box::new(hub.map_err(Unconvertible::from)?) as Hub)
        }),
        write: Box::new(|hub| {
            let object = V::from_hub(*of_type::<H>(hub)?);
            Ok(written(&object.map_err(Unconvertible::from)?)?)
        }),
        direct: Some(DirectCode {
            read: Box::new(|json| {
                let hub = serde_json::from_str::<V>(json).ok()?.into_hub();
                Some(Box::new(hub.ok()?) as Hub)
            }),
            write: Box::new(|hub, of| {
                let object = V::from_hub(*of_type::<H>(hub).ok()?).ok()?;
                PrunedJson::of(of, &object).ok()
            }),
        }),
    }
}

fn of_type<H: Any>(hub: Hub) -> Result<Box<H>, String> {
    // All conversions of a kind use the same hub type.
    hub.downcast().map_err(|_| "it is of another hub".to_owned())
}

fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(object: &Tree) -> Result<K, String> {
    located_errors::read(object)
        .map_err(|why| format!("does not fit the type of {}: {why}", K::version(&())))
}

fn written<K: Serialize>(object: &K) -> Result<Value, String> {
    serde_json::to_value(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
