//! CREATE of a subresource that code answers: something is done to the object, or asked
//! about it. What is posted is not kept.

use crate::error::{ApiError, Reason};
use crate::kind::{CodedSubresource, Effect, Posted, RuleContext, SubresourceError};
use crate::object::{Key, Tree};
use crate::quota::Room;
use crate::storage::Versioned;
use crate::write::{
    Attributes, Change, Draft, Live, Submitted, check_posted, check_preconditions, decode, write,
};

use super::delete::check_options;
use super::{DeleteOptions, delete};

/// What was done.
#[derive(Debug)]
pub enum Acted {
    /// This is the answer.
    Answered(Tree),
    /// Something was done to the object, and the answer says no more than that.
    Done,
}

/// Does what is posted to a subresource. `warnings` gains what the client is to be told.
///
/// # Errors
/// 404 when there is no object, 400 when what is posted cannot be read or is for another
/// one, and what the subresource refuses.
pub async fn act(
    attributes: &Attributes<'_>,
    coded: &CodedSubresource,
    submitted: Submitted,
    warnings: &mut Vec<String>,
) -> Result<Acted, ApiError> {
    let version = &coded.kind().storage;
    let mut draft = decode(coded.kind(), version, attributes.options.field_validation, submitted)?;
    warnings.append(&mut draft.warnings);
    check_posted(attributes, coded.kind(), &mut draft)?;
    let key = attributes.key();
    let Draft { tree: body, .. } = draft;
    let (object, _room) = current(attributes, &key).await?;
    let effect = ask(attributes, coded, &key, &body, &object)?;
    drop(object);
    let options = match effect {
        Effect::Answer(mut answer) => {
            coded.kind().coerce_again(version, &mut answer);
            return Ok(Acted::Answered(answer));
        }
        Effect::Change(_) => None,
        Effect::Delete(_, options) => {
            let mut options = DeleteOptions::from_tree(&options)?;
            options.dry_run |= attributes.options.dry_run;
            Some(options)
        }
    };
    // It may do something else by now, if the object has changed.
    let change = |live: &Live| {
        let effect = ask(attributes, coded, &key, &body, &live.tree)?;
        match (effect, &options) {
            (Effect::Change(tree), None) => {
                check_preconditions(attributes, &body, live)?;
                Ok(tree)
            }
            // What is not deleted is not changed for that either.
            (Effect::Delete(tree, _), Some(options)) => {
                check_options(attributes, &key, options, &live.kept)?;
                Ok(tree)
            }
            _ => Err(ApiError::internal("what is posted does something else by now")),
        }
    };
    let Some(mut options) = options.clone() else {
        let written = write(attributes, Change::Code(&change)).await?;
        warnings.extend(written.warnings);
        return Ok(Acted::Done);
    };
    if !options.dry_run {
        let written = write(attributes, Change::Code(&change)).await?;
        warnings.extend(written.warnings);
        // It is this object that is deleted, and no other one of its name.
        let Versioned { revision, object } = written.versioned;
        options.uid.get_or_insert_with(|| object.uid().to_owned());
        if options.resource_version.is_some() {
            options.resource_version = Some(revision.to_string());
        }
    }
    delete(attributes, &key, &options, warnings).await?;
    Ok(Acted::Done)
}

/// The object, in the version of the request.
async fn current(attributes: &Attributes<'_>, key: &Key) -> Result<(Tree, Room), ApiError> {
    let kind = attributes.kind();
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    let (store, collection) = attributes.served.store().ok_or_else(absent)?;
    let kept = store.get(&collection, key).await.map_err(ApiError::internal)?;
    let kept = kept.ok_or_else(absent)?;
    let shown = kind.in_version(&kept.object, attributes.version)?;
    // What becomes of it stands beside it.
    let room = attributes.account.room(2 * shown.tree_size())?;
    Ok((shown.to_tree(), room))
}

fn ask(
    attributes: &Attributes<'_>,
    coded: &CodedSubresource,
    key: &Key,
    body: &Tree,
    object: &Tree,
) -> Result<Effect, ApiError> {
    let context: RuleContext<'_> = attributes.context();
    let posted = Posted { key, object, body, context: &context };
    let kind = attributes.kind();
    coded.act(&posted).map_err(|error| match error {
        SubresourceError::Invalid(name, errors) => {
            let of = coded.kind();
            ApiError::invalid(&of.group, &of.names.kind, &name, errors)
        }
        SubresourceError::BadRequest(why) => ApiError::new(Reason::BadRequest, why),
        SubresourceError::ConflictOf { group, resource, name, why } => {
            ApiError::conflict(&group, &resource, &name, &why)
        }
        SubresourceError::Conflict(why) => {
            let resource = format!("{}/{}", kind.names.plural, coded.name());
            ApiError::conflict(&kind.group, &resource, key.name(), &why)
        }
        SubresourceError::NotFound(group, plural, name) => {
            ApiError::not_found(&group, &plural, &name)
        }
    })
}
