//! Conversions by a webhook, for code that cannot wait.
//!
//! A step that converts is attempted. If conversions are missing, the step records them as questions and fails; once
//! they are answered, it is attempted again. So code that converts is the same for every kind, and only callers that
//! attempt a step wait.

use std::cell::RefCell;
use std::sync::Arc;

use super::webhook_conversion::WebhookConversion;
use crate::object::{Tree, to_json};
use crate::quota;

/// The largest number of questions that an attempt records. The next attempt records the others.
const QUESTIONS: usize = 64;
/// The largest memory of these questions in bytes; the first question does not count.
const BYTES: usize = 4 << 20;

/// An object that must be converted.
#[derive(Clone, Debug)]
pub struct Question {
    /// The webhook that converts the object.
    pub webhook: Arc<WebhookConversion>,
    /// The object.
    pub object: Tree,
    /// The requested version, such as `example.com/v1`.
    pub to: String,
}

impl Question {
    /// Whether the question equals another one.
    pub fn is(&self, other: &Self) -> bool {
        self.asks_same(other) && self.object == other.object
    }

    /// Whether two questions can be sent in one call.
    pub fn asks_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.webhook, &other.webhook) && self.to == other.to
    }

    /// The object as JSON.
    pub fn json(&self) -> String {
        to_json(&serde_json::Value::Object(self.object.clone()))
    }
}

/// A converted object, or the reason why it cannot be converted.
pub type Conversion = Result<Arc<Tree>, Arc<str>>;

/// The known conversions of a step, and the missing ones.
#[derive(Debug, Default)]
pub struct Conversions {
    known: Vec<(Question, Conversion)>,
    missing: Vec<Question>,
    /// The memory of the missing conversions, in bytes.
    bytes: usize,
    /// The memory of the known conversions, in bytes.
    known_bytes: usize,
}

thread_local! {
    /// The conversions of the attempt that is running on this thread.
    static CURRENT: RefCell<Option<Conversions>> = const { RefCell::new(None) };
}

/// Takes the conversions back from the thread, also after a panic.
struct Lent<'a>(&'a mut Conversions);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(current) = CURRENT.take() {
            *self.0 = current;
        }
    }
}

impl Conversions {
    /// Runs a step with the known conversions. Call [`take_missing`](Self::take_missing) afterwards. If conversions
    /// were missing, the result must not be used, and the step must run again.
    pub fn attempt<T>(&mut self, step: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(std::mem::take(self)));
        let _lent = Lent(self);
        step()
    }

    /// Takes the questions of the last attempt.
    pub fn take_missing(&mut self) -> Vec<Question> {
        self.bytes = 0;
        std::mem::take(&mut self.missing)
    }

    /// Adds a conversion.
    pub fn know(&mut self, question: Question, conversion: Conversion) {
        self.known_bytes += quota::of_tree(&question.object)
            + match &conversion {
                Ok(tree) => quota::of_tree(tree),
                Err(why) => why.len(),
            };
        self.known.push((question, conversion));
    }

    /// The number of known conversions.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The memory of the known conversions, in bytes.
    pub fn known_bytes(&self) -> usize {
        self.known_bytes
    }

    fn find(&self, question: &Question) -> Option<Conversion> {
        let mut known = self.known.iter();
        known.find(|(one, _)| one.is(question)).map(|(_, conversion)| conversion.clone())
    }

    fn miss(&mut self, question: Question) {
        let bytes = quota::of_tree(&question.object);
        let has_room = self.missing.len() < QUESTIONS && self.bytes + bytes <= BYTES;
        let is_new = !self.missing.iter().any(|one| one.is(&question));
        if self.missing.is_empty() || (has_room && is_new) {
            self.bytes += bytes;
            self.missing.push(question);
        }
    }
}

/// Looks up a conversion in the running attempt, or records the question.
///
/// # Errors
/// The reason why the object cannot be converted, or that the conversion is missing.
pub(super) fn answer(question: Question) -> Result<Tree, String> {
    CURRENT.with_borrow_mut(|current| {
        let unknown = question.webhook.failed(&question.object, "it is not asked here");
        let Some(current) = current else { return Err(unknown) };
        match current.find(&question) {
            Some(Ok(tree)) => Ok(Tree::clone(&tree)),
            Some(Err(why)) => Err(why.to_string()),
            None => {
                current.miss(question);
                Err(unknown)
            }
        }
    })
}

/// Whether conversions were missing in the running attempt, so that it must run again.
pub fn is_incomplete() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|one| !one.missing.is_empty()))
}
