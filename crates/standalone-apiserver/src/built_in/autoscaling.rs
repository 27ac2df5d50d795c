//! The kinds of the group autoscaling.

pub(crate) mod horizontal_pod_autoscaler;
pub(crate) mod older_autoscaler;
