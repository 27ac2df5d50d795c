//! Files of projected volumes and of downward API volumes.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, ServiceAccountTokenProjection,
    VolumeProjection,
};

use super::environment::{FIELDS_OF_VOLUMES, check_amount, check_field};
use super::paths::{check_local, check_mode};
use super::scope::Scope;
use super::volume_sources::check_item;
use crate::built_in::checks::{FieldErrors, check_given, quote};

/// The shortest validity of a token, in seconds.
const SHORTEST: i64 = 10 * 60;
/// The longest validity of a token, in seconds.
const LONGEST: i64 = 1 << 32;

/// Validates a projected volume.
pub(crate) fn validate(
    projected: &ProjectedVolumeSource,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_mode(&format!("{at}.defaultMode"), projected.default_mode, faults);
    let mut paths = BTreeSet::new();
    for (index, source) in projected.sources.iter().flatten().enumerate() {
        let source_at = format!("{at}.sources[{index}]");
        check_source(source, scope, at, &source_at, &mut paths, faults);
        let count = [
            source.secret.is_some(),
            source.config_map.is_some(),
            source.downward_api.is_some(),
            source.service_account_token.is_some(),
            source.cluster_trust_bundle.is_some(),
            source.pod_certificate.is_some(),
        ];
        if count.into_iter().filter(|is_there| *is_there).count() > 1 {
            let why = "may not specify more than 1 volume type per source";
            faults.push(FieldError::forbidden(source_at, why));
        }
    }
}

fn check_source<'a>(
    source: &'a VolumeProjection,
    scope: &Scope<'_>,
    at: &str,
    source_at: &str,
    paths: &mut BTreeSet<&'a str>,
    faults: &mut FieldErrors,
) {
    let maps = [
        ("secret", source.secret.as_ref().map(|one| (&one.name, one.items.as_deref()))),
        ("configMap", source.config_map.as_ref().map(|one| (&one.name, one.items.as_deref()))),
    ];
    for (field, map) in maps {
        let Some((name, items)) = map else { continue };
        let own_at = format!("{source_at}.{field}");
        check_given(&format!("{own_at}.name"), name, faults);
        let items: &'a [KeyToPath] = items.unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            check_item(item, &format!("{own_at}.items[{index}]"), faults);
            take(&item.path, name, at, paths, faults);
        }
    }
    if let Some(fields) = &source.downward_api {
        for file in fields.items.iter().flatten() {
            check_file(file, &format!("{source_at}.downwardAPI"), faults);
            take(&file.path, &file.path, at, paths, faults);
        }
    }
    if let Some(token) = &source.service_account_token {
        check_token(token, scope, at, &format!("{source_at}.serviceAccountToken"), faults);
    }
}

/// Records the path of a file. An error about a duplicate path has the path of the volume, with the name of the source.
fn take<'a>(
    path: &'a str,
    shown: &str,
    at: &str,
    paths: &mut BTreeSet<&'a str>,
    faults: &mut FieldErrors,
) {
    if !path.is_empty() && !paths.insert(path) {
        faults.push(FieldError::invalid(at, quote(shown), "conflicting duplicate paths"));
    }
}

/// Validates a token. Errors about its path have the path of the volume.
fn check_token(
    token: &ServiceAccountTokenProjection,
    scope: &Scope<'_>,
    at: &str,
    own_at: &str,
    faults: &mut FieldErrors,
) {
    let seconds = token.expiration_seconds.unwrap_or(0);
    let why = if seconds < SHORTEST {
        Some("may not specify a duration less than 10 minutes")
    } else if seconds > LONGEST {
        Some("may not specify a duration larger than 2^32 seconds")
    } else {
        None
    };
    if let Some(why) = why {
        faults.push(FieldError::invalid(format!("{own_at}.expirationSeconds"), seconds, why));
    }
    let path_at = format!("{at}.path");
    if check_given(&path_at, &token.path, faults) && !scope.allowed.token_paths {
        check_local(&path_at, &token.path, faults);
    }
}

/// Validates a file with a field of the Pod or a resource of a container.
pub(crate) fn check_file(file: &DownwardAPIVolumeFile, at: &str, faults: &mut FieldErrors) {
    let path_at = format!("{at}.path");
    check_given(&path_at, &file.path, faults);
    check_local(&path_at, &file.path, faults);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), amount) => {
            check_field(field, &FIELDS_OF_VOLUMES, &format!("{at}.fieldRef"), faults);
            if amount.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                faults.push(FieldError::invalid(at, quote("resource"), why));
            }
        }
        (None, Some(amount)) => {
            check_amount(amount, true, &format!("{at}.resourceFieldRef"), faults);
        }
        (None, None) => {
            let why = "one of fieldRef and resourceFieldRef is required";
            faults.push(FieldError::required(at, why));
        }
    }
    check_mode(&format!("{at}.mode"), file.mode, faults);
}
