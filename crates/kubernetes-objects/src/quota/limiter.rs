//! A limit that users share: on the number of requests in flight, or on bytes of memory.
//!
//! A [`Limiter`] has a capacity. A [`Permit`] uses a part of the capacity, its weight, until it is dropped. Each user may
//! hold only a [`Share`] of the capacity. A request without a free permit is rejected at once, or waits in a queue. The
//! queue serves users round-robin, regardless of the number of requests of each user, and the requests of one user in the
//! order of their arrival. A user whose next request does not fit is passed over until it fits.
//!
//! The limit is checked and charged under one lock, which is never held while a request waits.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The length of the queue per permit, and the number of users that can fill their own part of the queue.
const WAITING: usize = 4;
/// The number of waiting requests of one user per permit that the user may hold.
const WAITING_OF_USER: usize = 2;
/// The number of further waiting requests of users without other waiting requests, so that a full queue does not reject
/// new users.
const NEW_USERS: usize = 1_000;
/// The largest `Retry-After` of a rejected request, in seconds.
const LONGEST_RETRY: u32 = 30;
/// The weight of the previous average is `INERTIA - 1` of `INERTIA`.
const INERTIA: u32 = 8;

/// The part of the capacity that one user may hold.
#[derive(Clone, Copy, Debug)]
pub enum Share {
    /// The whole capacity.
    All,
    /// This weight.
    Weight(usize),
    /// One in this number of the capacity, and at least one.
    Part(usize),
    /// One in this number of the capacity that other users have left, so that free capacity remains for the next user.
    /// A user without permits may acquire the same part of the whole capacity at once, if it is free.
    PartOfRest(usize),
    /// One in this number of the free capacity. A user without permits may hold any free capacity.
    PartOfFree(usize),
}

/// A capacity that users share. Copies share the same capacity.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    capacity: usize,
    share: Share,
    /// The largest number of waiting requests of one user; zero if no request waits.
    waiting_of_user: usize,
    /// Whether a weight above a limit is granted if nothing else counts toward that limit.
    admits_oversized: bool,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    waiting: usize,
    /// The users with permits or waiting requests.
    users: HashMap<Arc<str>, OfUser>,
    /// The users with waiting requests, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// The number of the next waiting request.
    next: u64,
    /// The approximate time for which a permit is held.
    average: Duration,
}

#[derive(Debug)]
struct OfUser {
    name: Arc<str>,
    used: usize,
    /// In the order of their numbers.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    weight: usize,
    waker: Waker,
}

/// A part of the capacity, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    limiter: Limiter,
    user: Arc<str>,
    weight: usize,
    since: Option<Instant>,
    waited: Duration,
}

/// No permit is free, or none became free in time.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy {
    /// The estimated time until a permit is free, in seconds.
    pub retry_after: u32,
}

impl Limiter {
    /// Creates a limiter whose requests do not wait.
    pub fn new(capacity: usize, share: Share) -> Self {
        Self::with(Limits { capacity, share, waiting_of_user: 0, admits_oversized: false })
    }

    /// Creates a limiter whose requests wait, for permits of weight one. A user may have two waiting requests for each
    /// permit that it may hold.
    pub fn queued(capacity: usize, share: Share) -> Self {
        let share_of_user = share.weight(capacity, 0, 0);
        Self::new(capacity, share).with_waiting_of_user((share_of_user * WAITING_OF_USER).max(1))
    }

    /// Sets the largest number of waiting requests of one user.
    #[must_use]
    pub fn with_waiting_of_user(self, waiting_of_user: usize) -> Self {
        Self::with(Limits { waiting_of_user, ..self.0.limits })
    }

    /// Grants a weight above the capacity if all capacity is free, and a weight above the share of a user if the user
    /// has no permit.
    #[must_use]
    pub fn with_oversized(self) -> Self {
        Self::with(Limits { admits_oversized: true, ..self.0.limits })
    }

    fn with(limits: Limits) -> Self {
        Self(Arc::new(Inner { limits, state: Mutex::default() }))
    }

    /// Acquires a permit if one is free for the user, and no earlier request of the user waits.
    pub fn try_acquire(&self, user: &str, weight: usize) -> Option<Permit> {
        self.try_take(&mut self.lock(), user, weight)
    }

    /// Acquires a permit. Waits for it until `deadline` completes, which is polled only if the request waits.
    ///
    /// # Errors
    /// [`Busy`] if too many requests wait, or the deadline has passed.
    pub async fn acquire(
        &self,
        user: &str,
        weight: usize,
        deadline: impl Future<Output = ()>,
    ) -> Result<Permit, Busy> {
        let mut waiter = {
            let mut state = self.lock();
            if let Some(permit) = self.try_take(&mut state, user, weight) {
                return Ok(permit);
            }
            let waiting = self.0.limits.may_wait(&state, user).then(|| state.wait(user, weight));
            let (user, number) = waiting.ok_or_else(|| self.busy(&state))?;
            let since = Instant::now();
            Waiter { limiter: self, user, weight, number, since, is_done: false }
        };
        let mut deadline = pin!(deadline);
        let granted = poll_fn(|context| match waiter.poll(context) {
            Poll::Ready(permit) => Poll::Ready(Some(permit)),
            Poll::Pending => deadline.as_mut().poll(context).map(|()| None),
        });
        granted.await.ok_or_else(|| self.busy(&self.lock()))
    }

    /// Returns a permit without weight, which can grow.
    pub fn empty(&self, user: &str) -> Permit {
        self.permit(user.into(), 0)
    }

    /// Charges a user, even if a limit is exceeded.
    pub fn charge(&self, user: &str, weight: usize) -> Permit {
        let user = self.lock().add(user, weight);
        self.permit(user, weight)
    }

    /// The capacity in use.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// Whether this further weight exceeds the share of the user, regardless of the capacity.
    pub fn exceeds_share(&self, user: &str, weight: usize) -> bool {
        let (state, Limits { capacity, share, .. }) = (self.lock(), self.0.limits);
        let of_user = state.used_by(user);
        of_user.saturating_add(weight) > share.weight(capacity, state.used, of_user)
    }

    fn try_take(&self, state: &mut State, user: &str, weight: usize) -> Option<Permit> {
        let of_user = state.users.get(user);
        let is_next = of_user.is_none_or(|of_user| of_user.waiting.is_empty());
        let used = of_user.map_or(0, |of_user| of_user.used);
        let is_free = weight == 0 || (is_next && self.0.limits.fits(state.used, used, weight));
        is_free.then(|| self.permit(state.add(user, weight), weight))
    }

    fn permit(&self, user: Arc<str>, weight: usize) -> Permit {
        let since = (self.0.limits.waiting_of_user > 0).then(Instant::now);
        Permit { limiter: self.clone(), user, weight, since, waited: Duration::ZERO }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants free capacity to waiting requests, and wakes them after the lock has been released.
    fn hand_out(&self, mut state: MutexGuard<'_, State>) {
        let woken = state.hand_out(&self.0.limits);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// All waiting requests go first, each for the average time of previous requests.
    fn busy(&self, state: &State) -> Busy {
        let wait = state.average * u32::try_from(state.waiting).unwrap_or(u32::MAX);
        let seconds = wait.as_secs_f64() / self.0.limits.capacity.max(1) as f64;
        Busy { retry_after: (seconds.ceil() as u32).clamp(1, LONGEST_RETRY) }
    }
}

impl Permit {
    /// The user that holds the permit.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// The part of the capacity that the permit uses.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The time that the request waited for the permit; zero if the permit was free.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Increases the weight, if the further weight is free for the user.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let mut state = self.limiter.lock();
        let of_user = state.used_by(&self.user);
        let fits = self.limiter.0.limits.fits(state.used, of_user, more);
        if fits {
            state.add(&self.user, more);
            self.weight += more;
        }
        fits
    }

    /// Decreases the weight.
    pub fn shrink(&mut self, less: usize) {
        let less = less.min(self.weight);
        self.weight -= less;
        self.release(less, None);
    }

    fn release(&self, weight: usize, held: Option<Duration>) {
        if weight == 0 {
            return;
        }
        let mut state = self.limiter.lock();
        if let Some(held) = held {
            state.average = (state.average * (INERTIA - 1) + held) / INERTIA;
        }
        state.subtract(&self.user, weight);
        self.limiter.hand_out(state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.release(self.weight, self.since.map(|since| since.elapsed()));
    }
}

impl Share {
    fn weight(self, capacity: usize, used: usize, of_user: usize) -> usize {
        match self {
            Self::All => capacity,
            Self::Weight(weight) => weight,
            Self::Part(parts) => (capacity / parts).max(1),
            Self::PartOfRest(parts) if of_user == 0 => capacity / parts,
            Self::PartOfRest(parts) => capacity.saturating_sub(used - of_user) / parts,
            Self::PartOfFree(_) if of_user == 0 => capacity,
            Self::PartOfFree(parts) => capacity.saturating_sub(used) / parts,
        }
    }
}

impl Limits {
    fn fits(&self, used: usize, of_user: usize, weight: usize) -> bool {
        let is_within = |used: usize, limit: usize| {
            used.saturating_add(weight) <= limit || (self.admits_oversized && used == 0)
        };
        let share = self.share.weight(self.capacity, used, of_user);
        is_within(used, self.capacity) && is_within(of_user, share)
    }

    fn may_wait(&self, state: &State, user: &str) -> bool {
        let all = self.capacity.max(self.waiting_of_user).saturating_mul(WAITING);
        let of_user = state.users.get(user).map_or(0, |of_user| of_user.waiting.len());
        let all = if of_user == 0 { all.saturating_add(NEW_USERS) } else { all };
        of_user < self.waiting_of_user && state.waiting < all
    }
}

impl State {
    fn used_by(&self, user: &str) -> usize {
        self.users.get(user).map_or(0, |of_user| of_user.used)
    }

    fn update<T>(&mut self, user: &str, update: impl FnOnce(&mut OfUser) -> T) -> T {
        if let Some(of_user) = self.users.get_mut(user) {
            return update(of_user);
        }
        // The name of a new user is allocated once, and all permits of the user share it.
        let name: Arc<str> = user.into();
        let new = OfUser { name: Arc::clone(&name), used: 0, waiting: VecDeque::new() };
        update(self.users.entry(name).or_insert(new))
    }

    fn add(&mut self, user: &str, weight: usize) -> Arc<str> {
        if weight == 0 {
            return user.into();
        }
        self.used += weight;
        self.update(user, |of_user| {
            of_user.used += weight;
            Arc::clone(&of_user.name)
        })
    }

    fn subtract(&mut self, user: &str, weight: usize) {
        self.used = self.used.saturating_sub(weight);
        let Some(of_user) = self.users.get_mut(user) else { return };
        of_user.used = of_user.used.saturating_sub(weight);
        if of_user.used == 0 && of_user.waiting.is_empty() {
            self.users.remove(user);
        }
    }

    /// Adds a waiting request, and returns its user and its number.
    fn wait(&mut self, user: &str, weight: usize) -> (Arc<str>, u64) {
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        let (name, is_first) = self.update(user, |of_user| {
            let is_first = of_user.waiting.is_empty();
            of_user.waiting.push_back(Waiting { number, weight, waker: Waker::noop().clone() });
            (Arc::clone(&of_user.name), is_first)
        });
        if is_first {
            self.turns.push_back(Arc::clone(&name));
        }
        (name, number)
    }

    fn waiting(&mut self, user: &str, number: u64) -> Option<(&mut OfUser, usize)> {
        let of_user = self.users.get_mut(user)?;
        let index = of_user.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        Some((of_user, index))
    }

    /// Removes a waiting request. Returns `None` if it has been granted.
    fn leave(&mut self, user: &str, number: u64) -> Option<Waiting> {
        let (of_user, index) = self.waiting(user, number)?;
        let left = of_user.waiting.remove(index)?;
        if of_user.waiting.is_empty() {
            self.turns.retain(|one| **one != *user);
            self.subtract(user, 0);
        }
        self.waiting -= 1;
        Some(left)
    }

    /// Grants free capacity to waiting requests. A grant only tightens the limits, so requests that were passed over
    /// still do not fit.
    fn hand_out(&mut self, limits: &Limits) -> Vec<Waker> {
        let (mut woken, mut index) = (Vec::new(), 0);
        while (self.used < limits.capacity || self.used == 0)
            && let Some(of_user) = self.turns.get(index).and_then(|user| self.users.get_mut(user))
            && let Some(first) = of_user.waiting.front()
        {
            if !limits.fits(self.used, of_user.used, first.weight) {
                index += 1;
                continue;
            }
            self.used += first.weight;
            self.waiting -= 1;
            of_user.used += first.weight;
            woken.extend(of_user.waiting.pop_front().map(|first| first.waker));
            let has_more = !of_user.waiting.is_empty();
            let turn = self.turns.remove(index);
            self.turns.extend(turn.filter(|_| has_more));
        }
        woken
    }
}

/// A waiting request. Dropping it leaves the queue, or releases the permit that it has not received yet.
struct Waiter<'a> {
    limiter: &'a Limiter,
    user: Arc<str>,
    weight: usize,
    number: u64,
    since: Instant,
    is_done: bool,
}

impl Waiter<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Permit> {
        let mut state = self.limiter.lock();
        let Some((of_user, index)) = state.waiting(&self.user, self.number) else {
            self.is_done = true;
            let mut permit = self.limiter.permit(Arc::clone(&self.user), self.weight);
            permit.waited = self.since.elapsed();
            return Poll::Ready(permit);
        };
        let waker = of_user.waiting.get_mut(index).map(|waiting| &mut waiting.waker);
        let replaced = waker.filter(|waker| !waker.will_wake(context.waker()));
        let replaced = replaced.map(|waker| std::mem::replace(waker, context.waker().clone()));
        // A waker may own a task, which must not be dropped under the lock.
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.limiter.lock();
        let left = state.leave(&self.user, self.number);
        if left.is_none() {
            state.subtract(&self.user, self.weight);
        }
        // The next request of the user may be smaller.
        self.limiter.hand_out(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
