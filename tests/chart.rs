//! The Helm chart. It renders the output of `farm-operator manifests`, rejects invalid values, and can be installed,
//! upgraded and removed in a real control plane.
//!
//! Helm is the program that `$HELM` names, or is built from the sources of Go's module proxy.

#[path = "control_plane/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use aggregated_apiserver::commands::{DeployedStore, ManifestOptions};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Programs};

use harness::{Group, Needs, Shared};

const TESTS: Group<Chart> = &[
    ("the_chart_renders_the_printed_manifests", it_says_what_the_manifests_say),
    ("every_value_of_the_chart_is_used", every_value_has_its_place),
    (
        "an_own_certificate_needs_no_permission_on_secrets",
        a_certificate_from_elsewhere_needs_no_right,
    ),
    ("invalid_values_are_rejected", values_that_make_no_sense_are_refused),
    ("alerts_and_dashboards_use_existing_metrics", what_is_watched_is_measured),
    ("the_chart_is_installed_upgraded_and_removed", it_is_installed_upgraded_and_removed),
];
const NAMESPACE: &str = "farm-operator";
/// The Kubernetes version of the control plane. A Helm that is built from sources knows no version.
const RELEASE: &str = "--kube-version=1.36.3";
/// The kinds of an installation that are not part of Kubernetes.
const OF_OTHERS: [&str; 4] = ["Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"];

fn main() {
    let needs = TESTS.iter().map(|(name, _)| (*name, no_helm as Needs));
    harness::run(&[TESTS], &needs.collect::<Vec<_>>());
}

/// The path of Helm, or the error and whether Helm is only missing. Computed once, because Helm may have to be built.
fn helm() -> &'static Result<PathBuf, (bool, String)> {
    static HELM: OnceLock<Result<PathBuf, (bool, String)>> = OnceLock::new();
    HELM.get_or_init(|| {
        Programs::helm()
            .map_err(|error| (error.is::<test_cluster::Missing>(), format!("{error:?}")))
    })
}

fn no_helm() -> Option<&'static str> {
    matches!(helm(), Err((true, _))).then_some("no Helm")
}

struct Chart {
    helm: PathBuf,
    control_plane: ControlPlane,
}

impl Shared for Chart {
    fn start(programs: &Programs) -> Result<Self> {
        let helm = helm().clone().map_err(|(_, why)| anyhow!("{why}"))?;
        Ok(Self { helm, control_plane: ControlPlane::start(programs, &[])? })
    }

    fn server_log(&self) -> String {
        "no server runs".to_owned()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("chart")
}

impl Chart {
    fn helm(&self, arguments: &[&str]) -> Result<String> {
        let home = self.control_plane.folder().join("helm");
        let mut command = Command::new(&self.helm);
        command.args(arguments).env("HELM_CACHE_HOME", &home).env("HELM_CONFIG_HOME", &home);
        command.env("HELM_DATA_HOME", &home).env("KUBECONFIG", self.control_plane.kubeconfig());
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {arguments:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The objects that the chart renders with these values.
    fn render(&self, namespace: &str, values: &Value) -> Result<Vec<Value>> {
        let file = self.control_plane.folder().join("values.json");
        fs::write(&file, values.to_string())?;
        let (folder, file) = (folder().display().to_string(), file.display().to_string());
        let template =
            ["template", "farm-operator", &folder, "-f", &file, "-n", namespace, RELEASE];
        let printed = self.helm(&template)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&printed)?;
        Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
    }
}

type ByName = BTreeMap<(String, String), Value>;

fn by_name(objects: Vec<Value>) -> Result<ByName> {
    let mut all = ByName::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = format!(
            "{}/{}",
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"])
        );
        let key = (text(&object["kind"]), place);
        ensure!(all.insert(key.clone(), object).is_none(), "{key:?} twice");
    }
    Ok(all)
}

/// Compares every object, for each store, in two namespaces.
fn it_says_what_the_manifests_say(chart: &mut Chart) -> Result<()> {
    let etcd = |servers: &[&str]| {
        let servers: Vec<String> = servers.iter().map(|&server| server.to_owned()).collect();
        let values = json!({"store": {"type": "etcd", "etcd": {"servers": servers}}});
        let store = DeployedStore::Etcd;
        (values, ManifestOptions { store, etcd_servers: servers, ..ManifestOptions::default() })
    };
    let image = "registry.example.com/farm-operator:0.1.0";
    let cases = [
        (json!({}), ManifestOptions::default()),
        (
            json!({"image": {"repository": "registry.example.com/farm-operator", "tag": "0.1.0"}}),
            ManifestOptions { image: Some(image.to_owned()), ..ManifestOptions::default() },
        ),
        (
            json!({"store": {"type": "sqlite"}}),
            ManifestOptions { store: DeployedStore::Sqlite, ..ManifestOptions::default() },
        ),
        (
            json!({"ownerResources": ["rollouts.argoproj.io", "configmaps"]}),
            ManifestOptions {
                owner_resources: vec!["rollouts.argoproj.io".to_owned(), "configmaps".to_owned()],
                ..ManifestOptions::default()
            },
        ),
        etcd(&["http://etcd:2379"]),
        etcd(&["https://etcd-0:2379", "https://etcd-1:2379"]),
    ];
    for (mut values, options) in cases {
        for namespace in [NAMESPACE, "elsewhere"] {
            values["createNamespace"] = true.into();
            let options =
                ManifestOptions { namespace: Some(namespace.to_owned()), ..options.clone() };
            let printed = farm_operator::server().manifests(&options)?;
            let mut printed = by_name(serde_saphyr::from_multiple(&printed)?)?;
            let mut rendered = by_name(chart.render(namespace, &values)?)?;
            for (key, object) in &printed {
                let other =
                    rendered.get(key).with_context(|| format!("{key:?} is not rendered"))?;
                ensure!(object == other, "{values}: {key:?}:\n{object:#}\n{other:#}");
            }
            ensure!(rendered.len() == printed.len(), "{values}: more is rendered");
            // With `createNamespace: false`, only the namespace is omitted.
            values["createNamespace"] = false.into();
            rendered = by_name(chart.render(namespace, &values)?)?;
            printed.retain(|(kind, _), _| kind != "Namespace");
            ensure!(rendered == printed, "{values}: more than the namespace is left out");
        }
    }
    Ok(())
}

/// Sets each value to something other than its default, and checks where it appears.
fn every_value_has_its_place(chart: &mut Chart) -> Result<()> {
    let values = json!({
        "image": {"digest": format!("sha256:{}", "0".repeat(64)), "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "replicas": 5,
        "store": {"type": "etcd", "etcd": {"servers": ["http://etcd:2379"]}},
        "extraArgs": ["--store-memory-mib=256"],
        "extraEnv": [{"name": "RUST_LOG", "value": "debug"}],
        "extraVolumes": [{"name": "policy", "configMap": {"name": "policy"}}],
        "extraVolumeMounts": [{"name": "policy", "mountPath": "/etc/policy"}],
        "resources": {"limits": {"memory": "2Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 130,
        "podAnnotations": {"team": "farm"},
        "podDisruptionBudget": {"maxUnavailable": 2},
        "networkPolicy": {
            "create": true, "from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
            "extraIngress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}],
        },
        "certificate": {"secretName": "own", "caBundle": "Y2E="},
        "serviceMonitor": {
            "create": true, "labels": {"release": "p"}, "interval": "15s",
            "authorization": {"credentials": {"name": "token", "key": "token"}},
        },
        "enabled": true,
        "global": {"team": "farm"},
        "prometheusRule": {"create": true, "labels": {"release": "p"}},
        "dashboard": {"create": true},
    });
    let objects = chart.render(NAMESPACE, &values)?;
    let of_kind = |kind: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind);
        found.with_context(|| format!("no {kind}"))
    };
    let image = format!("farm-operator@sha256:{}", "0".repeat(64));
    let pod = "/spec/template/spec";
    let container = "/spec/template/spec/containers/0";
    let expected = [
        ("Deployment", "/spec/replicas".to_owned(), json!(5)),
        ("Deployment", "/spec/template/metadata/annotations/team".to_owned(), json!("farm")),
        ("Deployment", format!("{pod}/imagePullSecrets/0/name"), json!("pull")),
        ("Deployment", format!("{pod}/priorityClassName"), json!("system-cluster-critical")),
        ("Deployment", format!("{pod}/terminationGracePeriodSeconds"), json!(130)),
        ("Deployment", format!("{pod}/nodeSelector/disk"), json!("fast")),
        ("Deployment", format!("{pod}/tolerations/0/key"), json!("infra")),
        ("Deployment", format!("{pod}/affinity/nodeAffinity"), json!({})),
        ("Deployment", format!("{pod}/topologySpreadConstraints/0/maxSkew"), json!(2)),
        ("Deployment", format!("{pod}/volumes/0/secret/secretName"), json!("own")),
        ("Deployment", format!("{pod}/volumes/1/name"), json!("policy")),
        ("Deployment", format!("{container}/image"), json!(image)),
        ("Deployment", format!("{container}/imagePullPolicy"), json!("Always")),
        (
            "Deployment",
            format!("{container}/args/2"),
            json!("--tls-cert-file=/etc/serving/tls.crt"),
        ),
        ("Deployment", format!("{container}/args/4"), json!("--store-memory-mib=256")),
        ("Deployment", format!("{container}/env/1/name"), json!("RUST_LOG")),
        ("Deployment", format!("{container}/volumeMounts/1/mountPath"), json!("/etc/policy")),
        ("Deployment", format!("{container}/resources/limits/memory"), json!("2Gi")),
        ("PodDisruptionBudget", "/spec/maxUnavailable".to_owned(), json!(2)),
        ("NetworkPolicy", "/spec/ingress/0/from/0/ipBlock/cidr".to_owned(), json!("10.0.0.0/28")),
        ("APIService", "/spec/caBundle".to_owned(), json!("Y2E=")),
        ("NetworkPolicy", "/spec/ingress/1/ports/0/port".to_owned(), json!(8080)),
        (
            "ServiceMonitor",
            "/spec/endpoints/0/tlsConfig/ca/configMap/name".to_owned(),
            json!("farm-operator-ca"),
        ),
        (
            "ServiceMonitor",
            "/spec/endpoints/0/authorization/credentials/name".to_owned(),
            json!("token"),
        ),
        ("ServiceMonitor", "/spec/endpoints/0".to_owned() + "/bearerTokenFile", Value::Null),
        ("ServiceMonitor", "/spec/endpoints/0/interval".to_owned(), json!("15s")),
        ("ServiceMonitor", "/metadata/labels/release".to_owned(), json!("p")),
        ("Service", "/metadata/labels/app.kubernetes.io~1name".to_owned(), json!("farm-operator")),
        (
            "PrometheusRule",
            "/spec/groups/0/rules/0/alert".to_owned(),
            json!("FarmOperatorUnavailable"),
        ),
    ];
    for (kind, path, value) in expected {
        let object = of_kind(kind)?;
        let found = object.pointer(&path).unwrap_or(&Value::Null);
        ensure!(*found == value, "{kind} {path}: {object:#}");
    }
    let config_map = |name: &str| {
        let is_it =
            |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name;
        objects.iter().find(is_it).with_context(|| format!("no ConfigMap {name}"))
    };
    ensure!(
        config_map("farm-operator-ca")?["data"]["ca.crt"] == "ca",
        "the CA is not the caBundle"
    );
    let dashboard = config_map("farm-operator-dashboard")?;
    ensure!(dashboard["metadata"]["labels"]["grafana_dashboard"] == "1", "{dashboard}");
    let dashboard = dashboard["data"]["farm-operator.json"].as_str();
    let dashboard: Value = serde_json::from_str(dashboard.context("no dashboard")?)?;
    ensure!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5), "{dashboard}");
    // A real kube-apiserver accepts the objects of Kubernetes kinds, without an unknown field.
    let kubectl = |arguments: &[&str]| chart.control_plane.kubectl(arguments.to_vec());
    let _ = kubectl(&["create", "namespace", NAMESPACE]).output()?;
    let known: Vec<&Value> = objects
        .iter()
        .filter(|object| !OF_OTHERS.iter().any(|kind| object["kind"] == *kind))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": known});
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
    kubectl(&apply).input(&list.to_string()).run()?;
    // Certificates of cert-manager.
    let values = json!({"certManager": {"create": true, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}});
    let objects = by_name(chart.render("elsewhere", &values)?)?;
    let object = |kind: &str, name: &str| {
        objects
            .get(&(kind.to_owned(), name.to_owned()))
            .with_context(|| format!("no {kind} {name}"))
    };
    let certificate = object("Certificate", "elsewhere/farm-operator")?;
    ensure!(certificate["spec"]["dnsNames"][0] == "farm-operator.elsewhere.svc", "{certificate}");
    ensure!(certificate["spec"]["issuerRef"]["kind"] == "ClusterIssuer", "{certificate}");
    object("APIService", "/v1.farm.example.com")?;
    let api_service = object("APIService", "/v1alpha.farm.example.com")?;
    let annotations = &api_service["metadata"]["annotations"];
    ensure!(
        annotations["cert-manager.io/inject-ca-from"] == "elsewhere/farm-operator",
        "{api_service}"
    );
    let pod = &object("Deployment", "elsewhere/farm-operator")?["spec"]["template"]["spec"];
    ensure!(
        pod["volumes"][0]["secret"]["secretName"] == certificate["spec"]["secretName"],
        "{pod}"
    );
    ensure!(
        !objects.keys().any(|(kind, _)| kind == "Issuer"),
        "an Issuer beside that of the values"
    );
    // Without an issuer, a permanent CA signs the serving certificate. A self-signed serving certificate would be
    // distrusted after each renewal.
    let objects = by_name(chart.render("elsewhere", &json!({"certManager": {"create": true}}))?)?;
    let spec = |kind: &str, name: &str| {
        let object = objects.get(&(kind.to_owned(), format!("elsewhere/{name}")));
        object.map(|object| &object["spec"]).with_context(|| format!("no {kind} {name}"))
    };
    ensure!(spec("Issuer", "farm-operator")?["selfSigned"] == json!({}), "nobody signs the CA");
    let ca = spec("Certificate", "farm-operator-ca")?;
    ensure!(ca["isCA"] == true && ca["issuerRef"]["name"] == "farm-operator", "{ca}");
    let issuer = spec("Issuer", "farm-operator-ca")?;
    ensure!(issuer["ca"]["secretName"] == ca["secretName"], "{issuer}");
    let leaf = spec("Certificate", "farm-operator")?;
    ensure!(leaf["issuerRef"]["name"] == "farm-operator-ca" && leaf["isCA"].is_null(), "{leaf}");
    Ok(())
}

/// With a user-provided certificate, the server gets no permission on Secrets.
fn a_certificate_from_elsewhere_needs_no_right(chart: &mut Chart) -> Result<()> {
    let own = json!({"certificate": {"secretName": "own", "caBundle": "Y2E="}});
    for (values, is_made) in
        [(json!({}), true), (own, false), (json!({"certManager": {"create": true}}), false)]
    {
        let rendered = by_name(chart.render(NAMESPACE, &values)?)?;
        for (kind, name) in [
            ("Role", "farm-operator"),
            ("RoleBinding", "farm-operator"),
            ("Secret", "farm-operator-serving-certificate"),
        ] {
            let key = (kind.to_owned(), format!("{NAMESPACE}/{name}"));
            ensure!(rendered.contains_key(&key) == is_made, "{values}: {key:?}");
        }
        let of_secrets = |object: &Value| {
            object["rules"].as_array().into_iter().flatten().any(|rule| {
                rule["resources"].as_array().is_some_and(|all| all.contains(&json!("secrets")))
            })
        };
        ensure!(rendered.values().any(of_secrets) == is_made, "{values}: rights");
    }
    Ok(())
}

fn values_that_make_no_sense_are_refused(chart: &mut Chart) -> Result<()> {
    let folder = folder().display().to_string();
    let linted = chart.helm(&["lint", "--strict", &folder, RELEASE])?;
    ensure!(linted.contains("1 chart(s) linted, 0 chart(s) failed"), "{linted}");
    let etcd_for = |grace: u64| {
        let store = json!({"type": "etcd", "etcd": {"servers": ["http://etcd:2379"]}});
        json!({"store": store, "terminationGracePeriodSeconds": grace})
    };
    let refused = [
        (json!({"imagee": {}}), "imagee"),
        (json!({"image": {"tag": "a b"}}), "tag"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "pullPolicy"),
        (json!({"store": {"type": "disk"}}), "type"),
        (json!({"store": {"type": "etcd"}}), "servers"),
        (json!({"store": {"type": "etcd", "etcd": {"servers": ["etcd:2379"]}}}), "servers"),
        (json!({"replicas": 3}), "replicas"),
        (json!({"replicas": 2, "store": {"type": "sqlite"}}), "replicas"),
        (json!({"extraArgs": ["v=3"]}), "extraArgs"),
        (json!({"extraArgs": ["--secure-port=8443"]}), "extraArgs"),
        (json!({"extraArgs": ["--secure-port", "8443"]}), "extraArgs"),
        (json!({"podDisruptionBudget": {"maxUnavailable": 0}}), "maxUnavailable"),
        (json!({"podDisruptionBudget": {"maxUnavailable": ""}}), "maxUnavailable"),
        (json!({"certificate": {"secretName": "own"}}), "caBundle"),
        (
            json!({"certManager": {"create": true}, "certificate": {"secretName": "own", "caBundle": "Y2E="}}),
            "secretName",
        ),
        (json!({"serviceMonitor": {"interval": "often"}}), "interval"),
        // The grace period must cover the shutdown, plus ten seconds with several replicas.
        (json!({"terminationGracePeriodSeconds": 65}), "terminationGracePeriodSeconds"),
        (etcd_for(75), "terminationGracePeriodSeconds"),
    ];
    for values in [json!({"terminationGracePeriodSeconds": 66}), etcd_for(76)] {
        chart.render(NAMESPACE, &values)?;
    }
    for (values, word) in refused {
        match chart.render(NAMESPACE, &values) {
            Ok(_) => bail!("{values} is taken"),
            Err(error) => {
                let error = error.to_string();
                let says = error.contains("values don't meet the specifications of the schema");
                ensure!(says && error.contains(word), "{values}: {error}");
            }
        }
    }
    Ok(())
}

/// The metrics in alerts and in the dashboard exist in the server or in kube-apiserver.
fn what_is_watched_is_measured(_: &mut Chart) -> Result<()> {
    let mut known = String::new();
    let record =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/aggregated-apiserver/src/record");
    let mut folders = vec![record];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => known += &fs::read_to_string(path)?,
            }
        }
    }
    let mut asked = 0;
    for file in ["alerts.yaml", "dashboard.json"] {
        let text = fs::read_to_string(folder().join("files").join(file))?;
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter_map(|word| word.strip_prefix("apiserver_")) {
            let name =
                ["_total", "_bucket"].iter().fold(name, |name, end| name.trim_end_matches(end));
            let is_known = known.contains(&format!("\"{name}\""));
            ensure!(is_known, "{file}: nobody measures apiserver_{name}");
            asked += 1;
        }
    }
    ensure!(asked > 10, "only {asked} names were found");
    Ok(())
}

/// Uses Helm like an administrator. The certificate that the server has written into the Secret survives an upgrade.
/// After the removal, nothing blocks the deletion of the namespace.
fn it_is_installed_upgraded_and_removed(chart: &mut Chart) -> Result<()> {
    let kubectl = |arguments: &[&str]| chart.control_plane.kubectl(arguments.to_vec());
    kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=90s"]).run()?;
    let folder = folder().display().to_string();
    let place = ["-n", NAMESPACE, "--create-namespace"];
    let mut install = vec!["install", "farm-operator", &folder];
    install.extend(place);
    chart.helm(&install)?;
    let secret = "secret/farm-operator-serving-certificate";
    let patch = ["patch", secret, "-n", NAMESPACE, "-p", r#"{"data":{"tls.crt":"eA=="}}"#];
    kubectl(&patch).run()?;
    let bundle = r#"{"spec":{"caBundle":"Y2E="}}"#;
    let api_service = "apiservice/v1alpha.farm.example.com";
    kubectl(&["patch", api_service, "--type=merge", "-p", bundle]).run()?;
    let upgrade = ["upgrade", "farm-operator", &folder, "-n", NAMESPACE, "--set=extraArgs={-v=3}"];
    chart.helm(&upgrade)?;
    let args = "-o=jsonpath={.spec.template.spec.containers[0].args}";
    let args = kubectl(&["get", "deployment/farm-operator", "-n", NAMESPACE, args]).run()?;
    ensure!(args.contains("-v=3"), "{args}");
    let kept = kubectl(&["get", secret, "-n", NAMESPACE, r"-o=jsonpath={.data.tls\.crt}"]).run()?;
    ensure!(kept == "eA==", "the certificate is gone: {kept:?}");
    let kept = kubectl(&["get", api_service, "-o=jsonpath={.spec.caBundle}"]).run()?;
    ensure!(kept == "Y2E=", "the caBundle is gone: {kept:?}");
    chart.helm(&["uninstall", "farm-operator", "-n", NAMESPACE])?;
    let left = kubectl(&["get", api_service, "--ignore-not-found"]).run()?;
    ensure!(left.is_empty(), "{left}");
    let roles = ["get", "clusterroles,clusterrolebindings", "-o=name"];
    let left = kubectl(&roles).run()?;
    ensure!(!left.contains("farm"), "{left}");
    // No APIService blocks the deletion.
    kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]).run()?;
    Ok(())
}
