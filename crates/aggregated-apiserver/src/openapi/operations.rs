//! The operations on a kind, by path and method, in OpenAPI 3.

mod custom;
mod paths;

use serde_json::{Map, Value, json};

use super::{kubernetes, schemas};
use crate::kind::{Kind, Version};
use crate::served_kind::ServedKind;
use crate::verb::{Action, ServedSubresource, Verb, subresources, verbs};

pub(super) use paths::paths as of_group_version;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
/// The media types of request and response bodies.
pub(super) const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The paths of a kind in one version, each with its operations.
pub(super) fn paths(served: &ServedKind, version: &Version) -> Vec<(String, Value)> {
    let kind = &served.kind;
    let root = format!("/{}", crate::kind::root(&kind.group, &version.name));
    let plural = &kind.names.plural;
    let one = Operations { kind, version, verbs: verbs(served), namespaced: kind.is_namespaced() };
    let collection = if one.namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let item = format!("{collection}/{{name}}");
    let mut paths: Vec<(String, Value)> = Vec::new();
    for subresource in subresources(served, version) {
        let path = format!("{item}/{}", subresource.name);
        if let Some(custom) = subresource.custom().filter(|custom| custom.has_paths()) {
            paths.push((format!("{path}/{{path}}"), one.custom(custom, true)));
        }
        paths.push((path, one.part(&subresource)));
    }
    if one.verbs.is_empty() {
        return paths;
    }
    paths.extend([(collection, one.collection()), (item, one.item())]);
    if one.namespaced {
        paths.push((format!("{root}/{plural}"), one.over_all()));
    }
    paths
}

struct Operations<'a> {
    kind: &'a Kind,
    version: &'a Version,
    verbs: &'static [Verb],
    namespaced: bool,
}

impl Operations<'_> {
    fn collection(&self) -> Value {
        let verbs =
            [("get", Verb::List), ("post", Verb::Create), ("delete", Verb::DeleteCollection)];
        let mut path = self.operations(&verbs);
        path.insert("parameters".to_owned(), self.path_parameters(&[]).into());
        Value::Object(path)
    }

    fn item(&self) -> Value {
        let verbs = [
            ("get", Verb::Get),
            ("put", Verb::Update),
            ("patch", Verb::Patch),
            ("delete", Verb::Delete),
        ];
        let mut path = self.operations(&verbs);
        path.insert("parameters".to_owned(), self.item_parameters().into());
        Value::Object(path)
    }

    fn part(&self, subresource: &ServedSubresource) -> Value {
        if let Some(custom) = subresource.custom() {
            return self.custom(custom, false);
        }
        let verbs = [
            ("get", Verb::Get),
            ("put", Verb::Update),
            ("patch", Verb::Patch),
            ("post", Verb::Create),
        ];
        let mut path = Map::new();
        for (method, verb) in verbs.into_iter().filter(|(_, verb)| subresource.verbs.contains(verb))
        {
            path.insert(method.to_owned(), self.operation_on(verb, Some(subresource)));
        }
        path.insert("parameters".to_owned(), self.item_parameters().into());
        Value::Object(path)
    }

    fn item_parameters(&self) -> Vec<Value> {
        let mut name = kubernetes::path_parameter("name");
        name["description"] = format!("name of the {}", self.kind.names.kind).into();
        self.path_parameters(&[name])
    }

    fn over_all(&self) -> Value {
        let mut operation = self.operation(Verb::List);
        operation["operationId"] =
            format!("list{}{}ForAllNamespaces", self.group_and_version(), self.kind.names.kind)
                .into();
        if let Some(members) = operation.as_object_mut() {
            members.remove("parameters");
        }
        let mut parameters = kubernetes::parameters("list");
        parameters.push(kubernetes::path_parameter("pretty"));
        parameters.sort_by_key(|parameter| parameter["name"].to_string());
        json!({"get": operation, "parameters": parameters})
    }

    fn operations(&self, verbs: &[(&str, Verb)]) -> Map<String, Value> {
        let served = verbs.iter().filter(|(_, verb)| self.verbs.contains(verb));
        served.map(|&(method, verb)| (method.to_owned(), self.operation(verb))).collect()
    }

    fn path_parameters(&self, first: &[Value]) -> Vec<Value> {
        let mut parameters = first.to_vec();
        if self.namespaced {
            parameters.push(kubernetes::path_parameter("namespace"));
        }
        parameters.push(kubernetes::path_parameter("pretty"));
        parameters
    }

    fn operation(&self, verb: Verb) -> Value {
        self.operation_on(verb, None)
    }

    fn operation_on(&self, verb: Verb, subresource: Option<&ServedSubresource>) -> Value {
        let kind = &self.kind.names.kind;
        let object = match subresource {
            Some(ServedSubresource { kind: Some(other), action: Action::Handler(_), .. }) => {
                schemas::name(other, &other.storage, &other.names.kind)
            }
            Some(ServedSubresource { kind: Some(_), .. }) => SCALE.to_owned(),
            _ => schemas::name(self.kind, self.version, kind),
        };
        let list = schemas::name(self.kind, self.version, &self.kind.names.list_kind);
        let words = Words::of(verb, kind, subresource);
        let part = subresource.map(|part| capitalized(part.name)).unwrap_or_default();
        let (answer, statuses): (&str, &[u16]) = match verb {
            Verb::List | Verb::Watch => (&list, &[200]),
            Verb::Get | Verb::Patch => (&object, &[200]),
            Verb::Create => (&object, &[200, 201, 202]),
            Verb::Update => (&object, &[200, 201]),
            Verb::Delete => (STATUS, &[200, 202]),
            Verb::DeleteCollection => (STATUS, &[200]),
        };
        let mut responses: Map<String, Value> = statuses
            .iter()
            .map(|status| {
                let description = match status {
                    200 => "OK",
                    201 => "Created",
                    _ => "Accepted",
                };
                let answer =
                    json!({"description": description, "content": content(&MEDIA_TYPES, answer)});
                (status.to_string(), answer)
            })
            .collect();
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let namespaced = if self.namespaced { "Namespaced" } else { "" };
        let mut operation = json!({
            "tags": [format!("{}_{}", self.tag(), self.version.name)],
            "description": words.description,
            "operationId": format!(
                "{}{}{}{namespaced}{kind}{part}",
                words.verb,
                self.group_and_version(),
                words.collection
            ),
            "responses": responses,
            "x-kubernetes-action": words.action,
            "x-kubernetes-group-version-kind":
                schemas::group_version_kind(self.kind, self.version, kind),
        });
        let parameters = match verb {
            Verb::DeleteCollection => kubernetes::parameters("list"),
            verb => kubernetes::parameters(verb.name()),
        };
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        let body = match verb {
            Verb::Create | Verb::Update => Some((&MEDIA_TYPES[..], object.as_str(), true)),
            Verb::Patch => {
                // kubectl reads the keys of lists from the schemas.
                let types = if self.kind.is_typed() { &PATCH_TYPES[..] } else { &PATCH_TYPES[..2] };
                Some((types, PATCH, true))
            }
            Verb::Delete => Some((&MEDIA_TYPES[..], DELETE_OPTIONS, false)),
            _ => None,
        };
        if let Some((media_types, schema, required)) = body {
            let mut body = json!({"content": content(media_types, schema)});
            if required {
                body["required"] = true.into();
            }
            operation["requestBody"] = body;
        }
        operation
    }

    /// `OracleExampleComV1`
    fn group_and_version(&self) -> String {
        let mut words: String = self.group_words().map(|word| capitalized(&word)).collect();
        words.push_str(&capitalized(&self.version.name));
        words
    }

    /// `oracleExampleCom`
    fn tag(&self) -> String {
        let words = self.group_words().enumerate();
        words.map(|(at, word)| if at == 0 { word } else { capitalized(&word) }).collect()
    }

    fn group_words(&self) -> impl Iterator<Item = String> {
        group_words(&self.kind.group)
    }
}

fn group_words(group: &str) -> impl Iterator<Item = String> {
    let group = if group.is_empty() { "core" } else { group };
    let group = group.trim_end_matches(".k8s.io");
    group.split('.').map(str::to_owned)
}

/// The names of an operation.
struct Words {
    verb: &'static str,
    action: &'static str,
    collection: &'static str,
    description: String,
}

impl Words {
    fn of(verb: Verb, kind: &str, subresource: Option<&ServedSubresource>) -> Self {
        let article = article(kind);
        let of_it = subresource.map(|part| format!("{} of ", part.name)).unwrap_or_default();
        let (word, action, collection, description) = match verb {
            Verb::List | Verb::Watch => {
                ("list", "list", "", format!("list objects of kind {kind}"))
            }
            Verb::Get => ("read", "get", "", format!("read {of_it}the specified {kind}")),
            Verb::Create if subresource.is_some() => {
                ("create", "post", "", format!("create {of_it}the specified {kind}"))
            }
            Verb::Create => ("create", "post", "", format!("create{article} {kind}")),
            Verb::Update => ("replace", "put", "", format!("replace {of_it}the specified {kind}")),
            Verb::Patch => {
                ("patch", "patch", "", format!("partially update {of_it}the specified {kind}"))
            }
            Verb::Delete => ("delete", "delete", "", format!("delete{article} {kind}")),
            Verb::DeleteCollection => {
                ("delete", "deletecollection", "Collection", format!("delete collection of {kind}"))
            }
        };
        Self { verb: word, action, collection, description }
    }
}

/// ` a`, ` an`, or an empty string before a plural.
fn article(noun: &str) -> &'static str {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        return "";
    }
    let first = noun.chars().next().unwrap_or_default().to_ascii_lowercase();
    if "aeiou".contains(first) { " an" } else { " a" }
}

fn content(media_types: &[&str], schema: &str) -> Value {
    let schema = json!({"schema": {"$ref": format!("{}{schema}", schemas::V3)}});
    Value::Object(media_types.iter().map(|media| ((*media).to_owned(), schema.clone())).collect())
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

/// Converts an operation to OpenAPI 2.
pub(super) fn to_v2(path: &Value) -> Value {
    let Value::Object(path) = path else { return path.clone() };
    let converted = path.iter().map(|(method, operation)| {
        let converted = match operation {
            Value::Array(parameters) => parameters.iter().map(parameter_to_v2).collect(),
            operation => operation_to_v2(operation),
        };
        (method.clone(), converted)
    });
    Value::Object(converted.collect())
}

fn operation_to_v2(operation: &Value) -> Value {
    let mut converted = operation.clone();
    let schema_of = |content: &Value| {
        let schema = content.as_object().and_then(|content| content.values().next())?;
        Some(schemas::to_v2(&schema["schema"], false))
    };
    let body = &operation["requestBody"];
    let mut parameters = Vec::new();
    let mut consumes: Vec<String> = MEDIA_TYPES.map(str::to_owned).to_vec();
    if let Some(schema) = schema_of(&body["content"]) {
        let mut parameter = json!({"name": "body", "in": "body", "schema": schema});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        parameters.push(parameter);
        let types = body["content"].as_object().into_iter().flatten();
        consumes = types.map(|(media_type, _)| media_type.clone()).collect();
    }
    let given = operation["parameters"].as_array().into_iter().flatten();
    parameters.extend(given.map(parameter_to_v2));
    if let Some(responses) = converted["responses"].as_object_mut() {
        for response in responses.values_mut() {
            let schema = schema_of(&response["content"]);
            let Some(response) = response.as_object_mut() else { continue };
            response.remove("content");
            response.extend(schema.map(|schema| ("schema".to_owned(), schema)));
        }
    }
    if let Some(members) = converted.as_object_mut() {
        members.remove("requestBody");
        members.remove("parameters");
        members.insert("consumes".to_owned(), consumes.into());
        members.insert("produces".to_owned(), MEDIA_TYPES.to_vec().into());
        members.insert("schemes".to_owned(), json!(["https"]));
        if !parameters.is_empty() {
            members.insert("parameters".to_owned(), parameters.into());
        }
    }
    converted
}

fn parameter_to_v2(parameter: &Value) -> Value {
    let Value::Object(given) = parameter else { return parameter.clone() };
    let mut converted = given.clone();
    if let Some(Value::Object(schema)) = converted.remove("schema") {
        converted.extend(schema);
    }
    Value::Object(converted)
}
