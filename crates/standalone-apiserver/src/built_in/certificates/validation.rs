//! Validates CertificateSigningRequests.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate_signing_request::{APPROVED, DENIED, FAILED, conditions};
use super::pem;
use crate::built_in::checks::{FieldErrors, quote, to_json};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const SHORTEST_DURATION: i32 = 600;
const LONGEST_SUBDOMAIN: usize = 253;
const LONGEST_SIGNER: usize = 571;
const AT_CONDITIONS: &str = "status.conditions";
const AT_CERTIFICATE: &str = "status.certificate";

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Parses the PEM of a request.
///
/// # Errors
/// The reason: kube-apiserver's message if the PEM is invalid.
pub(super) fn parse<T>(
    pem: &[u8],
    read: impl FnOnce(&X509CertificationRequest<'_>) -> T,
) -> Result<T, String> {
    let block = pem::blocks(pem).into_iter().next();
    let Some(block) = block.filter(|block| block.of == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    match X509CertificationRequest::from_der(&block.content) {
        Ok((&[], request)) => Ok(read(&request)),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(_) => Err("asn1: syntax error: invalid certificate request".to_owned()),
    }
}

/// Validates a request. `old` is the stored one, if this is an update.
pub(super) fn validate(
    request: &CertificateSigningRequest,
    old: Option<&CertificateSigningRequest>,
) -> FieldErrors {
    let mut faults = Vec::new();
    check(request, old, &mut faults);
    if let Some(old) = old {
        check_change(request, old, Part::Main, &mut faults);
    }
    faults
}

/// Validates a write to the status, or to the approval.
pub(super) fn validate_status(
    request: &CertificateSigningRequest,
    old: Option<&CertificateSigningRequest>,
    is_approval: bool,
) -> FieldErrors {
    let mut faults = Vec::new();
    check(request, old, &mut faults);
    if let Some(old) = old {
        let part = if is_approval { Part::Approval } else { Part::Status };
        check_change(request, old, part, &mut faults);
    }
    faults
}

/// The part of a request that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Main,
    Status,
    Approval,
}

fn check(
    request: &CertificateSigningRequest,
    old: Option<&CertificateSigningRequest>,
    faults: &mut FieldErrors,
) {
    let spec = &request.spec;
    let verified = parse(&spec.request.0, |request| request.verify_signature());
    let verified = verified.and_then(|verified| {
        verified.map_err(|_| "x509: signature verification failed".to_owned())
    });
    if let Err(why) = verified {
        // Go has no bytes if the field is missing.
        let shown = match spec.request.0.as_slice() {
            [] => "null".to_owned(),
            _ => to_json(&spec.request),
        };
        faults.push(FieldError::invalid("spec.request", shown, &why));
    }
    check_usages(request, old, faults);
    check_signer(&spec.signer_name, old, faults);
    if let Some(seconds) = spec.expiration_seconds.filter(|seconds| *seconds < SHORTEST_DURATION) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        faults.push(FieldError::invalid("spec.expirationSeconds", seconds, why));
    }
    check_conditions(request, old, faults);
    let is_tolerated = old.is_some_and(|old| {
        let before = certificate(old);
        certificate(request) == before || fault_of_certificate(before).is_some()
    });
    if let Some(why) = fault_of_certificate(certificate(request)).filter(|_| !is_tolerated) {
        faults.push(FieldError::invalid(AT_CERTIFICATE, quote("<certificate data>"), &why));
    }
}

fn check_usages(
    request: &CertificateSigningRequest,
    old: Option<&CertificateSigningRequest>,
    faults: &mut FieldErrors,
) {
    const AT: &str = "spec.usages";
    fn usages(request: &CertificateSigningRequest) -> &[String] {
        request.spec.usages.as_deref().unwrap_or_default()
    }
    let is_known = |usage: &String| USAGES.contains(&usage.as_str());
    let given = usages(request);
    if given.is_empty() {
        faults.push(FieldError::required(AT, ""));
    }
    if old.is_none_or(|old| usages(old).iter().all(is_known)) {
        for (index, usage) in given.iter().enumerate().filter(|(_, usage)| !is_known(usage)) {
            let at = format!("{AT}[{index}]");
            faults.push(FieldError::not_supported(at, quote(usage), &USAGES));
        }
    }
    let repeated = |usages: &[String]| -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let all = usages.iter().enumerate();
        all.filter(|(_, usage)| !seen.insert(usage.as_str())).map(|(index, _)| index).collect()
    };
    if old.is_none_or(|old| repeated(usages(old)).is_empty()) {
        for index in repeated(given) {
            let value = given.get(index).map(String::as_str).unwrap_or_default();
            faults.push(FieldError::duplicate(format!("{AT}[{index}]"), quote(value)));
        }
    }
}

fn check_signer(name: &str, old: Option<&CertificateSigningRequest>, faults: &mut FieldErrors) {
    const AT: &str = "spec.signerName";
    if name == LEGACY_SIGNER && old.is_none_or(|old| old.spec.signer_name != LEGACY_SIGNER) {
        let why = "the legacy signerName is not allowed via this API version";
        return faults.push(FieldError::invalid(AT, quote(name), why));
    }
    if name.is_empty() {
        return faults.push(FieldError::required(AT, ""));
    }
    let (domain, path) = match name.split_once('/') {
        Some((domain, path)) if !path.contains('/') => (domain, path),
        _ => {
            let why =
                "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            return faults.push(FieldError::invalid(AT, quote(name), why));
        }
    };
    if domain.len() > LONGEST_SUBDOMAIN {
        faults.push(FieldError::too_long(AT, LONGEST_SUBDOMAIN as u64));
    }
    check_labels(AT, domain, names::check_dns_1123_label, faults);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        faults.push(FieldError::invalid(AT, quote(domain), why));
    }
    check_labels(AT, path, names::check_dns_1123_subdomain, faults);
    if name.len() > LONGEST_SIGNER {
        faults.push(FieldError::too_long(AT, LONGEST_SIGNER as u64));
    }
}

/// Checks the labels of a part of a name, until one is invalid.
fn check_labels(at: &str, part: &str, check: fn(&str) -> Vec<String>, faults: &mut FieldErrors) {
    let of_label = |label: &str| {
        let whys = check(label);
        (!whys.is_empty()).then(|| (quote(label), whys))
    };
    if let Some((label, whys)) = part.split('.').find_map(of_label) {
        faults.extend(whys.iter().map(|why| {
            FieldError::invalid(at, quote(part), &format!("validating label {label}: {why}"))
        }));
    }
}

fn check_conditions(
    request: &CertificateSigningRequest,
    old: Option<&CertificateSigningRequest>,
    faults: &mut FieldErrors,
) {
    let old = old.map(conditions).unwrap_or_default();
    let had = |of: &str| old.iter().any(|condition| condition.type_ == of);
    let allows_both = had(APPROVED) && had(DENIED);
    let allows_empty = had("");
    let types: BTreeSet<&str> = old.iter().map(|condition| condition.type_.as_str()).collect();
    let allows_repeated = types.len() < old.len();
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions(request).iter().enumerate() {
        let CertificateSigningRequestCondition { type_, status, .. } = condition;
        let at = format!("{AT_CONDITIONS}[{index}]");
        if type_.is_empty() && !allows_empty {
            faults.push(FieldError::required(format!("{at}.type"), ""));
        }
        let allowed: &[&str] = match [APPROVED, DENIED, FAILED].contains(&type_.as_str()) {
            true => &["True"],
            false => &["False", "True", "Unknown"],
        };
        let at_status = format!("{at}.status");
        match status.as_str() {
            "" => faults.push(FieldError::required(at_status, "")),
            status if !allowed.contains(&status) => {
                faults.push(FieldError::not_supported(at_status, quote(status), allowed));
            }
            _ => {}
        }
        let excluded = match type_.as_str() {
            APPROVED => Some(DENIED),
            DENIED => Some(APPROVED),
            _ => None,
        };
        if !allows_both && excluded.is_some_and(|excluded| seen.contains(excluded)) {
            let why = "Approved and Denied conditions are mutually exclusive";
            faults.push(FieldError::invalid(AT_CONDITIONS, quote(type_), why));
        }
        if !seen.insert(type_.as_str()) && !allows_repeated {
            faults.push(FieldError::duplicate(format!("{at}.type"), quote(type_)));
        }
    }
}

fn check_change(
    request: &CertificateSigningRequest,
    old: &CertificateSigningRequest,
    part: Part,
    faults: &mut FieldErrors,
) {
    fn of<'a>(
        request: &'a CertificateSigningRequest,
        of: &str,
    ) -> Vec<&'a CertificateSigningRequestCondition> {
        conditions(request).iter().filter(|condition| condition.type_ == of).collect()
    }
    let mut forbid = |at: &str, why: &str| faults.push(FieldError::forbidden(at, why));
    for kind in [APPROVED, DENIED, FAILED] {
        if of(request, kind).len() < of(old, kind).len() {
            let why = format!("updates may not remove a condition of type {}", quote(kind));
            forbid(AT_CONDITIONS, &why);
        }
    }
    for kind in [APPROVED, DENIED].into_iter().filter(|_| part != Part::Approval) {
        let (before, after) = (of(old, kind), of(request, kind));
        if after.len() > before.len() {
            let why = format!("updates may not add a condition of type {}", quote(kind));
            forbid(AT_CONDITIONS, &why);
        } else if after.len() == before.len() && after != before {
            let why = format!("updates may not modify a condition of type {}", quote(kind));
            forbid(AT_CONDITIONS, &why);
        }
    }
    if certificate(request) != certificate(old) {
        if part != Part::Status {
            forbid(AT_CERTIFICATE, "updates may not set certificate content");
        } else if !certificate(old).is_empty() {
            forbid(AT_CERTIFICATE, "updates may not modify existing certificate content");
        }
    }
}

fn certificate(request: &CertificateSigningRequest) -> &[u8] {
    let status = request.status.as_ref();
    status.and_then(|status| status.certificate.as_ref()).map_or(&[], |bytes| &bytes.0)
}

/// Returns the error of an issued certificate, which is PEM.
fn fault_of_certificate(certificate: &[u8]) -> Option<String> {
    if certificate.is_empty() {
        return None;
    }
    let blocks = pem::blocks(certificate);
    for block in &blocks {
        if block.of != "CERTIFICATE" {
            let of = quote(&block.of);
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {of}"));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        let mut rest = block.content.as_slice();
        if rest.is_empty() {
            let why = "found CERTIFICATE PEM block containing 0 certificates";
            return Some(why.to_owned());
        }
        while !rest.is_empty() {
            match X509Certificate::from_der(rest) {
                Ok((after, _)) => rest = after,
                Err(_) => return Some("x509: malformed certificate".to_owned()),
            }
        }
    }
    let why = "must contain at least one CERTIFICATE PEM block";
    blocks.is_empty().then(|| why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, texts};
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::{Value, json};

    fn pem() -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn request(spec: Value) -> CertificateSigningRequest {
        let mut whole = json!({"signerName": "example.com/signer", "usages": ["any"]});
        whole["request"] = to_value(pem().as_bytes());
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object(json!({"metadata": {"name": "a"}, "spec": whole}))
    }

    fn to_value(bytes: &[u8]) -> Value {
        serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap()
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let changed = pem().replacen("MI", "MJ", 1);
        for (spec, expected) in [
            (json!({}), vec![]),
            (json!({"usages": []}), vec!["spec.usages: Required value"]),
            (
                json!({"usages": ["any", "any"], "expirationSeconds": 599}),
                vec![
                    "spec.usages[1]: Duplicate value: \"any\"",
                    "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
                ],
            ),
            (
                json!({"signerName": "a"}),
                vec![
                    "spec.signerName: Invalid value: \"a\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
                ],
            ),
            (
                json!({"signerName": "a/b"}),
                vec![
                    "spec.signerName: Invalid value: \"a\": should be a domain with at least two segments separated by dots",
                ],
            ),
            (
                json!({"request": to_value(b"x")}),
                vec![
                    "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
                ],
            ),
        ] {
            let found = texts(&validate(&request(spec.clone()), None));
            assert_eq!(found, expected, "{spec}");
        }
        let found =
            texts(&validate(&request(json!({"request": to_value(changed.as_bytes())})), None));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn approvals_cannot_be_removed_and_only_the_approval_adds_them() {
        let with = |types: &[&str]| {
            let mut request = request(json!({}));
            let conditions: Value =
                types.iter().map(|of| json!({"type": of, "status": "True"})).collect();
            request.status = Some(object(json!({"conditions": conditions})));
            request
        };
        let update = |old: &[&str], new: &[&str], is_approval| {
            let mut new = with(new);
            let old = with(old);
            new.spec = old.spec.clone();
            texts(&validate_status(&new, Some(&old), is_approval))
        };
        assert_eq!(update(&[], &["Approved"], true), [] as [&str; 0]);
        assert_eq!(
            update(&[], &["Approved"], false),
            ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]
        );
        assert_eq!(
            update(&["Approved"], &["Approved", "Denied"], true),
            [
                "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
            ]
        );
        assert_eq!(
            update(&["Denied"], &[], true),
            ["status.conditions: Forbidden: updates may not remove a condition of type \"Denied\""]
        );
    }

    #[test]
    fn an_issued_certificate_is_pem() {
        let of = |text: &str| fault_of_certificate(text.as_bytes());
        assert_eq!(of(""), None);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        assert_eq!(of(&certificate), None);
        assert_eq!(of("x").unwrap(), "must contain at least one CERTIFICATE PEM block");
        let other = of(&pem()).unwrap();
        assert_eq!(other, "only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"");
    }
}
