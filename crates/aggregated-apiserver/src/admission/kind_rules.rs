//! KindRules: the rules of one kind as an admission plugin.

use std::borrow::Cow;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::Value;

use super::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use crate::kind::{ErasedValidation, Prepared, RuleContext};
use crate::object::{Tree, metadata};

/// The rules that a user wrote for one kind. They apply to objects, so they are not evaluated for deletions, nor for
/// writes to `status`. They read objects of one version. Objects of other versions are converted, and the changes of
/// the rules are converted back.
#[derive(Debug)]
pub struct KindRules(pub Arc<ErasedValidation>);

impl AdmissionPlugin for KindRules {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_of_object = matches!(request.subresource, "" | "scale");
        let is_deletion = request.operation == AdmissionOperation::Delete;
        let is_known = self.0.is_about(request.version) || request.converts_by_code();
        is_of_object && !is_deletion && is_known
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        // Validation reports an object that does not match its type or cannot be converted.
        let (Ok(converted), Ok(old)) = (self.converted(request, object), self.old(request)) else {
            return ready(Ok(())).boxed();
        };
        let prepared = self.0.prepared(&converted, &context(request, old.as_deref()));
        let Ok(Some(prepared)) = prepared else { return ready(Ok(())).boxed() };
        if let Cow::Borrowed(_) = converted {
            prepared.apply_to(object);
            return ready(Ok(())).boxed();
        }
        let mut after = converted.clone().into_owned();
        prepared.apply_to(&mut after);
        let back = |tree: &Tree| -> Result<Value, AdmissionError> {
            Ok(Value::Object(request.convert(tree, request.version)?.into_owned()))
        };
        // Only the changes of the rules are applied, not those that result from the conversion.
        let prepared = back(&converted)
            .and_then(|before| Ok(Prepared { before, after: back(&after)? }))
            .map(|prepared| prepared.apply_to(object));
        ready(prepared).boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let Some(object) = object else { return ready(Ok(())).boxed() };
        let (converted, old) = match (self.converted(request, object), self.old(request)) {
            (Ok(converted), Ok(old)) => (converted, old),
            // The object is removed, not stored. An error here would make it undeletable.
            (Err(_), _) | (_, Err(_)) if is_gone(object) => return ready(Ok(())).boxed(),
            // Without the old object, the rules would treat the change as a create.
            (_, Err(error)) | (Err(error), _) => return ready(Err(error)).boxed(),
        };
        let verdict = self.0.judge(&converted, old.as_deref(), &context(request, old.as_deref()));
        for warning in verdict.warnings {
            request.warn(warning);
        }
        let judged = match verdict.errors {
            errors if errors.is_empty() => Ok(()),
            errors => Err(AdmissionError::invalid(errors)),
        };
        ready(judged).boxed()
    }
}

impl KindRules {
    /// Converts an object of the request to the version of the rules.
    fn converted<'a>(
        &self,
        request: &AdmissionRequest<'_>,
        object: &'a Tree,
    ) -> Result<Cow<'a, Tree>, AdmissionError> {
        request.convert(object, self.0.version())
    }

    /// The stored object, converted to the version of the rules.
    fn old<'a>(
        &self,
        request: &'a AdmissionRequest<'_>,
    ) -> Result<Option<Cow<'a, Tree>>, AdmissionError> {
        let convert = |old| request.convert_old(old, self.0.version());
        request.old_object().map(convert).transpose()
    }
}

/// Whether an object is being deleted and has no finalizers.
fn is_gone(object: &Tree) -> bool {
    let finalizers = metadata::of(object).get("finalizers").and_then(Value::as_array);
    !metadata::text(object, "deletionTimestamp").is_empty() && finalizers.is_none_or(Vec::is_empty)
}

fn context<'a>(request: &'a AdmissionRequest<'_>, old: Option<&'a Tree>) -> RuleContext<'a> {
    let context = RuleContext::new(request.user, request.now, request.dry_run);
    match old {
        Some(old) => context.changing(old),
        None => context,
    }
}
