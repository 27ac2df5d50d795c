//! Checks the ConfigMap `kube-system/extension-apiserver-authentication`, with which kube-apiserver configures the
//! authentication of aggregated servers.

use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation};
use crate::server;

const CONFIG_MAP: &str = "ConfigMap kube-system/extension-apiserver-authentication";
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("front-proxy");
    judge(&installation.find(PATH).await, &mut check);
    check.done(format!("{CONFIG_MAP} names the CA of the front proxy"))
}

fn judge(found: &Found, check: &mut Check) {
    match found {
        Found::Object(found) => judge_data(&found["data"], check),
        Found::Absent => check.fault(
            format!("{CONFIG_MAP} is missing: the CA of the front proxy is unknown"),
            "kube-apiserver creates it immediately: kubectl -n kube-system get configmap extension-apiserver-authentication; if it stays missing, the log of kube-apiserver has the reason",
        ),
        Found::Hidden(why) => check.unknown(CONFIG_MAP, why),
    }
}

fn judge_data(data: &Value, check: &mut Check) {
    let filled = |key: &str| data[key].as_str().filter(|text| !text.trim().is_empty());
    let Some(ca) = filled("requestheader-client-ca-file") else {
        check.fault(
            format!("{CONFIG_MAP} has no requestheader-client-ca-file: this control plane does not aggregate API servers"),
            "start kube-apiserver with --requestheader-client-ca-file, --requestheader-username-headers=X-Remote-User, --requestheader-group-headers=X-Remote-Group, --requestheader-extra-headers-prefix=X-Remote-Extra-, --proxy-client-cert-file and --proxy-client-key-file",
        );
        return;
    };
    let again = "kubectl -n kube-system delete configmap extension-apiserver-authentication: kube-apiserver creates it again";
    for (key, pem) in
        [("requestheader-client-ca-file", Some(ca)), ("client-ca-file", filled("client-ca-file"))]
    {
        if pem.is_some_and(|pem| !server::is_bundle(pem)) {
            check.fault(format!("{CONFIG_MAP}: {key} is not PEM of certificates"), again);
        }
    }
    let lists = [
        ("requestheader-allowed-names", None),
        ("requestheader-username-headers", Some("X-Remote-User")),
        ("requestheader-group-headers", Some("X-Remote-Group")),
        ("requestheader-extra-headers-prefix", Some("X-Remote-Extra-")),
    ];
    for (key, usual) in lists {
        let names = serde_json::from_str::<Vec<String>>(filled(key).unwrap_or("[]"));
        match (names, usual) {
            (Err(_), _) => {
                check.fault(format!("{CONFIG_MAP}: {key} is not a JSON list of strings"), again);
            }
            (Ok(names), Some(usual)) if names.is_empty() && key.ends_with("headers") => check
                .fault(
                    format!("{CONFIG_MAP}: {key} is empty: the server cannot learn the user of a request"),
                    format!("start kube-apiserver with --{key}={usual}"),
                ),
            (Ok(names), None) if names.is_empty() && Some(ca) == filled("client-ca-file") => {
                check.warn(
                    format!("{CONFIG_MAP}: any client certificate of the cluster can act as the front proxy, because both have the same CA and {key} is empty"),
                    "use a separate CA for the front proxy (--requestheader-client-ca-file), or allow only its name (--requestheader-allowed-names)",
                );
            }
            (Ok(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(data: &Value) -> Vec<String> {
        let mut check = Check::new("front-proxy");
        judge(&Found::Object(json!({"data": data})), &mut check);
        check.done("well").into_iter().map(|finding| finding.message).collect()
    }

    /// Covered here, because kube-apiserver recreates the ConfigMap before an integration test could observe its
    /// absence.
    #[test]
    fn a_missing_front_proxy_config_map_is_reported_as_an_error() {
        let mut check = Check::new("front-proxy");
        judge(&Found::Absent, &mut check);
        let found = check.done("");
        assert_eq!(found[0].outcome, crate::doctor::Outcome::Error);
        assert!(found[0].message.contains("extension-apiserver-authentication is missing"));
        assert!(found[0].remedy.as_ref().unwrap().contains("kubectl -n kube-system get configmap"));
    }

    #[test]
    fn missing_or_invalid_front_proxy_settings_are_reported_by_key() {
        assert!(messages(&json!({}))[0].contains("has no requestheader-client-ca-file"));
        let damaged = messages(&json!({
            "requestheader-client-ca-file": "x",
            "requestheader-allowed-names": "everybody",
            "requestheader-username-headers": "[]",
        }));
        let expected = [
            "is not PEM of certificates",
            "requestheader-allowed-names is not a JSON list",
            "requestheader-username-headers is empty",
            "requestheader-group-headers is empty",
        ];
        assert_eq!(damaged.len(), expected.len(), "{damaged:?}");
        for (message, expected) in damaged.iter().zip(expected) {
            assert!(message.contains(expected), "{message}");
        }
    }
}
