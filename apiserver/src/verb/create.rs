//! CREATE: make an object.

use std::sync::Arc;

use crate::ambient::Ambient;
use crate::error::{ApiError, Details, Reason, qualified, quote};
use crate::kind::Version;
use crate::object::{Key, Tree};
use crate::served_kind::ServedKind;
use crate::storage::{Commit, Expected, StoreError, Versioned};
use crate::write::{FieldValidation, Submitted, prepare_new};

/// A generated name that is taken is tried again so often; as kube-apiserver.
const GENERATE_NAME_ATTEMPTS: usize = 8;

/// How an object is created.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// What happens to members that are unknown or given twice.
    pub field_validation: FieldValidation,
}

/// Makes an object; answers with it and with texts for `Warning` headers.
///
/// # Errors
/// 400 and 422 when the object may not be kept, 409 when its name is taken.
pub async fn create(
    served: &ServedKind,
    version: &Version,
    namespace: Option<&str>,
    submitted: Submitted,
    options: CreateOptions,
    ambient: &Ambient,
) -> Result<(Versioned, Vec<String>), ApiError> {
    let kind = &served.kind;
    let Some((store, collection)) = served.store() else {
        return Err(ApiError::method_not_allowed(&kind.group, &kind.names.plural, "create"));
    };
    let field_validation = options.field_validation;
    let prepare =
        |submitted| prepare_new(kind, version, namespace, submitted, field_validation, ambient);
    // Only a name that is made can be made again.
    let has_prefix = has_prefix(&submitted.tree);
    let again = |submitted: &Submitted| Submitted {
        tree: submitted.tree.clone(),
        duplicates: submitted.duplicates.clone(),
    };
    let spare = has_prefix.then(|| again(&submitted));
    let mut current = submitted;
    let mut attempt = 1;
    loop {
        let prepared = prepare(current)?;
        let object = Arc::new(prepared.object);
        let key = Key::new(namespace, object.key().name());
        let commit = Commit {
            collection: collection.clone(),
            key,
            expected: Expected::Absent,
            object: Some(Arc::clone(&object)),
        };
        match store.commit(commit).await {
            Ok(revision) => return Ok((Versioned { revision, object }, prepared.warnings)),
            Err(StoreError::Exists) => {
                let name = object.key().name();
                if !has_prefix {
                    return Err(ApiError::already_exists(&kind.group, &kind.names.plural, name));
                }
                if prepared.generated_from.is_none() || attempt == GENERATE_NAME_ATTEMPTS {
                    return Err(no_unique_name(&kind.group, &kind.names.plural, name));
                }
                attempt += 1;
                let Some(kept) = &spare else {
                    return Err(no_unique_name(&kind.group, &kind.names.plural, name));
                };
                current = again(kept);
            }
            Err(error) => return Err(ApiError::internal(error)),
        }
    }
}

fn has_prefix(tree: &Tree) -> bool {
    let metadata = tree.get("metadata");
    let prefix = metadata.and_then(|metadata| metadata["generateName"].as_str());
    prefix.is_some_and(|prefix| !prefix.is_empty())
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
