//! The life of a connection: work, last bytes, end. No step waits longer than the limits allow.

use std::pin::{Pin, pin};

use futures::FutureExt;
use tokio::time::{sleep, timeout};

use crate::activity::Activity;
use crate::{Error, Limits};

/// The end of the work of a connection.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    pub(crate) result: T,
    /// Whether the work was ended from outside.
    pub(crate) is_ended: bool,
}

/// Runs the work of a connection until it is done, or `end` is.
///
/// `connection` moves the bytes, and is done when the client has closed the connection. The work then has
/// [`Limits::close`] to notice it.
///
/// # Errors
/// When the client closed the connection before the work was done, or the connection was idle for too long.
pub(crate) async fn run<T>(
    connection: Pin<&mut impl Future<Output = Result<(), Error>>>,
    end: Pin<&mut impl Future<Output = T>>,
    work: impl Future<Output = T>,
    (activity, limits): (&Activity, &Limits),
) -> Result<Ended<T>, Error> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        result = work.as_mut() => Ok(Ended { result, is_ended: false }),
        closed = connection => {
            let _ = timeout(limits.close, work).await;
            Err(closed.err().unwrap_or(Error::Disconnected))
        }
        result = end => Ok(Ended { result, is_ended: true }),
        error = activity.idle(limits.idle) => Err(error),
    }
}

/// Sends the last bytes of a connection, and waits until the client has closed it, too.
///
/// A client may read the last bytes slowly, but some of them within [`Limits::idle`]. After `end` is done, it must read
/// them within [`Limits::close`].
///
/// # Errors
/// When the last bytes could not be sent.
pub(crate) async fn finish(
    mut connection: Pin<&mut impl Future<Output = Result<(), Error>>>,
    end: impl Future,
    last: impl Future<Output = Result<(), Error>>,
    (activity, limits): (&Activity, &Limits),
) -> Result<(), Error> {
    let mut last = pin!(last);
    tokio::select! {
        biased;
        sent = last.as_mut() => sent?,
        closed = connection.as_mut() => {
            // The client may close the connection at once after the last byte.
            let sent = last.now_or_never();
            return sent.unwrap_or(Err(closed.err().unwrap_or(Error::Disconnected)));
        }
        () = overdue(end, limits) => return Err(Error::Close(limits.close)),
        error = activity.stalled(limits.idle) => return Err(error),
    }
    let _ = timeout(limits.close, connection).await;
    Ok(())
}

/// Waits until `end` was done for [`Limits::close`].
pub(crate) async fn overdue(end: impl Future, limits: &Limits) {
    end.await;
    sleep(limits.close).await;
}
