//! collector: its recording can be served again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::folder::Folder;
use crate::recording::Recording;
use crate::world::{Cluster, Program, block_on, eventually, run};

const SECRET: &str = "correct horse battery staple";
/// The password in base64.
const ENCODED: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
const KINDS: &str = "deploy,ConfigMap,secrets,jars.example.org,no,configmaps";
/// Strings that YAML parses as something else, unless they are quoted.
const HOSTILE: [&str; 14] = [
    "no",
    "1e3",
    "0x1f",
    "~",
    "null",
    "---\na: b\n...\n",
    "- a",
    "a: b # c",
    "  two\n lines\n\n",
    "\ttab",
    "\u{85}\u{2028}\u{feff}",
    "{{ a }}",
    "'\"`\\",
    "2026-01-01T00:00:00Z",
];

/// Creates an object of any kind, in the namespace `recorded` or cluster-scoped.
async fn create(client: &Client, plural: &str, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("a kind")?;
    let kind = kube::core::GroupVersionKind::try_from(types)?;
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    eventually(async || Ok(api.create(&PostParams::default(), &object).await?)).await
}

/// Creates a namespace with several kinds of objects, and one that must not be recorded.
async fn fill(cluster: &Cluster) -> Result<()> {
    let client = &cluster.client;
    for name in ["recorded", "other"] {
        let metadata = json!({"name": name, "labels": {"color": "red"}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        create(client, "namespaces", namespace).await?;
    }
    let named = |name: &str| json!({"name": name, "namespace": "recorded"});
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": named("web"),
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a:1"}]},
        }},
    });
    create(client, "deployments", deployment).await?;
    let texts: BTreeMap<String, &str> =
        HOSTILE.iter().enumerate().map(|(at, text)| (format!("text-{at}"), *text)).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("texts"), "data": texts,
    });
    create(client, "configmaps", map.clone()).await?;
    let mut elsewhere = map;
    elsewhere["metadata"] = json!({"name": "not-recorded", "namespace": "other"});
    create(client, "configmaps", elsewhere).await?;
    let mut metadata = named("password");
    metadata["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": SECRET, "kept": "yes"});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "stringData": {"password": SECRET},
    });
    create(client, "secrets", secret).await?;
    let login = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": named("registry"),
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": format!("{{\"auths\": {{\"a\": {SECRET:?}}}}}")},
    });
    create(client, "secrets", login).await?;
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"size": {"type": "integer"}},
    }}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "jars.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "jars", "kind": "Jar"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    create(client, "customresourcedefinitions", definition).await?;
    let jar = json!({
        "apiVersion": "example.org/v1", "kind": "Jar", "metadata": named("jam"),
        "spec": {"size": 3},
    });
    let jar = create(client, "jars", jar).await?;
    let mut metadata = named("lid");
    metadata["ownerReferences"] = json!([{
        "apiVersion": "example.org/v1", "kind": "Jar", "name": "jam", "uid": jar.uid(),
    }]);
    let lid = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    create(client, "configmaps", lid).await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rack-1"}});
    create(client, "nodes", node).await?;
    if !cluster.is_real {
        let metadata = named("kube-root-ca.crt");
        let certificates = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"ca.crt": "-----BEGIN CERTIFICATE-----\n"},
        });
        // Some servers create this ConfigMap themselves.
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "recorded");
        if maps.get_opt("kube-root-ca.crt").await?.is_none() {
            create(client, "configmaps", certificates).await?;
        }
    }
    Ok(())
}

/// The files of a directory, by name.
fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name that is no text")?;
        Ok((name, std::fs::read_to_string(entry.path())?))
    });
    entries.collect()
}

/// The objects, without the fields that another server sets again.
fn objects(files: &BTreeMap<String, String>) -> Result<BTreeMap<&str, Value>> {
    let yaml = files.iter().filter(|(name, _)| name.ends_with(".yaml"));
    let objects = yaml.map(|(name, text)| {
        let mut object: Value = serde_saphyr::from_str(text)?;
        let metadata = object["metadata"].as_object_mut().context("metadata")?;
        for field in ["creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        if object["kind"] == "CustomResourceDefinition" {
            // The server sets the status and the uid of a definition.
            object["status"].take();
            object["metadata"]["uid"].take();
        }
        Ok((name.as_str(), object))
    });
    objects.collect()
}

async fn record(kubeconfig: &Path, folder: &Path, more: &[&str]) -> Result<String> {
    let folder = folder.display().to_string();
    let mut arguments = vec!["--namespace", "recorded", "--directory", &folder];
    arguments.extend(["--kind", KINDS, "--kind", "deployments.apps"]);
    arguments.extend(more);
    let (is_good, printed, errors) = run("collector", kubeconfig, &arguments).await?;
    ensure!(is_good, "{printed}{errors}");
    Ok(printed)
}

pub async fn is_served_again(cluster: &Cluster) -> Result<()> {
    fill(cluster).await?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "recorded");
    let certificates =
        eventually(async || Ok(maps.get("kube-root-ca.crt").await?.data.context("data")?)).await?;

    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let printed = record(&cluster.kubeconfig, &first, &["--note", "recordings"]).await?;
    let lines: Vec<&str> = printed.lines().collect();
    // A kind that is named twice is recorded once.
    let counts = ["1 deployments.apps", "2 configmaps", "2 secrets", "1 jars.example.org"];
    ensure!(lines.len() == 6 && lines[..4] == counts, "{printed}");
    let recorded = files(&first)?;
    let expected = [
        "ca.crt",
        "configmaps_recorded_lid.yaml",
        "configmaps_recorded_texts.yaml",
        "customresourcedefinitions.apiextensions.k8s.io_jars.example.org.yaml",
        "deployments.apps_recorded_web.yaml",
        "jars.example.org_recorded_jam.yaml",
        "namespaces_recorded.yaml",
        "nodes_rack-1.yaml",
        "secrets_recorded_password.yaml",
        "secrets_recorded_registry.yaml",
    ];
    ensure!(recorded.keys().eq(&expected), "{:?}", recorded.keys());
    ensure!(recorded["ca.crt"] == certificates["ca.crt"]);
    for (name, text) in &recorded {
        for secret in [SECRET, ENCODED, "managedFields", "resourceVersion"] {
            ensure!(!text.contains(secret), "{name}: {text}");
        }
    }
    let password: Value = serde_saphyr::from_str(&recorded["secrets_recorded_password.yaml"])?;
    ensure!(password["data"] == json!({"password": "e30="}), "{password}");
    ensure!(password["metadata"]["annotations"] == json!({"kept": "yes"}), "{password}");
    let note = maps.get("recordings").await?.data.context("data")?;
    let kinds = "deployments.apps,configmaps,secrets,jars.example.org,nodes";
    ensure!(note["kinds"] == kinds && note["recorded"].ends_with('Z'), "{note:?}");

    // A server loads the directory, and a recording of that server is the same.
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    command.args(["--standalone", "--secure-port", "0", "--load"]).arg(&first);
    command.env("TMPDIR", folder.path()).env_remove("RUST_LOG");
    let mut server = Program::start(&command)?;
    let kubeconfig = server.prints("export KUBECONFIG=").await?;
    record(Path::new(&kubeconfig), &second, &[]).await?;
    let again = files(&second)?;
    let (before, after) = (objects(&recorded)?, objects(&again)?);
    ensure!(before.keys().eq(after.keys()), "{:?}", after.keys());
    for (name, object) in &before {
        ensure!(&after[name] == object, "{name}: {object:#}\n{:#}", after[name]);
    }

    // With `--secret keep` the values are written.
    let third = folder.path().join("third");
    record(&cluster.kubeconfig, &third, &["--secret", "keep"]).await?;
    ensure!(files(&third)?["secrets_recorded_password.yaml"].contains(ENCODED));
    Ok(())
}

/// A Recording selects the objects to record. The cluster validates it against the rules of its kind.
pub async fn has_rules(cluster: &Cluster) -> Result<()> {
    let client = &cluster.client;
    let named = json!({"name": "ruled"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": named});
    create(client, "namespaces", namespace).await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("recording").display().to_string();
    let arguments = ["--namespace", "ruled", "--recording", "nightly", "--directory", &path];
    // From then on, the cluster serves the kind.
    let (is_good, _, errors) = run("collector", &cluster.kubeconfig, &arguments).await?;
    let expected = "Error: --recording nightly: there is no such Recording\n";
    ensure!(!is_good && errors == expected, "{errors}");

    let recordings: Api<Recording> = Api::namespaced(client.clone(), "ruled");
    let invalid = r#"Recording.collector.example.com "nightly" is invalid: "#;
    let refused = |answer: kube::Result<Recording>, cause: &str| match answer {
        Err(kube::Error::Api(status)) if status.message == format!("{invalid}{cause}") => Ok(()),
        other => anyhow::bail!("{other:?}, not {cause}"),
    };
    let mut nightly: Recording =
        serde_saphyr::from_str(include_str!("../../examples/collector/nightly.yaml"))?;
    let reason = nightly.spec.reason.take();
    let needed = "spec.reason: Required value: is needed where the values of Secrets are kept";
    refused(recordings.create(&PostParams::default(), &nightly).await, needed)?;
    nightly.spec.reason = reason;
    nightly.spec.kinds = ["no", "secrets", "no"].map(str::to_owned).to_vec();
    let twice = "spec.kinds: Invalid value: names a kind twice";
    refused(recordings.create(&PostParams::default(), &nightly).await, twice)?;
    nightly.spec.kinds.pop();
    recordings.create(&PostParams::default(), &nightly).await?;
    let without = Patch::Merge(json!({"spec": {"reason": null}}));
    let changed = recordings.patch("nightly", &PatchParams::default(), &without).await;
    refused(changed, needed)?;

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "password", "namespace": "ruled"},
        "stringData": {"password": SECRET},
    });
    create(client, "secrets", secret).await?;
    let (is_good, printed, errors) = run("collector", &cluster.kubeconfig, &arguments).await?;
    ensure!(is_good && printed.contains("1 secrets\n"), "{printed}{errors}");
    let recorded = files(&folder.path().join("recording"))?;
    ensure!(recorded["secrets_ruled_password.yaml"].contains(ENCODED), "{recorded:?}");
    Ok(())
}

pub async fn names_bad_flags(cluster: &Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let new = folder.path().join("new").display().to_string();
    let full = folder.path().join("full");
    std::fs::create_dir(&full)?;
    std::fs::write(full.join("mine.yaml"), "mine")?;
    let full = full.display().to_string();
    let cases: [(&[&str], &str); 8] = [
        (&["--kind", "nope", "--directory", &new], "--kind nope: the cluster serves no such kind"),
        (&["--kind", "pods.apps", "--directory", &new], "--kind pods.apps: the cluster serves no"),
        (&["--kind", "pods,,", "--directory", &new], "--kind : the cluster serves no such kind"),
        (&["--kind", "tokenreviews", "--directory", &new], "--kind tokenreviews: objects of this"),
        (&["--kind", "pods", "--directory", &full], "--directory {full}: is not empty"),
        (
            &["--kind", "pods", "--directory", &new, "--namespace", "nowhere"],
            "--namespace nowhere: ",
        ),
        (&["--kind", "pods", "--directory", &new, "--namespace", "../x"], "'--namespace <NAME>'"),
        (&["--directory", &new], "--kind <KIND>"),
    ];
    for (arguments, expected) in cases {
        let (is_good, printed, errors) = run("collector", &cluster.kubeconfig, arguments).await?;
        let expected = expected.replace("{full}", &full);
        ensure!(!is_good && errors.contains(&expected), "{arguments:?}: {printed}{errors}");
        ensure!(!Path::new(&new).exists(), "{arguments:?} has written something");
    }
    ensure!(std::fs::read_to_string(Path::new(&full).join("mine.yaml"))? == "mine");
    Ok(())
}

pub fn needs_a_cluster() -> Result<()> {
    block_on(async {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let new = folder.path().join("new").display().to_string();
        let arguments = ["--kind", "pods", "--directory", &new];
        let (is_good, _, errors) = run("collector", &kubeconfig, &arguments).await?;
        ensure!(!is_good && errors.lines().count() == 1, "{errors}");
        ensure!(errors.contains("KUBECONFIG") && errors.contains("No such file"), "{errors}");
        // No program listens on a port that was free a moment ago.
        let port = test_cluster::free_port()?;
        let cluster = json!({"server": format!("http://127.0.0.1:{port}")});
        let config = test_cluster::kubeconfig(&cluster, &json!({}));
        std::fs::write(&kubeconfig, config.to_string())?;
        let (is_good, _, errors) = run("collector", &kubeconfig, &arguments).await?;
        ensure!(!is_good && errors.lines().count() == 1, "{errors}");
        ensure!(errors.starts_with("Error: asking the cluster for its kinds: "), "{errors}");
        ensure!(errors.contains("Connection refused"), "{errors}");
        Ok(())
    })
}

fn object(resource: &ApiResource, name: &str, data: Value) -> DynamicObject {
    let object = DynamicObject::new(name, resource).data(data);
    DynamicObject { types: object.types.clone(), ..object }
}

/// Each object has its own file in the directory, whatever its name.
pub fn stays_in_its_folder() -> Result<()> {
    let outside = tempfile::tempdir()?;
    let path = outside.path().join("folder");
    let resource = ApiResource::erase::<Namespace>(&());
    let long = "x".repeat(253);
    let names = [
        "../escaped",
        "..",
        ".",
        "/etc/passwd",
        "a/b",
        "a_b",
        "A",
        "a",
        "system:node",
        "%2e",
        "é",
        "a\0b",
        "con",
        "a\n",
        &long,
        &(long.clone() + "y"),
    ];
    let mut objects: Vec<_> =
        names.iter().map(|name| (resource.clone(), object(&resource, name, json!({})))).collect();
    // The namespace may contain the same characters as the name.
    let mut inside = object(&resource, "b", json!({}));
    inside.metadata.namespace = Some("../a".to_owned());
    objects.push((resource, inside));
    let written = Folder::open(&path)?.write(&objects, None)?;
    ensure!(written == objects.len(), "{written} files");
    ensure!(files(&path)?.len() == objects.len());
    let found: Vec<_> = std::fs::read_dir(outside.path())?.collect::<Result<_, _>>()?;
    ensure!(found.len() == 1, "{found:?}");
    ensure!(Folder::open(&path).is_err(), "the folder is full");
    Ok(())
}

pub fn writes_what_it_read() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let resource = ApiResource::erase::<ConfigMap>(&());
    let mut values: BTreeMap<&str, Value> =
        HOSTILE.iter().map(|text| (*text, json!(text))).collect();
    let numbers = json!([1, -1, 0.1, 1e300, u64::MAX, i64::MIN, true, null, [], {}, [[]], ""]);
    values.insert("numbers", numbers);
    let object = object(&resource, "a", json!({"data": values}));
    Folder::open(folder.path())?.write(&[(resource, object.clone())], None)?;
    let files = files(folder.path())?;
    let read: Value = serde_saphyr::from_str(&files["configmaps_a.yaml"])?;
    ensure!(read == serde_json::to_value(&object)?, "{read:#}");
    Ok(())
}
