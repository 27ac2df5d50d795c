//! CREATE of a subresource with a handler: the handler returns the response, changes the object, or deletes it. The
//! body is not stored.

use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::kind::{
    RuleContext, SubresourceError, SubresourceHandler, SubresourceOutcome, SubresourceRequest,
};
use crate::object::{Key, Tree, metadata};
use crate::quota::Room;
use crate::storage::Versioned;
use crate::write::{
    Attributes, Change, Draft, Live, Part, Submitted, check_posted, check_preconditions, decode,
    write,
};

use super::delete::{check_options, delete_one};
use super::{DeleteOptions, with_warnings};

/// The response to the client.
#[derive(Debug)]
pub enum SubresourceResponse {
    /// An object.
    Object(Tree),
    /// A Status that only reports success.
    Success,
}

/// Runs a request to a subresource, and returns warnings for the client. An error has them too.
///
/// # Errors
/// 404 if the object does not exist, 400 if the body cannot be decoded or belongs to another object, and the errors of
/// the handler.
pub async fn create_subresource(
    attributes: &Attributes<'_>,
    handler: &SubresourceHandler,
    submitted: Submitted,
) -> Result<(SubresourceResponse, Vec<String>), ApiError> {
    let mut warnings = Vec::new();
    let response = handle(attributes, handler, submitted, &mut warnings).await;
    with_warnings(response, warnings)
}

async fn handle(
    attributes: &Attributes<'_>,
    handler: &SubresourceHandler,
    submitted: Submitted,
    warnings: &mut Vec<String>,
) -> Result<SubresourceResponse, ApiError> {
    let version = &handler.kind().storage;
    let mut draft =
        decode(handler.kind(), version, attributes.options.field_validation, submitted)?;
    handle_decoded(attributes, handler, &mut draft, warnings).await
}

/// Handles an object of a kind that is posted to the subresource of another object, which has the same name. Returns
/// warnings for the client.
///
/// # Errors
/// Same as [`create_subresource`].
pub async fn post_to_subresource(
    attributes: &Attributes<'_>,
    (plural, subresource): (&'static str, &'static str),
    submitted: Submitted,
) -> Result<(SubresourceResponse, Vec<String>), ApiError> {
    let (kind, version) = (attributes.kind(), attributes.version);
    let mut draft = decode(kind, version, attributes.options.field_validation, submitted)?;
    let name = metadata::name(&draft.tree).to_owned();
    let found = attributes.environment.kinds.find(&kind.group, &version.name, plural);
    let absent = || ApiError::not_found(&kind.group, plural, &name);
    let (served, version) = found.ok_or_else(absent)?;
    let mut handlers = served.kind.subresource_handlers.iter();
    let handler = handlers.find(|handler| handler.name() == subresource).ok_or_else(absent)?;
    let part = Part::Handler(handler.name());
    let attributes = Attributes { served, version, part, name: Some(&name), ..*attributes };
    let mut warnings = Vec::new();
    let response = handle_decoded(&attributes, handler, &mut draft, &mut warnings).await;
    with_warnings(response, warnings)
}

async fn handle_decoded(
    attributes: &Attributes<'_>,
    handler: &SubresourceHandler,
    draft: &mut Draft,
    warnings: &mut Vec<String>,
) -> Result<SubresourceResponse, ApiError> {
    let version = &handler.kind().storage;
    warnings.append(&mut draft.warnings);
    check_posted(attributes, handler.kind(), draft)?;
    let key = attributes.key();
    let body = std::mem::take(&mut draft.tree);
    let (object, _room) = current(attributes, &key).await?;
    let outcome = ask(attributes, handler, &key, &body, &object)?;
    drop(object);
    let options = match outcome {
        SubresourceOutcome::Answer(mut answer) => {
            handler.kind().coerce_again(version, &mut answer);
            return Ok(SubresourceResponse::Object(answer));
        }
        SubresourceOutcome::Change(_) => None,
        SubresourceOutcome::Delete(_, options) => {
            let mut options = DeleteOptions::from_tree(&options)?;
            options.dry_run |= attributes.options.dry_run;
            Some(options)
        }
    };
    // If the object has changed, the handler may return a different result.
    let change = |live: &Live| {
        let outcome = ask(attributes, handler, &key, &body, &live.tree)?;
        match (outcome, &options) {
            (SubresourceOutcome::Change(tree), None) => {
                check_preconditions(attributes, &body, live)?;
                Ok(tree)
            }
            // If the preconditions of the deletion fail, the object is not changed either.
            (SubresourceOutcome::Delete(tree, _), Some(options)) => {
                check_options(attributes, &key, options, &live.kept)?;
                Ok(tree)
            }
            _ => Err(ApiError::internal("what is posted does something else by now")),
        }
    };
    let Some(mut options) = options.clone() else {
        let written = write(attributes, Change::Code(&change)).await?;
        warnings.extend(written.warnings);
        return Ok(SubresourceResponse::Success);
    };
    if !options.dry_run {
        let written = write(attributes, Change::Code(&change)).await?;
        warnings.extend(written.warnings);
        // The uid ensures that this object is deleted, and not a later object with the same name.
        let Versioned { revision, object } = written.versioned;
        options.uid.get_or_insert_with(|| object.uid().to_owned());
        if options.resource_version.is_some() {
            options.resource_version = Some(revision.to_string());
        }
    }
    delete_one(attributes, &key, &options, warnings).await?;
    Ok(SubresourceResponse::Success)
}

/// The object in the version of the request, without its managed fields.
async fn current(attributes: &Attributes<'_>, key: &Key) -> Result<(Tree, Room), ApiError> {
    let kind = attributes.kind();
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    let (store, collection) = attributes.served.store().ok_or_else(absent)?;
    let kept = attributes.visible((&**store, &collection), key).await?;
    let kept = kept.ok_or_else(absent)?;
    let shown = || kind.in_version(&kept.object, attributes.version);
    let shown = known(kind, attributes.account, shown).await??;
    // Reserves memory for the object and for the changed object.
    let room = attributes.account.room(2 * shown.tree_size())?;
    Ok((shown.to_parts().0, room))
}

fn ask(
    attributes: &Attributes<'_>,
    handler: &SubresourceHandler,
    key: &Key,
    body: &Tree,
    object: &Tree,
) -> Result<SubresourceOutcome, ApiError> {
    let context: RuleContext<'_> = attributes.context();
    let request = SubresourceRequest { key, object, body, context: &context };
    let kind = attributes.kind();
    handler.handle(&request).map_err(|error| match error {
        SubresourceError::Invalid(name, errors) => {
            let of = handler.kind();
            ApiError::invalid(&of.group, &of.names.kind, &name, errors)
        }
        SubresourceError::BadRequest(why) => ApiError::new(Reason::BadRequest, why),
        SubresourceError::ConflictOf { group, resource, name, why } => {
            ApiError::conflict(&group, &resource, &name, &why)
        }
        SubresourceError::Conflict(why) => {
            let resource = format!("{}/{}", kind.names.plural, handler.name());
            ApiError::conflict(&kind.group, &resource, key.name(), &why)
        }
        SubresourceError::NotFound(group, plural, name) => {
            ApiError::not_found(&group, &plural, &name)
        }
    })
}
