//! Compares validation rules: a seed yields a definition with random schemas and CEL rules, and objects of it. They are
//! created and changed at a kube-apiserver and at our server without a cluster.

pub mod expressions;
pub mod schemas;
pub mod terms;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use self::expressions::Maker;
use self::schemas::{changed, object, places, term, value};
use self::terms::Term;
use crate::answer::Answer;
use crate::server::{Sent, Server};

/// The number of top-level schemas in a definition.
const SCHEMAS: usize = 6;
/// The largest depth of a schema.
const DEPTH: usize = 3;
/// The largest depth of an expression.
const EXPRESSION_DEPTH: usize = 3;
/// The number of objects, and the number of changes of each.
const OBJECTS: usize = 6;
const CHANGES: usize = 3;
/// The error of kube-apiserver for an address, a network, a quantity, a URL or a version in an optional value.
const UNCONVERTED: &str = "unsupported conversion to ref.Val";
/// The largest time until a server serves a definition.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_millis(50);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "rules.example.com";
const RULES: &str = "x-kubernetes-validations";

/// Compares the definition and the objects of a seed. Returns the number of rules, and the differences as text.
pub async fn compare(seed: u64, reference: &Server, other: &Server) -> Result<(usize, String)> {
    let mut rng = Rng::with_seed(seed);
    let mut schema = made(&mut rng);
    let rules = count(&schema);
    let plural = format!("seeds{seed}");
    // Removes rejected rules until the definition is accepted.
    loop {
        let definition = definition(&plural, &schema).to_string();
        let path = format!("{DEFINITIONS}?dryRun=All");
        let (there, here) = both(reference, other, "POST", &path, Some(&definition)).await?;
        let (told, ours) = (told(&there), told(&here));
        if told != ours {
            return Ok((rules, report(&schema, "POST", &plural, "", &told, &ours)));
        }
        if there.status == 201 {
            break;
        }
        let causes = there.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let fields: Vec<&str> = causes.iter().filter_map(|cause| cause["field"].as_str()).collect();
        let before = count(&schema);
        without(&mut schema, "spec.validation.openAPIV3Schema", &fields);
        ensure!(count(&schema) < before, "no rule is at fault: {}", there.body["message"]);
    }
    let definition = definition(&plural, &schema).to_string();
    let named = format!("{DEFINITIONS}/{plural}.{GROUP}");
    for server in [reference, other] {
        server.demand("POST", DEFINITIONS, Some(definition.clone())).await?;
    }
    let compared = objects(&mut rng, &schema, &plural, reference, other).await;
    for server in [reference, other] {
        server.demand_or_gone("DELETE", &named, None).await?;
    }
    Ok((rules, compared?))
}

/// Creates objects and changes them.
async fn objects(
    rng: &mut Rng,
    schema: &Value,
    plural: &str,
    reference: &Server,
    other: &Server,
) -> Result<String> {
    let collection = format!("/apis/{GROUP}/v1/{plural}");
    for server in [reference, other] {
        served(server, &collection).await?;
    }
    let spec = &schema["properties"]["spec"];
    for number in 0..OBJECTS {
        let name = format!("o{number}");
        let mut now = value(rng, spec);
        let whole = |spec: &Value| {
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind(plural),
                "metadata": {"name": name}, "spec": spec,
            })
        };
        let mut exists = false;
        for _ in 0..=CHANGES {
            let (method, path, body) = match exists {
                false => ("POST", collection.clone(), whole(&now)),
                true => (
                    "PATCH",
                    format!("{collection}/{name}"),
                    json!([{"op": "replace", "path": "/spec", "value": now}]),
                ),
            };
            let body = body.to_string();
            let (there, here) = both(reference, other, method, &path, Some(&body)).await?;
            let (told, ours) = (told(&there), told(&here));
            // kube-apiserver cannot convert some values inside CEL optionals (`docs/reference/differences.md`), so the
            // results of the two servers may differ.
            if told.iter().any(|text| text.contains(UNCONVERTED)) {
                break;
            }
            if told != ours {
                return Ok(report(schema, method, &path, &body, &told, &ours));
            }
            if there.status < 300 {
                let (there, here) = (&there.body["spec"], &here.body["spec"]);
                if there != here {
                    let kept = |spec: &Value| BTreeSet::from([spec.to_string()]);
                    return Ok(report(schema, method, &path, &body, &kept(there), &kept(here)));
                }
                exists = true;
            }
            now = changed(rng, spec, &now);
        }
    }
    Ok(String::new())
}

/// Generates a schema with rules.
fn made(rng: &mut Rng) -> Value {
    let mut spec = json!({"type": "object", "properties": {}});
    for number in 0..SCHEMAS {
        let mut schema = match rng.u32(0..3) {
            0 => schemas::schema(rng, DEPTH),
            _ => object(rng, DEPTH),
        };
        let mut rules = 0;
        add_rules(rng, &mut schema, 3, &mut rules);
        spec["properties"][format!("s{number}")] = schema;
    }
    let mut schema = json!({"type": "object", "properties": {"spec": spec}});
    if rng.u32(0..3) == 0 {
        schema[RULES] = json!([rule(rng, &schema, true)]);
    }
    schema
}

/// Adds rules to a schema and to the schemas inside it.
fn add_rules(rng: &mut Rng, schema: &mut Value, most: u32, count: &mut usize) {
    /// The largest number of rules in one schema.
    const LIMIT: usize = 8;
    for name in ["items", "additionalProperties"] {
        if schema[name].is_object() && rng.bool() {
            add_rules(rng, &mut schema[name], 2, count);
        }
    }
    for property in
        schema["properties"].as_object_mut().into_iter().flat_map(|all| all.values_mut())
    {
        if rng.u32(0..3) == 0 {
            add_rules(rng, property, 1, count);
        }
    }
    let wanted = rng.u32(0..=most).max(u32::from(*count == 0));
    let mut rules = Vec::new();
    for _ in 0..wanted {
        if *count < LIMIT && term(schema).is_some() {
            rules.push(rule(rng, schema, false));
            *count += 1;
        }
    }
    if !rules.is_empty() {
        schema[RULES] = rules.into();
    }
    // Removes the nulls that the reads above have inserted.
    if let Some(members) = schema.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
}

fn rule(rng: &mut Rng, schema: &Value, is_root: bool) -> Value {
    let mut all = Vec::new();
    places(schema, "self", 3, &mut all);
    if is_root {
        let name = schemas::Place {
            text: "self.metadata.name".to_owned(),
            term: Term::named("string"),
            asked: None,
        };
        all.push(name);
    }
    let about_changes = rng.u32(0..4) == 0;
    let is_optional = about_changes && rng.u32(0..3) == 0;
    if about_changes && !is_optional {
        places(schema, "oldSelf", 3, &mut all);
    }
    if is_optional && let Some(term) = term(schema) {
        for _ in 0..3 {
            let term = Term::optional(term.clone());
            all.push(schemas::Place { text: "oldSelf".to_owned(), term, asked: None });
        }
        let asks = schemas::Place {
            text: "oldSelf.hasValue()".to_owned(),
            term: Term::named("bool"),
            asked: None,
        };
        all.push(asks);
    }
    let mut maker = Maker { rng, places: all, variables: 0 };
    let bool = Term::named("bool");
    let mut rule = json!({"rule": maker.expression(&bool, EXPRESSION_DEPTH)});
    if maker.rng.u32(0..3) == 0 {
        let text = Term::named("string");
        rule["messageExpression"] = maker.expression(&text, 2).into();
    }
    if is_optional {
        rule["optionalOldSelf"] = json!(true);
    }
    if rng.u32(0..4) == 0 {
        rule["message"] = ["said", "  with spaces ", "of\"quotes\""][rng.usize(0..3)].into();
    }
    let reasons =
        ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"];
    if rng.u32(0..4) == 0 {
        rule["reason"] = reasons[rng.usize(0..4)].into();
    }
    let names: Vec<&String> =
        schema["properties"].as_object().into_iter().flat_map(|all| all.keys()).collect();
    if !names.is_empty() && rng.u32(0..5) == 0 {
        let name = names[rng.usize(0..names.len())];
        rule["fieldPath"] = match name.contains(['-', '.']) {
            true => format!("['{name}']"),
            false => format!(".{name}"),
        }
        .into();
    }
    rule
}

fn count(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => {
            let own = members.get(RULES).and_then(Value::as_array).map_or(0, Vec::len);
            own + members
                .iter()
                .filter(|(name, _)| *name != RULES)
                .map(|(_, of)| count(of))
                .sum::<usize>()
        }
        _ => 0,
    }
}

/// Removes the rules whose paths are in `fields`.
fn without(schema: &mut Value, path: &str, fields: &[&str]) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(Value::Array(rules)) = members.get_mut(RULES) {
        let mut at = 0;
        rules.retain(|_| {
            let rule = format!("{path}.{RULES}[{at}]");
            at += 1;
            !fields.iter().any(|field| {
                field
                    .strip_prefix(&rule)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        });
        if rules.is_empty() {
            members.remove(RULES);
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(name) {
            without(inner, &format!("{path}.{name}"), fields);
        }
    }
    for (name, property) in
        members.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        without(property, &format!("{path}.properties[{name}]"), fields);
    }
}

fn definition(plural: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns the kind of the objects.
fn kind(plural: &str) -> String {
    format!("Of{plural}")
}

async fn both(
    reference: &Server,
    other: &Server,
    method: &str,
    path: &str,
    body: Option<&str>,
) -> Result<(Answer, Answer)> {
    let media_type = match method {
        "PATCH" => "application/json-patch+json",
        _ => "application/json",
    };
    let sent = Sent {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("Content-Type".to_owned(), media_type.to_owned())],
        body: body.map(str::to_owned),
        ..Sent::default()
    };
    let (there, here) = tokio::try_join!(reference.ask(&sent), other.ask(&sent))?;
    Ok((there, here))
}

/// Waits until a collection is served.
pub(crate) async fn served(server: &Server, collection: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let sent = Sent { method: "GET".to_owned(), path: collection.to_owned(), ..Sent::default() };
    loop {
        let answer = server.ask(&sent).await?;
        if answer.status == 200 && answer.body["items"].is_array() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{collection}: {}", answer.body);
        tokio::time::sleep(ASK).await;
    }
}

/// Returns the reasons, fields and messages of an error as a set, because Go reports them in a different order each
/// time.
fn told(answer: &Answer) -> BTreeSet<String> {
    let part = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    // If rules have the same estimated cost, kube-apiserver reports a random selection of them.
    let is_by_chance =
        |cause: &&Value| part(cause, "message").contains("contributed to estimated rule cost");
    let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    let causes = causes.filter(|cause| !is_by_chance(cause));
    let mut told: BTreeSet<String> = causes
        .map(|cause| {
            let text = ["reason", "field", "message"].map(|key| part(cause, key)).join(": ");
            crate::schemas::without_numbers(&text)
        })
        .collect();
    if told.is_empty() && answer.status >= 300 {
        told.insert(part(&answer.body, "message"));
    }
    told.insert(format!("status {}", answer.status));
    told.extend(answer.warnings.iter().map(|warning| format!("warning: {warning}")));
    told
}

/// Formats the difference, with the rules that the messages mention.
fn report(
    schema: &Value,
    method: &str,
    path: &str,
    body: &str,
    there: &BTreeSet<String>,
    here: &BTreeSet<String>,
) -> String {
    let mut report = format!("{method} {path}\n{body}\n");
    for missing in there.difference(here) {
        let _ = writeln!(report, "  only kube-apiserver: {missing}");
    }
    for more in here.difference(there) {
        let _ = writeln!(report, "  only we: {more}");
    }
    let _ = writeln!(report, "schema: {schema}");
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_rules_are_reproducible_from_a_seed() {
        let schema = |seed| made(&mut Rng::with_seed(seed));
        assert_eq!(schema(3), schema(3));
        assert_ne!(schema(3), schema(4));
        let rules: usize = (0..50).map(|seed| count(&schema(seed))).sum();
        assert!(rules > 900, "{rules}");
    }

    #[test]
    fn invalid_rules_are_removed_from_a_schema() {
        let mut schema = json!({
            "properties": {"a": {"items": {RULES: [{"rule": "1"}, {"rule": "2"}]}}},
            RULES: [{"rule": "3"}],
        });
        without(&mut schema, "s", &["s.properties[a].items.x-kubernetes-validations[1].rule"]);
        without(&mut schema, "s", &["s.x-kubernetes-validations[0]"]);
        let left = json!({"properties": {"a": {"items": {RULES: [{"rule": "1"}]}}}});
        assert_eq!(schema, left);
    }
}
