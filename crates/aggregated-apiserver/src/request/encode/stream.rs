//! Responses that are sent piece by piece: lists in chunks, watches event by event.
//!
//! A list, and the initial events of a watch, hold a snapshot. A task encodes them and waits for the client until a
//! deadline, because a client that stops reading must not keep objects in memory that were deleted long ago. The
//! connection pulls the later events of a watch: for a slow client, the cursor into the watch cache stands still.

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
use crate::quota::{self, Account};
use crate::record::WatchEventCounter;
use crate::user::User;
use crate::verb::{Event, InitialEvents, ListPage, Step, WatchStream};

/// The size of a chunk, in bytes. Larger chunks do not make a list faster; smaller ones make it slower.
const CHUNK: usize = 64 << 10;
/// The shortest duration of a watch without `timeoutSeconds`, in seconds. A random time of up to the same length is
/// added, same as in kube-apiserver.
const WATCH_SECONDS: u64 = 1_800;
/// The interval between bookmarks, for watches that request them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The time between the last bookmark of a watch and its end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The longest time that an unread watch stays open after its end.
const OVERTIME: Duration = Duration::from_secs(5);
/// The longest time that a watch waits for memory for an event.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// The longest duration of a watch: one day.
const MAX_WATCH: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest number of conversions that are stored while chunks are made; a lookup compares them one by one.
const KNOWN: usize = 256;
/// The largest size of the stored conversions, in bytes. Above it, they are discarded before the webhook is called
/// again.
const KNOWN_BYTES: usize = 4 << 20;

type Chunk = Result<Bytes, io::Error>;

/// The chunks that a task sends; `None` marks the end.
fn received(chunks: Receiver<Option<Chunk>>) -> impl Stream<Item = Chunk> {
    stream::unfold(Some(chunks), async |chunks| {
        let mut chunks = chunks?;
        match chunks.recv().await {
            Some(Some(chunk)) => Some((chunk, Some(chunks))),
            Some(None) => None,
            // The task gave up. A clean end would make the response look complete.
            None => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "it was not read in time");
                Some((Err(late), None))
            }
        }
    })
}

/// A source of encoded chunks.
trait Chunks: Send + 'static {
    /// The approximate maximum size of the next chunk, in bytes.
    fn size_of_next(&self) -> usize;

    /// Returns the next chunk, or `None` at the end. An empty chunk means that a long search found nothing to send, and
    /// that more chunks follow. A chunk ends before the first object that a webhook has to convert.
    fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>>;

    /// Whether a webhook may have to convert objects.
    fn asks(&self) -> bool;
}

/// The known conversions while chunks are made; empty if no webhook converts the kind.
#[derive(Default)]
struct Asking(Conversions);

impl Asking {
    /// Returns the next chunk. An empty chunk means that more chunks follow.
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
        // The conversions of objects that were sent are not needed any more. The webhook always converts at least the
        // first missing object, so the loop makes progress.
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

/// The client of a response, with the memory limits that the response is charged to.
#[derive(Clone)]
pub(in crate::request) struct Reader {
    pub answer: Answer,
    pub user: Arc<User>,
    /// The account that conversions are charged to.
    pub account: Account,
    /// The longest time that the client may take to read the response.
    pub within: Duration,
}

impl Reader {
    async fn room(&self, bytes: usize) -> Result<Charge, ApiError> {
        self.answer.room(&self.user, bytes).await
    }
}

/// Makes chunks in a task until all are sent, the client has not read them in time, or the server closes. A chunk is
/// made when the previous one has been taken for sending and there is memory for the new one.
fn produce(
    mut chunks: impl Chunks,
    (reader, streaming): (Reader, Option<quota::Permit>),
    closing: Option<CancellationToken>,
) -> impl Stream<Item = Chunk> {
    let deadline = Instant::now() + reader.within;
    let (sender, receiver) = channel(1);
    // Boxed, because a future that awaits it would otherwise contain a second copy of it.
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
            // A search without matches may take long, and so may a webhook.
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

/// A stream without chunks that ends when all bytes of the response have been sent.
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
    /// The head and the tail of a list in YAML.
    frame: Option<yaml::Frame>,
    /// The head and the tail of a list in protobuf.
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

    /// Returns the next chunk as it is sent: compressed if the list is.
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

/// A list in chunks. A large list is compressed if the client accepts it. If an object after the first chunk cannot be
/// converted, the connection is aborted: the response has started and must not look complete.
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
    // A list that fits into one chunk, or that may be too small to be compressed, is sent whole.
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
    // An error is the last item.
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
            // It is not known whether the object is selected.
            ended = false;
            break;
        }
        // A large object starts a new chunk, because only then is there memory for it.
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
            // The chunk ends before this object, and the next chunk starts with it.
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

/// Encodes the following objects in order to record their missing conversions, so that one call of the webhook converts
/// them all.
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
    /// Completes if the kind is no longer served with this definition, the server closes, or an initial event failed.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    clock: Clock,
    /// Counts the events that were sent.
    sent: WatchEventCounter,
    reader: Reader,
    /// Completes if the caller is not allowed to watch any more, or if other fields would be visible to it.
    revoked: BoxFuture<'static, Revoked>,
    _permit: Permit,
}

/// The inputs of a watch besides its events.
pub(in crate::request) struct WatchContext<'a> {
    /// The duration that the client requests.
    pub lasts: Option<Duration>,
    /// Cancelled if the kind is no longer served with this definition, or if the server closes.
    pub closing: &'a CancellationToken,
    pub clock: Clock,
    pub permit: Permit,
    /// Counts the events that are sent.
    pub sent: WatchEventCounter,
    pub reader: Reader,
    /// Completes if the caller is not allowed to watch any more, or if other fields would be visible to it.
    pub revoked: BoxFuture<'static, Revoked>,
}

/// A watch, event by event. It ends at its deadline, when the server closes, when the caller loses its permission, or
/// with an error.
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
    // The initial events mostly fit into one chunk, and no task is needed.
    let initial = watching.take_initial();
    // A token per watch, because all watches would otherwise contend for the lock of the server's token.
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
        // A request timeout below the default does not apply to watches.
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
    // Boxed, because every event moves the state.
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
    /// Counts the events that were sent.
    sent: WatchEventCounter,
}

impl Beginning {
    /// Returns as many events as fit into a chunk, or none if the search for one takes long.
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

/// Returns the time of the next bookmark: about one minute from now, and shortly before the end, same as in
/// kube-apiserver.
fn next_bookmark(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|&last| last > now)?;
    Some(last.min(now + BOOKMARK_EVERY))
}

/// The error event for a watch whose permissions have changed; `None` if the caller is not allowed to watch any more.
fn ended_by(revoked: Revoked) -> Option<ApiError> {
    match revoked {
        Revoked::All => None,
        // Without the error, the client would never receive the fields of unchanged objects that are now visible.
        Revoked::Fields => Some(ApiError::fields_have_changed()),
    }
}

async fn next_event(mut state: Box<WatchState>) -> Option<(Chunk, Box<WatchState>)> {
    // A bookmark must not follow an error: it would confirm the event that failed.
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
                // Pending events are sent before the bookmark.
                state.bookmark_is_due = true;
                let next = next_bookmark(now, state.deadline).unwrap_or(state.deadline);
                state.alarm.as_mut().reset(next);
            }
            event = state.watching.next() => break event?,
        }
    };
    let _room = match &event {
        // A small event does not wait for memory.
        Ok(Event::Object(event)) if answers::is_large(&event.versioned) => {
            let Reader { answer, user, .. } = &state.reader;
            // The wait is short, because a waiting watch retains an event that the watch cache may have dropped. After
            // the timeout the watch ends, and the client can resume it.
            timeout(ROOM_WAIT, answer.room_for(user, &event.versioned)).await.ok()?.ok()?
        }
        _ => None,
    };
    if matches!(state.encoder.format().form, Form::Table(_)) {
        // Cells of a table contain the ages of objects.
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
