//! Rules as a definition says them, and the programs that they become.

use std::sync::Arc;

use kubernetes_cel::{CompileError, Declared, Environment, Program};
use serde_json::{Map, Value};

use super::RULES;
use super::declared::declared;
use super::field_path::normalized;

/// The rules of one node of a schema.
#[derive(Debug)]
pub struct NodeRules {
    /// The type that messages name: `object`.
    pub(super) type_name: String,
    /// What expressions see of its values; `None` if they do not see them.
    pub(super) declared: Option<Arc<Declared>>,
    pub(super) rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    pub(super) text: String,
    pub(super) message: String,
    pub(super) message_expression: String,
    pub(super) reason: Option<String>,
    pub(super) field_path: String,
    pub(super) optional_old_self: Option<bool>,
    /// The path as messages show it.
    pub(super) shown_path: String,
    /// What judges values; why there is nothing, if the rule is at fault.
    pub(super) program: Result<Program, String>,
    /// What says why a value is refused.
    pub(super) message_program: Option<Result<Program, String>>,
}

impl NodeRules {
    /// Reads the rules of a node, if it has some.
    pub fn compile(schema: &Map<String, Value>, is_resource: bool) -> Option<Arc<Self>> {
        let given = schema.get(RULES)?.as_array()?;
        if given.is_empty() {
            return None;
        }
        let declared = declared(schema, is_resource).map(Arc::new);
        let rules =
            given.iter().map(|rule| Rule::compile(rule, schema, declared.as_ref())).collect();
        let type_name = schema.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Arc::new(Self { type_name, declared, rules }))
    }

    /// The most often that values of it can be in one request.
    pub(super) fn most_in_a_request(&self) -> u64 {
        self.declared.as_ref().map_or(1, |declared| declared.most_in_a_request())
    }
}

impl Rule {
    fn compile(
        rule: &Value,
        schema: &Map<String, Value>,
        declared: Option<&Arc<Declared>>,
    ) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let optional_old_self = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let (expression, message_expression) = (text("rule"), text("messageExpression"));
        let environment = declared.map(|declared| {
            let environment = Environment::new(Arc::clone(declared));
            match optional_old_self {
                Some(true) => environment.with_optional_old(),
                _ => environment,
            }
        });
        let (mut program, mut message_program) =
            (Err("failed to convert to declType for CEL validation rules".to_owned()), None);
        if let Some(environment) = environment {
            program = compile(&environment, &expression);
            if program.is_ok() && !message_expression.is_empty() {
                let environment = environment.with_old_as_it_is();
                message_program = Some(compile_message(&environment, &message_expression));
            }
        }
        let field_path = text("fieldPath");
        Self {
            shown_path: normalized(&field_path, schema).unwrap_or_default(),
            text: expression,
            message: text("message"),
            message_expression,
            reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path,
            optional_old_self,
            program,
            message_program,
        }
    }

    /// Whether it looks at what was before.
    pub(super) fn uses_old(&self) -> bool {
        self.program.as_ref().is_ok_and(Program::uses_old)
    }
}

fn compile(environment: &Environment, text: &str) -> Result<Program, String> {
    match environment.compile(text) {
        Ok(program) if program.is_bool() => Ok(program),
        Ok(_) => Err("cel expression must evaluate to a bool".to_owned()),
        Err(why @ CompileError::Program(_)) => Err(format!("program instantiation failed: {why}")),
        Err(why) => Err(format!("compilation failed: {why}")),
    }
}

fn compile_message(environment: &Environment, text: &str) -> Result<Program, String> {
    match environment.compile(text) {
        Ok(program) if program.is_string() => Ok(program),
        Ok(_) => Err("messageExpression must evaluate to a string".to_owned()),
        Err(why @ CompileError::Program(_)) => {
            Err(format!("messageExpression instantiation failed: {why}"))
        }
        Err(why) => Err(format!("messageExpression compilation failed: {why}")),
    }
}
