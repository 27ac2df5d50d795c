//! Field selectors: `metadata.name=dolly,metadata.namespace!=default`.

use std::collections::HashSet;
use std::sync::Arc;

use super::selectable::Selected;
use super::{SelectableFields, TERM, check_count, check_written};
use crate::object::Object;

/// The fields that select objects of every kind.
const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// The comparison in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FieldOperator {
    // `=` and `==`.
    Equals,
    // `!=`.
    NotEquals,
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FieldRequirement {
    key: String,
    operator: FieldOperator,
    value: String,
}

/// Terms that must all hold. Equal terms are stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Arc<[FieldRequirement]>);

impl FieldSelector {
    /// Parses a field selector.
    ///
    /// # Errors
    /// If the selector is invalid, with kube-apiserver's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_written(text)?;
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (key, operator, value) = split_term(term)
                .ok_or_else(|| format!("invalid selector: '{term}'; can't understand '{term}'"))?;
            let (key, value) = (key.to_owned(), unescape(value)?);
            requirements.push(FieldRequirement { key, operator, value });
        }
        let mut known = HashSet::new();
        requirements.retain(|term| known.insert(term.clone()));
        check_count(requirements.len())?;
        Ok(Self(requirements.into()))
    }

    /// The approximate memory of the selector, in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|term| 2 * TERM + term.key.len() + term.value.len()).sum()
    }

    /// Rejects fields that the kind does not support. Every kind supports its name and, if it is namespaced, its
    /// namespace; `fields` are the further fields that it supports.
    ///
    /// # Errors
    /// With kube-apiserver's message.
    pub fn check(&self, namespaced: bool, fields: &SelectableFields) -> Result<(), String> {
        let is_known =
            |key: &str| key == NAME || (namespaced && key == NAMESPACE) || fields.has(key);
        match self.0.iter().find(|requirement| !is_known(&requirement.key)) {
            Some(FieldRequirement { key, .. }) if fields.tells() => Err(format!(
                "\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )),
            Some(FieldRequirement { key, .. }) => Err(format!("field label not supported: {key}")),
            None => Ok(()),
        }
    }

    /// Whether a term uses a field other than the name and the namespace.
    pub fn needs_content(&self) -> bool {
        self.0.iter().any(|requirement| ![NAME, NAMESPACE].contains(&requirement.key.as_str()))
    }

    /// Whether the object matches every term. `fields` are the selectable fields of the version.
    pub fn matches(&self, object: &Object, fields: &SelectableFields) -> bool {
        self.0.iter().all(|requirement| {
            let is_equal = match requirement.key.as_str() {
                NAME => object.key().name() == requirement.value,
                NAMESPACE => object.key().namespace().unwrap_or_default() == requirement.value,
                other => fields.is(object, other, &Selected::of(&requirement.value)),
            };
            is_equal == (requirement.operator == FieldOperator::Equals)
        })
    }

    /// Whether the selector has no terms.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the term `metadata.name=<name>`.
    pub fn require_name(&mut self, name: &str) {
        let (key, value) = (NAME.to_owned(), name.to_owned());
        let term = FieldRequirement { key, operator: FieldOperator::Equals, value };
        self.0 = self.0.iter().cloned().chain([term]).collect();
    }

    /// The only name that can match, if a term requires a name.
    pub fn name(&self) -> Option<&str> {
        self.required(NAME)
    }

    /// The only namespace that can match, if a term requires a namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.required(NAMESPACE)
    }

    fn required(&self, key: &str) -> Option<&str> {
        let required =
            |one: &&FieldRequirement| one.key == key && one.operator == FieldOperator::Equals;
        self.0.iter().find(required).map(|one| one.value.as_str())
    }
}

/// Splits a selector at the commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a term at its first operator.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    const OPERATORS: [(&str, FieldOperator); 3] = [
        ("!=", FieldOperator::NotEquals),
        ("==", FieldOperator::Equals),
        ("=", FieldOperator::Equals),
    ];
    term.char_indices().find_map(|(index, _)| {
        let rest = &term[index..];
        OPERATORS.iter().find_map(|&(sign, operator)| {
            rest.strip_prefix(sign).map(|value| (&term[..index], operator, value))
        })
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
            },
            ',' | '=' => {
                let rune = character as u32;
                return Err(format!(
                    "invalid field selector: unescaped character in value: {rune}"
                ));
            }
            plain_one => plain.push(plain_one),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(selector: &str, expected: Result<bool, &str>) {
        let tree = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u"},
            "spec": {"size": 5, "on": true, "long": "x".repeat(100)},
        });
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let fields = SelectableFields::new(["spec.size", "spec.on", "spec.text", "spec.long"]);
        let outcome = FieldSelector::parse(selector).and_then(|parsed| {
            parsed.check(true, &fields)?;
            Ok(parsed.matches(&object, &fields))
        });
        assert_eq!(outcome, expected.map_err(String::from), "{selector}");
    }

    #[test]
    fn rows() {
        check("", Ok(true));
        check("metadata.name=a", Ok(true));
        check("metadata.name==a,metadata.namespace!=m", Ok(true));
        check("metadata.name=b", Ok(false));
        check(",metadata.name=a,", Ok(true));
        check("metadata.name=a\\,b", Ok(false));
        check("spec.size=5,spec.on=true,spec.text=", Ok(true));
        check("spec.size!=5", Ok(false));
        check(&format!("spec.long={}", "x".repeat(100)), Ok(true));
        check(&format!("spec.long={}y", "x".repeat(99)), Ok(false));
        check("spec.text!=x", Ok(true));
        check("x", Err("invalid selector: 'x'; can't understand 'x'"));
        check("spec.other=1", Err("field label not supported: spec.other"));
        check("metadata.name=a\\x", Err("invalid field selector: invalid escape sequence: \\x"));
        check("metadata.name=a=b", Err("invalid field selector: unescaped character in value: 61"));
    }

    #[test]
    fn a_cluster_scoped_kind_has_no_namespace() {
        let selector = FieldSelector::parse("metadata.namespace=a").unwrap();
        let error = selector.check(false, &SelectableFields::default()).unwrap_err();
        assert_eq!(error, "field label not supported: metadata.namespace");
    }
}
