//! The checks of the restricted level.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use super::baseline::{added_capabilities, is_seccomp_allowed, seccomp_of, seccomp_of_pod};
use super::checks::{Violation, containers, plural, quoted, setters, violation};
use super::view::PodView;

pub(super) fn escalation(pod: &PodView<'_>) -> Option<Violation> {
    let bad = pod.containers_that(|container| {
        let allows = container.security.and_then(|context| context.allow_privilege_escalation);
        allows != Some(false)
    });
    if bad.is_empty() {
        return None;
    }
    let bad = containers(&bad);
    violation(
        "allowPrivilegeEscalation != false",
        format!("{bad} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

pub(super) fn escalation_1_25(pod: &PodView<'_>) -> Option<Violation> {
    if pod.is_for_windows() { None } else { escalation(pod) }
}

pub(super) fn capabilities(pod: &PodView<'_>) -> Option<Violation> {
    let keeping = pod.containers_that(|container| {
        let capabilities = container.security.and_then(|context| context.capabilities.as_ref());
        let dropped = capabilities.and_then(|capabilities| capabilities.drop.as_deref());
        !dropped.unwrap_or_default().iter().any(|dropped| dropped == "ALL")
    });
    let mut forbidden = BTreeSet::new();
    let adding = pod.containers_that(|container| {
        let added = added_capabilities(container);
        let mut added = added.filter(|one| *one != "NET_BIND_SERVICE").peekable();
        let is_adding = added.peek().is_some();
        forbidden.extend(added);
        is_adding
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let keeping = containers(&keeping);
        details.push(format!("{keeping} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        let (adding, forbidden) = (containers(&adding), quoted(&forbidden));
        details.push(format!(
            "{adding} must not include {forbidden} in securityContext.capabilities.add"
        ));
    }
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

pub(super) fn capabilities_1_25(pod: &PodView<'_>) -> Option<Violation> {
    if pod.is_for_windows() { None } else { capabilities(pod) }
}

pub(super) fn volumes(pod: &PodView<'_>) -> Option<Violation> {
    let volumes = pod.spec.volumes.iter().flatten().filter(|volume| !is_allowed(volume));
    let volumes: Vec<&Volume> = volumes.collect();
    if volumes.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = volumes.iter().map(|volume| type_of(volume)).collect();
    let names = quoted(volumes.iter().map(|volume| &volume.name));
    let word = plural("volume", "volumes", volumes.len());
    let uses = plural("uses", "use", volumes.len());
    let of_types = plural("restricted volume type", "restricted volume types", types.len());
    violation(
        "restricted volume types",
        format!("{word} {names} {uses} {of_types} {}", quoted(&types)),
    )
}

fn is_allowed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.csi.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some()
}

fn type_of(volume: &Volume) -> &'static str {
    let types = [
        (volume.host_path.is_some(), "hostPath"),
        (volume.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (volume.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (volume.git_repo.is_some(), "gitRepo"),
        (volume.nfs.is_some(), "nfs"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.glusterfs.is_some(), "glusterfs"),
        (volume.rbd.is_some(), "rbd"),
        (volume.flex_volume.is_some(), "flexVolume"),
        (volume.cinder.is_some(), "cinder"),
        (volume.cephfs.is_some(), "cephfs"),
        (volume.flocker.is_some(), "flocker"),
        (volume.fc.is_some(), "fc"),
        (volume.azure_file.is_some(), "azureFile"),
        (volume.vsphere_volume.is_some(), "vsphereVolume"),
        (volume.quobyte.is_some(), "quobyte"),
        (volume.azure_disk.is_some(), "azureDisk"),
        (volume.photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (volume.portworx_volume.is_some(), "portworxVolume"),
        (volume.scale_io.is_some(), "scaleIO"),
        (volume.storageos.is_some(), "storageos"),
    ];
    let is_set = types.into_iter().find(|(is_set, _)| *is_set);
    is_set.map_or("unknown", |(_, name)| name)
}

pub(super) fn non_root(pod: &PodView<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of_pod = pod.security.and_then(|context| context.run_as_non_root);
    let bad = pod.containers_that(|container| {
        container.security.and_then(|context| context.run_as_non_root) == Some(false)
    });
    if let Some(setters) = setters(of_pod == Some(false), &bad) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return violation(REASON, detail);
    }
    if of_pod == Some(true) {
        return None;
    }
    let silent = pod.containers_that(|container| {
        container.security.and_then(|context| context.run_as_non_root).is_none()
    });
    if silent.is_empty() {
        return None;
    }
    let silent = containers(&silent);
    violation(REASON, format!("pod or {silent} must set securityContext.runAsNonRoot=true"))
}

pub(super) fn non_root_1_35(pod: &PodView<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { non_root(pod) }
}

pub(super) fn user(pod: &PodView<'_>) -> Option<Violation> {
    let by_pod = pod.security.and_then(|context| context.run_as_user) == Some(0);
    let bad = pod.containers_that(|container| {
        container.security.and_then(|context| context.run_as_user) == Some(0)
    });
    let setters = setters(by_pod, &bad)?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

pub(super) fn user_1_35(pod: &PodView<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { user(pod) }
}

pub(super) fn seccomp(pod: &PodView<'_>) -> Option<Violation> {
    let bad = super::baseline::seccomp(pod);
    if bad.is_some() || seccomp_of_pod(pod).is_some_and(is_seccomp_allowed) {
        return bad;
    }
    let silent = pod.containers_that(|container| seccomp_of(container).is_none());
    if silent.is_empty() {
        return None;
    }
    let silent = containers(&silent);
    violation(
        "seccompProfile",
        format!(
            "pod or {silent} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        ),
    )
}

pub(super) fn seccomp_1_25(pod: &PodView<'_>) -> Option<Violation> {
    if pod.is_for_windows() { None } else { seccomp(pod) }
}
