//! Status: a refusal as it goes over the wire.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::text::beginning;
use super::{ApiError, Details, Reason};

/// The refusal of another program, as a webhook: it is told to the client as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The status of the answer.
    pub code: StatusCode,
    /// The reason, which may be none of Kubernetes'.
    pub reason: String,
    /// The details.
    pub details: Option<Value>,
}

#[derive(Debug, Serialize)]
struct ListMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<&'a str>,
}

/// `Status` of `meta/v1`, as it goes over the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta<'a>,
    status: &'static str,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails<'a>>,
    code: u16,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum StatusDetails<'a> {
    Ours(&'a Details),
    Given(&'a Value),
}

impl ApiError {
    /// The `Status` object of this refusal.
    pub fn to_status(&self) -> Status<'_> {
        let message = match self.reason {
            // The faults of an object are bounded where they are put together.
            Reason::Invalid => self.message.as_str().into(),
            // And so is what others own.
            Reason::Conflict if self.has_causes() => self.message.as_str().into(),
            // The message of a webhook is bounded where its answer is read.
            _ if self.as_given().is_some() => self.message.as_str().into(),
            _ => beginning(&self.message),
        };
        Status {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta { continue_token: self.continue_token.as_deref() },
            status: "Failure",
            message,
            reason: self.as_given().map_or_else(|| self.reason.word(), |given| &given.reason),
            details: match self.as_given() {
                None => self.details.as_deref().map(StatusDetails::Ours),
                Some(given) => given.details.as_ref().map(StatusDetails::Given),
            },
            code: self.status().as_u16(),
        }
    }
}
