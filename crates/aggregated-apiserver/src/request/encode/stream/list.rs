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
use crate::storage::Versioned;
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
    framing: Framing,
    gzip: Option<Gzip>,
    /// A list is in flight until its last chunk.
    _permit: Permit,
}

/// The head and the tail of a list, unless the encoder writes them.
enum Framing {
    Json,
    Yaml(yaml::Frame),
    Protobuf(protobuf::Frame),
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
        let Some(mut gzip) = self.gzip.take() else { return self.next_chunk() };
        match self.next_chunk() {
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
    let framing = match media {
        Media::Json | Media::Indented => Framing::Json,
        Media::Yaml => {
            let mut empty = Vec::new();
            encoder.start_list(&page, &mut empty);
            encoder.end_list(&page, &mut empty);
            Framing::Yaml(yaml::Frame::of(&empty))
        }
        Media::Protobuf => {
            let frame = protobuf::Frame::of(&encoder, &listed, &page, &reader.account).await?;
            Framing::Protobuf(frame)
        }
    };
    let mut state = ListState {
        encoder,
        listed,
        page,
        last: None,
        started: false,
        has_items: false,
        done: false,
        indenter: Indenter::default(),
        framing,
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

impl ListState {
    fn next_chunk(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        if self.done {
            return None;
        }
        let chunk = self.make_chunk();
        // An error is the last item.
        self.done |= chunk.is_err();
        Some(chunk)
    }

    fn make_chunk(&mut self) -> Result<Vec<u8>, ApiError> {
        let mut chunk = Vec::with_capacity(CHUNK + (CHUNK >> 2));
        if !self.started {
            self.write_head(&mut chunk);
        }
        self.done = self.write_items(&mut chunk)?;
        self.started = true;
        if self.done {
            self.write_tail(&mut chunk);
        }
        match self.encoder.format.presentation.media {
            Media::Indented => return Ok(self.indenter.indent(&chunk)),
            Media::Json if self.done => chunk.push(b'\n'),
            Media::Json | Media::Yaml | Media::Protobuf => {}
        }
        Ok(chunk)
    }

    fn write_head(&self, chunk: &mut Vec<u8>) {
        match &self.framing {
            Framing::Json => self.encoder.start_list(&self.page, chunk),
            Framing::Yaml(frame) => chunk.extend_from_slice(frame.head.as_bytes()),
            Framing::Protobuf(frame) => chunk.extend_from_slice(&frame.head),
        }
    }

    fn write_tail(&self, chunk: &mut Vec<u8>) {
        match &self.framing {
            Framing::Json => self.encoder.end_list(&self.page, chunk),
            Framing::Yaml(frame) => {
                if !self.has_items {
                    chunk.extend_from_slice(yaml::NO_ITEMS);
                }
                chunk.extend_from_slice(frame.tail.as_bytes());
            }
            Framing::Protobuf(frame) => chunk.extend_from_slice(&frame.tail),
        }
    }

    /// Appends the next items until the chunk is full. Returns whether the list has ended.
    fn write_items(&mut self, chunk: &mut Vec<u8>) -> Result<bool, ApiError> {
        let previous = self.last.take();
        let (mut last, mut has_items) = (None, self.has_items);
        let mut ended = true;
        let mut step = Step::default();
        for (versioned, is_wanted) in self.listed.after(previous.as_ref()) {
            let size = versioned.object.size();
            // A large object starts a new chunk, because only then is there memory for it.
            let is_for_next = step.has_begun() && size > CHUNK;
            // If a conversion is missing, it is not known whether the object is selected.
            if is_incomplete() || chunk.len() >= CHUNK || is_for_next || step.is_over(size) {
                ended = false;
                break;
            }
            if is_wanted {
                let length = chunk.len();
                let written = self.write_item(&versioned, has_items, chunk);
                if is_incomplete() {
                    // The chunk ends before this object, and the next chunk starts with it.
                    chunk.truncate(length);
                    ended = false;
                    break;
                }
                written?;
                has_items = true;
            }
            last = Some(versioned.object.key().clone());
        }
        self.has_items = has_items;
        self.last = last;
        if is_incomplete() {
            self.last = self.last.take().or(previous);
            self.ask_ahead();
        }
        Ok(ended)
    }

    fn write_item(
        &self,
        versioned: &Versioned,
        has_items: bool,
        chunk: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        match &self.framing {
            Framing::Json => {
                if has_items {
                    chunk.push(b',');
                }
                self.encoder.write_item(versioned, chunk)
            }
            Framing::Yaml(_) => {
                let mut item = Vec::new();
                self.encoder.write_item(versioned, &mut item)?;
                chunk.extend(yaml::item(&item));
                Ok(())
            }
            Framing::Protobuf(_) => protobuf::write_item(&self.encoder, versioned, chunk),
        }
    }

    /// Encodes the following objects in order to record their missing conversions, so that one call of the webhook
    /// converts them all.
    fn ask_ahead(&self) {
        let mut step = Step::default();
        for (versioned, is_wanted) in self.listed.after(self.last.as_ref()) {
            if step.is_over(versioned.object.size()) {
                break;
            }
            if is_wanted {
                let _ = self.encoder.in_version(&versioned);
            }
        }
    }
}
