//! The operations of paths that code of the user handles.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};

use super::{capitalized, group_words};
use crate::paths::{ParsedGroupVersion, Pattern};
use crate::subresource::Subresource;
use crate::verb::Verb;

/// The paths of a group version, each with its operations.
pub(in super::super) fn paths(served: &ParsedGroupVersion) -> Vec<(String, Value)> {
    let described = served.described();
    let root = format!("/{}", crate::kind::root(described.group(), described.version()));
    let of_pattern = |(pattern, handlers): (&Pattern, &Arc<Subresource>)| {
        let text = pattern.text();
        let below = handlers.has_paths().then(|| {
            let item = item(served, pattern, handlers, &["path"]);
            (format!("{root}{text}/{{path}}"), item)
        });
        let own = (format!("{root}{text}"), item(served, pattern, handlers, &[]));
        std::iter::once(own).chain(below)
    };
    served.paths().flat_map(of_pattern).collect()
}

/// The operations of a pattern, with `more` parameters of the path.
fn item(
    served: &ParsedGroupVersion,
    pattern: &Pattern,
    handlers: &Subresource,
    more: &[&'static str],
) -> Value {
    let operation = |method: &Method| {
        let described = operation(served, pattern, (handlers, method), more);
        (method.as_str().to_ascii_lowercase(), described)
    };
    let mut path: Map<String, Value> = handlers.methods().map(operation).collect();
    let parameters = pattern.parameters().chain(more.iter().copied()).map(|name| {
        let schema = json!({"type": "string", "uniqueItems": true});
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    path.insert("parameters".to_owned(), parameters.collect());
    Value::Object(path)
}

fn operation(
    served: &ParsedGroupVersion,
    pattern: &Pattern,
    (handlers, method): (&Subresource, &Method),
    more: &[&'static str],
) -> Value {
    let (group, version) = (served.described().group(), served.described().version());
    let tag: String = group_words(group)
        .enumerate()
        .map(|(place, word)| if place == 0 { word } else { capitalized(&word) })
        .collect();
    let words = pattern.text().split('/').chain(more.iter().copied()).map(|segment| {
        let word = segment.trim_matches(['{', '}']).replace(|one: char| !one.is_alphanumeric(), "");
        let by = if segment.starts_with('{') { "By" } else { "" };
        format!("{by}{}", capitalized(&word))
    });
    let method_name = method.as_str().to_ascii_lowercase();
    let (tag_word, version_word) = (capitalized(&tag), capitalized(version));
    let action = match handlers.is_connected() {
        true => "connect",
        false => Verb::of_method(method).map(action).unwrap_or_default(),
    };
    let operation = handlers.operation(method);
    let mut described = json!({
        "tags": [format!("{tag}_{version}")],
        "operationId": format!("{method_name}{tag_word}{version_word}{}", words.collect::<String>()),
        "responses": {
            "200": {"description": "OK", "content": operation.response},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
    });
    if !operation.parameters.is_empty() {
        described["parameters"] = operation.parameters.into();
    }
    if let Some(content) = operation.body {
        described["requestBody"] = json!({"content": content, "required": true});
    }
    described
}

/// The name of a verb in `x-kubernetes-action`.
fn action(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "post",
        Verb::Update => "put",
        verb => verb.name(),
    }
}
