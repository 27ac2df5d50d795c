//! The access log: a line for each completed request, same as kube-apiserver with `-v 3`.

use std::sync::Arc;

use http::HeaderValue;
use http::header::USER_AGENT;
use http::request::Parts;

use super::Record;
use crate::auth::Attributes;
use crate::user::User;

/// The target of these lines, which log filters refer to.
pub const TARGET: &str = "access";
/// The largest size of a string from a client that is logged, in bytes. Longer strings are truncated.
const LIMIT: usize = 1_024;

/// The fields of a line that the record does not have.
#[derive(Debug)]
pub(super) struct Said {
    uri: String,
    user_agent: String,
    audit_id: String,
}

impl Said {
    /// Returns the fields of the line of a request; `None` if the access log is off.
    pub(super) fn of(head: &Parts, audit_id: &HeaderValue) -> Option<Box<Self>> {
        if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
            return None;
        }
        let text = |value: &HeaderValue| beginning(&String::from_utf8_lossy(value.as_bytes()));
        Some(Box::new(Self {
            uri: beginning(head.uri.path_and_query().map_or("", |path| path.as_str())),
            user_agent: head.headers.get(USER_AGENT).map(text).unwrap_or_default(),
            audit_id: text(audit_id),
        }))
    }
}

/// Truncates a string to [`LIMIT`].
fn beginning(text: &str) -> String {
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Writes the line of a request.
pub(super) fn write(record: &Record) {
    let Some(said) = &record.said else { return };
    let (verb, resource) = match record.attributes.as_deref() {
        Some(Attributes::Resource { verb, group, resource, subresource, .. }) => {
            let mut named = crate::error::qualified(group, resource);
            if !subresource.is_empty() {
                named = format!("{named}/{subresource}");
            }
            (verb.as_ref(), beginning(&named))
        }
        Some(Attributes::Path { verb, .. }) => (verb.as_str(), String::new()),
        None => ("", String::new()),
    };
    let name = |user: &Option<Arc<User>>| user.as_ref().map(|user| beginning(&user.name));
    let (caller, impersonated) = (name(&record.caller), name(&record.impersonated));
    tracing::debug!(
        target: TARGET,
        verb,
        method = %record.method,
        uri = said.uri,
        resource,
        user = impersonated.as_ref().or(caller.as_ref()),
        impersonated_by = caller.as_ref().filter(|_| impersonated.is_some()),
        code = record.code,
        bytes = record.bytes,
        latency = ?record.took,
        user_agent = said.user_agent,
        audit_id = said.audit_id,
        "HTTP"
    );
}
