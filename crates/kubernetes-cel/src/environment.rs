//! The environment in which expressions are compiled, and the compiled programs.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as JsonValue;

use crate::ast::Expr;
use crate::checker::check;
use crate::composition::Composition;
use crate::cost::{Budget, Meter};
use crate::declared::Declared;
use crate::estimate;
use crate::evaluate::Evaluation;
use crate::literals;
use crate::parser::parse;
use crate::plan::{Plan, plan};
use crate::source::{Faults, Source};
use crate::types::Type;
use crate::uses::VariableUses;
use crate::value::{Failure, Outcome as CelOutcome, Value};

/// The name of the variable with the value.
const SELF: &str = "self";
/// The name of the variable with the old value.
const OLD_SELF: &str = "oldSelf";
/// The largest depth of an expression after its macros are expanded. Evaluation needs stack for each level.
const DEEPEST: usize = 300;
/// The largest depth of an expression that is evaluated on the stack of the caller.
const DEEPEST_HERE: usize = 40;
/// The stack for deeper expressions, in bytes: twice the need of the deepest expression in a build without
/// optimization.
const STACK: usize = 16 << 20;

/// The variables of expressions and their types.
#[derive(Clone, Debug)]
pub struct Environment {
    variables: Variables,
    pub(crate) declared: Arc<Declared>,
    has_optional_old: bool,
    wraps_old: bool,
    pub(crate) composition: Option<Composition>,
}

/// The names of the variables of expressions.
#[derive(Clone, Debug)]
enum Variables {
    /// `self` and `oldSelf`.
    SelfAndOld,
    /// One variable. Error messages have the name of its type.
    One { name: Arc<str>, type_name: Arc<str> },
    /// Several variables with their types. Their values are read without a type.
    Several(Arc<[(Box<str>, Arc<Declared>)]>),
}

/// The reason why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// The syntax is invalid, or the types do not fit. Each error is shown with its line.
    Faults(String),
    /// The only errors are invalid constants.
    Program(Unusable),
    /// The expression uses a feature that this engine does not support.
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

/// An expression with correct types and invalid constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The error in the constants.
    pub why: String,
    /// Whether the result is a bool.
    pub is_bool: bool,
    /// Whether the result is a string.
    pub is_string: bool,
    /// Whether the expression uses `oldSelf`.
    pub uses_old: bool,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    declared: Arc<Declared>,
    pub(crate) plan: Plan,
    pub(crate) slots: usize,
    /// The depth of the expression, including the named expressions that it uses.
    pub(crate) depth: usize,
    wraps_old: bool,
    uses_old: bool,
    is_bool: bool,
    is_string: bool,
    pub(crate) output_type: Type,
    result_type: String,
    most: u64,
    uses: VariableUses,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A bool.
    Bool(bool),
    /// A string.
    String(String),
    /// Another value, in its string form.
    Other(String),
    /// The evaluation failed, with cel-go's message.
    Failed(String),
    /// The evaluation was stopped because it exceeded the limit of one call.
    CallTooDear,
    /// The evaluation was stopped, or not started, because all calls together exceeded their budget.
    OutOfBudget,
}

/// The result of an evaluation, for callers that accept several types.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// `null`.
    Null,
    /// A bool.
    Bool(bool),
    /// A string.
    String(String),
    /// A list: its strings, and `None` for each item that is not a string.
    List(Vec<Option<String>>),
    /// A value of another type.
    Other,
}

impl Outcome {
    pub(crate) fn of(value: Value<'_>) -> Self {
        match value {
            Value::Bool(flag) => Self::Bool(flag),
            Value::String(text) => Self::String(text.as_str().to_owned()),
            other => Self::Other(other.to_string()),
        }
    }

    pub(crate) fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Error(why) => Self::Failed(why),
            Failure::Broken(why) => Self::Failed(why.to_owned()),
            Failure::Limit => Self::CallTooDear,
        }
    }
}

impl Output {
    fn of(value: &Value<'_>, meter: &mut Meter) -> Result<Self, Failure> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::String(text) => Self::String(text.as_str().to_owned()),
            Value::List(list) => {
                let mut strings = Vec::new();
                for item in list.iter() {
                    let item = item?;
                    meter.make(item.as_str().map_or(0, str::len) + size_of::<String>())?;
                    strings.push(item.as_str().map(str::to_owned));
                }
                Self::List(strings)
            }
            _ => Self::Other,
        })
    }
}

impl Environment {
    /// An environment for expressions about `self`, a value of this type, and `oldSelf`, its old value.
    pub fn new(declared: Arc<Declared>) -> Self {
        Self {
            variables: Variables::SelfAndOld,
            declared,
            has_optional_old: false,
            wraps_old: true,
            composition: None,
        }
    }

    /// An environment for expressions about one variable. If the variable is an object, its type has this name in error
    /// messages.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kubernetes_cel::{Budget, Declared, Environment, Output};
    /// use serde_json::json;
    ///
    /// let claims = Arc::new(Declared::map(Arc::new(Declared::any()), None).with_escaped_keys());
    /// let environment = Environment::of_variable("claims", "claims", claims);
    /// let program = environment.compile("claims.example__dot__org.roles + ['all']").unwrap();
    /// let claims = json!({"example.org": {"roles": ["dev"]}});
    /// let output = program.output(&claims, &mut Budget::new(10_000, 1_000));
    /// let expected = ["dev", "all"].map(|role| Some(role.to_owned()));
    /// assert_eq!(output, Ok(Output::List(expected.into())));
    /// ```
    pub fn of_variable(name: &str, type_name: &str, declared: Arc<Declared>) -> Self {
        let variables = Variables::One { name: name.into(), type_name: type_name.into() };
        Self { variables, ..Self::new(declared) }
    }

    /// An environment for expressions about these variables, which may have any value.
    ///
    /// ```
    /// use kubernetes_cel::{Budget, Data, Environment, Outcome};
    /// use serde_json::json;
    ///
    /// let environment = Environment::of_variables(&["object", "oldObject"]);
    /// let program = environment.compile("object.size > 1 && oldObject == null").unwrap();
    /// let (object, old) = (json!({"size": 2}), json!(null));
    /// let values = [Data::Value(&object), Data::Value(&old)];
    /// let outcome = program.evaluate_variables(&values, &mut Budget::new(10_000, 1_000));
    /// assert_eq!(outcome, Outcome::Bool(true));
    /// ```
    pub fn of_variables(names: &[&str]) -> Self {
        let dynamic = Arc::new(Declared::dynamic());
        let variables = names.iter().map(|name| (*name, Arc::clone(&dynamic)));
        Self::of_typed_variables(&variables.collect::<Vec<_>>())
    }

    /// An environment for expressions about these variables. Expressions are checked against the types, and values are
    /// read without them, same as in kube-apiserver for the request of an admission policy.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kubernetes_cel::{Declared, Environment, Field};
    ///
    /// let name = Field {
    ///     name: "name".to_owned(),
    ///     of: Some(Arc::new(Declared::string("", None, &[]))),
    ///     is_required: true,
    ///     has_default: false,
    /// };
    /// let request = Declared::object(vec![name]).named("kubernetes.AdmissionRequest");
    /// let environment = Environment::of_typed_variables(&[("request", Arc::new(request))]);
    /// assert!(environment.compile("request.name == 'a'").is_ok());
    /// assert!(environment.compile("request.title == 'a'").is_err());
    /// ```
    pub fn of_typed_variables(variables: &[(&str, Arc<Declared>)]) -> Self {
        let typed = variables.iter().map(|(name, of)| ((*name).into(), Arc::clone(of))).collect();
        Self { variables: Variables::Several(typed), ..Self::new(Arc::new(Declared::dynamic())) }
    }

    /// The same environment, where `oldSelf` is an optional value.
    #[must_use]
    pub fn with_optional_old(mut self) -> Self {
        self.has_optional_old = true;
        self
    }

    /// The same environment, where `oldSelf` has an optional type but its value is passed without the optional wrapper,
    /// or not at all. kube-apiserver does this for message expressions.
    #[must_use]
    pub fn with_old_as_it_is(mut self) -> Self {
        self.wraps_old = false;
        self
    }

    /// Compiles an expression: parses it, checks its types and estimates its cost.
    ///
    /// # Errors
    /// If the syntax is invalid, the types do not fit, or the expression uses an unsupported feature.
    pub fn compile(&self, text: &str) -> Result<Program, CompileError> {
        /// The largest number of operators and brackets in an expression that is compiled on the stack of the caller.
        /// Each can make the expression deeper.
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
        let of_self = self.declared.of_type(match &self.variables {
            Variables::One { type_name, .. } => type_name,
            _ => "selfType",
        });
        let of_old = match self.has_optional_old {
            true => Type::optional(of_self.clone()),
            false => of_self.clone(),
        };
        let offsets = parsed.offsets.clone();
        let mut variables: Vec<(&str, Type)> = match &self.variables {
            Variables::SelfAndOld => vec![(SELF, of_self), (OLD_SELF, of_old)],
            Variables::One { name, .. } => vec![(name, of_self)],
            Variables::Several(typed) => {
                typed.iter().map(|(name, of)| (&**name, of.of_type(name))).collect()
            }
        };
        if let Some(composition) = &self.composition {
            variables.push((&composition.variable, Type::object(&composition.type_name)));
        }
        let composition = self.composition.as_ref();
        let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
        let checked = check(parsed, &source, &variables, composition, &mut faults);
        if faults.is_empty() {
            literals::check(&checked, &source, &offsets, &mut faults);
        }
        if !faults.is_empty() {
            return Err(CompileError::Faults(faults.show(&source)));
        }
        let mut depth = depth(&checked.root);
        if let Some(composition) = composition {
            let used = checked.named.iter().map(|index| composition.depth(*index));
            depth += used.max().unwrap_or_default();
        }
        if depth > DEEPEST {
            let message = format!("expressions may be nested {DEEPEST} deep");
            return Err(CompileError::Unsupported(message));
        }
        let output = checked.type_of(&checked.root);
        let (is_bool, is_string) = (matches!(output, Type::Bool), matches!(output, Type::String));
        let uses_old = estimate::refers_to(&checked, OLD_SELF);
        let unusable = |why| CompileError::Program(Unusable { why, is_bool, is_string, uses_old });
        let (plan, slots) = plan(&checked, &names, composition).map_err(unusable)?;
        let mut uses = VariableUses::default();
        if let Variables::One { name, .. } = &self.variables {
            uses.add(&checked.root, name);
        }
        Ok(Program {
            plan,
            slots,
            depth,
            wraps_old: self.has_optional_old && self.wraps_old,
            uses_old,
            is_bool,
            is_string,
            result_type: output.to_go_string(),
            output_type: output.clone(),
            most: estimate::most(&checked, &self.declared),
            uses,
            declared: Arc::clone(&self.declared),
        })
    }
}

/// The value that an expression is evaluated on.
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
    pub(crate) fn read(self, declared: &'v Declared) -> Result<Value<'v>, Failure> {
        match self {
            Self::Value(value) => Value::of(value, declared),
            Self::Object(members) => Value::of_object(members, declared),
        }
    }
}

impl Program {
    /// Whether the result is a bool.
    pub fn is_bool(&self) -> bool {
        self.is_bool
    }

    /// The type of the result, such as `int` or `list(string)`.
    pub fn result_type(&self) -> &str {
        &self.result_type
    }

    /// Whether the result is a string.
    pub fn is_string(&self) -> bool {
        self.is_string
    }

    /// Whether the expression uses `oldSelf`.
    pub fn uses_old(&self) -> bool {
        self.uses_old
    }

    /// Whether the expression selects this field of the variable of [`Environment::of_variable`], as `claims.email`,
    /// `claims.?email` or `has(claims.email)`.
    pub fn selects(&self, field: &str) -> bool {
        self.uses.fields.iter().any(|one| **one == *field)
    }

    /// Whether the expression uses the whole variable of [`Environment::of_variable`], without a field or a key, as
    /// `size(claims)`.
    pub fn uses_whole_variable(&self) -> bool {
        self.uses.is_whole
    }

    /// The estimated largest cost of an evaluation.
    pub fn most_cost(&self) -> u64 {
        self.most
    }

    /// Evaluates the expression on a value and its old value, and subtracts the cost from the budget.
    pub fn evaluate<'v>(
        &'v self,
        value: impl Into<Data<'v>>,
        old: Option<Data<'v>>,
        budget: &mut Budget,
    ) -> Outcome {
        let value = value.into();
        self.outcome(budget, || Ok([Some(value.read(&self.declared)), self.old(old)?]))
    }

    /// Evaluates the expression on the values of the variables of [`Environment::of_variables`], in the same order, and
    /// subtracts the cost from the budget.
    pub fn evaluate_variables(&self, values: &[Data<'_>], budget: &mut Budget) -> Outcome {
        self.outcome(budget, || Ok(values.iter().map(|value| Some(value.read(&self.declared)))))
    }

    /// Evaluates the expression on a value, and subtracts the cost from the budget.
    ///
    /// # Errors
    /// If the evaluation fails or exceeds a limit, with cel-go's message.
    pub fn output<'v>(
        &'v self,
        value: impl Into<Data<'v>>,
        budget: &mut Budget,
    ) -> Result<Output, String> {
        let value = value.into();
        let output = self.metered(budget, |meter| {
            let value = self.run([Some(value.read(&self.declared))], meter)?;
            Output::of(&value, meter)
        });
        match output {
            Some(output) => output.map_err(|why| why.to_string()),
            None => Err(Failure::Limit.to_string()),
        }
    }

    /// Evaluates the expression on the values of its variables.
    fn outcome<'v, V: IntoIterator<Item = Option<CelOutcome<'v>>>>(
        &'v self,
        budget: &mut Budget,
        values: impl FnOnce() -> Result<V, Failure> + Send,
    ) -> Outcome {
        let outcome = self.metered(budget, |meter| Ok(Outcome::of(self.run(values()?, meter)?)));
        match outcome {
            None => Outcome::OutOfBudget,
            Some(outcome) => outcome.unwrap_or_else(Outcome::of_failure),
        }
    }

    /// Runs an evaluation, and subtracts its cost from the budget. The result is `None` if the budget is spent.
    pub(crate) fn metered<T: Send>(
        &self,
        budget: &mut Budget,
        run: impl FnOnce(&mut Meter) -> Result<T, Failure> + Send,
    ) -> Option<Result<T, Failure>> {
        let mut meter = Meter::new(budget.per_call, budget.work, budget.made);
        let outcome = if self.depth > DEEPEST_HERE {
            on_a_large_stack(|| run(&mut meter))
                .unwrap_or_else(|| Err(Failure::new("no thread could be started")))
        } else {
            run(&mut meter)
        };
        (budget.work, budget.made) = (meter.work_left(), meter.made_left());
        let left = budget.left.checked_sub(meter.spent());
        budget.left = left.unwrap_or_default();
        left.map(|_| outcome)
    }

    /// The value of `oldSelf`.
    fn old<'v>(&'v self, old: Option<Data<'v>>) -> Result<Option<CelOutcome<'v>>, Failure> {
        let old = old.map(|old| old.read(&self.declared)).transpose()?;
        Ok(match (self.wraps_old, old) {
            (true, Some(old)) => Some(Ok(Value::optional(old))),
            (true, None) => Some(Ok(Value::Optional(None))),
            (false, old) => old.map(Ok),
        })
    }

    fn run<'v>(
        &'v self,
        values: impl IntoIterator<Item = Option<CelOutcome<'v>>>,
        meter: &mut Meter,
    ) -> Result<Value<'v>, Failure> {
        let mut slots = vec![None; self.slots];
        for (slot, value) in slots.iter_mut().zip(values) {
            *slot = value;
        }
        Evaluation { slots, meter, activation: None }.evaluate(&self.plan)
    }
}

/// Runs a function on a thread with a large stack. Returns `None` if the thread cannot be started.
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

/// The number of levels of an expression, which is at most [`DEEPEST`].
fn depth(expr: &Expr) -> usize {
    1 + expr.children().into_iter().map(depth).max().unwrap_or_default()
}
