//! Responses that are sent piece by piece: lists in chunks, watches event by event.
//!
//! A list, and the initial events of a watch, hold a snapshot. A task encodes them and waits for the client until a
//! deadline, because a client that stops reading must not keep objects in memory that were deleted long ago. The
//! connection pulls the later events of a watch: for a slow client, the cursor into the watch cache stands still.

mod list;
mod watch;

pub(in crate::request) use list::list;
pub(in crate::request) use watch::{WatchContext, watch};

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::conversion;
use crate::error::ApiError;
use crate::kind::Conversions;
use crate::quota::{self, Account};
use crate::request::answers::{Answer, Charge};
use crate::storage::Versioned;
use crate::user::User;

/// The size of a chunk, in bytes. Larger chunks do not make a list faster; smaller ones make it slower.
const CHUNK: usize = 64 << 10;
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

    /// Waits for memory for the response with an object, unless the object is small.
    pub(in crate::request) async fn room_for(
        &self,
        versioned: &Versioned,
    ) -> Result<Option<Charge>, ApiError> {
        self.answer.room_for(&self.user, versioned).await
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
