//! Attributes: everything about a write but its object.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use super::critical_section::CriticalSection;
use super::store_error::store_error;
use super::{FieldValidation, ManagedFields, Turns, UnsettledWrites};
use crate::admission::{AdmissionChain, AdmissionOperation, AdmissionRequest, AuditAnnotations};
use crate::clock::Clock;
use crate::error::ApiError;
use crate::kind::{Kind, RuleContext, Version};
use crate::object::{Key, Object, Tree};
use crate::quota::Account;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::storage::{Collection, Store, Versioned};
use crate::user::User;

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but what has a subresource of its own.
    Main,
    /// Its status alone.
    Status,
    /// The number of its replicas, in the form that all kinds have alike.
    Scale,
    /// What holds it when it is deleted, besides its metadata.
    Finalizers,
    /// What the handler of the subresource of this name changes.
    Handler(&'static str),
}

impl Part {
    /// The subresource, as paths name it; empty for the object itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalizers => "finalize",
            Self::Handler(name) => name,
        }
    }
}

/// Where a write comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client has asked for it.
    Request,
    /// It puts an object in as it was elsewhere: with its uid, status, generation and
    /// creation time. Admission is not asked, because the object was admitted when it was
    /// made.
    Restored,
}

/// How an object is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// What happens to members that are unknown or given twice.
    pub field_validation: FieldValidation,
    /// Whether everything is checked and nothing is kept.
    pub dry_run: bool,
    /// The field manager: the client's, otherwise the first part of its User-Agent.
    pub field_manager: String,
    /// What the client has said of the above, as the options of Kubernetes have it.
    pub said: Option<Box<Tree>>,
}

/// Knows whether a user may create the object that an update did not find.
pub trait CreateAuthorizer: Sync {
    /// Refuses it, unless the user may.
    ///
    /// # Errors
    /// 403, and 500 when nobody can be asked.
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>>;
}

/// What a server lends to every write.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The time, and random numbers.
    pub clock: &'a Clock,
    /// The admission plugins.
    pub admission: &'a AdmissionChain,
    /// What is served, for admission to look into.
    pub kinds: &'a ServedKinds,
    /// Where writes wait that take long.
    pub turns: &'a Turns,
    /// The limit of commits that are not settled.
    pub unsettled: &'a UnsettledWrites,
    /// Whether objects say who owns which of their fields.
    pub managed_fields: ManagedFields,
}

/// Everything about a write but its object.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The kind.
    pub served: &'a ServedKind,
    /// The version of the request.
    pub version: &'a Version,
    /// What of the object is written.
    pub part: Part,
    /// The namespace in the path, if the kind has any.
    pub namespace: Option<&'a str>,
    /// The name in the path; a new object says its own.
    pub name: Option<&'a str>,
    /// How it is written.
    pub options: &'a WriteOptions,
    /// The user of the request.
    pub user: &'a User,
    /// When.
    pub now: Timestamp,
    /// Where the write comes from.
    pub origin: Origin,
    /// What the write takes.
    pub account: &'a Account,
    /// What the server lends to it.
    pub environment: Environment<'a>,
    /// Authorizes the create of an update that finds no object.
    pub authorizer: &'a dyn CreateAuthorizer,
    /// Is entered while the write must not be cancelled.
    pub section: &'a CriticalSection,
    /// The audit event of the request, if it has one.
    pub audit: Option<&'a dyn AuditAnnotations>,
}

impl<'a> Attributes<'a> {
    /// The kind that is written.
    pub fn kind(&self) -> &'a Kind {
        &self.served.kind
    }

    /// Enters the commit gate of the kind: what was judged by a definition is committed while it holds.
    ///
    /// # Errors
    /// 429 when another definition of the kind has taken its place: clients retry this by themselves.
    pub(super) fn enter_gate(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.served.gate.enter().ok_or_else(|| {
            let kind = self.kind().qualified();
            let message =
                format!("the definition of {kind} has changed meanwhile, please try again");
            ApiError::try_again(message, 1)
        })
    }

    /// What a store keeps under a key.
    ///
    /// # Errors
    /// 500 when it cannot be read, 503 when the store does not answer.
    pub async fn stored(
        &self,
        (store, collection): (&dyn Store, &Collection),
        key: &Key,
    ) -> Result<Option<Versioned>, ApiError> {
        let kept = store.get(collection, key).await;
        kept.map_err(|error| store_error(self.kind(), key, error))
    }

    /// What a store keeps under a key, unless it is hidden from the user.
    ///
    /// # Errors
    /// As [`stored`](Self::stored).
    pub async fn visible(
        &self,
        place: (&dyn Store, &Collection),
        key: &Key,
    ) -> Result<Option<Versioned>, ApiError> {
        Ok(self.stored(place, key).await?.filter(|kept| self.sees(&kept.object)))
    }

    /// Whether an object is not hidden from the user.
    pub fn sees(&self, object: &Arc<Object>) -> bool {
        self.origin == Origin::Restored || self.kind().is_visible_to(self.user, object)
    }

    /// Where the object of the path is.
    pub fn key(&self) -> Key {
        Key::new(self.namespace, self.name.unwrap_or_default())
    }

    /// What rules are told.
    pub fn context(&self) -> RuleContext<'a> {
        RuleContext::new(self.user, self.now, self.options.dry_run)
    }

    /// What admission is told, of an object of this name.
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
