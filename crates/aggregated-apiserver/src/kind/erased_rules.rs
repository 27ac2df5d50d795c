//! Rules of a kind that are written in Rust: what a webhook is needed for
//! elsewhere. Their type is erased: they are given JSON.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::go_reader;
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
    /// Whether admission is over. Rules of built-in kinds also run before it, because webhooks see the defaults that they set.
    pub is_admitted: bool,
    /// Whether the object is loaded as it was stored before, not created by a request.
    pub is_restored: bool,
    old: Option<&'a Tree>,
}

impl<'a> RuleContext<'a> {
    pub(crate) fn new(user: &'a User, now: Timestamp, dry_run: bool) -> Self {
        Self { user, now, dry_run, is_admitted: true, is_restored: false, old: None }
    }

    /// The same for an object that is loaded, if `is_restored` is set.
    pub(crate) fn restored(self, is_restored: bool) -> Self {
        Self { is_restored, ..self }
    }

    /// The same before admission.
    pub(crate) fn before_admission(self) -> Self {
        Self { is_admitted: false, ..self }
    }

    /// The same of a change of this object.
    pub(crate) fn changing<'b>(&self, old: &'b Tree) -> RuleContext<'b>
    where
        'a: 'b,
    {
        RuleContext { old: Some(old), ..*self }
    }

    /// The object that is there, as its type, if one is changed.
    pub fn old<K: DeserializeOwned>(&self) -> Option<K> {
        go_reader::read_object(self.old?).ok()
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

impl Prepared {
    /// Makes the same changes in an object.
    pub fn apply_to(&self, tree: &mut Tree) {
        if let (Value::Object(before), Value::Object(after)) = (&self.before, &self.after) {
            change(tree, before, after);
        }
    }
}

type Prepare =
    Box<dyn Fn(&Value, &RuleContext<'_>) -> Result<Option<Prepared>, String> + Send + Sync>;
type Fit = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;
/// Rules that judge an object, in the place of an old one.
pub type Judge = Box<dyn Fn(&Value, Option<&Value>, &RuleContext<'_>) -> Verdict + Send + Sync>;

/// Rules for the objects of one version.
pub struct ErasedRules {
    version: String,
    fit: Fit,
    prepare: Prepare,
    judge: Judge,
    judge_status: Judge,
}

impl ErasedRules {
    /// `prepare` answers with nothing if nothing is prepared, and with an error
    /// for an object that does not fit its type.
    pub fn new(
        version: &str,
        fit: Fit,
        prepare: Prepare,
        judge: Judge,
        judge_status: Judge,
    ) -> Self {
        Self { version: version.to_owned(), fit, prepare, judge, judge_status }
    }

    /// What is said of an object that its schema allows and its type does not.
    pub fn unfit(why: &str) -> FieldError {
        FieldError::invalid("<nil>", "\"\"", &format!("does not fit its type: {why}"))
    }

    /// The version whose objects they are given.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether they are about objects of this version.
    pub fn is_about(&self, version: &str) -> bool {
        self.version == version
    }

    /// Lets rules fill in what is missing. What they have changed is changed in
    /// the tree and nothing else: what the type does not know stays.
    ///
    /// # Errors
    /// When the object does not fit its type: nothing was filled in.
    pub fn prepare(&self, tree: &mut Tree, context: &RuleContext<'_>) -> Result<(), String> {
        if let Some(prepared) = self.prepared(tree, context)? {
            prepared.apply_to(tree);
        }
        Ok(())
    }

    /// What rules fill in, if it is anything.
    ///
    /// # Errors
    /// When the object does not fit its type.
    pub fn prepared(
        &self,
        tree: &Tree,
        context: &RuleContext<'_>,
    ) -> Result<Option<Prepared>, String> {
        let prepared = (self.prepare)(&typed(tree), context)?;
        Ok(prepared.filter(|prepared| prepared.before != prepared.after))
    }

    /// Whether an object fits its type.
    ///
    /// # Errors
    /// When it does not; why.
    pub fn fit(&self, tree: &Tree) -> Result<(), String> {
        (self.fit)(&typed(tree))
    }

    /// What rules say of an object, in the place of an old one.
    pub fn judge(&self, tree: &Tree, old: Option<&Tree>, context: &RuleContext<'_>) -> Verdict {
        let old = old.map(typed);
        (self.judge)(&typed(tree), old.as_ref(), context)
    }

    /// What rules say of an object whose `status` alone has changed.
    pub fn judge_status(&self, tree: &Tree, old: &Tree, context: &RuleContext<'_>) -> Verdict {
        (self.judge_status)(&typed(tree), Some(&typed(old)), context)
    }
}

/// An object as its type reads it: to JSON `1.0` is a whole number, to Rust it
/// is none.
fn typed(tree: &Tree) -> Value {
    let mut tree = tree.clone();
    whole_floats_to_integers(&mut tree);
    Value::Object(tree)
}

/// Makes numbers integers that are. Goes as far as floats are exact, because the result is only read by
/// Rust types. That of `schema::normalize_numbers` is also shown to clients, and has another limit.
pub(super) fn whole_floats_to_integers(tree: &mut Tree) {
    tree.values_mut().for_each(to_integers);
}

fn to_integers(value: &mut Value) {
    match value {
        Value::Object(tree) => whole_floats_to_integers(tree),
        Value::Array(items) => items.iter_mut().for_each(to_integers),
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)] // it is whole, and small enough
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => {
                *value = (float as i64).into();
            }
            _ => {}
        },
        _ => {}
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

impl fmt::Debug for ErasedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedRules").field("version", &self.version).finish_non_exhaustive()
    }
}
