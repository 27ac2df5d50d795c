//! VolumeAttributesClasses: a class is used by the claims and volumes that have its attributes, or will have them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{CLASS_FINALIZER, Class, Failed, PAGE, Waiting, release};

/// Releases the classes that neither a claim nor a volume uses.
pub(super) async fn release_unused(
    client: &Client,
    waiting: &mut Waiting<Class>,
    failed: &mut Failed,
) {
    let due = waiting.iter().filter(|(uid, _)| !failed.contains(*uid));
    let due: Vec<(String, Class)> = due.map(|(uid, class)| (uid.clone(), class.clone())).collect();
    if due.is_empty() {
        return;
    }
    let used = match used(client).await {
        Ok(used) => used,
        Err(error) => {
            tracing::debug!("claims and volumes: {error}");
            return failed.extend(due.into_iter().map(|(uid, _)| uid));
        }
    };
    let api: Api<VolumeAttributesClass> = Api::all(client.clone());
    for (uid, class) in due {
        if used.contains(&class.name_any()) {
            continue;
        }
        if release(&api, &class, CLASS_FINALIZER).await {
            waiting.remove(&uid);
        } else {
            failed.insert(uid);
        }
    }
}

/// The names of the classes that claims and volumes use.
///
/// # Errors
/// The reason, if claims or volumes cannot be listed.
async fn used(client: &Client) -> kube::Result<BTreeSet<String>> {
    let mut used = BTreeSet::new();
    for_each(client, |volume: PersistentVolume| {
        used.extend(volume.spec.and_then(|spec| spec.volume_attributes_class_name));
    })
    .await?;
    for_each(client, |claim: PersistentVolumeClaim| {
        used.extend(claim.spec.and_then(|spec| spec.volume_attributes_class_name));
        let Some(status) = claim.status else { return };
        used.extend(status.current_volume_attributes_class_name);
        let change = status.modify_volume_status;
        used.extend(change.and_then(|change| change.target_volume_attributes_class_name));
    })
    .await?;
    Ok(used)
}

/// Calls a function with each object of a type.
async fn for_each<K>(client: &Client, mut call: impl FnMut(K)) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = api.list(&page).await?;
        found.items.into_iter().for_each(&mut call);
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
