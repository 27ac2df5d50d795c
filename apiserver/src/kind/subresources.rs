//! Subresources: parts of an object that are read and written apart from it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceSubresourceScale, CustomResourceSubresources,
};

use crate::error::{FieldError, quote};

/// The subresources of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresources {
    /// Whether `status` is written apart from everything else.
    pub status: bool,
    /// Where `scale` finds what it shows.
    pub scale: Option<ScalePaths>,
}

/// Where `scale` finds what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// How many replicas are wanted.
    pub spec_replicas: FieldPath,
    /// How many there are.
    pub status_replicas: FieldPath,
    /// What selects them, as text.
    pub label_selector: Option<FieldPath>,
}

/// A path to a field, as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The names on the way, from the root.
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
    let mut field = |name: &str, text: &str, roots: &[&str]| {
        let is_below = |root: &&str| text.strip_prefix(*root).is_some_and(|rest| rest.len() > 1);
        let is_plain = !text.contains(['[', ']', '*', '\'', '"', '@', '?']) && !text.contains("..");
        if !roots.iter().any(is_below) || !is_plain || text.ends_with('.') {
            let roots: Vec<&str> = roots.iter().map(|root| root.trim_end_matches('.')).collect();
            let why = format!("should be a json path under {}", roots.join(" or "));
            faults
                .push(FieldError::invalid(format!("{path}.{name}"), quote(text), &why).to_string());
        }
        FieldPath(text.to_owned())
    };
    let selector = scale.label_selector_path.as_deref().filter(|text| !text.is_empty());
    ScalePaths {
        spec_replicas: field("specReplicasPath", &scale.spec_replicas_path, &[".spec."]),
        status_replicas: field("statusReplicasPath", &scale.status_replicas_path, &[".status."]),
        label_selector: selector
            .map(|text| field("labelSelectorPath", text, &[".status.", ".spec."])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_below_their_root() {
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
        assert!(parse(".spec.replicas", ".status.a.b").is_empty());
        assert_eq!(
            parse(".status.replicas", ".status.a[0]"),
            [
                "s.specReplicasPath: Invalid value: \".status.replicas\": should be a json path under .spec",
                "s.statusReplicasPath: Invalid value: \".status.a[0]\": should be a json path under .status",
            ]
        );
        assert_eq!(parse(".spec.", ".status..a").len(), 2);
    }
}
