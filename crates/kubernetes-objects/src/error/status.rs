//! `Status`: an error in its wire format.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::text::beginning;
use super::{ApiError, Details, Reason};

/// The error of another program, such as a webhook. The client receives it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The HTTP status code of the response.
    pub code: u16,
    /// The reason, which may be unknown to Kubernetes.
    pub reason: String,
    /// The details, if the program sent any.
    pub details: Option<Value>,
}

#[derive(Debug, Serialize)]
struct ListMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<&'a str>,
}

/// `Status` of `meta/v1` in its wire format.
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
    /// The `Status` object of this error.
    pub fn to_status(&self) -> Status<'_> {
        let message = match self.reason {
            // `ApiError::invalid` limits the length of the field errors.
            Reason::Invalid => self.message.as_str().into(),
            // The conflicts with other field managers are limited where they are collected.
            Reason::Conflict if self.has_causes() => self.message.as_str().into(),
            // The message of a webhook is limited where its response is read.
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
            code: self.code(),
        }
    }
}
