//! The APIServices and the permissions of group versions whose paths code of the user handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::definition::Kinds;
use crate::kind::{Kind, compare_versions};
use crate::paths::{GroupVersion, Pattern};
use crate::subresource::Subresource;
use crate::verb::Verb;

/// The names of the APIServices, for example `v1beta2.custom.metrics.k8s.io`.
pub(super) fn names(kinds: &Kinds) -> impl Iterator<Item = String> {
    kinds.own_group_versions().iter().map(|one| format!("{}.{}", one.version(), one.group()))
}

/// The group versions, each with the number of versions of its group that precede it.
pub(super) fn ordered(kinds: &Kinds) -> Vec<(&GroupVersion, usize)> {
    let all = kinds.own_group_versions().iter();
    let precedes = |one: &GroupVersion, other: &GroupVersion| {
        one.group() == other.group() && compare_versions(one.version(), other.version()).is_lt()
    };
    let index =
        |one| kinds.own_group_versions().iter().filter(|other| precedes(other, one)).count();
    all.map(|one| (&**one, index(one))).collect()
}

/// Adds the rules of readers and of writers in a namespace, by group.
pub(super) fn add_rules<'a>(
    parsed: &[Arc<Kind>],
    kinds: &'a Kinds,
    rules: &mut BTreeMap<&'a str, [Vec<Value>; 2]>,
) {
    for (described, pattern, handlers) in namespaced(kinds) {
        let of_group = rules.entry(described.group()).or_default();
        let resource = resource(&pattern);
        if grants_too_much(&resource, described.group(), parsed, kinds) {
            continue;
        }
        let of_path = [true, false].map(|is_read| {
            let verbs = verbs(&pattern, handlers, is_read);
            (!verbs.is_empty()).then(|| {
                json!({
                    "apiGroups": [described.group()],
                    "resources": [resource],
                    "verbs": verbs,
                })
            })
        });
        for (known, rule) in of_group.iter_mut().zip(of_path) {
            known.extend(rule.filter(|rule| !known.contains(rule)));
        }
    }
}

/// Comments about the paths that no role grants.
pub(super) fn comments(parsed: &[Arc<Kind>], kinds: &Kinds) -> Vec<String> {
    let left_out = namespaced(kinds).filter(|(described, pattern, _)| {
        grants_too_much(&resource(pattern), described.group(), parsed, kinds)
    });
    let comment = |(described, pattern, _): (&GroupVersion, Pattern, _)| {
        let text = pattern.text();
        format!(
            "No role grants {text} of {described}, because \"*\" would also grant the kinds, connections and proxies of the group."
        )
    };
    left_out.map(comment).collect()
}

/// The patterns in namespaces. Users with access to a namespace get no permissions on other paths.
fn namespaced(kinds: &Kinds) -> impl Iterator<Item = (&GroupVersion, Pattern, &Arc<Subresource>)> {
    let paths = kinds.own_group_versions().iter().flat_map(|described| {
        described.paths().filter_map(|(text, handlers)| {
            Some((&**described, Pattern::parse(text).ok()?, handlers))
        })
    });
    paths.filter(|(_, pattern, _)| pattern.is_namespaced())
}

/// Whether a rule for all resources of a group would also grant its kinds, or connections and proxies, which a reader
/// opens with GET.
fn grants_too_much(resource: &str, group: &str, parsed: &[Arc<Kind>], kinds: &Kinds) -> bool {
    let of_group = kinds.own_group_versions().iter().filter(|one| one.group() == group);
    let mut handlers = of_group.flat_map(|one| one.paths().map(|(_, handlers)| handlers));
    resource == "*"
        && (parsed.iter().any(|kind| kind.group == group)
            || handlers.any(|handlers| handlers.is_connected()))
}

/// The resource of a rule. RBAC has no patterns, so a parameter stands for all resources.
fn resource(pattern: &Pattern) -> String {
    let is_parameter = |segment: &str| segment.starts_with('{');
    match (pattern.resource(), pattern.subresource()) {
        (_, subresource) if is_parameter(subresource) => "*".to_owned(),
        (resource, "") if is_parameter(resource) => "*".to_owned(),
        (resource, subresource) if is_parameter(resource) => format!("*/{subresource}"),
        (resource, "") => resource.to_owned(),
        (resource, subresource) => format!("{resource}/{subresource}"),
    }
}

/// The verbs of the methods that read, or of the other methods.
fn verbs(pattern: &Pattern, handlers: &Subresource, is_read: bool) -> Vec<&'static str> {
    let methods = handlers.methods().filter(|method| handlers.is_read(method) == is_read);
    let verb = |verb| match verb {
        Verb::Get if !pattern.has_name() => Verb::List.name(),
        Verb::Delete if !pattern.has_name() => Verb::DeleteCollection.name(),
        verb => verb.name(),
    };
    methods.filter_map(Verb::of_method).map(verb).collect()
}
