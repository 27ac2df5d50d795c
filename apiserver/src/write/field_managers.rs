//! Field managers: who owns which fields of an object.
//!
//! Nothing is kept of it yet: what clients say in `managedFields` is dropped.

use super::attributes::Attributes;
use super::draft::Draft;
use crate::error::is_printed;
use crate::object::{Tree, metadata};

/// Notes which fields the manager of a write owns from now on. It is told before mutating
/// admission, because what plugins change is not the client's.
pub(super) fn track(attributes: &Attributes<'_>, draft: &mut Draft) {
    let manager = &attributes.options.field_manager;
    tracing::trace!("what {manager} owns is not kept");
    keep_none(&mut draft.tree);
}

/// Drops what an object says of its managers.
pub(super) fn keep_none(tree: &mut Tree) {
    if metadata::of(tree).contains_key("managedFields") {
        metadata::edit(tree, |metadata| drop(metadata.remove("managedFields")));
    }
}

/// Names of field managers are at most this long, in bytes; as kube-apiserver.
const LENGTH_LIMIT: usize = 128;

/// The manager of a client that does not name one: the beginning of its User-Agent, as far
/// as it can be printed.
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for character in product.chars().filter(|character| is_printed(*character)) {
        if manager.len() + character.len_utf8() > LENGTH_LIMIT {
            break;
        }
        manager.push(character);
    }
    manager
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_a_manager() {
        for (user_agent, expected) in [
            ("kubectl/v1.36.0 (linux/amd64) kubernetes/abc", "kubectl"),
            ("kube-rs", "kube-rs"),
            ("", ""),
            ("/v1", ""),
            ("a\tb\u{7f}c d/1", "abc d"),
        ] {
            assert_eq!(manager_of_user_agent(user_agent), expected, "{user_agent}");
        }
        assert_eq!(manager_of_user_agent(&"a".repeat(200)).len(), LENGTH_LIMIT);
        // No character is cut in two.
        assert_eq!(manager_of_user_agent(&"é".repeat(200)).len(), LENGTH_LIMIT);
        assert_eq!(manager_of_user_agent(&format!("a{}", "é".repeat(200))).len(), 127);
    }
}
