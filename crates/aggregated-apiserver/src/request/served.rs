//! What is served at a moment, what is said about it, and what the metrics tell of it.

use crate::conversion::{self, ConversionWebhooks};
use crate::discovery::Discovery;
use crate::openapi::OpenApi;
use crate::record::{CallTimes, ConvertedCalls, EndedCalls, KeptKind, Observed, SourceInView};
use crate::served_kind::{Backing, ServedKind, ServedKinds};
use crate::watch_cache::SourceState;

/// What is served at a moment, and what is said about it.
pub struct Served {
    pub kinds: ServedKinds,
    pub discovery: Discovery,
    pub openapi: OpenApi,
}

impl Served {
    /// These kinds, and the documents about them.
    pub fn new(kinds: ServedKinds) -> Self {
        let discovery = Discovery::new(&kinds);
        let openapi = OpenApi::new(&kinds);
        Self { kinds, discovery, openapi }
    }

    /// The state of the sources that kinds are computed from, each once: the worst, where some of
    /// it is in view and some is not.
    pub fn sources(&self) -> Vec<SourceState> {
        SourceState::each_once(self.kinds.iter().flat_map(|served| served.cache.sources()))
    }
}

/// What the metrics say of what is served.
pub fn observed(
    served: &Served,
    webhooks: &ConversionWebhooks,
    inflight: (usize, usize),
) -> Observed {
    // A view shows the objects of another kind.
    let kept = served
        .kinds
        .iter()
        .filter(|one| one.kind.view.is_none() && !matches!(one.backing, Backing::Reviewed(_)));
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
    let mut stores = served.kinds.iter().filter_map(ServedKind::store);
    let store = stores.next().map(|(store, _)| store);
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

/// What the metrics say of a source; nothing, if the cluster does not have it, as clusters may: an alert would
/// never end.
fn in_view(source: &SourceState) -> Option<SourceInView> {
    (!source.is_rightly_absent).then(|| SourceInView {
        resource: source.resource.clone(),
        is_in_view: source.is_in_view(),
        age: source.age(),
    })
}

/// What the metrics say of calls of webhooks.
fn ended(calls: conversion::WebhookCalls) -> EndedCalls {
    let conversion::WebhookCalls { result, failure_type, times } = calls;
    EndedCalls { result, failure_type, times: took(times) }
}

/// The same, by what they converted.
fn converted((what, times): (conversion::Converted, conversion::CallTimes)) -> ConvertedCalls {
    let conversion::Converted { definition, from, to, succeeded } = what;
    ConvertedCalls { definition, from, to, succeeded, times: took(times) }
}

fn took(conversion::CallTimes { buckets, seconds }: conversion::CallTimes) -> CallTimes {
    CallTimes { buckets, seconds }
}
