//! CREATE: make an object.

use std::sync::Arc;

use crate::ambient::Ambient;
use crate::error::{ApiError, Details, Reason, qualified, quote};
use crate::kind::{RuleContext, Version};
use crate::object::{Key, metadata};
use crate::served_kind::ServedKind;
use crate::storage::{Commit, Expected, Revision, StoreError, Versioned};
use crate::write::{Decoded, prepare_new};

/// A generated name that is taken is tried again so often; as kube-apiserver.
const GENERATE_NAME_ATTEMPTS: usize = 8;

/// Makes an object; answers with it and with texts for `Warning` headers.
///
/// # Errors
/// 400 and 422 when the object may not be kept, 409 when its name is taken.
pub async fn create(
    served: &ServedKind,
    version: &Version,
    namespace: Option<&str>,
    decoded: Decoded,
    context: &RuleContext<'_>,
    ambient: &Ambient,
) -> Result<(Versioned, Vec<String>), ApiError> {
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else {
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, "create"));
    };
    let terminating = || {
        let message = "create not allowed while custom resource definition is terminating";
        ApiError::new(Reason::MethodNotAllowed, message)
    };
    if served.intake.is_closed() {
        return Err(terminating());
    }
    // Where a name is made, another one may have to be.
    let again = metadata::prefix(&decoded.tree).is_some().then(|| decoded.clone());
    let mut prepared = prepare_new(kind, version, decoded, Some(context), ambient)?;
    let mut attempt = 1;
    loop {
        let object = kind.to_storage(prepared.object.clone(), version);
        let object = Arc::new(object.map_err(ApiError::internal)?);
        let name = object.key().name();
        let key = Key::new(namespace, name);
        let committed = if context.dry_run {
            match store.get(&collection, &key).await {
                Ok(None) => Ok(Revision::NONE),
                Ok(Some(_)) => Err(StoreError::Exists),
                Err(error) => Err(error),
            }
        } else {
            let (collection, object) = (collection.clone(), Some(Arc::clone(&object)));
            let expected = Expected::Absent;
            store.commit(Commit { collection, key, expected, object, marks: false }).await
        };
        match committed {
            // A withdrawal of the kind closes it first and then removes its objects:
            // it has met this object, or the kind is closed by now.
            Ok(revision) if !context.dry_run && served.intake.is_closed() => {
                let (key, expected) = (object.key().clone(), Expected::At(revision));
                let commit = Commit { collection, key, expected, object: None, marks: true };
                // Where it fails, it was removed or marked meanwhile.
                let _ = store.commit(commit).await;
                return Err(terminating());
            }
            Ok(revision) => return Ok((Versioned { revision, object }, prepared.warnings)),
            Err(StoreError::Exists)
                if !prepared.name_origin.is_generated || attempt == GENERATE_NAME_ATTEMPTS =>
            {
                let make = match prepared.name_origin.has_prefix {
                    true => no_unique_name,
                    false => ApiError::already_exists,
                };
                let taken = make(&kind.group, &kind.names.plural, name);
                let taken = taken.with_warnings(prepared.warnings);
                let other = store.get(&collection, &Key::new(namespace, name)).await;
                let is_going =
                    |other: &Versioned| metadata::is_being_deleted(&other.object.to_tree());
                return Err(match other {
                    Ok(Some(other)) if is_going(&other) => taken.because("object is being deleted"),
                    _ => taken,
                });
            }
            Err(StoreError::Exists) => {
                attempt += 1;
                let Some(again) = again.clone() else {
                    return Err(ApiError::internal("a name was made of no prefix"));
                };
                prepared = prepare_new(kind, version, again, Some(context), ambient)?;
            }
            Err(error) => return Err(ApiError::internal(error)),
        }
    }
}

fn no_unique_name(group: &str, plural: &str, name: &str) -> ApiError {
    let message = format!(
        "{} {} already exists, the server was not able to generate a unique name for the object",
        qualified(group, plural),
        quote(name)
    );
    ApiError::new(Reason::AlreadyExists, message).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: plural.to_owned(),
        retry_after_seconds: 1,
        ..Details::default()
    })
}
