//! The feed: it reads all objects in etcd, and sends them and every later change to the readers.
//!
//! One watch covers all keys, so changes of all collections arrive in the order of their revisions. Recent changes from
//! before the start are read too, as far as etcd has not compacted them. So watches can continue over a restart of this
//! process.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::channel::mpsc;
use serde::Deserialize;
use tokio::time::{interval, sleep, sleep_until, timeout};

use super::Shared;
use super::client::{Client, Fault, Watch, broken};
use super::keys::{Prefix, Row, number, revision};
use super::list::list;
use super::messages::{
    EventType, RangeRequest, RangeResponse, WatchAsk, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use crate::object::Key;
use crate::stored_value::Unreadable;
use crate::{Collection, Revision};

/// The version of the storage format. Later versions are rejected.
pub(super) const FORM: u32 = 1;
/// The largest number of past revisions that are read. etcd delivers some five thousand revisions per second, and the
/// server is not ready during that time.
const HISTORY: i64 = 5_000;
/// The number of objects that are sent to readers before other tasks may run.
const HANDED_ON: usize = 500;
/// The interval of progress requests. They detect a member that does not respond.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The time without a response after which another member is called.
const SILENCE: Duration = Duration::from_millis(2_500);
/// The time without a response after which another member is called, while etcd searches for changes since an old
/// revision.
const CATCHING_UP: Duration = Duration::from_secs(30);
/// The shortest interval between progress requests while a task waits for a revision. If other programs write to the
/// same etcd, a read waits at most this long for their revisions.
const PROGRESS: Duration = Duration::from_millis(10);
/// The time for which recent history is held for collections that have had no reader yet.
const PAST: Duration = Duration::from_secs(60);
/// The pause before etcd is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// The shortest interval between log messages that etcd cannot be read.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// The reason in the log why watches restart.
const FORGOTTEN: &str = "etcd has forgotten changes that are not known here";
const LOCKED: &str =
    "what was replaced or removed lately is encrypted with a key that is not there any more";

/// The reason why a watch of etcd ended.
enum Ended {
    /// The feed continues at the same revision.
    Broken(String),
    /// Changes were lost, for this reason. Everything must be read again.
    Lost(&'static str),
    /// The changes up to now exceed the limit of the history. A shorter history is read.
    TooMuch,
    /// The feed must not continue.
    Failed(String),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Compacted => Self::Lost(FORGOTTEN),
            Fault::AnswerTooLarge => Self::TooMuch,
            fault => Self::Broken(fault.text()),
        }
    }
}

/// The record of the store as a whole.
#[derive(Deserialize)]
struct Noted {
    form: u32,
}

/// Reads all objects in etcd, and follows their changes.
pub(super) struct Feed {
    client: Arc<Client>,
    shared: Arc<Shared>,
    prefix: Prefix,
    /// The identifier of the cluster of etcd.
    cluster: Option<u64>,
    /// The revision up to which all changes were sent to readers, if it is known.
    position: Option<Revision>,
    said: Option<Instant>,
    /// The time since which recent history is held for collections that have had no reader yet.
    past_since: Option<Instant>,
    /// The revision at which everything was last read, if it has been read.
    loaded: Option<i64>,
    /// The number of past revisions that are read. `history_bytes` is their limit in bytes.
    history: i64,
    history_bytes: usize,
    /// The bytes of past changes that were received since everything was read.
    past_read: usize,
}

impl Feed {
    pub fn new(
        client: Arc<Client>,
        shared: Arc<Shared>,
        prefix: Prefix,
        history_bytes: usize,
    ) -> Self {
        Self {
            client,
            shared,
            prefix,
            cluster: None,
            position: None,
            said: None,
            past_since: None,
            loaded: None,
            history: HISTORY,
            history_bytes,
            past_read: 0,
        }
    }

    /// Follows etcd until the feed must not continue.
    pub async fn run(mut self) {
        loop {
            let member = self.client.preferred();
            let Err(ended) = self.turn(member).await;
            match ended {
                Ended::Lost(why) => {
                    tracing::warn!(reason = %why, "reading all of etcd again; watches restart");
                    self.position = None;
                }
                Ended::TooMuch => {
                    self.shorten_history();
                    let count = self.history;
                    tracing::info!(
                        count,
                        "changes in etcd are larger than the history; only the last ones are read"
                    );
                    self.position = None;
                }
                Ended::Broken(why) => {
                    self.say(format!("{}: {why}", self.client.name(member)));
                    self.client.turn_away_from(member);
                }
                Ended::Failed(why) => {
                    tracing::error!("{why}");
                    self.shared.failed.set(why);
                    return;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Shortens the history to the length that fits its limit, if the remaining changes are as large as those that were
    /// read. The second call sets the history to none.
    fn shorten_history(&mut self) {
        let began = self.loaded.unwrap_or_default();
        let count = self.position.map_or(0, |position| number(position).abs_diff(began));
        let is_first = self.history == HISTORY;
        let fits = match self.past_read {
            0 => 0,
            read => i64::try_from(u128::from(count) * self.history_bytes as u128 / read as u128)
                .unwrap_or_default(),
        };
        self.history = if is_first { fits.clamp(0, HISTORY - 1) } else { 0 };
    }

    fn say(&mut self, why: String) {
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            tracing::warn!(error = %why, "cannot read etcd; retrying");
            self.said = Some(Instant::now());
        }
        self.shared.set_trouble(Some(why));
    }

    async fn turn(&mut self, member: usize) -> Result<std::convert::Infallible, Ended> {
        self.check_version(member).await?;
        let newest = self.look().await?;
        let position = match self.position {
            Some(position) => position,
            None => self.load(newest).await?,
        };
        self.position = Some(position);
        let watch = self.client.watch(member, self.watched_from(position)).await?;
        self.follow(watch, newest).await
    }

    /// Rejects versions of etcd that do not respond to progress requests, or respond wrongly.
    async fn check_version(&self, member: usize) -> Result<(), Ended> {
        let version = self.client.status(member).await?.version;
        if is_supported(&version) {
            return Ok(());
        }
        let name = self.client.name(member);
        Err(Ended::Failed(format!("etcd at {name} is {version}: 3.5.13 or a later one is needed")))
    }

    /// Returns the newest revision. The cluster must be the same as before, and not an older copy of it.
    async fn look(&mut self) -> Result<Revision, Ended> {
        let request = RangeRequest { key: self.prefix.store(), ..RangeRequest::default() };
        let answer = self.client.key(request).await?;
        let header = answer.header.unwrap_or_default();
        let newest = revision(header.revision);
        let replaced = |what: &str| {
            Ended::Failed(format!("etcd has been replaced {what}: what is shown here is not there"))
        };
        if self.cluster.is_some_and(|cluster| cluster != header.cluster_id) {
            return Err(replaced("by another one"));
        }
        let current = self.shared.sequencer.current();
        if newest < current {
            return Err(replaced(&format!(
                "by an older copy, of revision {newest} after {current}"
            )));
        }
        self.cluster = Some(header.cluster_id);
        check_form(&self.prefix, &answer).map_err(Ended::Failed)?;
        self.shared.set_new(answer.kvs.is_empty());
        Ok(newest)
    }

    /// Reads everything at a past revision, and returns this revision. It lies as far back as the history should reach
    /// and etcd has not compacted, but not before the newest revision that this process has received.
    async fn load(&mut self, newest: Revision) -> Result<Revision, Ended> {
        let began = Instant::now();
        let is_again = self.loaded.is_some();
        let known = self.shared.sequencer.current();
        let mut at = (number(newest) - self.history).max(number(known)).max(1);
        let known = |collection: &Collection, key: &Key, revision: Revision| {
            let object_index = self.shared.lock();
            let kept = object_index.get(collection, key).ok().flatten();
            kept.filter(|kept| kept.revision == revision).map(|kept| Arc::clone(&kept.object))
        };
        let mut rows = loop {
            match list(&self.client, &self.prefix, at, known).await {
                Err(Fault::Compacted) => at = self.compacted(at).await?.max(at + 1),
                listed => {
                    let rows = listed?;
                    // Objects whose key is missing may have been rewritten since. And a server that implements etcd's
                    // protocol may reject a watch that starts at its oldest revision. That revision was tried before.
                    let is_locked = !self.is_known() && rows.iter().any(is_locked);
                    if at >= number(newest) || !(is_locked || self.loaded == Some(at)) {
                        break rows;
                    }
                    at = number(newest);
                }
            }
        };
        if !self.is_known() {
            // After the start, objects whose key is missing are treated like damaged ones.
            rows.iter().try_for_each(ensure_unlocked)?;
        }
        let is_new = self.shared.is_new.load(Ordering::Relaxed);
        if is_new && !rows.is_empty() && rows.iter().all(|row| row.value.is_err()) {
            let place = self.prefix.first();
            let place = String::from_utf8_lossy(&place);
            let why = format!("what is under {place} in etcd was written by another program");
            return Err(Ended::Failed(why));
        }
        rows.sort_by_key(|row| row.revision);
        self.loaded = Some(at);
        self.past_read = 0;
        let at = revision(at);
        if is_again {
            // The history of watches is discarded first. So no watch continues as if it had received the following
            // changes.
            self.shared.lock().begin_past(at);
            self.remove_others(&rows, self.shared.sequencer.current());
        }
        let count = rows.len();
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            self.shared.take(rows.by_ref().take(HANDED_ON));
            tokio::task::yield_now().await;
        }
        self.shared.lock().begin_past(at);
        self.past_since = Some(Instant::now());
        self.shared.sequencer.reach(at);
        let took = began.elapsed().as_millis();
        tracing::info!(
            objects = count,
            milliseconds = took as u64,
            revision = %at,
            "read all objects from etcd"
        );
        Ok(at)
    }

    /// Removes objects that are in memory and no longer in etcd.
    fn remove_others(&self, rows: &[Row], at: Revision) {
        let there: HashSet<(&Collection, &Key)> =
            rows.iter().map(|row| (&row.collection, &row.key)).collect();
        let mut object_index = self.shared.lock();
        let gone: Vec<(Collection, Key)> = object_index
            .keys()
            .filter(|name| !there.contains(name))
            .map(|(collection, key)| (collection.clone(), key.clone()))
            .collect();
        for (collection, key) in gone {
            object_index.take(&collection, key, (at, None));
        }
    }

    /// Returns the oldest revision that etcd has not compacted. `at` lies before it.
    async fn compacted(&self, at: i64) -> Result<i64, Ended> {
        let watch =
            self.client.watch(self.client.preferred(), self.watched_from(revision(at))).await?;
        let mut responses = watch.responses;
        let answer = async {
            loop {
                match responses.message().await {
                    Ok(Some(response)) if response.compact_revision > 0 => {
                        return Ok(response.compact_revision);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(Ended::Broken("it has ended a watch".to_owned())),
                    Err(status) => return Err(broken(&status).into()),
                }
            }
        };
        let silent = || Ended::Broken("it does not say what it has forgotten".to_owned());
        timeout(SILENCE, answer).await.map_err(|_| silent())?
    }

    /// Builds the request of a watch that starts with the changes of this revision. So etcd reports progress even to a
    /// watch that is up to date. If the watch started after this revision, etcd would report nothing until the next
    /// write.
    fn watched_from(&self, position: Revision) -> WatchRequest {
        let create = WatchCreateRequest {
            key: self.prefix.first(),
            range_end: self.prefix.end(),
            start_revision: number(position),
            fragment: true,
        };
        WatchRequest { ask: Some(WatchAsk::Create(create)) }
    }

    /// Receives changes from a watch, and sends them to readers.
    async fn follow(
        &mut self,
        watch: Watch,
        newest: Revision,
    ) -> Result<std::convert::Infallible, Ended> {
        let Watch { mut requests, mut responses, member } = watch;
        let shared = Arc::clone(&self.shared);
        let (mut heartbeat, mut heard) = (interval(HEARTBEAT), Instant::now());
        let mut asked = tokio::time::Instant::now();
        let mut parts = Vec::new();
        let mut behind: Option<(Option<Revision>, Instant)> = None;
        loop {
            let wanted = async {
                sleep_until(asked + PROGRESS).await;
                shared.sequencer.wanted().await;
            };
            tokio::select! {
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        heard = Instant::now();
                        let values = response.events.iter().filter_map(|event| event.kv.as_ref());
                        self.prefix.learn(values).await.map_err(Ended::Broken)?;
                        self.take(response, &mut parts)?;
                        self.note_known(newest, member);
                    }
                    Ok(None) => return Err(Ended::Broken("it has ended the watch".to_owned())),
                    Err(status) => return Err(broken(&status).into()),
                },
                _ = heartbeat.tick() => {
                    // etcd must search for changes since an old revision, which takes longer.
                    let is_catching_up = self.position < Some(newest);
                    let patience = if is_catching_up { CATCHING_UP } else { SILENCE };
                    if heard.elapsed() > patience {
                        return Err(Ended::Broken("it says nothing".to_owned()));
                    }
                    // Other members may have progressed, while this one reports that nothing happens.
                    match behind {
                        _ if self.position >= Some(shared.seen()) => behind = None,
                        Some((position, since)) if position == self.position => {
                            if since.elapsed() > patience {
                                return Err(Ended::Broken("it has stopped".to_owned()));
                            }
                        }
                        _ => behind = Some((self.position, Instant::now())),
                    }
                    ask_for_progress(&mut requests);
                    if self.past_since.is_some_and(|since| since.elapsed() > PAST) {
                        // The history of collections that are not served here would otherwise be held forever.
                        self.past_since = None;
                        shared.lock().forget_past();
                    }
                }
                () = wanted => {
                    asked = tokio::time::Instant::now();
                    ask_for_progress(&mut requests);
                }
            }
        }
    }

    /// Receives a response of a watch. Fragments are collected in `parts` up to the last one.
    fn take(&mut self, response: WatchResponse, parts: &mut Vec<Row>) -> Result<(), Ended> {
        if response.compact_revision > 0 {
            return Err(Ended::Lost(FORGOTTEN));
        }
        if response.canceled {
            return Err(Ended::Broken(format!(
                "it has ended the watch: {}",
                response.cancel_reason
            )));
        }
        // This response contains the newest revision of etcd, but not the progress of the watch.
        if response.created {
            return Ok(());
        }
        let (mut reached, mut bytes) = (None, 0);
        for event in &response.events {
            let Some(kept) = &event.kv else { continue };
            bytes += kept.value.len();
            // This change was sent to readers already, or happened before everything was read.
            if Some(revision(kept.mod_revision)) <= self.position {
                continue;
            }
            reached = reached.max(Some(revision(kept.mod_revision)));
            let is_removed = event.r#type == i32::from(EventType::Delete);
            parts.extend(self.prefix.row(kept, is_removed));
        }
        self.note_read(bytes)?;
        if response.fragment {
            // The next fragment may contain more changes of the last revision.
            let last = parts.last().map(|row| row.revision);
            let count = parts.iter().take_while(|row| Some(row.revision) < last).count();
            let reached = count.checked_sub(1).map(|last| parts[last].revision);
            return self.hand_on(parts.drain(..count).collect(), reached);
        }
        let header = response.header.unwrap_or_default();
        // A response without events answers a progress request.
        let reached = match response.events.is_empty() && parts.is_empty() {
            true => Some(revision(header.revision)),
            false => reached.max(parts.last().map(|row| row.revision)),
        };
        self.hand_on(std::mem::take(parts), reached)
    }

    /// Counts the bytes of changes. During the start they count as history, which has a limit. Later they count as
    /// written bytes.
    fn note_read(&mut self, bytes: usize) -> Result<(), Ended> {
        if self.is_known() {
            self.shared.note_written(bytes);
            return Ok(());
        }
        self.past_read = self.past_read.saturating_add(bytes);
        match self.past_read > self.history_bytes.saturating_mul(2) && self.history > 0 {
            true => Err(Ended::TooMuch),
            false => Ok(()),
        }
    }

    /// Sends all changes up to a revision to readers.
    fn hand_on(&mut self, rows: Vec<Row>, reached: Option<Revision>) -> Result<(), Ended> {
        if !self.is_known() && rows.iter().any(is_locked) {
            return Err(Ended::Lost(LOCKED));
        }
        self.shared.take(rows.into_iter());
        if let Some(reached) = reached.filter(|reached| Some(*reached) > self.position) {
            self.position = Some(reached);
            self.shared.sequencer.reach(reached);
        }
        Ok(())
    }

    /// Whether everything that was in etcd at the start has been received.
    fn is_known(&self) -> bool {
        *self.shared.known.borrow()
    }

    fn note_known(&mut self, newest: Revision, member: usize) {
        if self.shared.trouble().is_some() {
            self.shared.set_trouble(None);
            let name = self.client.name(member);
            if self.said.take().is_some() {
                tracing::info!(member = name, "reading from etcd again");
            }
        }
        if !self.is_known() && self.position >= Some(newest) {
            tracing::info!(revision = %newest, "caught up with etcd");
            self.shared.known.send_replace(true);
        }
    }
}

/// Rejects a prefix that another program, or a later version of this one, has written to.
///
/// # Errors
/// A message that names which of the two has written there.
pub(super) fn check_form(prefix: &Prefix, noted: &RangeResponse) -> Result<(), String> {
    let Some(kept) = noted.kvs.first() else { return Ok(()) };
    let noted: Option<Noted> = serde_json::from_slice(&kept.value).ok();
    match noted {
        Some(Noted { form: FORM }) => Ok(()),
        Some(Noted { form }) => Err(format!(
            "the objects in etcd were written by a later release in format {form}, and this release reads format {FORM}; use the later release"
        )),
        None => {
            let place = prefix.store();
            let place = String::from_utf8_lossy(&place);
            Err(format!("{place} in etcd was written by another program"))
        }
    }
}

/// Whether a value is encrypted with a key that is missing.
fn is_locked(row: &Row) -> bool {
    matches!(row.value, Err(Unreadable::Locked(_)))
}

/// Rejects a value that is encrypted with a key that is missing.
fn ensure_unlocked(row: &Row) -> Result<(), Ended> {
    match &row.value {
        Err(why @ Unreadable::Locked(_)) => {
            let Row { collection, key, revision, .. } = row;
            let what = format!("{collection} {key} in etcd at revision {revision}");
            Err(Ended::Failed(format!("{what} {why}")))
        }
        _ => Ok(()),
    }
}

fn ask_for_progress(requests: &mut mpsc::Sender<WatchRequest>) {
    // A member that does not read its requests is detected by its missing responses.
    let ask = Some(WatchAsk::Progress(WatchProgressRequest {}));
    let _ = requests.try_send(WatchRequest { ask });
}

/// Whether the progress reports of this version of etcd are reliable.
fn is_supported(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next()) >= (3, 5, 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for version in ["3.5.13", "3.5.20", "3.6.0", "3.6.0-rc.1", "3.7.2", "4.0.0"] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["", "2.3.8", "3.4.31", "3.5.0", "3.5.12", "nonsense"] {
            assert!(!is_supported(version), "{version}");
        }
    }
}
