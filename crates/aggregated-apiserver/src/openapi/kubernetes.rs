//! The parts that all documents share: the schemas of `meta/v1` and the parameters of each verb, same as in Kubernetes
//! 1.36. Definitions with the same name must be equal everywhere, because kube-aggregator renames different ones.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static FACTS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("kubernetes.json")).unwrap_or_default());
static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// A part of the shared facts.
pub(super) fn map(part: &str) -> &'static Map<String, Value> {
    FACTS[part].as_object().unwrap_or(&NOTHING)
}

/// The parameters of a verb.
pub(super) fn parameters(verb: &str) -> Vec<Value> {
    FACTS["parameters"][verb].as_array().cloned().unwrap_or_default()
}

/// A path parameter.
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
