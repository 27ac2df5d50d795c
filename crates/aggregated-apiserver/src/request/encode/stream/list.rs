//! Lists in chunks.

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Response, StatusCode};

use super::super::gzip::{self, Gzip};
use super::super::indent::Indenter;
use super::super::{Encoder, Page, protobuf, started, yaml};
use super::{Asking, CHUNK, Chunks, Reader, produce, sent};
use crate::error::ApiError;
use crate::kind::is_incomplete;
use crate::object::Key;
use crate::request::negotiate::{Media, Presentation};
use crate::request::throttle::Permit;
use crate::verb::{ListPage, Step};

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
