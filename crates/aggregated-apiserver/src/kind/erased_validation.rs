//! Rules of a kind that are written in Rust, in place of a webhook. Their type is erased: they receive JSON.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::go_reader;
use crate::error::FieldError;
use crate::object::Tree;
use crate::user::User;

/// The circumstances of a write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RuleContext<'a> {
    /// The user of the request.
    pub user: &'a User,
    /// The time of the write.
    pub now: Timestamp,
    /// Whether the write is only validated and not stored.
    pub dry_run: bool,
    /// Whether admission is over. Rules of built-in kinds also run before it, because webhooks see the defaults that they set.
    pub is_admitted: bool,
    /// Whether the object is loaded as it was stored before, not created by a request.
    pub is_restored: bool,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    old: Option<&'a Tree>,
}

impl<'a> RuleContext<'a> {
    pub(crate) fn new(user: &'a User, now: Timestamp, dry_run: bool) -> Self {
        Self {
            user,
            now,
            dry_run,
            is_admitted: true,
            is_restored: false,
            subresource: "",
            old: None,
        }
    }

    /// Sets whether the object is loaded instead of created by a request.
    pub(crate) fn restored(self, is_restored: bool) -> Self {
        Self { is_restored, ..self }
    }

    /// Sets the subresource that is written.
    pub(crate) fn of_subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }

    /// Marks the context as before admission.
    pub(crate) fn before_admission(self) -> Self {
        Self { is_admitted: false, ..self }
    }

    /// Sets the old object of an update.
    pub(crate) fn changing<'b>(&self, old: &'b Tree) -> RuleContext<'b>
    where
        'a: 'b,
    {
        RuleContext { old: Some(old), ..*self }
    }

    /// The old object as its type, if this is an update.
    pub fn old<K: DeserializeOwned>(&self) -> Option<K> {
        go_reader::read_object(self.old?).ok()
    }
}

/// The result of rules.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The errors for which the object is rejected.
    pub errors: Vec<FieldError>,
    /// The warnings for the client.
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
    /// Applies the same changes to an object.
    pub fn apply_to(&self, tree: &mut Tree) {
        if let (Value::Object(before), Value::Object(after)) = (&self.before, &self.after) {
            change(tree, before, after);
        }
    }
}

type Prepare =
    Box<dyn Fn(&Value, &RuleContext<'_>) -> Result<Option<Prepared>, String> + Send + Sync>;
type Fit = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;
/// Rules that validate an object that replaces an old one.
pub type Judge = Box<dyn Fn(&Value, Option<&Value>, &RuleContext<'_>) -> Verdict + Send + Sync>;

/// Rules for the objects of one version.
pub struct ErasedValidation {
    version: String,
    fit: Fit,
    prepare: Prepare,
    judge: Judge,
    judge_status: Judge,
}

impl ErasedValidation {
    /// `prepare` returns `None` if no rule prepares objects, and an error for an object that does not fit its type.
    pub fn new(
        version: &str,
        fit: Fit,
        prepare: Prepare,
        judge: Judge,
        judge_status: Judge,
    ) -> Self {
        Self { version: version.to_owned(), fit, prepare, judge, judge_status }
    }

    /// The error for an object that fits its schema but not its type.
    pub fn unfit(why: &str) -> FieldError {
        FieldError::invalid("<nil>", "\"\"", &format!("does not fit its type: {why}"))
    }

    /// The version of the objects that the rules receive.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the rules apply to objects of this version.
    pub fn is_about(&self, version: &str) -> bool {
        self.version == version
    }

    /// Applies the changes of the rules that prepare an object. Fields that the type does not know are preserved.
    ///
    /// # Errors
    /// If the object does not fit its type; the object is then unchanged.
    pub fn prepare(&self, tree: &mut Tree, context: &RuleContext<'_>) -> Result<(), String> {
        if let Some(prepared) = self.prepared(tree, context)? {
            prepared.apply_to(tree);
        }
        Ok(())
    }

    /// The changes of the rules that prepare an object, if there are any.
    ///
    /// # Errors
    /// If the object does not fit its type.
    pub fn prepared(
        &self,
        tree: &Tree,
        context: &RuleContext<'_>,
    ) -> Result<Option<Prepared>, String> {
        let prepared = (self.prepare)(&typed(tree), context)?;
        Ok(prepared.filter(|prepared| prepared.before != prepared.after))
    }

    /// Checks that an object fits its type.
    ///
    /// # Errors
    /// The reason why the object does not fit.
    pub fn fit(&self, tree: &Tree) -> Result<(), String> {
        (self.fit)(&typed(tree))
    }

    /// Validates an object that replaces an old one.
    pub fn judge(&self, tree: &Tree, old: Option<&Tree>, context: &RuleContext<'_>) -> Verdict {
        let old = old.map(typed);
        (self.judge)(&typed(tree), old.as_ref(), context)
    }

    /// Validates an object of which only `status` has changed.
    pub fn judge_status(&self, tree: &Tree, old: &Tree, context: &RuleContext<'_>) -> Verdict {
        (self.judge_status)(&typed(tree), Some(&typed(old)), context)
    }
}

/// Prepares an object for its type: in JSON `1.0` is a whole number, in Rust it is not.
fn typed(tree: &Tree) -> Value {
    let mut tree = tree.clone();
    whole_floats_to_integers(&mut tree);
    Value::Object(tree)
}

/// Converts whole floats to integers. The range is that in which floats are exact, because only Rust types read the
/// result. `schema::normalize_numbers` has another range, because clients see its result.
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

/// Applies the difference of two trees to a third one.
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

impl fmt::Debug for ErasedValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedRules").field("version", &self.version).finish_non_exhaustive()
    }
}
