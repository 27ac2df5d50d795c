//! Compares files of the repository with the output of the program.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::path::Path;

use aggregated_apiserver::commands::{DeployedStore, ManifestOptions};
use serde_json::{Value, json};

#[test]
fn app_yaml_equals_the_generated_manifests() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("app.yaml");
    let kept = std::fs::read_to_string(file).unwrap();
    let printed = farm_operator::server().manifests(&ManifestOptions::default()).unwrap();
    assert!(kept == printed, "write it anew: cargo run -- manifests > app.yaml");
}

#[test]
fn the_chart_has_the_same_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [kept, of_chart] = ["app.yaml", "chart/files/manifests.yaml"]
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap());
    assert!(kept == of_chart, "copy it: cp app.yaml chart/files/manifests.yaml");
}

fn default_manifests() -> (String, Vec<Value>) {
    let printed = farm_operator::server().manifests(&ManifestOptions::default()).unwrap();
    let documents = serde_saphyr::from_multiple(&printed).unwrap();
    (printed, documents)
}

/// The rules of all ClusterRoles.
fn cluster_rules(documents: &[Value]) -> Vec<Value> {
    let roles = documents.iter().filter(|object| object["kind"] == "ClusterRole");
    roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()).collect()
}

/// kube-apiserver verifies the server's certificate with a CA that the server generates and writes to its APIServices.
#[test]
fn api_services_are_first_and_the_server_sets_their_ca_bundle() {
    let (printed, documents) = default_manifests();
    let services: Vec<&Value> =
        documents.iter().take_while(|object| object["kind"] == "APIService").collect();
    let names: Vec<&Value> = services.iter().map(|service| &service["metadata"]["name"]).collect();
    assert_eq!(names, ["v1.farm.example.com", "v1alpha.farm.example.com"]);
    let rules = cluster_rules(&documents);
    let rule = rules.iter().find(|rule| rule["resources"] == json!(["apiservices"])).unwrap();
    assert_eq!((&rule["resourceNames"], &rule["verbs"]), (&json!(names), &json!(["get", "patch"])));
    for service in services {
        // A `caBundle` here would replace that of the server each time that the manifests are applied.
        assert_eq!(service["spec"].get("caBundle"), None, "{service}");
    }
    assert!(!printed.contains("insecureSkipTLSVerify"));
}

/// Permissions on all objects of a kind are read-only: they are for sources and namespaces.
#[test]
fn cluster_wide_permissions_on_other_kinds_are_read_only() {
    let (_, documents) = default_manifests();
    let mut rules = cluster_rules(&documents);
    rules.retain(|rule| rule["apiGroups"] != json!(["farm.example.com"]));
    assert!(rules.iter().any(|rule| rule["resources"] == json!(["pods"])), "{rules:?}");
    for rule in rules {
        let verbs = rule["verbs"].as_array().unwrap();
        let reads = verbs.iter().all(|verb| ["get", "list", "watch"].iter().any(|v| verb == v));
        assert!(reads || rule["resourceNames"].is_array(), "{rule}");
    }
}

#[test]
fn manifests_for_a_sqlite_store_only_replace_deployment_by_stateful_set() {
    let printed = |store| {
        let options = ManifestOptions { store, ..ManifestOptions::default() };
        let printed = farm_operator::server().manifests(&options).unwrap();
        serde_saphyr::from_multiple::<Value>(&printed).unwrap()
    };
    let (memory, sqlite) = (printed(DeployedStore::Memory), printed(DeployedStore::Sqlite));
    assert_eq!(memory.len(), sqlite.len());
    let pairs = memory.into_iter().zip(sqlite);
    let changed: Vec<_> = pairs.filter(|(memory, sqlite)| memory != sqlite).collect();
    let [(deployment, set)] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!((&deployment["kind"], &set["kind"]), (&"Deployment".into(), &"StatefulSet".into()));
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOncePod"]));
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let mount = &container["volumeMounts"][0];
    assert_eq!(mount["name"], claim["metadata"]["name"]);
    // A subdirectory of the volume, because the volume itself may contain other files.
    assert_eq!(container["env"][0]["name"], "DATA_DIR");
    let folder = container["env"][0]["value"].as_str().unwrap();
    assert!(Path::new(folder).starts_with(mount["mountPath"].as_str().unwrap()), "{folder}");
}

#[test]
fn manifests_for_an_etcd_store_have_three_replicas_and_client_certificates() {
    let printed = |etcd_servers: &[&str]| {
        let etcd_servers = etcd_servers.iter().map(|&server| server.to_owned()).collect();
        let store = DeployedStore::Etcd;
        let options = ManifestOptions { store, etcd_servers, ..ManifestOptions::default() };
        let printed = farm_operator::server().manifests(&options);
        printed.map(|text| serde_saphyr::from_multiple::<Value>(&text).unwrap())
    };
    let refused = printed(&[]).unwrap_err();
    assert_eq!(refused.to_string(), "--etcd-servers contains no URL");
    let of_kind = |documents: &[Value], kind: &str| {
        documents.iter().find(|object| object["kind"] == kind).cloned().unwrap()
    };
    let plain = printed(&["http://etcd:2379"]).unwrap();
    let deployment = of_kind(&plain, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let budget = of_kind(&plain, "PodDisruptionBudget");
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["env"],
        json!([{"name": "ETCD_SERVERS", "value": "http://etcd:2379"}])
    );
    assert!(pod["volumes"].is_null());
    let trusted = of_kind(&printed(&["https://a:1", "https://b:1"]).unwrap(), "Deployment");
    let pod = &trusted["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env[0]["value"], "https://a:1,https://b:1");
    let folder = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let files: Vec<&str> = env[1..].iter().filter_map(|one| one["value"].as_str()).collect();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"].map(|file| format!("{folder}/{file}")));
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "farm-operator-etcd");
}

#[test]
fn the_image_is_built_from_every_crate() {
    let members = include_str!("../Cargo.toml").lines().find(|line| line.starts_with("members"));
    let members = members.unwrap().split('"').skip(1).step_by(2).filter(|member| *member != ".");
    let members: Vec<&str> = members.collect();
    assert!(members.contains(&"crates/aggregated-apiserver"), "{members:?}");
    for member in members {
        let folder = member.split('/').next().unwrap();
        let copied = format!("COPY {folder} {folder}\n");
        assert!(include_str!("../Dockerfile").contains(&copied), "{copied}");
    }
}
