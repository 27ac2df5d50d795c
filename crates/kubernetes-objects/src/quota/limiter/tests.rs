use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;
use std::thread;

use super::*;

const USERS: [&str; 4] = ["eve", "jane", "joe", "jim"];

type Acquiring = Pin<Box<dyn Future<Output = Result<Permit, Busy>>>>;

/// A flag that a waker sets.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A request that waits for a permit.
struct Request {
    number: usize,
    user: usize,
    weight: usize,
    acquiring: Acquiring,
    is_woken: Arc<Flag>,
    /// Completes the deadline.
    is_late: Arc<AtomicBool>,
}

impl Request {
    fn new(limiter: &Limiter, number: usize, user: &'static str, weight: usize) -> Self {
        let (limiter, is_late) = (limiter.clone(), Arc::new(AtomicBool::new(false)));
        let deadline = Arc::clone(&is_late);
        let acquiring = Box::pin(async move {
            let deadline = poll_fn(|_| match deadline.load(Ordering::SeqCst) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            limiter.acquire(user, weight, deadline).await
        });
        let is_woken = Arc::default();
        let index = USERS.iter().position(|one| *one == user).unwrap_or_default();
        Self { number, user: index, weight, acquiring, is_woken, is_late }
    }

    fn woken(&self) -> Option<usize> {
        self.is_woken.0.load(Ordering::SeqCst).then_some(self.number)
    }

    fn poll(&mut self) -> Poll<Result<Permit, Busy>> {
        let waker = Arc::clone(&self.is_woken).into();
        self.acquiring.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// The same limits as the limiter, as simple as possible.
struct Model {
    limits: Limits,
    used: [usize; USERS.len()],
    /// The waiting requests of the users in the order of their turns: the user, and the number and weight of each.
    turns: Vec<(usize, Vec<(usize, usize)>)>,
}

impl Model {
    fn total(&self) -> usize {
        self.used.iter().sum()
    }

    fn fits(&self, user: usize, weight: usize) -> bool {
        let (total, of_user, capacity) = (self.total(), self.used[user], self.limits.capacity);
        let share = match self.limits.share {
            Share::All => capacity,
            Share::Weight(weight) => weight,
            Share::Part(parts) => (capacity / parts).max(1),
            Share::PartOfRest(parts) if of_user == 0 => capacity / parts,
            Share::PartOfRest(parts) => capacity.saturating_sub(total - of_user) / parts,
            Share::PartOfFree(_) if of_user == 0 => capacity,
            Share::PartOfFree(parts) => capacity.saturating_sub(total) / parts,
        };
        let is_oversized = self.limits.admits_oversized;
        (total + weight <= capacity || (is_oversized && total == 0))
            && (of_user + weight <= share || (is_oversized && of_user == 0))
    }

    /// Whether the request gets a permit (`Some(true)`), waits (`Some(false)`), or is rejected.
    fn arrive(&mut self, number: usize, user: usize, weight: usize) -> Option<bool> {
        let turn = self.turns.iter().position(|(one, _)| *one == user);
        if turn.is_none() && self.fits(user, weight) {
            self.used[user] += weight;
            return Some(true);
        }
        if turn.map_or(0, |turn| self.turns[turn].1.len()) >= self.limits.waiting_of_user {
            return None;
        }
        match turn {
            Some(turn) => self.turns[turn].1.push((number, weight)),
            None => self.turns.push((user, vec![(number, weight)])),
        }
        Some(false)
    }

    fn leave(&mut self, number: usize) {
        self.turns.iter_mut().for_each(|(_, all)| all.retain(|(one, _)| *one != number));
        self.turns.retain(|(_, all)| !all.is_empty());
    }

    /// Grants capacity to the first request, in the order of the turns, until no first request fits. Returns the
    /// requests.
    fn hand_out(&mut self) -> Vec<usize> {
        let mut granted = Vec::new();
        while let Some(turn) = self.turns.iter().position(|(user, all)| self.fits(*user, all[0].1))
        {
            let (user, mut all) = self.turns.remove(turn);
            let (number, weight) = all.remove(0);
            self.used[user] += weight;
            granted.push(number);
            if !all.is_empty() {
                self.turns.push((user, all));
            }
        }
        granted
    }
}

/// A limiter and its model, with the same permits and waiting requests.
struct Compared {
    limiter: Limiter,
    model: Model,
    permits: Vec<(usize, Permit)>,
    waiting: Vec<Request>,
    number: usize,
}

impl Compared {
    fn new(limiter: Limiter) -> Self {
        let model = Model { limits: limiter.0.limits, used: [0; USERS.len()], turns: Vec::new() };
        Self { limiter, model, permits: Vec::new(), waiting: Vec::new(), number: 0 }
    }

    fn arrive(&mut self, user: usize, weight: usize) {
        self.number += 1;
        let mut request = Request::new(&self.limiter, self.number, USERS[user], weight);
        match (request.poll(), self.model.arrive(self.number, user, weight)) {
            (Poll::Ready(Ok(permit)), Some(true)) => self.permits.push((user, permit)),
            (Poll::Pending, Some(false)) => self.waiting.push(request),
            (Poll::Ready(Err(_)), None) => {}
            (polled, expected) => panic!("{polled:?} instead of {expected:?}"),
        }
    }

    /// A request stops waiting, or its deadline passes. It may have been granted a permit just before.
    fn stop_waiting(&mut self, index: usize, is_late: bool) {
        let mut request = self.waiting.swap_remove(index);
        if is_late {
            request.is_late.store(true, Ordering::SeqCst);
            assert!(matches!(request.poll(), Poll::Ready(Err(Busy { .. }))));
        }
        self.model.leave(request.number);
    }

    fn release(&mut self, index: usize) {
        let (user, permit) = self.permits.swap_remove(index);
        self.model.used[user] -= permit.weight;
    }

    /// Checks that exactly the requests that the model grants are woken, and receive their permits. If `abandons`
    /// returns true, a request is dropped instead, and others get its permit.
    fn settle(&mut self, abandons: impl Fn() -> bool) {
        let mut granted = self.model.hand_out();
        loop {
            let woken: BTreeSet<_> = self.waiting.iter().filter_map(Request::woken).collect();
            assert_eq!(woken, granted.iter().copied().collect());
            let Some(number) = granted.pop() else { break };
            let index = self.waiting.iter().position(|request| request.number == number);
            let mut request = self.waiting.swap_remove(index.unwrap());
            if abandons() {
                self.model.used[request.user] -= request.weight;
                drop(request);
                granted.extend(self.model.hand_out());
                continue;
            }
            let Poll::Ready(Ok(permit)) = request.poll() else { panic!("{number} has no permit") };
            self.permits.push((request.user, permit));
        }
        self.check();
    }

    fn check(&self) {
        let state = self.limiter.lock();
        assert_eq!(USERS.map(|user| state.used_by(user)), self.model.used);
        assert_eq!((state.used, state.waiting), (self.model.total(), self.waiting.len()));
        let turns: Vec<_> = self.model.turns.iter().map(|(user, _)| USERS[*user]).collect();
        assert!(state.turns.iter().map(|user| &**user).eq(turns));
        let limits = self.limiter.0.limits;
        if !limits.admits_oversized {
            let share = limits.share.weight(limits.capacity, 0, 0);
            assert!(state.used <= limits.capacity);
            assert!(self.model.used.iter().all(|&used| used <= share));
        }
        let is_known = |user: &&&str| {
            let waits = |request: &Request| USERS[request.user] == **user;
            state.used_by(user) > 0 || self.waiting.iter().any(waits)
        };
        assert_eq!(state.users.len(), USERS.iter().filter(is_known).count());
    }
}

/// Random requests of several users arrive, stop waiting, reach their deadline, and release their permits.
#[test]
fn random_requests_get_permits_as_in_a_simple_model() {
    let shares =
        [Share::All, Share::Weight(5), Share::Part(3), Share::PartOfRest(2), Share::PartOfFree(1)];
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (capacity, share) = (random.usize(1..20), shares[random.usize(..shares.len())]);
        let limiter = Limiter::new(capacity, share).with_waiting_of_user(random.usize(..6));
        let limiter = if random.bool() { limiter.with_oversized() } else { limiter };
        let mut compared = Compared::new(limiter);
        let heaviest = random.usize(1..8);
        for _ in 0..300 {
            let (waiting, held) = (compared.waiting.len(), compared.permits.len());
            match random.u8(..8) {
                0..4 => compared.arrive(random.usize(..USERS.len()), random.usize(1..=heaviest)),
                4 if waiting > 0 => compared.stop_waiting(random.usize(..waiting), random.bool()),
                5.. if held > 0 => compared.release(random.usize(..held)),
                _ => {}
            }
            let abandons = std::cell::RefCell::new(random.fork());
            compared.settle(|| abandons.borrow_mut().u8(..10) == 0);
        }
        while !compared.permits.is_empty() {
            compared.release(0);
            compared.settle(|| false);
        }
        // Requests that never fit still wait.
        while !compared.waiting.is_empty() {
            compared.stop_waiting(0, false);
            compared.settle(|| false);
        }
        assert!(compared.limiter.lock().turns.is_empty());
    }
}

/// Blocks the thread until a future completes.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(Duration::from_secs(60));
    }
}

#[test]
fn threads_never_hold_more_than_the_capacity_and_all_of_them_finish() {
    let limiter = Limiter::queued(8, Share::Part(2));
    let held = AtomicUsize::new(0);
    let work = |user: &'static str| {
        let mut random = fastrand::Rng::new();
        for _ in 0..2_000 {
            let weight = random.usize(1..=4);
            if random.u8(..10) == 0 {
                let mut request = Request::new(&limiter, 0, user, weight);
                drop(request.poll());
                continue;
            }
            let permit = block_on(limiter.acquire(user, weight, std::future::pending())).unwrap();
            assert!(held.fetch_add(weight, Ordering::SeqCst) + weight <= 8);
            thread::yield_now();
            held.fetch_sub(weight, Ordering::SeqCst);
            drop(permit);
        }
    };
    thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || work(USERS[thread % USERS.len()]));
        }
    });
    let state = limiter.lock();
    assert!(state.users.is_empty() && state.used == 0 && state.waiting == 0);
}

fn all(limiter: &Limiter, user: &str) -> Vec<Permit> {
    std::iter::from_fn(|| limiter.try_acquire(user, 1)).collect()
}

#[test]
fn a_few_users_cannot_use_the_whole_capacity() {
    let limiter = Limiter::new(1_000, Share::PartOfRest(4));
    let held = ["a", "b", "c", "d", "e", "modest"].map(|user| all(&limiter, user));
    assert_eq!(held.map(|permits| permits.len()), [250, 187, 140, 105, 79, 59]);
    let limiter = Limiter::new(8, Share::PartOfRest(4));
    let twice = |user| [limiter.try_acquire(user, 1), limiter.try_acquire(user, 1)];
    let held = ["a", "b", "c", "d", "e", "f", "g", "h"].map(twice);
    assert_eq!((held.iter().flatten().flatten().count(), limiter.used()), (8, 8));
    assert!(limiter.try_acquire("i", 1).is_none(), "all are taken");
}

/// Twenty users use all permits, and have many more waiting requests.
#[test]
fn a_single_request_is_not_delayed_by_users_with_many_requests() {
    let limiter = Limiter::queued(40, Share::Part(4));
    let greedy: Vec<_> = (0..20).map(|number| format!("greedy-{number}").leak() as &str).collect();
    let mut held: Vec<_> = greedy.iter().flat_map(|user| all(&limiter, user)).collect();
    assert_eq!(held.len(), 40);
    let mut waiting: Vec<_> = (0..1_000)
        .map(|number| Request::new(&limiter, 0, greedy[number % greedy.len()], 1))
        .filter_map(|mut request| request.poll().is_pending().then_some(request))
        .collect();
    assert_eq!(waiting.len(), 160, "bounded");
    let mut modest = Request::new(&limiter, 0, "modest", 1);
    assert!(modest.poll().is_pending());
    for _ in 0..=greedy.len() {
        drop(held.remove(0));
        held.extend(waiting.extract_if(.., |one| one.woken().is_some()).filter_map(|mut one| {
            match one.poll() {
                Poll::Ready(permit) => permit.ok(),
                Poll::Pending => None,
            }
        }));
    }
    assert!(matches!(modest.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn a_full_queue_accepts_a_request_of_a_new_user() {
    let limiter = Limiter::queued(8, Share::Part(4)).with_waiting_of_user(1_000);
    let mut requests: Vec<_> =
        (0..6_000).map(|number| Request::new(&limiter, 0, USERS[number % 4], 1)).collect();
    let mut others: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|user| std::iter::repeat_with(|| Request::new(&limiter, 0, user, 1)).take(1_000))
        .collect();
    let held: Vec<_> = requests.iter_mut().chain(&mut others).map(Request::poll).collect();
    assert!(limiter.lock().waiting >= 4_000);
    assert!(matches!(Request::new(&limiter, 0, "a", 1).poll(), Poll::Ready(Err(_))));
    assert!(Request::new(&limiter, 0, "new", 1).poll().is_pending());
    drop(held);
}

#[test]
fn waiting_requests_are_limited_for_each_user_and_for_all_users() {
    let limiter = Limiter::queued(2, Share::Part(2));
    let _held = ["a", "b"].map(|user| limiter.try_acquire(user, 1).unwrap());
    let users: Vec<_> = (0..2_000).map(|number| format!("user-{number}").leak() as &str).collect();
    let mut requests: Vec<_> = users.iter().map(|_| Vec::new()).collect();
    for (user, requests) in users.iter().zip(&mut requests) {
        requests.extend((0..10).map(|_| Request::new(&limiter, 0, user, 1)));
        requests.retain_mut(|request| request.poll().is_pending());
    }
    let counts: Vec<_> = requests.iter().map(Vec::len).collect();
    assert_eq!(counts[..4], [2; 4], "two for each permit of a user, and four for each permit");
    assert_eq!(counts[4..4 + NEW_USERS], [1; NEW_USERS]);
    assert!(counts[4 + NEW_USERS..].iter().all(|count| *count == 0));
    drop(requests);
    let state = limiter.lock();
    assert_eq!((state.waiting, state.users.len()), (0, 2));
}

#[test]
fn a_dropped_request_releases_its_queue_position_or_its_permit() {
    let limiter = Limiter::new(1, Share::All).with_waiting_of_user(2);
    let request = |number| Request::new(&limiter, number, "eve", 1);
    let held = limiter.try_acquire("eve", 1).unwrap();
    let (mut first, mut second) = (request(1), request(2));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    assert!(matches!(request(3).poll(), Poll::Ready(Err(_))), "the queue is full");
    drop(second);
    let mut last = request(4);
    assert!(last.poll().is_pending());
    drop(held);
    assert_eq!((first.woken(), last.woken()), (Some(1), None));
    // The request was granted the permit, but has not received it.
    drop(first);
    assert_eq!((last.woken(), limiter.used()), (Some(4), 1));
    drop(last);
    assert!(limiter.lock().users.is_empty() && limiter.used() == 0);
}

#[test]
fn a_permit_is_used_until_the_work_that_owns_it_ends() {
    let limiter = Limiter::queued(1, Share::All);
    let mut request = Request::new(&limiter, 0, "eve", 1);
    let Poll::Ready(Ok(permit)) = request.poll() else { panic!("it has no permit") };
    let (end, ended) = std::sync::mpsc::channel();
    let work = thread::spawn(move || {
        let _permit = permit;
        ended.recv()
    });
    // The work continues after its request has been cancelled.
    drop(request);
    let mut next = Request::new(&limiter, 1, "jane", 1);
    assert!(next.poll().is_pending());
    end.send(()).unwrap();
    work.join().unwrap().unwrap();
    assert!(matches!(next.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn the_lock_is_free_while_requests_wait_and_are_woken() {
    struct ChecksLock(Limiter);
    impl ChecksLock {
        fn check(&self) {
            assert!(self.0.0.state.try_lock().is_ok());
        }
    }
    impl Wake for ChecksLock {
        fn wake(self: Arc<Self>) {
            self.check();
        }
    }
    impl Drop for ChecksLock {
        fn drop(&mut self) {
            self.check();
        }
    }
    let limiter = Limiter::queued(1, Share::All);
    let held = limiter.try_acquire("eve", 1);
    let deadline = poll_fn(|_| {
        ChecksLock(limiter.clone()).check();
        Poll::Pending::<()>
    });
    // A future that held the guard of the lock would not be `Send`.
    let mut waiting: Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(limiter.acquire("jane", 1, deadline));
    let mut late = Box::pin(limiter.acquire("joe", 1, std::future::pending()));
    for _ in 0..2 {
        // The second poll replaces and drops the first waker.
        let waker = Arc::new(ChecksLock(limiter.clone())).into();
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(late.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop((late, held));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// Members of `system:masters` are charged, and their requests do not wait.
#[test]
fn a_charge_does_not_wait_behind_waiting_requests() {
    let limiter = Limiter::queued(1, Share::All);
    let held = limiter.try_acquire("eve", 1);
    let mut waiting = Request::new(&limiter, 0, "eve", 1);
    assert!(waiting.poll().is_pending());
    let charged = [limiter.charge("eve", 1), limiter.charge("admin", 1)];
    drop(held);
    assert!(waiting.poll().is_pending() && limiter.used() == 2);
    drop(charged);
    assert!(matches!(waiting.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn a_charge_may_exceed_the_limits_and_permits_grow_within_them() {
    let limiter = Limiter::new(8, Share::Part(2));
    let charged = limiter.charge("eve", 10);
    assert_eq!((limiter.used(), limiter.exceeds_share("eve", 0)), (10, true));
    assert!(limiter.try_acquire("joe", 1).is_none() && !limiter.exceeds_share("joe", 4));
    drop(charged);
    let mut permit = limiter.empty("joe");
    assert!(limiter.lock().users.is_empty());
    assert!(permit.try_grow(4) && !permit.try_grow(1));
    permit.shrink(3);
    assert_eq!((limiter.used(), permit.try_grow(4)), (1, false));
    drop(permit);
    assert!(limiter.lock().users.is_empty() && limiter.used() == 0);
}

#[test]
fn rejected_requests_are_told_when_to_try_again() {
    let limiter = Limiter::queued(1, Share::Part(4));
    let held = limiter.try_acquire("a", 1).unwrap();
    let mut late = Request::new(&limiter, 0, "b", 1);
    assert!(late.poll().is_pending());
    late.is_late.store(true, Ordering::SeqCst);
    assert!(matches!(late.poll(), Poll::Ready(Err(Busy { retry_after: 1 }))));
    drop(late);
    limiter.lock().average = Duration::from_secs(7);
    let _waiting: Vec<_> = ["a", "b"]
        .map(|user| {
            let mut request = Request::new(&limiter, 0, user, 1);
            assert!(request.poll().is_pending());
            request
        })
        .into();
    assert_eq!(limiter.busy(&limiter.lock()), Busy { retry_after: 14 });
    drop(held);
}
