//! The paths of errors in versions, in the format of kube-apiserver.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
};

/// The path that kube-apiserver reports for an error. Before it validates, kube-apiserver moves a part that all
/// versions share to the top level. Such an error is reported once, above the versions: the result is `None` for all
/// but the first version.
pub(crate) fn hoisted(spec: &CustomResourceDefinitionSpec, at: &str) -> Option<String> {
    let place = || {
        let (index, rest) = at.strip_prefix("spec.versions[")?.split_once("].")?;
        Some((index.parse::<usize>().ok()?, rest))
    };
    let Some((index, rest)) = place() else { return Some(at.to_owned()) };
    let part = rest.split_once(['.', '[']).map_or(rest, |(first, _)| first);
    let versions = &spec.versions;
    let is_alike = match part {
        "schema" => are_alike(versions, |version| &version.schema),
        "subresources" => are_alike(versions, |version| &version.subresources),
        "additionalPrinterColumns" => are_alike(versions, |version| {
            version.additional_printer_columns.as_deref().unwrap_or_default()
        }),
        "selectableFields" => {
            are_alike(versions, |version| version.selectable_fields.as_deref().unwrap_or_default())
        }
        _ => false,
    };
    match (is_alike, index) {
        (false, _) => Some(at.to_owned()),
        (true, 0) if part == "schema" => {
            Some(format!("spec.validation.{}", rest.strip_prefix("schema.").unwrap_or(rest)))
        }
        (true, 0) => Some(format!("spec.{rest}")),
        (true, _) => None,
    }
}

/// Whether this part is equal in all versions.
fn are_alike<'a, T: PartialEq + ?Sized + 'a>(
    versions: &'a [CustomResourceDefinitionVersion],
    part: impl Fn(&'a CustomResourceDefinitionVersion) -> &'a T,
) -> bool {
    versions.windows(2).all(|two| part(&two[0]) == part(&two[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    #[test]
    fn errors_common_to_all_versions_are_reported_once_above_versions() {
        let spec = |second: &str| -> CustomResourceDefinitionSpec {
            let version = |description: &str| {
                let schema = json!({"type": "object", "description": description});
                json!({"name": "v", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}})
            };
            object(json!({"versions": [version("a"), version(second)]}))
        };
        let at = "schema.openAPIV3Schema.type";
        for (second, index, expected) in [
            ("a", 0, Some("spec.validation.openAPIV3Schema.type")),
            ("a", 1, None),
            ("b", 0, Some("spec.versions[0].schema.openAPIV3Schema.type")),
            ("b", 1, Some("spec.versions[1].schema.openAPIV3Schema.type")),
        ] {
            let found = hoisted(&spec(second), &format!("spec.versions[{index}].{at}"));
            assert_eq!(found.as_deref(), expected, "{second} {index}");
        }
        let found = hoisted(&spec("b"), "spec.versions[0].subresources.scale");
        assert_eq!(found.as_deref(), Some("spec.subresources.scale"));
        assert_eq!(hoisted(&spec("a"), "spec.group").as_deref(), Some("spec.group"));
    }
}
