//! Validation rules in Rust, which a schema cannot express.

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::located_errors;
use crate::error::FieldError;
use crate::kind::{ErasedValidation, Judge, Prepared, RuleContext, Verdict, go_reader};

type Prepare<K> = Box<dyn Fn(&mut K, &RuleContext<'_>) + Send + Sync>;
type Validate<K> = Box<dyn Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<FieldError> + Send + Sync>;
type Warn<K> = Box<dyn Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<String> + Send + Sync>;

/// Rules of a stored kind that a schema cannot express. They are written for the Rust type and run in process. With
/// other servers they would need a webhook.
///
/// Rules run for every write of an object, except for writes of its `status` alone. They check objects in the version
/// of their type. A kind with rules that serves another version too does not start, because writes in that version
/// would circumvent the rules. If a rule panics, the request fails with 500 and the server continues.
///
/// ```
/// # use kube::CustomResource;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// use aggregated_apiserver::{FieldError, Validation, Stored};
///
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Range", namespaced)]
/// # struct RangeSpec { least: i64, most: i64, #[serde(default)] made_by: String }
/// impl Stored for Range {
///     fn validation() -> Validation<Self> {
///         Validation::<Self>::new()
///             .prepare(|range, context| range.spec.made_by = context.user.name.clone())
///             .validate(|range, _old, _context| {
///                 if range.spec.least <= range.spec.most {
///                     return Vec::new();
///                 }
///                 let why = "must not exceed spec.most";
///                 vec![FieldError::invalid("spec.least", range.spec.least, why)]
///             })
///     }
/// }
/// ```
pub struct Validation<K> {
    prepare: Option<Prepare<K>>,
    validate: Option<Validate<K>>,
    warn: Option<Warn<K>>,
    validate_status: Option<Validate<K>>,
    warn_of_status: Option<Warn<K>>,
}

impl<K> Default for Validation<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Validation<K> {
    /// No rules besides the schema.
    pub fn new() -> Self {
        Self {
            prepare: None,
            validate: None,
            warn: None,
            validate_status: None,
            warn_of_status: None,
        }
    }

    /// Sets the function that changes an object before it is validated: defaults that need code, and the initial status
    /// of a new object. Only fields that the function changes are changed; fields that the type does not know are
    /// preserved. The function runs again when a write is retried.
    #[must_use]
    pub fn prepare(
        mut self,
        prepare: impl Fn(&mut K, &RuleContext<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    /// Sets the function that validates an object after its schema has been checked. It returns the invalid fields. The
    /// old object is `None` for a new object, and if the old object no longer fits the type.
    #[must_use]
    pub fn validate(
        mut self,
        validate: impl Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<FieldError> + Send + Sync + 'static,
    ) -> Self {
        self.validate = Some(Box::new(validate));
        self
    }

    /// Sets the function that returns warnings for the client. Each string becomes a `Warning` header, which kubectl
    /// prints.
    #[must_use]
    pub fn warn(
        mut self,
        warn: impl Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.warn = Some(Box::new(warn));
        self
    }

    /// Sets the function that validates the `status` of an object. It is called only for built-in kinds
    /// ([`Kind::built_in`](super::Kind::built_in)); for other kinds, a write of the `status` is validated only by the
    /// schema.
    #[must_use]
    pub fn validate_status(
        mut self,
        validate: impl Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<FieldError> + Send + Sync + 'static,
    ) -> Self {
        self.validate_status = Some(Box::new(validate));
        self
    }

    /// Sets the function that returns warnings about a `status`. It is called for the same kinds as
    /// [`validate_status`](Self::validate_status).
    #[must_use]
    pub fn warn_of_status(
        mut self,
        warn: impl Fn(&K, Option<&K>, &RuleContext<'_>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.warn_of_status = Some(Box::new(warn));
        self
    }
}

impl<K> Validation<K>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
{
    /// The rules without their type; `None` if there are no rules.
    pub(super) fn erased(self) -> Option<ErasedValidation> {
        let is_none = self.prepare.is_none() && self.validate.is_none() && self.warn.is_none();
        (!is_none).then(|| self.erased_with(read_and_locate))
    }

    /// The rules of a built-in kind without their type, even if no rule is set. Objects are first normalized in the
    /// same way as Go decodes them, so that they fit the type.
    pub(super) fn erased_built_in(self) -> ErasedValidation {
        self.erased_with(|tree| go_reader::read(tree).map_err(|error| error.to_string()))
    }

    fn erased_with(self, read: fn(&Value) -> Result<K, String>) -> ErasedValidation {
        let Self { prepare, validate, warn, validate_status, warn_of_status } = self;
        let prepare = move |tree: &Value, context: &RuleContext<'_>| {
            let Some(prepare) = prepare.as_ref() else { return Ok(None) };
            let mut typed: K = read(tree)?;
            let write = |typed: &K| serde_json::to_value(typed).map_err(|error| error.to_string());
            let before = write(&typed)?;
            prepare(&mut typed, context);
            Ok(Some(Prepared { before, after: write(&typed)? }))
        };
        let judge = judge(read, validate, warn);
        let judge_status = self::judge(read, validate_status, warn_of_status);
        let fit = move |tree: &Value| read(tree).map(drop);
        ErasedValidation::new(
            &K::version(&()),
            Box::new(fit),
            Box::new(prepare),
            judge,
            judge_status,
        )
    }
}

/// Combines the validation and the warnings of an object into one function without its type.
fn judge<K: 'static>(
    read: fn(&Value) -> Result<K, String>,
    validate: Option<Validate<K>>,
    warn: Option<Warn<K>>,
) -> Judge {
    Box::new(move |tree, old, context| {
        if validate.is_none() && warn.is_none() {
            return Verdict::default();
        }
        let typed: K = match read(tree) {
            Ok(typed) => typed,
            // The object fits the schema but not the type: both should agree.
            Err(why) => {
                let errors = vec![ErasedValidation::unfit(&why)];
                return Verdict { errors, warnings: Vec::new() };
            }
        };
        let old: Option<K> = old.and_then(|old| read(old).ok());
        let old = old.as_ref();
        let errors = validate.as_ref().map(|rule| rule(&typed, old, context));
        let warnings = warn.as_ref().map(|rule| rule(&typed, old, context));
        Verdict { errors: errors.unwrap_or_default(), warnings: warnings.unwrap_or_default() }
    })
}

/// Deserializes an object. The error names the field that does not fit the type.
fn read_and_locate<K: DeserializeOwned>(tree: &Value) -> Result<K, String> {
    located_errors::read(tree).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::User;
    use jiff::Timestamp;
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Range", namespaced)]
    struct RangeSpec {
        least: i64,
        most: i64,
        maker: Option<String>,
    }

    fn rules() -> ErasedValidation {
        Validation::<Range>::new()
            .prepare(|range, context| {
                range.spec.maker.get_or_insert_with(|| context.user.name.clone());
            })
            .validate(|range, old, _| {
                let is_less = old.is_some_and(|old| range.spec.most < old.spec.most);
                let why = "must not shrink";
                is_less
                    .then(|| FieldError::invalid("spec.most", range.spec.most, why))
                    .into_iter()
                    .collect()
            })
            .warn(|range, _, _| {
                (range.spec.least < 0).then(|| "spec.least is odd".to_owned()).into_iter().collect()
            })
            .erased()
            .unwrap()
    }

    fn range(spec: Value) -> crate::object::Tree {
        let range = json!({
            "apiVersion": "example.com/v1", "kind": "Range", "metadata": {"name": "a"}, "spec": spec,
        });
        range.as_object().unwrap().clone()
    }

    #[test]
    fn validation_rules_set_fields_and_return_errors_and_warnings() {
        let user = User { name: "jane".to_owned(), ..User::default() };
        let context = RuleContext::new(&user, Timestamp::UNIX_EPOCH, false);
        let rules = rules();
        assert!(rules.is_about("v1") && !rules.is_about("v2"));
        // Unknown fields are preserved.
        let mut tree = range(json!({"least": 1, "most": 5, "more": {"x": 1}}));
        rules.prepare(&mut tree, &context).unwrap();
        assert_eq!(tree["spec"], json!({"least": 1, "most": 5, "more": {"x": 1}, "maker": "jane"}));
        assert_eq!(tree["metadata"], json!({"name": "a"}));
        assert!(rules.prepare(&mut range(json!({"least": "x"})), &context).is_err());
        // In JSON, `1.0` is a whole number.
        rules.prepare(&mut range(json!({"least": 1.0, "most": 5})), &context).unwrap();
        let judge = |spec: Value, old: Option<Value>| {
            let Verdict { errors, warnings } =
                rules.judge(&range(spec), old.map(range).as_ref(), &context);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            (errors, warnings)
        };
        let five = json!({"least": 1, "most": 5});
        assert_eq!(judge(five.clone(), None), (vec![], vec![]));
        let (errors, warnings) = judge(json!({"least": -1, "most": 4}), Some(five.clone()));
        assert_eq!(errors, ["spec.most: Invalid value: 4: must not shrink"]);
        assert_eq!(warnings, ["spec.least is odd"]);
        // An old object that does not fit the type does not prevent updates.
        assert_eq!(judge(five, Some(json!({"least": "x"}))), (vec![], vec![]));
        let (errors, _) = judge(json!({"least": "x", "most": 4}), None);
        assert!(errors[0].starts_with("<nil>: Invalid value: \"\": does not fit its type"));
    }

    #[test]
    fn an_empty_set_of_validation_rules_is_not_registered() {
        assert!(Validation::<Range>::new().erased().is_none());
    }
}
