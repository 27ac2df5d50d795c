//! The content of kubeconfig files.

use serde_json::{Value, json};

/// Returns a kubeconfig with one cluster and one user, for example `{"server": "https://127.0.0.1:1"}` and `{}`.
pub fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    })
}
