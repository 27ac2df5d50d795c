//! Each test causes a problem, checks its report, and reverts the change.

use std::fs;
use std::time::Duration;

use aggregated_apiserver::commands::{DoctorOptions, Outcome};
use aggregated_apiserver::{ApiServer, Kinds};
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use test_cluster::Authority;

use crate::ward::Ward;
use crate::world::{API_SERVICE, API_SERVICES, NAMESPACE};

const CONFIG_MAP: &str = "extension-apiserver-authentication";
/// The commands that create missing objects and grant missing permissions, for the deployed store.
const CREATE: &str = "farm-operator manifests --namespace=farm-operator --image=farm-operator --store=memory | kubectl create -f -";
const GRANT: &str = "farm-operator manifests --namespace=farm-operator --image=farm-operator --store=memory | kubectl auth reconcile -f -";

/// One line for each check, and no remedy.
pub fn all_is_well(ward: &mut Ward) -> Result<()> {
    ward.wait_well()?;
    let (printed, code) = ward.ask(&[])?;
    let checks: Vec<&str> =
        printed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let expected = [
        "control-plane",
        "clock",
        "front-proxy",
        "namespace",
        "permissions",
        "webhooks",
        "api-service",
        "service",
        "endpoints",
        "certificate",
        "available",
        "served",
    ];
    ensure!(code == 0 && checks == expected, "{printed}");
    ensure!(printed.lines().all(|line| line.starts_with("ok ")), "{printed}");
    // The certificate is the one of a TLS handshake.
    ensure!(printed.contains("the certificate at localhost:"), "{printed}");
    let (json, code) = ward.ask(&["--output=json"])?;
    let said: Value = serde_json::from_str(&json)?;
    ensure!(code == 0 && said["healthy"] == true, "{json}");
    ensure!(said["findings"].as_array().context("no findings")?.len() == expected.len(), "{json}");
    Ok(())
}

/// No other check runs, and the command does not hang.
pub fn there_is_no_control_plane(ward: &mut Ward) -> Result<()> {
    let file = ward.world.control_plane.folder().join("nowhere.kubeconfig");
    let kubeconfig = fs::read_to_string(ward.world.control_plane.kubeconfig())?;
    let nowhere = kubeconfig.replace(&ward.world.control_plane.url(), "https://127.0.0.1:1");
    fs::write(&file, nowhere)?;
    let file = file.display().to_string();
    let (printed, code) = ward.ask(&["--kubeconfig", &file])?;
    ensure!(code == 1 && printed.lines().count() == 2, "{printed}");
    ensure!(printed.contains("kube-apiserver does not respond"), "{printed}");
    ensure!(printed.contains("kubectl get --raw /readyz"), "{printed}");
    Ok(())
}

/// A check that the user has no permission for reports neither an error nor success.
pub fn a_user_without_rights_looks(ward: &mut Ward) -> Result<()> {
    let kubeconfig = ward.world.control_plane.kubeconfig_of_token("eve", "eve-token")?;
    let kubeconfig = kubeconfig.display().to_string();
    let (printed, code) = ward.ask(&["--kubeconfig", &kubeconfig])?;
    ensure!(code == 2 && !printed.contains("ERROR"), "{printed}");
    let unknown = |check: &str| {
        printed.lines().any(|line| line.starts_with("unknown") && line.contains(check))
    };
    for check in [
        "front-proxy",
        "namespace",
        "permissions",
        "api-service",
        "service",
        "certificate",
        "available",
    ] {
        ensure!(unknown(check), "{check}: {printed}");
    }
    ensure!(printed.contains("retry as an administrator"), "{printed}");
    Ok(())
}

/// The clock of the machine that runs doctor is wrong, which also affects the checks of certificates.
pub fn clocks_differ(ward: &mut Ward) -> Result<()> {
    let clock = aggregated_apiserver::Clock::system();
    let late = || jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5);
    let server = farm_operator::server().with_clock(clock.with_now(late));
    let options = DoctorOptions {
        kubeconfig: Some(ward.world.control_plane.kubeconfig()),
        ..DoctorOptions::default()
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let found = runtime.block_on(options.examine(&server))?;
    let clock = found.findings.iter().find(|finding| finding.check == "clock");
    let clock = clock.context("no clock")?;
    // The clock of the server may be right, so this is only a warning.
    ensure!(clock.outcome == Outcome::Warning, "{found}");
    ensure!(clock.message.contains("behind that of kube-apiserver"), "{found}");
    ensure!(clock.remedy.as_ref().is_some_and(|remedy| remedy.contains("timedatectl")), "{found}");
    Ok(())
}

pub fn the_front_proxy_is_not_described(ward: &mut Ward) -> Result<()> {
    let object = format!("configmap/{CONFIG_MAP}");
    let get = ["get", &object, "-n", "kube-system", "-o", "jsonpath={.data}"];
    let before: Value = serde_json::from_str(&ward.kubectl(get).run()?)?;
    let patch = |data: &Value| -> Result<()> {
        let patch = json!({"data": data}).to_string();
        ward.kubectl(["patch", &object, "-n", "kube-system", "--type=merge", "-p", &patch])
            .run()?;
        Ok(())
    };
    patch(&json!({"requestheader-allowed-names": "everybody"}))?;
    let damaged = "requestheader-allowed-names is not a JSON list of strings";
    ward.wait_for("front-proxy", "error", damaged, "kubectl -n kube-system delete configmap")?;
    patch(&before)?;
    patch(&json!({"requestheader-client-ca-file": null}))?;
    let flag = "--requestheader-client-ca-file";
    ward.wait_for("front-proxy", "error", "has no requestheader-client-ca-file", flag)?;
    patch(&before)?;
    let same = json!({
        "client-ca-file": before["requestheader-client-ca-file"],
        "requestheader-allowed-names": "[]",
    });
    patch(&same)?;
    let any = "any client certificate of the cluster can act as the front proxy";
    ward.wait_for("front-proxy", "warning", any, "--requestheader-allowed-names")?;
    patch(&before)?;
    ward.wait_well()
}

/// Each missing binding of the manifests is reported by name.
pub fn rights_are_missing(ward: &mut Ward) -> Result<()> {
    let bindings = [
        (
            "clusterrolebinding",
            "farm-operator",
            "",
            "list pods, watch pods, list replicasets.apps",
            "ClusterRole farm-operator",
        ),
        (
            "clusterrolebinding",
            "farm-operator:system:auth-delegator",
            "",
            "create tokenreviews.authentication.k8s.io, create subjectaccessreviews.authorization.k8s.io",
            "ClusterRoleBinding farm-operator:system:auth-delegator",
        ),
        (
            "rolebinding",
            "farm-operator:extension-apiserver-authentication-reader",
            "kube-system",
            "get configmaps kube-system/extension-apiserver-authentication",
            "RoleBinding farm-operator:extension-apiserver-authentication-reader",
        ),
        (
            "rolebinding",
            "farm-operator",
            NAMESPACE,
            "get secrets farm-operator/farm-operator-serving-certificate",
            "Role farm-operator",
        ),
    ];
    for (kind, name, namespace, rights, by) in bindings {
        let object = format!("{kind}/{name}");
        let namespace = format!("--namespace={namespace}");
        ward.kubectl(["delete", &object, &namespace]).run()?;
        ward.wait_for("permissions", "error", rights, GRANT)?;
        ward.wait_for("permissions", "error", &format!("which {by} grants"), GRANT)?;
        restore(ward, kind, name)?;
    }
    // The suggested commands have the promised effect.
    ward.kubectl(["delete", "clusterrolebinding/farm-operator"]).run()?;
    ward.follow(&["auth", "reconcile"])?;
    ward.wait_well()?;
    ward.kubectl(["delete", "serviceaccount", "farm-operator", "-n", NAMESPACE]).run()?;
    let missing = "ServiceAccount farm-operator/farm-operator is missing";
    ward.wait_for("permissions", "error", missing, CREATE)?;
    restore(ward, "serviceaccount", "farm-operator")?;
    // The token of the server belonged to the deleted ServiceAccount.
    ward.world.restart_server()?;
    ward.wait_well()
}

/// Creates the object of the manifests that has this name again.
fn restore(ward: &Ward, kind: &str, name: &str) -> Result<()> {
    let manifest = fs::read_to_string(crate::world::manifest_file())?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest)?;
    let is_it = |object: &&Value| {
        let of_kind = object["kind"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(kind));
        of_kind && object["metadata"]["name"] == name
    };
    ward.apply(objects.iter().find(is_it).context("it is not in the manifests")?)
}

/// A webhook that rejects the server's Pods because it is unavailable, and one that only may do so.
pub fn a_webhook_is_in_the_way(ward: &mut Ward) -> Result<()> {
    let webhook = |policy: &str, selector: &Value, client: &Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "gate"},
            "webhooks": [{
                "name": "gate.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": policy, "namespaceSelector": selector, "clientConfig": client,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        })
    };
    let away = json!({"service": {"name": "gate", "namespace": "default"}});
    let elsewhere = json!({"url": "https://gate.example.com/"});
    let what = "webhook gate.example.com of ValidatingWebhookConfiguration gate is called for pods";
    let relief = "kubectl edit ValidatingWebhookConfiguration gate";
    ward.apply(&webhook("Fail", &json!({}), &away))?;
    let refuses = format!("{what} and rejects all: its Service default/gate is missing");
    ward.wait_for("webhooks", "error", &refuses, relief)?;
    ward.apply(&webhook("Fail", &json!({}), &elsewhere))?;
    // It is not visible whether the webhook responds, and the existence of a webhook is not a problem.
    ward.world.eventually(|| {
        let (printed, _) = ward.ask(&[])?;
        ensure!(printed.contains("would be rejected without gate"), "{printed}");
        Ok(())
    })?;
    let mut conditional = webhook("Fail", &json!({}), &away);
    conditional["webhooks"][0]["matchConditions"] =
        json!([{"name": "ours", "expression": "false"}]);
    ward.apply(&conditional)?;
    let unless = format!("{what}, unless its matchConditions exclude them");
    ward.wait_for("webhooks", "warning", &unless, relief)?;
    for (policy, selector) in [
        ("Ignore", json!({})),
        (
            "Fail",
            json!({"matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE],
            }]}),
        ),
    ] {
        ward.apply(&webhook(policy, &selector, &elsewhere))?;
        let (printed, _) = ward.ask(&[])?;
        ensure!(printed.contains("no webhook blocks the server"), "{printed}");
    }
    ward.kubectl(["delete", "validatingwebhookconfiguration", "gate"]).run()?;
    ward.wait_well()
}

pub fn the_api_service_is_missing(ward: &mut Ward) -> Result<()> {
    ward.kubectl(["delete", "apiservice", API_SERVICE]).run()?;
    let missing = format!("APIService {API_SERVICE} is missing");
    ward.wait_for("api-service", "error", &missing, CREATE)?;
    restore(ward, "apiservice", API_SERVICE)?;
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

pub fn the_api_service_is_of_another(ward: &mut Ward) -> Result<()> {
    ward.patch_api_services(&json!({"spec": {"service": {"name": "another"}}}))?;
    let leads = format!("APIService {API_SERVICE} refers to Service farm-operator/another");
    let remedy = format!("kubectl delete apiservice {API_SERVICE}");
    ward.wait_for("api-service", "error", &leads, &remedy)?;
    let not_found = "ServiceNotFound: service/another";
    ward.wait_for("available", "error", not_found, CREATE)?;
    ward.patch_api_services(&json!({"spec": {"service": {"name": farm_operator::NAME}}}))?;
    ward.wait_well()
}

/// Without `--namespace`, the installation that the APIService refers to is examined. With another namespace, no remedy
/// would redirect the APIService.
pub fn it_is_installed_elsewhere(ward: &mut Ward) -> Result<()> {
    let (printed, code) = ward.ask(&["--namespace=default"])?;
    let leads = format!("APIService {API_SERVICE} refers to Service farm-operator/farm-operator");
    ensure!(code == 1 && printed.matches("ERROR").count() == API_SERVICES.len(), "{printed}");
    ensure!(
        printed.contains(&leads) && printed.contains("doctor --namespace=farm-operator"),
        "{printed}"
    );
    ensure!(!printed.contains("manifests"), "{printed}");
    ward.patch_api_services(&json!({"spec": {"service": {"namespace": "default"}}}))?;
    let missing = "Service default/farm-operator is missing";
    ward.wait_for(
        "service",
        "error",
        missing,
        "manifests --namespace=default --image=IMAGE --store=STORE",
    )?;
    ward.patch_api_services(&json!({"spec": {"service": {"namespace": NAMESPACE}}}))?;
    ward.wait_well()
}

pub fn tls_is_not_verified(ward: &mut Ward) -> Result<()> {
    let skip = |bundle: Value, skip: bool| {
        ward.patch_api_services(
            &json!({"spec": {"caBundle": bundle, "insecureSkipTLSVerify": skip}}),
        )
    };
    skip(Value::Null, true)?;
    ward.wait_for(
        "api-service",
        "warning",
        "has insecureSkipTLSVerify",
        "kubectl patch apiservice",
    )?;
    skip(Value::Null, false)?;
    ward.wait_well()
}

pub fn the_service_is_missing(ward: &mut Ward) -> Result<()> {
    ward.kubectl(["delete", "service", farm_operator::NAME, "-n", NAMESPACE]).run()?;
    let missing = "Service farm-operator/farm-operator is missing";
    ward.wait_for("service", "error", missing, CREATE)?;
    ward.wait_for("available", "error", "ServiceNotFound", CREATE)?;
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

/// The Service is as installed. Without a kubelet its Pods are pending. Later its Pods are deleted.
pub fn no_pod_is_ready(ward: &mut Ward) -> Result<()> {
    ward.kubectl(["delete", "service", farm_operator::NAME, "-n", NAMESPACE]).run()?;
    restore(ward, "service", farm_operator::NAME)?;
    let port = format!("has no port {}, which APIService {API_SERVICE} names", ward.world.port);
    ward.wait_for("service", "error", &port, "kubectl -n farm-operator edit service")?;
    ward.patch_api_services(&json!({"spec": {"service": {"port": 443}}}))?;
    let waits = "no Pod behind Service farm-operator/farm-operator is ready: Pod farm-operator/";
    ward.wait_for("endpoints", "error", waits, "kubectl -n farm-operator describe pod")?;
    let scale = |replicas: &str| {
        let scale = ["scale", "deployment/farm-operator", "-n", NAMESPACE, replicas];
        ward.kubectl(scale).run()
    };
    scale("--replicas=0")?;
    let none = "deployment farm-operator/farm-operator: it is scaled to no replicas";
    ward.wait_for("endpoints", "error", none, "kubectl -n farm-operator scale deployment")?;
    scale("--replicas=1")?;
    let spec = json!({"spec": {"selector": {"app.kubernetes.io/name": "nobody"}}}).to_string();
    ward.kubectl(["patch", "service", farm_operator::NAME, "-n", NAMESPACE, "-p", &spec]).run()?;
    let none = "there are no Pods with app.kubernetes.io/name=nobody";
    ward.wait_for("endpoints", "error", "no Pod behind Service", "")?;
    let (printed, _) = ward.ask(&[])?;
    ensure!(printed.contains(none) || printed.contains("its Pods are not created"), "{printed}");
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

/// The server would set its own CA again, so it is suspended, and does not respond either.
pub fn another_authority_is_trusted(ward: &mut Ward) -> Result<()> {
    ward.kubectl(["delete", "clusterrolebinding", "farm-operator"]).run()?;
    let folder = ward.world.control_plane.folder();
    let authority = Authority::new("another", &folder.join("another.crt"))?;
    let bundle = STANDARD.encode(fs::read(&authority.file)?);
    ward.patch_api_services(&json!({"spec": {"caBundle": bundle}}))?;
    let refused =
        format!("by the caBundle of APIService {API_SERVICE}: it is signed by none of these CAs");
    ward.wait_for("certificate", "error", &refused, "kubectl patch apiservice")?;
    ward.wait_for("available", "error", "unknown authority", "caBundle")?;
    ward.patch_api_services(&json!({"spec": {"caBundle": null}}))?;
    ward.wait_for("certificate", "error", "has no caBundle", "kubectl patch apiservice")?;
    restore(ward, "clusterrolebinding", "farm-operator")?;
    ward.wait_well()
}

/// No other check notices. The server creates the Secret again as soon as it is allowed to, and works with another CA.
pub fn the_secret_is_missing(ward: &mut Ward) -> Result<()> {
    const SECRET: &str = "farm-operator-serving-certificate";
    let patch =
        |rules| ["patch", "role/farm-operator", "-n", NAMESPACE, "--type=json", "-p", rules];
    let rules = r#"[{"op": "remove", "path": "/rules/1"}]"#;
    ward.kubectl(patch(rules)).run()?;
    ward.kubectl(["delete", "secret", SECRET, "-n", NAMESPACE]).run()?;
    let missing = "Secret farm-operator/farm-operator-serving-certificate is missing";
    let create = "kubectl -n farm-operator create secret generic";
    ward.wait_for("certificate", "warning", missing, create)?;
    ward.wait_for(
        "permissions",
        "error",
        "is not allowed to create secrets in farm-operator",
        GRANT,
    )?;
    ward.follow(&["auth", "reconcile"])?;
    ward.world.eventually(|| {
        let get = ["get", "secret", SECRET, "-n", NAMESPACE, "-o=jsonpath={.data}"];
        let data = ward.kubectl(get).run()?;
        ensure!(data.contains("tls.crt"), "{data}");
        Ok(())
    })?;
    ward.wait_well()
}

/// With a user-provided certificate, the permissions for the generated one can be removed.
pub fn a_certificate_in_files_needs_no_secret(ward: &mut Ward) -> Result<()> {
    let flag = r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--tls-cert-file=/etc/serving/tls.crt"}]"#;
    let deployment = "deployment/farm-operator";
    ward.kubectl(["patch", deployment, "-n", NAMESPACE, "--type=json", "-p", flag]).run()?;
    ward.kubectl(["delete", "rolebinding/farm-operator", "-n", NAMESPACE]).run()?;
    let (printed, _) = ward.ask(&[])?;
    let rights = printed.lines().find(|line| line.split_whitespace().nth(1) == Some("permissions"));
    ensure!(rights.is_some_and(|line| line.starts_with("ok ")), "{printed}");
    restore(ward, "deployment", "farm-operator")?;
    ward.wait_for("permissions", "error", "get secrets farm-operator/", GRANT)?;
    restore(ward, "rolebinding", "farm-operator")?;
    ward.wait_well()
}

/// Certificates in files: one for another name, then an expired one.
pub fn the_certificate_is_of_another(ward: &mut Ward) -> Result<()> {
    let folder = ward.world.control_plane.folder().join("serving-files");
    fs::create_dir(&folder)?;
    let authority = Authority::new("serving-ca", &folder.join("ca.crt"))?;
    let files = authority.server(&folder, "serving", &["other.example.com"])?;
    ward.world.server.kill();
    let flag = |name: &str, file: &std::path::Path| format!("--{name}={}", file.display());
    let arguments =
        [flag("tls-cert-file", &files.certificate), flag("tls-private-key-file", &files.key)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (port, process) = ward.world.start_another("serving-files", &arguments)?;
    let bundle = STANDARD.encode(fs::read(&authority.file)?);
    ward.patch_api_services(&json!({"spec": {"caBundle": bundle}}))?;
    ward.lead_to(port)?;
    let name = "is not valid for farm-operator.farm-operator.svc, only for";
    ward.wait_for(
        "certificate",
        "error",
        name,
        "issue it again for farm-operator.farm-operator.svc",
    )?;
    let valid_for = "x509: certificate is valid for other.example.com";
    ward.wait_for("available", "error", valid_for, "issue the serving certificate for")?;
    authority.expired_server(&folder, "serving", &["farm-operator.farm-operator.svc"])?;
    ward.wait_for("certificate", "error", "has expired at 2002-01-01", "issue it again")?;
    ward.wait_for("available", "error", "has expired", "renew the serving certificate")?;
    drop(process);
    ward.world.restart_server()?;
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

pub fn the_front_proxy_has_another_name(ward: &mut Ward) -> Result<()> {
    let ca = ward.world.control_plane.folder().join("front-proxy-ca.crt");
    let ca = format!("--requestheader-client-ca-file={}", ca.display());
    let arguments = [ca.as_str(), "--requestheader-allowed-names=somebody"];
    let (port, process) = ward.world.start_another("not-allowed", &arguments)?;
    ward.lead_to(port)?;
    ward.wait_for("available", "error", "bad status from", "--requestheader-allowed-names")?;
    ward.wait_for("served", "error", "returns 503", "kubectl get apiservice")?;
    drop(process);
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

/// The Service leads to a port on which no program listens, then to one that accepts connections and never responds.
pub fn nothing_listens(ward: &mut Ward) -> Result<()> {
    ward.lead_to(1)?;
    ward.wait_for("available", "error", "connection refused", "--secure-port")?;
    ward.wait_for("served", "error", "returns 503", "kubectl get apiservice")?;
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    ward.lead_to(silent.local_addr()?.port())?;
    let control_plane = "allow its addresses (an ipBlock, because they are not Pods) at port 3000";
    ward.wait_for("available", "error", "FailedDiscoveryCheck", control_plane)?;
    ward.lead_to(ward.world.port)?;
    ward.wait_well()
}

/// The program has a kind that the deployed release lacks.
pub fn another_release_is_deployed(ward: &mut Ward) -> Result<()> {
    let definition: Value = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "goats.farm.example.com"},
        "spec": {
            "group": "farm.example.com", "scope": "Namespaced",
            "names": {"kind": "Goat", "plural": "goats", "singular": "goat", "listKind": "GoatList"},
            "versions": [{"name": "v1alpha", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definition = serde_json::from_value(definition)?;
    let newer = ApiServer::new(farm_operator::NAME, Kinds::new().crd(definition));
    let options = DoctorOptions {
        kubeconfig: Some(ward.world.control_plane.kubeconfig()),
        ..DoctorOptions::default()
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let asked =
        async { tokio::time::timeout(Duration::from_secs(100), options.examine(&newer)).await };
    let found = runtime.block_on(asked)??;
    let served = found.findings.iter().find(|finding| finding.check == "served");
    let served = served.context("no check of what is served")?;
    ensure!(
        served.outcome == Outcome::Warning && found.to_string().contains("serves no goats"),
        "{found}"
    );
    Ok(())
}

/// The last test: everything is removed.
pub fn nothing_is_installed(ward: &mut Ward) -> Result<()> {
    let manifest = fs::read_to_string(crate::world::manifest_file())?;
    ward.kubectl(["delete", "--wait=false", "-f", "-"]).input(&manifest).run()?;
    ward.world.server.kill();
    let terminating = "Namespace farm-operator is ";
    ward.wait_for("namespace", "error", terminating, "farm-operator manifests")?;
    ward.wait_for("api-service", "error", "is missing", "kubectl create -f -")?;
    ward.wait_for("permissions", "error", "is not allowed to", "kubectl auth reconcile -f -")
}
