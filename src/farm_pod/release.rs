//! The release that a Pod belongs to, from the labels and annotations that Helm, Flux and Argo CD set on the objects
//! that they create.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::Metadata;

const HELM_NAME: &str = "meta.helm.sh/release-name";
const HELM_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// The annotations that are read.
pub const ANNOTATIONS: &[&str] = &[HELM_NAME, HELM_NAMESPACE, ARGO_TRACKING];

/// The release that installed a Pod.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// `Helm`, `Flux` (a Kustomization), `FluxHelm` (a HelmRelease) or `ArgoCD`.
    pub tool: String,
    /// The name of the release or application.
    pub name: String,
    /// The namespace of the release, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The chart with its version, for example `feeder-1.4.0`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
}

/// The release of the first of these objects that has one: the Pod, then its owners.
pub fn release<'a>(objects: impl IntoIterator<Item = &'a Metadata>) -> Option<Release> {
    objects.into_iter().find_map(of)
}

fn of(object: &Metadata) -> Option<Release> {
    let given = |value: Option<&str>| value.filter(|value| !value.is_empty()).map(str::to_owned);
    let label = |key| given(object.labels.get(key));
    let annotation = |key| given(object.annotation(key));
    let chart = label("helm.sh/chart");
    let made = |tool: &str, name: String, namespace| Release {
        tool: tool.to_owned(),
        name,
        namespace,
        chart: chart.clone(),
    };
    // A tool that runs Helm takes precedence over Helm.
    if let Some(name) = label("helm.toolkit.fluxcd.io/name") {
        return Some(made("FluxHelm", name, label("helm.toolkit.fluxcd.io/namespace")));
    }
    if let Some(name) = label("kustomize.toolkit.fluxcd.io/name") {
        return Some(made("Flux", name, label("kustomize.toolkit.fluxcd.io/namespace")));
    }
    // For example `shop:apps/Deployment:default/web`.
    let application = || {
        let tracked = annotation(ARGO_TRACKING)?;
        tracked.split(':').next().filter(|name| !name.is_empty()).map(str::to_owned)
    };
    if let Some(name) = label("argocd.argoproj.io/instance").or_else(application) {
        return Some(made("ArgoCD", name, None));
    }
    let is_of_helm = label("app.kubernetes.io/managed-by").as_deref() == Some("Helm");
    let instance = || label("app.kubernetes.io/instance").filter(|_| is_of_helm);
    // The labels of Helm 2.
    let of_tiller = || label("release").filter(|_| label("heritage").as_deref() == Some("Tiller"));
    let name = annotation(HELM_NAME).or_else(instance).or_else(of_tiller)?;
    Some(made("Helm", name, annotation(HELM_NAMESPACE)))
}

/// Formats a release, for example `Helm/feeder`.
pub fn cell(release: &Release) -> String {
    format!("{}/{}", release.tool, release.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(labels: Value, annotations: Value, expected: Option<(&str, Option<&str>)>) {
        let object = json!({"labels": labels, "annotations": annotations});
        let object: Metadata = serde_json::from_value(object).unwrap();
        let found = release([&Metadata::default(), &object]);
        let shown = found.as_ref().map(|found| (cell(found), found.namespace.as_deref()));
        let expected = expected.map(|(text, namespace)| (text.to_owned(), namespace));
        assert_eq!(shown, expected, "{labels} {annotations}");
    }

    #[test]
    fn tools_leave_traces() {
        let helm = json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "a", "helm.sh/chart": "feeder-1.4.0"});
        let helm_annotations =
            json!({"meta.helm.sh/release-name": "b", "meta.helm.sh/release-namespace": "n"});
        check(helm.clone(), json!({}), Some(("Helm/a", None)));
        check(helm.clone(), helm_annotations.clone(), Some(("Helm/b", Some("n"))));
        check(json!({"app.kubernetes.io/instance": "a"}), json!({}), None);
        check(json!({"release": "a", "heritage": "Tiller"}), json!({}), Some(("Helm/a", None)));
        check(json!({"release": "stable"}), json!({}), None);
        let mut flux = helm;
        flux["helm.toolkit.fluxcd.io/name"] = json!("f");
        flux["helm.toolkit.fluxcd.io/namespace"] = json!("flux-system");
        check(flux, helm_annotations, Some(("FluxHelm/f", Some("flux-system"))));
        let kustomization = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
        check(kustomization, json!({}), Some(("Flux/apps", Some("flux-system"))));
        check(
            json!({"argocd.argoproj.io/instance": "shop"}),
            json!({}),
            Some(("ArgoCD/shop", None)),
        );
        let tracked = json!({"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:default/web"});
        check(json!({}), tracked, Some(("ArgoCD/shop", None)));
        check(json!({}), json!({"argocd.argoproj.io/tracking-id": ""}), None);
        check(json!({}), json!({}), None);
    }

    #[test]
    fn a_chart_has_a_version() {
        let labels = json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "a", "helm.sh/chart": "feeder-1.4.0"});
        let object: Metadata = serde_json::from_value(json!({"labels": labels})).unwrap();
        assert_eq!(release([&object]).unwrap().chart.as_deref(), Some("feeder-1.4.0"));
    }
}
