//! What tables show: columns, each a JSONPath and a type, or computed by code.

use std::sync::Arc;

use jiff::Timestamp;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Number, Value};

use super::{ErasedCells, age};
use crate::error::quote;
use crate::object::to_html_json;

pub(super) const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    Boolean,
    Date,
    Integer,
    Number,
    String,
}

impl CellType {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "boolean" => Some(Self::Boolean),
            "date" => Some(Self::Date),
            "integer" => Some(Self::Integer),
            "number" => Some(Self::Number),
            "string" => Some(Self::String),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
        }
    }
}

/// One column besides the name.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// A hint on how to print it.
    pub format: String,
    /// What it says.
    pub description: String,
    /// Above 0: only `-o wide` shows it.
    pub priority: i32,
    cell_type: CellType,
    source: Source,
}

/// Where the cells of a column come from.
#[derive(Debug)]
enum Source {
    /// The first value at the path.
    Path(JpQuery),
    /// The value at this position of what code computes, as the type of the
    /// column prints it.
    Code(usize),
    /// The same, as it is.
    CodeAsItIs(usize),
}

impl Column {
    /// The type of its cells, on the wire.
    pub fn type_name(&self) -> &'static str {
        self.cell_type.name()
    }

    /// Its cell for an object, as its type prints the value.
    fn cell(&self, object: &Value, computed: &[Value], now: Timestamp) -> Value {
        match &self.source {
            Source::Path(path) => {
                let found = js_path_process(path, object).unwrap_or_default();
                let first = found.into_iter().next();
                first.map_or(Value::Null, |found| self.print(found.val(), now))
            }
            Source::CodeAsItIs(position) => computed.get(*position).cloned().unwrap_or_default(),
            // Nothing computed is no value, and not one that is null.
            Source::Code(position) => match computed.get(*position) {
                None | Some(Value::Null) => Value::Null,
                Some(value) => self.print(value, now),
            },
        }
    }

    fn print(&self, value: &Value, now: Timestamp) -> Value {
        match self.cell_type {
            CellType::String => Value::String(to_text(value)),
            CellType::Boolean if value.is_boolean() => value.clone(),
            CellType::Number => value.as_f64().map_or(Value::Null, Value::from),
            CellType::Integer => to_integer(value).map_or(Value::Null, Value::from),
            CellType::Date => match value {
                Value::String(text) => Value::String(age::of_text(text, now)),
                _ => Value::Null,
            },
            CellType::Boolean => Value::Null,
        }
    }
}

/// The columns of a version. Where a definition names none: the age.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    cells: Option<Arc<ErasedCells>>,
}

impl Columns {
    /// Parses the columns of the version at `path`; what cannot be read is left
    /// out. The cells of some may be computed by code.
    pub(super) fn parse(
        definitions: &[CustomResourceColumnDefinition],
        cells: Option<Arc<ErasedCells>>,
        path: &str,
        faults: &mut Vec<String>,
    ) -> Self {
        if definitions.is_empty() {
            let age = CustomResourceColumnDefinition {
                name: "Age".to_owned(),
                type_: "date".to_owned(),
                json_path: ".metadata.creationTimestamp".to_owned(),
                description: Some(AGE_DESCRIPTION.to_owned()),
                ..CustomResourceColumnDefinition::default()
            };
            return Self::parse(&[age], cells, path, faults);
        }
        let names: Vec<&str> = cells.iter().flat_map(|cells| cells.columns()).collect();
        for (index, name) in names.iter().enumerate() {
            let mut fault = |what: &str| {
                faults.push(format!("{path}.additionalPrinterColumns: {what} {name:?}, whose cells are computed by code"));
            };
            if !definitions.iter().any(|definition| definition.name == *name) {
                fault("there is no");
            }
            if names[..index].contains(name) {
                fault("there are two for");
            }
        }
        let is_shown_unchanged = cells.as_ref().is_some_and(|cells| cells.are_shown_unchanged());
        let position = |name: &str| cells.as_ref()?.columns().position(|column| column == name);
        let columns = definitions.iter().enumerate().filter_map(|(index, definition)| {
            let mut fault = |field: &str, message: &str| {
                faults.push(format!("{path}.additionalPrinterColumns[{index}].{field}: {message}"));
            };
            if definition.name.is_empty() {
                fault("name", "Required value");
            }
            let cell_type = CellType::parse(&definition.type_);
            if cell_type.is_none() {
                let given = quote(&definition.type_);
                let why = "must be one of boolean,date,integer,number,string";
                fault("type", &format!("Invalid value: {given}: {why}"));
            }
            let path = parse_path(&definition.json_path);
            if path.is_none() {
                fault("jsonPath", &format!("{:?} is not a JSONPath", definition.json_path));
            }
            let description = definition.description.clone().unwrap_or_else(|| {
                let path = &definition.json_path;
                format!("Custom resource definition column (in JSONPath format): {path}")
            });
            Some(Column {
                name: definition.name.clone(),
                format: definition.format.clone().unwrap_or_default(),
                description,
                priority: definition.priority.unwrap_or_default(),
                cell_type: cell_type?,
                source: match position(&definition.name) {
                    Some(position) if is_shown_unchanged => Source::CodeAsItIs(position),
                    Some(position) => Source::Code(position),
                    None => Source::Path(path?),
                },
            })
        });
        let columns = columns.collect();
        Self { columns, cells }
    }

    /// The columns, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }

    /// The cells of an object, one for each column.
    pub fn cells(&self, object: &Value, now: Timestamp) -> impl Iterator<Item = Value> {
        let computed = self.cells.as_ref().map(|cells| cells.compute(object, now));
        let computed = computed.unwrap_or_default();
        self.columns.iter().map(move |column| column.cell(object, &computed, now))
    }
}

/// Kubernetes writes `.metadata.labels.app-name` and `.metadata.labels.a\\.b`,
/// RFC 9535 `$.metadata.labels['a.b']`: every name is put in brackets.
fn parse_path(path: &str) -> Option<JpQuery> {
    let mut standard = String::from("$");
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            standard.push_str("..");
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = after;
        } else if rest.starts_with('[') {
            let end = end_of_brackets(rest)?;
            let (inside, after) = (&rest[1..end - 1], &rest[end..]);
            match unquoted(inside) {
                Some(name) => push_name(&mut standard, &take_escapes(name)),
                None => standard.push_str(&rest[..end]),
            }
            rest = after;
            continue;
        } else {
            return None;
        }
        let (name, after) = take_name(rest);
        match name.as_str() {
            "" if rest.starts_with('[') => {}
            "" => return None,
            "*" => standard.push_str("[*]"),
            name => push_name(&mut standard, name),
        }
        rest = after;
    }
    if calls_function(&standard) {
        return None;
    }
    parse_json_path(&standard).ok().filter(|_| path.starts_with('.'))
}

/// Whether a path calls a function: Kubernetes knows none, and those of RFC 9535 compile patterns.
fn calls_function(path: &str) -> bool {
    let (mut quote, mut is_escaped, mut before) = (None, false, ' ');
    for character in path.chars() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if character == '\\' => is_escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if ['"', '\''].contains(&character) => quote = Some(character),
            None if character == '(' && before.is_ascii_alphanumeric() => return true,
            None => {}
        }
        before = character;
    }
    false
}

fn push_name(path: &mut String, name: &str) {
    let name = name.replace('\\', "\\\\").replace('\'', "\\'");
    path.push_str(&format!("['{name}']"));
}

/// What stands between two quotes, and nothing else.
fn unquoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inside.contains(quote)).then_some(inside)
}

/// A text without the backslashes that escape.
fn take_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

/// The name at the beginning, unescaped, and what follows it.
fn take_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[index..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            plain => name.push(plain),
        }
    }
    (name, "")
}

/// Where the bracket at the beginning is closed; texts in it may hold brackets.
fn end_of_brackets(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), character) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn to_text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        other => to_html_json(other),
    }
}

/// A number as Go prints it: no fraction if there is none, two digits of an
/// exponent.
fn number_text(number: &Number) -> String {
    let float = match number.as_f64() {
        Some(float) if number.is_f64() => float,
        _ => return number.to_string(),
    };
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    float.to_string()
}

#[allow(clippy::cast_possible_truncation)] // a float outside of i64 saturates
fn to_integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().map(|float| float as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(json_path: &str, type_: &str, expected: Value) {
        let object = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a.b/c": "x", "x-y": "z"}},
            "spec": {"n": 3, "f": 3.0, "g": 2.5, "s": "t", "b": true, "null": null, "list": [{"x": 1}, {"x": 2}], "map": {"k": 1}, "small": 1e-7, "large": 1.5e21, "html": ["<b>"]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let definition = CustomResourceColumnDefinition {
            json_path: json_path.to_owned(),
            type_: type_.to_owned(),
            ..CustomResourceColumnDefinition::default()
        };
        let columns = Columns::parse(&[definition], None, "", &mut Vec::new());
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let cells: Vec<Value> = columns.cells(&object, now).collect();
        assert_eq!(cells, [expected], "{json_path} as {type_}");
    }

    #[test]
    fn code_may_compute_cells_of_columns_that_are_there() {
        let definition = |name: &str, type_: &str| CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: ".spec.n".to_owned(),
            ..CustomResourceColumnDefinition::default()
        };
        let of_code = |columns: &[&'static str]| {
            let compute = |object: &Value, _: Timestamp| vec![object["spec"]["m"].clone()];
            Some(Arc::new(ErasedCells::new("v1", columns.to_vec(), Box::new(compute))))
        };
        let mut faults = Vec::new();
        let definitions = [
            definition("Path", "integer"),
            definition("Code", "string"),
            definition("More", "date"),
        ];
        let columns = Columns::parse(&definitions, of_code(&["Code", "More"]), "v", &mut faults);
        let cells =
            |object: Value| columns.cells(&object, Timestamp::UNIX_EPOCH).collect::<Vec<_>>();
        assert_eq!(cells(json!({"spec": {"n": 1, "m": 2}})), [json!(1), json!("2"), json!(null)]);
        assert_eq!(cells(json!({"spec": {"n": 1}})), [json!(1), json!(null), json!(null)]);
        assert_eq!(faults, [] as [String; 0]);
        Columns::parse(&definitions, of_code(&["Other", "Code", "Code"]), "v", &mut faults);
        let said = ["there is no \"Other\"", "there are two for \"Code\""].map(|what| {
            format!("v.additionalPrinterColumns: {what}, whose cells are computed by code")
        });
        assert_eq!(faults, said);
    }

    #[test]
    fn functions_are_none() {
        for path in [
            "[?match(@, 'a')]",
            "['a\\'b'][?match(@, 'a')]",
            "[?length(@.x) > 1]",
            "[?(search(@.x, 'a'))]",
        ] {
            assert!(parse_path(&format!(".spec.a{path}")).is_none(), "{path}");
        }
        for path in ["[?(@.x=='f(1)')]", "['f(1)']"] {
            assert!(parse_path(&format!(".spec.a{path}")).is_some(), "{path}");
        }
    }

    #[test]
    fn cells() {
        check(".spec.n", "integer", json!(3));
        check(".spec.f", "integer", json!(3));
        check(".spec.g", "number", json!(2.5));
        check(".spec.n", "string", json!("3"));
        check(".spec.f", "string", json!("3"));
        check(".spec.s", "integer", json!(null));
        check(".spec.s", "string", json!("t"));
        check(".spec.b", "boolean", json!(true));
        check(".spec.null", "string", json!("<no value>"));
        check(".spec.none", "string", json!(null));
        check(".spec.map", "string", json!("{\"k\":1}"));
        check(".spec.list[*].x", "integer", json!(1));
        check(".metadata.creationTimestamp", "date", json!("5m"));
        check(".spec.s", "date", json!("<invalid>"));
        check(".spec.n", "date", json!(null));
        check(".metadata.labels.a\\.b/c", "string", json!("x"));
        check(".metadata.labels.x-y", "string", json!("z"));
        check(".spec.small", "string", json!("1e-07"));
        check(".spec.large", "string", json!("1.5e+21"));
        check(".spec.html", "string", json!("[\"\\u003cb\\u003e\"]"));
        check(".spec['s']", "string", json!("t"));
        check(".metadata.labels['a\\.b/c']", "string", json!("x"));
        check(".metadata.labels[\"x-y\"]", "string", json!("z"));
        check(".status.conditions[?(@.type==\"Ready\")].status", "string", json!("True"));
    }
}
