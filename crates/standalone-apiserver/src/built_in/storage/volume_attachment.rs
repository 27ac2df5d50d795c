//! VolumeAttachments.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::storage::v1::{
    VolumeAttachment, VolumeAttachmentSpec, VolumeAttachmentStatus, VolumeError,
};

use crate::built_in::checks::{
    FieldErrors, IMMUTABLE, check_with, go_struct, is_same, quote, to_json,
};
use crate::built_in::core::persistent_volume::{
    check_driver_name, check_inline_spec, set_source_defaults,
};
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::requiring_resource_version;

/// The largest size of the metadata of an attached volume, in bytes.
const METADATA: usize = 256 << 10;
const LONGEST_MESSAGE: usize = 1024;

pub(crate) fn row() -> Row<VolumeAttachment> {
    let rules = Validation::new()
        .prepare(|attachment, _| prepare(attachment))
        .validate(|attachment, old, _| validate(attachment, old))
        .validate_status(|attachment, old, _| validate(attachment, old));
    Row { subresources: Subresources::Status, columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy {
        returns_deleted_object: true,
        updates_metadata_with_status: false,
        ..requiring_resource_version()
    }
}

fn columns() -> Vec<Column<VolumeAttachment>> {
    vec![
        Column::path("Attacher", ".spec.attacher").with_format("name"),
        Column::computed("PV", |attachment: &VolumeAttachment, _| {
            attachment.spec.source.persistent_volume_name.clone().unwrap_or_default()
        }),
        Column::path("Node", ".spec.nodeName"),
        Column::computed("Attached", |attachment: &VolumeAttachment, _| {
            attachment.status.as_ref().is_some_and(|status| status.attached)
        })
        .of_type("boolean"),
        Column::age(),
    ]
}

fn prepare(attachment: &mut VolumeAttachment) {
    if let Some(spec) = &mut attachment.spec.source.inline_volume_spec {
        set_source_defaults(spec);
    }
}

fn validate(attachment: &VolumeAttachment, old: Option<&VolumeAttachment>) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &attachment.spec;
    check_driver_name("spec.attacher", &spec.attacher, &mut faults);
    check_source(spec, &mut faults);
    check_with("spec.nodeName", &spec.node_name, names::check_dns_1123_subdomain, &mut faults);
    if let Some(status) = &attachment.status {
        check_status(status, &mut faults);
    }
    if let Some(name) = &spec.source.persistent_volume_name {
        let at = "spec.source.persistentVolumeName";
        check_with(at, name, names::check_dns_1123_subdomain, &mut faults);
    }
    if old.is_some_and(|old| !is_same(spec, &old.spec)) {
        faults.push(FieldError::invalid("spec", shown(spec), IMMUTABLE));
    }
    faults
}

fn check_source(spec: &VolumeAttachmentSpec, faults: &mut FieldErrors) {
    const AT: &str = "spec.source";
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (&spec.source.inline_volume_spec, &spec.source.persistent_volume_name) {
        (None, None) => faults.push(FieldError::required(AT, why)),
        (Some(_), Some(_)) => faults.push(FieldError::forbidden(AT, why)),
        (None, Some(name)) if name.is_empty() => {
            let why = "must specify non empty persistentVolumeName";
            faults.push(FieldError::required(format!("{AT}.persistentVolumeName"), why));
        }
        (None, Some(_)) => {}
        (Some(inline), None) => check_inline_spec(inline, "spec.source.inlineVolumeSpec", faults),
    }
}

fn check_status(status: &VolumeAttachmentStatus, faults: &mut FieldErrors) {
    let metadata = status.attachment_metadata.as_ref();
    let size = |metadata: &BTreeMap<String, String>| -> usize {
        metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
    };
    if metadata.is_some_and(|metadata| size(metadata) > METADATA) {
        faults.push(FieldError::too_long("status.attachmentMetadata", METADATA as u64));
    }
    check_error(status.attach_error.as_ref(), "status.attachError", faults);
    check_error(status.detach_error.as_ref(), "status.detachError", faults);
}

fn check_error(error: Option<&VolumeError>, at: &str, faults: &mut FieldErrors) {
    let Some(error) = error else { return };
    if error.message.as_ref().is_some_and(|message| message.len() > LONGEST_MESSAGE) {
        // The message of kube-apiserver has the limit of the metadata.
        faults.push(FieldError::too_long(format!("{at}.message"), METADATA as u64));
    }
    if let Some(code) = error.error_code.filter(|code| *code < 0) {
        let why = format!("must be between 0 and {}, inclusive", i32::MAX);
        faults.push(FieldError::invalid(format!("{at}.errorCode"), code, &why));
    }
}

/// A spec in the format of messages, with the field names of Go.
fn shown(spec: &VolumeAttachmentSpec) -> String {
    let source = go_struct(&[
        ("PersistentVolumeName", to_json(&spec.source.persistent_volume_name)),
        ("InlineVolumeSpec", to_json(&spec.source.inline_volume_spec)),
    ]);
    go_struct(&[
        ("Attacher", quote(&spec.attacher)),
        ("Source", source),
        ("NodeName", quote(&spec.node_name)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn attachment(source: Value) -> Value {
        json!({"spec": {"attacher": "a.b", "nodeName": "n", "source": source}})
    }

    #[test]
    fn invalid_volume_attachments_are_rejected() {
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let inline = json!({
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": "a.b", "volumeHandle": "h"},
        });
        for (source, expected) in [
            (json!({"persistentVolumeName": "v"}), vec![]),
            (json!({"inlineVolumeSpec": inline}), vec![]),
            (json!({}), vec![format!("spec.source: Required value: {one}")]),
            (
                json!({"persistentVolumeName": "v", "inlineVolumeSpec": inline}),
                vec![format!("spec.source: Forbidden: {one}")],
            ),
        ] {
            assert_eq!(faults_of_new(validate, attachment(source.clone())), expected, "{source}");
        }
        let mut failed = attachment(json!({"persistentVolumeName": "v"}));
        failed["status"] = json!({"attached": false, "attachError": {
            "message": "x".repeat(1025), "errorCode": -1,
        }});
        assert_eq!(
            faults_of_new(validate, failed),
            [
                "status.attachError.message: Too long: may not be more than 262144 bytes",
                "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ]
        );
    }

    #[test]
    fn a_volume_attachment_does_not_change_and_is_printed_as_a_table_row() {
        let [old, new] = ["v", "w"].map(|name| attachment(json!({"persistentVolumeName": name})));
        assert_eq!(
            faults_of_update(validate, old, new.clone()),
            [
                "spec: Invalid value: {\"Attacher\":\"a.b\",\"Source\":{\"PersistentVolumeName\":\"w\",\"InlineVolumeSpec\":null},\"NodeName\":\"n\"}: field is immutable"
            ]
        );
        let shown = json!({"PV": "w", "Attached": false, "Age": "<unknown>"});
        assert_eq!(cells(columns(), new), shown);
    }
}
