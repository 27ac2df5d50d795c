//! Pod templates, and the PodSpec that they share with Pods.

mod containers;
mod environment;
mod images;
pub(crate) mod ports;
mod probes;
pub(crate) mod resources;
pub(crate) mod spec;
mod tolerations;
mod volumes;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use super::checks::FieldErrors;
use super::label_selector;
use super::row::Column;
use spec::Owner;

/// Sets the defaults of a template.
pub(crate) fn set_defaults(template: &mut PodTemplateSpec) {
    if let Some(spec) = &mut template.spec {
        spec::set_defaults(spec);
    }
}

/// Validates a template.
pub(crate) fn validate(template: &PodTemplateSpec, at: &str, faults: &mut FieldErrors) {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    label_selector::check_labels(labels, &format!("{at}.metadata.labels"), faults);
    let nothing = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    spec::validate(spec, &format!("{at}.spec"), Owner::Template, faults);
}

/// The column of the containers of a workload; `pod` finds the PodSpec of its template.
pub(crate) fn containers_column<K: 'static>(pod: fn(&K) -> Option<&PodSpec>) -> Column<K> {
    Column::computed("Containers", move |object: &K, _| {
        let containers = pod(object).into_iter().flat_map(|pod| &pod.containers);
        containers.map(|one| one.name.as_str()).collect::<Vec<_>>().join(",")
    })
    .wide()
}

/// The column of the images of a workload.
pub(crate) fn images_column<K: 'static>(pod: fn(&K) -> Option<&PodSpec>) -> Column<K> {
    Column::computed("Images", move |object: &K, _| {
        let containers = pod(object).into_iter().flat_map(|pod| &pod.containers);
        let images = containers.map(|one| one.image.as_deref().unwrap_or_default());
        images.collect::<Vec<_>>().join(",")
    })
    .wide()
}
