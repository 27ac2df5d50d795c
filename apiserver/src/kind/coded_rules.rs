//! Rules of a kind that are written in Rust: what a webhook is needed for
//! elsewhere.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

/// What a rule knows of a write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RuleContext<'a> {
    /// Who writes.
    pub user: &'a User,
    /// When.
    pub now: Timestamp,
    /// Whether everything is checked and nothing is kept.
    pub dry_run: bool,
}

impl<'a> RuleContext<'a> {
    pub(crate) fn new(user: &'a User, now: Timestamp, dry_run: bool) -> Self {
        Self { user, now, dry_run }
    }
}

/// What rules say of an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Why it may not be kept.
    pub errors: Vec<FieldError>,
    /// What its author should know.
    pub warnings: Vec<String>,
}

/// The typed object before and after rules have prepared it, as trees.
pub struct Prepared {
    /// Before.
    pub before: Value,
    /// After.
    pub after: Value,
}

type Prepare = Box<dyn Fn(&Value, &RuleContext<'_>) -> Option<Prepared> + Send + Sync>;
type Judge = Box<dyn Fn(&Value, Option<&Value>, &RuleContext<'_>) -> Verdict + Send + Sync>;

/// Rules for the objects of one version.
pub struct CodedRules {
    version: String,
    prepare: Prepare,
    judge: Judge,
}

impl CodedRules {
    /// `prepare` answers with nothing for an object that does not fit its type:
    /// its schema says why.
    pub fn new(version: &str, prepare: Prepare, judge: Judge) -> Self {
        Self { version: version.to_owned(), prepare, judge }
    }

    /// Whether they are about objects of this version.
    pub fn is_about(&self, version: &str) -> bool {
        self.version == version
    }

    /// Lets rules fill in what is missing. What they have changed is changed in
    /// the tree and nothing else: what the type does not know stays.
    pub fn prepare(&self, tree: &mut Tree, context: &RuleContext<'_>) {
        let object = Value::Object(tree.clone());
        let Some(Prepared { before, after }) = (self.prepare)(&object, context) else { return };
        if let (Value::Object(before), Value::Object(after)) = (&before, &after) {
            change(tree, before, after);
        }
    }

    /// What rules say of an object, in the place of an old one.
    pub fn judge(&self, tree: &Tree, old: Option<&Tree>, context: &RuleContext<'_>) -> Verdict {
        let (object, old) = (Value::Object(tree.clone()), old.cloned().map(Value::Object));
        (self.judge)(&object, old.as_ref(), context)
    }
}

/// Makes the changes between two trees in a third one.
fn change(tree: &mut Tree, before: &Tree, after: &Tree) {
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        tree.remove(name);
    }
    for (name, value) in after {
        match (before.get(name), value, tree.get_mut(name)) {
            (Some(old), new, _) if old == new => {}
            (Some(Value::Object(before)), Value::Object(after), Some(Value::Object(tree))) => {
                change(tree, before, after);
            }
            (_, new, _) => {
                tree.insert(name.clone(), new.clone());
            }
        }
    }
}

impl fmt::Debug for CodedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodedRules").field("version", &self.version).finish_non_exhaustive()
    }
}
