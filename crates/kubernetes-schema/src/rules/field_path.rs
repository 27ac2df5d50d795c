//! The `fieldPath` of a rule: the field that an error of the rule refers to.

use serde_json::{Map, Value};

use super::declared::child;

/// Returns the path in the format of messages, relative to the field of the rule: `a.b`, `[key]`. Returns `None` if the
/// schema does not declare the path.
pub(super) fn normalized(path: &str, schema: &Map<String, Value>) -> Option<String> {
    let mut schema = schema;
    let mut shown = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
                let end = if end == 0 { rest.len().min(1) } else { end };
                (rest[..end].to_owned(), &rest[end..])
            }
            None => quoted(rest.strip_prefix('[')?)?,
        };
        if name.is_empty() {
            return None;
        }
        schema = match (child(schema, "properties"), child(schema, "additionalProperties")) {
            (Some(properties), _) => {
                if !shown.is_empty() {
                    shown.push('.');
                }
                shown.push_str(&name);
                properties.get(&name)?.as_object()?
            }
            (None, Some(values)) => {
                shown.push_str(&format!("[{name}]"));
                values
            }
            (None, None) => return None,
        };
        rest = after;
    }
    Some(shown)
}

/// Parses a name in quotation marks. Also returns the text after the closing bracket.
fn quoted(rest: &str) -> Option<(String, &str)> {
    let mut chars = rest.strip_prefix('\'')?.char_indices();
    let mut name = String::new();
    loop {
        match chars.next()?.1 {
            '\'' => break,
            '\\' => name.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            }),
            char => name.push(char),
        }
    }
    Some((name, chars.as_str().strip_prefix(']')?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::normalized;

    #[test]
    fn paths_lead_through_the_schema() {
        let schema = json!({"properties": {
            "a": {"properties": {"b-c": {}, "d'e": {}}},
            "m": {"additionalProperties": {"properties": {"x": {}}}},
        }});
        let schema = schema.as_object().unwrap();
        for (path, expected) in [
            (".a", Some("a")),
            (".a.b-c", Some("a.b-c")),
            (".a['b-c']", Some("a.b-c")),
            (".a['d\\'e']", Some("a.d'e")),
            (".m['k'].x", Some("m[k].x")),
            (".m.k", Some("m[k]")),
            (".z", None),
            ("a", None),
            (".a[0]", None),
            (".a['b-c'", None),
            (".", None),
        ] {
            assert_eq!(normalized(path, schema).as_deref(), expected, "{path}");
        }
    }
}
