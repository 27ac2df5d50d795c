//! The APIServices and the permissions of group versions whose paths code of the user handles.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::definition::Kinds;
use crate::kind::compare_versions;
use crate::paths::{GroupVersion, Pattern};
use crate::subresource::Subresource;
use crate::verb::Verb;

/// The names of the APIServices, for example `v1beta2.custom.metrics.k8s.io`.
pub(super) fn names(kinds: &Kinds) -> impl Iterator<Item = String> {
    kinds.group_versions().iter().map(|one| format!("{}.{}", one.version(), one.group()))
}

/// The group versions, each with the number of versions of its group that precede it.
pub(super) fn ordered(kinds: &Kinds) -> Vec<(&GroupVersion, usize)> {
    let all = kinds.group_versions().iter();
    let precedes = |one: &GroupVersion, other: &GroupVersion| {
        one.group() == other.group() && compare_versions(one.version(), other.version()).is_lt()
    };
    let index = |one| kinds.group_versions().iter().filter(|other| precedes(other, one)).count();
    all.map(|one| (&**one, index(one))).collect()
}

/// Adds the rules of readers and of writers in a namespace, by group.
pub(super) fn add_rules<'a>(kinds: &'a Kinds, rules: &mut BTreeMap<&'a str, [Vec<Value>; 2]>) {
    for described in kinds.group_versions() {
        let of_group = rules.entry(described.group()).or_default();
        for (text, handlers) in described.paths() {
            let Ok(pattern) = Pattern::parse(text) else { continue };
            // Users with access to a namespace get no permissions on other paths.
            if !pattern.is_namespaced() {
                continue;
            }
            let of_path = [true, false].map(|is_read| {
                let verbs = verbs(&pattern, handlers, is_read);
                (!verbs.is_empty()).then(|| {
                    json!({
                        "apiGroups": [described.group()],
                        "resources": [resource(&pattern)],
                        "verbs": verbs,
                    })
                })
            });
            for (known, rule) in of_group.iter_mut().zip(of_path) {
                known.extend(rule.filter(|rule| !known.contains(rule)));
            }
        }
    }
}

/// The resource of a rule. RBAC has no patterns, so a parameter stands for all resources.
fn resource(pattern: &Pattern) -> String {
    let is_parameter = |segment: &str| segment.starts_with('{');
    match (pattern.resource(), pattern.subresource()) {
        (resource, subresource) if is_parameter(resource) || is_parameter(subresource) => {
            "*".to_owned()
        }
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
