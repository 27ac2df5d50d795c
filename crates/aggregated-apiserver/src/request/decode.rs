//! Decoding of requests: query and body become an operation.

mod body;
mod deletion;
mod duplicate_keys;
mod list_parameters;
mod parameters;
mod patch;
mod redact;
mod write_parameters;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::USER_AGENT;
use http::request::Parts;

use super::route::Target;
use crate::codec::YamlParsers;
use crate::error::ApiError;
use crate::kind::SubresourceHandler;
use crate::object::Key;
use crate::object::selector::Selector;
use crate::quota::Account;
use crate::record::RequestObject;
use crate::schema::Types;
use crate::served_kind::Backing;
use crate::user::User;
use crate::verb::{
    Action, DeleteOptions, Freshness, GetOptions, ListOptions, Subresource, Verb, WatchOptions,
};
use crate::watch_cache::Scope;
use crate::write::{Change, ManagedFields, Part, Submitted, WriteOptions, manager_of_user_agent};
use body::BodyFormat;
use parameters::Parameters;
use patch::PatchType;
pub(super) use redact::Redacted;

/// The operation that a request asks for.
#[derive(Debug)]
pub(super) enum Operation {
    /// Reads one object.
    Get(Key, GetOptions),
    /// Reads the objects of a scope.
    List(Scope, ListOptions),
    /// Watches the changes of a scope. The duration is `None` if the server chooses it.
    Watch(Scope, WatchOptions, Option<Duration>),
    /// Handles a review.
    Review(Submitted, WriteOptions),
    /// Creates a subresource that code handles.
    CreateSubresource(Arc<SubresourceHandler>, Submitted, WriteOptions),
    /// Creates, replaces or changes an object.
    Write(Change<'static>, WriteOptions),
    /// Deletes one object.
    Delete(Key, DeleteOptions),
    /// Deletes the objects of a scope that match a selector.
    DeleteCollection(Scope, ListOptions, DeleteOptions),
}

impl Operation {
    /// Whether the operation is a dry run: everything is checked, and nothing is stored.
    pub(super) fn is_dry_run(&self) -> bool {
        match self {
            Self::Review(_, options)
            | Self::CreateSubresource(.., options)
            | Self::Write(_, options) => options.dry_run,
            Self::Delete(_, options) | Self::DeleteCollection(.., options) => options.dry_run,
            Self::Get(..) | Self::List(..) | Self::Watch(..) => false,
        }
    }

    /// Whether the operation is a read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Get(..) | Self::List(..) | Self::Watch(..))
    }

    /// The freshness that the cache must have before the operation starts. A watch waits after it has started.
    pub(super) fn freshness(&self) -> Freshness {
        match self {
            Self::Get(_, options) => options.freshness,
            Self::List(_, options) => options.moment.freshness(),
            _ => Freshness::Any,
        }
    }

    /// The object, patch or options in the request, for the audit log; `None` if the body is empty.
    pub(super) fn brings<'a>(&'a self, body: &'a Bytes) -> Option<RequestObject<'a>> {
        match self {
            Self::Review(submitted, _)
            | Self::CreateSubresource(_, submitted, _)
            | Self::Write(Change::Create(submitted) | Change::Update(submitted), _) => {
                Some(RequestObject::Object(&submitted.tree))
            }
            Self::Write(Change::Patch(_) | Change::Apply(_), _) => Some(RequestObject::Patch(body)),
            Self::Delete(..) | Self::DeleteCollection(..) if !body.is_empty() => {
                Some(RequestObject::DeleteOptions(body))
            }
            _ => None,
        }
    }

    /// Sets the user of a read, because the kind may hide objects from this user. Writes have their user already.
    pub(super) fn show_to(&mut self, user: &Arc<User>) {
        let viewer = match self {
            Self::Get(_, options) => &mut options.viewer,
            Self::List(_, options) | Self::DeleteCollection(_, options, _) => {
                &mut options.selection.viewer
            }
            Self::Watch(_, options, _) => &mut options.selection.viewer,
            Self::Review(..) | Self::CreateSubresource(..) | Self::Write(..) | Self::Delete(..) => {
                return;
            }
        };
        *viewer = Some(Arc::clone(user));
    }

    /// The selector of a list, a watch or a deletion of a collection.
    pub(super) fn selector(&self) -> Option<&Selector> {
        match self {
            Self::List(_, options) | Self::DeleteCollection(_, options, _) => {
                Some(&options.selection.selector)
            }
            Self::Watch(_, options, _) => Some(&options.selection.selector),
            _ => None,
        }
    }
}

/// Performs the checks that precede the Accept header: an unknown patch type, and a missing name.
pub(super) fn begin(
    target: &Target,
    head: &Parts,
    managed_fields: ManagedFields,
) -> Result<(), ApiError> {
    if target.verb == Verb::Patch {
        patch::patch_type(&head.headers, is_strategic(target), managed_fields)?;
    }
    let is_of_object = matches!(target.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if is_of_object || target.subresource.is_some() {
        key(target)?;
    }
    Ok(())
}

/// The key of the object that the path names.
fn key(target: &Target) -> Result<Key, ApiError> {
    match &target.name {
        Some(name) => Ok(Key::new(target.namespace.as_deref(), name)),
        None => Err(ApiError::bad_request("name must be provided")),
    }
}

/// Whether strategic merge patches are supported. A Scale has no lists to merge.
fn is_strategic(target: &Target) -> bool {
    target.body_kind().0.is_typed()
}

/// Reads the body, if the verb has one.
pub(super) async fn read(
    target: &Target,
    head: &Parts,
    body: Body,
    yaml: &YamlParsers,
) -> Result<Bytes, ApiError> {
    match target.verb {
        Verb::Get | Verb::List | Verb::Watch => return Ok(Bytes::new()),
        // An update checks the format last, a create first.
        Verb::Create => drop(body_format(target, head, yaml)?),
        Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {}
    }
    body::read(&head.headers, body).await
}

/// Whether the body is a JSON patch.
pub(super) fn is_json_patch(target: &Target, head: &Parts) -> bool {
    target.verb == Verb::Patch && patch::named(&head.headers) == Some(PatchType::Json)
}

/// Decodes a request.
pub(super) async fn decode(
    target: &Target,
    head: &Parts,
    body: &Bytes,
    account: &Account,
    yaml: &YamlParsers,
) -> Result<Operation, ApiError> {
    let parameters = Parameters::parse(head.uri.query().unwrap_or_default());
    let key = || key(target);
    match target.verb {
        Verb::Get => Ok(Operation::Get(key()?, parameters.get_options()?)),
        Verb::List => {
            let (scope, options) = parameters.list(target)?;
            Ok(Operation::List(scope, options))
        }
        Verb::Watch => {
            let (scope, options, lasts) = parameters.watch(target)?;
            Ok(Operation::Watch(scope, options, lasts))
        }
        Verb::Create => {
            let (options, submitted) =
                object(&parameters, target, head, body, (account, yaml)).await?;
            Ok(match (&target.served.backing, &target.subresource) {
                (_, Some(Subresource { action: Action::Handler(handler), .. })) => {
                    Operation::CreateSubresource(Arc::clone(handler), submitted, options)
                }
                (Backing::Reviewed(_), _) => Operation::Review(submitted, options),
                _ => Operation::Write(Change::Create(submitted), options),
            })
        }
        Verb::Update => {
            let (options, submitted) =
                object(&parameters, target, head, body, (account, yaml)).await?;
            Ok(Operation::Write(Change::Update(submitted), options))
        }
        Verb::Patch => {
            let Some(patch_type) = patch::named(&head.headers) else {
                return Err(ApiError::internal("a patch of no type has begun"));
            };
            if patch_type == PatchType::Apply {
                let (options, force) = parameters.apply_options()?;
                let submitted = patch::read_applied(body, force, (account, yaml)).await;
                return Ok(Operation::Write(Change::Apply(submitted), options));
            }
            let options = with_manager(parameters.patch_options()?, head);
            let (schema, validation) = (&target.version.schema, options.field_validation);
            let patch = patch::read(patch_type, schema, body, validation, account);
            Ok(Operation::Write(Change::Patch(patch), options))
        }
        Verb::Delete => {
            let options = delete_options(&parameters, head, body, (account, yaml)).await?;
            Ok(Operation::Delete(key()?, options))
        }
        Verb::DeleteCollection => {
            let (scope, list_options) = parameters.list(target)?;
            let options = delete_options(&parameters, head, body, (account, yaml)).await?;
            Ok(Operation::DeleteCollection(scope, list_options, options))
        }
    }
}

/// Returns the object in the body of a create or an update, and the options.
async fn object(
    parameters: &Parameters,
    target: &Target,
    head: &Parts,
    body: &Bytes,
    (account, yaml): (&Account, &YamlParsers),
) -> Result<(WriteOptions, Submitted), ApiError> {
    let options = match target.verb {
        Verb::Create => parameters.create_options()?,
        _ => parameters.update_options()?,
    };
    let options = with_manager(options, head);
    let format = body_format(target, head, yaml)?;
    let (kind, version) = target.body_kind();
    let submitted = match target.part() {
        Part::Scale => body::scale(format, body, account).await?,
        _ => body::object(kind, version, format, body, account).await?,
    };
    Ok((options, submitted))
}

/// The format of the object in a body.
fn body_format(target: &Target, head: &Parts, yaml: &YamlParsers) -> Result<BodyFormat, ApiError> {
    let (kind, version) = target.body_kind();
    let protobuf = match target.part() {
        Part::Scale => Some(Arc::clone(Types::meta())),
        _ => kind.is_typed().then(|| Arc::clone(version.schema.types())),
    };
    body::format(&head.headers, protobuf, yaml)
}

/// Completes options with a field manager: that of the query, or else the user agent.
fn with_manager(options: WriteOptions, head: &Parts) -> WriteOptions {
    if !options.field_manager.is_empty() {
        return options;
    }
    let user_agent = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    let field_manager = manager_of_user_agent(user_agent.unwrap_or_default());
    WriteOptions { field_manager, ..options }
}

/// Returns the options of a deletion: those of the body, or of the query if the body is empty.
async fn delete_options(
    parameters: &Parameters,
    head: &Parts,
    body: &Bytes,
    (account, yaml): (&Account, &YamlParsers),
) -> Result<DeleteOptions, ApiError> {
    if body.is_empty() {
        return parameters.delete_options();
    }
    let format = body::format(&head.headers, Some(Arc::clone(Types::meta())), yaml)?;
    deletion::in_body(format, body, account).await
}
