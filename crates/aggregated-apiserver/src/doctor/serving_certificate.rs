//! Verifies the serving certificate against the `caBundle` of the server's APIServices. The certificate comes from a
//! TLS handshake if the server is reachable from this machine, otherwise from the Secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation, items, text, workload};
use crate::manifests;
use crate::server::{self, Rejection};

/// The largest number of addresses that are tried; each can take several seconds.
const TRIED: usize = 3;

/// A certificate chain, and where it comes from.
struct Seen {
    chain: String,
    place: String,
}

/// The reason why there is no certificate to verify.
enum Unseen {
    /// The certificate is missing.
    Missing(String),
    /// The certificate is not visible from this machine, with the reason and the remedy.
    Hidden(String, String),
}

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("certificate");
    let name = format!("{}.{}.svc", installation.service, installation.namespace);
    let seen = match seen(installation, &name).await {
        Ok(seen) => seen,
        Err(Unseen::Missing(why)) => {
            check.fault(why, installation.logs());
            return check.done("");
        }
        Err(Unseen::Hidden(why, remedy)) => {
            check.unseen("the served certificate", &why, remedy);
            return check.done("");
        }
    };
    // A running process keeps its certificate in memory, so no other check notices a missing Secret.
    let (what, path) = secret(installation);
    if installation.deployed.has_certificate_of_its_own() != Some(true)
        && let Found::Absent = installation.find(&path).await
    {
        check.warn(
            format!("{what} is missing: the next process creates another CA"),
            format!(
                "a running server creates it again within a minute; if it has no permission: {}",
                create_secret(installation)
            ),
        );
    }
    let mut judged = 0;
    for api_service in &installation.api_services {
        match installation.find_api_service(api_service).await {
            Found::Object(found) => {
                judged += 1;
                for seen in &seen {
                    judge(installation, api_service, &found, seen, &mut check);
                }
            }
            Found::Absent => {}
            Found::Hidden(why) => {
                check.unknown(&format!("the caBundle of APIService {api_service}"), &why);
            }
        }
    }
    if judged == 0 {
        // An earlier check has already reported that they are missing.
        check.unseen("the CAs of the APIServices", "there is no APIService", installation.create());
    }
    let places: Vec<&str> = seen.iter().map(|seen| seen.place.as_str()).collect();
    check.done(format!("the APIServices trust the certificate {}", places.join(", and ")))
}

fn judge(
    installation: &Installation,
    api_service: &str,
    found: &Value,
    seen: &Seen,
    check: &mut Check,
) {
    let spec = &found["spec"];
    // If kube-apiserver accepts the certificate, the server works, whatever this check finds. On this machine's network
    // the address may belong to another machine, and kube-apiserver may trust a certificate that is rejected here.
    let is_content = is_available(found);
    let mut tell = |message: String, remedy: String| match is_content {
        true => check.warn(
            format!("{message}; kube-apiserver reports the server as available at present"),
            remedy,
        ),
        false => check.fault(message, remedy),
    };
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
                "APIService {api_service} has no caBundle: kube-apiserver trusts only the CAs of its own machine"
            ),
            _ => format!("the caBundle of APIService {api_service} is not PEM of certificates"),
        };
        tell(message, set);
        return;
    };
    if let Some(why) = server::refusal(&pem, &seen.chain, &name, installation.clock.now()) {
        let remedy = match &why {
            Rejection::UnknownIssuer => set,
            Rejection::Other(_) => format!("issue it again for {name}: {}", installation.logs()),
        };
        let message = format!(
            "kube-apiserver should refuse the certificate {} by the caBundle of APIService {api_service}: it {why}",
            seen.place
        );
        tell(message, remedy);
    }
}

/// Whether kube-apiserver reports an APIService as available.
fn is_available(api_service: &Value) -> bool {
    let mut conditions = items(&api_service["status"]["conditions"]).iter();
    conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// Returns the certificates that servers present, or else the one in the Secret.
async fn seen(installation: &Installation, name: &str) -> Result<Vec<Seen>, Unseen> {
    let mut unreachable = None;
    let mut shown: Vec<Seen> = Vec::new();
    for address in workload::addresses(installation).await.iter().take(TRIED) {
        match server::presented(address, name).await {
            // Servers with the same certificate are reported once.
            Ok(chain) if shown.iter().any(|known| known.chain == chain) => {}
            Ok(chain) => shown.push(Seen { chain, place: format!("at {address}") }),
            Err(why) => unreachable = Some(format!("{address} cannot be reached from here: {why}")),
        }
    }
    if !shown.is_empty() {
        return Ok(shown);
    }
    let unreachable = unreachable.unwrap_or_else(|| "no address is known".to_owned());
    let way = "set --server-address=HOST:PORT, for example of kubectl port-forward";
    let own = installation.deployed.has_certificate_of_its_own();
    if own == Some(true) {
        let why = format!("it is in files that --tls-cert-file names, and {unreachable}");
        return Err(Unseen::Hidden(why, way.to_owned()));
    }
    let (what, path) = secret(installation);
    let none = |why: String| match own {
        Some(_) => Unseen::Missing(why),
        // The certificate may be in files.
        None => Unseen::Hidden(format!("{unreachable}, and {why}"), way.to_owned()),
    };
    match installation.find(&path).await {
        Found::Object(found) => {
            let kept = STANDARD.decode(text(&found["data"]["tls.crt"])).unwrap_or_default();
            let kept = String::from_utf8(kept).unwrap_or_default();
            match server::is_bundle(&kept) {
                true => Ok(vec![Seen { chain: kept, place: format!("in {what}") }]),
                false => Err(none(format!(
                    "{what} has no certificate yet: the server has not started, or has no permission to update it"
                ))),
            }
        }
        Found::Absent => Err(none(format!(
            "{what}, which stores the certificate of the server, is missing ({unreachable}): {}",
            create_secret(installation)
        ))),
        Found::Hidden(why) => Err(Unseen::Hidden(
            format!("{unreachable}, and {what} cannot be read: {why}"),
            format!("retry as an administrator of the cluster (--kubeconfig), or {way}"),
        )),
    }
}

/// The Secret that contains the certificate: its name and its URL path.
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
