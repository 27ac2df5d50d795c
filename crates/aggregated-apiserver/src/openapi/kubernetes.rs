//! What every document says alike: the schemas of `meta/v1` and the parameters
//! of each verb, as Kubernetes 1.36 has them. A definition of one name must be
//! the same everywhere, or kube-aggregator renames it.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static FACTS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("kubernetes.json")).unwrap_or_default());
static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// One of its parts.
pub(super) fn map(part: &str) -> &'static Map<String, Value> {
    FACTS[part].as_object().unwrap_or(&NOTHING)
}

/// The parameters of a verb.
pub(super) fn parameters(verb: &str) -> Vec<Value> {
    FACTS["parameters"][verb].as_array().cloned().unwrap_or_default()
}

/// A parameter of paths.
pub(super) fn path_parameter(name: &str) -> Value {
    FACTS["pathParameters"][name].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_there() {
        assert!(map("schemas").contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
        assert_eq!(map("object").len(), 3);
        assert_eq!(parameters("list").len(), 11);
        assert_eq!(path_parameter("namespace")["in"], "path");
    }
}
