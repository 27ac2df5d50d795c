//! Evaluates the validation rules of a schema against objects.

use std::borrow::Cow;

use kubernetes_cel::{Budget, Data, Outcome};
use serde_json::Value;

use super::super::faults::Faults;
use super::super::list_types;
use super::super::node::{Additional, JsonType, ListType, Type};
use super::super::unchanged::is_unchanged;
use super::super::validate::show;
use super::super::{ERRORS_LIMIT, Schema};
use super::compile::{NodeRules, Reach, Rule, UNDECLARED};
use super::messages::{self, Told};
use super::{PER_CALL, PER_OBJECT};
use crate::error::{FieldError, Path, quote};
use crate::object::Tree;

/// The result of the rules for an object.
#[derive(Debug, Default)]
pub struct RuleVerdict {
    /// Errors, for which the object is rejected.
    pub errors: Vec<FieldError>,
    /// Errors of values that have not changed, which are only warnings.
    pub warnings: Vec<String>,
}

/// Evaluates the rules of a schema against an object, which may replace an old object.
pub fn judge(schema: &Schema, tree: &Tree, old: Option<&Tree>) -> RuleVerdict {
    let of = schema.root();
    if !of.subtree.rules {
        return RuleVerdict::default();
    }
    Run::new(Budget::new(PER_OBJECT, PER_CALL)).whole(of, tree, old).verdict
}

/// Evaluates the rules with a small budget. Returns `None` if the budget is exhausted: a thread that may be busy for
/// longer must then evaluate them.
pub fn judge_at_once(schema: &Schema, tree: &Tree, old: Option<&Tree>) -> Option<RuleVerdict> {
    /// The divisor of the budget for an object. The quotient lasts for two milliseconds.
    const PART: usize = 200;
    let of = schema.root();
    if !of.subtree.rules {
        return Some(RuleVerdict::default());
    }
    let cost = PER_OBJECT / PART as u64;
    let budget = Budget::new(cost, cost).with_part_of_work(PART);
    let run = Run::new(budget).whole(of, tree, old);
    (!run.is_exhausted).then_some(run.verdict)
}

/// Evaluates the rules against the default of a part of an object, once as an unchanged value and once as a new value.
pub fn judge_default(of: Type<'_>, default: &Value, path: &Path<'_>) -> Vec<FieldError> {
    if !of.subtree.rules {
        return Vec::new();
    }
    for old in [Some(Data::Value(default)), None] {
        let mut run = Run::new(Budget::new(PER_OBJECT, PER_CALL));
        let found = Found { current: None, parent: None };
        let _ = run.node(of, Data::Value(default), old, found, path);
        if !run.verdict.errors.is_empty() {
            return run.verdict.errors;
        }
    }
    Vec::new()
}

/// The end of the evaluation of rules.
struct Stop;

/// A value, its type and its old value.
#[derive(Clone, Copy)]
struct Before<'a> {
    of: Type<'a>,
    value: Data<'a>,
    old: Data<'a>,
}

/// The old value at the position of a value, and around it.
#[derive(Clone, Copy)]
struct Found<'a> {
    current: Option<Data<'a>>,
    /// The nearest enclosing value that has an old value.
    parent: Option<Before<'a>>,
}

/// The largest total size of messages about one object, in bytes. Rules determine the messages, and a rule can fail for
/// each element of a list.
const TOLD: usize = 1 << 20;

struct Run {
    verdict: RuleVerdict,
    /// The number of bytes that are left for messages.
    left: usize,
    budget: Budget,
    /// Whether the evaluation ended because the budget was exhausted.
    is_exhausted: bool,
    /// The limits on the work to compare values with old values.
    work: Faults,
}

impl Run {
    fn new(budget: Budget) -> Self {
        let (verdict, work) = (RuleVerdict::default(), Faults::new());
        Self { verdict, left: TOLD, budget, is_exhausted: false, work }
    }

    /// Evaluates the rules of a whole object.
    fn whole(mut self, of: Type<'_>, tree: &Tree, old: Option<&Tree>) -> Self {
        let old = old.map(Data::Object);
        let found = Found { current: old, parent: None };
        // The verdict contains the reason for an early end.
        let _ = self.node(of, Data::Object(tree), old, found, &Path::Root);
        self
    }

    fn node<'a>(
        &mut self,
        of: Type<'a>,
        value: Data<'a>,
        old: Option<Data<'a>>,
        found: Found<'a>,
        path: &Path<'_>,
    ) -> Result<(), Stop> {
        if !of.subtree.rules || matches!(value, Data::Value(Value::Null)) {
            return Ok(());
        }
        if let Some(rules) = &of.node().rules {
            let old = old.filter(|old| !matches!(old, Data::Value(Value::Null)));
            self.rules(rules, of, (value, old), found, path)?;
        }
        // The old values of fields and elements are looked up in the old value at this position.
        let here = found.current.map(|old| Before { of, value, old });
        let below = |current: Option<&'a Value>| match here {
            Some(here) => Found { current: current.map(Data::Value), parent: Some(here) },
            None => Found { current: None, parent: found.parent },
        };
        if let Some(tree) = members(value) {
            let (old, before) = (old.and_then(members), found.current.and_then(members));
            for (name, member) in tree {
                let Some((of_member, path)) = of.described(name, path) else { continue };
                // Expressions cannot access properties without a type, and the rules of these properties are not
                // evaluated.
                if of.knows(name) && !is_declared(of_member) {
                    continue;
                }
                // `apiVersion` and `kind` always count as changed.
                let is_type = found.parent.is_none()
                    && found.current.is_some()
                    && ["apiVersion", "kind"].contains(&name.as_str());
                let found = match is_type {
                    true => Found { current: None, parent: None },
                    false => below(before.and_then(|before| before.get(name))),
                };
                let old = old.and_then(|old| old.get(name)).map(Data::Value);
                self.node(of_member, Data::Value(member), old, found, &path)?;
            }
        } else if let (Some(items), Some(of_item)) = (items_of(value), of.of_items()) {
            let is_map = matches!(of.list_type, ListType::Map(_));
            let list = |data: Option<Data<'a>>| data.and_then(items_of).filter(|_| is_map);
            let old = list_types::by_key(&of.node().list_type, list(old));
            let before = list_types::by_key(&of.node().list_type, list(found.current));
            for (at, item) in items.iter().enumerate() {
                let found = below(before.of(item));
                let old = old.of(item).map(Data::Value);
                self.node(of_item, Data::Value(item), old, found, &Path::Item(path, at))?;
            }
        }
        Ok(())
    }

    fn rules(
        &mut self,
        rules: &NodeRules,
        of: Type<'_>,
        (value, old): (Data<'_>, Option<Data<'_>>),
        found: Found<'_>,
        path: &Path<'_>,
    ) -> Result<(), Stop> {
        /// The message of kube-apiserver.
        const EXHAUSTED: &str = "validation failed due to running out of cost budget, no further validation rules will be run";
        let invalid =
            |detail: &str| FieldError::invalid(shown(path), quote(&rules.type_name), detail);
        if rules.reach == Reach::Unseen {
            return Ok(());
        }
        if rules.declared.is_none() || rules.reach == Reach::Undeclared {
            let detail = format!("rule compiler initialization error: {UNDECLARED}");
            self.verdict.errors.push(invalid(&detail));
            return Ok(());
        }
        if self.budget.left() == 0 {
            self.is_exhausted = true;
            self.verdict.errors.push(invalid(EXHAUSTED));
            return Err(Stop);
        }
        for rule in &rules.rules {
            if self.verdict.errors.len() >= ERRORS_LIMIT {
                return Err(Stop);
            }
            let program = match &rule.program {
                Ok(program) => program,
                Err(why) => {
                    self.verdict.errors.push(invalid(&format!("rule compile error: {why}")));
                    continue;
                }
            };
            if rule.uses_old && old.is_none() && rule.optional_old_self != Some(true) {
                continue;
            }
            let name = messages::name(rule);
            let fault = match program.evaluate(value, old, &mut self.budget) {
                Outcome::Bool(true) => continue,
                Outcome::OutOfBudget => {
                    self.is_exhausted = true;
                    self.verdict.errors.push(invalid(EXHAUSTED));
                    return Err(Stop);
                }
                Outcome::CallTooDear => {
                    self.is_exhausted = true;
                    self.verdict.errors.push(invalid(&format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    )));
                    return Err(Stop);
                }
                Outcome::Failed(why) if why.starts_with("no such overload") => Some(format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                )),
                Outcome::Failed(why) => Some(format!("{why} evaluating rule: {name}")),
                Outcome::Bool(false) | Outcome::String(_) | Outcome::Other(_) => None,
            };
            match fault {
                Some(why) => self.verdict.errors.push(invalid(&why)),
                None => self.refuse(rule, rules, of, (value, old), found, path)?,
            }
        }
        Ok(())
    }

    /// Reports a failed rule: as a warning if the value has not changed, otherwise as an error.
    fn refuse(
        &mut self,
        rule: &Rule,
        rules: &NodeRules,
        of: Type<'_>,
        (value, old): (Data<'_>, Option<Data<'_>>),
        found: Found<'_>,
        path: &Path<'_>,
    ) -> Result<(), Stop> {
        let field = match (path, rule.shown_path.as_str()) {
            (path, "") => shown(path),
            (Path::Root, below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        // `messageExpression` can access `oldSelf` only if a rule of the same schema node uses it.
        let old = old.filter(|_| rules.rules.iter().any(|rule| rule.uses_old));
        let (error, stops) = match messages::evaluate(rule, value, old, &mut self.budget) {
            Told::Stop(why) => (FieldError::invalid(field, quote(&rules.type_name), &why), true),
            Told::Message(message) => (refusal(rule, rules, field, value, &message), false),
            Told::Nothing => (refusal(rule, rules, field, value, &messages::plain(rule)), false),
        };
        self.is_exhausted |= stops;
        if !rule.uses_old && self.is_as_it_was(of, value, found) {
            // The evaluation continues after a warning. The number of warnings has the same limit as the number of
            // errors.
            let warning = error.to_string();
            if self.verdict.warnings.len() < ERRORS_LIMIT && self.tells(warning.len()) {
                self.verdict.warnings.push(warning);
            }
        } else if self.tells(error.to_string().len()) || self.verdict.errors.is_empty() {
            self.verdict.errors.push(error);
        } else {
            return Err(Stop);
        }
        if stops { Err(Stop) } else { Ok(()) }
    }

    /// Whether a message of this size is within the limit. If it is, its size is subtracted.
    fn tells(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    fn is_as_it_was(&mut self, of: Type<'_>, value: Data<'_>, found: Found<'_>) -> bool {
        let before = match (found.current, found.parent) {
            (Some(old), _) => Before { of, value, old },
            (None, Some(before)) => before,
            (None, None) => return false,
        };
        let (old, value) = (whole(before.old), whole(before.value));
        is_unchanged(before.of, &old, &value, &mut self.work)
    }
}

/// Whether expressions can declare the values of a type.
fn is_declared(of: Type<'_>) -> bool {
    match (of.json_type, &of.additional) {
        _ if of.int_or_string => true,
        (None, _) => false,
        (Some(JsonType::Array), _) => of.of_items().is_some_and(is_declared),
        (Some(JsonType::Object), Additional::Of(values)) => is_declared(of.at(values)),
        (Some(_), _) => true,
    }
}

/// Converts the data to a value. Only a whole object is copied.
fn whole(data: Data<'_>) -> Cow<'_, Value> {
    match data {
        Data::Value(value) => Cow::Borrowed(value),
        Data::Object(tree) => Cow::Owned(Value::Object(tree.clone())),
    }
}

fn members(data: Data<'_>) -> Option<&Tree> {
    match data {
        Data::Value(value) => value.as_object(),
        Data::Object(tree) => Some(tree),
    }
}

fn items_of(data: Data<'_>) -> Option<&Vec<Value>> {
    match data {
        Data::Value(value) => value.as_array(),
        Data::Object(_) => None,
    }
}

/// Formats a path for errors.
fn shown(path: &Path<'_>) -> String {
    match path {
        Path::Root => "<nil>".to_owned(),
        path => path.to_string(),
    }
}

/// Returns the error for the reason of a rule. The values of objects and lists are omitted.
fn refusal(
    rule: &Rule,
    rules: &NodeRules,
    field: String,
    value: Data<'_>,
    message: &str,
) -> FieldError {
    let hides_value = ["object", "array"].contains(&rules.type_name.as_str());
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, message),
        Some("FieldValueRequired") => FieldError::required(field, message),
        Some("FieldValueDuplicate") if hides_value => FieldError::duplicate_unseen(field),
        Some("FieldValueDuplicate") => FieldError::duplicate(field, show(&whole(value))),
        _ if hides_value => FieldError::invalid_unseen(field, message),
        _ => FieldError::invalid(field, show(&whole(value)), message),
    }
}
