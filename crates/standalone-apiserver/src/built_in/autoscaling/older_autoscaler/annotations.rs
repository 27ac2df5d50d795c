//! The annotations of autoscalers of `autoscaling/v1`: JSON with the field names and the order of Go.

use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerCondition, MetricSpec, MetricStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::built_in::checks::{go_struct, quote, to_json};

pub(super) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
pub(super) const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
pub(super) const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
pub(super) const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// The annotations with fields of the spec, and those with fields of the status.
pub(super) const OF_SPEC: &[&str] = &[METRICS, BEHAVIOR];
pub(super) const OF_STATUS: &[&str] = &[CURRENT_METRICS, CONDITIONS];
/// The annotations that a stored autoscaler does not have.
pub(super) const DROPPED: &[&str] = &[
    METRICS,
    BEHAVIOR,
    CURRENT_METRICS,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

type Tree = Map<String, Value>;

/// A field of a metric in an annotation, and the path of its value in `autoscaling/v2`.
type Field = (&'static str, &'static [&'static str], Form);

/// The sources of metrics.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    /// Whether metrics have a target, which has a type.
    has_targets: bool,
    /// The fields of each source.
    fields: &'static [(&'static str, &'static [Field])],
}

/// The form of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Number,
    /// A quantity, which is `0` if it is missing.
    Amount,
    OptionalAmount,
    Selector,
    Reference,
}

const NAME: &[&str] = &["metric", "name"];
const SELECTOR: &[&str] = &["metric", "selector"];
const OBJECT: &[&str] = &["describedObject"];

/// The metrics of a spec.
pub(super) const SPECS: Sources = Sources {
    has_targets: true,
    fields: &[
        (
            "object",
            &[
                ("target", OBJECT, Form::Reference),
                ("metricName", NAME, Form::Text),
                ("targetValue", &["target", "value"], Form::Amount),
                ("selector", SELECTOR, Form::Selector),
                ("averageValue", &["target", "averageValue"], Form::OptionalAmount),
            ],
        ),
        (
            "pods",
            &[
                ("metricName", NAME, Form::Text),
                ("targetAverageValue", &["target", "averageValue"], Form::Amount),
                ("selector", SELECTOR, Form::Selector),
            ],
        ),
        (
            "resource",
            &[
                ("name", &["name"], Form::Text),
                ("targetAverageUtilization", &["target", "averageUtilization"], Form::Number),
                ("targetAverageValue", &["target", "averageValue"], Form::OptionalAmount),
            ],
        ),
        (
            "containerResource",
            &[
                ("name", &["name"], Form::Text),
                ("targetAverageUtilization", &["target", "averageUtilization"], Form::Number),
                ("targetAverageValue", &["target", "averageValue"], Form::OptionalAmount),
                ("container", &["container"], Form::Text),
            ],
        ),
        (
            "external",
            &[
                ("metricName", NAME, Form::Text),
                ("metricSelector", SELECTOR, Form::Selector),
                ("targetValue", &["target", "value"], Form::OptionalAmount),
                ("targetAverageValue", &["target", "averageValue"], Form::OptionalAmount),
            ],
        ),
    ],
};

/// The metrics of a status.
pub(super) const STATUSES: Sources = Sources {
    has_targets: false,
    fields: &[
        (
            "object",
            &[
                ("target", OBJECT, Form::Reference),
                ("metricName", NAME, Form::Text),
                ("currentValue", &["current", "value"], Form::Amount),
                ("selector", SELECTOR, Form::Selector),
                ("averageValue", &["current", "averageValue"], Form::OptionalAmount),
            ],
        ),
        (
            "pods",
            &[
                ("metricName", NAME, Form::Text),
                ("currentAverageValue", &["current", "averageValue"], Form::Amount),
                ("selector", SELECTOR, Form::Selector),
            ],
        ),
        (
            "resource",
            &[
                ("name", &["name"], Form::Text),
                ("currentAverageUtilization", &["current", "averageUtilization"], Form::Number),
                ("currentAverageValue", &["current", "averageValue"], Form::Amount),
            ],
        ),
        (
            "containerResource",
            &[
                ("name", &["name"], Form::Text),
                ("currentAverageUtilization", &["current", "averageUtilization"], Form::Number),
                ("currentAverageValue", &["current", "averageValue"], Form::Amount),
                ("container", &["container"], Form::Text),
            ],
        ),
        (
            "external",
            &[
                ("metricName", NAME, Form::Text),
                ("metricSelector", SELECTOR, Form::Selector),
                ("currentValue", &["current", "value"], Form::Amount),
                ("currentAverageValue", &["current", "averageValue"], Form::OptionalAmount),
            ],
        ),
    ],
};

/// Formats metrics of `autoscaling/v2`; `None` without metrics.
pub(super) fn write_metrics(metrics: &[&Value], sources: Sources) -> Option<String> {
    let write = |metric: &&Value| {
        let mut fields = vec![("type", text(&metric["type"]))];
        for (source, of) in sources.fields {
            if let Some(metric) = metric.get(*source).filter(|metric| !metric.is_null()) {
                let of = of.iter();
                let of = of.filter_map(|field| Some((field.0, write_field(metric, *field)?)));
                fields.push((*source, go_struct(&of.collect::<Vec<_>>())));
            }
        }
        go_struct(&fields)
    };
    let all: Vec<String> = metrics.iter().map(write).collect();
    (!all.is_empty()).then(|| escaped(&format!("[{}]", all.join(","))))
}

fn write_field(metric: &Value, (_, path, form): Field) -> Option<String> {
    let found = path.iter().try_fold(metric, |value, step| value.get(*step));
    let found = found.filter(|value| !value.is_null());
    match (form, found) {
        (Form::Text, found) => Some(text(found.unwrap_or(&Value::Null))),
        (Form::Amount, None) => Some(quote("0")),
        (Form::Reference, found) => {
            let found = found.unwrap_or(&Value::Null);
            let mut fields = vec![("kind", text(&found["kind"])), ("name", text(&found["name"]))];
            fields.extend(given("apiVersion", &found["apiVersion"]));
            Some(go_struct(&fields))
        }
        (Form::Selector, Some(selector)) => Some(write_selector(selector)),
        (Form::Number | Form::Amount | Form::OptionalAmount, Some(value)) => Some(to_json(value)),
        (_, None) => None,
    }
}

fn write_selector(selector: &Value) -> String {
    let mut fields = Vec::new();
    if let Some(labels) = selector["matchLabels"].as_object().filter(|all| !all.is_empty()) {
        fields.push(("matchLabels", to_json(labels)));
    }
    let expressions: Vec<String> = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            let mut fields = vec![("key", text(&one["key"])), ("operator", text(&one["operator"]))];
            if one["values"].as_array().is_some_and(|values| !values.is_empty()) {
                fields.push(("values", to_json(&one["values"])));
            }
            go_struct(&fields)
        })
        .collect();
    if !expressions.is_empty() {
        fields.push(("matchExpressions", format!("[{}]", expressions.join(","))));
    }
    go_struct(&fields)
}

/// Parses metrics of a spec as those of `autoscaling/v2`; `None` if they are invalid.
pub(super) fn read_metrics(annotation: &str) -> Option<Vec<Value>> {
    let metrics = parse_metrics(annotation, SPECS)?;
    metrics.into_iter().map(fitting::<MetricSpec>).collect()
}

/// Parses metrics of a status as those of `autoscaling/v2`; `None` if they are invalid.
pub(super) fn read_current_metrics(annotation: &str) -> Option<Vec<Value>> {
    let metrics = parse_metrics(annotation, STATUSES)?;
    metrics.into_iter().map(fitting::<MetricStatus>).collect()
}

/// A value in the form of its type, without unknown fields; `None` if the type cannot have the value.
fn fitting<T: DeserializeOwned + Serialize>(value: Value) -> Option<Value> {
    let typed: T = serde_json::from_value(value).ok()?;
    serde_json::to_value(typed).ok()
}

fn parse_metrics(annotation: &str, sources: Sources) -> Option<Vec<Value>> {
    let all: Vec<Tree> = serde_json::from_str(annotation).ok()?;
    let read = |metric: &Tree| {
        let mut read = json!({"type": string(metric.get("type"))?});
        for (source, of) in sources.fields {
            let Some(given) = metric.get(*source).filter(|given| !given.is_null()) else {
                continue;
            };
            let given = given.as_object()?;
            let mut fields = json!({});
            for (name, path, form) in *of {
                if let Some(value) = read_field(given.get(*name), *form)? {
                    let (last, parents) = path.split_last()?;
                    let parent = parents.iter().fold(&mut fields, |at, step| &mut at[*step]);
                    parent[*last] = value;
                }
            }
            if sources.has_targets {
                set_target_type(source, &mut fields);
            }
            read[*source] = fields;
        }
        Some(read)
    };
    all.iter().map(read).collect()
}

/// Sets the type of a target, which an annotation does not have.
fn set_target_type(source: &str, metric: &mut Value) {
    let has = |field: &str| metric["target"].get(field).is_some();
    let of = match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    let is_zero = metric["target"]["value"]
        .as_str()
        .is_some_and(|value| Quantity::parse(value).is_ok_and(|value| value.nanos() == 0));
    if let Some(target) = metric["target"].as_object_mut()
        && source == "object"
        && of == "AverageValue"
        && is_zero
    {
        target.remove("value");
    }
    metric["target"]["type"] = of.into();
}

/// Reads a field; the outer `None` means that its value is invalid.
fn read_field(given: Option<&Value>, form: Form) -> Option<Option<Value>> {
    let given = given.filter(|given| !given.is_null());
    Some(match (form, given) {
        (Form::Text, given) => Some(string(given)?.into()),
        (Form::Amount, None) => Some("0".into()),
        (Form::Amount | Form::OptionalAmount, Some(given)) => Some(read_amount(given)?),
        (Form::Number, Some(given)) => Some(i32::try_from(given.as_i64()?).ok()?.into()),
        (Form::Reference, Some(given)) if !given.is_object() => return None,
        (Form::Reference, given) => {
            let part = |name: &str| given.and_then(|given| given.get(name));
            let mut read = json!({"kind": string(part("kind"))?, "name": string(part("name"))?});
            let version = string(part("apiVersion"))?;
            if !version.is_empty() {
                read["apiVersion"] = version.into();
            }
            Some(read)
        }
        (Form::Selector, Some(given)) => {
            given.as_object()?;
            Some(given.clone())
        }
        (Form::Number | Form::OptionalAmount | Form::Selector, None) => None,
    })
}

/// Reads a quantity, which may be a number in JSON; `None` if it is invalid.
fn read_amount(given: &Value) -> Option<Value> {
    let text = match given {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Quantity::parse(&text).ok()?;
    Some(text.into())
}

/// Formats the conditions of `autoscaling/v2`; `None` without conditions.
pub(super) fn write_conditions(conditions: &[Value]) -> Option<String> {
    let write = |condition: &Value| {
        let mut fields = vec![
            ("type", text(&condition["type"])),
            ("status", text(&condition["status"])),
            ("lastTransitionTime", to_json(&condition["lastTransitionTime"])),
        ];
        fields.extend(given("reason", &condition["reason"]));
        fields.extend(given("message", &condition["message"]));
        go_struct(&fields)
    };
    let all: Vec<String> = conditions.iter().map(write).collect();
    (!all.is_empty()).then(|| escaped(&format!("[{}]", all.join(","))))
}

/// Parses conditions; `None` if they are invalid.
pub(super) fn read_conditions(annotation: &str) -> Option<Value> {
    let all: Vec<Tree> = serde_json::from_str(annotation).ok()?;
    let read = |condition: &Tree| {
        let mut read = json!({});
        for field in ["type", "status", "reason", "message", "lastTransitionTime"] {
            let value = string(condition.get(field))?;
            if field == "lastTransitionTime" && !value.is_empty() {
                value.parse::<jiff::Timestamp>().ok()?;
            }
            if !value.is_empty() || ["type", "status"].contains(&field) {
                read[field] = value.into();
            }
        }
        fitting::<HorizontalPodAutoscalerCondition>(read)
    };
    all.iter().map(read).collect::<Option<Vec<_>>>().map(Value::from)
}

/// The fields of the rules of a behavior: the name in the annotation and the name in `autoscaling/v2`.
const RULES: [(&str, &str); 4] = [
    ("StabilizationWindowSeconds", "stabilizationWindowSeconds"),
    ("SelectPolicy", "selectPolicy"),
    ("Policies", "policies"),
    ("Tolerance", "tolerance"),
];
const POLICY: [(&str, &str); 3] =
    [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
const BEHAVIORS: [(&str, &str); 2] = [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")];

/// Formats a behavior of `autoscaling/v2` with the field names of Go.
pub(super) fn write_behavior(behavior: &Value) -> Option<String> {
    let policy =
        |policy: &Value| go_struct(&POLICY.map(|(name, field)| (name, to_json(&policy[field]))));
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        go_struct(&RULES.map(|(name, field)| {
            let value = match rules[field].as_array() {
                Some(policies) if field == "policies" => {
                    let all: Vec<String> = policies.iter().map(policy).collect();
                    format!("[{}]", all.join(","))
                }
                _ => to_json(&rules[field]),
            };
            (name, value)
        }))
    };
    let written = BEHAVIORS.map(|(name, field)| (name, rules(&behavior[field])));
    behavior.is_object().then(|| escaped(&go_struct(&written)))
}

/// Parses a behavior; `None` if it is invalid or empty.
pub(super) fn read_behavior(annotation: &str) -> Option<Value> {
    let given: Tree = serde_json::from_str(annotation).ok()?;
    let mut behavior = json!({});
    for (name, field) in BEHAVIORS {
        let Some(rules) = named(&given, name) else { continue };
        let mut read = renamed(rules.as_object()?, &RULES);
        if let Some(policies) = read.get("policies") {
            let policies = policies.as_array()?.iter();
            let policies = policies.map(|one| Some(renamed(one.as_object()?, &POLICY)));
            read["policies"] = policies.collect::<Option<Vec<_>>>()?.into();
        }
        if let Some(tolerance) = read.get("tolerance") {
            read["tolerance"] = read_amount(tolerance)?;
        }
        behavior[field] = read;
    }
    let is_empty = behavior.as_object().is_none_or(Map::is_empty);
    if is_empty { None } else { fitting::<HorizontalPodAutoscalerBehavior>(behavior) }
}

/// The fields of an object with other names, without null fields.
fn renamed(given: &Tree, names: &[(&str, &str)]) -> Value {
    let fields = names
        .iter()
        .filter_map(|(name, field)| Some(((*field).to_owned(), named(given, name)?.clone())));
    Value::Object(fields.collect())
}

/// The value of a field that is not null. Go ignores the case of field names.
fn named<'a>(given: &'a Tree, name: &str) -> Option<&'a Value> {
    let found = given.get(name).or_else(|| {
        given.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    });
    found.filter(|value| !value.is_null())
}

/// The string of a field; empty if it is missing, and `None` if it is another type of value.
fn string(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(value) => value.as_str().map(str::to_owned),
    }
}

fn text(value: &Value) -> String {
    quote(value.as_str().unwrap_or_default())
}

/// A field with a string that is not empty.
fn given(name: &'static str, value: &Value) -> Option<(&'static str, String)> {
    let value = value.as_str().filter(|value| !value.is_empty())?;
    Some((name, quote(value)))
}

/// JSON with the escapes of Go.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text
}
