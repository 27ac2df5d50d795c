//! The CEL environment of admission: the variables of the expressions of webhooks and policies, and their evaluation.

use std::sync::{Arc, LazyLock};

use kubernetes_cel::{
    Activation, Budget, CompileError, Declared, Environment, Field, ListKind, Outcome, Program,
};

/// The cost limit of one expression; same as kube-apiserver.
pub(super) const PER_CALL: u64 = 1_000_000;

/// The result types of expressions that must be true.
pub(super) const BOOL: &[&str] = &["bool"];
/// The result types of messages.
pub(super) const STRING: &[&str] = &["string"];
/// The result types of the values of audit annotations.
pub(super) const STRING_OR_NULL: &[&str] = &["string", "null_type"];

/// The message of kube-apiserver for expressions that have spent the budget of a policy or webhook.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The environment of expressions with the variables `object`, `oldObject`, `request`, `namespaceObject`, and `params`
/// if the policy has parameters. `authorizer` of kube-apiserver is missing.
pub(super) fn environment(has_params: bool) -> Environment {
    let dynamic = Arc::new(Declared::dynamic());
    let mut variables = vec![
        ("object", Arc::clone(&dynamic)),
        ("oldObject", Arc::clone(&dynamic)),
        ("request", Arc::clone(&REQUEST)),
        ("namespaceObject", Arc::clone(&NAMESPACE)),
    ];
    if has_params {
        variables.push(("params", dynamic));
    }
    Environment::of_typed_variables(&variables)
}

/// The type of `request`, which has neither the uid nor the objects of an AdmissionRequest.
static REQUEST: LazyLock<Arc<Declared>> = LazyLock::new(|| {
    let version = |last: &str, name: &str| {
        let fields = [("group", string()), ("version", string()), (last, string())];
        object(name, fields)
    };
    let kind = || version("kind", "kubernetes.GroupVersionKind");
    let resource = || version("resource", "kubernetes.GroupVersionResource");
    let user = object(
        "kubernetes.UserInfo",
        [
            ("username", string()),
            ("uid", string()),
            ("groups", list(string())),
            ("extra", map(list(string()))),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", string()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", string()),
            ("name", string()),
            ("namespace", string()),
            ("operation", string()),
            ("userInfo", user),
            ("dryRun", Arc::new(Declared::boolean())),
            ("options", Arc::new(Declared::dynamic())),
        ],
    )
});

/// The type of `namespaceObject`.
static NAMESPACE: LazyLock<Arc<Declared>> = LazyLock::new(|| {
    let time = || Arc::new(Declared::string("date-time", None, &[]));
    let integer = || Arc::new(Declared::integer());
    let spec = object("kubernetes.NamespaceSpec", [("finalizers", list(string()))]);
    let condition = object(
        "kubernetes.NamespaceCondition",
        [
            ("status", string()),
            ("type", string()),
            ("lastTransitionTime", time()),
            ("message", string()),
            ("reason", string()),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        [("conditions", list(condition)), ("phase", string())],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", string()),
            ("generateName", string()),
            ("namespace", string()),
            ("labels", map(string())),
            ("annotations", map(string())),
            ("UID", string()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", integer()),
            ("deletionTimestamp", time()),
            ("generation", integer()),
            ("resourceVersion", string()),
            ("finalizers", list(string())),
        ],
    );
    object("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
});

fn string() -> Arc<Declared> {
    Arc::new(Declared::string("", None, &[]))
}

fn list(of: Arc<Declared>) -> Arc<Declared> {
    Arc::new(Declared::list(of, None, &ListKind::Atomic))
}

fn map(of: Arc<Declared>) -> Arc<Declared> {
    Arc::new(Declared::map(of, None))
}

fn object<const N: usize>(name: &str, fields: [(&str, Arc<Declared>); N]) -> Arc<Declared> {
    let fields = fields.map(|(name, of)| Field {
        name: name.to_owned(),
        of: Some(of),
        is_required: true,
        has_default: false,
    });
    Arc::new(Declared::object(fields.into()).named(name))
}

/// Compiles an expression whose result must have one of these types.
///
/// # Errors
/// The reason why the expression cannot be evaluated, with the message of kube-apiserver.
pub(super) fn compile(
    environment: &Environment,
    text: &str,
    types: &[&str],
) -> Result<Program, String> {
    let program = environment.compile(text).map_err(|why| explain(&why))?;
    let result = program.result_type();
    match types {
        types if types.contains(&result) => Ok(program),
        [only] => Err(format!("must evaluate to {only} but got {result}")),
        several => Err(format!("must evaluate to one of [{}] but got {result}", several.join(" "))),
    }
}

/// The message of kube-apiserver for an expression that cannot be compiled.
pub(super) fn explain(why: &CompileError) -> String {
    format!("compilation failed: {why}")
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    text: String,
    /// The program, or the reason why it cannot be evaluated.
    program: Result<Program, String>,
}

/// The budget for all expressions of a policy or webhook is spent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutOfBudget;

impl Expression {
    /// Compiles an expression whose result must have one of these types.
    pub(super) fn new(environment: &Environment, text: &str, types: &[&str]) -> Self {
        Self { text: text.to_owned(), program: compile(environment, text, types) }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The result of the expression, or the message of kube-apiserver about its error.
    ///
    /// # Errors
    /// If the budget is spent.
    pub(super) fn evaluate<'v>(
        &'v self,
        activation: &mut Activation<'v>,
        budget: &mut Budget,
    ) -> Result<Result<Outcome, String>, OutOfBudget> {
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let failed =
            |why: &str| Ok(Err(format!("expression '{}' resulted in error: {why}", self.text)));
        match program.evaluate_in(activation, budget) {
            Outcome::Failed(why) => failed(&why),
            Outcome::CallTooDear => failed("operation cancelled: actual cost limit exceeded"),
            Outcome::OutOfBudget => Err(OutOfBudget),
            outcome => Ok(Ok(outcome)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_namespaces_have_types() {
        let environment = environment(false);
        for (text, expected) in [
            ("request.operation == 'CREATE' && request.namespace == 'n'", Ok(())),
            ("request.userInfo.extra['a'].all(value, value == 'b')", Ok(())),
            ("namespaceObject.metadata.labels['a'] == 'b'", Ok(())),
            ("request.object == null", Err("undefined field 'object'")),
            (
                "namespaceObject.metadata.managedFields == null",
                Err("undefined field 'managedFields'"),
            ),
            ("request + 1 == 2", Err("'(kubernetes.AdmissionRequest, int)'")),
            ("params == null", Err("undeclared reference to 'params'")),
            (
                "authorizer.group('').resource('pods').check('get').allowed()",
                Err("undeclared reference to 'authorizer'"),
            ),
            ("'a'", Err("must evaluate to bool but got string")),
        ] {
            let compiled = compile(&environment, text, BOOL);
            match expected {
                Ok(()) => assert!(compiled.is_ok(), "{text}: {compiled:?}"),
                Err(why) => assert!(compiled.unwrap_err().contains(why), "{text}"),
            }
        }
        assert_eq!(
            compile(&environment, "[1]", STRING_OR_NULL).unwrap_err(),
            "must evaluate to one of [string null_type] but got list(int)"
        );
        assert!(compile(&environment, "null", STRING_OR_NULL).is_ok());
    }
}
