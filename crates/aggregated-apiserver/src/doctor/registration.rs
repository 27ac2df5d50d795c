//! Checks of the server's APIServices: whether they refer to its Service, and the conditions that kube-apiserver
//! reports.

use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation, items, text};

/// The namespace of the Service that one of the server's APIServices refers to, if the Service has the expected name.
pub(super) async fn namespace(installation: &Installation) -> Option<String> {
    for name in &installation.api_services {
        if let Found::Object(found) = installation.find_api_service(name).await
            && let service = &found["spec"]["service"]
            && text(&service["name"]) == installation.service
            && let namespace = text(&service["namespace"])
            && !namespace.is_empty()
        {
            return Some(namespace.to_owned());
        }
    }
    None
}

/// Finds APIServices that refer to another namespace than the one that is examined. Without such APIServices,
/// returns no findings.
pub(super) async fn elsewhere(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("api-service");
    let Installation { namespace, service, name: server, .. } = installation;
    for name in &installation.api_services {
        let Found::Object(found) = installation.find_api_service(name).await else { continue };
        let other = &found["spec"]["service"];
        let (other, other_service) = (text(&other["namespace"]), text(&other["name"]));
        if !other.is_empty() && other != namespace {
            check.fault(
                format!("APIService {name} refers to Service {other}/{other_service}, not to {namespace}/{service}: the server in {namespace} receives no requests"),
                format!("check the server that receives the requests: {server} doctor --namespace={other} --service-name={other_service}"),
            );
        }
    }
    check.into_findings()
}

/// Checks that each APIService exists, refers to the server's Service, and verifies the certificate.
pub(super) async fn registered(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("api-service");
    let Installation { namespace, service, .. } = installation;
    for name in &installation.api_services {
        match installation.find_api_service(name).await {
            Found::Object(found) => {
                let spec = &found["spec"];
                let place = (text(&spec["service"]["namespace"]), text(&spec["service"]["name"]));
                if place != (namespace.as_str(), service.as_str()) {
                    let what = match place {
                        ("", "") => "belongs to kube-apiserver itself, for example because of a CustomResourceDefinition of this group and version".to_owned(),
                        (namespace, service) => format!("refers to Service {namespace}/{service}"),
                    };
                    check.fault(
                        format!("APIService {name} {what}, not to {namespace}/{service}"),
                        format!("to use this server: kubectl delete apiservice {name}, then {}; to check another one: --namespace and --service-name", installation.create()),
                    );
                } else if spec["insecureSkipTLSVerify"] == true {
                    check.warn(
                        format!("APIService {name} has insecureSkipTLSVerify: its connections are not protected"),
                        format!("kubectl patch apiservice {name} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/spec/insecureSkipTLSVerify\"}}]': the server sets its caBundle then"),
                    );
                }
            }
            Found::Absent => check.fault(
                format!(
                    "APIService {name} is missing: kube-apiserver sends no requests to the server"
                ),
                installation.create(),
            ),
            Found::Hidden(why) => check.unknown(&format!("APIService {name}"), &why),
        }
    }
    check.done(format!(
        "{} {} to Service {namespace}/{service}",
        installation.api_services.join(", "),
        if installation.api_services.len() == 1 { "leads" } else { "lead" }
    ))
}

/// Checks that kube-apiserver reports the APIServices as available.
pub(super) async fn available(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("available");
    for name in &installation.api_services {
        let found = match installation.find_api_service(name).await {
            Found::Object(found) => found,
            // An earlier check has already reported that it is missing.
            Found::Absent => {
                let what = format!("the conditions of APIService {name}");
                check.unseen(&what, "it is missing", installation.create());
                continue;
            }
            Found::Hidden(why) => {
                check.unknown(&format!("the conditions of APIService {name}"), &why);
                continue;
            }
        };
        let conditions = items(&found["status"]["conditions"]);
        match conditions.iter().find(|condition| condition["type"] == "Available") {
            Some(condition) if condition["status"] == "True" => {}
            Some(condition) => {
                let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
                check.fault(
                    format!("APIService {name} is not Available: {reason}: {message}"),
                    advice(installation, name, reason, message),
                );
            }
            None => check.fault(
                format!(
                    "APIService {name} has no condition yet: kube-apiserver has not checked it"
                ),
                "retry in half a minute",
            ),
        }
    }
    check.done("kube-apiserver reports the server as available")
}

/// The remedy for an APIService that kube-apiserver reports as not available.
fn advice(installation: &Installation, api_service: &str, reason: &str, message: &str) -> String {
    let Installation { namespace, service, .. } = installation;
    let logs = installation.logs();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match reason {
        "ServiceNotFound" => installation.create(),
        "ServicePortError" => format!(
            "kubectl -n {namespace} get service {service} -o yaml: it must have the port that the APIService names"
        ),
        "EndpointsNotFound" | "MissingEndpoints" => {
            format!("kubectl -n {namespace} get pods: none of them is ready; {logs}")
        }
        _ if says(&[
            "x509: certificate is valid for",
            "not valid for any names",
            "doesn't contain any",
        ]) =>
        {
            format!(
                "issue the serving certificate for {service}.{namespace}.svc (--tls-cert-file), or omit that flag: the server creates a certificate"
            )
        }
        _ if says(&["has expired", "not yet valid"]) => format!(
            "renew the serving certificate (--tls-cert-file is read again every ten seconds), and set the clocks; {logs}"
        ),
        _ if says(&["unknown authority", "x509:"]) => format!(
            "a server that creates its certificate sets the caBundle within ten seconds: {logs}; with --tls-cert-file set it yourself: kubectl patch apiservice {api_service} --type=merge -p '{{\"spec\":{{\"caBundle\":\"'$(base64 -w0 ca.crt)'\"}}}}'"
        ),
        _ if says(&["bad status"]) && says(&["401"]) => format!(
            "the server does not trust kube-apiserver: its log has the certificate and the allowed names ({logs}); the certificate of --proxy-client-cert-file must be signed by --requestheader-client-ca-file and named in --requestheader-allowed-names, and the server must be able to read ConfigMap kube-system/extension-apiserver-authentication"
        ),
        _ if says(&["bad status"]) => logs,
        _ if says(&["connection refused"]) => format!(
            "no process listens on that port: kubectl -n {namespace} get pods,endpointslices; --secure-port and the Service's targetPort must be the same"
        ),
        _ if says(&[
            "deadline exceeded",
            "timeout",
            "timed out",
            "no route to host",
            "Timeout",
        ]) =>
        {
            format!(
                "the control plane cannot reach the Pods: allow its addresses (an ipBlock, because they are not Pods) at port 3000 in firewalls and NetworkPolicies: kubectl -n {namespace} get networkpolicies"
            )
        }
        _ if says(&["no such host"]) => format!(
            "the control plane cannot find {service}.{namespace}.svc: kubectl -n {namespace} get service {service} -o yaml"
        ),
        _ => logs,
    }
}

/// The port of the Service that an APIService refers to.
pub(super) fn port(api_service: &Value) -> u64 {
    api_service["spec"]["service"]["port"].as_u64().unwrap_or(443)
}
