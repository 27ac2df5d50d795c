//! The admission plugins of kube-apiserver that read other objects of built-in kinds.

mod claim_resize;
mod default_class;
pub(crate) mod default_toleration_seconds;
mod limit_ranger;
mod pod_security;
pub(crate) mod priority;
mod runtime_class;
pub(crate) mod storage_protection;
mod taint_nodes_by_condition;

use aggregated_apiserver::Kinds;
use aggregated_apiserver::admission::{AdmissionOperation, AdmissionRequest};

use super::certificates::admission::CertificateSubjectRestriction;
use super::resource::admin_access::DeviceAdminAccess;
use claim_resize::ClaimResize;
use default_class::{DefaultIngressClass, DefaultStorageClass};
use default_toleration_seconds::DefaultTolerationSeconds;
use limit_ranger::LimitRanger;
pub(crate) use pod_security::Configuration as PodSecurityConfiguration;
use pod_security::PodSecurity;
use priority::Priority;
use runtime_class::RuntimeClass;
use storage_protection::StorageObjectInUseProtection;
use taint_nodes_by_condition::TaintNodesByCondition;

/// The plugins, in the order of kube-apiserver.
pub(super) fn plugins(pod_security: PodSecurityConfiguration) -> Kinds {
    Kinds::new()
        .with_admission_plugin(LimitRanger)
        .with_admission_plugin(TaintNodesByCondition)
        .with_admission_plugin(PodSecurity(pod_security))
        .with_admission_plugin(Priority)
        .with_admission_plugin(DefaultTolerationSeconds)
        .with_admission_plugin(DefaultStorageClass)
        .with_admission_plugin(StorageObjectInUseProtection)
        .with_admission_plugin(ClaimResize)
        .with_admission_plugin(RuntimeClass)
        .with_admission_plugin(CertificateSubjectRestriction)
        .with_admission_plugin(DefaultIngressClass)
        .with_admission_plugin(DeviceAdminAccess)
}

/// Whether a request creates an object of this kind.
fn creates(request: &AdmissionRequest<'_>, group: &str, resource: &str) -> bool {
    let is_creation = request.operation == AdmissionOperation::Create;
    is_creation && is_of(request, group, resource)
}

/// Whether a request writes an object of this kind, and not one of its subresources.
fn is_of(request: &AdmissionRequest<'_>, group: &str, resource: &str) -> bool {
    request.subresource.is_empty() && request.group == group && request.resource == resource
}
