//! Serve your own Kubernetes kinds from Rust, behind kube-apiserver.
//!
//! Derive [`kube::CustomResource`], choose whether the server stores the objects ([`Stored`]) or computes them from
//! other objects of the cluster ([`Computed`]), and run an [`ApiServer`]: an HTTPS server that kube-apiserver proxies
//! to through an `APIService`. No etcd, code generation or Go is needed.
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
//! # Field ownership
//!
//! Every write records in `metadata.managedFields` which fields its manager owns. `kubectl apply --server-side`, or
//! kube's `Patch::Apply`, changes fields of other managers only with `force`. This needs no code. The schema determines
//! how finely the ownership of lists and maps is tracked, as in any CustomResourceDefinition:
//!
//! - A list is a single value by default. In a set (`x-kubernetes-list-type: set`), and in a list whose items are
//!   identified by key fields (`map`, with `x-kubernetes-list-map-keys`), each item has its own owners.
//! - Each field of an object has its own owners, unless the object is `x-kubernetes-map-type: atomic`.
//! - If `status` is a subresource, its fields are owned separately: a write of `status` never owns fields of the main
//!   resource, and vice versa.
//!
//! With schemars, set the list type by an attribute: `#[schemars(extend("x-kubernetes-list-type" = "set"))]`. A server
//! without server-side apply can omit managed fields ([`ApiServer::without_managed_fields`]).
//!
//! # Storage
//!
//! Objects are stored in one of these places:
//!
//! - in memory, until the process ends;
//! - in a directory (the feature `sqlite`, `--data-dir`);
//! - in etcd, for several replicas (the feature `etcd`, `--etcd-servers`);
//! - in a store that you implement, see [`store`].
//!
//! # Memory
//!
//! The memory of requests, responses and connections together is limited by the memory limit of the container. The
//! allocator decides how much memory the process uses for them. The allocator of glibc keeps freed memory for each
//! thread: tens of MiB after a burst of large requests. A program with many clients should use an allocator that
//! returns freed memory to the system. farm-operator uses mimalloc:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
//! ```

// The modules are in the order in which a request passes them. ARCHITECTURE.md has a table of the allowed dependencies.
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
