//! What code that may not wait needs to know of others: conversions that a webhook makes.
//!
//! A step that converts is attempted. What it does not know yet it leaves behind as questions, and fails;
//! when they are answered it is attempted again. So code that converts is the same for every kind, and
//! only the callers that attempt a step wait.

use std::cell::RefCell;
use std::sync::Arc;

use super::webhook_conversion::WebhookConversion;
use crate::object::{Tree, to_json};
use crate::quota;

/// At most so many questions of an attempt are remembered: others are asked by the next one.
const QUESTIONS: usize = 64;
/// And, but for the first, so many bytes of memory of them.
const BYTES: usize = 4 << 20;

/// An object that is to be converted.
#[derive(Clone, Debug)]
pub struct Question {
    /// The webhook that converts it.
    pub webhook: Arc<WebhookConversion>,
    /// The object.
    pub object: Tree,
    /// `example.com/v1`
    pub to: String,
}

impl Question {
    /// Whether it is the same as another one.
    pub fn is(&self, other: &Self) -> bool {
        self.asks_same(other) && self.object == other.object
    }

    /// Whether both may be asked in one call.
    pub fn asks_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.webhook, &other.webhook) && self.to == other.to
    }

    /// Its object as JSON.
    pub fn json(&self) -> String {
        to_json(&serde_json::Value::Object(self.object.clone()))
    }
}

/// An object that was converted, or why it cannot be.
pub type Conversion = Result<Arc<Tree>, Arc<str>>;

/// What is known, and what is not.
#[derive(Debug, Default)]
pub struct Conversions {
    known: Vec<(Question, Conversion)>,
    missing: Vec<Question>,
    /// What those take that are missing.
    bytes: usize,
    /// What those take that are known, in bytes of memory.
    known_bytes: usize,
}

thread_local! {
    /// Those of the attempt that this thread makes.
    static CURRENT: RefCell<Option<Conversions>> = const { RefCell::new(None) };
}

/// Takes conversions back from the thread, also after a panic.
struct Lent<'a>(&'a mut Conversions);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(current) = CURRENT.take() {
            *self.0 = current;
        }
    }
}

impl Conversions {
    /// Does a step with what is known. What it misses is [taken](Self::take_missing) then; if that is anything,
    /// the step has to be done again, and its result may not be used.
    pub fn attempt<T>(&mut self, step: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(std::mem::take(self)));
        let _lent = Lent(self);
        step()
    }

    /// What the last attempt has missed.
    pub fn take_missing(&mut self) -> Vec<Question> {
        self.bytes = 0;
        std::mem::take(&mut self.missing)
    }

    /// Adds what was answered.
    pub fn know(&mut self, question: Question, conversion: Conversion) {
        self.known_bytes += quota::of_tree(&question.object)
            + match &conversion {
                Ok(tree) => quota::of_tree(tree),
                Err(why) => why.len(),
            };
        self.known.push((question, conversion));
    }

    /// How many conversions are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// What they take, in bytes of memory.
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

/// What becomes of a question in the attempt that is made.
///
/// # Errors
/// Why it cannot be converted, or that this is not known.
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

/// Whether the attempt that is made has missed something: then it is made again.
pub fn is_incomplete() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|one| !one.missing.is_empty()))
}
