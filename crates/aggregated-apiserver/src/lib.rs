//! Serve Kubernetes kinds of your own from Rust, behind kube-apiserver.
//!
//! Derive [`kube::CustomResource`], say whether the server keeps the objects
//! ([`Stored`]) or computes them from what the cluster holds ([`Computed`]),
//! and run an [`ApiServer`]: an HTTPS server that kube-apiserver puts behind
//! an `APIService`. There is no etcd, no code generation and no Go.
//!
//! ```
//! use aggregated_apiserver::{ApiServer, Kinds, Stored};
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
//! pub struct FooSpec {
//!     pub size: i64,
//! }
//!
//! impl Stored for Foo {}
//!
//! let server = ApiServer::new("foo-server", Kinds::new().stored::<Foo>());
//! ```
//!
//! # Who owns which field
//!
//! Every write notes in `metadata.managedFields` which fields its manager owns, and
//! `kubectl apply --server-side`, or kube's `Patch::Apply`, changes what others own only if it is
//! told to. There is nothing to do for that, but a schema says how finely lists and maps are
//! owned, as in any CustomResourceDefinition:
//!
//! - A list is one value, unless it is a set (`x-kubernetes-list-type: set`) or its items are told
//!   apart by members (`map`, with `x-kubernetes-list-map-keys`): then each item has owners.
//! - Members of an object have owners each, unless it is `x-kubernetes-map-type: atomic`.
//! - `status` has owners of its own where it is a subresource, and writes of the one never own
//!   fields of the other.
//!
//! With schemars an attribute says it: `#[schemars(extend("x-kubernetes-list-type" = "set"))]`.
//! [`ApiServer::without_managed_fields`] is for servers to which nobody applies.
//!
//! # Where objects are kept
//!
//! In memory, which a restart forgets; in a folder (the feature `sqlite`, `--data-dir`); in etcd, for
//! several replicas (the feature `etcd`, `--etcd-servers`); or in a store of your own: [`store`] says
//! how.
//!
//! # Memory
//!
//! What requests, answers and connections take is bounded, all together by the memory limit of the
//! container. The allocator decides what the process takes for it: glibc's keeps for each thread
//! what that gave back, tens of MiB of a burst of large requests. A program that serves
//! many clients should choose one that gives memory back, as farm-operator does with mimalloc:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
//! ```

// The order is the path of a request. ARCHITECTURE.md has a table of the allowed dependencies.
mod server;

mod request;

mod discovery;
mod openapi;

mod verb;
mod write;

mod admission;
mod backup;
mod doctor;
mod transfer;

mod conversion;
mod webhook;

mod served_kind;
pub mod store;
mod watch_cache;

mod cluster;
mod definition;
mod manifests;

mod kind;

mod codec;

use kubernetes_objects::{error, object, quota};

use kubernetes_schema as schema;

use kubernetes_apply as apply;

use kubernetes_storage as storage;

mod aside;
mod clock;
mod document;
mod occasionally;
mod queue;
mod record;
mod user;

pub use admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
    ReservedMemory,
};
pub use backup::BackupOptions;
pub use clock::{Clock, truncate_to_seconds};
pub use codec::{read_protobuf, write_protobuf, yaml_documents};
pub use definition::{
    Cells, Computed, ComputedFromSeveral, ConversionFailure, Convert, DefinitionError,
    DisclosureFault, Disclosures, Everything, Kinds, Lookup, MetadataLookup, MetadataType, Related,
    RoundTripFault, Rules, Scoped, SourceApi, SourceScope, SourceType, Stored, Total, Variant,
    Variants, Versions, Visibility, check_disclosures, check_round_trips,
    check_variant_disclosures,
};
pub use doctor::{Diagnosis, DoctorOptions, DoctorOutput, Finding, Outcome};
pub use error::{FieldError, StartError};
pub use kind::{
    Completed, Filled, NameRule, ObjectIdentity, QuotaUsage, ReviewError, Routing, RuleContext,
    StoragePrefix, Strategy, SubresourceError, SubresourceOutcome, SubresourceRequest, View, age,
    check_webhook_service, check_webhook_url,
};
pub use manifests::{DeployedStore, Options as ManifestOptions};
pub use object::json_patch::JsonPatch;
pub use object::selector::SelectableFields;
pub use object::{Key, names};
pub use schema::{GoType, ListMerge, Member, Presence, Quantity, Type, TypeId, TypeRef, Types};
pub use server::{
    AdmissionPluginName, ApiServer, Args as ServeArgs, AuditArgs, Bound, ClusterClient, Drained,
    EtcdArgs, InProcess, KeptObject, KeptObjects, LoggingFormat, RestoreError, Running,
    RuntimeKinds, StoredKind, TakenNames, TracingArgs, Unready, start_logging,
};
pub use storage::NamespaceShare;
pub use transfer::TransferOptions;
pub use user::User;
pub use webhook::{
    Busy as WebhookBusy, CallError as WebhookCallError, Calls as WebhookCalls, Turn as WebhookTurn,
    Webhook,
};
