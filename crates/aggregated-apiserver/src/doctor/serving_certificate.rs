//! The `caBundle` of our APIServices against the certificate that is served: as it is shown, where the server
//! can be reached from here, else as the Secret keeps it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::finding::{Check, Finding};
use super::{Found, Installation, items, text, workload};
use crate::manifests;
use crate::server;

/// Addresses that are tried: each may take some seconds.
const TRIED: usize = 3;

/// A chain of certificates, and where it was seen.
struct Seen {
    chain: String,
    place: String,
}

/// Why no certificate was seen.
enum Unseen {
    /// There is none.
    Missing(String),
    /// It cannot be looked at from here: why, and what to do.
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
            check.unseen("the certificate that is served", &why, remedy);
            return check.done("");
        }
    };
    // What is served stays while the process lives, so nobody else notices.
    let (what, path) = secret(installation);
    if installation.deployed.has_certificate_of_its_own() != Some(true)
        && let Found::Absent = installation.find(&path).await
    {
        check.warn(
            format!("{what} is missing: the next process that starts makes another CA"),
            format!(
                "a server that runs makes it anew within a minute; if it may not: {}",
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
                check.unknown(&format!("what APIService {api_service} trusts"), &why);
            }
        }
    }
    if judged == 0 {
        // What is missing was told already.
        check.unseen(
            "what APIServices trust",
            "there is no APIService to see",
            installation.create(),
        );
    }
    let places: Vec<&str> = seen.iter().map(|seen| seen.place.as_str()).collect();
    check.done(format!("the certificate {} is what APIServices trust", places.join(", and ")))
}

fn judge(
    installation: &Installation,
    api_service: &str,
    found: &Value,
    seen: &Seen,
    check: &mut Check,
) {
    let spec = &found["spec"];
    // What kube-apiserver takes works, whatever is seen from here: an address may be another machine's in the
    // network of whoever looks, and kube-apiserver may trust what is refused here.
    let is_content = is_available(found);
    let mut tell = |message: String, remedy: String| match is_content {
        true => check.warn(
            format!("{message}; but kube-apiserver finds the server well at present"),
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
                "APIService {api_service} has no caBundle: kube-apiserver trusts the CAs of its own machine alone"
            ),
            _ => format!("the caBundle of APIService {api_service} is not PEM of certificates"),
        };
        tell(message, set);
        return;
    };
    if let Some(why) = server::refusal(&pem, &seen.chain, &name, installation.clock.now()) {
        let remedy = match why.contains("none of these CAs") {
            true => set,
            false => format!("issue it anew for {name}: {}", installation.logs()),
        };
        let message = format!(
            "kube-apiserver should refuse the certificate {} by the caBundle of APIService {api_service}: it {why}",
            seen.place
        );
        tell(message, remedy);
    }
}

/// Whether kube-apiserver finds the server of an APIService well.
fn is_available(api_service: &Value) -> bool {
    let mut conditions = items(&api_service["status"]["conditions"]).iter();
    conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// The certificates that servers show, or else the one that is kept.
async fn seen(installation: &Installation, name: &str) -> Result<Vec<Seen>, Unseen> {
    let mut unreachable = None;
    let mut shown: Vec<Seen> = Vec::new();
    for address in workload::addresses(installation).await.iter().take(TRIED) {
        match server::presented(address, name).await {
            // Servers that share a certificate are told of once.
            Ok(chain) if shown.iter().any(|known| known.chain == chain) => {}
            Ok(chain) => shown.push(Seen { chain, place: format!("that is shown at {address}") }),
            Err(why) => unreachable = Some(format!("{address} cannot be reached from here: {why}")),
        }
    }
    if !shown.is_empty() {
        return Ok(shown);
    }
    let unreachable = unreachable.unwrap_or_else(|| "no address is known".to_owned());
    let way =
        "--server-address=HOST:PORT names a way to the server, as that of kubectl port-forward";
    let own = installation.deployed.has_certificate_of_its_own();
    if own == Some(true) {
        let why = format!("it is in files that --tls-cert-file names, and {unreachable}");
        return Err(Unseen::Hidden(why, way.to_owned()));
    }
    let (what, path) = secret(installation);
    let none = |why: String| match own {
        Some(_) => Unseen::Missing(why),
        // It may be in files.
        None => Unseen::Hidden(format!("{unreachable}, and {why}"), way.to_owned()),
    };
    match installation.find(&path).await {
        Found::Object(found) => {
            let kept = STANDARD.decode(text(&found["data"]["tls.crt"])).unwrap_or_default();
            let kept = String::from_utf8(kept).unwrap_or_default();
            match server::is_bundle(&kept) {
                true => Ok(vec![Seen { chain: kept, place: format!("in {what}") }]),
                false => Err(none(format!(
                    "{what} keeps no certificate yet: the server has not started, or may not update it"
                ))),
            }
        }
        Found::Absent => Err(none(format!(
            "{what} is missing, in which the server keeps its certificate ({unreachable}): {}",
            create_secret(installation)
        ))),
        Found::Hidden(why) => Err(Unseen::Hidden(
            format!("{unreachable}, and {what} is not shown: {why}"),
            format!("look again as an administrator of the cluster (--kubeconfig), or {way}"),
        )),
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
