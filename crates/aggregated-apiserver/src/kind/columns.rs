//! Table columns. Each has a type, and a JSONPath or code that computes its cells.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Number, Value};

use super::json_path::JsonPath;
use super::{ErasedColumns, age};
use crate::error::quote;
use crate::object::to_html_json;

pub(super) const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The largest number of values that are visited for one cell, and for all cells of a row.
const CELL_STEPS: usize = 10_000;
const ROW_STEPS: usize = 100_000;
/// The largest amount of text in a row, in bytes: slightly more than the largest object. The cell that exceeds the
/// limit is the last one.
const ROW_BYTES: usize = 2 << 20;

/// The remaining limits for the cells of a row.
struct Row {
    steps: usize,
    bytes: usize,
}

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
    /// A hint for printing.
    pub format: String,
    /// The description.
    pub description: String,
    /// If greater than 0, only `-o wide` shows the column.
    pub priority: i32,
    cell_type: CellType,
    source: Source,
}

/// The source of the cells of a column.
#[derive(Debug)]
enum Source {
    /// The first value at the path.
    Path(JsonPath),
    /// The value at this position of the computed cells, formatted according to the type of the column.
    Code(usize),
    /// The value at this position of the computed cells, unchanged.
    CodeAsItIs(usize),
}

impl Column {
    /// The type of the cells, as clients see it.
    pub fn type_name(&self) -> &'static str {
        self.cell_type.name()
    }

    /// The cell for an object, formatted according to the type of the column.
    fn cell(&self, object: &Value, computed: &[Value], now: Timestamp, row: &mut Row) -> Value {
        match &self.source {
            Source::Path(path) => {
                let mut steps = row.steps.min(CELL_STEPS);
                row.steps -= steps;
                let found = path.first(object, &mut steps).filter(|_| row.bytes > 0);
                row.steps += steps;
                let cell = match found {
                    // In Go, bytes of a string are numbers of a type that other columns do not print.
                    Some(Cow::Owned(_)) if self.cell_type != CellType::String => Value::Null,
                    Some(found) => self.print(&found, now),
                    None => Value::Null,
                };
                row.bytes = row.bytes.saturating_sub(cell.as_str().map_or(0, str::len));
                cell
            }
            Source::CodeAsItIs(position) => computed.get(*position).cloned().unwrap_or_default(),
            // A missing computed value leaves the cell empty; it is not printed as a null value.
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

/// The columns of a version. If a definition has none, the only column is the age.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    cells: Option<Arc<ErasedColumns>>,
}

impl Columns {
    /// Parses the columns of the version at `path`; invalid columns are omitted. `cells` are those that are computed by
    /// code.
    pub(super) fn parse(
        definitions: &[CustomResourceColumnDefinition],
        cells: Option<Arc<ErasedColumns>>,
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
        let mut are_shown = true;
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
            if !definition.json_path.starts_with('.') {
                fault("jsonPath", &format!("{:?} is not a JSONPath", definition.json_path));
            }
            let json_path = JsonPath::parse(&definition.json_path);
            if json_path.is_none() && position(&definition.name).is_none() && are_shown {
                // Same as kube-apiserver, which accepts the definition.
                let given = quote(&definition.json_path);
                tracing::warn!(
                    "{path}.additionalPrinterColumns[{index}].jsonPath: cannot read {given}: \
                     the column and those after it are omitted"
                );
                are_shown = false;
            }
            let description = definition.description.clone().unwrap_or_else(|| {
                let path = &definition.json_path;
                format!("Custom resource definition column (in JSONPath format): {path}")
            });
            are_shown.then_some(())?;
            Some(Column {
                name: definition.name.clone(),
                format: definition.format.clone().unwrap_or_default(),
                description,
                priority: definition.priority.unwrap_or_default(),
                cell_type: cell_type?,
                source: match position(&definition.name) {
                    Some(position) if is_shown_unchanged => Source::CodeAsItIs(position),
                    Some(position) => Source::Code(position),
                    None => Source::Path(json_path?),
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
        let mut row = Row { steps: ROW_STEPS, bytes: ROW_BYTES };
        self.columns.iter().map(move |column| column.cell(object, &computed, now, &mut row))
    }
}

fn to_text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        other => to_html_json(other),
    }
}

/// Formats a number in the same way as Go: no fraction for whole numbers, and at least two digits in an exponent.
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
    fn code_computes_cells_only_for_declared_printer_columns() {
        let definition = |name: &str, type_: &str| CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: ".spec.n".to_owned(),
            ..CustomResourceColumnDefinition::default()
        };
        let of_code = |columns: &[&'static str]| {
            let compute = |object: &Value, _: Timestamp| vec![object["spec"]["m"].clone()];
            Some(Arc::new(ErasedColumns::new("v1", columns.to_vec(), Box::new(compute))))
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

    fn of_paths(paths: &[&str]) -> Columns {
        let definitions: Vec<_> = paths
            .iter()
            .map(|path| CustomResourceColumnDefinition {
                name: (*path).to_owned(),
                json_path: (*path).to_owned(),
                type_: "string".to_owned(),
                ..CustomResourceColumnDefinition::default()
            })
            .collect();
        let mut faults = Vec::new();
        let columns = Columns::parse(&definitions, None, "", &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        columns
    }

    #[test]
    fn columns_after_an_invalid_json_path_are_omitted() {
        let columns = of_paths(&[".a", ".b", ".c[\"d\"]", ".e"]);
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, [".a", ".b"]);
    }

    #[test]
    fn cells_of_a_table_row_have_a_common_limit() {
        let (text, columns) = ("x".repeat(1 << 20), of_paths(&[".text"; 1_000]));
        let shown = |columns: &Columns, object: Value| {
            let cells = columns.cells(&object, Timestamp::UNIX_EPOCH);
            cells.filter(|cell| !cell.is_null()).count()
        };
        let shown_texts = shown(&columns, json!({"text": text}));
        assert_eq!(shown_texts, 2);
        let (items, columns) = (vec![json!({"a": 1}); 4_000], of_paths(&[".items[*].a"; 1_000]));
        let shown_items = shown(&columns, json!({"items": items}));
        assert!((5..20).contains(&shown_items), "{shown_items}");
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
        check(".metadata.labels['x-y']", "string", json!("z"));
        check(".status.conditions[?(@.type==\"Ready\")].status", "string", json!("True"));
    }
}
