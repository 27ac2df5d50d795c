//! Decoding of requests: query and body become an operation.

mod body;
mod deletion;
mod duplicate_keys;
mod list_parameters;
mod parameters;
mod patch;
mod write_parameters;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use http::header::USER_AGENT;
use http::request::Parts;

use super::route::Target;
use crate::codec::YamlParsers;
use crate::error::ApiError;
use crate::object::Key;
use crate::quota::Account;
use crate::record::RequestObject;
use crate::schema::Types;
use crate::served_kind::Backing;
use crate::verb::{Action, DeleteOptions, Operation, Read, ServedSubresource, Verb, Write};
use crate::write::{Change, ManagedFields, Part, Submitted, WriteOptions, manager_of_user_agent};
use body::BodyFormat;
pub(super) use body::{read as read_body, too_large};
use parameters::Parameters;
use patch::PatchType;

/// The object, patch or options in the request, for the audit log; `None` if the body is empty.
pub(super) fn request_object<'a>(
    operation: &'a Operation,
    body: &'a Bytes,
) -> Option<RequestObject<'a>> {
    let Operation::Write(write, _) = operation else { return None };
    match write {
        Write::Review(_, submitted)
        | Write::CreateSubresource(_, submitted)
        | Write::Change(Change::Create(submitted) | Change::Update(submitted)) => {
            Some(RequestObject::Object(&submitted.tree))
        }
        Write::Change(Change::Patch(_) | Change::Apply(_)) => Some(RequestObject::Patch(body)),
        Write::Delete(..) | Write::DeleteCollection(..) if !body.is_empty() => {
            Some(RequestObject::DeleteOptions(body))
        }
        _ => None,
    }
}

/// Performs the checks that precede the Accept header: an unknown patch type, and a missing name.
pub(super) fn begin(
    target: &Target,
    head: &Parts,
    managed_fields: ManagedFields,
) -> Result<(), ApiError> {
    if target.verb == Verb::Patch {
        let served = &target.served;
        let is_apply = patch::named(&head.headers) == Some(PatchType::Apply);
        if is_apply && managed_fields == ManagedFields::Kept && !served.keeps_managed_fields() {
            return Err(patch::no_managed_fields(&served.kind));
        }
        let managed_fields = managed_fields.of_kind(served);
        patch::patch_type(&head.headers, is_strategic(target), managed_fields)?;
    }
    let is_of_object = matches!(target.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if is_of_object || target.subresource.is_some() {
        key(target)?;
    }
    Ok(())
}

/// The key of the object that the path names.
pub(super) fn key(target: &Target) -> Result<Key, ApiError> {
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
        Verb::Get => Ok(Operation::Read(Read::Get(key()?, parameters.get_options()?))),
        Verb::List => {
            let (scope, options) = parameters.list(target)?;
            Ok(Operation::Read(Read::List(scope, options)))
        }
        Verb::Watch => {
            let (scope, options, lasts) = parameters.watch(target)?;
            Ok(Operation::Read(Read::Watch(scope, options, lasts)))
        }
        Verb::Create => {
            let (options, submitted) =
                object(&parameters, target, head, body, (account, yaml)).await?;
            let write = match (&target.served.backing, &target.subresource) {
                (_, Some(ServedSubresource { action: Action::Handler(handler), .. })) => {
                    Write::CreateSubresource(Arc::clone(handler), submitted)
                }
                (Backing::Reviewed(review), _) => Write::Review(Arc::clone(review), submitted),
                _ => Write::Change(Change::Create(submitted)),
            };
            Ok(Operation::Write(write, options))
        }
        Verb::Update => {
            let (options, submitted) =
                object(&parameters, target, head, body, (account, yaml)).await?;
            Ok(Operation::Write(Write::Change(Change::Update(submitted)), options))
        }
        Verb::Patch => {
            let Some(patch_type) = patch::named(&head.headers) else {
                return Err(ApiError::internal("a patch of no type has begun"));
            };
            if patch_type == PatchType::Apply {
                let (options, force) = parameters.apply_options()?;
                let submitted = patch::read_applied(body, force, (account, yaml)).await;
                return Ok(Operation::Write(Write::Change(Change::Apply(submitted)), options));
            }
            let options = with_manager(parameters.patch_options()?, head);
            let (schema, validation) = (&target.version.schema, options.field_validation);
            let patch = patch::read(patch_type, schema, body, validation, account);
            Ok(Operation::Write(Write::Change(Change::Patch(patch)), options))
        }
        Verb::Delete => {
            let options = delete_options(&parameters, head, body, (account, yaml)).await?;
            Ok(Operation::delete(key()?, options))
        }
        Verb::DeleteCollection => {
            let (scope, list_options) = parameters.list(target)?;
            let options = delete_options(&parameters, head, body, (account, yaml)).await?;
            Ok(Operation::delete_collection(scope, list_options, options))
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
