//! The registration of the server in the cluster.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::world::{API_SERVICES, World};

pub fn becomes_available(world: &mut World) -> Result<()> {
    world.wait_available()?;
    for api_service in API_SERVICES {
        let spec = world.kubectl(["get", "apiservice", api_service, "-o", "json"]).run()?;
        let spec: Value = serde_json::from_str(&spec)?;
        ensure!(spec["spec"]["caBundle"].is_string(), "the server sets the CA: {spec}");
        ensure!(spec["spec"]["insecureSkipTLSVerify"].is_null(), "TLS is verified: {spec}");
    }
    Ok(())
}

pub fn discovery_names_the_kinds(world: &mut World) -> Result<()> {
    let group = "--api-group=farm.example.com";
    let printed = world.kubectl(["api-resources", group, "--no-headers", "-o", "wide"]).run()?;
    let rows: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        [
            "farmnodes",
            "fn",
            "farm.example.com/v1alpha",
            "false",
            "FarmNode",
            "get,list,watch",
            "farm",
        ],
        ["farmpods", "fp", "farm.example.com/v1alpha", "true", "FarmPod", "get,list,watch", "farm"],
        [
            "farmworkloads",
            "fw",
            "farm.example.com/v1alpha",
            "true",
            "FarmWorkload",
            "get,list,watch",
            "farm",
        ],
        [
            "llamas",
            "ll",
            "farm.example.com/v1",
            "true",
            "Llama",
            "delete,deletecollection,get,list,patch,create,update,watch",
            "farm",
        ],
    ];
    ensure!(rows == expected, "{printed}");
    let of_both = world.kubectl(["get", "--raw", "/apis/farm.example.com"]).run()?;
    let of_both: Value = serde_json::from_str(&of_both)?;
    ensure!(of_both["preferredVersion"]["version"] == "v1", "{of_both}");
    // An unavailable aggregated server would cause a warning for every command.
    let namespaces = world.kubectl(["get", "ns"]).output()?;
    ensure!(namespaces.succeeded && namespaces.errors.is_empty(), "{}", namespaces.errors);
    Ok(())
}

pub fn openapi_is_published(world: &mut World) -> Result<()> {
    // If the server was unavailable at first, kube-apiserver retries after a minute.
    world.eventually(|| {
        let openapi = world.kubectl(["get", "--raw", "/openapi/v3"]).run()?;
        ensure!(openapi.contains("apis/farm.example.com/v1alpha"), "we are not in /openapi/v3");
        Ok(())
    })?;
    let document = "/openapi/v3/apis/farm.example.com/v1alpha";
    let document = world.kubectl(["get", "--raw", document]).run()?;
    ensure!(document.contains("\"openapi\":\"3.0.0\""), "{document}");
    Ok(())
}

pub fn kubectl_explains(world: &mut World) -> Result<()> {
    let check = |arguments: &[&str], expected: &[&str]| -> Result<()> {
        // kube-apiserver requests the OpenAPI documents once a minute.
        let explained = world.eventually(|| {
            let mut all = vec!["explain"];
            all.extend(arguments);
            world.control_plane.kubectl(all).run()
        })?;
        for text in expected {
            ensure!(explained.contains(text), "no {text:?} in {explained}");
        }
        Ok(())
    };
    let older = "--api-version=farm.example.com/v1alpha";
    check(
        &["llamas.spec", "--recursive", older],
        &["KIND:       Llama", "weight", "<number> -required-", "height"],
    )?;
    check(&["llamas.spec.weight"], &["VERSION:    v1\n", "in kilograms, as a quantity"])?;
    check(&["llamas.metadata.name"], &["FIELD: name <string>", "Name must be unique"])?;
    check(&["farmpods.status.lastEnd"], &["exitCode", "for example `OOMKilled`"])?;
    check(&["farmpods.status.why.code"], &["FIELD: code <string>", "The cause in one word"])?;
    check(
        &["llamas.spec.weight", "--output=plaintext-openapiv2", older],
        &["FIELD:    weight <number>", "The weight in kilograms"],
    )
}

/// `kubectl kustomize` prints the same objects as `app.yaml`, in the same order.
pub fn kustomize_prints_the_manifests(world: &mut World) -> Result<()> {
    let root = env!("CARGO_MANIFEST_DIR");
    let printed = world.kubectl(["kustomize", root]).run()?;
    let documents = |text: &str| serde_saphyr::from_multiple::<Value>(text);
    let kept = std::fs::read_to_string(format!("{root}/app.yaml"))?;
    ensure!(documents(&printed)? == documents(&kept)?, "{printed}");
    Ok(())
}
