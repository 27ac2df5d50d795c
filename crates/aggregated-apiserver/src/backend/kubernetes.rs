//! Backends whose objects are objects of another API server, which they reach with `kube`.

use std::fmt;
use std::future::ready;

use futures::{Stream, TryStreamExt};
use kube::Resource;
use kube::runtime::watcher::Event;

use super::{BackendError, Change, Item, Listing, Reason};

/// Returns the events of a `kube` watcher as the stream of [`Watch::watch`](super::Watch::watch). `item` returns the object
/// of the kind for an object of the watcher.
///
/// ```
/// use aggregated_apiserver::backend::{BackendError, Change, Item, watcher_changes};
/// use futures::Stream;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::runtime::watcher;
/// # fn watch(maps: kube::Api<ConfigMap>) -> impl Stream<Item = Result<Change<ConfigMap>, BackendError>> {
/// watcher_changes(watcher(maps, watcher::Config::default()), Item::new)
/// # }
/// ```
pub fn watcher_changes<K: Send, T: Resource + Send, E: fmt::Display + Send>(
    events: impl Stream<Item = Result<Event<K>, E>> + Send,
    item: impl Fn(K) -> Item<T> + Send,
) -> impl Stream<Item = Result<Change<T>, BackendError>> + Send {
    let mut listed = Vec::new();
    events.map_err(BackendError::internal_from).try_filter_map(move |event| {
        let change = match event {
            Event::Init => {
                listed.clear();
                None
            }
            Event::InitApply(object) => {
                listed.push(item(object));
                None
            }
            Event::InitDone => {
                Some(Change::Restarted(Listing::complete(std::mem::take(&mut listed))))
            }
            Event::Apply(object) => Some(Change::Applied(item(object))),
            Event::Delete(object) => {
                let deleted = item(object).object;
                let name = deleted.meta().name.clone().unwrap_or_default();
                Some(Change::Deleted { namespace: deleted.meta().namespace.clone(), name })
            }
        };
        ready(Ok(change))
    })
}

/// Errors of another API server. Clients receive its reason and its message if it has rejected the object: its quota, its
/// admission plugins, or the size of the object.
impl From<kube::Error> for BackendError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else { return Self::internal_from(error) };
        let message = status.message.clone();
        match (status.code, status.reason.as_str()) {
            (404, _) => Self::NotFound,
            (409, "AlreadyExists") => Self::AlreadyExists,
            (409, _) => Self::Conflict,
            (429 | 503, _) => Self::Unavailable(message),
            // The server itself is not authenticated, which its clients cannot change.
            (401 | 408, _) => Self::Internal(message),
            (400..500, _) => Self::rejected(Reason::of_code(status.code), message),
            _ => Self::Internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::api::ObjectMeta;
    use kube::core::Status;

    use super::*;

    fn map(name: &str) -> ConfigMap {
        let (name, namespace) = (Some(name.to_owned()), Some("n".to_owned()));
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[tokio::test]
    async fn events_of_a_watcher_are_changes() {
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(map("lost"))),
            // The list was interrupted, and has begun again.
            Ok(Event::Init),
            Ok(Event::InitApply(map("a"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(map("b"))),
            Ok(Event::Delete(map("a"))),
            Err("expired"),
        ];
        let changes: Vec<_> =
            watcher_changes(futures::stream::iter(events), Item::new).collect().await;
        let shown = |change: &Result<Change<ConfigMap>, BackendError>| match change {
            Ok(Change::Restarted(listing)) => {
                let names: Vec<_> =
                    listing.items.iter().map(|item| item.object.name_any()).collect();
                format!("{names:?} {}", listing.is_complete)
            }
            Ok(Change::Applied(item)) => format!("+{}", item.object.name_any()),
            Ok(Change::Deleted { namespace, name }) => format!("-{namespace:?}/{name}"),
            Err(error) => error.to_string(),
        };
        let shown: Vec<String> = changes.iter().map(shown).collect();
        assert_eq!(shown, ["[\"a\"] true", "+b", "-Some(\"n\")/a", "expired"]);
    }

    #[test]
    fn errors_of_another_server_keep_their_reason() {
        let rows = [
            (404, "NotFound", "there is no object of this name"),
            (409, "AlreadyExists", "an object of this name exists"),
            (409, "Conflict", "the object was changed"),
            (403, "Forbidden", "Rejected { reason: Forbidden, message: \"why\" }"),
            (413, "RequestEntityTooLarge", "reason: RequestEntityTooLarge"),
            (422, "Invalid", "Rejected { reason: Invalid, message: \"why\" }"),
            (401, "Unauthorized", "Internal(\"why\")"),
            (429, "TooManyRequests", "Unavailable(\"why\")"),
            (503, "ServiceUnavailable", "Unavailable(\"why\")"),
            (500, "InternalError", "Internal(\"why\")"),
            (504, "Timeout", "Internal(\"why\")"),
        ];
        for (code, reason, expected) in rows {
            let status = Status::failure("why", reason).with_code(code);
            let error = BackendError::from(kube::Error::Api(Box::new(status)));
            let shown = format!("{error:?} {error}");
            assert!(shown.contains(expected), "{code} {reason}: {shown}");
        }
    }
}
