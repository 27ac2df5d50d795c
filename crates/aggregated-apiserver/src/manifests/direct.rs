//! The permissions on direct kinds.

use serde_json::{Value, json};

use crate::backend::Writes;
use crate::verb::of_direct;

/// The permissions of readers and of writers on a direct kind: exactly its verbs.
pub(super) fn rules(group: &str, plural: &str, writes: Writes) -> [Option<Value>; 2] {
    let mut verbs: Vec<&str> = of_direct(writes).iter().map(|verb| verb.name()).collect();
    verbs.sort_unstable();
    let (read, written): (Vec<&str>, Vec<&str>) =
        verbs.into_iter().partition(|verb| ["get", "list"].contains(verb));
    [read, written].map(|verbs| {
        let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": verbs});
        (!verbs.is_empty()).then_some(rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_exactly_the_verbs_of_direct_kinds() {
        let rule = |verbs: &[&str]| {
            Some(json!({"apiGroups": ["example.com"], "resources": ["foos"], "verbs": verbs}))
        };
        let read = rule(&["get", "list"]);
        let none = Writes::default();
        assert_eq!(rules("example.com", "foos", none), [read.clone(), None]);
        for (writes, verbs) in [
            (Writes { create: true, ..none }, &["create"][..]),
            (Writes { update: true, ..none }, &["patch", "update"]),
            (Writes { delete: true, ..none }, &["delete", "deletecollection"]),
        ] {
            assert_eq!(rules("example.com", "foos", writes), [read.clone(), rule(verbs)]);
        }
    }
}
