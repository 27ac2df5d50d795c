use std::future::pending;
use std::sync::{Weak, mpsc};
use std::thread;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::super::stream_reset::{Activity, Close, ConnectionHandle};
use super::pool::{SLOW, STALLED, STREAMING, USER_SHARE};
use super::*;

/// A connection that carries one request at a time. The token is cancelled if it is reset.
fn of_connection(ended: CancellationToken) -> StreamReset {
    struct NoStream;
    impl Close for NoStream {
        fn close(&self) {}
    }
    let stream = Weak::<NoStream>::new();
    StreamReset::of_connection(ConnectionHandle { ended, activity: Activity::default(), stream })
}

fn user(number: usize) -> User {
    User { name: format!("user-{number}"), ..User::default() }
}

/// Begins a response for a user. The token is cancelled if the stream is reset.
fn begin(answers: &Answers, user: &User) -> (Answer, CancellationToken) {
    let reset = CancellationToken::new();
    let answer = answers.begin(of_connection(reset.clone()));
    answer.charged_to(user);
    (answer, reset)
}

#[tokio::test]
async fn a_user_without_free_streaming_slots_resets_no_response_of_others() {
    let (eve, joe) = (user(0), user(1));
    let answers = Answers::new(LIMIT);
    let (honest, reset) = begin(&answers, &joe);
    let _place = honest.begin_streaming(&joe).await.unwrap();
    let _held = honest.charge_length(PIECE, Purpose::Sending);
    let mut greedy = Vec::new();
    for _ in 0..STREAMING / 4 {
        let (answer, reset) = begin(&answers, &eve);
        let place = answer.begin_streaming(&eve).await.unwrap();
        greedy.push((answer.charge_length(PIECE, Purpose::Sending), place, reset));
    }
    let (more, _) = begin(&answers, &eve);
    let hers_gives_way = async { join_any(&greedy).await };
    tokio::select! {
        _ = more.begin_streaming(&eve) => unreachable!("nothing is given back"),
        () = hers_gives_way => {}
    }
    assert!(!reset.is_cancelled());
}

#[tokio::test]
async fn a_response_behind_a_larger_one_of_its_user_resets_no_response_of_others() {
    const SIZE: usize = 1_000;
    let (eve, joe) = (user(0), user(1));
    let answers = Answers::new(40 * SIZE);
    let (honest, reset) = begin(&answers, &joe);
    let _held = honest.charge_length(20 * SIZE, Purpose::Sending);
    let (unread, reset_of_unread) = begin(&answers, &eve);
    let _unread = unread.charge_length(5 * SIZE, Purpose::Sending);
    let (large, small) = (begin(&answers, &eve).0, begin(&answers, &eve).0);
    tokio::select! {
        biased;
        _ = large.room(&eve, 9 * SIZE) => unreachable!("it exceeds her part"),
        _ = small.room(&eve, 2 * SIZE) => unreachable!("the larger one is before it"),
        () = reset_of_unread.cancelled() => {}
    }
    assert!(!reset.is_cancelled());
}

#[tokio::test]
async fn responses_of_masters_wait_for_no_memory_and_no_slot() {
    let (answers, eve) = (Answers::new(1_000), user(0));
    let master = User { groups: vec!["system:masters".to_owned()], ..user(1) };
    let (held, waiting) = (begin(&answers, &eve).0, begin(&answers, &eve).0);
    let _held = held.charge_length(1_000, Purpose::Sending);
    let mut waiting = pin!(waiting.room(&eve, 1_000));
    assert!(futures::poll!(&mut waiting).is_pending());
    for _ in 0..=STREAMING {
        let (answer, _) = begin(&answers, &master);
        let charge = futures::poll!(pin!(answer.room(&master, 1_000)));
        assert!(matches!(charge, std::task::Poll::Ready(Ok(_))));
        let slot = futures::poll!(pin!(answer.begin_streaming(&master)));
        assert!(matches!(slot, std::task::Poll::Ready(Ok(None))));
    }
}

async fn join_any<A, B>(answers: &[(A, B, CancellationToken)]) {
    let ends = answers.iter().map(|(.., reset)| Box::pin(reset.cancelled()));
    futures::future::select_all(ends).await;
}

#[tokio::test]
async fn error_responses_are_closed_before_a_small_response_of_a_user() {
    let answers = Answers::new(LIMIT);
    let (honest, reset) = begin(&answers, &user(0));
    let _held = honest.charge_length(PIECE, Purpose::Sending);
    let refusals: Vec<_> = (0..1_000)
        .map(|_| {
            let reset = CancellationToken::new();
            let answer = answers.begin(of_connection(reset.clone()));
            (answer.charge_length((LIMIT - PIECE) / 1_000, Purpose::Sending), reset)
        })
        .collect();
    while refusals.iter().any(|(charge, _)| !charge.stream.is_stalled(now(), STALLED)) {
        tokio::task::yield_now().await;
    }
    answers.0.make_room(None, Lack::Bytes);
    assert!(!reset.is_cancelled());
    let cancelled = refusals.iter().filter(|(_, reset)| reset.is_cancelled()).count();
    assert!((200..300).contains(&cancelled), "a quarter: {cancelled}");
}

#[tokio::test]
async fn freeing_memory_of_one_user_does_not_delay_freeing_memory_of_all() {
    let (eve, joe) = (user(0), user(1));
    let answers = Answers::new(LIMIT);
    let (unread, reset) = begin(&answers, &joe);
    let _held = unread.charge_length(LIMIT / 2, Purpose::Sending);
    let (waiting, _) = begin(&answers, &eve);
    while !unread.0.is_stalled(now(), STALLED) {
        tokio::task::yield_now().await;
    }
    answers.0.make_room(Some(waiting.charged_to(&eve)), Lack::Bytes);
    assert!(!reset.is_cancelled());
    answers.0.make_room(None, Lack::Bytes);
    assert!(reset.is_cancelled());
}

#[tokio::test]
async fn unread_responses_are_closed_before_responses_being_encoded() {
    let answers = Answers::new(LIMIT);
    let (making, reset_of_making) = begin(&answers, &user(0));
    let (unread, reset_of_unread) = begin(&answers, &user(1));
    let _room = making.room(&user(0), LIMIT / USER_SHARE).await.unwrap();
    // The sum is below the limit, so that no other code resets streams.
    let _held = unread.charge_length(LIMIT / 2, Purpose::Sending);
    while !making.0.is_stalled(now(), STALLED) || !unread.0.is_stalled(now(), STALLED) {
        tokio::task::yield_now().await;
    }
    answers.0.make_room(Some(making.charged_to(&user(0))), Lack::Bytes);
    answers.0.make_room(None, Lack::Bytes);
    assert!(reset_of_unread.is_cancelled() && !reset_of_making.is_cancelled());
    let later = now() + milliseconds(SLOW);
    assert!(making.0.is_in_the_way(later), "a part that takes long to be made gives way");
}

/// Some threads create responses while others search for streams to reset. A lock that is taken twice would block the
/// threads, and a sort order that changes during the sort would panic.
#[tokio::test(flavor = "multi_thread")]
async fn response_memory_accounting_is_correct_under_concurrent_use() {
    const ROUNDS: usize = 30_000;
    let answers = Answers::new(LIMIT);
    let look = |look: fn(&Pool)| {
        let pool = Arc::downgrade(&answers.0);
        thread::spawn(move || while pool.upgrade().is_some_and(|pool| (look(&pool), true).1) {})
    };
    let looks = [
        look(|pool| drop(pool.first_to_give_way(None, Lack::Bytes, |_| true))),
        // Streams that have just begun are not selected, and are dropped.
        look(|pool| drop(pool.all(|_| false))),
        look(|pool| drop(pool.all(|_| false))),
    ];
    let (done, all_done) = mpsc::channel();
    for number in 0..8 {
        let (answers, done, runtime) = (answers.clone(), done.clone(), Handle::current());
        thread::spawn(move || {
            let _runtime = runtime.enter();
            let begin = |number| {
                let answer = answers.begin(StreamReset::default());
                answer.charged_to(&user(number));
                let charge = answer.charge_length(1, Purpose::Sending);
                (answer, charge)
            };
            let mut held: Vec<_> = (0..20).map(|_| begin(number)).collect();
            for round in 0..ROUNDS {
                let place = round % held.len();
                held[place].1 = held[place].0.charge_length(1 + round % 100, Purpose::Sending);
                drop(begin(round % 20));
            }
            drop(held);
            done.send(()).unwrap();
        });
    }
    for _ in 0..8 {
        all_done.recv_timeout(Duration::from_secs(120)).unwrap();
    }
    let pool = Arc::downgrade(&answers.0);
    assert_eq!(answers.0.memory.used(), 0);
    drop(answers);
    for look in looks {
        look.join().unwrap();
    }
    assert!(pool.upgrade().is_none_or(|pool| pool.streams().by_number.is_empty()));
}

#[tokio::test]
async fn unread_responses_beyond_the_limit_are_closed_without_new_requests() {
    let answers = Answers::new(100_000);
    let resets: Vec<StreamReset> =
        (0..20).map(|_| StreamReset::new(CancellationToken::new())).collect();
    let answered = |reset: &StreamReset, status: u16| {
        let response = Response::builder().status(status).body(Body::from(vec![7; 5_000]));
        answers.begin(reset.clone()).hold(response.unwrap())
    };
    let held: Vec<_> = resets.iter().map(|reset| answered(reset, 200)).collect();
    let length = |response: &Response<Body>| response.body().size_hint().exact();
    assert!(held.iter().all(|response| length(response) == Some(5_000)));
    assert!(!answers.0.has_room(0));
    // While the limit is exceeded, an error is sent without a body.
    assert_eq!(length(&answered(&resets[0], 404)), Some(0));
    // A response that is not read is reset.
    let ends = resets.iter().map(|reset| Box::pin(reset.clone().guard(pending())));
    futures::future::select_all(ends).await;
    drop(held);
    assert_eq!(length(&answered(&resets[0], 404)), Some(5_000));
}

/// Responses from many threads reserve the same memory simultaneously.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_responses_of_one_user_stay_within_the_memory_limit() {
    const SIZE: usize = 1_000;
    let answers = Answers::new(40 * SIZE);
    let eve = user(0);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (answers, eve) = (answers.clone(), eve.clone());
        tasks.spawn(async move {
            for _ in 0..2_000 {
                let answer = answers.begin(StreamReset::default());
                let charge = answer.room(&eve, SIZE).await.unwrap();
                let held = answers.0.memory.used();
                assert!(held <= 10 * SIZE, "{held}");
                tokio::task::yield_now().await;
                drop(charge);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(answers.0.memory.used(), 0);
}

#[tokio::test]
async fn released_memory_wakes_only_waiting_responses_that_fit() {
    const SIZE: usize = 1_000;
    let answers = Answers::new(40 * SIZE);
    let begin = || answers.begin(StreamReset::default());
    let room = async |number, size| begin().room(&user(number), size * SIZE).await.unwrap();
    let mut held = vec![room(0, 8).await, room(0, 2).await];
    held.extend([room(1, 10).await, room(2, 10).await, room(3, 10).await]);
    let [large, small, other] = [(4, 9), (5, 2), (6, 2)].map(|(number, size)| room(number, size));
    let (mut large, mut small, mut other) = (Box::pin(large), Box::pin(small), Box::pin(other));
    assert!(futures::poll!(&mut large).is_pending());
    assert!(futures::poll!(&mut small).is_pending());
    assert!(futures::poll!(&mut other).is_pending());
    drop(held.remove(1));
    assert!(futures::poll!(&mut large).is_pending());
    let std::task::Poll::Ready(granted) = futures::poll!(&mut small) else { unreachable!() };
    assert!(futures::poll!(&mut other).is_pending());
    // Memory that was granted to a response that does not wait any more is granted to the next one.
    drop(held.remove(0));
    drop((large, other));
    assert!(futures::poll!(Box::pin(room(0, 8))).is_ready());
    drop((granted, held));
}
