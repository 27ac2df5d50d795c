//! Watches: the initial events in chunks, then event by event.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::super::Encoder;
use super::super::deadline_stream::until;
use super::{Asking, CHUNK, Chunk, Chunks, Reader, produce};
use crate::clock::Clock;
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::is_incomplete;
use crate::record::WatchEventCounter;
use crate::request::answers;
use crate::request::authorize::Revoked;
use crate::request::deadline::REQUEST_TIMEOUT;
use crate::request::negotiate::Form;
use crate::request::throttle::Permit;
use crate::verb::{Event, InitialEvents, WatchStream};

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
    /// Counts the events that are sent.
    pub sent: WatchEventCounter,
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
    (reader, permit): (Reader, Permit),
    context: WatchContext<'_>,
) -> Result<Body, ApiError> {
    let WatchContext { lasts, closing, clock, sent, revoked } = context;
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
    Ok(Body::from_stream(until(sleep_until(deadline + OVERTIME), chunk.chain(rest).chain(live))))
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
            // The wait is short, because a waiting watch retains an event that the watch cache may have dropped. After
            // the timeout the watch ends, and the client can resume it.
            timeout(ROOM_WAIT, state.reader.room_for(&event.versioned)).await.ok()?.ok()?
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
