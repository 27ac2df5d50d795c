//! The admission plugins of kube-apiserver about CertificateSigningRequests: CertificateApproval, CertificateSigning and
//! CertificateSubjectRestriction.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::auth::Authorizers;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Map, Value};
use x509_parser::der_parser::oid;

use super::certificate_signing_request::APPROVAL;
use super::directory_string::read;
use super::validation::parse;
use crate::built_in::checks::quote;

type Tree = Map<String, Value>;

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// The admission plugins CertificateApproval and CertificateSigning of Kubernetes. CertificateApproval rejects approvals
/// of users without the permission to `approve` requests of the signer. CertificateSigning rejects writes to the status
/// of users without the permission to `sign` them.
pub(crate) struct CertificatePermissions {
    verb: Verb,
    /// The chain that decides about the verb.
    authorizers: Authorizers,
}

/// The verb of a signer for which a plugin requires the permission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Approve,
    Sign,
}

impl CertificatePermissions {
    /// The plugin CertificateApproval, whose permissions this chain decides about.
    pub(crate) fn approval(authorizers: Authorizers) -> Self {
        Self { verb: Verb::Approve, authorizers }
    }

    /// The plugin CertificateSigning, whose permissions this chain decides about.
    pub(crate) fn signing(authorizers: Authorizers) -> Self {
        Self { verb: Verb::Sign, authorizers }
    }

    /// The subresource whose writes the plugin decides about.
    fn subresource(&self) -> &'static str {
        match self.verb {
            Verb::Approve => APPROVAL,
            Verb::Sign => "status",
        }
    }
}

impl AdmissionPlugin for CertificatePermissions {
    fn name(&self) -> &str {
        match self.verb {
            Verb::Approve => "CertificateApproval",
            Verb::Sign => "CertificateSigning",
        }
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        (request.group, request.resource) == (GROUP, RESOURCE)
            && request.operation == AdmissionOperation::Update
            && request.subresource == self.subresource()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        match object {
            Some(object) => Box::pin(self.judge(request, object)),
            None => Box::pin(ready(Ok(()))),
        }
    }
}

impl CertificatePermissions {
    async fn judge(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        let Some(old) = request.old_object() else { return Ok(()) };
        let verb = match self.verb {
            Verb::Approve => "approve",
            Verb::Sign => "sign",
        };
        let field = |tree: &Tree, name: &str| {
            let value = tree.get("status").and_then(|status| status.get(name));
            value.filter(|value| **value != Value::Array(Vec::new())).cloned()
        };
        let is_same = |name| field(old, name) == field(object, name);
        if self.verb == Verb::Sign && is_same("certificate") && is_same("conditions") {
            return Ok(());
        }
        let signer = text(old, "signerName");
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer.to_owned(), format!("{domain}/*")] {
            let text = |text: &str| Some(text.to_owned());
            let asked = ResourceAttributes {
                verb: text(verb),
                group: text(GROUP),
                version: text("*"),
                resource: text("signers"),
                name: Some(name),
                ..ResourceAttributes::default()
            };
            let decision = self.authorizers.authorize(request.user, &(&asked).into()).await;
            // The chain has logged an error.
            if decision.is_ok_and(|decision| decision.is_allowed()) {
                return Ok(());
            }
        }
        let signer = quote(signer);
        let why = format!("user not permitted to {verb} requests with signerName {signer}");
        Err(AdmissionError::forbidden(why))
    }
}

/// The admission plugin CertificateSubjectRestriction of Kubernetes: rejects requests for client certificates of
/// `system:masters`.
pub(crate) struct CertificateSubjectRestriction;

impl AdmissionPlugin for CertificateSubjectRestriction {
    fn name(&self) -> &str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        (request.group, request.resource) == (GROUP, RESOURCE)
            && request.operation == AdmissionOperation::Create
            && request.subresource.is_empty()
    }

    fn validate<'a>(
        &'a self,
        _request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(ready(object.map_or(Ok(()), check_subject)))
    }
}

fn check_subject(request: &Tree) -> Result<(), AdmissionError> {
    if text(request, "signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let organizations = STANDARD
        .decode(text(request, "request"))
        .map_err(|error| error.to_string())
        .and_then(|pem| {
            parse(&pem, |request| {
                let subject = &request.certification_request_info.subject;
                let all = subject.iter_by_oid(&oid!(2.5.4.10));
                all.map(|name| read(name.attr_value())).collect::<Result<Vec<_>, _>>()
            })?
        });
    let refuse = |why: String| Err(AdmissionError::forbidden(why));
    match organizations {
        Err(why) => refuse(format!("failed to parse CSR: {why}")),
        Ok(all) if all.iter().any(|name| name == MASTERS) => {
            refuse(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))
        }
        Ok(_) => Ok(()),
    }
}

/// A string in the spec of a request.
fn text<'a>(request: &'a Tree, field: &str) -> &'a str {
    let value = request.get("spec").and_then(|spec| spec.get(field)?.as_str());
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString, UniversalString};
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
    use serde_json::json;

    /// The result for a request of a client certificate with this organization.
    fn check(organization: DnValue) -> Result<(), String> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = json!({"spec": {
            "signerName": CLIENT_SIGNER, "request": STANDARD.encode(pem),
        }});
        check_subject(request.as_object().unwrap()).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn system_masters_is_rejected_in_each_type_of_string() {
        fn all(group: &str) -> [DnValue; 4] {
            [
                DnValue::Utf8String(group.to_owned()),
                DnValue::Ia5String(Ia5String::try_from(group).unwrap()),
                DnValue::TeletexString(TeletexString::try_from(group).unwrap()),
                DnValue::BmpString(BmpString::try_from(group).unwrap()),
            ]
        }
        for organization in all(MASTERS) {
            let why = check(organization.clone()).expect_err("the group is rejected");
            assert!(why.contains("system:masters group is not allowed"), "{organization:?}: {why}");
        }
        for organization in all("developers") {
            assert_eq!(check(organization), Ok(()));
        }
        let printable = PrintableString::try_from(MASTERS).unwrap();
        assert!(check(DnValue::PrintableString(printable)).is_err());
        let universal = UniversalString::try_from("developers").unwrap();
        let why = check(DnValue::UniversalString(universal)).expect_err("the type is rejected");
        assert!(why.contains("failed to parse CSR: "), "{why}");
    }
}
