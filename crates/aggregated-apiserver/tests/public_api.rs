//! The public items of the crates, as `public-api.txt` lists them: a change of the Rust API shows in a review.
//!
//! `BLESS=1 cargo test -p aggregated-apiserver --test public_api` writes the lists.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "public_api/items.rs"]
mod items;
#[path = "public_api/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};

/// The crates whose API other programs use.
const CRATES: [&str; 8] = [
    "aggregated-apiserver",
    "kubernetes-apply",
    "kubernetes-cel",
    "kubernetes-objects",
    "kubernetes-schema",
    "kubernetes-storage",
    "kubernetes-streams",
    "standalone-apiserver",
];

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
}

#[test]
fn public_items_are_listed() {
    let mut outdated = Vec::new();
    for name in CRATES {
        let listing = items::listing(&sources::read(&directory(name).join("src")));
        assert!(listing.lines().count() > 3, "{name}: {listing}");
        let file = directory(name).join("public-api.txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, &listing).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != listing {
            outdated.push(name);
        }
    }
    assert!(
        outdated.is_empty(),
        "public-api.txt of {outdated:?} is out of date: BLESS=1 cargo test --test public_api"
    );
}
