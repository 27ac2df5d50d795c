//! Errors of rules, with the messages of kube-apiserver.

use kubernetes_cel::{Budget, Data, Outcome};

use super::compile::Rule;

/// The largest length of a message that an expression returns, in bytes.
const LONGEST: usize = 5 * 1024;

/// Returns the name of a rule in messages: its message, or its expression.
pub(super) fn name(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() }
}

/// Returns the message of a failed rule without a message expression.
pub(super) fn plain(rule: &Rule) -> String {
    match rule.message.is_empty() {
        true => format!("failed rule: {}", name(rule)),
        false => rule.message.trim().to_owned(),
    }
}

/// The result of a message expression.
pub(super) enum Told {
    /// A message.
    Message(String),
    /// No usable message.
    Nothing,
    /// A message, after which no more rules are evaluated.
    Stop(String),
}

/// Evaluates the message expression of a rule.
pub(super) fn evaluate(
    rule: &Rule,
    value: Data<'_>,
    old: Option<Data<'_>>,
    budget: &mut Budget,
) -> Told {
    let Some(Ok(program)) = &rule.message_program else { return Told::Nothing };
    match program.evaluate(value, old, budget) {
        Outcome::String(text) => {
            let text = text.trim();
            match text.is_empty() || text.len() > LONGEST || text.contains('\n') {
                true => Told::Nothing,
                false => Told::Message(text.to_owned()),
            }
        }
        Outcome::OutOfBudget => Told::Stop(
            "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned(),
        ),
        Outcome::CallTooDear => Told::Stop(format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
            rule.message_expression
        )),
        Outcome::Bool(_) | Outcome::Other(_) | Outcome::Failed(_) => Told::Nothing,
    }
}
