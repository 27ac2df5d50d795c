//! One version of a kind: its schema and its columns.

use std::cmp::Ordering;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;

use super::{Columns, Schema};

/// One version of a kind.
#[derive(Debug)]
pub struct Version {
    /// `v1alpha`
    pub name: String,
    /// What objects may hold.
    pub schema: Schema,
    /// What tables show.
    pub columns: Columns,
}

impl Version {
    pub(super) fn parse(
        version: &CustomResourceDefinitionVersion,
    ) -> Result<Self, (String, String)> {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let Some(schema) = schema else {
            return Err(("schema.openAPIV3Schema".to_owned(), "is missing".to_owned()));
        };
        let schema = serde_json::to_value(schema)
            .map_err(|error| ("schema.openAPIV3Schema".to_owned(), error.to_string()))?;
        let schema = Schema::parse_root(&schema)
            .map_err(|(field, message)| (format!("schema.openAPIV3Schema{field}"), message))?;
        let columns =
            Columns::parse(version.additional_printer_columns.as_deref().unwrap_or_default())
                .map_err(|(index, field, message)| {
                    (format!("additionalPrinterColumns[{index}].{field}"), message)
                })?;
        Ok(Self { name: version.name.clone(), schema, columns })
    }
}

/// The order of versions in discovery: `v2`, `v1`, `v1beta1`, `v1alpha1`, then
/// names that are not of this form, by alphabet.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability and numbers of a name like `v1beta2`; higher comes first.
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
