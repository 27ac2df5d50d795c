//! The rules of a definition, and the programs that they are compiled to.

use std::sync::Arc;

use kubernetes_cel::{CompileError, Declared, Environment, Program, Unusable};
use serde_json::{Map, Value};

use super::RULES;
use super::declared::declared;
use super::field_path::normalized;

/// kube-apiserver's error about rules whose values have no type that expressions can declare.
pub(super) const UNDECLARED: &str = "failed to convert to declType for CEL validation rules";

/// The rules of one node of a schema.
#[derive(Debug)]
pub struct NodeRules {
    /// The type that messages name, such as `object`.
    pub(super) type_name: String,
    /// The type of the values in expressions; `None` if expressions cannot access them.
    pub(super) declared: Option<Arc<Declared>>,
    /// Whether the rules are evaluated at the position of the node. The validation of a definition compiles the rules
    /// anyway.
    pub(super) reach: Reach,
    pub(super) rules: Vec<Rule>,
}

/// The reach of expressions at a node. kube-apiserver declares the type of a whole object, and derives the types of its
/// parts from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Rules are evaluated if the type of the node can be declared.
    Declared,
    /// The definition gives elements to a type that has none, such as `items` of an object. An object from before a
    /// change of the definition may have such values: each of their rules fails.
    Undeclared,
    /// The values are properties of a value whose type is not declared: kube-apiserver skips their rules.
    Unseen,
}

/// A validation rule.
#[derive(Debug)]
pub struct Rule {
    pub(super) text: String,
    pub(super) message: String,
    pub(super) message_expression: String,
    pub(super) reason: Option<String>,
    pub(super) field_path: String,
    pub(super) optional_old_self: Option<bool>,
    /// The path in the format of messages.
    pub(super) shown_path: String,
    /// The compiled rule, or the reason why the rule is invalid.
    pub(super) program: Result<Program, String>,
    /// Whether the rule uses the old value.
    pub(super) uses_old: bool,
    /// The compiled message expression.
    pub(super) message_program: Option<Result<Program, String>>,
}

impl NodeRules {
    /// Compiles the rules of a node, if it has any.
    pub fn compile(
        schema: &Map<String, Value>,
        is_resource: bool,
        reach: Reach,
    ) -> Option<Arc<Self>> {
        let given = schema.get(RULES)?.as_array()?;
        if given.is_empty() {
            return None;
        }
        let declared = declared(schema, is_resource).map(Arc::new);
        let rules =
            given.iter().map(|rule| Rule::compile(rule, schema, declared.as_ref())).collect();
        let type_name = schema.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Arc::new(Self { type_name, declared, reach, rules }))
    }

    /// Returns the largest number of values of the node in one request.
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
        let mut compiled = Compiled { program: Err(UNDECLARED.to_owned()), uses_old: false };
        let mut message_program = None;
        if let Some(environment) = environment {
            compiled = compile(&environment, &expression);
            if compiled.program.is_ok() && !message_expression.is_empty() {
                let environment = environment.with_old_as_it_is();
                message_program = Some(compile_message(&environment, &message_expression));
            }
        }
        let Compiled { program, uses_old } = compiled;
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
            uses_old,
            message_program,
        }
    }
}

/// The result of the compilation of an expression.
struct Compiled {
    program: Result<Program, String>,
    uses_old: bool,
}

fn compile(environment: &Environment, text: &str) -> Compiled {
    const NO_BOOL: &str = "cel expression must evaluate to a bool";
    let (program, uses_old) = match environment.compile(text) {
        Ok(program) if program.is_bool() => {
            let uses_old = program.uses_old();
            (Ok(program), uses_old)
        }
        Err(CompileError::Program(Unusable { why, is_bool: true, uses_old, .. })) => {
            (Err(format!("program instantiation failed: {why}")), uses_old)
        }
        Ok(_) | Err(CompileError::Program(_)) => (Err(NO_BOOL.to_owned()), false),
        Err(why) => (Err(format!("compilation failed: {why}")), false),
    };
    Compiled { program, uses_old }
}

fn compile_message(environment: &Environment, text: &str) -> Result<Program, String> {
    match environment.compile(text) {
        Ok(program) if program.is_string() => Ok(program),
        Err(CompileError::Program(Unusable { why, is_string: true, .. })) => {
            Err(format!("messageExpression instantiation failed: {why}"))
        }
        Ok(_) | Err(CompileError::Program(_)) => {
            Err("messageExpression must evaluate to a string".to_owned())
        }
        Err(why) => Err(format!("messageExpression compilation failed: {why}")),
    }
}
