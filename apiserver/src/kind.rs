//! Kind: everything said about one kind.
//!
//! It is parsed once from a CustomResourceDefinition, which is also what
//! kube's derive makes. Routes, discovery, columns, messages and manifests
//! take their names from here and nowhere else.

mod columns;
mod names;
mod schema;
mod version;

pub use columns::{Column, Columns};
pub use names::Names;
pub use schema::{Additional, JsonType, Schema};
pub use version::{Version, compare as compare_versions};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::error::StartError;

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each object has a namespace.
    Namespaced,
    /// Objects belong to the cluster.
    Cluster,
}

/// Everything said about one kind.
#[derive(Debug)]
pub struct Kind {
    /// The API group, as `farm.example.com`.
    pub group: String,
    /// What the kind is called.
    pub names: Names,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// The served versions, the preferred one first.
    pub versions: Vec<Version>,
    /// The name of the version in which objects are kept.
    pub storage_version: String,
}

impl Kind {
    /// Parses a definition.
    ///
    /// # Errors
    /// When it cannot be served; names the field.
    pub fn parse(definition: &CustomResourceDefinition) -> Result<Self, StartError> {
        let spec = &definition.spec;
        let resource = format!("{}.{}", spec.names.plural, spec.group);
        let fault = |field: &str, message: &str| StartError::Kind {
            kind: resource.clone(),
            field: field.to_owned(),
            message: message.to_owned(),
        };
        if spec.group.is_empty() {
            return Err(fault("spec.group", "must not be empty"));
        }
        let scope = match spec.scope.as_str() {
            "Namespaced" => Scope::Namespaced,
            "Cluster" => Scope::Cluster,
            _ => return Err(fault("spec.scope", "must be Namespaced or Cluster")),
        };
        let names = Names::parse(&spec.names)
            .map_err(|(field, message)| fault(&format!("spec.names.{field}"), &message))?;
        let mut storage_version = None;
        let mut versions = Vec::new();
        for (index, version) in spec.versions.iter().enumerate() {
            let path = format!("spec.versions[{index}]");
            let parsed = Version::parse(version)
                .map_err(|(field, message)| fault(&format!("{path}.{field}"), &message))?;
            if version.storage && storage_version.replace(version.name.clone()).is_some() {
                return Err(fault(
                    &format!("{path}.storage"),
                    "a second version is marked as stored",
                ));
            }
            if versions.iter().any(|other: &Version| other.name == parsed.name) {
                return Err(fault(&format!("{path}.name"), "a second version of this name"));
            }
            if version.served {
                versions.push(parsed);
            }
        }
        if versions.is_empty() {
            return Err(fault("spec.versions", "no version is served"));
        }
        let Some(storage_version) = storage_version else {
            return Err(fault("spec.versions", "no version is marked as stored"));
        };
        versions.sort_by(|a, b| compare_versions(&a.name, &b.name));
        if versions.len() > 1 || versions[0].name != storage_version {
            return Err(fault(
                "spec.versions",
                "conversion is not supported yet: exactly one version must be served, and it must be the stored one",
            ));
        }
        Ok(Self { group: spec.group.clone(), names, scope, versions, storage_version })
    }

    /// `llamas.farm.example.com`
    pub fn qualified(&self) -> String {
        crate::error::qualified(&self.group, &self.names.plural)
    }

    /// `farm.example.com/v1alpha`
    pub fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.group)
    }

    /// The served version of this name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version in which objects are kept; it is always served.
    pub fn storage(&self) -> &Version {
        self.version(&self.storage_version).unwrap_or(&self.versions[0])
    }

    /// Whether objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn definition(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut tree = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        change(&mut tree["spec"]);
        serde_json::from_value(tree).unwrap()
    }

    fn check(change: impl FnOnce(&mut Value), expected: &str) {
        let error = Kind::parse(&definition(change)).unwrap_err();
        assert_eq!(error.to_string(), format!("kind foos.example.com: {expected}"));
    }

    #[test]
    fn names_have_defaults() {
        let kind = Kind::parse(&definition(|_| {})).unwrap();
        assert_eq!(kind.qualified(), "foos.example.com");
        assert_eq!(kind.names.list_kind, "FooList");
        assert_eq!(kind.names.singular, "foo");
        assert_eq!(kind.api_version("v1"), "example.com/v1");
    }

    #[test]
    fn what_cannot_be_served_names_the_field() {
        check(
            |spec| spec["versions"][0]["served"] = json!(false),
            "spec.versions: no version is served",
        );
        check(
            |spec| spec["versions"][0]["storage"] = json!(false),
            "spec.versions: no version is marked as stored",
        );
        check(|spec| spec["scope"] = json!("Galaxy"), "spec.scope: must be Namespaced or Cluster");
        check(
            |spec| spec["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("string"),
            "spec.versions[0].schema.openAPIV3Schema.type: must be object",
        );
        check(
            |spec| spec["versions"][0]["schema"] = json!(null),
            "spec.versions[0].schema.openAPIV3Schema: is missing",
        );
        check(
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "string", "jsonPath": ".spec.a["}]);
            },
            "spec.versions[0].additionalPrinterColumns[0].jsonPath: \".spec.a[\" is not a JSONPath",
        );
        check(
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "colour", "jsonPath": ".spec.a"}]);
            },
            "spec.versions[0].additionalPrinterColumns[0].type: must be boolean, date, integer, number or string",
        );
        check(|spec| spec["names"]["kind"] = json!(""), "spec.names.kind: must not be empty");
    }
}
