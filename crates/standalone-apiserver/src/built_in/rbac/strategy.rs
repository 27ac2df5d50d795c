//! What the kinds of `rbac.authorization.k8s.io` have in common.

use aggregated_apiserver::{NameRule, Strategy};

use crate::built_in::strategy::without_generation;

/// A name may be whatever a path can hold, as `system:node`, and a PUT creates what is not there.
pub(super) fn strategy() -> Strategy {
    Strategy { names: NameRule::PathSegment, allows_create_on_update: true, ..without_generation() }
}
