//! Warnings about files in the same volume whose paths overlap.

use std::fmt;

use k8s_openapi::api::core::v1::{KeyToPath, PodSpec, Volume, VolumeProjection};

use super::LIMIT;
use crate::built_in::checks::quote;

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
struct File {
    /// The path, with a trailing slash.
    path: String,
    /// The source of the file; empty if all files are from one source.
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self { path: format!("{}/", path.trim_end_matches('/')), source: source.to_owned() }
    }

    /// Whether a path equals that of the other file, or is a directory that contains it.
    fn overlaps(&self, other: &Self) -> bool {
        let (one, other) = (self.path.as_str(), other.path.as_str());
        one != "/" && other != "/" && (one.starts_with(other) || other.starts_with(one))
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = quote(self.path.strip_suffix('/').unwrap_or(&self.path));
        match self.source.as_str() {
            "" => f.write_str(&path),
            source => write!(f, "{path} ({source})"),
        }
    }
}

/// Warnings about all volumes.
pub(super) fn of_volumes(spec: &PodSpec, warnings: &mut Vec<String>) {
    for volume in spec.volumes.iter().flatten() {
        of_volume(volume, warnings);
    }
}

fn of_volume(volume: &Volume, warnings: &mut Vec<String>) {
    let items = |items: &[KeyToPath]| -> Vec<File> {
        items.iter().map(|item| File::new(&item.path, "")).collect()
    };
    if let Some(map) = &volume.config_map {
        let of = format!("ConfigMap {}", quote(&map.name));
        warn(volume, &of, &items(map.items.as_deref().unwrap_or_default()), warnings);
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let of = format!("Secret {}", quote(name));
        warn(volume, &of, &items(secret.items.as_deref().unwrap_or_default()), warnings);
    }
    if let Some(fields) = &volume.downward_api {
        let files = fields.items.iter().flatten().map(|file| File::new(&file.path, ""));
        warn(volume, "DownwardAPI", &files.collect::<Vec<_>>(), warnings);
    }
    if let Some(projected) = &volume.projected {
        let sources = projected.sources.as_deref().unwrap_or_default();
        for _ in sources.iter().filter(|source| **source == VolumeProjection::default()) {
            let name = quote(&volume.name);
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
        }
        let files: Vec<File> = sources.iter().flat_map(of_source).collect();
        warn(volume, "Projected", &files, warnings);
    }
}

/// The files of a source of a projected volume.
fn of_source(source: &VolumeProjection) -> Vec<File> {
    if let Some(items) = source.config_map.as_ref().and_then(|one| one.items.as_ref()) {
        let name = source.config_map.as_ref().map(|one| one.name.as_str()).unwrap_or_default();
        let of = format!("ConfigMap {}", quote(name));
        return items.iter().map(|item| File::new(&item.path, &of)).collect();
    }
    if let Some(items) = source.secret.as_ref().and_then(|one| one.items.as_ref()) {
        let name = source.secret.as_ref().map(|one| one.name.as_str()).unwrap_or_default();
        let of = format!("Secret {}", quote(name));
        return items.iter().map(|item| File::new(&item.path, &of)).collect();
    }
    if let Some(items) = source.downward_api.as_ref().and_then(|one| one.items.as_ref()) {
        return items.iter().map(|file| File::new(&file.path, "DownwardAPI")).collect();
    }
    let token = source.service_account_token.as_ref();
    token.map(|token| File::new(&token.path, "ServiceAccountToken")).into_iter().collect()
}

/// Warns about each pair of overlapping files.
fn warn(volume: &Volume, of: &str, files: &[File], warnings: &mut Vec<String>) {
    for (index, file) in files.iter().enumerate() {
        for before in files[..index].iter().filter(|before| before.overlaps(file)) {
            if warnings.len() >= LIMIT {
                return;
            }
            let name = quote(&volume.name);
            warnings.push(format!("volume {name} ({of}): overlapping paths: {file} with {before}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (one, other, is_overlap) in [
            ("a", "a", true),
            ("a", "a/b", true),
            ("a/b/", "a", true),
            ("a", "ab", false),
            ("", "a", false),
        ] {
            let overlaps = File::new(one, "").overlaps(&File::new(other, "x"));
            assert_eq!(overlaps, is_overlap, "{one} {other}");
        }
    }
}
