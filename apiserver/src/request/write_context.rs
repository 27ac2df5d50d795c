//! What a write of a request is about: everything that the write borrows from the request
//! and from the server.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::route::Target;
use super::{Handler, Served, authorize};
use crate::cluster;
use crate::error::ApiError;
use crate::quota::Account;
use crate::user::User;
use crate::verb::Verb;
use crate::write::{Attributes, CreateAuthorizer, Environment, Origin, WriteOptions};

/// A write of a request.
pub(super) struct WriteContext<'a> {
    handler: &'a Handler,
    user: &'a User,
    target: &'a Target,
    options: WriteOptions,
    account: &'a Account,
    now: Timestamp,
    /// What is served while it is done.
    served: Arc<Served>,
}

impl<'a> WriteContext<'a> {
    pub(super) fn new(
        handler: &'a Handler,
        user: &'a User,
        target: &'a Target,
        options: WriteOptions,
        account: &'a Account,
    ) -> Self {
        let (now, served) = (handler.clock.now(), handler.served.load_full());
        Self { handler, user, target, options, account, now, served }
    }

    /// A write that deletes.
    pub(super) fn deleting(
        handler: &'a Handler,
        user: &'a User,
        target: &'a Target,
        dry_run: bool,
        account: &'a Account,
    ) -> Self {
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        Self::new(handler, user, target, options, account)
    }

    /// What it is about.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        let Target { served, version, namespace, name, .. } = self.target;
        Attributes {
            served,
            version,
            part: self.target.part(),
            namespace: namespace.as_deref(),
            name: name.as_deref(),
            options: &self.options,
            user: self.user,
            now: self.now,
            origin: Origin::Request,
            account: self.account,
            environment: Environment {
                clock: &self.handler.clock,
                admission: &self.handler.admission,
                kinds: &self.served.kinds,
                turns: &self.handler.turns,
                managed_fields: self.handler.managed_fields,
            },
            authorizer: self,
        }
    }
}

impl CreateAuthorizer for WriteContext<'_> {
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        let kind = &self.target.served.kind;
        let attributes = cluster::Attributes::Resource {
            verb: Verb::Create.name(),
            group: kind.group.clone(),
            version: self.target.version.name.clone(),
            resource: kind.names.plural.clone(),
            subresource: String::new(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.target.name.clone().unwrap_or_default(),
        };
        async move { authorize::demand(&self.handler.cluster, self.user, &attributes).await }
            .boxed()
    }
}
