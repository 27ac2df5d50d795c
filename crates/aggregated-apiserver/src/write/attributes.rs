//! Attributes: all data of a write except its object.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderValue;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use super::critical_section::CriticalSection;
use super::store_error::store_error;
use super::{FieldValidation, ManagedFields, SlowWrites, UnsettledWrites};
use crate::admission::{AdmissionChain, AdmissionOperation, AdmissionRequest, AuditAnnotations};
use crate::backend::WriteError;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::kind::{Kind, RuleContext, Version};
use crate::object::{Key, Object, Tree};
use crate::quota::Account;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::storage::{Collection, Store, Versioned};
use crate::user::User;

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All fields except those of subresources.
    Main,
    /// The status.
    Status,
    /// The number of replicas, as a Scale.
    Scale,
    /// The finalizers of the spec, and the metadata.
    Finalizers,
    /// The conditions in the status, and the metadata.
    Approval,
    /// The fields that the handler of the subresource of this name changes.
    Handler(&'static str),
}

impl Part {
    /// The subresource in paths; empty for the object itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalizers => "finalize",
            Self::Approval => "approval",
            Self::Handler(name) => name,
        }
    }
}

/// The origin of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A request of a client.
    Request,
    /// A restored object: it has the uid, status, generation and creation time from elsewhere. Admission is not called, because
    /// the object was admitted when it was created.
    Restored,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Whether the write is a dry run.
    pub dry_run: bool,
    /// The field manager: the client's, otherwise the first part of its User-Agent.
    pub field_manager: String,
    /// The audit ID of the request; `None` if the write has no request.
    pub audit_id: Option<HeaderValue>,
    /// The options above, but the audit ID, as the client has sent them, in the format of Kubernetes.
    pub said: Option<Box<Tree>>,
}

/// Authorizes the create of an object that an update did not find.
pub trait CreateAuthorizer: Sync {
    /// Refuses the create, unless the user has permission.
    ///
    /// # Errors
    /// 403 without permission, and 500 if no authorizer can be called.
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>>;
}

/// The parts of a server that every write uses.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The time and random numbers.
    pub clock: &'a Clock,
    /// The admission plugins.
    pub admission: &'a AdmissionChain,
    /// The served kinds, for lookups of admission.
    pub kinds: &'a ServedKinds,
    /// The queues of slow writes.
    pub turns: &'a SlowWrites,
    /// The limit of commits that are not settled.
    pub unsettled: &'a UnsettledWrites,
    /// Whether objects have managedFields.
    pub managed_fields: ManagedFields,
}

/// All data of a write except its object.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The kind.
    pub served: &'a ServedKind,
    /// The version of the request.
    pub version: &'a Version,
    /// The part of the object that is written.
    pub part: Part,
    /// The namespace in the path; `None` for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// The name in the path; `None` for a create, because the object contains the name.
    pub name: Option<&'a str>,
    /// The options of the write.
    pub options: &'a WriteOptions,
    /// The user of the request.
    pub user: &'a User,
    /// The time of the write.
    pub now: Timestamp,
    /// The origin of the write.
    pub origin: Origin,
    /// The memory account that the write is charged to.
    pub account: &'a Account,
    /// The parts of the server that the write uses.
    pub environment: Environment<'a>,
    /// Authorizes the create if an update finds no object.
    pub authorizer: &'a dyn CreateAuthorizer,
    /// The section in which the write must not be cancelled.
    pub section: &'a CriticalSection,
    /// The audit event of the request, if it has one.
    pub audit: Option<&'a dyn AuditAnnotations>,
}

impl<'a> Attributes<'a> {
    /// The kind that is written.
    pub fn kind(&self) -> &'a Kind {
        &self.served.kind
    }

    /// Enters the commit gate of the kind, so that an object is committed while the definition that has validated it is
    /// still served.
    ///
    /// # Errors
    /// 429 if another definition of the kind has replaced it; clients retry this automatically.
    pub(super) fn enter_gate(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.served.gate.enter().ok_or_else(|| {
            let kind = self.kind().qualified();
            let message =
                format!("the definition of {kind} has changed meanwhile, please try again");
            ApiError::try_again(message, 1)
        })
    }

    /// The stored object of a key.
    ///
    /// # Errors
    /// 500 if the object cannot be read, 503 if the store does not respond.
    pub async fn stored(
        &self,
        (store, collection): (&dyn Store, &Collection),
        key: &Key,
    ) -> Result<Option<Versioned>, ApiError> {
        let kept = match self.served.direct_session() {
            Some(session) => session.read(key).await,
            None => store.get(collection, key).await.map_err(WriteError::from),
        };
        kept.map_err(|error| match error {
            WriteError::Refused(error) => error,
            WriteError::Store(error) => store_error(self.kind(), key, error),
        })
    }

    /// The stored object of a key, unless it is hidden from the user.
    ///
    /// # Errors
    /// Same as [`stored`](Self::stored).
    pub async fn visible(
        &self,
        place: (&dyn Store, &Collection),
        key: &Key,
    ) -> Result<Option<Versioned>, ApiError> {
        Ok(self.stored(place, key).await?.filter(|kept| self.sees(&kept.object)))
    }

    /// Whether an object is visible to the user.
    pub fn sees(&self, object: &Arc<Object>) -> bool {
        self.origin == Origin::Restored || self.kind().is_visible_to(self.user, object)
    }

    /// The key of the object in the path.
    pub fn key(&self) -> Key {
        Key::new(self.namespace, self.name.unwrap_or_default())
    }

    /// The context of validation rules.
    pub fn context(&self) -> RuleContext<'a> {
        let context = RuleContext::new(self.user, self.now, self.options.dry_run);
        let context = context.of_subresource(self.part.subresource());
        context.restored(self.origin == Origin::Restored)
    }

    /// The admission request for an object of this name.
    pub fn admission_request(
        &self,
        operation: AdmissionOperation,
        name: &'a str,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest::new(
            (operation, self.part.subresource()),
            self.served,
            &self.version.name,
            (self.namespace, name),
            &self.context(),
            &self.options.field_manager,
            self.environment.kinds,
        )
        .with(self.account, self.options.said.as_deref())
        .audited(self.audit)
    }
}
