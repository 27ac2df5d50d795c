//! Streams with an end that applies even if they are not polled.
//!
//! A connection does not poll a body while its client does not read. The memory of such a body must not be held
//! forever, so the stream is dropped at its end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::{FutureExt, Stream};
use tokio_util::task::AbortOnDropHandle;

type Held<S> = Arc<Mutex<Option<Pin<Box<S>>>>>;

struct Until<S> {
    held: Held<S>,
    _taker: AbortOnDropHandle<()>,
}

/// Returns the stream, which is dropped when `end` completes, even if the stream is not polled.
pub(in crate::request) fn until<S: Stream + Send + 'static>(
    end: impl Future<Output = ()> + Send + 'static,
    stream: S,
) -> impl Stream<Item = S::Item> + Send {
    let held = Arc::new(Mutex::new(Some(Box::pin(stream))));
    let to_take: Held<S> = Arc::clone(&held);
    // An async block would contain the future of the end twice.
    let taker = tokio::spawn(end.map(move |()| {
        let taken = to_take.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }));
    Until { held, _taker: AbortOnDropHandle::new(taker) }
}

impl<S> Drop for Until<S> {
    /// The runtime drops an aborted task later, so the stream is dropped here.
    fn drop(&mut self) {
        let taken = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }
}

impl<S: Stream> Stream for Until<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_mut() {
            Some(stream) => stream.as_mut().poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt, stream};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unread_stream_is_dropped_at_its_deadline() {
        let place = Arc::new(());
        let kept = Arc::clone(&place);
        let endless = stream::unfold(kept, async |kept| Some((1, kept)));
        let mut endless = Box::pin(until(sleep(Duration::from_secs(60)), endless));
        assert_eq!(endless.next().await, Some(1));
        assert_eq!(Arc::strong_count(&place), 2);
        sleep(Duration::from_secs(61)).await;
        assert_eq!(Arc::strong_count(&place), 1);
        assert_eq!(endless.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_dropped_before_its_deadline_frees_its_resources() {
        let place = Arc::new(());
        let kept = Arc::clone(&place);
        let endless = stream::unfold(kept, async |kept| Some((1, kept)));
        drop(until(sleep(Duration::from_secs(60)), endless));
        assert_eq!(Arc::strong_count(&place), 1);
    }
}
