//! The evaluation of the rules of roles: whether a rule allows a request, and which permissions rules lack.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::auth::Attributes;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The wildcard of groups, resources and verbs.
const ALL: &str = "*";

/// The namespace of a request; empty for a request across all namespaces.
pub(super) fn namespace(request: &Attributes) -> &str {
    match request {
        Attributes::Resource { namespace, .. } => namespace,
        Attributes::Path { .. } => "",
    }
}

/// Whether a rule allows a request.
pub(super) fn allows(rule: &PolicyRule, request: &Attributes) -> bool {
    match request {
        Attributes::Resource { verb, group, resource, subresource, name, .. } => {
            has(&rule.verbs, verb)
                && has(values(&rule.api_groups), group)
                && has_resource(values(&rule.resources), resource, subresource)
                && has_name(values(&rule.resource_names), name)
        }
        Attributes::Path { verb, path, .. } => {
            let urls = values(&rule.non_resource_urls);
            has(&rule.verbs, verb) && urls.iter().any(|url| covers_path(url, path))
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
    let is_of = |one: &str, resource: &str| {
        let rest = one.strip_prefix(resource);
        rest.and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
    };
    // A SubjectAccessReview may have `pods/exec` as `resource` and no `subresource`.
    let is_it = |one: &str| match subresource {
        "" => one == resource,
        _ => is_of(one, resource) || is_of(one, ALL),
    };
    allowed.iter().any(|one| one == ALL || is_it(one))
}

fn has_name(allowed: &[String], name: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|one| one == name)
}

/// Whether an allowed path equals this path, or is a prefix of it before a final `*`.
fn covers_path(allowed: &str, path: &str) -> bool {
    let begins = || path.starts_with(allowed.trim_end_matches('*'));
    allowed == path || (allowed.ends_with('*') && begins())
}

/// A single permission of a rule: one verb on one resource, with at most one name, or on one path.
#[derive(Clone, Copy, Debug)]
enum Right<'a> {
    Resource { group: &'a str, resource: &'a str, verb: &'a str, name: Option<&'a str> },
    Path { url: &'a str, verb: &'a str },
}

/// The largest number of string comparisons for finding missing permissions. A role may have as many permissions as the
/// product of the lengths of its lists.
const MOST_COMPARISONS: usize = 20_000_000;
/// The largest size of a message about missing permissions, in bytes.
const LONGEST: usize = 32 << 10;

/// The permissions of `granted` that `held` does not include, in the format of kube-apiserver: one line for each resource,
/// in order. `None` if none is missing.
pub(super) fn not_held(held: &[&PolicyRule], granted: &[PolicyRule]) -> Option<String> {
    let mut missing = Missing::default();
    let mut comparisons = 0_usize;
    let of_held: usize = held.iter().map(|rule| length(rule)).sum::<usize>().max(1);
    for rule in granted {
        for right in rights_of(rule) {
            // A comparison of long strings takes longer.
            let cost = of_held.saturating_mul(1 + right.length() / 64);
            comparisons = comparisons.saturating_add(cost);
            if comparisons > MOST_COMPARISONS {
                return Some("more than can be compared with what is held".to_owned());
            }
            if !held.iter().any(|rule| covers(rule, right)) {
                missing.add(right);
            }
        }
    }
    missing.described()
}

/// The permissions of `expected` that `rules` do not cover: one rule for each, in order.
pub(super) fn uncovered(rules: &[PolicyRule], expected: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_uncovered = |right: &Right<'_>| !rules.iter().any(|rule| covers(rule, *right));
    expected.iter().flat_map(rights_of).filter(is_uncovered).map(Right::to_rule).collect()
}

/// The number of strings in a rule.
fn length(rule: &PolicyRule) -> usize {
    let lists = [&rule.api_groups, &rule.resources, &rule.resource_names, &rule.non_resource_urls];
    rule.verbs.len() + lists.iter().map(|list| values(list).len()).sum::<usize>()
}

fn rights_of(rule: &PolicyRule) -> impl Iterator<Item = Right<'_>> {
    let names = values(&rule.resource_names);
    let count = names.len().max(1);
    let of_resources = values(&rule.api_groups).iter().flat_map(move |group| {
        values(&rule.resources).iter().flat_map(move |resource| {
            rule.verbs.iter().flat_map(move |verb| {
                (0..count).map(move |place| Right::Resource {
                    group,
                    resource,
                    verb,
                    name: names.get(place).map(String::as_str),
                })
            })
        })
    });
    let of_paths = values(&rule.non_resource_urls)
        .iter()
        .flat_map(|url| rule.verbs.iter().map(move |verb| Right::Path { url, verb }));
    of_resources.chain(of_paths)
}

impl Right<'_> {
    fn to_rule(self) -> PolicyRule {
        let one = |value: &str| Some(vec![value.to_owned()]);
        match self {
            Self::Resource { group, resource, verb, name } => PolicyRule {
                api_groups: one(group),
                resources: one(resource),
                resource_names: name.and_then(one),
                verbs: vec![verb.to_owned()],
                ..PolicyRule::default()
            },
            Self::Path { url, verb } => PolicyRule {
                non_resource_urls: one(url),
                verbs: vec![verb.to_owned()],
                ..PolicyRule::default()
            },
        }
    }

    fn length(self) -> usize {
        match self {
            Self::Resource { group, resource, verb, name } => {
                group.len() + resource.len() + verb.len() + name.map_or(0, str::len)
            }
            Self::Path { url, verb } => url.len() + verb.len(),
        }
    }
}

fn covers(rule: &PolicyRule, right: Right<'_>) -> bool {
    let names = values(&rule.resource_names);
    match right {
        Right::Resource { group, resource, verb, name } => {
            let is_of_all = |one: &String| {
                let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
                subresource.is_some_and(|subresource| one.strip_prefix("*/") == Some(subresource))
            };
            let resources = values(&rule.resources);
            let has_name = match name {
                None => names.is_empty(),
                Some(name) => has_name(names, name),
            };
            has(&rule.verbs, verb)
                && has(values(&rule.api_groups), group)
                && (has(resources, resource) || resources.iter().any(is_of_all))
                && has_name
        }
        Right::Path { url, verb } => {
            let urls = values(&rule.non_resource_urls);
            // A rule with resource names allows no paths.
            names.is_empty()
                && has(&rule.verbs, verb)
                && urls.iter().any(|allowed| covers_path(allowed, url))
        }
    }
}

/// Missing permissions: the message lists the verbs on a resource together.
#[derive(Default)]
struct Missing<'a> {
    of_resources: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    others: Vec<Right<'a>>,
    bytes: usize,
    /// Whether the message omits some of them.
    has_more: bool,
}

impl<'a> Missing<'a> {
    fn add(&mut self, right: Right<'a>) {
        if self.bytes + right.length() > LONGEST {
            self.has_more = true;
            return;
        }
        self.bytes += right.length();
        match right {
            Right::Resource { group, resource, verb, name: None } => {
                self.of_resources.entry((group, resource)).or_default().push(verb);
            }
            other => self.others.push(other),
        }
    }

    fn described(self) -> Option<String> {
        let together = self
            .of_resources
            .into_iter()
            .map(|((group, resource), verbs)| line_of_resource(group, resource, None, &verbs));
        let alone = self.others.into_iter().map(|right| match right {
            Right::Resource { group, resource, verb, name } => {
                line_of_resource(group, resource, name, &[verb])
            }
            Right::Path { url, verb } => {
                format!("{{NonResourceURLs:{}, Verbs:{}}}", listed(&[url]), listed(&[verb]))
            }
        });
        let mut lines: BTreeSet<String> = together.chain(alone).collect();
        if self.has_more {
            // The line sorts after the other lines, which start with a brace.
            lines.insert("~ and more".to_owned());
        }
        let lines: Vec<String> = lines.into_iter().collect();
        Some(lines.join("\n")).filter(|lines| !lines.is_empty())
    }
}

fn line_of_resource(group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) -> String {
    let (group, resource, verbs) = (listed(&[group]), listed(&[resource]), listed(verbs));
    let name = name.map(|name| format!(", ResourceNames:{}", listed(&[name])));
    let name = name.unwrap_or_default();
    format!("{{APIGroups:{group}, Resources:{resource}{name}, Verbs:{verbs}}}")
}

fn listed(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
    use serde_json::{Value, json};

    fn asks(verb: &str, resource: &str, name: &str) -> ResourceAttributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        object(json!({
            "verb": verb, "resource": resource, "subresource": subresource, "name": name,
        }))
    }

    fn is_allowed(rule: Value, asked: &ResourceAttributes) -> bool {
        allows(&object(rule), &asked.into())
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
            let asked: NonResourceAttributes = object(json!({"path": path, "verb": "get"}));
            assert_eq!(allows(&rule(url), &Attributes::from(&asked)), expected, "{url} {path}");
        }
        let asked: NonResourceAttributes = object(json!({"path": "/healthz", "verb": "post"}));
        assert!(!allows(&rule("/healthz"), &Attributes::from(&asked)));
        assert!(!allows(&rule("*"), &Attributes::from(&asks("get", "pods", ""))));
    }

    #[test]
    fn permissions_that_the_granting_user_lacks_are_reported() {
        let rules = |rules: Value| -> Vec<PolicyRule> { serde_json::from_value(rules).unwrap() };
        let all = rules(json!([
            {"apiGroups": [""], "resources": ["pods", "*/log"], "verbs": ["get", "list"]},
            {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"]},
            {"nonResourceURLs": ["/a/*"], "verbs": ["get"]},
        ]));
        let held: Vec<&PolicyRule> = all.iter().collect();
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
            let told = not_held(&held, &rules(granted.clone()));
            assert_eq!(told.as_deref(), expected, "{granted}");
        }
        // Lists whose product is too large, and strings that are too long for the message.
        let many: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let long = "x".repeat(1 << 20);
        for (groups, resources) in [(&many, &many), (&vec![long], &many)] {
            let granted = json!([{"apiGroups": groups, "resources": resources, "verbs": many}]);
            let told = not_held(&held, &rules(granted)).unwrap();
            assert_eq!(told, "more than can be compared with what is held");
        }
        let granted = rules(
            json!([{"apiGroups": ["x"], "resources": many, "verbs": ["a", "b", "c", "d", "e"]}]),
        );
        let told = not_held(&held, &granted).unwrap();
        assert!(told.len() < 8 * LONGEST && told.ends_with("\n~ and more"), "{}", told.len());
    }
}
