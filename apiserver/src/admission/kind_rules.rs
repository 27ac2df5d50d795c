//! KindRules: the rules of one kind as an admission plugin.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use crate::kind::{ErasedRules, RuleContext};
use crate::object::Tree;

/// The rules that a user wrote for one kind. They are about objects, so they are not asked
/// about deletions, nor about a `status` alone.
#[derive(Debug)]
pub struct KindRules(pub Arc<ErasedRules>);

impl AdmissionPlugin for KindRules {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_of_object = matches!(request.subresource, "" | "scale");
        let is_deletion = request.operation == AdmissionOperation::Delete;
        is_of_object && !is_deletion && self.0.is_about(request.version)
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        // What does not fit its type is told when the object is validated.
        if let Ok(Some(prepared)) = self.0.prepared(object, &context(request)) {
            prepared.apply_to(object);
        }
        ready(Ok(())).boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let Some(object) = object else { return ready(Ok(())).boxed() };
        let verdict = self.0.judge(object, request.old_object(), &context(request));
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

fn context<'a>(request: &'a AdmissionRequest<'_>) -> RuleContext<'a> {
    let context = RuleContext::new(request.user, request.now, request.dry_run);
    match request.old_object() {
        Some(old) => context.changing(old),
        None => context,
    }
}
