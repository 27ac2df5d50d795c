//! What expressions are compiled in, and what becomes of them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as JsonValue;

use crate::ast::Expr;
use crate::checker::check;
use crate::cost::{Budget, Meter};
use crate::declared::Declared;
use crate::estimate;
use crate::evaluate::Evaluation;
use crate::literals;
use crate::parser::parse;
use crate::plan::{Plan, plan};
use crate::source::{Faults, Source};
use crate::types::Type;
use crate::value::{Failure, Value};

/// What the value is called that an expression is about.
const SELF: &str = "self";
/// What it is called as it was before.
const OLD_SELF: &str = "oldSelf";
/// How deep an expression may be once its macros are expanded. Evaluation needs stack for each level.
const DEEPEST: usize = 300;
/// How deep one may be that is evaluated on the stack of the caller.
const DEEPEST_HERE: usize = 40;
/// What the deepest expression needs in a build without optimization, and as much again.
const STACK: usize = 16 << 20;

/// What expressions are about.
#[derive(Clone, Debug)]
pub struct Environment {
    declared: Arc<Declared>,
    has_optional_old: bool,
    wraps_old: bool,
}

/// Why an expression cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It is not well formed, or its types do not fit: each fault with the line it is in.
    Faults(String),
    /// Its constants are at fault, and nothing else is.
    Program(Unusable),
    /// It needs what this engine does not know.
    Unsupported(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(text) | Self::Unsupported(text) => f.write_str(text),
            Self::Program(Unusable { why, .. }) => f.write_str(why),
        }
    }
}

impl std::error::Error for CompileError {}

/// An expression whose types are known, and whose constants are at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What is wrong with them.
    pub why: String,
    /// Whether it would come to `true` or `false`.
    pub is_bool: bool,
    /// Whether it would come to a text.
    pub is_string: bool,
    /// Whether it looks at `oldSelf`.
    pub uses_old: bool,
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct Program {
    declared: Arc<Declared>,
    plan: Plan,
    slots: usize,
    is_deep: bool,
    wraps_old: bool,
    uses_old: bool,
    is_bool: bool,
    is_string: bool,
    most: u64,
}

/// What an expression came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// `true` or `false`.
    Bool(bool),
    /// A text.
    String(String),
    /// Another value, as it is shown.
    Other(String),
    /// It failed: why, in cel-go's words.
    Failed(String),
    /// It was stopped, because this one call had cost what one may.
    CallTooDear,
    /// It was stopped, or not begun, because all calls together had cost what they may.
    OutOfBudget,
}

impl Environment {
    /// Expressions about values of this type, called `self`, and, where they change, `oldSelf`.
    pub fn new(declared: Arc<Declared>) -> Self {
        Self { declared, has_optional_old: false, wraps_old: true }
    }

    /// The same, where `oldSelf` is an optional value.
    #[must_use]
    pub fn with_optional_old(mut self) -> Self {
        self.has_optional_old = true;
        self
    }

    /// The same, where `oldSelf` is of an optional type and yet given as it is, or not at all: what
    /// kube-apiserver does with expressions that make messages.
    #[must_use]
    pub fn with_old_as_it_is(mut self) -> Self {
        self.wraps_old = false;
        self
    }

    /// Reads an expression, checks its types and estimates what it may cost.
    ///
    /// # Errors
    /// Where it is not well formed, its types do not fit, or it needs what is not supported.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        /// How many signs and words there may be that lead deeper, before the stack of the caller is not
        /// used.
        const SIGNS: usize = 40;
        let signs = text.chars().filter(|char| "([{?.+-*/%<>=!&|".contains(*char)).count();
        if signs + text.matches("in").count() <= SIGNS {
            return self.compile_here(text);
        }
        let unsupported = |why: &str| Err(CompileError::Unsupported(why.to_owned()));
        on_a_large_stack(|| self.compile_here(text))
            .unwrap_or_else(|| unsupported("no thread could be started"))
    }

    fn compile_here(&self, text: &str) -> Result<Program, CompileError> {
        let source = Source::new(text);
        let mut faults = Faults::default();
        let parsed = parse(&source, &mut faults);
        let Some(parsed) = parsed else { return Err(CompileError::Faults(faults.show(&source))) };
        if is_deeper(&parsed.root, DEEPEST) {
            let message = format!("expressions may be nested {DEEPEST} deep");
            return Err(CompileError::Unsupported(message));
        }
        let of_self = self.declared.of_type("selfType");
        let of_old = match self.has_optional_old {
            true => Type::optional(of_self.clone()),
            false => of_self.clone(),
        };
        let offsets = parsed.offsets.clone();
        let variables = [(SELF, of_self), (OLD_SELF, of_old)];
        let checked = check(parsed, &source, &variables, &mut faults);
        if faults.is_empty() {
            literals::check(&checked, &source, &offsets, &mut faults);
        }
        if !faults.is_empty() {
            return Err(CompileError::Faults(faults.show(&source)));
        }
        let is_deep = is_deeper(&checked.root, DEEPEST_HERE);
        let output = checked.type_of(&checked.root);
        let (is_bool, is_string) = (matches!(output, Type::Bool), matches!(output, Type::String));
        let uses_old = estimate::refers_to(&checked, OLD_SELF);
        let unusable = |why| CompileError::Program(Unusable { why, is_bool, is_string, uses_old });
        let (plan, slots) = plan(&checked, &[SELF, OLD_SELF]).map_err(unusable)?;
        Ok(Program {
            plan,
            slots,
            is_deep,
            wraps_old: self.has_optional_old && self.wraps_old,
            uses_old,
            is_bool,
            is_string,
            most: estimate::most(&checked, &self.declared),
            declared: Arc::clone(&self.declared),
        })
    }
}

/// What an expression is evaluated on.
#[derive(Clone, Copy, Debug)]
pub enum Data<'v> {
    /// Any value.
    Value(&'v JsonValue),
    /// An object.
    Object(&'v serde_json::Map<String, JsonValue>),
}

impl<'v> From<&'v JsonValue> for Data<'v> {
    fn from(value: &'v JsonValue) -> Self {
        Self::Value(value)
    }
}

impl<'v> From<&'v serde_json::Map<String, JsonValue>> for Data<'v> {
    fn from(object: &'v serde_json::Map<String, JsonValue>) -> Self {
        Self::Object(object)
    }
}

impl<'v> Data<'v> {
    fn read(self, declared: &'v Declared) -> Result<Value<'v>, Failure> {
        match self {
            Self::Value(value) => Value::of(value, declared),
            Self::Object(members) => Value::of_object(members, declared),
        }
    }
}

impl Program {
    /// Whether it comes to `true` or `false`.
    pub fn is_bool(&self) -> bool {
        self.is_bool
    }

    /// Whether it comes to a text.
    pub fn is_string(&self) -> bool {
        self.is_string
    }

    /// Whether it looks at `oldSelf`.
    pub fn uses_old(&self) -> bool {
        self.uses_old
    }

    /// What it may cost at most.
    pub fn most_cost(&self) -> u64 {
        self.most
    }

    /// Evaluates it on a value and on what that was before, and takes what it costs from the budget.
    pub fn evaluate<'v>(
        &'v self,
        value: impl Into<Data<'v>>,
        old: Option<Data<'v>>,
        budget: &mut Budget,
    ) -> Outcome {
        let mut meter = Meter::new(budget.per_call, budget.work, budget.made);
        let value = value.into();
        let outcome = if self.is_deep {
            on_a_large_stack(|| self.run(value, old, &mut meter))
                .unwrap_or_else(|| Err(Failure::new("no thread could be started")))
        } else {
            self.run(value, old, &mut meter)
        };
        (budget.work, budget.made) = (meter.work_left(), meter.made_left());
        match budget.left.checked_sub(meter.spent()) {
            Some(left) => budget.left = left,
            None => {
                budget.left = 0;
                return Outcome::OutOfBudget;
            }
        }
        match outcome {
            Ok(outcome) => outcome,
            Err(Failure::Error(why)) => Outcome::Failed(why),
            Err(Failure::Broken(why)) => Outcome::Failed(why.to_owned()),
            Err(Failure::Limit) => Outcome::CallTooDear,
        }
    }

    fn run<'v>(
        &'v self,
        value: Data<'v>,
        old: Option<Data<'v>>,
        meter: &mut Meter,
    ) -> Result<Outcome, Failure> {
        let mut slots = vec![None; self.slots];
        slots[0] = Some(value.read(&self.declared));
        let old = old.map(|old| old.read(&self.declared)).transpose()?;
        slots[1] = match (self.wraps_old, old) {
            (true, Some(old)) => Some(Ok(Value::optional(old))),
            (true, None) => Some(Ok(Value::Optional(None))),
            (false, old) => old.map(Ok),
        };
        let mut evaluation = Evaluation { slots, meter };
        Ok(match evaluation.evaluate(&self.plan)? {
            Value::Bool(flag) => Outcome::Bool(flag),
            Value::String(text) => Outcome::String(text.as_str().to_owned()),
            other => Outcome::Other(other.to_string()),
        })
    }
}

/// Does something on a stack of its own, if there can be one.
fn on_a_large_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK);
        builder.spawn_scoped(scope, run).ok()?.join().ok()
    })
}

fn is_deeper(expr: &Expr, than: usize) -> bool {
    match than.checked_sub(1) {
        None => true,
        Some(rest) => expr.children().into_iter().any(|child| is_deeper(child, rest)),
    }
}
