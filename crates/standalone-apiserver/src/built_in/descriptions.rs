//! The descriptions of types and fields in OpenAPI documents, generated from the Rust types at the first use.

use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler as OlderAutoscaler;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Binding, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::{
    IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schemas of all types, by name.
pub(super) fn all() -> &'static Map<String, Value> {
    static ALL: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let settings = SchemaSettings::openapi3().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            // The descriptions need no changes.
            settings.transforms.clear();
        });
        let mut generator = SchemaGenerator::new(settings);
        generator.subschema_for::<APIService>();
        generator.subschema_for::<Binding>();
        generator.subschema_for::<CSIDriver>();
        generator.subschema_for::<CSINode>();
        generator.subschema_for::<CSIStorageCapacity>();
        generator.subschema_for::<CertificateSigningRequest>();
        generator.subschema_for::<ClusterRole>();
        generator.subschema_for::<ClusterRoleBinding>();
        generator.subschema_for::<ConfigMap>();
        generator.subschema_for::<ControllerRevision>();
        generator.subschema_for::<CronJob>();
        generator.subschema_for::<CustomResourceDefinition>();
        generator.subschema_for::<DaemonSet>();
        generator.subschema_for::<Deployment>();
        generator.subschema_for::<DeviceClass>();
        generator.subschema_for::<EndpointSlice>();
        generator.subschema_for::<Endpoints>();
        generator.subschema_for::<Event>();
        generator.subschema_for::<Eviction>();
        generator.subschema_for::<FlowSchema>();
        generator.subschema_for::<HorizontalPodAutoscaler>();
        generator.subschema_for::<IPAddress>();
        generator.subschema_for::<Ingress>();
        generator.subschema_for::<IngressClass>();
        generator.subschema_for::<Job>();
        generator.subschema_for::<Lease>();
        generator.subschema_for::<LimitRange>();
        generator.subschema_for::<MutatingWebhookConfiguration>();
        generator.subschema_for::<Namespace>();
        generator.subschema_for::<NetworkPolicy>();
        generator.subschema_for::<NewEvent>();
        generator.subschema_for::<Node>();
        generator.subschema_for::<OlderAutoscaler>();
        generator.subschema_for::<PersistentVolume>();
        generator.subschema_for::<PersistentVolumeClaim>();
        generator.subschema_for::<Pod>();
        generator.subschema_for::<PodDisruptionBudget>();
        generator.subschema_for::<PodTemplate>();
        generator.subschema_for::<PriorityClass>();
        generator.subschema_for::<PriorityLevelConfiguration>();
        generator.subschema_for::<ReplicaSet>();
        generator.subschema_for::<ReplicationController>();
        generator.subschema_for::<ResourceClaim>();
        generator.subschema_for::<ResourceClaimTemplate>();
        generator.subschema_for::<ResourceQuota>();
        generator.subschema_for::<ResourceSlice>();
        generator.subschema_for::<Role>();
        generator.subschema_for::<RoleBinding>();
        generator.subschema_for::<RuntimeClass>();
        generator.subschema_for::<Secret>();
        generator.subschema_for::<Service>();
        generator.subschema_for::<ServiceAccount>();
        generator.subschema_for::<ServiceCIDR>();
        generator.subschema_for::<StatefulSet>();
        generator.subschema_for::<StorageClass>();
        generator.subschema_for::<ValidatingAdmissionPolicy>();
        generator.subschema_for::<ValidatingAdmissionPolicyBinding>();
        generator.subschema_for::<ValidatingWebhookConfiguration>();
        generator.subschema_for::<VolumeAttachment>();
        generator.subschema_for::<VolumeAttributesClass>();
        generator.subschema_for::<LocalSubjectAccessReview>();
        generator.subschema_for::<SelfSubjectAccessReview>();
        generator.subschema_for::<SelfSubjectReview>();
        generator.subschema_for::<SelfSubjectRulesReview>();
        generator.subschema_for::<SubjectAccessReview>();
        generator.subschema_for::<TokenRequest>();
        generator.subschema_for::<TokenReview>();
        generator.take_definitions(false)
    });
    &ALL
}
