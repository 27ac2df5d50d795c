//! Field selectors: `metadata.name=dolly,metadata.namespace!=default`.

use crate::object::Object;

/// A field that can be selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` and `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

/// One term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    field: Field,
    /// How it is compared.
    pub operator: FieldOperator,
    /// With what.
    pub value: String,
}

impl FieldRequirement {
    fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            Field::Name => object.key().name(),
            Field::Namespace => object.key().namespace().unwrap_or_default(),
        };
        (value == self.value) == (self.operator == FieldOperator::Equals)
    }
}

/// Terms that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

impl FieldSelector {
    /// Parses a selector for a kind.
    ///
    /// # Errors
    /// With kube-apiserver's text, when the selector cannot be read or asks
    /// for a field that this kind is not selected by.
    pub fn parse(text: &str, namespaced: bool) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (key, operator, value) = split_term(term)
                .ok_or_else(|| format!("invalid selector: '{term}'; can't understand '{term}'"))?;
            let value = unescape(value)?;
            let field = match key {
                "metadata.name" => Field::Name,
                "metadata.namespace" if namespaced => Field::Namespace,
                other => return Err(format!("field label not supported: {other}")),
            };
            requirements.push(FieldRequirement { field, operator, value });
        }
        Ok(Self(requirements))
    }

    /// Whether the object fulfils every term.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|requirement| requirement.matches(object))
    }

    /// Adds the term `metadata.name=<name>`.
    pub fn require_name(&mut self, name: &str) {
        let (field, operator) = (Field::Name, FieldOperator::Equals);
        self.0.push(FieldRequirement { field, operator, value: name.to_owned() });
    }

    /// The one name that can match, if a term says so.
    pub fn name(&self) -> Option<&str> {
        let named = |one: &&FieldRequirement| {
            one.field == Field::Name && one.operator == FieldOperator::Equals
        };
        self.0.iter().find(named).map(|one| one.value.as_str())
    }
}

/// Splits at commas that are not escaped.
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

/// Splits at the first operator.
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
        let tree = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let outcome = FieldSelector::parse(selector, true).map(|parsed| parsed.matches(&object));
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
        check("x", Err("invalid selector: 'x'; can't understand 'x'"));
        check("spec.size=1", Err("field label not supported: spec.size"));
        check("metadata.name=a\\x", Err("invalid field selector: invalid escape sequence: \\x"));
        check("metadata.name=a=b", Err("invalid field selector: unescaped character in value: 61"));
    }

    #[test]
    fn a_cluster_scoped_kind_has_no_namespace() {
        let error = FieldSelector::parse("metadata.namespace=a", false).unwrap_err();
        assert_eq!(error, "field label not supported: metadata.namespace");
    }
}
