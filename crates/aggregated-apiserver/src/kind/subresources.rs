//! Subresources: parts of an object that are read and written separately.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceSubresourceScale, CustomResourceSubresources,
};

use crate::error::{FieldError, quote};

/// The subresources of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresources {
    /// Whether `status` is a subresource.
    pub status: bool,
    /// The fields of the subresource `scale`.
    pub scale: Option<ScalePaths>,
}

/// The paths of the fields of `scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired number of replicas.
    pub spec_replicas: FieldPath,
    /// The actual number of replicas.
    pub status_replicas: FieldPath,
    /// The label selector of the replicas, as a string.
    pub label_selector: Option<FieldPath>,
}

/// A path to a field, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// The path as written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The names of the fields on the path, from the root.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.trim_start_matches('.').split('.')
    }
}

impl Subresources {
    /// Parses the subresources of the version at `path`.
    pub(super) fn parse(
        subresources: Option<&CustomResourceSubresources>,
        path: &str,
        faults: &mut Vec<String>,
    ) -> Self {
        let Some(subresources) = subresources else { return Self::default() };
        let scale = subresources.scale.as_ref();
        Self {
            status: subresources.status.is_some(),
            scale: scale.map(|scale| parse_scale(scale, &format!("{path}.scale"), faults)),
        }
    }
}

fn parse_scale(
    scale: &CustomResourceSubresourceScale,
    path: &str,
    faults: &mut Vec<String>,
) -> ScalePaths {
    // kube-apiserver checks only the prefix: the rest is treated as names.
    let mut field = |name: &str, text: &str, roots: &[&str], why: &str| {
        let field = format!("{path}.{name}");
        let fault = if text.is_empty() {
            Some(FieldError::required(field, ""))
        } else if !text.starts_with('.') {
            let why = "must be a simple json path starting with .";
            Some(FieldError::invalid(field, quote(text), why))
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            Some(FieldError::invalid(field, quote(text), why))
        } else {
            None
        };
        faults.extend(fault.map(|fault| fault.to_string()));
        FieldPath(text.to_owned())
    };
    let selector = scale.label_selector_path.as_deref().filter(|text| !text.is_empty());
    let (spec, status) = (".spec.", ".status.");
    ScalePaths {
        spec_replicas: field(
            "specReplicasPath",
            &scale.spec_replicas_path,
            &[spec],
            "should be a json path under .spec",
        ),
        status_replicas: field(
            "statusReplicasPath",
            &scale.status_replicas_path,
            &[status],
            "should be a json path under .status",
        ),
        label_selector: selector.map(|text| {
            let why = "should be a json path under either .spec or .status";
            field("labelSelectorPath", text, &[spec, status], why)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_paths_must_be_below_spec_or_status() {
        let parse = |spec: &str, status: &str| {
            let scale = CustomResourceSubresourceScale {
                spec_replicas_path: spec.to_owned(),
                status_replicas_path: status.to_owned(),
                label_selector_path: None,
            };
            let mut faults = Vec::new();
            parse_scale(&scale, "s", &mut faults);
            faults
        };
        assert!(parse(".spec.i", ".status.a[0].b").is_empty());
        assert_eq!(
            parse(".status.replicas", "status.a"),
            [
                "s.specReplicasPath: Invalid value: \".status.replicas\": should be a json path under .spec",
                "s.statusReplicasPath: Invalid value: \"status.a\": must be a simple json path starting with .",
            ]
        );
        assert_eq!(parse("", ".status.a"), ["s.specReplicasPath: Required value"]);
    }
}
