//! What exactly is to be done? Query and body become an operation.

mod body;
mod json;
mod parameters;

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;

use super::route::Target;
use crate::error::ApiError;
use crate::object::Key;
use crate::object::selector::Selector;
use crate::verb::{CreateOptions, DeleteOptions, GetOptions, ListOptions, Verb, WatchOptions};
use crate::watch_cache::Scope;
use crate::write::Submitted;
use parameters::Parameters;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Operation {
    /// Read one object.
    Get(Key, GetOptions),
    /// Read the objects of a scope.
    List(Scope, ListOptions),
    /// Follow the changes of a scope; `None` leaves the duration to the server.
    Watch(Scope, WatchOptions, Option<Duration>),
    /// Make an object.
    Create(Submitted, CreateOptions),
    /// Remove one.
    Delete(Key, DeleteOptions),
}

/// Finds out what exactly is to be done.
pub(super) async fn decode(
    target: &Target,
    head: &Parts,
    body: Body,
) -> Result<Operation, ApiError> {
    let parameters = Parameters::parse(head.uri.query().unwrap_or_default());
    let key = || Key::new(target.namespace.as_deref(), target.name.as_deref().unwrap_or_default());
    match target.verb {
        Verb::Get => Ok(Operation::Get(key(), parameters.get_options()?)),
        Verb::List => {
            let options = parameters.list_options(target.served.kind.is_namespaced())?;
            Ok(Operation::List(scope(target, &options.selector), options))
        }
        Verb::Watch => {
            let (mut options, lasts) =
                parameters.watch_options(target.served.kind.is_namespaced())?;
            if let Some(name) = &target.name {
                options.selector = name_in_path(options.selector, name)?;
            }
            Ok(Operation::Watch(scope(target, &options.selector), options, lasts))
        }
        Verb::Create => {
            body::check_content_type(&head.headers)?;
            let bytes = body::read(&head.headers, body).await?;
            let options = parameters.create_options()?;
            let submitted = body::object(target, &bytes)?;
            Ok(Operation::Create(submitted, options))
        }
        Verb::Delete => {
            let bytes = body::read(&head.headers, body).await?;
            if bytes.is_empty() {
                return Ok(Operation::Delete(key(), parameters.delete_options()?));
            }
            body::check_content_type(&head.headers)?;
            Ok(Operation::Delete(key(), body::delete_options(&bytes)?))
        }
        // Discovery does not name them, so routing has refused them.
        Verb::Update | Verb::Patch | Verb::DeleteCollection => {
            let kind = &target.served.kind;
            let verb = target.verb.name();
            Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, verb))
        }
    }
}

/// The narrowest scope that holds everything selected.
fn scope(target: &Target, selector: &Selector) -> Scope {
    let namespace = target.namespace.as_deref();
    let namespaced = target.served.kind.is_namespaced();
    match selector.fields.name() {
        Some(name) if namespace.is_some() || !namespaced => {
            Scope::Object(Key::new(namespace, name))
        }
        _ => match namespace {
            Some(namespace) => Scope::Namespace(namespace.into()),
            None => Scope::All,
        },
    }
}

/// The old form of watching one object has its name in the path.
fn name_in_path(mut selector: Selector, name: &str) -> Result<Selector, ApiError> {
    match selector.fields.name() {
        Some(other) if other != name => {
            Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"))
        }
        _ => {
            selector.fields.require_name(name);
            Ok(selector)
        }
    }
}
