//! Answers that are sent bit by bit: lists in chunks, watches event by event.
//!
//! Both are pulled by the connection. A slow reader of a list holds a
//! snapshot, no lock; a slow reader of a watch is a cursor that stands still.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::REQUEST_TIMEOUT;
use super::super::throttle::Permit;
use super::Encoder;
use crate::ambient::Ambient;
use crate::storage::Versioned;
use crate::verb::{Listed, Watching};

/// Larger chunks do not make a list faster, smaller ones make it slower.
const CHUNK: usize = 64 << 10;
/// A watch lasts this long and up to as long again, if the client does not
/// say; as kube-apiserver.
const WATCH_SECONDS: u64 = 1_800;

struct ListState {
    encoder: Encoder,
    listed: Listed,
    last: Option<Versioned>,
    started: bool,
    deadline: Instant,
    /// A list is in flight until its last chunk.
    _permit: Option<Permit>,
}

/// A list, chunk by chunk.
pub(in crate::request) fn list(encoder: Encoder, listed: Listed, permit: Option<Permit>) -> Body {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut state =
        ListState { encoder, listed, last: None, started: false, deadline, _permit: permit };
    let (first, done) = next_chunk(&mut state);
    if done {
        return Body::from(first);
    }
    let rest = stream::unfold(Some(state), async |state| {
        let mut state = state?;
        if Instant::now() > state.deadline {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the list was not read in time");
            return Some((Err(late), None));
        }
        let (chunk, done) = next_chunk(&mut state);
        Some((Ok(chunk), (!done).then_some(state)))
    });
    let first = stream::once(async { Ok::<_, io::Error>(first) });
    Body::from_stream(futures::StreamExt::chain(first, rest))
}

/// The next chunk, and whether it is the last one.
fn next_chunk(state: &mut ListState) -> (Bytes, bool) {
    let mut chunk = Vec::with_capacity(CHUNK + (CHUNK >> 2));
    let revision = state.listed.revision();
    if !state.started {
        state.encoder.start_list(revision, &mut chunk);
    }
    let previous = state.last.take();
    let mut is_first = !state.started;
    for versioned in state.listed.after(previous.as_ref()) {
        if !is_first {
            chunk.push(b',');
        }
        is_first = false;
        state.encoder.write_item(versioned, &mut chunk);
        if chunk.len() >= CHUNK {
            state.last = Some(versioned.clone());
            break;
        }
    }
    state.started = true;
    let done = state.last.is_none();
    if done {
        state.encoder.end_list(revision, &mut chunk);
    }
    (chunk.into(), done)
}

struct WatchState {
    encoder: Encoder,
    watching: Watching,
    first: bool,
    deadline: Instant,
    closing: CancellationToken,
    ambient: Ambient,
}

/// A watch, event by event, until its time is over, the server closes, or an
/// error ends it.
pub(in crate::request) fn watch(
    encoder: Encoder,
    watching: Watching,
    lasts: Option<Duration>,
    closing: CancellationToken,
    ambient: Ambient,
) -> Body {
    let jitter = || Duration::from_secs(ambient.chance() % WATCH_SECONDS);
    let lasts = lasts.unwrap_or_else(|| Duration::from_secs(WATCH_SECONDS) + jitter());
    // Durations that no clock can hold end as late as any watch does.
    let now = Instant::now();
    let deadline = now.checked_add(lasts.min(MAX_WATCH)).unwrap_or(now);
    let state = WatchState { encoder, watching, first: true, deadline, closing, ambient };
    Body::from_stream(stream::unfold(state, async |mut state| {
        if Instant::now() >= state.deadline {
            return None;
        }
        let event = tokio::select! {
            biased;
            () = state.closing.cancelled() => None,
            () = sleep_until(state.deadline) => None,
            event = state.watching.next() => event,
        }?;
        let frame = match event {
            Ok(event) => {
                state.encoder.set_time(state.ambient.now());
                state.encoder.event(&event, state.first)
            }
            Err(error) => Encoder::error_event(&error),
        };
        state.first = false;
        Some((Ok::<_, io::Error>(frame), state))
    }))
}

/// No watch lasts longer than a day.
const MAX_WATCH: Duration = Duration::from_secs(24 * 60 * 60);
