//! The context of a write: its inputs from the request and from the server. The context owns the inputs, because the
//! write may outlive the request.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::route::Target;
use super::served::Served;
use super::throttle::Permit;
use super::{Handler, authorize};
use crate::admission::AuditAnnotations;
use crate::auth;
use crate::error::ApiError;
use crate::quota::Account;
use crate::storage::Versioned;
use crate::user::User;
use crate::verb::Verb;
use crate::write::{
    Attributes, CreateAuthorizer, CriticalSection, Environment, Origin, Part, WriteOptions,
};

/// The context of a write of a request.
pub(super) struct WriteContext {
    handler: Arc<Handler>,
    user: Arc<User>,
    target: Target,
    options: WriteOptions,
    account: Account,
    section: CriticalSection,
    audit: Option<Arc<dyn AuditAnnotations>>,
    now: Timestamp,
    /// The kinds that are served at the beginning of the write.
    served: Arc<Served>,
}

impl WriteContext {
    pub(super) fn new(
        (handler, user): (Arc<Handler>, Arc<User>),
        target: Target,
        options: WriteOptions,
        (account, section): (Account, CriticalSection),
        audit: Option<Arc<dyn AuditAnnotations>>,
    ) -> Self {
        let (now, served) = (handler.clock.now(), handler.served.load_full());
        Self { handler, user, target, options, account, section, audit, now, served }
    }

    /// Returns when the callback for an updated object has finished, if there is one, and releases the slot of the
    /// update.
    pub(super) async fn followed(&self, updated: &Versioned, permit: Permit) {
        if !self.options.dry_run && self.target.part() == Part::Main {
            let (kind, name) = (&self.target.served.kind, updated.object.key().name());
            self.handler.update_follower.await_followed(kind, name, permit).await;
        }
    }

    /// The attributes of the write.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        let Target { served, version, namespace, name, .. } = &self.target;
        Attributes {
            served,
            version,
            part: self.target.part(),
            namespace: namespace.as_deref(),
            name: name.as_deref(),
            options: &self.options,
            user: &self.user,
            now: self.now,
            origin: Origin::Request,
            account: &self.account,
            environment: Environment {
                clock: &self.handler.clock,
                admission: &self.handler.admission,
                kinds: &self.served.kinds,
                turns: &self.handler.turns,
                unsettled: &self.handler.unsettled,
                managed_fields: self.handler.managed_fields.of_kind(served),
            },
            authorizer: self,
            section: &self.section,
            audit: self.audit.as_deref(),
        }
    }
}

impl CreateAuthorizer for WriteContext {
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        let kind = &self.target.served.kind;
        let attributes = auth::Attributes::Resource {
            verb: Verb::Create.name().into(),
            group: kind.group.clone(),
            version: self.target.version.name.clone(),
            resource: kind.names.plural.clone(),
            subresource: String::new(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.target.name.clone().unwrap_or_default(),
        };
        async move { authorize::demand(&self.handler.cluster, &self.user, &attributes).await }
            .boxed()
    }
}
