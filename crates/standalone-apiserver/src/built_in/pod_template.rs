//! Pod templates, and the PodSpec that they share with Pods.

pub(crate) mod affinity;
pub(crate) mod annotations;
pub(crate) mod containers;
mod disks;
mod dns;
mod environment;
mod images;
mod mounts;
mod paths;
pub(crate) mod pod_resources;
pub(crate) mod ports;
mod probes;
mod projections;
pub(crate) mod resources;
mod restarts;
pub(crate) mod scope;
pub(crate) mod security;
pub(crate) mod spec;
mod spread;
pub(crate) mod tolerations;
mod volume_sources;
mod volumes;
pub(crate) mod warnings;
mod windows;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use super::checks::{FieldErrors, check_with};
use super::label_selector;
use super::row::Column;
use scope::{Owner, Scope};

pub(crate) use volume_sources::check_template_metadata;

/// Sets the defaults of a template.
pub(crate) fn set_defaults(template: &mut PodTemplateSpec) {
    if let Some(spec) = &mut template.spec {
        spec::set_defaults(spec);
    }
}

/// Removes fields of a template whose features are off by default, unless the old template has them.
pub(crate) fn drop_disabled(template: &mut PodTemplateSpec, old: Option<&PodTemplateSpec>) {
    if let Some(spec) = &mut template.spec {
        spec::drop_disabled(spec, old.and_then(|old| old.spec.as_ref()));
    }
}

/// Validates a template, compared with the old one if there is any.
pub(crate) fn validate(
    template: &PodTemplateSpec,
    old: Option<&PodTemplateSpec>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let nothing = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    let metadata = template.metadata.as_ref();
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
    label_selector::check_labels(labels, &format!("{at}.labels"), faults);
    check_annotations(template, old, &format!("{at}.annotations"), faults);
    let old = old.map(|old| (old.spec.as_ref().unwrap_or(&nothing), old.metadata.as_ref()));
    let scope = || Scope::new(spec, Owner::Template, metadata, old);
    spec::validate(scope(), &format!("{at}.spec"), faults);
    annotations::check_profiles(&scope(), &format!("{at}.spec"), faults);
    if spec.ephemeral_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
        let at = format!("{at}.spec.ephemeralContainers");
        let why = "ephemeral containers not allowed in pod template";
        faults.push(FieldError::forbidden(at, why));
    }
}

/// Validates the annotations of a template at this path.
pub(crate) fn check_annotations(
    template: &PodTemplateSpec,
    old: Option<&PodTemplateSpec>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let metadata = template.metadata.as_ref();
    let all = metadata.and_then(|metadata| metadata.annotations.as_ref());
    for (key, _) in all.into_iter().flatten() {
        check_with(at, key, |key| names::check_label_key(&key.to_lowercase()), faults);
    }
    let nothing = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    let old = old.map(|old| (old.spec.as_ref().unwrap_or(&nothing), old.metadata.as_ref()));
    annotations::validate(&Scope::new(spec, Owner::Template, metadata, old), at, faults);
}

/// The column with the containers of a workload; `pod` returns the PodSpec of its template.
pub(crate) fn containers_column<K: 'static>(pod: fn(&K) -> Option<&PodSpec>) -> Column<K> {
    Column::computed("Containers", move |object: &K, _| {
        let containers = pod(object).into_iter().flat_map(|pod| &pod.containers);
        containers.map(|one| one.name.as_str()).collect::<Vec<_>>().join(",")
    })
    .wide()
}

/// The column with the images of a workload.
pub(crate) fn images_column<K: 'static>(pod: fn(&K) -> Option<&PodSpec>) -> Column<K> {
    Column::computed("Images", move |object: &K, _| {
        let containers = pod(object).into_iter().flat_map(|pod| &pod.containers);
        let images = containers.map(|one| one.image.as_deref().unwrap_or_default());
        images.collect::<Vec<_>>().join(",")
    })
    .wide()
}
