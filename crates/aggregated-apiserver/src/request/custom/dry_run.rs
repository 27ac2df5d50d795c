//! The parameter `dryRun` of requests for subresources.

use super::{CustomRequest, CustomTarget};
use crate::error::ApiError;
use crate::request::query;
use crate::write::WriteOptions;

/// The options of a request for admission.
///
/// # Errors
/// 400 if the request is a dry run that the handler would execute.
pub(super) fn options(request: &CustomRequest<'_>) -> Result<WriteOptions, ApiError> {
    let CustomRequest { custom, head, is_upgrade, .. } = request;
    let parameters = query::pairs(head.uri.query().unwrap_or_default());
    let dry_run =
        parameters.filter(|(name, _)| name == "dryRun").any(|(_, value)| !value.is_empty());
    // The query of a proxy belongs to the server behind it.
    let is_read = custom.is_read(&head.method) && !is_upgrade;
    if !dry_run || custom.is_proxy() || is_read {
        return Ok(WriteOptions::default());
    }
    if !custom.has_dry_run() {
        let why = match &request.target {
            CustomTarget::Subresource(_) => {
                format!("the subresource {} has no dry run", custom.name())
            }
            CustomTarget::Path(_) => "the path has no dry run".to_owned(),
        };
        return Err(ApiError::bad_request(why));
    }
    Ok(WriteOptions { dry_run, ..WriteOptions::default() })
}
