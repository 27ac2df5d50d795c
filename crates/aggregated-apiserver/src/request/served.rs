//! The kinds that are served at one time, with their documents and metrics.

use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;

use crate::conversion::{self, ConversionWebhooks};
use crate::discovery::Discovery;
use crate::openapi::{ChangeDocument, OpenApi};
use crate::record::{CallTimes, ConvertedCalls, EndedCalls, KeptKind, Observed, SourceInView};
use crate::served_kind::{Backing, ServedKinds};
use crate::watch_cache::SourceState;

/// The kinds that are served at one time, with their discovery and OpenAPI documents.
pub struct Served {
    pub kinds: ServedKinds,
    discovery: ArcSwap<Discovery>,
    pub openapi: OpenApi,
}

impl Served {
    /// Generates the documents of these kinds. The program may change the OpenAPI documents. `former` are the documents
    /// that these documents replace.
    pub fn new(
        kinds: ServedKinds,
        change: Option<ChangeDocument>,
        former: Option<&Discovery>,
    ) -> Self {
        let discovery = ArcSwap::from_pointee(Discovery::new(&kinds, listed(&kinds, former)));
        let openapi = OpenApi::new(&kinds, change);
        Self { kinds, discovery, openapi }
    }

    /// The discovery documents. They are generated again if a group version has other resources now.
    pub fn discovery(&self) -> Arc<Discovery> {
        let known = self.discovery.load_full();
        if self.kinds.group_versions().is_empty() {
            return known;
        }
        let listed = listed(&self.kinds, Some(&known));
        if listed == known.listed() {
            return known;
        }
        let discovery = Arc::new(Discovery::new(&self.kinds, listed));
        self.discovery.store(Arc::clone(&discovery));
        discovery
    }

    /// The discovery documents that were generated last.
    pub fn known_discovery(&self) -> Arc<Discovery> {
        self.discovery.load_full()
    }

    /// The state of the sources of computed kinds, one entry per source. If only a part of a source is synced, the
    /// entry has the worst state.
    pub fn sources(&self) -> Vec<SourceState> {
        SourceState::each_once(self.kinds.iter().flat_map(|served| served.cache.sources()))
    }
}

/// The resources that each group version lists. If its function panics, the known resources stay.
fn listed(kinds: &ServedKinds, known: Option<&Discovery>) -> Vec<Vec<APIResource>> {
    let all = kinds.group_versions().iter().enumerate().map(|(place, served)| {
        let before = || known.and_then(|known| known.listed().get(place).cloned());
        served.paths.resources().or_else(before).unwrap_or_default()
    });
    all.collect()
}

/// The values of metrics about the served kinds.
pub fn observed(
    served: &Served,
    webhooks: &ConversionWebhooks,
    inflight: (usize, usize),
) -> Observed {
    // A view shows the objects of another kind.
    let kept = served.kinds.iter().filter(|one| one.kind.view.is_none()).filter(|one| {
        !matches!(one.backing, Backing::Direct(_) | Backing::Reviewed(_) | Backing::Elsewhere)
    });
    let kinds = kept.map(|one| {
        let extent = one.cache.extent();
        KeptKind {
            group: one.kind.group.clone(),
            resource: one.kind.names.plural.clone(),
            is_synced: one.cache.is_synced(),
            objects: extent.objects,
            bytes: extent.bytes,
            revision: extent.revision.number(),
            window: extent.window,
            window_bytes: extent.window_bytes,
            window_age: extent.window_age,
        }
    });
    let store = served.kinds.iter().find_map(|one| match &one.backing {
        Backing::Stored(store) => Some(store),
        _ => None,
    });
    Observed {
        inflight,
        sources: served.sources().iter().filter_map(in_view).collect(),
        kinds: kinds.collect(),
        store: store.and_then(|store| store.extent()),
        behind: store.map_or(0, |store| store.behind()),
        conversions: webhooks.outcomes().into_iter().map(ended).collect(),
        converted: webhooks.definitions().into_iter().map(converted).collect(),
    }
}

/// The metrics of a source; `None` if the cluster does not have an optional source, because an alert on its metrics
/// would never end.
fn in_view(source: &SourceState) -> Option<SourceInView> {
    (!source.is_rightly_absent).then(|| SourceInView {
        resource: source.resource.clone(),
        is_in_view: source.is_in_view(),
        age: source.age(),
    })
}

/// The metrics of webhook calls, by result.
fn ended(calls: conversion::WebhookCalls) -> EndedCalls {
    let conversion::WebhookCalls { result, failure_type, times } = calls;
    EndedCalls { result, failure_type, times: took(times) }
}

/// The metrics of webhook calls, by definition and versions.
fn converted((what, times): (conversion::Converted, conversion::CallTimes)) -> ConvertedCalls {
    let conversion::Converted { definition, from, to, succeeded } = what;
    ConvertedCalls { definition, from, to, succeeded, times: took(times) }
}

fn took(conversion::CallTimes { buckets, seconds }: conversion::CallTimes) -> CallTimes {
    CallTimes { buckets, seconds }
}
