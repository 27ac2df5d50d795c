//! One version of a kind: its schema, its columns and its subresources.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
};

use serde_json::Value;

use super::{Columns, ErasedColumns, Subresources, api_version, selectable_fields};
use crate::error::{FieldError, is_printed};
use crate::object::selector::SelectableFields;
use crate::object::{Tree, to_html_json, to_json};
use crate::schema::{
    Schema, Types, check_beside_status, check_rules, check_structure, unrecognized_formats,
};

/// One version of a kind.
#[derive(Debug)]
pub struct Version {
    /// The name, such as `v1alpha`.
    pub name: String,
    /// The deprecation warning of this version, if it has one.
    pub deprecation: Option<String>,
    /// The schema of objects.
    pub schema: Schema,
    /// The schema as written, as JSON, because a tree uses twenty times as much memory.
    written_schema: Box<str>,
    /// The table columns.
    pub columns: Columns,
    /// The fields by which objects can be selected, besides name and namespace.
    pub selectable: SelectableFields,
    /// The subresources.
    pub subresources: Subresources,
}

impl Version {
    pub(super) fn parse(
        spec: &CustomResourceDefinitionSpec,
        version: &CustomResourceDefinitionVersion,
        cells: Option<Arc<ErasedColumns>>,
        types: Option<&Arc<Types>>,
        path: &str,
        faults: &mut Vec<String>,
    ) -> Option<Self> {
        let schema_path = format!("{path}.schema.openAPIV3Schema");
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let Some(schema) = schema.and_then(|schema| serde_json::to_value(schema).ok()) else {
            faults.push(format!("{schema_path}: is missing"));
            return None;
        };
        let structural = check_structure(&schema, &schema_path);
        faults.extend(structural.iter().map(ToString::to_string));
        let has_status = version.subresources.as_ref().is_some_and(|all| all.status.is_some());
        let of_root = has_status.then(|| check_beside_status(&schema, &schema_path)).flatten();
        faults.extend(of_root.map(|fault| fault.to_string()));
        faults.extend(faults_of_deprecation(version, path));
        let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
        let columns = Columns::parse(columns, cells, path, faults);
        let written_schema = to_json(&schema).into();
        let schema = match types {
            None => Schema::of_definition(&schema),
            Some(types) => {
                let (group, kind) = (&spec.group, &spec.names.kind);
                let Some(schema) = types.schema(group, &version.name, kind) else {
                    faults.push(format!("spec.names.kind: {kind:?} has no type"));
                    return None;
                };
                schema
            }
        };
        let selectable = version.selectable_fields.as_deref().unwrap_or_default();
        let selectable = selectable_fields::parse(selectable, &schema, path, faults);
        let subresources = version.subresources.as_ref();
        let subresources =
            Subresources::parse(subresources, &format!("{path}.subresources"), faults);
        Some(Self {
            name: version.name.clone(),
            deprecation: deprecation(spec, version),
            schema,
            written_schema,
            columns,
            selectable,
            subresources,
        })
    }

    /// The fields of an object whose changes increment the generation: all but the metadata, and but the status if it is
    /// a subresource. The fields are in the order of their names.
    pub fn counted_fields<'a>(
        &self,
        tree: &'a Tree,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        let has_status = self.subresources.status;
        tree.iter()
            .filter(move |(name, _)| *name != "metadata" && !(has_status && *name == "status"))
    }

    /// The errors in the validation rules of the schema at `path`.
    pub fn faults_of_rules(&self, path: &str) -> Vec<FieldError> {
        if !self.schema.root().subtree.rules {
            return Vec::new();
        }
        check_rules(&self.schema, &self.open_api_schema(), path)
    }

    /// The formats in the schema that are not recognized and validate nothing.
    pub fn unrecognized_formats(&self) -> Vec<String> {
        let schema = self.open_api_schema();
        unrecognized_formats(&schema).into_iter().map(str::to_owned).collect()
    }

    /// The schema as written, for clients.
    pub fn open_api_schema(&self) -> Value {
        serde_json::from_str(&self.written_schema).unwrap_or_default()
    }
}

/// The errors in the warning of a deprecated version.
fn faults_of_deprecation(version: &CustomResourceDefinitionVersion, path: &str) -> Vec<String> {
    /// The largest length in bytes, same as in kube-apiserver.
    const LONGEST: usize = 256;
    let Some(warning) = &version.deprecation_warning else { return Vec::new() };
    let mut found = Vec::new();
    if version.deprecated != Some(true) {
        found.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > LONGEST {
            found.push(format!("must be <= {LONGEST} characters long"));
        }
        if warning.is_empty() {
            found.push("must not be an empty string".to_owned());
        }
        let hidden = warning.char_indices().find(|(_, character)| !is_printed(*character));
        found.extend(hidden.map(|(at, _)| {
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}")
        }));
    }
    let field = format!("{path}.deprecationWarning");
    let shown = to_html_json(&Value::from(warning.as_str()));
    let fault = |why: &String| FieldError::invalid(&field, &shown, why).to_string();
    found.iter().map(fault).collect()
}

/// The warning of a deprecated version: its own message, or the version to use instead.
fn deprecation(
    spec: &CustomResourceDefinitionSpec,
    version: &CustomResourceDefinitionVersion,
) -> Option<String> {
    if version.deprecated != Some(true) {
        return None;
    }
    if let Some(warning) = &version.deprecation_warning {
        return Some(warning.clone());
    }
    let (group, kind) = (&spec.group, &spec.names.kind);
    let is_better = |other: &&CustomResourceDefinitionVersion| {
        other.served
            && other.deprecated != Some(true)
            && rank(&other.name).is_some_and(|better| Some(better) > rank(&version.name))
    };
    let better = spec.versions.iter().filter(is_better).max_by_key(|other| rank(&other.name));
    let advice = better.map(|better| format!("; use {} {kind}", api_version(group, &better.name)));
    Some(format!(
        "{} {kind} is deprecated{}",
        api_version(group, &version.name),
        advice.unwrap_or_default()
    ))
}

/// The order of versions in discovery: `v2`, `v1`, `v1beta1`, `v1alpha1`, then other names in alphabetical order.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The stability and the numbers of a name such as `v1beta2`. The highest rank is first in discovery.
fn rank(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let rest = &rest[digits..];
    let (stability, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(minor), _) => (0, minor.parse().ok()?),
        (_, Some(minor)) => (1, minor.parse().ok()?),
        _ if rest.is_empty() => (2, 0),
        _ => return None,
    };
    Some((stability, major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_and_most_stable_first() {
        let mut names = ["foo", "v1alpha1", "v1beta2", "v10", "v1", "v1beta10", "v1alpha"];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(names, ["v10", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo", "v1alpha"]);
    }
}
