//! The sources of volumes.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::{NameRule, names};
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, EphemeralVolumeSource, HostPathVolumeSource, KeyToPath, Volume,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::disks;
use super::paths::{check_backsteps, check_descending, check_local, check_mode};
use super::projections;
use super::scope::{Owner, Scope};
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, check_with, quote};
use crate::built_in::core::persistent_volume_claim;
use crate::built_in::label_selector;

/// A source: whether it is set, the field in messages about several sources, and its validation.
pub(super) type Source<'a> = (bool, &'static str, Box<dyn Fn(&mut FieldErrors) + 'a>);

/// Validates the source of a volume. The first source is validated; further sources are errors.
pub(crate) fn validate(volume: &Volume, scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let mut count = 0;
    if let Some(directory) = &volume.empty_dir {
        count += 1;
        let size = directory.size_limit.as_ref().and_then(|size| Quantity::parse(&size.0).ok());
        if size.is_some_and(|size| size.nanos() < 0) {
            let why = "SizeLimit field must be a valid resource quantity";
            faults.push(FieldError::forbidden(format!("{at}.emptyDir.sizeLimit"), why));
        }
    }
    let all = of_the_node(volume, scope, at).into_iter().chain(disks::of_providers(volume, at));
    let all = all.chain(of_claims(volume, at));
    let mut given: Vec<Source<'_>> = all.filter(|(is_there, ..)| *is_there).collect();
    given.sort_by_key(|(_, name, _)| ORDER.iter().position(|one| one == name));
    for (_, name, check) in given {
        if count > 0 {
            let why = "may not specify more than 1 volume type";
            faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
        } else {
            check(faults);
        }
        count += 1;
        check_name(volume, name, scope, count, at, faults);
    }
    if count == 0 {
        faults.push(FieldError::required(at, "must specify a volume type"));
    }
}

/// The order in which kube-apiserver validates sources, by their names in its messages.
const ORDER: [&str; 29] = [
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephFS",
    "quobyte",
    "downwarAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the name of a volume against its source; `count` is the number of sources so far.
fn check_name(
    volume: &Volume,
    source: &str,
    scope: &Scope<'_>,
    count: usize,
    at: &str,
    faults: &mut FieldErrors,
) {
    let name = volume.name.as_str();
    if let Some(iscsi) = volume.iscsi.as_ref().filter(|_| source == "iscsi")
        && iscsi.initiator_name.is_some()
        && name.len() + 1 + iscsi.target_portal.len() > 64
    {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        faults.push(FieldError::invalid(format!("{at}.name"), quote(name), why));
    }
    if let Some(pod) = scope.pod_name()
        && source == "ephemeral"
        && count == 1
        && !name.is_empty()
    {
        let claim = format!("{pod}-{name}");
        for why in NameRule::Dns1123Subdomain.check(&claim) {
            let why = format!("PVC name {}: {why}", quote(&claim));
            faults.push(FieldError::invalid(format!("{at}.name"), quote(name), &why));
        }
    }
}

/// A source that `check` validates.
pub(super) fn source<'a, T>(
    given: &'a Option<T>,
    name: &'static str,
    check: impl Fn(&T, &mut FieldErrors) + 'a,
) -> Source<'a> {
    let check = move |faults: &mut FieldErrors| given.iter().for_each(|one| check(one, faults));
    (given.is_some(), name, Box::new(check))
}

fn of_the_node<'a>(volume: &'a Volume, scope: &'a Scope<'_>, at: &'a str) -> Vec<Source<'a>> {
    let is_pod = scope.owner == Owner::Pod;
    vec![
        source(&volume.host_path, "hostPath", move |one, faults| {
            check_host_path(one, &format!("{at}.hostPath"), faults);
        }),
        source(&volume.git_repo, "gitRepo", move |one, faults| {
            check_given(&format!("{at}.gitRepo.repository"), &one.repository, faults);
            let directory = one.directory.as_deref().unwrap_or_default();
            check_descending(&format!("{at}.gitRepo.directory"), directory, faults);
        }),
        source(&volume.secret, "secret", move |one, faults| {
            let name = one.secret_name.as_deref().unwrap_or_default();
            check_given(&format!("{at}.secret.secretName"), name, faults);
            check_mode(&format!("{at}.secret.defaultMode"), one.default_mode, faults);
            check_items(one.items.as_deref(), &format!("{at}.secret.items"), faults);
        }),
        source(&volume.config_map, "configMap", move |one, faults| {
            check_given(&format!("{at}.configMap.name"), &one.name, faults);
            check_mode(&format!("{at}.configMap.defaultMode"), one.default_mode, faults);
            check_items(one.items.as_deref(), &format!("{at}.configMap.items"), faults);
        }),
        source(&volume.downward_api, "downwarAPI", move |one, faults| {
            let at = format!("{at}.downwardAPI");
            check_mode(&format!("{at}.defaultMode"), one.default_mode, faults);
            for file in one.items.iter().flatten() {
                projections::check_file(file, &at, faults);
            }
        }),
        source(&volume.projected, "projected", move |one, faults| {
            projections::validate(one, scope, &format!("{at}.projected"), faults);
        }),
        source(&volume.image, "image", move |one, faults| {
            let reference = one.reference.as_deref().unwrap_or_default();
            if is_pod {
                check_given(&format!("{at}.image.reference"), reference, faults);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            let policy = one.pull_policy.as_ref();
            check_one_of(format!("{at}.image.pullPolicy"), policy, &policies, faults);
        }),
    ]
}

fn of_claims<'a>(volume: &'a Volume, at: &'a str) -> Vec<Source<'a>> {
    vec![
        source(&volume.persistent_volume_claim, "persistentVolumeClaim", move |one, faults| {
            let at = format!("{at}.persistentVolumeClaim.claimName");
            check_given(&at, &one.claim_name, faults);
        }),
        source(&volume.csi, "csi", move |one, faults| check_csi(one, &format!("{at}.csi"), faults)),
        source(&volume.ephemeral, "ephemeral", move |one, faults| {
            check_ephemeral(one, &format!("{at}.ephemeral.volumeClaimTemplate"), faults);
        }),
    ]
}

/// Validates the files to which keys are mapped.
pub(crate) fn check_items(items: Option<&[KeyToPath]>, at: &str, faults: &mut FieldErrors) {
    for (index, item) in items.into_iter().flatten().enumerate() {
        check_item(item, &format!("{at}[{index}]"), faults);
    }
}

/// Validates the file to which a key is mapped.
pub(crate) fn check_item(item: &KeyToPath, at: &str, faults: &mut FieldErrors) {
    check_given(&format!("{at}.key"), &item.key, faults);
    let path_at = format!("{at}.path");
    check_given(&path_at, &item.path, faults);
    check_local(&path_at, &item.path, faults);
    check_mode(&format!("{at}.mode"), item.mode, faults);
}

fn check_host_path(one: &HostPathVolumeSource, at: &str, faults: &mut FieldErrors) {
    let path_at = format!("{at}.path");
    if !check_given(&path_at, &one.path, faults) {
        return;
    }
    check_backsteps(&path_at, &one.path, faults);
    let all = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    check_one_of(format!("{at}.type"), one.type_.as_ref(), &all, faults);
}

fn check_csi(one: &CSIVolumeSource, at: &str, faults: &mut FieldErrors) {
    let driver_at = format!("{at}.driver");
    if check_given(&driver_at, &one.driver, faults) {
        if one.driver.len() > 63 {
            faults.push(FieldError::too_long(&*driver_at, 63));
        }
        let check = |name: &str| NameRule::Dns1123Subdomain.check(&name.to_lowercase());
        check_with(&driver_at, &one.driver, check, faults);
    }
    let Some(secret) = &one.node_publish_secret_ref else { return };
    if check_given(&format!("{at}.nodePublishSecretRef.name"), &secret.name, faults) {
        let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
        check_with(&format!("{at}.name"), &secret.name, check, faults);
    }
}

/// Checks the metadata of a template, which may have labels and annotations alone.
pub(crate) fn check_template_metadata(metadata: &ObjectMeta, at: &str, faults: &mut FieldErrors) {
    let annotations = metadata.annotations.iter().flatten();
    for (key, _) in annotations {
        let check = |key: &str| names::check_label_key(&key.to_lowercase());
        check_with(&format!("{at}.annotations"), key, check, faults);
    }
    label_selector::check_labels(metadata.labels.as_ref(), &format!("{at}.labels"), faults);
    for (field, is_given) in [
        ("name", metadata.name.is_some()),
        ("generateName", metadata.generate_name.is_some()),
        ("namespace", metadata.namespace.is_some()),
        ("selfLink", metadata.self_link.is_some()),
        ("uID", metadata.uid.is_some()),
        ("resourceVersion", metadata.resource_version.is_some()),
        ("generation", metadata.generation.is_some()),
        ("creationTimestamp", metadata.creation_timestamp.is_some()),
        ("deletionTimestamp", metadata.deletion_timestamp.is_some()),
        ("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds.is_some()),
        ("ownerReferences", metadata.owner_references.is_some()),
        ("finalizers", metadata.finalizers.is_some()),
        ("managedFields", metadata.managed_fields.is_some()),
    ] {
        if is_given {
            faults.push(FieldError::forbidden(format!("{at}.{field}"), "cannot be set"));
        }
    }
}

fn check_ephemeral(one: &EphemeralVolumeSource, at: &str, faults: &mut FieldErrors) {
    let Some(template) = &one.volume_claim_template else {
        return faults.push(FieldError::required(at, ""));
    };
    if let Some(metadata) = &template.metadata {
        check_template_metadata(metadata, &format!("{at}.metadata"), faults);
    }
    persistent_volume_claim::validate_spec(Some(&template.spec), &format!("{at}.spec"), faults);
}
