//! The sizes of a terminal.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use serde_json::Value;

/// The maximum size of the JSON of one size, in bytes.
const DOCUMENT_LIMIT: usize = 1024;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of columns.
    pub width: u16,
    /// The number of rows.
    pub height: u16,
}

/// The sizes of the terminal of a client, as a stream. It yields the latest size: sizes that were not polled before the
/// next one arrived are skipped.
#[derive(Debug)]
pub struct Sizes(Arc<Mutex<Latest>>);

/// Sets the sizes of a terminal, from the bytes of a client. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct SizeSender {
    latest: Arc<Mutex<Latest>>,
    received: Vec<u8>,
    is_invalid: bool,
}

#[derive(Debug, Default)]
struct Latest {
    size: Option<TerminalSize>,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Latest {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

pub(super) fn sizes() -> (SizeSender, Sizes) {
    let latest = Arc::new(Mutex::default());
    let sender =
        SizeSender { latest: Arc::clone(&latest), received: Vec::new(), is_invalid: false };
    (sender, Sizes(latest))
}

impl SizeSender {
    /// Parses a part of a sequence of JSON objects such as `{"Width":80,"Height":24}`. Everything after an invalid
    /// object is ignored.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        // Parts are small, so that the buffer is.
        for part in bytes.chunks(DOCUMENT_LIMIT) {
            if self.is_invalid {
                return;
            }
            self.received.extend_from_slice(part);
            self.parse();
        }
    }

    fn parse(&mut self) {
        let mut documents = serde_json::Deserializer::from_slice(&self.received).into_iter();
        let mut size = None;
        let mut end = 0;
        for document in documents.by_ref() {
            match document {
                Ok(document) => size = Some(parse_size(&document)),
                Err(error) => {
                    self.is_invalid = !error.is_eof();
                    break;
                }
            }
        }
        if !self.is_invalid {
            end = documents.byte_offset();
        }
        self.received.drain(..end);
        self.is_invalid |= self.received.len() > DOCUMENT_LIMIT;
        if let Some(size) = size {
            let mut latest = lock(&self.latest);
            latest.size = Some(size);
            latest.wake();
        }
    }
}

impl Drop for SizeSender {
    fn drop(&mut self) {
        let mut latest = lock(&self.latest);
        latest.is_closed = true;
        latest.wake();
    }
}

impl Stream for Sizes {
    type Item = TerminalSize;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TerminalSize>> {
        let mut latest = lock(&self.0);
        match latest.size.take() {
            None if !latest.is_closed => {
                latest.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            size => Poll::Ready(size),
        }
    }
}

/// Returns a size. Names of fields are compared as Go does, without regard to case.
fn parse_size(document: &Value) -> TerminalSize {
    let field = |name: &str| {
        let mut fields = document.as_object().into_iter().flatten();
        let value = fields.find(|(one, _)| one.eq_ignore_ascii_case(name));
        let value = value.and_then(|(_, value)| value.as_u64());
        value.and_then(|value| u16::try_from(value).ok()).unwrap_or_default()
    };
    TerminalSize { width: field("Width"), height: field("Height") }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[test]
    fn sizes_are_parsed_from_any_parts() {
        let (mut sender, mut sizes) = sizes();
        sender.receive(b"{\"Width\":80,\"Hei");
        assert_eq!(sizes.next().now_or_never(), None);
        sender.receive(b"ght\":24}\n");
        let size = TerminalSize { width: 80, height: 24 };
        assert_eq!(sizes.next().now_or_never(), Some(Some(size)));
    }

    #[test]
    fn the_latest_size_is_yielded() {
        let (mut sender, mut sizes) = sizes();
        sender.receive(b"{\"width\":1,\"height\":2}{\"width\":3,\"height\":4}");
        sender.receive(b"{\"width\":5,\"height\":6}");
        drop(sender);
        let size = TerminalSize { width: 5, height: 6 };
        assert_eq!(sizes.next().now_or_never(), Some(Some(size)));
        assert_eq!(sizes.next().now_or_never(), Some(None));
    }

    #[test]
    fn invalid_and_large_documents_are_ignored() {
        for bytes in [&b"nonsense"[..], &[b'['; 5000], &[b' '; 100_000], b"{\"Width\":70000}"] {
            let (mut sender, _sizes) = sizes();
            sender.receive(bytes);
            sender.receive(b"{\"Width\":1,\"Height\":1}");
            assert!(sender.received.len() <= 2 * DOCUMENT_LIMIT);
        }
    }
}
