//! Waits for the outcome of writes whose result is unknown.

use std::time::Duration;

use tokio::time::sleep;

use super::{Revision, RevisionSequencer};

/// The longest time that a write of unknown outcome can still take effect. etcd gives up a request after seven seconds.
const UNSETTLED: Duration = Duration::from_secs(10);
/// The pause before the newest revision is queried again, if the store does not respond.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Waits until the outcome of a write that was sent before the call is settled. Then the write is visible in this
/// process, or it will never happen.
pub(super) async fn settled<E, F>(newest: impl Fn() -> F, sequencer: &RevisionSequencer)
where
    F: Future<Output = Result<Revision, E>>,
{
    sleep(UNSETTLED).await;
    let newest = loop {
        match newest().await {
            Ok(newest) => break newest,
            Err(_) => sleep(ASK_AGAIN).await,
        }
    };
    sequencer.wait_until(newest).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unknown_outcome_is_settled_when_the_store_answers_again_and_is_seen() {
        let (sequencer, asked) =
            (Arc::new(RevisionSequencer::continuing(Vec::new(), 7)), Cell::new(0));
        let newest = sequencer.after(sequencer.current());
        let began = Instant::now();
        let ask = || {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() < 3 { Err(()) } else { Ok(newest) })
        };
        let seen = async {
            sleep(UNSETTLED + Duration::from_secs(5)).await;
            sequencer.reach(newest);
        };
        tokio::join!(settled(ask, &sequencer), seen);
        assert_eq!((asked.get(), began.elapsed()), (3, UNSETTLED + Duration::from_secs(5)));
    }
}
