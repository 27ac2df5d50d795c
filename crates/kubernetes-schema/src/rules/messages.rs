//! Faults of rules in kube-apiserver's words.

use kubernetes_cel::{Budget, Data, Outcome};

use super::compile::Rule;

/// How long a message may be that an expression makes, in bytes.
const LONGEST: usize = 5 * 1024;

/// What a rule is called in messages: by its own, or by its text.
pub(super) fn name(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() }
}

/// What a rule says of a value that it refuses, if no expression says it.
pub(super) fn plain(rule: &Rule) -> String {
    match rule.message.is_empty() {
        true => format!("failed rule: {}", name(rule)),
        false => rule.message.trim().to_owned(),
    }
}

/// What an expression says of a value that is refused.
pub(super) enum Told {
    /// This.
    Message(String),
    /// Nothing that can be used.
    Nothing,
    /// This, and no more rules are asked.
    Stop(String),
}

/// Asks the expression of a rule for its message.
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
