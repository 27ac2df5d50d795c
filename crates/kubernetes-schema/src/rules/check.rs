//! Checks the validation rules of a definition and estimates their cost.

use kubernetes_cel::Program;
use serde_json::{Map, Value, json};

use super::RULES;
use super::compile::Rule;
use super::declared::child;
use super::field_path::normalized;
use crate::error::{FieldError, quote};
use crate::object::to_html_json;
use crate::{ERRORS_LIMIT, Schema, Type};

type Node = Map<String, Value>;

/// The largest estimated cost of one rule in one object, as in kube-apiserver.
const PER_RULE: u64 = 10_000_000;
/// The largest estimated cost of all rules of a version in one object, as in kube-apiserver.
const PER_SCHEMA: u64 = 100_000_000;

/// Checks the fields of the rules of one node.
pub fn check_shape(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let rules = node.get(RULES).and_then(Value::as_array).into_iter().flatten();
    for (at, rule) in rules.enumerate() {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let field = |key: &str| format!("{path}.{RULES}[{at}].{key}");
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let (rule_text, message) = (text("rule").trim(), text("message"));
        if rule_text.is_empty() {
            errors.push(FieldError::required(field("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(field("message"), quote(message), detail));
        } else if has_breaks(message.trim()) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(field("message"), quote(message), detail));
        } else if has_breaks(rule_text) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(field("message"), detail));
        }
        let expression = text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(field("messageExpression"), detail));
        }
        let reasons = [
            "FieldValueDuplicate",
            "FieldValueForbidden",
            "FieldValueInvalid",
            "FieldValueRequired",
        ];
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !reasons.contains(&reason)
        {
            errors.push(FieldError::not_supported(field("reason"), quote(reason), &reasons));
        }
        let given = text("fieldPath");
        if !given.is_empty() {
            let mut invalid = |detail: &str| {
                errors.push(FieldError::invalid(field("fieldPath"), quote(given), detail));
            };
            if given.trim().is_empty() {
                invalid("must be non-empty if specified");
            }
            if has_breaks(given) {
                invalid("must not contain line breaks");
            }
            if normalized(given, node).is_none() {
                invalid("must be a valid path");
            }
        }
    }
}

/// Checks the expressions of a schema that is well formed. The paths of errors begin with `path`.
pub fn check(schema: &Schema, written: &Value, path: &str) -> Vec<FieldError> {
    let root = schema.root();
    let Some(written) = written.as_object().filter(|_| root.subtree.rules) else {
        return Vec::new();
    };
    let mut check = Check { errors: Vec::new(), total: 0, dearest: Vec::new() };
    let place = Place { most: Some(1), uncorrelatable: None };
    check.node(root, written, path, &place);
    if check.total > PER_SCHEMA {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let dearest = std::mem::take(&mut check.dearest);
        check
            .errors
            .extend(dearest.into_iter().map(|(_, field)| FieldError::forbidden(field, detail)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        check.errors.push(FieldError::forbidden(path, &too_dear(what, check.total, PER_SCHEMA)));
    }
    check.errors
}

/// The number of values that a node can have in an object.
#[derive(Clone)]
struct Place {
    /// The largest number of values; `None` if only the size of requests limits it.
    most: Option<u64>,
    /// The path of the enclosing list whose elements cannot be matched with old elements.
    uncorrelatable: Option<String>,
}

struct Check {
    errors: Vec<FieldError>,
    total: u64,
    /// The most expensive rules with their costs, most expensive first.
    dearest: Vec<(u64, String)>,
}

impl Check {
    fn node(&mut self, of: Type<'_>, written: &Node, path: &str, place: &Place) {
        if !of.subtree.rules {
            return;
        }
        let inner = |uncorrelatable: Option<String>| {
            let factor = most_elements(written);
            Place {
                most: place.most.zip(factor).map(|(most, factor)| most.saturating_mul(factor)),
                uncorrelatable: place.uncorrelatable.clone().or(uncorrelatable),
            }
        };
        if let Some((values, (_, of))) = child(written, "additionalProperties").zip(of.element()) {
            self.node(of, values, &format!("{path}.additionalProperties"), &inner(None));
        }
        for (name, property) in child(written, "properties").into_iter().flatten() {
            if let Some((property, (_, of))) = property.as_object().zip(of.member(name)) {
                self.node(of, property, &format!("{path}.properties[{name}]"), &inner(None));
            }
        }
        if let Some((items, of)) = child(written, "items").zip(of.of_items()) {
            let list_type = written.get("x-kubernetes-list-type").and_then(Value::as_str);
            let uncorrelatable = (list_type != Some("map")).then(|| path.to_owned());
            self.node(of, items, &format!("{path}.items"), &inner(uncorrelatable));
        }
        let Some(rules) = &of.node().rules else { return };
        if rules.declared.is_none() {
            const WHY: &str = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(format!("{path}.{RULES}"), WHY));
            return;
        }
        for (at, rule) in rules.rules.iter().enumerate() {
            if self.errors.len() >= ERRORS_LIMIT {
                return;
            }
            let most = place.most.unwrap_or_else(|| rules.most_in_a_request());
            self.rule(rule, &format!("{path}.{RULES}[{at}]"), most, place);
        }
    }

    fn rule(&mut self, rule: &Rule, path: &str, most: u64, place: &Place) {
        let field = format!("{path}.rule");
        let cost = rule.program.as_ref().map_or(0, Program::most_cost).saturating_mul(most);
        if cost > PER_RULE {
            let detail = too_dear("estimated rule cost", cost, PER_RULE);
            self.errors.push(FieldError::forbidden(&field, &detail));
        }
        self.observe(&field, cost);
        if let Err(why) = &rule.program {
            self.errors.push(FieldError::invalid(&field, as_go_shows(rule), why));
        }
        let field = format!("{path}.messageExpression");
        match &rule.message_program {
            Some(Err(why)) => {
                self.errors.push(FieldError::invalid(&field, as_go_shows(rule), why));
            }
            Some(Ok(program)) => {
                let cost = program.most_cost();
                if cost > PER_RULE {
                    let detail = too_dear("estimated messageExpression cost", cost, PER_RULE);
                    self.errors.push(FieldError::forbidden(&field, &detail));
                }
                self.observe(&field, cost);
            }
            None => {}
        }
        match (rule.uses_old, &place.uncorrelatable, rule.optional_old_self) {
            (true, Some(list), _) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                let field = format!("{path}.rule");
                self.errors.push(FieldError::invalid(field, quote(&rule.text), &detail));
            }
            (false, _, Some(flag)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(
                    format!("{path}.optionalOldSelf"),
                    flag,
                    detail,
                ));
            }
            _ => {}
        }
    }

    /// Adds the estimated cost of a rule to the total, and records the most expensive rules.
    fn observe(&mut self, field: &str, cost: u64) {
        /// The number of rules to report.
        const NAMED: usize = 4;
        self.total = self.total.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.dearest.push((cost, field.to_owned()));
            self.dearest.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }
}

/// Returns the largest number of elements of a value; `None` if the schema does not limit it.
fn most_elements(written: &Node) -> Option<u64> {
    let bound = |key: &str| {
        let bound = written.get(key).and_then(Value::as_i64)?;
        Some(u64::try_from(bound).unwrap_or_default())
    };
    match written.get("type").and_then(Value::as_str) {
        Some("object") if written.contains_key("additionalProperties") => bound("maxProperties"),
        Some("array") => bound("maxItems"),
        _ => Some(1),
    }
}

fn too_dear(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Formats a rule as Go's encoder does.
fn as_go_shows(rule: &Rule) -> String {
    shown([
        json!(rule.text),
        json!(rule.message),
        json!(rule.message_expression),
        json!(rule.reason),
        json!(rule.field_path),
        json!(rule.optional_old_self),
    ])
}

/// Formats a rule that is not parsed yet as Go's encoder does.
pub fn rule_as_go_shows(rule: &Value) -> String {
    let get = |key: &str| rule.get(key).cloned();
    let text = |key: &str| get(key).unwrap_or_else(|| json!(""));
    let (reason, flag) = (get("reason"), get("optionalOldSelf"));
    let (message, expression) = (text("message"), text("messageExpression"));
    shown([text("rule"), message, expression, json!(reason), text("fieldPath"), json!(flag)])
}

fn shown(values: [Value; 6]) -> String {
    const NAMES: [&str; 6] =
        ["Rule", "Message", "MessageExpression", "Reason", "FieldPath", "OptionalOldSelf"];
    let field = |(name, value)| format!("\"{name}\":{}", to_html_json(value));
    let fields: Vec<String> = NAMES.iter().zip(&values).map(field).collect();
    format!("{{{}}}", fields.join(","))
}
