//! The changes of looked-up objects: they update the indexes and sums, and invalidate the affected queries.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::Instant;

use super::availability::Availability;
use super::{Followed, Lookup, LookupOptions, State};
use crate::cluster::{SourceOptions, SourceType, resource_name};

impl<K: SourceType, S: LookupOptions> Lookup<K, S> {
    /// Processes the changes for all computations that share this lookup. Returns when to do so again at the latest.
    pub(super) fn process_changes(
        &self,
        followed: &Followed<K>,
        state: &mut State<K>,
    ) -> Option<Instant> {
        let Followed { informer, changed, opened, .. } = followed;
        let State { availability, indexed, queries, processed_at, .. } = &mut *state;
        let (now, mut paced_until) = (Instant::now(), None);
        let is_measured = S::OPTIONS.is_measured();
        let postponed_until = postponed_until(S::OPTIONS, *processed_at, now);
        // A change of availability is never delayed.
        let is_available =
            || Availability::at(now, &informer.status(), *opened).0 == Availability::Available;
        let taken = match postponed_until {
            Some(time) if *availability == Availability::Available && is_available() => {
                paced_until = (!changed.is_empty()).then_some(time);
                None
            }
            _ => Some(informer.take(changed)),
        };
        if taken.as_ref().is_some_and(|taken| !taken.keys.is_empty()) {
            *processed_at = Some(now);
        }
        let status = match &taken {
            Some(taken) => taken.status.clone(),
            None => informer.status(),
        };
        let (is, until) = Availability::at(now, &status, *opened);
        if std::mem::replace(availability, is) != is {
            // Every result may have changed.
            queries.invalidate_all(false);
            *indexed = None;
        } else if is == Availability::Available {
            for key in taken.iter().flat_map(|taken| &taken.keys) {
                queries.invalidate_named(key, is_measured);
                let Some((objects, taken)) = indexed.as_mut().zip(taken.as_ref()) else {
                    continue;
                };
                // Indexes and sums are the user's code, which may panic.
                let replace = || objects.apply_change(key, &taken.objects);
                match catch_unwind(AssertUnwindSafe(replace)) {
                    Ok(change) => queries.invalidate_changed(key, &change, is_measured),
                    Err(_) => {
                        let what = resource_name::<K>();
                        tracing::error!(
                            source = %what,
                            object = %key,
                            "panic in an index or a sum; the objects that use it are computed \
                             again"
                        );
                        queries.invalidate_all(is_measured);
                        *indexed = None;
                    }
                }
            }
            if let Some((sharing, taken)) = indexed.as_mut().zip(taken) {
                sharing.share_objects(taken.objects);
            }
            if let Some(joining) = indexed {
                let join = || {
                    joining.join(|key, is_measured, group| {
                        queries.invalidate_sum(key, group, is_measured);
                    });
                };
                if catch_unwind(AssertUnwindSafe(join)).is_err() {
                    let what = resource_name::<K>();
                    tracing::error!(source = %what, "panic in a sum over pairs");
                    queries.invalidate_all(false);
                    *indexed = None;
                }
            }
        }
        self.charge(state);
        until.into_iter().chain(paced_until).min()
    }
}

/// Until when the changes of a scope are not processed.
fn postponed_until(
    scope: SourceOptions,
    processed_at: Option<Instant>,
    now: Instant,
) -> Option<Instant> {
    let time = processed_at? + scope.pace()?;
    (now < time).then_some(time)
}
