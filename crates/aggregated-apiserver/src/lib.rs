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

pub mod admission;
pub mod backend;
mod backup;
mod doctor;
mod transfer;

mod conversion;
mod webhook;

mod served_kind;
pub mod store;
mod watch_cache;

pub mod auth;
mod cluster;
mod definition;
mod manifests;

mod kind;
pub mod paths;
pub mod subresource;

mod codec;

use kubernetes_objects::{error, object, quota};

use kubernetes_schema as schema;

use kubernetes_apply as apply;

use kubernetes_storage as storage;

mod blocking;
mod clock;
mod document;
mod log_throttle;
mod progress;
mod queue;
mod record;
mod user;

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use clock::Clock;
pub use definition::{
    Computed, Convert, DefinitionError, FieldPermissions, Kind, Kinds, Lookup, PrinterColumns,
    Stored, Validation, Versions, Visibility,
};
pub use error::{FieldError, StartError};
pub use kind::Strategy;
pub use object::Key;
pub use object::selector::SelectableFields;
pub use server::{ApiServer, Args as ServeArgs, BoundServer, InProcess, Running, start_logging};
pub use user::User;

/// The commands that a server program has besides serving: `manifests`, `doctor`, `backup`, `export`, `import`, `migrate`.
pub mod commands {
    pub use crate::backup::BackupOptions;
    pub use crate::doctor::{Diagnosis, DoctorOptions, DoctorOutput, Finding, Outcome};
    pub use crate::manifests::{DeployedStore, Options as ManifestOptions};
    pub use crate::transfer::TransferOptions;
}

/// Computed kinds: their sources, their lookups, and the permissions on their fields.
pub mod computed {
    pub use crate::definition::{
        Aggregate, AllObjects, CompletionError, ComputedFromVariants, FanOut, FieldPermissionError,
        LookupOptions, MetadataLookup, MetadataType, Related, SourceApi, SourceOptions, SourceType,
        Variant, Variants, check_field_permissions, check_variant_field_permissions,
    };
}

/// Objects in the encodings of Kubernetes: protobuf, YAML, JSON patches, and times in whole seconds.
pub mod encoding {
    pub use crate::clock::truncate_to_seconds;
    pub use crate::codec::{read_protobuf, write_protobuf, yaml_documents};
    pub use crate::object::json_patch::JsonPatch;
}

/// Kinds that are added, changed and removed while the server runs.
pub mod runtime_kinds {
    pub use crate::server::{
        NamesInUse, RestoreError, RuntimeKinds, StoredKind, StoredObject, StoredObjects,
    };
}

/// How a server serves: its groups of flags, its states, and a client of the cluster.
pub mod serving {
    /// The crate of the metrics that [`ApiServer::with_metrics`](crate::ApiServer::with_metrics) takes.
    pub use crate::record::prometheus_client;
    pub use crate::server::{
        AdmissionPluginName, AuditArgs, ClusterClient, EtcdArgs, LoggingFormat, PendingReadiness,
        PostStart, Stopped, TracingArgs, WebhookReadFailurePolicy,
    };
}

/// The parts of a [`Strategy`], and of rules, cells, subresources and reviews of built-in kinds.
pub mod strategy {
    pub use crate::kind::{
        FilledField, NameRule, ObjectIdentity, ObjectScopes, ObjectUsage, QuotaEvaluator,
        QuotaUsage, ReviewError, Routing, RowCondition, RuleContext, StoragePrefix,
        SubresourceError, SubresourceOutcome, SubresourceRequest, View, age, check_webhook_service,
        check_webhook_url,
    };
    pub use crate::object::names;
}

/// The Go types of Kubernetes, by which objects of built-in kinds are decoded.
pub mod types {
    pub use crate::schema::{
        GoType, ListMerge, Member, Presence, Quantity, Type, TypeId, TypeRef, Types,
    };
}

/// Several versions of a kind, and the conversion between them.
pub mod versions {
    pub use crate::definition::{ConversionError, RoundTripError, check_round_trips};
}

/// The client of webhooks: calls with their limits, as conversion and admission webhooks share them.
pub mod webhooks {
    pub use crate::webhook::{
        Busy as WebhookBusy, CallError as WebhookCallError, Calls as WebhookCalls,
        Turn as WebhookTurn, Webhook,
    };
}
