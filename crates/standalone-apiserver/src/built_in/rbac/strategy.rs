//! The common strategy of the kinds of `rbac.authorization.k8s.io`.

use aggregated_apiserver::Strategy;
use aggregated_apiserver::strategy::NameRule;

use crate::built_in::strategy::without_generation;

/// A name may be any valid path segment, such as `system:node`, and a PUT creates a missing object.
pub(super) fn strategy() -> Strategy {
    Strategy { names: NameRule::PathSegment, allows_create_on_update: true, ..without_generation() }
}
