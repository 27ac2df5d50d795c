//! Conversion by webhooks. A step of code collects the conversions that it needs; the webhook is called for many
//! objects at a time, and the step is run again with the results.

mod counts;
mod review;

pub use counts::{CallTimes, Converted, WebhookCalls};

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use moka::future::Cache;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::kind::{CallWebhooks, Conversion, Conversions, Kind, Question, checked};
use crate::log_throttle::{LogThrottle, shown};
use crate::quota::{self, Account};
use crate::webhook::{Busy, CallError, Calls, Turn, Webhook};
use counts::{Counts, Outcome};

/// The largest duration of a call, including the wait for its turn; same as in kube-apiserver.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of concurrent calls to all webhooks. A call without a response uses a connection and the request
/// body.
const CALLS: usize = 64;
/// The largest number of concurrent calls to one webhook.
const CALLS_OF_ONE: usize = 4;
/// The largest number of responses that are read concurrently; each may use as much memory as one object.
const ANSWERS_READ: usize = 16;
/// The largest number of runs of a step. Each run learns the conversion of at least one object, and a step handles at
/// most 512 objects (`verb/step`).
const ROUNDS: usize = 1024;
/// The memory limit of the conversions of one step, in bytes; its objects have at most one mebibyte of JSON.
const KNOWN_BYTES: usize = 64 << 20;
/// The time for which results and failures are cached, because the watches of one change need the same conversion at
/// about the same time.
const REMEMBERED: Duration = Duration::from_secs(1);
/// The memory limit of the cached results, in bytes.
const REMEMBERED_BYTES: u64 = 8 << 20;
/// The copies of an object in memory during its conversion: the request and the response.
const COPIES: usize = 3;

/// Throttles the log about failures to a few lines a minute.
static FAILED: LogThrottle = LogThrottle::at_most(5);

/// The calls of conversion webhooks by a server: their limits, cached results and metrics.
pub struct ConversionWebhooks {
    calls: Calls,
    counts: Counts,
    /// The results of calls, by the hash of the request. Concurrent callers with the same request wait for the same
    /// result.
    answers: Cache<[u8; 32], Arc<[Conversion]>>,
    /// The calls in progress, by the hash of the request and of the user. Equal requests of one user wait for one
    /// permit ([`Turn`]). Nothing is cached here.
    asked_by_user: Cache<[u8; 32], Arc<[Conversion]>>,
}

impl Default for ConversionWebhooks {
    fn default() -> Self {
        let weigh = |_: &[u8; 32], answers: &Arc<[Conversion]>| {
            let size = |answer: &Conversion| match answer {
                Ok(tree) => quota::of_tree(tree),
                Err(why) => why.len(),
            };
            let bytes: usize = answers.iter().map(size).sum();
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let answers = Cache::builder().weigher(weigh).max_capacity(REMEMBERED_BYTES);
        Self {
            calls: Calls::new(CALLS, CALLS_OF_ONE, ANSWERS_READ),
            counts: Counts::new(),
            answers: answers.time_to_live(REMEMBERED).build(),
            asked_by_user: Cache::builder().max_capacity(0).time_to_live(Duration::ZERO).build(),
        }
    }
}

impl fmt::Debug for ConversionWebhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversionWebhooks").finish_non_exhaustive()
    }
}

/// Runs a step that may convert objects of a kind. If the kind is converted by a webhook, the step is run several
/// times, and must have the same result each time.
///
/// # Errors
/// 413 and 429 if the conversion exceeds a memory limit.
pub async fn known<T>(
    kind: &Kind,
    account: &Account,
    mut step: impl FnMut() -> T,
) -> Result<T, ApiError> {
    if !kind.is_converted_by_webhook() {
        return Ok(step());
    }
    // Boxed, because steps of other kinds do not need the memory of this future.
    Box::pin(repeated(account, &mut step)).await
}

/// Runs a step until a webhook has answered all conversions of it.
async fn repeated<T>(account: &Account, step: &mut impl FnMut() -> T) -> Result<T, ApiError> {
    let mut conversions = Conversions::default();
    for _ in 0..ROUNDS {
        let made = conversions.attempt(&mut *step);
        let missing = conversions.take_missing();
        if missing.is_empty() {
            return Ok(made);
        }
        drop(made);
        answer(missing, &mut conversions, account).await?;
        if conversions.known_bytes() > KNOWN_BYTES {
            return Err(ApiError::internal("what a webhook has converted takes too much memory"));
        }
    }
    Err(ApiError::internal("a step has too many conversions"))
}

/// Calls the webhook for some of the missing conversions, at least for the first.
///
/// # Errors
/// 413 and 429 if the conversion exceeds a memory limit; 429 if the call gets no turn in time.
pub async fn answer(
    missing: Vec<Question>,
    conversions: &mut Conversions,
    account: &Account,
) -> Result<(), ApiError> {
    let mut missing = VecDeque::from(missing);
    let Some(first) = missing.pop_front() else { return Ok(()) };
    let mut questions = vec![first];
    questions
        .extend(missing.into_iter().filter(|one| one.asks_same(&questions[0])).collect::<Vec<_>>());
    let size: usize = questions.iter().map(|one| quota::of_tree(&one.object)).sum();
    let _room = account.reserve((COPIES * size).min(quota::TREE_LIMIT))?;
    let questions: Arc<[Question]> = questions.into();
    let Some(first) = questions.first() else { return Ok(()) };
    let calls = first.webhook.calls.clone().unwrap_or_else(|| Arc::<ConversionWebhooks>::default());
    let user = account.user().unwrap_or_default().to_owned();
    let answers = calls.call(Arc::clone(&questions), user).await.map_err(|busy| {
        let why = format!("cannot call the conversion webhook: {busy}");
        ApiError::try_again(why, 1).bounded_by("webhooks")
    })?;
    for (question, answer) in questions.iter().zip(answers.iter()) {
        conversions.know(question.clone(), answer.clone());
    }
    Ok(())
}

impl CallWebhooks for ConversionWebhooks {
    fn call(
        self: Arc<Self>,
        questions: Arc<[Question]>,
        user: String,
    ) -> BoxFuture<'static, Result<Arc<[Conversion]>, String>> {
        async move { remembered(self, questions, user).await.map_err(|busy| busy.to_string()) }
            .boxed()
    }
}

/// The results for the first questions, at least for one. All questions have the same webhook and version.
///
/// # Errors
/// The reason for which the webhook was not called. It is not cached.
async fn remembered(
    webhooks: Arc<ConversionWebhooks>,
    questions: Arc<[Question]>,
    user: String,
) -> Result<Arc<[Conversion]>, Arc<Busy>> {
    let texts: Vec<String> = questions.iter().map(Question::json).collect();
    let Some(first) = questions.first() else { return Ok(Arc::from([])) };
    let name = digest(first, &texts);
    if let Some(answers) = webhooks.answers.get(&name).await {
        return Ok(answers);
    }
    let of_user = Sha256::new().chain_update(name).chain_update(&user).finalize().into();
    // Boxed, because the future of a call is large.
    let asked = Box::pin(ask_with_others(&webhooks, name, (&questions, &texts), &user));
    webhooks.asked_by_user.try_get_with(of_user, asked).await
}

/// The cache key of questions with the same webhook and version.
fn digest(Question { webhook, to, .. }: &Question, texts: &[String]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update(bytes.len().to_be_bytes());
        hash.update(bytes);
    };
    add(webhook.url.as_bytes());
    add(webhook.ca_bundle.as_deref().unwrap_or_default());
    add(webhook.review_version.as_bytes());
    add(to.as_bytes());
    texts.iter().for_each(|text| add(text.as_bytes()));
    hash.finalize().into()
}

/// Calls the webhook once for all users with the same request. The first user with a permit makes the call. If a user
/// gets no permit in time, the requests of other users do not fail.
async fn ask_with_others(
    webhooks: &ConversionWebhooks,
    name: [u8; 32],
    (questions, texts): (&[Question], &[String]),
    user: &str,
) -> Result<Arc<[Conversion]>, Busy> {
    let address = questions.first().map(|one| webhook(one).address()).unwrap_or_default();
    let turn = Mutex::new(Some(webhooks.calls.turn(&address, user, CALL_TIMEOUT).await?));
    let take_turn = || turn.lock().unwrap_or_else(PoisonError::into_inner).take();
    let is_own = AtomicBool::new(false);
    let own = async {
        is_own.store(true, Ordering::Relaxed);
        ask(webhooks, (questions, texts), user, take_turn()).await
    };
    let shared = {
        let mut shared = pin!(webhooks.answers.try_get_with(name, own));
        match futures::poll!(shared.as_mut()) {
            Poll::Ready(answers) => answers,
            Poll::Pending => {
                // The call of another user needs no second permit.
                drop(take_turn());
                shared.await
            }
        }
    };
    match shared {
        Ok(answers) => Ok(answers),
        Err(busy) if is_own.load(Ordering::Relaxed) => Err(Busy::clone(&busy)),
        // The user that made the shared call got no permit in time.
        Err(_) => {
            let answers = ask(webhooks, (questions, texts), user, None).await?;
            webhooks.answers.insert(name, Arc::clone(&answers)).await;
            Ok(answers)
        }
    }
}

async fn ask(
    webhooks: &ConversionWebhooks,
    (questions, texts): (&[Question], &[String]),
    user: &str,
    turn: Option<Turn<'_>>,
) -> Result<Arc<[Conversion]>, Busy> {
    let mut answers = Vec::new();
    match ask_once(webhooks, questions, texts, (user, turn)).await {
        Err(Failure::Busy(busy)) => return Err(busy),
        Ok(converted) => answers = converted,
        // An error of one object must not fail the other objects.
        Err(Failure::Refused(_)) if questions.len() > 1 => {
            let until = Instant::now() + CALL_TIMEOUT;
            for (question, text) in questions.iter().zip(texts) {
                let (question, text) = (std::slice::from_ref(question), std::slice::from_ref(text));
                match ask_once(webhooks, question, text, (user, None)).await {
                    // The results so far count; another call converts the rest.
                    Err(Failure::Busy(busy)) if answers.is_empty() => return Err(busy),
                    Err(Failure::Busy(_)) => break,
                    // Another call converts the rest.
                    Ok(converted) if Instant::now() > until => {
                        answers.extend(converted);
                        break;
                    }
                    Ok(converted) => answers.extend(converted),
                    Err(failure) => {
                        answers.push(Err(failure.told(&question[0])));
                        break;
                    }
                }
            }
        }
        Err(failure) => {
            answers.extend(questions.iter().map(|one| Err(failure.told(one))));
        }
    }
    Ok(answers.into())
}

/// The webhook of a question.
fn webhook(question: &Question) -> Webhook<'_> {
    let webhook = &question.webhook;
    Webhook { url: &webhook.url, ca_bundle: webhook.ca_bundle.as_deref() }
}

/// The reason for which a call failed.
enum Failure {
    /// This server has no capacity for the call.
    Busy(Busy),
    /// The webhook could not be called.
    Away(String),
    /// The webhook returned an error, or no valid ConversionReview.
    Refused(String),
    /// The webhook returned another number of objects than were sent. This is the message without its beginning.
    Partial(String),
}

impl Failure {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Busy(_) | Self::Away(_) => Outcome::Call,
            Self::Refused(_) => Outcome::Malformed,
            Self::Partial(_) => Outcome::Partial,
        }
    }

    fn told(&self, question: &Question) -> Arc<str> {
        let Question { webhook, object, .. } = question;
        match self {
            Self::Busy(busy) => webhook.failed(object, &busy.to_string()).into(),
            Self::Away(why) | Self::Refused(why) => webhook.failed(object, why).into(),
            Self::Partial(what) => {
                let failed = webhook.failed(object, "");
                failed.replacen(" failed: ", &format!(" {what}"), 1).into()
            }
        }
    }
}

async fn ask_once(
    webhooks: &ConversionWebhooks,
    questions: &[Question],
    texts: &[String],
    (user, turn): (&str, Option<Turn<'_>>),
) -> Result<Vec<Conversion>, Failure> {
    let Some(first) = questions.first() else { return Ok(Vec::new()) };
    let called = webhook(first);
    let Question { webhook, to, .. } = first;
    let uid = uuid::Uuid::new_v4().to_string();
    let address = called.address();
    let turn = match turn {
        Some(turn) => turn,
        None => {
            let turn = webhooks.calls.turn(&address, user, CALL_TIMEOUT).await;
            turn.map_err(Failure::Busy)?
        }
    };
    let began = Instant::now();
    let body = review::request(webhook.review_version, &uid, to, texts);
    let asked = webhooks.calls.post(called, body, &turn).await;
    let asked = asked.map_err(|error| match error {
        CallError::Failed(why) => Failure::Away(why),
        CallError::Busy(busy) => Failure::Busy(busy),
    });
    drop(turn);
    let asked = asked.and_then(|answer| {
        review::converted(&answer, webhook.review_version, &uid).map_err(Failure::Refused)
    });
    let converted = asked.and_then(|converted| match converted.len() == questions.len() {
        true => Ok(converted),
        false => {
            let (got, expected) = (converted.len(), questions.len());
            Err(Failure::Partial(format!("returned {got} objects, expected {expected}")))
        }
    });
    let converted = converted.inspect_err(|failure| {
        webhooks.ended(failure.outcome(), began.elapsed(), &questions[0]);
        FAILED.log(|suppressed| {
            let why = shown(failure.told(&questions[0]));
            tracing::warn!(suppressed, error = %why, "cannot convert objects");
        });
    })?;
    let both = questions.iter().zip(converted);
    let checked: Vec<Conversion> = both
        .map(|(question, converted)| checked(question, converted).map(Arc::new).map_err(Arc::from))
        .collect();
    let is_valid = checked.iter().all(Result::is_ok);
    let outcome = if is_valid { Outcome::Success } else { Outcome::Invalid };
    webhooks.ended(outcome, began.elapsed(), &questions[0]);
    Ok(checked)
}

impl ConversionWebhooks {
    /// Counts a finished call, whose first object is this one.
    fn ended(&self, outcome: Outcome, took: Duration, question: &Question) {
        let version = |api_version: &str| {
            api_version.rsplit_once('/').map_or(api_version, |(_, version)| version).to_owned()
        };
        let from = question.object.get("apiVersion").and_then(Value::as_str).map(version);
        let versions = (from.unwrap_or_default(), version(&question.to));
        let definition = &question.webhook.definition;
        self.counts.ended(outcome, took, definition, (&versions.0, &versions.1));
    }

    /// The number of calls of this server, by outcome.
    pub fn outcomes(&self) -> Vec<WebhookCalls> {
        self.counts.outcomes()
    }

    /// The durations of calls, by the converted kind and versions.
    pub fn definitions(&self) -> Vec<(Converted, CallTimes)> {
        self.counts.definitions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::WebhookConversion;

    fn question(calls: &Arc<ConversionWebhooks>) -> Question {
        let webhook = WebhookConversion {
            definition: "foos.example.com".to_owned(),
            // No program listens here, so each call fails.
            url: "https://127.0.0.1:1/convert".to_owned(),
            ca_bundle: None,
            review_version: "v1",
            calls: Some(Arc::clone(calls) as Arc<dyn CallWebhooks>),
        };
        let object = [("apiVersion".to_owned(), "example.com/v1".into())].into_iter().collect();
        Question { webhook: Arc::new(webhook), object, to: "example.com/v2".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conversion_without_a_turn_is_refused_and_not_remembered() {
        let webhooks = Arc::<ConversionWebhooks>::default();
        let address = "127.0.0.1:1";
        let users = ["a", "b", "c", "d"];
        let held = users.map(|user| webhooks.calls.turn(address, user, CALL_TIMEOUT));
        let held = futures::future::join_all(held).await;
        let mut conversions = Conversions::default();
        let asked = answer(vec![question(&webhooks)], &mut conversions, &Account::own()).await;
        let refused = asked.unwrap_err();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(1)));
        assert!(conversions.known_bytes() == 0, "nothing was learned");
        drop(held);
        answer(vec![question(&webhooks)], &mut conversions, &Account::own()).await.unwrap();
    }

    /// Converts a question for a user.
    async fn converted(
        webhooks: &Arc<ConversionWebhooks>,
        user: &str,
    ) -> Result<Arc<[Conversion]>, Arc<Busy>> {
        let questions = Arc::from([question(webhooks)]);
        remembered(Arc::clone(webhooks), questions, user.to_owned()).await
    }

    #[tokio::test]
    async fn a_user_without_a_free_webhook_slot_delays_no_other_user() {
        let webhooks = Arc::<ConversionWebhooks>::default();
        let turn = || webhooks.calls.turn("127.0.0.1:1", "eve", CALL_TIMEOUT);
        // All turns that one user may have.
        let _held = (turn().await.unwrap(), turn().await.unwrap());
        let mut eve = Box::pin(converted(&webhooks, "eve"));
        assert!(futures::poll!(eve.as_mut()).is_pending());
        tokio::select! {
            biased;
            jane = converted(&webhooks, "jane") => drop(jane.unwrap()),
            _ = &mut eve => panic!("eve has no turn"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_error_of_one_user_is_not_returned_to_another_user() {
        let webhooks = Arc::<ConversionWebhooks>::default();
        let first = question(&webhooks);
        let name = digest(&first, &[first.json()]);
        let refused = async {
            tokio::task::yield_now().await;
            Err(Busy::clone(&webhooks.calls.turn("a", "eve", Duration::ZERO).await.unwrap_err()))
        };
        // All turns of another webhook are held.
        let users = ["a", "b", "c", "d"];
        let _held = futures::future::join_all(
            users.map(|user| webhooks.calls.turn("a", user, CALL_TIMEOUT)),
        )
        .await;
        let eve = webhooks.answers.try_get_with(name, refused);
        let (eve, jane) = futures::future::join(eve, converted(&webhooks, "jane")).await;
        assert!(eve.is_err());
        let jane = jane.unwrap();
        assert!(jane.len() == 1);
        assert!(webhooks.answers.get(&name).await.is_some(), "this is remembered");
    }

    #[tokio::test]
    async fn users_with_the_same_conversion_share_one_webhook_call() {
        let webhooks = Arc::<ConversionWebhooks>::default();
        let first = question(&webhooks);
        let name = digest(&first, &[first.json()]);
        // A call of another user that has started.
        let begun = std::future::pending::<Result<Arc<[Conversion]>, Busy>>();
        let mut eve = Box::pin(webhooks.answers.try_get_with(name, begun));
        assert!(futures::poll!(eve.as_mut()).is_pending());
        let mut others: Vec<_> = (0..10).map(|_| Box::pin(converted(&webhooks, "jane"))).collect();
        for other in &mut others {
            assert!(futures::poll!(other.as_mut()).is_pending());
        }
        for user in ["a", "b", "c", "d"] {
            let turn = webhooks.calls.turn("127.0.0.1:1", user, CALL_TIMEOUT);
            assert!(turn.now_or_never().is_some(), "they hold no turn");
        }
        // When a call is cancelled, a waiting user makes it.
        drop(eve);
        futures::future::join_all(others).await.into_iter().for_each(|one| drop(one.unwrap()));
    }
}
