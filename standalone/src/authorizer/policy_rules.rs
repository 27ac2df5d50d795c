//! What one rule of a role allows, and whether rules allow all that others do.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// What stands for everything.
const ALL: &str = "*";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// With a resource.
    Resource(&'a ResourceAttributes),
    /// With a path.
    Path(&'a NonResourceAttributes),
}

impl Request<'_> {
    /// The namespace; empty over all of them.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Resource(asked) => asked.namespace.as_deref().unwrap_or_default(),
            Self::Path(_) => "",
        }
    }
}

/// Whether a rule allows a request.
pub(super) fn allows(rule: &PolicyRule, request: Request<'_>) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match request {
        Request::Resource(asked) => {
            let resource = text(&asked.resource);
            let subresource = text(&asked.subresource);
            has(&rule.verbs, &text(&asked.verb))
                && has(values(&rule.api_groups), &text(&asked.group))
                && has_resource(values(&rule.resources), &resource, &subresource)
                && has_name(values(&rule.resource_names), &text(&asked.name))
        }
        Request::Path(asked) => {
            let path = text(&asked.path);
            let urls = values(&rule.non_resource_urls);
            has(&rule.verbs, &text(&asked.verb)) && urls.iter().any(|url| covers_path(url, &path))
        }
    }
}

fn values(of: &Option<Vec<String>>) -> &[String] {
    of.as_deref().unwrap_or_default()
}

fn has(allowed: &[String], asked: &str) -> bool {
    allowed.iter().any(|one| one == ALL || one == asked)
}

fn has_resource(allowed: &[String], resource: &str, subresource: &str) -> bool {
    let whole = match subresource {
        "" => resource.to_owned(),
        subresource => format!("{resource}/{subresource}"),
    };
    let is_of_all = |one: &str| {
        !subresource.is_empty() && one.strip_prefix("*/").is_some_and(|name| name == subresource)
    };
    allowed.iter().any(|one| one == ALL || *one == whole || is_of_all(one))
}

fn has_name(allowed: &[String], name: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|one| one == name)
}

/// Whether an allowed path is this one, or ends with a star and begins as this one does.
fn covers_path(allowed: &str, path: &str) -> bool {
    let begins = || path.starts_with(allowed.trim_end_matches('*'));
    allowed == path || (allowed.ends_with('*') && begins())
}

/// One verb on one resource, with one name at most, or on one path: what rules are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Right {
    Resource { group: String, resource: String, verb: String, name: Option<String> },
    Path { url: String, verb: String },
}

/// How many rights are looked at: a role may have as many as the product of its lists.
const MOST_RIGHTS: usize = 100_000;

/// What some rules allow and others do not, as kube-apiserver describes it: one line for each resource, in order. `None` if
/// nothing is missing.
pub(super) fn missing(held: &[PolicyRule], granted: &[PolicyRule]) -> Option<String> {
    let rights: usize = granted.iter().map(count).fold(0, usize::saturating_add);
    if rights > MOST_RIGHTS {
        return Some(format!("{rights} rights at once, of which {MOST_RIGHTS} can be compared"));
    }
    let missing = granted.iter().flat_map(rights_of);
    let missing: Vec<Right> =
        missing.filter(|right| !held.iter().any(|rule| covers(rule, right))).collect();
    if missing.is_empty() { None } else { Some(described(missing)) }
}

fn count(rule: &PolicyRule) -> usize {
    let length = |of: &Option<Vec<String>>| values(of).len();
    let resources = length(&rule.api_groups)
        .saturating_mul(length(&rule.resources))
        .saturating_mul(length(&rule.resource_names).max(1));
    resources.saturating_add(length(&rule.non_resource_urls)).saturating_mul(rule.verbs.len())
}

fn rights_of(rule: &PolicyRule) -> Vec<Right> {
    let mut rights = Vec::new();
    let names = values(&rule.resource_names);
    for group in values(&rule.api_groups) {
        for resource in values(&rule.resources) {
            for verb in &rule.verbs {
                let right = |name: Option<&String>| Right::Resource {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    name: name.cloned(),
                };
                match names {
                    [] => rights.push(right(None)),
                    names => rights.extend(names.iter().map(|name| right(Some(name)))),
                }
            }
        }
    }
    for url in values(&rule.non_resource_urls) {
        let of_path = rule.verbs.iter().map(|verb| (url.clone(), verb.clone()));
        rights.extend(of_path.map(|(url, verb)| Right::Path { url, verb }));
    }
    rights
}

fn covers(rule: &PolicyRule, right: &Right) -> bool {
    match right {
        Right::Resource { group, resource, verb, name } => {
            let is_of_all = || {
                let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
                let all = subresource.map(|subresource| format!("*/{subresource}"));
                all.is_some_and(|all| values(&rule.resources).contains(&all))
            };
            let names = values(&rule.resource_names);
            let has_name = match name {
                None => names.is_empty(),
                Some(name) => has_name(names, name),
            };
            has(&rule.verbs, verb)
                && has(values(&rule.api_groups), group)
                && (has(values(&rule.resources), resource) || is_of_all())
                && has_name
        }
        Right::Path { url, verb } => {
            // A rule for names is none for paths.
            let is_for_paths = values(&rule.resource_names).is_empty();
            let urls = values(&rule.non_resource_urls);
            is_for_paths
                && has(&rule.verbs, verb)
                && urls.iter().any(|allowed| covers_path(allowed, url))
        }
    }
}

/// Verbs on the same resource are told together.
fn described(missing: Vec<Right>) -> String {
    let mut together: Vec<(Right, Vec<String>)> = Vec::new();
    for mut right in missing {
        let can_join = matches!(right, Right::Resource { name: None, .. });
        let verb = match &mut right {
            Right::Resource { verb, .. } | Right::Path { verb, .. } => std::mem::take(verb),
        };
        match together.iter_mut().find(|(other, _)| can_join && *other == right) {
            Some((_, verbs)) => verbs.push(verb),
            None => together.push((right, vec![verb])),
        }
    }
    let lines: BTreeSet<String> =
        together.iter().map(|(right, verbs)| line(right, verbs)).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn line(right: &Right, verbs: &[String]) -> String {
    let listed = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[{}]", quoted.join(" "))
    };
    let one = |value: &String| listed(std::slice::from_ref(value));
    let verbs = listed(verbs);
    match right {
        Right::Resource { group, resource, name, .. } => {
            let (group, resource) = (one(group), one(resource));
            let name = name.as_ref().map(|name| format!(", ResourceNames:{}", one(name)));
            let name = name.unwrap_or_default();
            format!("{{APIGroups:{group}, Resources:{resource}{name}, Verbs:{verbs}}}")
        }
        Right::Path { url, .. } => {
            format!("{{NonResourceURLs:{}, Verbs:{verbs}}}", one(url))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    fn asks(verb: &str, resource: &str, name: &str) -> ResourceAttributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        object(json!({
            "verb": verb, "resource": resource, "subresource": subresource, "name": name,
        }))
    }

    fn is_allowed(rule: Value, asked: &ResourceAttributes) -> bool {
        allows(&object(rule), Request::Resource(asked))
    }

    #[test]
    fn resources() {
        let rule =
            |resources: Value| json!({"apiGroups": [""], "resources": resources, "verbs": ["get"]});
        for (resources, asked, expected) in [
            (json!(["pods"]), "pods", true),
            (json!(["pods"]), "pods/log", false),
            (json!(["pods/log"]), "pods/log", true),
            (json!(["pods/log"]), "pods", false),
            (json!(["*/log"]), "pods/log", true),
            (json!(["*/log"]), "pods/status", false),
            (json!(["*/log"]), "log", false),
            (json!(["*"]), "pods/log", true),
            (json!([]), "pods", false),
        ] {
            assert_eq!(
                is_allowed(rule(resources.clone()), &asks("get", asked, "")),
                expected,
                "{resources} {asked}"
            );
        }
        assert!(!is_allowed(rule(json!(["*"])), &asks("list", "pods", "")));
        let of_apps =
            ResourceAttributes { group: Some("apps".to_owned()), ..asks("get", "pods", "") };
        assert!(!is_allowed(rule(json!(["*"])), &of_apps));
        let named =
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"]});
        assert!(is_allowed(named.clone(), &asks("get", "pods", "a")));
        assert!(!is_allowed(named.clone(), &asks("get", "pods", "b")));
        assert!(!is_allowed(named, &asks("list", "pods", "")));
    }

    #[test]
    fn paths() {
        let rule = |url: &str| object(json!({"nonResourceURLs": [url], "verbs": ["get"]}));
        for (url, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/a", false),
            ("/healthz/*", "/healthz/a", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/anything", true),
        ] {
            let asked = object(json!({"path": path, "verb": "get"}));
            assert_eq!(allows(&rule(url), Request::Path(&asked)), expected, "{url} {path}");
        }
        let asked = object(json!({"path": "/healthz", "verb": "post"}));
        assert!(!allows(&rule("/healthz"), Request::Path(&asked)));
        assert!(!allows(&rule("*"), Request::Resource(&asks("get", "pods", ""))));
    }

    #[test]
    fn what_is_not_held_is_told() {
        let rules = |rules: Value| -> Vec<PolicyRule> { serde_json::from_value(rules).unwrap() };
        let held = rules(json!([
            {"apiGroups": [""], "resources": ["pods", "*/log"], "verbs": ["get", "list"]},
            {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"]},
            {"nonResourceURLs": ["/a/*"], "verbs": ["get"]},
        ]));
        for (granted, expected) in [
            (
                json!([{"apiGroups": [""], "resources": ["pods", "nodes/log"], "verbs": ["list"]}]),
                None,
            ),
            (
                json!([{"apiGroups": ["apps"], "resources": ["b"], "verbs": ["get"], "resourceNames": ["a"]}]),
                None,
            ),
            (json!([{"nonResourceURLs": ["/a/b", "/a/*"], "verbs": ["get"]}]), None),
            (
                json!([{"apiGroups": ["", "x"], "resources": ["pods"], "verbs": ["watch", "get", "delete"]}]),
                Some(
                    "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\" \"delete\"]}\n{APIGroups:[\"x\"], Resources:[\"pods\"], Verbs:[\"watch\" \"get\" \"delete\"]}",
                ),
            ),
            (
                json!([{"apiGroups": ["apps"], "resources": ["b"], "verbs": ["get"], "resourceNames": ["a", "b"]}, {"nonResourceURLs": ["/a", "*"], "verbs": ["get"]}]),
                Some(
                    "{APIGroups:[\"apps\"], Resources:[\"b\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}",
                ),
            ),
            (
                json!([{"apiGroups": ["apps"], "resources": ["b"], "verbs": ["get"]}]),
                Some("{APIGroups:[\"apps\"], Resources:[\"b\"], Verbs:[\"get\"]}"),
            ),
        ] {
            assert_eq!(missing(&held, &rules(granted.clone())).as_deref(), expected, "{granted}");
        }
        // A product that nobody can hold.
        let many: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let granted = rules(json!([{"apiGroups": many, "resources": many, "verbs": many}]));
        assert!(missing(&held, &granted).unwrap().starts_with("8000000000 rights"));
    }
}
