//! The `caBundle` of our APIServices against the certificate that is served: as it is shown, where the server
//! can be reached from here, else as the Secret keeps it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation, text, workload};
use crate::manifests;
use crate::server;

/// Addresses that are tried: each may take some seconds.
const TRIED: usize = 3;

/// A chain of certificates, and where it was seen.
struct Seen {
    chain: String,
    place: String,
}

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("certificate");
    let name = format!("{}.{}.svc", installation.service, installation.namespace);
    let seen = match seen(installation, &name).await {
        Ok(seen) => seen,
        Err((what, why)) if what.is_empty() => {
            check.fault(why, installation.logs());
            return check.done("");
        }
        Err((what, why)) => {
            check.unknown(&what, &why);
            return check.done("");
        }
    };
    // What is served stays while the process lives, so nobody else notices.
    let (what, path) = secret(installation);
    if let Found::Absent = installation.find(&path).await {
        check.warn(
            format!("{what} is missing: the next process that starts makes another CA"),
            format!("{}; the server fills it within a minute", create_secret(installation)),
        );
    }
    for api_service in &installation.api_services {
        // What is missing was told already.
        let Found::Object(found) = installation.find_api_service(api_service).await else {
            continue;
        };
        judge(installation, api_service, &found["spec"], &seen, &mut check);
    }
    check.done(format!("the certificate {} is what APIServices trust", seen.place))
}

fn judge(
    installation: &Installation,
    api_service: &str,
    spec: &Value,
    seen: &Seen,
    check: &mut Check,
) {
    if spec["insecureSkipTLSVerify"] == true {
        return;
    }
    let name = format!("{}.{}.svc", installation.service, installation.namespace);
    let set = format!(
        "without --tls-cert-file the server sets it within ten seconds: {}; with it: kubectl patch apiservice {api_service} --type=merge -p '{{\"spec\":{{\"caBundle\":\"'$(base64 -w0 ca.crt)'\"}}}}'",
        installation.logs()
    );
    let bundle = text(&spec["caBundle"]);
    let pem = STANDARD.decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(pem) = pem.filter(|pem| server::is_bundle(pem)) else {
        let message = match bundle {
            "" => format!(
                "APIService {api_service} has no caBundle: kube-apiserver trusts the CAs of its own machine alone"
            ),
            _ => format!("the caBundle of APIService {api_service} is not PEM of certificates"),
        };
        check.fault(message, set);
        return;
    };
    if let Some(why) = server::refusal(&pem, &seen.chain, &name, installation.clock.now()) {
        let remedy = match why.contains("none of these CAs") {
            true => set,
            false => format!("issue it anew for {name}: {}", installation.logs()),
        };
        let message = format!(
            "kube-apiserver refuses the certificate {} by the caBundle of APIService {api_service}: it {why}",
            seen.place
        );
        check.fault(message, remedy);
    }
}

/// The certificate that the server shows, or keeps. An error names what cannot be seen, and why; if the first is
/// empty, there is none.
async fn seen(installation: &Installation, name: &str) -> Result<Seen, (String, String)> {
    let mut unreachable = None;
    for address in workload::addresses(installation).await.iter().take(TRIED) {
        match server::presented(address, name).await {
            Ok(chain) => return Ok(Seen { chain, place: format!("that is shown at {address}") }),
            Err(why) => unreachable = Some(format!("{address} cannot be reached from here: {why}")),
        }
    }
    let unreachable = unreachable.unwrap_or_else(|| "no address is known".to_owned());
    let (what, path) = secret(installation);
    match installation.find(&path).await {
        Found::Object(found) => {
            let kept = STANDARD.decode(text(&found["data"]["tls.crt"])).unwrap_or_default();
            let kept = String::from_utf8(kept).unwrap_or_default();
            match server::is_bundle(&kept) {
                true => Ok(Seen { chain: kept, place: format!("in {what}") }),
                false => Err((
                    String::new(),
                    format!(
                        "{what} keeps no certificate yet: the server has not started, or may not update it"
                    ),
                )),
            }
        }
        Found::Absent => Err((
            String::new(),
            format!(
                "{what} is missing, in which the server keeps its certificate ({unreachable}): {}",
                create_secret(installation)
            ),
        )),
        Found::Hidden(why) => Err((format!("the certificate that is served ({unreachable})"), why)),
    }
}

/// The Secret that keeps the certificate: what it is called, and where it is.
fn secret(installation: &Installation) -> (String, String) {
    let Installation { namespace, .. } = installation;
    let secret = manifests::secret(&installation.name);
    (
        format!("Secret {namespace}/{secret}"),
        format!("/api/v1/namespaces/{namespace}/secrets/{secret}"),
    )
}

fn create_secret(installation: &Installation) -> String {
    let secret = manifests::secret(&installation.name);
    format!("kubectl -n {} create secret generic {secret}", installation.namespace)
}
