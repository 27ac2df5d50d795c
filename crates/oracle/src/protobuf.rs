//! Objects in the protobuf encoding of Go. A Go program reads JSON and returns the bytes that a typed client would
//! send.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use aggregated_apiserver::encoding::read_protobuf;
use aggregated_apiserver::types::Types;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use test_cluster::Programs;

/// An object that Go has decoded from JSON.
#[derive(Debug)]
pub struct Encoded {
    /// The object in protobuf, with the envelope that typed clients send.
    pub protobuf: Vec<u8>,
    /// The object in the JSON encoding of Go.
    pub json: Value,
}

/// The Go program, which is started at first use. It ends when its input is closed.
struct Encoder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

static ENCODER: Mutex<Option<Encoder>> = Mutex::new(None);

/// Returns the object that Go decodes from protobuf, as JSON.
///
/// # Errors
/// When the program cannot be built or started, or Go cannot decode the object.
pub fn read_by_go(protobuf: &[u8]) -> Result<Value> {
    let mut answer = ask(&json!({"protobuf": STANDARD.encode(protobuf)}))?;
    Ok(answer["json"].take())
}

/// Encodes an object that is given in JSON.
///
/// # Errors
/// When the program cannot be built or started, or the JSON does not fit the Go type of the object's kind.
pub fn encode(json: &str) -> Result<Encoded> {
    // The program reads one object per line.
    let json: Value = serde_json::from_str(json).context("a body in protobuf is given in JSON")?;
    let mut answer = ask(&json)?;
    let protobuf = STANDARD.decode(answer["protobuf"].as_str().unwrap_or_default())?;
    Ok(Encoded { protobuf, json: answer["json"].take() })
}

/// Sends a request to the Go program. The request and its response are one line of JSON each.
fn ask(question: &Value) -> Result<Value> {
    let mut encoder = ENCODER.lock().unwrap_or_else(PoisonError::into_inner);
    let encoder = match &mut *encoder {
        Some(encoder) => encoder,
        none => none.insert(Encoder::start()?),
    };
    writeln!(encoder.input, "{question}")?;
    let mut line = String::new();
    if encoder.output.read_line(&mut line)? == 0 {
        bail!("the encoder has ended: {:?}", encoder.child.wait()?);
    }
    let answer: Value = serde_json::from_str(&line)?;
    if let Some(error) = answer["error"].as_str() {
        bail!("Go does not read {question}: {error}");
    }
    Ok(answer)
}

/// The types of all groups.
pub const TABLE: &str = include_str!("../../standalone-apiserver/src/built_in/types.txt");

pub(crate) static TYPES: LazyLock<Types> =
    LazyLock::new(|| Types::parse(&[TABLE]).unwrap_or_default());

/// Decodes a protobuf response to JSON.
///
/// # Errors
/// When it cannot be decoded.
pub fn decode(bytes: &[u8]) -> Result<Value> {
    let mut value = read_protobuf(bytes, &TYPES).map_err(anyhow::Error::msg)?;
    // An empty list has no field for its items.
    if value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_null()
    {
        value["items"] = json!([]);
    }
    Ok(value)
}

/// Decodes the events of a watch in protobuf to JSON. Returns the events, and the bytes behind the last complete one.
///
/// # Errors
/// When an event cannot be decoded.
pub fn decode_events(mut bytes: &[u8]) -> Result<(Vec<Value>, &[u8])> {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        let Some((event, behind)) = rest.split_at_checked(length) else { break };
        bytes = behind;
        let (mut event_type, mut object) = (String::new(), Value::Null);
        for (number, field) in fields(event)? {
            match number {
                1 => event_type = String::from_utf8(field.to_vec())?,
                2 => {
                    let raw = fields(field)?;
                    let (_, raw) = raw.first().context("an event without an object")?;
                    object = decode(raw)?;
                }
                _ => {}
            }
        }
        events.push(json!({"type": event_type, "object": object}));
    }
    Ok((events, bytes))
}

/// Returns the fields of a message that only has strings and messages as fields.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        ensure!(tag & 7 == 2, "wire type {}", tag & 7);
        let length = usize::try_from(varint(&mut bytes)?)?;
        let (field, rest) = bytes.split_at_checked(length).context("it ends too early")?;
        bytes = rest;
        found.push((tag >> 3, field));
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().context("it ends too early")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    Ok(number)
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
    use std::sync::Arc;

    use super::*;
    use aggregated_apiserver::encoding::write_protobuf;
    use aggregated_apiserver::types::{GoType, Member, Presence, Type};
    use fastrand::Rng;
    use serde_json::Map;
    use test_cluster::unless_missing;

    /// The nesting depth of generated objects. Schemas can be recursive and have no end of their own.
    const DEPTH: usize = 8;
    /// The number of objects of each kind, unless `ORACLE_OBJECTS` sets another one.
    const OBJECTS: usize = 3;

    /// Generates random objects.
    struct Chance {
        rng: Rng,
    }

    impl Chance {
        fn message(&mut self, of: Type<'_>, depth: usize) -> Value {
            let mut members = Map::new();
            for (name, member) in of.members.iter() {
                // At greater depths only a few fields are set.
                if depth > DEPTH || (depth > 2 && self.rng.usize(..depth) > 1) {
                    continue;
                }
                // Go prints this field in JSON but does not encode it in protobuf.
                if member.number == 0 && member.embedded_structs.is_empty() {
                    continue;
                }
                let value = self.value(of.at(&member.of), depth);
                members.insert(name.to_owned(), value);
            }
            Value::Object(members)
        }

        fn value(&mut self, of: Type<'_>, depth: usize) -> Value {
            let rng = &mut self.rng;
            match of.go.unwrap() {
                GoType::String => ["", "a", "é\u{1f600}", "long enough"][rng.usize(..4)].into(),
                GoType::Bytes => ["", "eHl6", "/+8="][rng.usize(..3)].into(),
                GoType::Bool => rng.bool().into(),
                GoType::Int32 => [0, 1, -1, i32::MAX, i32::MIN][rng.usize(..5)].into(),
                GoType::Int64 => [0, 7, -1, i64::MAX, i64::MIN][rng.usize(..5)].into(),
                GoType::Float64 => [0.0, 1.5, -2e-7, 1e21][rng.usize(..4)].into(),
                GoType::Time => "2026-01-02T03:04:05Z".into(),
                GoType::MicroTime => "2026-01-02T03:04:05.678900Z".into(),

                GoType::Quantity => ["0", "100m", "1Gi", "12e6"][rng.usize(..4)].into(),
                GoType::IntOrString => {
                    [json!(0), json!(8080), json!(""), json!("http")][rng.usize(..4)].clone()
                }
                GoType::Json if of.name == "FieldsV1" => {
                    json!({"f:metadata": {"f:labels": {".": {}}}})
                }
                GoType::Json if of.name == "RawExtension" => {
                    json!({"apiVersion": "v1", "kind": "Foo", "n": [1, 2.5, null]})
                }
                GoType::Json => {
                    [json!(0), json!("a"), json!({"a": [true]}), json!([])][rng.usize(..4)].clone()
                }
                GoType::Strings => json!(["a", "b"]),
                GoType::SchemaOrArray if rng.bool() => {
                    json!([self.message(of.of_items().unwrap(), depth + 2), {"type": "string"}])
                }
                GoType::SchemaOrStrings if rng.bool() => json!(["a", "b"]),
                GoType::SchemaOrBool if rng.bool() => rng.bool().into(),
                GoType::SchemaOrArray | GoType::SchemaOrBool | GoType::SchemaOrStrings => {
                    self.message(of.of_items().unwrap(), depth + 2)
                }
                GoType::List => {
                    let times = rng.usize(1..3);
                    (0..times).map(|_| self.value(of.of_items().unwrap(), depth)).collect()
                }
                GoType::Map => {
                    let times = rng.usize(1..3);
                    let of = of.of_member("any").unwrap();
                    let one = |n: usize| (format!("key-{n}"), self.value(of, depth));
                    Value::Object((0..times).map(one).collect())
                }
                GoType::Struct => self.message(of, depth + 1),
            }
        }
    }

    /// Whether a value is a zero value, which Go only writes because the field is required.
    fn is_nothing(value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Object(members) => members.values().all(is_nothing),
            Value::Bool(true) | Value::Array(_) => false,
        }
    }

    /// Returns the first difference between two values. Zero values of fields that Go always writes are no difference.
    fn part(of: Option<Type<'_>>, go: &Value, ours: &Value, path: &str) -> Option<String> {
        let differs = || Some(format!("{path}: Go has {go}, we have {ours}"));
        match (go, ours) {
            (Value::Object(go), Value::Object(ours)) => {
                // The object of a watch event has no `apiVersion` and `kind` in the JSON of Go.
                let is_type = |name: &str| ["apiVersion", "kind"].contains(&name);
                let unknown = ours.keys().find(|name| !go.contains_key(*name) && !is_type(name));
                if let Some(name) = unknown {
                    return Some(format!("{path}.{name}: only we have {}", ours[name]));
                }
                go.iter().find_map(|(name, value)| {
                    let path = format!("{path}.{name}");
                    let member: Option<&Member> = of.and_then(|of| Some(of.member(name)?.0));
                    let of_member = of.and_then(|of| of.of_member(name).or(of.of_items()));
                    match ours.get(name) {
                        Some(own) => part(of_member, value, own, &path),
                        None if name == "apiVersion" || name == "kind" => None,
                        None => {
                            let is_always =
                                member.is_some_and(|member| member.presence == Presence::Required);
                            let is_left_out = is_always && is_nothing(value);
                            (!is_left_out).then(|| format!("{path}: only Go has {value}"))
                        }
                    }
                })
            }
            (Value::Array(go_items), Value::Array(items)) if go_items.len() == items.len() => {
                let of = of.and_then(|of| of.of_items());
                let mut pairs = go_items.iter().zip(items).enumerate();
                pairs.find_map(|(at, (go, ours))| part(of, go, ours, &format!("{path}[{at}]")))
            }
            (Value::Number(number), Value::Number(own)) if number.as_f64() == own.as_f64() => None,
            _ if go == ours => None,
            _ => differs(),
        }
    }

    #[test]
    fn go_and_this_server_read_the_protobuf_of_each_other() {
        if unless_missing(Programs::protobuf()).unwrap().is_none() {
            return;
        }
        let types = Arc::new(Types::parse(&[TABLE]).unwrap());
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
        let seed = number("ORACLE_SEED").unwrap_or(0);
        let objects = number("ORACLE_OBJECTS").map_or(OBJECTS, |objects| objects as usize);
        let mut chance = Chance { rng: Rng::with_seed(seed) };
        // Types that all groups share have no version of their own.
        let kinds: Vec<(&str, &str)> = types
            .kinds()
            .map(|(version, kind)| (if version.is_empty() { "v1" } else { version }, kind))
            .chain([("example.com/v1", "DeleteOptions")])
            .collect();
        assert!(kinds.len() > 100, "{kinds:?}");
        for (api_version, kind) in kinds {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let of = types.get(types.kind(group, version, kind).unwrap());
            for _ in 0..objects {
                // The elements of lists are generated at a greater depth, with fewer fields.
                let depth = if kind.ends_with("List") { 3 } else { 0 };
                let mut object = chance.message(of, depth);
                object["apiVersion"] = api_version.into();
                object["kind"] = kind.into();
                let encoded = encode(&object.to_string()).unwrap();
                let ours = read_protobuf(&encoded.protobuf, &types).unwrap();
                let difference = part(Some(of), &encoded.json, &ours, kind);
                assert_eq!(difference, None, "seed {seed}: {object}");
                // Go must decode our encoding to the object that it has encoded.
                let mut whole = encoded.json;
                whole["apiVersion"] = api_version.into();
                whole["kind"] = kind.into();
                let written = write_protobuf(&whole, &types).unwrap();
                let mut read = read_by_go(&written).unwrap();
                read["apiVersion"] = api_version.into();
                read["kind"] = kind.into();
                assert_eq!(read, whole, "seed {seed}: {object}");
            }
        }
    }
}
