//! Responses that are sent in parts: lists in chunks, watches event by event.
//!
//! A task encodes the parts that hold a snapshot: a list, or the initial events of a watch. It waits for the reader
//! until a deadline and no longer, because a client that stops reading must not hold objects that were deleted long
//! ago. The connection pulls the later events of a watch: a slow reader is a position in the window that does not
//! advance.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use http::{Response, StatusCode};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::super::answers::{self, Answer, Charge};
use super::super::authorize::Revoked;
use super::super::deadline::REQUEST_TIMEOUT;
use super::super::negotiate::{Form, Media, Presentation};
use super::super::throttle::Permit;
use super::deadline_stream::until;
use super::gzip::{self, Gzip};
use super::indent::Indenter;
use super::protobuf;
use super::{Encoder, Page, started, yaml};
use crate::clock::Clock;
use crate::conversion::{self, known};
use crate::error::ApiError;
use crate::kind::{Conversions, is_incomplete};
use crate::object::Key;
use crate::queue::QueuePlace;
use crate::quota::Account;
use crate::record::WatchEventCounter;
use crate::user::User;
use crate::verb::{Event, InitialEvents, ListPage, Step, WatchStream};

/// The size of a chunk, in bytes. Larger chunks do not make a list faster, smaller ones make it slower.
const CHUNK: usize = 64 << 10;
/// The shortest duration of a watch without `timeoutSeconds`, in seconds. The duration is random, up to twice as long,
/// same as in kube-apiserver.
const WATCH_SECONDS: u64 = 1_800;
/// The interval of bookmarks, for clients that requested them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The time between the last bookmark of a watch and its end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The longest time that a watch remains after its end if its client does not read.
const OVERTIME: Duration = Duration::from_secs(5);
/// The longest time that a watch waits for memory for an event.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// The longest duration of a watch.
const MAX_WATCH: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest number of conversions that are cached while chunks are encoded. They are compared one by one.
const KNOWN: usize = 256;
/// The largest size of the cached conversions, in bytes, before further ones are requested.
const KNOWN_BYTES: usize = 4 << 20;

type Chunk = Result<Bytes, io::Error>;

/// The chunks of a task, until it sends `None`.
fn received(chunks: Receiver<Option<Chunk>>) -> impl Stream<Item = Chunk> {
    stream::unfold(Some(chunks), async |chunks| {
        let mut chunks = chunks?;
        match chunks.recv().await {
            Some(Some(chunk)) => Some((chunk, Some(chunks))),
            Some(None) => None,
            // The task gave up. A clean end would look like the end of the list.
            None => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "it was not read in time");
                Some((Err(late), None))
            }
        }
    })
}

/// A response that is encoded chunk by chunk.
trait Chunks: Send + 'static {
    /// An estimate of the largest size of the next chunk, in bytes.
    fn size_of_next(&self) -> usize;

    /// The next chunk; `None` at the end. An empty chunk means that no object was found for a long time and the
    /// response continues. A chunk ends before an object whose conversion a webhook must answer.
    fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>>;

    /// Whether a webhook may have to be called.
    fn asks(&self) -> bool;
}

/// The known conversions while chunks are encoded; empty if no webhook converts.
#[derive(Default)]
struct Asking(Conversions);

impl Asking {
    /// The next chunk; an empty one continues.
    async fn next(
        &mut self,
        chunks: &mut impl Chunks,
        account: &Account,
    ) -> Option<Result<Vec<u8>, ApiError>> {
        if !chunks.asks() {
            return chunks.next();
        }
        let chunk = self.0.attempt(|| chunks.next());
        let missing = self.0.take_missing();
        // Conversions of earlier objects are not needed any more, and the first missing conversion is always requested
        // next.
        if self.0.len() > KNOWN || self.0.known_bytes() > KNOWN_BYTES {
            self.0 = Conversions::default();
        }
        if missing.is_empty() || matches!(&chunk, Some(Ok(chunk)) if !chunk.is_empty()) {
            return chunk;
        }
        match Box::pin(conversion::answer(missing, &mut self.0, account)).await {
            Ok(()) => Some(Ok(Vec::new())),
            Err(error) => Some(Err(error)),
        }
    }
}

/// The reader of a response, with the limits that its chunks are charged to.
#[derive(Clone)]
pub(in crate::request) struct Reader {
    pub answer: Answer,
    pub user: Arc<User>,
    /// The account that converted objects are charged to.
    pub account: Account,
    /// The longest time for reading the whole response.
    pub within: Duration,
}

impl Reader {
    async fn room(&self, bytes: usize) -> Result<Charge, ApiError> {
        self.answer.room(&self.user, bytes).await
    }
}

/// Encodes chunks in a task until the end, until the client has not read in time, or until the server closes. Each
/// chunk is encoded when the chunk before it is being sent and there is memory for it.
fn produce(
    mut chunks: impl Chunks,
    (reader, streaming): (Reader, Option<QueuePlace>),
    closing: Option<CancellationToken>,
) -> impl Stream<Item = Chunk> {
    let deadline = Instant::now() + reader.within;
    let (sender, receiver) = channel(1);
    // Boxed, because every future that awaits it contains its memory again.
    let produce = Box::pin(async move {
        let _streaming = streaming;
        let mut asking = Asking::default();
        while let Ok(Ok(place)) = timeout_at(deadline, sender.reserve()).await {
            let room = timeout_at(deadline, reader.room(chunks.size_of_next())).await;
            let Ok(Ok(_room)) = room else { return };
            let made = async {
                loop {
                    match asking.next(&mut chunks, &reader.account).await {
                        Some(Ok(chunk)) if chunk.is_empty() => tokio::task::yield_now().await,
                        chunk => break chunk,
                    }
                }
            };
            // The search for objects may take long, and so may a webhook.
            let chunk = tokio::select! {
                biased;
                chunk = made => chunk,
                () = sender.closed() => return,
                () = sleep_until(deadline) => return,
            };
            let Some(chunk) = chunk else {
                place.send(None);
                return;
            };
            let chunk = chunk.map(|chunk| reader.answer.charge(chunk));
            place.send(Some(chunk.map_err(io::Error::other)));
        }
    });
    tokio::spawn(async move {
        match closing {
            Some(closing) => drop(closing.run_until_cancelled_owned(produce).await),
            None => produce.await,
        }
    });
    received(receiver)
}

/// A stream without items that ends when all encoded bytes are sent.
fn sent(answer: Answer) -> impl Stream<Item = Chunk> {
    stream::once(answer.sent()).filter_map(async |()| None)
}

struct ListState {
    encoder: Encoder,
    listed: ListPage,
    page: Page,
    last: Option<Key>,
    started: bool,
    has_items: bool,
    done: bool,
    indenter: Indenter,
    /// The frame of a list in YAML.
    frame: Option<yaml::Frame>,
    /// The frame of a list in protobuf.
    messages: Option<protobuf::Frame>,
    gzip: Option<Gzip>,
    /// A list is in flight until its last chunk.
    _permit: Permit,
}

impl Chunks for ListState {
    fn size_of_next(&self) -> usize {
        let next = self.listed.after(self.last.as_ref()).next();
        CHUNK.max(next.map_or(0, |(versioned, _)| versioned.object.size()))
    }

    fn asks(&self) -> bool {
        self.encoder.kind.is_converted_by_webhook()
    }

    /// The next chunk in its final encoding.
    fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        let Some(mut gzip) = self.gzip.take() else { return next_chunk(self) };
        match next_chunk(self) {
            None => Some(Ok(gzip.finish())),
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(chunk)) => {
                let compressed = gzip.compress(&chunk);
                self.gzip = Some(gzip);
                Some(Ok(compressed))
            }
        }
    }
}

/// The response with a list, chunk by chunk, compressed if the list is large and the client accepts that. If an object
/// after the first chunk cannot be converted, the connection ends, because the response has started and must not look
/// complete.
///
/// # Errors
/// 500 if an object of the first chunk cannot be converted.
pub(in crate::request) async fn list(
    encoder: Encoder,
    listed: ListPage,
    permit: Permit,
    reader: Reader,
) -> Result<Response<Body>, ApiError> {
    let page = Page::of(&listed);
    let Presentation { media, gzip } = encoder.format.presentation;
    let frame = (media == Media::Yaml).then(|| {
        let mut empty = Vec::new();
        encoder.start_list(&page, &mut empty);
        encoder.end_list(&page, &mut empty);
        yaml::Frame::of(&empty)
    });
    let messages = match media {
        Media::Protobuf => {
            Some(protobuf::Frame::of(&encoder, &listed, &page, &reader.account).await?)
        }
        _ => None,
    };
    let mut state = ListState {
        messages,
        encoder,
        listed,
        page,
        last: None,
        started: false,
        has_items: false,
        done: false,
        indenter: Indenter::default(),
        frame,
        gzip: None,
        _permit: permit,
    };
    // A list that fits into one chunk, or that may not be worth compressing, is sent as a whole.
    let enough = if gzip { gzip::THRESHOLD } else { CHUNK - 1 };
    let room = reader.room(state.size_of_next()).await?;
    let mut first = Vec::new();
    let mut asking = Asking::default();
    while first.len() <= enough {
        let Some(more) = asking.next(&mut state, &reader.account).await else { break };
        first.extend(more?);
        tokio::task::yield_now().await;
    }
    let is_compressed = gzip && first.len() > gzip::THRESHOLD;
    if is_compressed {
        let mut gzip = Gzip::new();
        first = gzip.compress(&first);
        if state.done {
            first.extend(gzip.finish());
        } else {
            state.gzip = Some(gzip);
        }
    }
    let body = if state.done {
        Body::from(first)
    } else {
        let first = reader.answer.charge(first);
        let streaming = reader.answer.begin_streaming(&reader.user).await?;
        let first = stream::once(async { Ok(first) });
        let sent = sent(reader.answer.clone());
        Body::from_stream(first.chain(produce(state, (reader, streaming), None)).chain(sent))
    };
    drop(room);
    let mut response = started(StatusCode::OK, media, body);
    if is_compressed {
        gzip::announce(response.headers_mut());
    }
    Ok(response)
}

fn next_chunk(state: &mut ListState) -> Option<Result<Vec<u8>, ApiError>> {
    if state.done {
        return None;
    }
    let chunk = make_chunk(state);
    // No chunk follows after an error.
    state.done |= chunk.is_err();
    Some(chunk)
}

fn make_chunk(state: &mut ListState) -> Result<Vec<u8>, ApiError> {
    let mut chunk = Vec::with_capacity(CHUNK + (CHUNK >> 2));
    if !state.started {
        match (&state.frame, &state.messages) {
            (Some(frame), _) => chunk.extend_from_slice(frame.head.as_bytes()),
            (_, Some(frame)) => chunk.extend_from_slice(&frame.head),
            (None, None) => state.encoder.start_list(&state.page, &mut chunk),
        }
    }
    let previous = state.last.take();
    let mut is_first = !state.has_items;
    let mut ended = true;
    let mut step = Step::default();
    for (versioned, is_wanted) in state.listed.after(previous.as_ref()) {
        let size = versioned.object.size();
        if is_incomplete() {
            // The chunk ends here: the conversion of the next object must be requested first.
            ended = false;
            break;
        }
        // A large object is encoded as the first of its chunk, because there is memory for it then.
        let is_for_next = step.has_begun() && size > CHUNK;
        if chunk.len() >= CHUNK || is_for_next || step.is_over(size) {
            ended = false;
            break;
        }
        let before = state.last.replace(versioned.object.key().clone());
        if !is_wanted {
            continue;
        }
        let length = chunk.len();
        let written;
        if state.frame.is_some() {
            let mut item = Vec::new();
            written = state.encoder.write_item(&versioned, &mut item);
            chunk.extend(yaml::item(&item));
        } else if state.messages.is_some() {
            written = protobuf::write_item(&state.encoder, &versioned, &mut chunk);
        } else {
            if !is_first {
                chunk.push(b',');
            }
            written = state.encoder.write_item(&versioned, &mut chunk);
        }
        if is_incomplete() {
            // The chunk ends before this object, which begins the next chunk.
            chunk.truncate(length);
            state.last = before;
            ended = false;
            break;
        }
        written?;
        is_first = false;
    }
    if is_incomplete() {
        state.last = state.last.take().or(previous);
        ask_ahead(state);
    }
    state.started = true;
    state.has_items = !is_first;
    state.done = ended;
    if state.done {
        match (&state.frame, &state.messages) {
            (_, Some(frame)) => chunk.extend_from_slice(&frame.tail),
            (Some(frame), _) => {
                if is_first {
                    chunk.extend_from_slice(yaml::NO_ITEMS);
                }
                chunk.extend_from_slice(frame.tail.as_bytes());
            }
            (None, None) => state.encoder.end_list(&state.page, &mut chunk),
        }
    }
    match state.encoder.format.presentation.media {
        Media::Indented => Ok(state.indenter.indent(&chunk)),
        Media::Json if state.done => {
            chunk.push(b'\n');
            Ok(chunk)
        }
        Media::Json | Media::Yaml | Media::Protobuf => Ok(chunk),
    }
}

/// Collects the conversions that the following objects need, so that one call requests them.
fn ask_ahead(state: &ListState) {
    let mut step = Step::default();
    for (versioned, is_wanted) in state.listed.after(state.last.as_ref()) {
        if step.is_over(versioned.object.size()) {
            break;
        }
        if is_wanted {
            let _ = state.encoder.in_version(&versioned);
        }
    }
}

struct WatchState {
    encoder: Encoder,
    watching: WatchStream,
    first: bool,
    deadline: Instant,
    /// Fires when a bookmark is due, and at the deadline.
    alarm: Pin<Box<Sleep>>,
    bookmark_is_due: bool,
    /// Whether the last event was an error.
    has_failed: bool,
    /// Ready when the kind is removed or changed, when the server closes, or when the initial events have failed.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    clock: Clock,
    /// Counts the sent events.
    sent: WatchEventCounter,
    reader: Reader,
    /// Ready when the user loses the permission to watch, or when other fields would be visible.
    revoked: BoxFuture<'static, Revoked>,
    _permit: Permit,
}

/// The context of a watch.
pub(in crate::request) struct WatchContext<'a> {
    /// The duration that the client requested.
    pub lasts: Option<Duration>,
    /// Cancelled when the kind is removed or changed, or when the server closes.
    pub closing: &'a CancellationToken,
    pub clock: Clock,
    pub permit: Permit,
    /// Counts the sent events.
    pub sent: WatchEventCounter,
    pub reader: Reader,
    /// Ready when the user loses the permission to watch, or when other fields would be visible.
    pub revoked: BoxFuture<'static, Revoked>,
}

/// The response with a watch, event by event, until its duration is over, the server closes, the user loses the
/// permission, or an error occurs.
///
/// # Errors
/// 429 if too many requests of the user wait for memory.
pub(in crate::request) async fn watch(
    encoder: Encoder,
    mut watching: WatchStream,
    context: WatchContext<'_>,
) -> Result<Body, ApiError> {
    let WatchContext { lasts, closing, clock, permit, sent, reader, revoked } = context;
    let jitter = || Duration::from_secs(clock.random() % WATCH_SECONDS);
    let lasts = lasts.unwrap_or_else(|| Duration::from_secs(WATCH_SECONDS) + jitter());
    let now = Instant::now();
    let deadline = now.checked_add(lasts.min(MAX_WATCH)).unwrap_or(now);
    if lasts.is_zero() {
        return Ok(Body::empty());
    }
    // Usually the initial events fit into one chunk, and no task is needed.
    let initial = watching.take_initial();
    // A token for each watch, so that watches do not contend for the lock of the server's token.
    let ending = closing.child_token();
    let mut beginning =
        Beginning { encoder, initial, is_first: true, ending: ending.clone(), sent: sent.clone() };
    let mut chunk = Vec::new();
    if !beginning.is_done() {
        let _room = reader.room(beginning.size_of_next()).await?;
        let mut asking = Asking::default();
        while chunk.len() < CHUNK {
            let Some(more) = asking.next(&mut beginning, &reader.account).await else { break };
            chunk.extend(more?);
            tokio::task::yield_now().await;
        }
    }
    let encoder = beginning.encoder.clone();
    let first = chunk.is_empty();
    let chunk = stream::iter((!first).then(|| Ok(reader.answer.charge(chunk))));
    let rest = if beginning.is_done() {
        stream::empty().right_stream()
    } else {
        let streaming = reader.answer.begin_streaming(&reader.user).await?;
        // A shorter time limit for requests does not apply to watches.
        let within = reader.within.max(REQUEST_TIMEOUT);
        let reader = Reader { within, ..reader.clone() };
        produce(beginning, (reader, streaming), Some(closing.clone())).left_stream()
    };
    let next_bookmark = next_bookmark(now, deadline).filter(|_| watching.wants_bookmarks());
    let state = WatchState {
        encoder,
        watching,
        first,
        deadline,
        alarm: Box::pin(sleep_until(next_bookmark.unwrap_or(deadline))),
        bookmark_is_due: false,
        has_failed: false,
        ended: Box::pin(ending.cancelled_owned()),
        clock,
        sent,
        reader,
        revoked,
        _permit: permit,
    };
    // Boxed, because it is moved with every event.
    let live = stream::unfold(Box::new(state), next_event);
    Ok(Body::from_stream(until(deadline + OVERTIME, chunk.chain(rest).chain(live))))
}

/// The initial events of a watch.
struct Beginning {
    encoder: Encoder,
    initial: Option<InitialEvents>,
    is_first: bool,
    /// Ends the watch.
    ending: CancellationToken,
    /// Counts the sent events.
    sent: WatchEventCounter,
}

impl Beginning {
    /// As many events as fit into a chunk, or none if the search for one takes long.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        if self.is_done() {
            return None;
        }
        let mut chunk = Vec::new();
        let (encoder, is_first) = (&self.encoder, &mut self.is_first);
        let sent = &self.sent;
        let mut failure = None;
        self.initial.as_mut()?.look(|event| {
            let encoded = encoder.event(&event, *is_first);
            if is_incomplete() {
                return false;
            }
            *is_first = false;
            match encoded {
                Ok(event) => {
                    sent.count(event.len());
                    chunk.extend_from_slice(&event);
                }
                Err(error) => failure = Some(error),
            }
            failure.is_none() && chunk.len() < CHUNK
        });
        if let Some(error) = failure {
            chunk.extend_from_slice(&encoder.error_event(&error));
            self.initial = None;
            self.ending.cancel();
        }
        Some(chunk)
    }

    fn is_done(&self) -> bool {
        self.initial.as_ref().is_none_or(InitialEvents::is_done)
    }
}

impl Chunks for Beginning {
    fn size_of_next(&self) -> usize {
        CHUNK.max(self.initial.as_ref().map_or(0, InitialEvents::size_of_next))
    }

    fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        self.chunk().map(Ok)
    }

    fn asks(&self) -> bool {
        self.encoder.kind.is_converted_by_webhook()
    }
}

/// The time of the next bookmark: about once a minute, and shortly before the end, same as in kube-apiserver.
fn next_bookmark(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|&last| last > now)?;
    Some(last.min(now + BOOKMARK_EVERY))
}

/// The error that a watcher receives when its permissions change; `None` if the user is not allowed to watch any more.
fn ended_by(revoked: Revoked) -> Option<ApiError> {
    match revoked {
        Revoked::All => None,
        // The fields that were hidden would never be sent for objects that do not change.
        Revoked::Fields => Some(ApiError::fields_have_changed()),
    }
}

async fn next_event(mut state: Box<WatchState>) -> Option<(Chunk, Box<WatchState>)> {
    // No bookmark may follow an error, because it would confirm the failed event.
    if state.has_failed {
        return None;
    }
    let event = loop {
        if state.bookmark_is_due
            && let Some(bookmark) = state.watching.bookmark()
        {
            state.bookmark_is_due = false;
            break Ok(bookmark);
        }
        tokio::select! {
            biased;
            () = &mut state.ended => return None,
            revoked = &mut state.revoked => break Err(ended_by(revoked)?),
            () = &mut state.alarm => {
                let now = Instant::now();
                if now >= state.deadline {
                    return None;
                }
                // Events that exist already are sent before the bookmark.
                state.bookmark_is_due = true;
                let next = next_bookmark(now, state.deadline).unwrap_or(state.deadline);
                state.alarm.as_mut().reset(next);
            }
            event = state.watching.next() => break event?,
        }
    };
    let _room = match &event {
        // A small object does not wait for memory.
        Ok(Event::Object(event)) if answers::is_large(&event.versioned) => {
            let Reader { answer, user, .. } = &state.reader;
            // A waiting watch may hold objects that exist nowhere else any more. After the time limit the client
            // watches again.
            timeout(ROOM_WAIT, answer.room_for(user, &event.versioned)).await.ok()?.ok()?
        }
        _ => None,
    };
    if matches!(state.encoder.format().form, Form::Table(_)) {
        // Table cells contain ages.
        state.encoder.set_time(state.clock.now());
    }
    let frame = match event {
        Ok(event) if state.encoder.kind.is_converted_by_webhook() => {
            let encode = || state.encoder.event(&event, state.first);
            let known = known(&state.encoder.kind, &state.reader.account, encode);
            tokio::select! {
                biased;
                () = &mut state.ended => return None,
                revoked = &mut state.revoked => Err(ended_by(revoked)?),
                frame = Box::pin(known) => frame.and_then(|frame| frame),
            }
        }
        event => event.and_then(|event| state.encoder.event(&event, state.first)),
    };
    let frame = frame.unwrap_or_else(|error| {
        state.has_failed = true;
        state.encoder.error_event(&error)
    });
    state.sent.count(frame.len());
    state.first = false;
    let frame = state.reader.answer.charge(frame);
    Some((Ok(frame), state))
}
