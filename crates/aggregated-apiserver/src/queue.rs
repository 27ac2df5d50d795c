//! A queue for permits: when no permit is free, requests wait, round-robin over users, regardless of the number of
//! requests of each user.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// One user may hold one in this number of the permits, and may use the same part of the queue.
const SHARE: usize = 4;
/// The length of the queue per permit, and the number of waiting requests of one user per permit that the user may
/// hold.
const WAITING: usize = 4;
const WAITING_OF_USER: usize = 2;
/// The number of further waiting requests of users without other waiting requests, so that a full queue does not reject
/// new users.
const USERS: usize = 1_000;
/// The longest time that a request waits.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The largest `Retry-After` of a rejected request, in seconds.
const LONGEST_RETRY: u32 = 30;
/// The weight of the previous average is `INERTIA - 1` of `INERTIA`.
const INERTIA: u32 = 8;

/// A number of permits, and the requests that wait for them.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: usize,
    share: usize,
    waiting_of_user: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    waiting: usize,
    by_user: HashMap<String, OfUser>,
    /// The users with waiting requests, in the order of their turns.
    turns: VecDeque<String>,
    /// The approximate time for which a permit is held.
    average: Duration,
}

#[derive(Debug, Default)]
struct OfUser {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
}

/// A permit, which is released when it is dropped.
#[derive(Debug)]
pub struct QueuePlace {
    queue: Arc<Shared>,
    user: String,
    since: Instant,
}

/// No permit became free in time.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy {
    /// The estimated time until a permit is free, in seconds.
    pub retry_after: u32,
}

impl Queue {
    /// Creates a queue with this number of permits.
    pub fn new(places: usize) -> Self {
        let share = (places / SHARE).max(1);
        let waiting_of_user = share * WAITING_OF_USER;
        Self(Arc::new(Shared { places, share, waiting_of_user, state: Mutex::default() }))
    }

    /// Creates a queue in which one user may hold all permits, for a single user.
    pub fn undivided(places: usize) -> Self {
        let waiting_of_user = places * WAITING_OF_USER;
        let share = places;
        Self(Arc::new(Shared { places, share, waiting_of_user, state: Mutex::default() }))
    }

    /// Sets the largest number of waiting requests of one user.
    #[must_use]
    pub fn with_waiting_of_user(self, waiting_of_user: usize) -> Self {
        let Shared { places, share, .. } = *self.0;
        Self(Arc::new(Shared { places, share, waiting_of_user, state: Mutex::default() }))
    }

    /// Acquires a permit, and returns the time that the request has waited.
    ///
    /// # Errors
    /// [`Busy`] if too many requests wait, or no permit was free within ten seconds.
    pub async fn take(&self, user: &str) -> Result<(QueuePlace, Duration), Busy> {
        let since = Instant::now();
        let turn = {
            let mut state = self.0.state();
            let of_user = state.by_user.get(user);
            let (taken, waiting) =
                of_user.map_or((0, 0), |of_user| (of_user.taken, of_user.waiting.len()));
            if state.taken < self.0.places && taken < self.0.share {
                state.taken += 1;
                state.of(user).taken += 1;
                None
            } else if self.0.may_wait(&state, waiting) {
                let (sender, receiver) = oneshot::channel();
                state.waiting += 1;
                if waiting == 0 {
                    state.turns.push_back(user.to_owned());
                }
                state.of(user).waiting.push_back(sender);
                Some(receiver)
            } else {
                return Err(Busy { retry_after: self.0.retry_after(&state) });
            }
        };
        let place = || QueuePlace {
            queue: Arc::clone(&self.0),
            user: user.to_owned(),
            since: Instant::now(),
        };
        let Some(turn) = turn else { return Ok((place(), Duration::ZERO)) };
        let mut waiter = Waiter { queue: &self.0, user, turn };
        match timeout(LONGEST_WAIT, &mut waiter.turn).await {
            Ok(Ok(())) => Ok((place(), since.elapsed())),
            _ => Err(Busy { retry_after: self.0.retry_after(&self.0.state()) }),
        }
    }

    /// Whether a user holds as many permits as it may.
    pub fn is_share_taken(&self, user: &str) -> bool {
        self.0.state().by_user.get(user).is_some_and(|of_user| of_user.taken >= self.0.share)
    }

    /// The number of permits in use.
    pub fn taken(&self) -> usize {
        self.0.state().taken
    }
}

/// A waiting request; dropping it leaves the queue.
struct Waiter<'a> {
    queue: &'a Arc<Shared>,
    user: &'a str,
    turn: oneshot::Receiver<()>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // After this, the queue gives no permit to this request any more.
        self.turn.close();
        let was_given = self.turn.try_recv();
        let mut state = self.queue.state();
        match was_given {
            // The request got a permit, but has stopped waiting.
            Ok(()) => self.queue.free(&mut state, self.user),
            Err(oneshot::error::TryRecvError::Empty) => {}
            // The permit was taken, or the queue has noticed that the request stopped waiting.
            Err(oneshot::error::TryRecvError::Closed) => {
                let State { by_user, waiting, .. } = &mut *state;
                if let Some(of_user) = by_user.get_mut(self.user) {
                    let before = of_user.waiting.len();
                    of_user.waiting.retain(|waiter| !waiter.is_closed());
                    *waiting -= before - of_user.waiting.len();
                }
                state.tidy(self.user);
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a further request may wait, for a user with this number of waiting requests.
    fn may_wait(&self, state: &State, of_user: usize) -> bool {
        // The requests of as many users as may hold permits can fill their own limits.
        let waiting = (self.places * WAITING).max(self.waiting_of_user * SHARE);
        match of_user {
            0 => state.waiting < waiting + USERS,
            _ => of_user < self.waiting_of_user && state.waiting < waiting,
        }
    }

    /// Releases the permit of a user, and gives free permits to the next waiting requests.
    fn free(&self, state: &mut State, user: &str) {
        state.taken -= 1;
        state.of(user).taken -= 1;
        state.tidy(user);
        let mut passed = 0;
        while state.taken < self.places && passed < state.turns.len() {
            let Some(next) = state.turns.pop_front() else { return };
            let of_user = state.of(&next);
            if of_user.taken >= self.share {
                // Other users are next, until this user has released a permit.
                state.turns.push_back(next);
                passed += 1;
                continue;
            }
            let Some(waiter) = of_user.waiting.pop_front() else { continue };
            let has_more = !of_user.waiting.is_empty();
            state.waiting -= 1;
            if waiter.send(()).is_ok() {
                state.taken += 1;
                state.of(&next).taken += 1;
            }
            if has_more {
                state.turns.push_back(next);
            } else {
                state.tidy(&next);
            }
            passed = 0;
        }
    }

    /// The estimated time until a permit is free, in seconds: all waiting requests go first, each for the average time
    /// of previous requests.
    fn retry_after(&self, state: &State) -> u32 {
        let wait = state.average * u32::try_from(state.waiting).unwrap_or(u32::MAX);
        let seconds = wait.as_secs_f64() / self.places.max(1) as f64;
        (seconds.ceil() as u32).clamp(1, LONGEST_RETRY)
    }
}

impl State {
    fn of(&mut self, user: &str) -> &mut OfUser {
        self.by_user.entry(user.to_owned()).or_default()
    }

    /// Removes a user without permits and waiting requests.
    fn tidy(&mut self, user: &str) {
        let Some(of_user) = self.by_user.get(user) else { return };
        if !of_user.waiting.is_empty() {
            return;
        }
        if of_user.taken == 0 {
            self.by_user.remove(user);
        }
        self.turns.retain(|one| one != user);
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.average = (state.average * (INERTIA - 1) + self.since.elapsed()) / INERTIA;
        self.queue.free(&mut state, &self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn one_user_waits_for_a_queue_slot_while_others_get_one() {
        let queue = Queue::new(8);
        let first = queue.take("greedy").await.unwrap();
        let second = queue.take("greedy").await.unwrap();
        assert_eq!(queue.take("greedy").await.unwrap_err(), Busy { retry_after: 1 });
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take("greedy").await }
        });
        sleep(Duration::from_secs(2)).await;
        assert!(queue.take("modest").await.unwrap().1.is_zero());
        drop(first);
        let (third, waited) = waiting.await.unwrap().unwrap();
        assert_eq!((waited.as_secs(), queue.taken()), (2, 2));
        drop((second, third));
        assert_eq!(queue.taken(), 0);
        assert!(queue.0.state().by_user.is_empty() && queue.0.state().turns.is_empty());
    }

    /// Twenty users use all permits, one second each time, and have many more waiting requests.
    #[tokio::test(start_paused = true)]
    async fn a_single_request_is_not_delayed_by_users_with_many_requests() {
        let queue = Queue::new(40);
        let mut greedy = JoinSet::new();
        for number in 0..1_000 {
            let queue = queue.clone();
            greedy.spawn(async move {
                let Ok(_place) = queue.take(&format!("greedy-{}", number % 20)).await else {
                    return false;
                };
                sleep(Duration::from_secs(1)).await;
                true
            });
        }
        sleep(Duration::from_millis(100)).await;
        let (_place, waited) = queue.take("modest").await.unwrap();
        assert!(waited <= Duration::from_secs(1), "{waited:?}");
        let served = greedy.join_all().await.into_iter().filter(|&served| served).count();
        assert!((200..400).contains(&served), "{served}: bounded, and the queue was used");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_accepts_a_request_of_a_new_user() {
        let queue = Queue::new(8).with_waiting_of_user(1_000);
        let mut waiting = JoinSet::new();
        for number in 0..6_000 {
            let queue = queue.clone();
            waiting.spawn(async move { queue.take(&format!("user-{}", number % 6)).await });
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(queue.0.state().waiting, 4_000);
        let newcomer = tokio::spawn(async move { queue.take("newcomer").await.map(drop) });
        while !newcomer.is_finished() {
            drop(waiting.join_next().await.unwrap());
        }
        assert_eq!(newcomer.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_leave_no_state_in_the_queue() {
        let queue = Queue::new(1);
        let held = queue.take("a").await.unwrap();
        for user in ["a", "b"] {
            let gone = timeout(Duration::from_secs(1), queue.take(user)).await;
            assert!(gone.is_err());
        }
        assert_eq!(queue.take("b").await.unwrap_err().retry_after, 1, "it was too long");
        {
            let state = queue.0.state();
            assert_eq!((state.waiting, state.turns.len(), state.by_user.len()), (0, 0, 1));
        }
        drop(held);
        assert!(queue.take("b").await.is_ok());
    }
}
