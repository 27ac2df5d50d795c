//! Removed versions of Kubernetes' own kinds, which kube-apiserver still accepts in patches.

use serde_json::Value;

use super::text;
use crate::object::Tree;

/// Versions in which objects have the same fields as in the served version: the group, its kinds, and the versions.
const FORMER: [(&str, &[&str], &[&str]); 10] = [
    ("apps", &["Deployment", "StatefulSet", "ControllerRevision"], &["apps/v1beta1"]),
    (
        "apps",
        &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ControllerRevision"],
        &["apps/v1beta2"],
    ),
    ("apps", &["Deployment", "DaemonSet", "ReplicaSet"], &["extensions/v1beta1"]),
    ("batch", &["CronJob"], &["batch/v1beta1"]),
    ("coordination.k8s.io", &["Lease"], &["coordination.k8s.io/v1beta1"]),
    ("networking.k8s.io", &["NetworkPolicy"], &["extensions/v1beta1"]),
    ("policy", &["PodDisruptionBudget"], &["policy/v1beta1"]),
    (
        "rbac.authorization.k8s.io",
        &["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"],
        &["rbac.authorization.k8s.io/v1beta1"],
    ),
    ("scheduling.k8s.io", &["PriorityClass"], &["scheduling.k8s.io/v1beta1"]),
    (
        "storage.k8s.io",
        &["StorageClass", "CSIDriver", "CSINode", "VolumeAttachment"],
        &["storage.k8s.io/v1beta1"],
    ),
];

/// Removes the `apiVersion` of an object of a group if it is a former version, so that the served version is set
/// instead.
pub(super) fn update(tree: &mut Tree, group: &str) {
    let (given, kind) = (text(tree, "apiVersion"), text(tree, "kind"));
    let is_former = FORMER.iter().any(|(of_group, kinds, versions)| {
        *of_group == group && kinds.contains(&kind.as_str()) && versions.contains(&given.as_str())
    });
    if is_former {
        tree.remove("apiVersion");
    }
}

/// Removes the `apiVersion` and `kind` of an object that a strategic merge patch has changed, because they are ignored
/// there.
pub(super) fn ignore_type(tree: &mut Tree) {
    for field in ["apiVersion", "kind"] {
        if tree.get(field).is_some_and(Value::is_string) {
            tree.remove(field);
        }
    }
}
