//! What exactly is to be done? Query and body become an operation.

mod body;
mod list_parameters;
mod parameters;
mod tree;

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;

use super::route::Target;
use crate::error::ApiError;
use crate::object::Key;
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
            let (scope, options) = parameters.list(target)?;
            Ok(Operation::List(scope, options))
        }
        Verb::Watch => {
            let (scope, options, lasts) = parameters.watch(target)?;
            Ok(Operation::Watch(scope, options, lasts))
        }
        Verb::Create => {
            let language = body::language(&head.headers)?;
            let bytes = body::read(&head.headers, body).await?;
            let options = parameters.create_options()?;
            let submitted = body::object(target, language, &bytes).await?;
            Ok(Operation::Create(submitted, options))
        }
        Verb::Delete => {
            let bytes = body::read(&head.headers, body).await?;
            if bytes.is_empty() {
                return Ok(Operation::Delete(key(), parameters.delete_options()?));
            }
            let language = body::language(&head.headers)?;
            Ok(Operation::Delete(key(), body::delete_options(language, &bytes).await?))
        }
        // Discovery does not name them, so routing has refused them.
        Verb::Update | Verb::Patch | Verb::DeleteCollection => {
            let kind = &target.served.kind;
            let verb = target.verb.name();
            Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, verb))
        }
    }
}
