//! The served kinds at a moment, the documents about them, and their metrics.

use crate::conversion::{self, ConversionWebhooks};
use crate::discovery::Discovery;
use crate::openapi::OpenApi;
use crate::record::{CallTimes, ConvertedCalls, EndedCalls, KeptKind, Observed, SourceInView};
use crate::served_kind::{Backing, ServedKind, ServedKinds};
use crate::watch_cache::SourceState;

/// The served kinds at a moment, and the documents about them.
pub struct Served {
    pub kinds: ServedKinds,
    pub discovery: Discovery,
    pub openapi: OpenApi,
}

impl Served {
    /// Creates the state with these kinds, and builds the documents about them.
    pub fn new(kinds: ServedKinds) -> Self {
        let discovery = Discovery::new(&kinds);
        let openapi = OpenApi::new(&kinds);
        Self { kinds, discovery, openapi }
    }

    /// The states of the sources of all kinds, one for each source. If some parts of a source are synced and others are
    /// not, the state is that of a part that is not synced.
    pub fn sources(&self) -> Vec<SourceState> {
        SourceState::each_once(self.kinds.iter().flat_map(|served| served.cache.sources()))
    }
}

/// The values of the metrics of the served kinds.
pub fn observed(
    served: &Served,
    webhooks: &ConversionWebhooks,
    inflight: (usize, usize),
) -> Observed {
    // A view contains the objects of another kind.
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

/// The values of the metrics of a source; `None` if the cluster does not serve it and does not have to, because an
/// alert would never end.
fn in_view(source: &SourceState) -> Option<SourceInView> {
    (!source.is_rightly_absent).then(|| SourceInView {
        resource: source.resource.clone(),
        is_in_view: source.is_in_view(),
        age: source.age(),
    })
}

/// The values of the metrics of webhook calls.
fn ended(calls: conversion::WebhookCalls) -> EndedCalls {
    let conversion::WebhookCalls { result, failure_type, times } = calls;
    EndedCalls { result, failure_type, times: took(times) }
}

/// The values of the metrics of webhook calls, by the converted definition.
fn converted((what, times): (conversion::Converted, conversion::CallTimes)) -> ConvertedCalls {
    let conversion::Converted { definition, from, to, succeeded } = what;
    ConvertedCalls { definition, from, to, succeeded, times: took(times) }
}

fn took(conversion::CallTimes { buckets, seconds }: conversion::CallTimes) -> CallTimes {
    CallTimes { buckets, seconds }
}
