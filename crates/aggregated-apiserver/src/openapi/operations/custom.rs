//! The operations of subresources that code of the user handles.

use http::Method;
use serde_json::{Map, Value, json};

use super::{Operations, Words, capitalized, schemas};
use crate::subresource::Subresource;
use crate::verb::Verb;

impl Operations<'_> {
    /// The operations of a subresource, or of the paths below it.
    pub(super) fn custom(&self, custom: &Subresource, is_below: bool) -> Value {
        let operation = |method: &Method| {
            let described = self.custom_operation(custom, method, is_below);
            (method.as_str().to_ascii_lowercase(), described)
        };
        let mut path: Map<String, Value> = custom.methods().map(operation).collect();
        let mut parameters = self.item_parameters();
        parameters.extend(is_below.then(|| {
            json!({
                "name": "path",
                "in": "path",
                "description": format!("path to the {}", custom.name()),
                "required": true,
                "schema": {"type": "string", "uniqueItems": true},
            })
        }));
        path.insert("parameters".to_owned(), parameters.into());
        Value::Object(path)
    }

    fn custom_operation(&self, custom: &Subresource, method: &Method, is_below: bool) -> Value {
        let (kind, name) = (&self.kind.names.kind, custom.name());
        let verb = Verb::of_method(method).unwrap_or(Verb::Get);
        let Words { verb, action, .. } = Words::of(verb, kind, None);
        let (verb, action) = match custom.is_connected() {
            true => (
                format!("connect{}", capitalized(&method.as_str().to_ascii_lowercase())),
                "connect",
            ),
            false => (verb.to_owned(), action),
        };
        let namespaced = if self.namespaced { "Namespaced" } else { "" };
        let below = if is_below { "WithPath" } else { "" };
        let of =
            format!("{}{namespaced}{kind}{}{below}", self.group_and_version(), capitalized(name));
        let operation = custom.operation(method);
        let mut described = json!({
            "tags": [format!("{}_{}", self.tag(), self.version.name)],
            "description": format!("{name} of the specified {kind}"),
            "operationId": format!("{verb}{of}"),
            "responses": {
                "200": {"description": "OK", "content": operation.response},
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind":
                schemas::group_version_kind(self.kind, self.version, kind),
        });
        if !operation.parameters.is_empty() {
            described["parameters"] = operation.parameters.into();
        }
        if let Some(content) = operation.body {
            described["requestBody"] = json!({"content": content, "required": true});
        }
        described
    }
}
