//! Compares the validation of schemas: kube-apiserver validates a schema when a definition is created, our server
//! validates it at startup.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use aggregated_apiserver::{ApiServer, Kinds, StartError};
use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::server::{Sent, Server};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";

/// Compares every schema of `schemas.yaml`. Returns the differences as text.
pub async fn compare(reference: &Server) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas.yaml");
    let schemas: Vec<Value> = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    let mut report = String::new();
    for schema in schemas {
        let definition = definition(&schema);
        let there = said_by(reference, &definition).await?;
        let here = said_by_us(definition)?;
        if there != here {
            let _ = writeln!(report, "{schema}");
            for missing in there.difference(&here) {
                let _ = writeln!(report, "  only {} says {missing}", reference.name());
            }
            for more in here.difference(&there) {
                let _ = writeln!(report, "  only we say {more}");
            }
        }
    }
    Ok(report)
}

/// Returns a definition with the schema in its first version. A second version has another schema, so that
/// kube-apiserver does not report the errors at `spec.validation`.
fn definition(schema: &Value) -> Value {
    let version = |name: &str, storage: bool, schema: &Value| {
        let mut schema = schema.clone();
        let members = schema.as_object_mut();
        let fields = members.and_then(|members| members.remove("selectableFields"));
        let mut version = json!({"name": name, "served": true, "storage": storage});
        version["schema"] = json!({"openAPIV3Schema": schema});
        if let Some(fields) = fields {
            version["selectableFields"] = fields;
        }
        version
    };
    let plain = json!({"type": "object", "description": "another"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "samples.schemas.example.com"},
        "spec": {
            "group": "schemas.example.com",
            "scope": "Namespaced",
            "names": {"plural": "samples", "kind": "Sample"},
            "versions": [version("v1", true, schema), version("v2", false, &plain)],
        },
    })
}

async fn said_by(reference: &Server, definition: &Value) -> Result<BTreeSet<String>> {
    let sent = Sent {
        method: "POST".to_owned(),
        path: DEFINITIONS.to_owned(),
        body: Some(definition.to_string()),
        ..Sent::default()
    };
    let answer = reference.ask(&sent).await?;
    let causes = answer.body["details"]["causes"].as_array();
    if causes.is_none() && answer.status != 201 {
        anyhow::bail!("{definition}: {}", answer.body);
    }
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        without_numbers(&format!("{}: {}", part("field"), part("message")))
    };
    Ok(causes.into_iter().flatten().map(text).collect())
}

/// Removes the numbers from `selfType`, the type of `self`: kube-apiserver uses another number each time.
pub(crate) fn without_numbers(text: &str) -> String {
    const NAME: &str = "selfType";
    let mut parts = text.split(NAME);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + NAME + part.trim_start_matches(|char: char| char.is_ascii_digit())
    })
}

fn said_by_us(definition: Value) -> Result<BTreeSet<String>> {
    let definition = serde_json::from_value(definition).context("a definition")?;
    let server = ApiServer::new("samples", Kinds::new().crd(definition).allow_partial());
    match server.manifests(&aggregated_apiserver::commands::ManifestOptions::default()) {
        Ok(_) => Ok(BTreeSet::new()),
        Err(StartError::Kind { faults, .. }) => Ok(faults.into_iter().collect()),
        Err(error) => Err(error.into()),
    }
}
