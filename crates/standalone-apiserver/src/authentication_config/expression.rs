//! Expressions of an AuthenticationConfiguration, about the variable `claims` or `user`.

use std::fmt;
use std::sync::{Arc, LazyLock};

use aggregated_apiserver::FieldError;
use kubernetes_cel::{
    Budget, CompileError, Declared, Environment, Field, ListKind, Output, Program,
};
use serde_json::Value;

use super::claims::Claims;

/// The cost limit of one evaluation, same as in kube-apiserver.
const COST_LIMIT: u64 = 1_000_000;

static CLAIMS: LazyLock<Environment> = LazyLock::new(|| {
    let claims = Declared::map(Arc::new(Declared::any()), None).with_escaped_keys();
    Environment::of_variable("claims", "kubernetes.claims", Arc::new(claims))
});

static USER: LazyLock<Environment> = LazyLock::new(|| {
    let text = || Arc::new(Declared::string("", None, &[]));
    let texts = || Arc::new(Declared::list(text(), None, &ListKind::Atomic));
    let extra = Arc::new(Declared::map(texts(), None).with_escaped_keys());
    let fields = [("username", text()), ("uid", text()), ("groups", texts()), ("extra", extra)];
    let field = |(name, of): (&str, Arc<Declared>)| Field {
        name: name.to_owned(),
        of: Some(of),
        is_required: false,
        has_default: false,
    };
    let user = Declared::object(fields.map(field).into());
    Environment::of_variable("user", "kubernetes.UserInfo", Arc::new(user))
});

/// A compiled expression.
pub(super) struct Expression {
    text: String,
    program: Program,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl Expression {
    /// Compiles an expression about `claims` with a result of any type.
    ///
    /// # Errors
    /// The error of the field at this path, if the expression is invalid.
    pub(super) fn of_claims(text: &str, at: &str) -> Result<Self, FieldError> {
        Self::compile(&CLAIMS, text, at, false).and_then(|one| one.with_fields_alone(at))
    }

    /// Compiles a rule about `claims`, whose result must be a bool.
    ///
    /// # Errors
    /// Same as [`of_claims`](Self::of_claims).
    pub(super) fn rule_of_claims(text: &str, at: &str) -> Result<Self, FieldError> {
        Self::compile(&CLAIMS, text, at, true).and_then(|one| one.with_fields_alone(at))
    }

    /// Compiles a rule about `user`, whose result must be a bool.
    ///
    /// # Errors
    /// Same as [`of_claims`](Self::of_claims).
    pub(super) fn rule_of_user(text: &str, at: &str) -> Result<Self, FieldError> {
        Self::compile(&USER, text, at, true)
    }

    fn compile(
        environment: &Environment,
        text: &str,
        at: &str,
        must_be_bool: bool,
    ) -> Result<Self, FieldError> {
        const NO_BOOL: &str = "must evaluate to bool";
        let invalid = |why: &str| FieldError::invalid(at, format!("{text:?}"), why);
        match environment.compile(text) {
            Ok(program) if must_be_bool && !program.is_bool() => Err(invalid(NO_BOOL)),
            Ok(program) => Ok(Self { text: text.to_owned(), program }),
            Err(CompileError::Program(why)) if must_be_bool && !why.is_bool => {
                Err(invalid(NO_BOOL))
            }
            Err(CompileError::Program(why)) => {
                Err(invalid(&format!("program instantiation failed: {}", why.why)))
            }
            Err(why) => Err(invalid(&format!("compilation failed: {why}"))),
        }
    }

    /// Rejects an expression that uses `claims` without a field. kube-apiserver compiles it, but its evaluation fails, or
    /// a macro iterates over the values instead of the names.
    fn with_fields_alone(self, at: &str) -> Result<Self, FieldError> {
        let why = "claims must be used with a field, such as claims.sub";
        match self.program.uses_whole_variable() {
            true => Err(FieldError::invalid(at, format!("{:?}", self.text), why)),
            false => Ok(self),
        }
    }

    /// Whether the expression selects this claim.
    pub(super) fn uses_claim(&self, claim: &str) -> bool {
        self.program.selects(claim)
    }

    /// Evaluates an expression about the claims of a token.
    ///
    /// # Errors
    /// The reason, if the evaluation fails.
    pub(super) fn of(&self, claims: &Claims) -> Result<Output, String> {
        let mut budget = Budget::new(u64::MAX, COST_LIMIT);
        let output = self.program.output(claims, &mut budget);
        output.map_err(|why| format!("expression '{}' resulted in error: {why}", self.text))
    }

    /// Checks a rule about the claims of a token or about a user.
    ///
    /// # Errors
    /// The reason with the message of the rule, if the result is not true.
    pub(super) fn check(&self, object: &Value, message: &str) -> Result<(), String> {
        let Value::Object(fields) = object else { return Err("no object".to_owned()) };
        match self.of(fields)? {
            Output::Bool(true) => Ok(()),
            Output::Bool(false) => {
                Err(format!("validation expression '{}' failed: {message}", self.text))
            }
            _ => Err("validation expression must return a boolean".to_owned()),
        }
    }
}
