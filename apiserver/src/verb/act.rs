//! CREATE of a subresource that code answers: something is done to the object, or asked
//! about it. What is posted is not kept.

use crate::error::{ApiError, Reason};
use crate::kind::{CodedSubresource, Effect, Posted, RuleContext, SubresourceError};
use crate::object::{Key, Tree};
use crate::write::{
    Attributes, Change, Draft, Live, Submitted, check_posted, check_preconditions, decode, write,
};

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
    let effect = ask(attributes, coded, &key, &body, &current(attributes, &key).await?)?;
    let (options, dry_run) = match effect {
        Effect::Answer(mut answer) => {
            coded.kind().coerce_again(version, &mut answer);
            return Ok(Acted::Answered(answer));
        }
        Effect::Change(_) => (None, false),
        Effect::Delete(_, options) => {
            let mut options = DeleteOptions::from_tree(&options)?;
            options.dry_run |= attributes.options.dry_run;
            let dry_run = options.dry_run;
            (Some(options), dry_run)
        }
    };
    let change = |live: &Live| {
        check_preconditions(attributes, &body, live)?;
        match ask(attributes, coded, &key, &body, &live.tree)? {
            Effect::Change(tree) | Effect::Delete(tree, _) => Ok(tree),
            Effect::Answer(_) => Err(ApiError::internal("what is posted is a question by now")),
        }
    };
    // What is not deleted is not changed for that either.
    if options.is_none() || !dry_run {
        let written = write(attributes, Change::Code(&change)).await?;
        warnings.extend(written.warnings);
    }
    if let Some(options) = options {
        delete(attributes, &key, &options, warnings).await?;
    }
    Ok(Acted::Done)
}

/// The object, in the version of the request.
async fn current(attributes: &Attributes<'_>, key: &Key) -> Result<Tree, ApiError> {
    let kind = attributes.kind();
    let absent = || ApiError::not_found(&kind.group, &kind.names.plural, key.name());
    let (store, collection) = attributes.served.store().ok_or_else(absent)?;
    let kept = store.get(&collection, key).await.map_err(ApiError::internal)?;
    let kept = kept.ok_or_else(absent)?;
    Ok(kind.in_version(&kept.object, attributes.version).to_tree())
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
