//! The schemas of a kind of Kubernetes' own, as its types describe themselves.

use std::fmt;

use serde_json::{Map, Value};

/// The schemas of a kind of Kubernetes' own, and of everything in it.
#[derive(Clone)]
pub struct OpenApiSchemas {
    /// What the schema of the kind is called: `io.k8s.api.core.v1.Pod`.
    pub root: String,
    /// All schemas, by their names: made when they are first asked for, and then
    /// for every server of the process. They refer to each other by
    /// `#/components/schemas/NAME`.
    pub all: fn() -> &'static Map<String, Value>,
}

impl fmt::Debug for OpenApiSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenApiSchemas").field(&self.root).finish()
    }
}
