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
use super::validation::parse;
use crate::built_in::checks::quote;

type Tree = Map<String, Value>;

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Rejects approvals of users without the permission to `approve` requests of the signer, and writes to the status of
/// users without the permission to `sign` them.
pub(crate) struct CertificatePermissions {
    /// The chain that decides about `approve` and `sign`.
    pub(crate) authorizers: Authorizers,
}

impl AdmissionPlugin for CertificatePermissions {
    fn name(&self) -> &str {
        "CertificateApproval"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        (request.group, request.resource) == (GROUP, RESOURCE)
            && request.operation == AdmissionOperation::Update
            && [APPROVAL, "status"].contains(&request.subresource)
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
        let verb = if request.subresource == APPROVAL { "approve" } else { "sign" };
        let field = |tree: &Tree, name: &str| {
            let value = tree.get("status").and_then(|status| status.get(name));
            value.filter(|value| **value != Value::Array(Vec::new())).cloned()
        };
        let is_same = |name| field(old, name) == field(object, name);
        if verb == "sign" && is_same("certificate") && is_same("conditions") {
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
                all.filter_map(|name| name.as_str().ok().map(str::to_owned)).collect::<Vec<_>>()
            })
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
