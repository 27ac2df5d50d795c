//! Lists and watches the objects of one type with little memory: a page has a limited number of bytes, and its objects
//! are decoded one at a time.
//!
//! kube's `watcher` limits a page by the number of objects, however large they are. It also reads a page three times
//! before the first object is available, and logs pages that it cannot read.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::{ListMeta, ListParams, WatchParams};
use kube::client::Body;
use kube::core::{Request as Requests, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::counting_decoder::{self, DecodeError, Decoded};
use super::informer::Reading;
use super::{SourceOptions, SourceType};
use crate::cluster::bounded_client::AnswerTooLong;
use crate::object::Key;

/// The largest page with more than one object, in bytes. A page is in memory while its objects are decoded, beside the
/// pages of other sources.
const PAGE_BYTES: usize = 4 << 20;
/// The largest number of objects in a page; same as client-go.
const LARGEST_PAGE: u32 = 500;
/// The number of objects in the first page, when their size is not known yet.
const FIRST_PAGE: u32 = 20;
/// The largest error response that is read, in bytes.
const STATUS_BYTES: usize = 64 << 10;
/// The longest time without an event before a watch is restarted: the timeout that kube requests from the cluster, plus
/// a few seconds.
const QUIET: Duration = Duration::from_secs(295);

/// The status codes of requests that the cluster refuses. A retry does not help.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED];

/// The reason why a list or a watch has ended.
#[derive(Debug)]
pub(super) enum Interruption {
    /// The revision is too old to continue from: the objects must be listed again.
    Expired,
    /// A size limit is exceeded.
    TooLarge(Excess),
    /// The cluster refused the request.
    Refused(String),
    /// The cluster does not serve the API (404). A list without objects is empty, and not a 404.
    Absent(String),
    /// The request failed.
    Failed(String),
}

/// The size limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// The limit of one response with a single object, or of one watch event.
    Answer,
    /// The memory limit of all objects.
    Memory,
}

impl From<kube::Error> for Interruption {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Service(inner) if is_too_long(&**inner) => Self::TooLarge(Excess::Answer),
            _ => Self::Failed(error.to_string()),
        }
    }
}

fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.is::<AnswerTooLong>())
}

/// A change of an object.
pub(super) enum Change<K> {
    /// The object exists and was decoded.
    Decoded(Key, Reading<K>),
    /// The object exists and has not changed.
    Unchanged(Key),
    /// The object exists and cannot be decoded as its type, for this reason.
    Unreadable(Key, String),
    /// The object was deleted.
    Deleted(Key),
}

/// Receives the changes of a list or a watch.
pub(super) trait ChangeSink<K> {
    /// The number of bytes that the object with this key may use.
    fn free_bytes(&self, key: &Key) -> usize;
    /// Hashes the JSON of objects and the decoded values.
    fn hasher(&self) -> &RandomState;
    /// Whether the stored object was read from JSON with this hash.
    fn is_same(&self, key: &Key, hash: u64) -> bool;
    fn apply(&mut self, change: Change<K>);
}

/// Lists and watches the objects of a type in a scope.
pub(super) struct ListWatch<K> {
    client: Client,
    requests: Requests,
    /// Whether only metadata is requested.
    is_metadata: bool,
    scope: SourceOptions,
    limit: u32,
    of: PhantomData<fn() -> K>,
}

/// A request, or the reason why its parameters are invalid.
type RequestResult = Result<Request<Vec<u8>>, kube::core::request::Error>;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    event_type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The part of an object that is decoded first.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamedMetadata {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

impl NamedMetadata {
    fn key(&self) -> Option<Key> {
        self.name.as_deref().map(|name| Key::new(self.namespace.as_deref(), name))
    }
}

impl<K: SourceType> ListWatch<K> {
    pub(super) fn new(client: Client, scope: SourceOptions) -> Self {
        let api = K::api();
        let requests = Requests::new(api.path(scope.namespace()));
        Self {
            client,
            requests,
            is_metadata: api.is_metadata,
            scope,
            limit: FIRST_PAGE,
            of: PhantomData,
        }
    }
}

impl<K: DeserializeOwned> ListWatch<K> {
    /// The metadata of all objects at a path, for example `/apis/apps/v1/replicasets`.
    pub(super) fn of_metadata(client: Client, path: &str) -> Self {
        let (requests, scope) = (Requests::new(path), SourceOptions::ALL);
        Self { client, requests, is_metadata: true, scope, limit: FIRST_PAGE, of: PhantomData }
    }

    /// Checks that the objects can be listed.
    pub(super) async fn probe(&self) -> Result<(), Interruption> {
        let parameters = ListParams::default().limit(1);
        self.send(self.list_request(&parameters)).await.map(drop)
    }

    fn list_request(&self, parameters: &ListParams) -> RequestResult {
        match self.is_metadata {
            true => self.requests.list_metadata(parameters),
            false => self.requests.list(parameters),
        }
    }

    /// The interval between lists, if the objects are polled instead of watched.
    pub(super) fn every(&self) -> Option<Duration> {
        self.scope.every()
    }

    /// Lists all objects. Returns the revision to watch from, if the list has one.
    ///
    /// If a page is too long, smaller pages are requested; if a page is short, larger ones. Polled objects are
    /// requested without pages, because their server computes the whole list for each request.
    pub(super) async fn list(
        &mut self,
        sink: &mut impl ChangeSink<K>,
    ) -> Result<Option<String>, Interruption> {
        let is_polled = self.scope.every().is_some();
        let mut from: Option<String> = None;
        loop {
            let parameters = ListParams {
                limit: (!is_polled).then_some(self.limit),
                continue_token: from.clone(),
                label_selector: self.scope.labels().map(str::to_owned),
                field_selector: self.scope.fields().map(str::to_owned),
                ..ListParams::default()
            };
            let answer = self.send(self.list_request(&parameters)).await?;
            let most = if self.limit > 1 && !is_polled { PAGE_BYTES } else { usize::MAX };
            let Some(text) = read_body(answer, most).await? else {
                self.limit /= 2;
                continue;
            };
            if text.len() < PAGE_BYTES / 4 {
                self.limit = (self.limit * 2).min(LARGEST_PAGE);
            }
            let page: Page<'_> = serde_json::from_slice(&text).map_err(malformed)?;
            for object in page.items.unwrap_or_default() {
                let named: Named = serde_json::from_str(object.get()).map_err(malformed)?;
                if let Some(key) = named.metadata.key() {
                    decode_into(key, object.get(), sink)?;
                }
            }
            from = page.metadata.continue_.filter(|token| !token.is_empty());
            let revision = page.metadata.resource_version.filter(|revision| !revision.is_empty());
            match from {
                Some(_) => tokio::task::yield_now().await,
                None => return Ok(revision),
            }
        }
    }

    /// Watches from a revision until the cluster ends the watch, and advances the revision with each event. Returns
    /// whether any event was received.
    pub(super) async fn watch(
        &self,
        revision: &mut String,
        sink: &mut impl ChangeSink<K>,
        mut is_watching: impl FnMut(),
    ) -> Result<bool, Interruption> {
        let parameters = WatchParams {
            label_selector: self.scope.labels().map(str::to_owned),
            field_selector: self.scope.fields().map(str::to_owned),
            ..WatchParams::default()
        };
        let request = match self.is_metadata {
            true => self.requests.watch_metadata(&parameters, revision),
            false => self.requests.watch(&parameters, revision),
        };
        let request = request.map(|mut request| {
            // Each event may be compressed separately, which the decoder of kube does not support.
            let identity = http::HeaderValue::from_static("identity");
            request.headers_mut().insert(http::header::ACCEPT_ENCODING, identity);
            request
        });
        let mut body = self.send(request).await?.into_body();
        is_watching();
        let mut buffer = BytesMut::new();
        let mut has_seen = false;
        loop {
            let Ok(frame) = tokio::time::timeout(QUIET, body.frame()).await else {
                return Ok(has_seen);
            };
            let data = match frame {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => match Interruption::from(error) {
                    // The connection broke. This is a normal end of a watch.
                    Interruption::Failed(_) if has_seen => return Ok(has_seen),
                    interruption => return Err(interruption),
                },
                None => return Ok(has_seen),
            };
            let mut searched = buffer.len();
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(searched + end + 1);
                searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                take_event(&line, revision, sink)?;
                has_seen = true;
            }
            if buffer.is_empty() {
                // Releases the memory of a long line.
                buffer = BytesMut::new();
            }
        }
    }

    async fn send(&self, request: RequestResult) -> Result<Response<Body>, Interruption> {
        let request = request.map_err(|error| Interruption::Failed(error.to_string()))?;
        let answer = self.client.send(request.map(Body::from)).await?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::GONE => Err(Interruption::Expired),
            status @ StatusCode::NOT_FOUND => Err(Interruption::Absent(why(status, answer).await)),
            status if REFUSALS.contains(&status) => {
                Err(Interruption::Refused(why(status, answer).await))
            }
            status => Err(Interruption::Failed(why(status, answer).await)),
        }
    }
}

/// The message of an error response.
async fn why(status: StatusCode, answer: Response<Body>) -> String {
    let text = read_body(answer, STATUS_BYTES).await;
    let text = text.ok().flatten().unwrap_or_default();
    match serde_json::from_slice::<Status>(&text) {
        Ok(status) => status.to_string(),
        Err(_) => format!("the cluster answers {status}"),
    }
}

/// Reads a body. Returns `None` if the body is longer than `most` bytes.
async fn read_body(answer: Response<Body>, most: usize) -> Result<Option<Bytes>, Interruption> {
    let mut body = answer.into_body();
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        if data.len() > most - text.len() {
            return Ok(None);
        }
        text.extend_from_slice(&data);
    }
    Ok(Some(text.freeze()))
}

fn take_event<K: DeserializeOwned>(
    line: &[u8],
    revision: &mut String,
    sink: &mut impl ChangeSink<K>,
) -> Result<(), Interruption> {
    let event: Event<'_> = serde_json::from_slice(line).map_err(malformed)?;
    let text = event.object.get();
    if event.event_type == "ERROR" {
        let status: Status = serde_json::from_str(text).map_err(malformed)?;
        return Err(match status.code {
            410 => Interruption::Expired,
            _ => Interruption::Failed(status.to_string()),
        });
    }
    let Named { metadata } = serde_json::from_str(text).map_err(malformed)?;
    let key = metadata.key();
    match (event.event_type.as_str(), key) {
        ("ADDED" | "MODIFIED", Some(key)) => decode_into(key, text, sink)?,
        ("DELETED", Some(key)) => sink.apply(Change::Deleted(key)),
        _ => {}
    }
    match metadata.resource_version.filter(|revision| !revision.is_empty()) {
        Some(seen) => *revision = seen,
        None => {
            let why = "an event of the watch has no resourceVersion";
            return Err(Interruption::Failed(why.to_owned()));
        }
    }
    Ok(())
}

/// Decodes an object and passes it to the sink. An unchanged object of a repeated list is not decoded again, and its
/// followers are not notified.
pub(super) fn decode_into<K: DeserializeOwned>(
    key: Key,
    text: &str,
    sink: &mut impl ChangeSink<K>,
) -> Result<(), Interruption> {
    let hash = sink.hasher().hash_one(text);
    if sink.is_same(&key, hash) {
        sink.apply(Change::Unchanged(key));
        return Ok(());
    }
    // Decoding runs `Deserialize` of the user's type, which may panic.
    let decode = || counting_decoder::decode(text, sink.free_bytes(&key), sink.hasher());
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    let change = match decoded {
        Ok(Ok(Decoded { object, bytes, content })) => {
            Change::Decoded(key, Reading { object, bytes, hash, content })
        }
        Ok(Err(DecodeError::TooLarge)) => return Err(Interruption::TooLarge(Excess::Memory)),
        // Other objects do not depend on this one.
        Ok(Err(DecodeError::Malformed(error))) => Change::Unreadable(key, error.to_string()),
        Err(_) => Change::Unreadable(key, "reading it panicked".to_owned()),
    };
    sink.apply(change);
    Ok(())
}

fn malformed(error: serde_json::Error) -> Interruption {
    Interruption::Failed(format!("what the cluster says cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::super::SourceInformer;
    use super::super::follower::Follower;
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// Records changes as strings.
    #[derive(Default)]
    struct Told(Vec<String>, RandomState);

    impl ChangeSink<ConfigMap> for Told {
        fn free_bytes(&self, _: &Key) -> usize {
            10_000
        }

        fn hasher(&self) -> &RandomState {
            &self.1
        }

        fn is_same(&self, _: &Key, _: u64) -> bool {
            false
        }

        fn apply(&mut self, change: Change<ConfigMap>) {
            self.0.push(match change {
                Change::Decoded(key, Reading { object, .. }) => {
                    format!("{key} {}", object.data.map_or(0, |data| data.len()))
                }
                Change::Unchanged(key) => format!("{key} same"),
                Change::Unreadable(key, _) => format!("{key} unreadable"),
                Change::Deleted(key) => format!("{key} gone"),
            });
        }
    }

    fn event(event_type: &str, object: &str) -> String {
        format!(r#"{{"type":"{event_type}","object":{object}}}"#)
    }

    #[test]
    fn watch_events_update_the_objects_and_the_resource_version() {
        let mut told = Told::default();
        let mut revision = "1".to_owned();
        let object = |revision: &str| {
            format!(
                r#"{{"metadata":{{"namespace":"n","name":"a","resourceVersion":"{revision}"}},"data":{{"b":"c"}}}}"#
            )
        };
        let bookmark = r#"{"kind":"ConfigMap","metadata":{"resourceVersion":"5"}}"#;
        for (event_type, object, expected) in [
            ("ADDED", object("2"), "2"),
            ("MODIFIED", object("3"), "3"),
            ("DELETED", object("4"), "4"),
            ("BOOKMARK", bookmark.to_owned(), "5"),
        ] {
            let line = event(event_type, &object);
            take_event(line.as_bytes(), &mut revision, &mut told).unwrap();
            assert_eq!(revision, expected);
        }
        assert_eq!(told.0, ["n/a 1", "n/a 1", "n/a gone"]);
    }

    #[test]
    fn watch_event_errors_distinguish_expired_failed_and_too_large() {
        let check = |line: &str| {
            let mut told = Told::default();
            take_event(line.as_bytes(), &mut "1".to_owned(), &mut told).unwrap_err()
        };
        let expired = event("ERROR", r#"{"kind":"Status","code":410,"message":"too old"}"#);
        assert!(matches!(check(&expired), Interruption::Expired));
        let status = r#"{"kind":"Status","code":500,"message":"no","reason":"InternalError"}"#;
        let Interruption::Failed(why) = check(&event("ERROR", status)) else { panic!() };
        assert_eq!(why, "no: InternalError");
        assert!(matches!(check("{"), Interruption::Failed(_)));
        let unnamed = event("ADDED", r#"{"metadata":{"name":"a"}}"#);
        assert!(matches!(check(&unnamed), Interruption::Failed(_)), "it has no resourceVersion");
        let large = format!(
            r#"{{"metadata":{{"name":"a","resourceVersion":"2"}},"data":{{"a":"{}"}}}}"#,
            "x".repeat(10_000)
        );
        let too_large = check(&event("ADDED", &large));
        assert!(matches!(too_large, Interruption::TooLarge(Excess::Memory)));
    }

    #[test]
    fn a_relist_reports_no_change_for_unchanged_objects() {
        let informer = Arc::new(SourceInformer::alone(100_000));
        let mut follower =
            Follower::<ConfigMap>::new(Arc::clone(&informer), "configmaps".to_owned(), "");
        let key = Key::of_text("n/a");
        informer.complete(&HashSet::new());
        let changed = informer.follow(Arc::default());
        let mut list = |value: &str| {
            let text = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"b":"{value}"}}}}"#);
            follower.present = Some(HashSet::new());
            decode_into(key.clone(), &text, &mut follower).unwrap();
            let present = follower.present.take().unwrap();
            assert!(present.contains(&key), "it is there");
            informer.complete(&present);
            changed.take().len()
        };
        assert_eq!([list("1"), list("1"), list("2"), list("1")], [1, 0, 1, 1]);
    }
}
