//! Compares pruning with generated objects: a seed yields a definition with random schemas, and objects with fields
//! that the schemas do not declare. Two servers must store the same objects and return the same warnings.

mod values;

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::{Map, Value, json};

use self::values::{schema, value};
use crate::answer::Answer;
use crate::rules::served;
use crate::server::{Sent, Server};

/// The number of schemas in a definition.
const SCHEMAS: usize = 24;
/// The largest depth of a schema.
const DEPTH: usize = 4;
/// The number of objects of a definition.
const OBJECTS: usize = 60;
/// The number of values in an object, each of a random schema.
const VALUES: usize = 3;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "pruning.example.com";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Compares the objects of a seed. Returns the number of objects, and the differences as text.
pub async fn compare(seed: u64, reference: &Server, other: &Server) -> Result<(usize, String)> {
    let mut rng = Rng::with_seed(seed);
    let plural = format!("seeds{seed}");
    let schemas = accepted(&mut rng, reference).await?;
    let definition = definition(&plural, &schemas).to_string();
    for server in [reference, other] {
        let created = server.demand("POST", DEFINITIONS, Some(definition.clone())).await;
        created.with_context(|| definition.clone())?;
    }
    let compared = objects(&mut rng, &plural, &schemas, reference, other).await;
    let path = format!("{DEFINITIONS}/{plural}.{GROUP}");
    for server in [reference, other] {
        server.demand_or_gone("DELETE", &path, None).await?;
    }
    Ok((OBJECTS, compared?))
}

/// Schemas that the reference accepts.
async fn accepted(rng: &mut Rng, reference: &Server) -> Result<Vec<Value>> {
    let path = format!("{DEFINITIONS}?dryRun=All");
    let mut schemas = Vec::new();
    let mut refused = 0;
    while schemas.len() < SCHEMAS {
        let mut next = schemas.clone();
        next.push(schema(rng, DEPTH));
        let body = definition("candidates", &next).to_string();
        let answer = ask(reference, "POST", &path, "application/json", Some(body)).await?;
        match answer.status {
            201 => schemas = next,
            _ => refused += 1,
        }
        ensure!(refused < 20 * SCHEMAS, "no schema is accepted: {}", answer.body);
    }
    Ok(schemas)
}

/// Returns a definition whose versions differ at the root: `v1` prunes unknown fields there, `v2` preserves them.
fn definition(plural: &str, schemas: &[Value]) -> Value {
    let properties: Map<String, Value> =
        schemas.iter().enumerate().map(|(at, schema)| (format!("s{at}"), schema.clone())).collect();
    let root = json!({"type": "object", "properties": properties});
    let mut keeping = root.clone();
    keeping[PRESERVE] = json!(true);
    let version = |name: &str, schema: &Value| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": format!("Of{plural}")},
            "versions": [version("v1", &root), version("v2", &keeping)],
        },
    })
}

async fn objects(
    rng: &mut Rng,
    plural: &str,
    schemas: &[Value],
    reference: &Server,
    other: &Server,
) -> Result<String> {
    for server in [reference, other] {
        for version in ["v1", "v2"] {
            served(server, &format!("/apis/{GROUP}/{version}/{plural}")).await?;
        }
    }
    for number in 0..OBJECTS {
        let version = ["v1", "v2"][rng.usize(0..2)];
        let collection = format!("/apis/{GROUP}/{version}/{plural}");
        let name = format!("o{number}");
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": format!("Of{plural}"),
            "metadata": {"name": name},
        });
        for _ in 0..VALUES {
            let at = rng.usize(0..schemas.len());
            object[format!("s{at}")] = value(rng, Some(&schemas[at]), DEPTH + 1);
        }
        if rng.u32(0..4) == 0 {
            object["unknown"] = json!({"a": [{"b": null}]});
        }
        let validation = ["Ignore", "Warn", "Strict", "Warn"][rng.usize(0..4)];
        let query = format!("?fieldValidation={validation}&fieldManager=m");
        let body = object.to_string();
        let (method, path, media_type) = match rng.u32(0..3) {
            0 => {
                let path = format!("{collection}/{name}{query}&force=true");
                ("PATCH", path, "application/apply-patch+yaml")
            }
            _ => ("POST", format!("{collection}{query}"), "application/json"),
        };
        let sent = async |server| ask(server, method, &path, media_type, Some(body.clone())).await;
        let (there, here) = tokio::try_join!(sent(reference), sent(other))?;
        if comparable(&there) != comparable(&here) {
            return Ok(report(method, &path, &object, schemas, &there, &here));
        }
        // Reads the stored object in both versions.
        for version in ["v1", "v2"] {
            let path = format!("/apis/{GROUP}/{version}/{plural}/{name}");
            let read = async |server| ask(server, "GET", &path, "application/json", None).await;
            let (there, here) = tokio::try_join!(read(reference), read(other))?;
            if comparable(&there) != comparable(&here) {
                return Ok(report("GET", &path, &object, schemas, &there, &here));
            }
        }
    }
    Ok(String::new())
}

async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    media_type: &str,
    body: Option<String>,
) -> Result<Answer> {
    let headers = vec![("Content-Type".to_owned(), media_type.to_owned())];
    let (method, path) = (method.to_owned(), path.to_owned());
    server.ask(&Sent { method, path, headers, body, ..Sent::default() }).await
}

/// Returns the status, the warnings and the object without its metadata. Other rows compare the messages about invalid
/// objects. Here only decoding errors are compared word for word.
fn comparable(answer: &Answer) -> Value {
    let mut body = answer.body.clone();
    if let Some(members) = body.as_object_mut() {
        members.remove("metadata");
    }
    if answer.status >= 300 {
        let message = answer.body["message"].as_str().unwrap_or_default();
        body = match message.contains("decoding error") {
            true => message.into(),
            false => Value::Null,
        };
    }
    json!({"status": answer.status, "warnings": answer.warnings, "body": body})
}

/// Formats the difference, with the schemas of the values in the object.
fn report(
    method: &str,
    path: &str,
    object: &Value,
    schemas: &[Value],
    there: &Answer,
    here: &Answer,
) -> String {
    let mut report = format!("{method} {path}\n{object}\n");
    for (at, schema) in schemas.iter().enumerate() {
        let name = format!("s{at}");
        if object.get(&name).is_some() {
            let _ = writeln!(report, "  schema {name}: {schema}");
        }
    }
    for (name, answer) in [("kube-apiserver", there), ("ours", here)] {
        let _ = writeln!(report, "  {name}: {}", comparable(answer));
        let _ = writeln!(report, "    message: {}", answer.body["message"]);
    }
    report
}
