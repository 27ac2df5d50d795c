//! Objects in protobuf, as Go encodes them: a program of ours, written in Go, is
//! handed JSON, and answers with what a typed client would send.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use test_cluster::Programs;

/// An object, as Go has read it from JSON.
#[derive(Debug)]
pub struct Encoded {
    /// The object in protobuf, with the envelope that typed clients send.
    pub protobuf: Vec<u8>,
    /// The object in JSON, as Go writes it down.
    pub json: Value,
}

/// The program, started when it is first needed. It ends with its input.
struct Encoder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

static ENCODER: Mutex<Option<Encoder>> = Mutex::new(None);

/// Encodes an object that is given in JSON.
///
/// # Errors
/// When the program cannot be built or started, or the JSON does not fit the Go
/// type of the object's kind.
pub fn encode(json: &str) -> Result<Encoded> {
    let mut encoder = ENCODER.lock().unwrap_or_else(PoisonError::into_inner);
    let encoder = match &mut *encoder {
        Some(encoder) => encoder,
        none => none.insert(Encoder::start()?),
    };
    // A line of input is one object.
    let json: Value = serde_json::from_str(json).context("a body in protobuf is given in JSON")?;
    writeln!(encoder.input, "{json}")?;
    let mut line = String::new();
    if encoder.output.read_line(&mut line)? == 0 {
        bail!("the encoder has ended: {:?}", encoder.child.wait()?);
    }
    let mut answer: Value = serde_json::from_str(&line)?;
    if let Some(error) = answer["error"].as_str() {
        bail!("Go does not read {json}: {error}");
    }
    let protobuf = STANDARD.decode(answer["protobuf"].as_str().unwrap_or_default())?;
    Ok(Encoded { protobuf, json: answer["json"].take() })
}

impl Encoder {
    fn start() -> Result<Self> {
        let mut command = Command::new(Programs::protobuf()?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, input, output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::{Field, FieldCount, FieldTable, Presence, read_protobuf};
    use fastrand::Rng;
    use serde_json::{Map, json};
    use test_cluster::Missing;

    const FIELDS: &str = include_str!("../../standalone/src/built_in/fields.txt");
    /// Every kind that is read in protobuf, with its version.
    const KINDS: [(&str, &str); 25] = [
        ("v1", "Binding"),
        ("v1", "ConfigMap"),
        ("v1", "DeleteOptions"),
        ("v1", "Event"),
        ("v1", "Namespace"),
        ("v1", "Node"),
        ("v1", "Pod"),
        ("v1", "Secret"),
        ("v1", "Service"),
        ("v1", "ServiceAccount"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("authentication.k8s.io/v1", "SelfSubjectReview"),
        ("authentication.k8s.io/v1", "TokenReview"),
        ("authorization.k8s.io/v1", "LocalSubjectAccessReview"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("autoscaling/v1", "Scale"),
        ("batch/v1", "CronJob"),
        ("batch/v1", "Job"),
        ("coordination.k8s.io/v1", "Lease"),
        ("example.com/v1", "DeleteOptions"),
        ("events.k8s.io/v1", "Event"),
    ];
    /// So deep objects of chance nest; schemas have no end of their own.
    const DEPTH: usize = 9;
    /// So many objects of each kind are made.
    const OBJECTS: usize = 12;

    /// Makes objects by chance.
    struct Chance<'a> {
        table: &'a FieldTable,
        rng: Rng,
    }

    impl Chance<'_> {
        fn message(&mut self, message: &str, depth: usize) -> Value {
            let table = self.table;
            let known = table.message(message).unwrap_or_else(|| panic!("no message {message}"));
            let mut members = Map::new();
            for field in table.fields(known) {
                // A few of many, further down.
                if depth > DEPTH || (depth > 2 && self.rng.usize(..depth) > 1) {
                    continue;
                }
                let value = self.field(field, depth);
                members.insert(field.name.clone(), value);
            }
            Value::Object(members)
        }

        fn field(&mut self, field: &Field, depth: usize) -> Value {
            let times = self.rng.usize(1..3);
            match field.count {
                FieldCount::List => (0..times).map(|_| self.value(&field.of, depth)).collect(),
                FieldCount::Map => {
                    let one = |n: usize| (format!("key-{n}"), self.value(&field.of, depth));
                    Value::Object((0..times).map(one).collect())
                }
                FieldCount::One | FieldCount::Inline => self.value(&field.of, depth),
            }
        }

        fn value(&mut self, of: &str, depth: usize) -> Value {
            let rng = &mut self.rng;
            match of {
                "string" => ["", "a", "é\u{1f600}", "long enough"][rng.usize(..4)].into(),
                "bytes" => ["", "eHl6", "/+8="][rng.usize(..3)].into(),
                "bool" => rng.bool().into(),
                "int32" => [0, 1, -1, i32::MAX, i32::MIN][rng.usize(..5)].into(),
                "int64" => [0, 7, -1, i64::MAX, i64::MIN][rng.usize(..5)].into(),
                "double" => [0.0, 1.5, -2e-7, 1e21][rng.usize(..4)].into(),
                "Time" => "2026-01-02T03:04:05Z".into(),
                "MicroTime" => "2026-01-02T03:04:05.678900Z".into(),
                "Quantity" => ["0", "100m", "1Gi", "12e6"][rng.usize(..4)].into(),
                "IntOrString" => {
                    [json!(0), json!(8080), json!(""), json!("http")][rng.usize(..4)].clone()
                }
                "FieldsV1" => json!({"f:metadata": {"f:labels": {".": {}}}}),
                "RawExtension" => json!({"apiVersion": "v1", "kind": "Foo", "n": [1, 2.5, null]}),
                "JSON" => {
                    [json!(0), json!("a"), json!({"a": [true]}), json!([])][rng.usize(..4)].clone()
                }
                "ExtraValue" => json!(["a", "b"]),
                "JSONSchemaPropsOrArray" if rng.bool() => {
                    json!([self.message("JSONSchemaProps", depth + 2), {"type": "string"}])
                }
                "JSONSchemaPropsOrStringArray" if rng.bool() => json!(["a", "b"]),
                "JSONSchemaPropsOrBool" if rng.bool() => rng.bool().into(),
                _ if of.starts_with("JSONSchemaProps") => {
                    self.message("JSONSchemaProps", depth + 2)
                }
                message => self.message(message, depth + 1),
            }
        }
    }

    /// Whether Go writes this down only because the member is always there.
    fn is_nothing(value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Object(members) => members.values().all(is_nothing),
            Value::Bool(true) | Value::Array(_) => false,
        }
    }

    /// Where two values part. What is always there in Go is filled in later.
    fn part(table: &FieldTable, of: &str, go: &Value, ours: &Value, path: &str) -> Option<String> {
        let differs = || Some(format!("{path}: Go has {go}, we have {ours}"));
        match (go, ours) {
            (Value::Object(go), Value::Object(ours)) => {
                let message = table.message(of);
                let unknown = ours.keys().find(|name| !go.contains_key(*name));
                if let Some(name) = unknown {
                    return Some(format!("{path}.{name}: only we have {}", ours[name]));
                }
                go.iter().find_map(|(name, value)| {
                    let path = format!("{path}.{name}");
                    let field = message.and_then(|message| table.field(message, name));
                    let field = field.map(|(field, _)| field);
                    let of = field.map_or(of, |field| field.of.as_str());
                    match ours.get(name) {
                        Some(own) => part(table, of, value, own, &path),
                        None if name == "apiVersion" || name == "kind" => None,
                        None => {
                            let is_always =
                                field.is_some_and(|field| field.presence == Presence::Always);
                            let is_left_out = is_always && is_nothing(value);
                            (!is_left_out).then(|| format!("{path}: only Go has {value}"))
                        }
                    }
                })
            }
            (Value::Array(go_items), Value::Array(items)) if go_items.len() == items.len() => {
                let mut pairs = go_items.iter().zip(items).enumerate();
                pairs.find_map(|(at, (go, ours))| {
                    part(table, of, go, ours, &format!("{path}[{at}]"))
                })
            }
            (Value::Number(number), Value::Number(own)) if number.as_f64() == own.as_f64() => None,
            _ if go == ours => None,
            _ => differs(),
        }
    }

    #[test]
    fn what_go_encodes_is_read() {
        let is_required = std::env::var_os("REQUIRE_CONTROL_PLANE").is_some();
        if let Err(error) = Programs::protobuf()
            && error.is::<Missing>()
            && !is_required
        {
            eprintln!("what Go encodes needs a program: {error}");
            return;
        }
        let table = FieldTable::parse(FIELDS).unwrap();
        let seed = std::env::var("ORACLE_SEED").map_or(0, |seed| seed.parse().unwrap());
        let mut chance = Chance { table: &table, rng: Rng::with_seed(seed) };
        for (api_version, kind) in KINDS {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let message = table.kind(group, kind).unwrap().to_owned();
            for _ in 0..OBJECTS {
                let mut object = chance.message(&message, 0);
                object["apiVersion"] = api_version.into();
                object["kind"] = kind.into();
                let encoded = encode(&object.to_string()).unwrap();
                let ours = read_protobuf(&encoded.protobuf, &table).unwrap();
                assert_eq!(ours["kind"], kind);
                if let Some(difference) = part(&table, &message, &encoded.json, &ours, kind) {
                    panic!("seed {seed}: {difference}");
                }
            }
        }
    }
}
