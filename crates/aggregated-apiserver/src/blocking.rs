//! Blocking work: runs it without blocking the worker threads of the runtime.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Polls a future whose polls may block. In a multi-threaded runtime, another thread becomes the worker until the poll
/// returns.
pub fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(|| future.poll(context)),
        _ => future.poll(context),
    }
}

/// Runs work that may block. In a multi-threaded runtime, another thread becomes the worker until the work is done.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_during_a_blocking_poll() {
        let (sender, receiver) = channel();
        let long = tokio::spawn(async move {
            // The poll blocks until another task was polled.
            tokio::spawn(async move { sender.send(()) });
            let mut work = pin!(async move { receiver.recv_timeout(Duration::from_secs(60)) });
            poll_fn(|context| poll(work.as_mut(), context)).await
        });
        assert_eq!(long.await.unwrap(), Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_during_blocking_work() {
        let (sender, receiver) = channel();
        let long = tokio::spawn(async move {
            tokio::spawn(async move { sender.send(()) });
            run(|| receiver.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(long.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_current_thread_runtime_polls_blocking_futures_directly() {
        let mut work = pin!(async { 1 });
        assert_eq!(poll_fn(|context| poll(work.as_mut(), context)).await, 1);
    }
}
