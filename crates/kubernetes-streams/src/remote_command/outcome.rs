//! The result of a command, and how each version of the protocol sends it.

use serde_json::{Value, json};

use super::protocol::Version;

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The command ended with exit code 0.
    Success,
    /// The command ended with this exit code. 0 is the same as [`Outcome::Success`]. Clients in Go accept codes up to
    /// 255.
    ExitCode(i32),
    /// The command could not be executed. Clients get the message after `Internal error occurred: `.
    Failed(String),
    /// The session ended with an error of the API, for example because the server stops or a permission was removed.
    Error {
        /// The HTTP status code, for example 503.
        code: u16,
        /// The reason in the Status, for example `ServiceUnavailable`.
        reason: String,
        /// The message that clients get.
        message: String,
    },
}

impl Outcome {
    /// Returns the bytes for the error channel: a Status in JSON since v4, the message of an error before.
    pub(super) fn encode(&self, version: Version) -> Vec<u8> {
        if version >= Version::V4 {
            return self.status().to_string().into_bytes();
        }
        match self {
            Self::Success | Self::ExitCode(0) => Vec::new(),
            other => other.message().into_bytes(),
        }
    }

    fn status(&self) -> Value {
        let metadata = json!({});
        let message = self.message();
        match self {
            Self::Success | Self::ExitCode(0) => json!({"metadata": metadata, "status": "Success"}),
            Self::ExitCode(code) => {
                let causes = [json!({"reason": "ExitCode", "message": code.to_string()})];
                json!({
                    "metadata": metadata, "status": "Failure", "reason": "NonZeroExitCode",
                    "message": message, "details": {"causes": causes},
                })
            }
            Self::Failed(_) => failure("InternalError", &message, 500),
            Self::Error { code, reason, .. } => failure(reason, &message, *code),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Success => String::new(),
            Self::ExitCode(code) => format!(
                "command terminated with non-zero exit code: command terminated with exit code {code}"
            ),
            Self::Failed(message) => format!("Internal error occurred: {message}"),
            Self::Error { message, .. } => message.clone(),
        }
    }
}

fn failure(reason: &str, message: &str, code: u16) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": reason, "message": message, "code": code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: &Outcome, version: Version) -> String {
        String::from_utf8(outcome.encode(version)).unwrap()
    }

    #[test]
    fn old_versions_get_the_message() {
        for version in [Version::V1, Version::V2, Version::V3] {
            assert_eq!(text(&Outcome::Success, version), "");
            assert_eq!(
                text(&Outcome::ExitCode(3), version),
                "command terminated with non-zero exit code: command terminated with exit code 3"
            );
            let failed = Outcome::Failed("no such file".to_owned());
            assert_eq!(text(&failed, version), "Internal error occurred: no such file");
        }
    }

    #[test]
    fn new_versions_get_a_status() {
        let status = |outcome: &Outcome| -> Value {
            serde_json::from_slice(&outcome.encode(Version::V5)).unwrap()
        };
        assert_eq!(status(&Outcome::ExitCode(0)), json!({"metadata": {}, "status": "Success"}));
        let exit = status(&Outcome::ExitCode(3));
        assert_eq!(exit["reason"], "NonZeroExitCode");
        assert_eq!(exit["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        let (reason, message) = ("ServiceUnavailable".to_owned(), "the server stops".to_owned());
        let error = status(&Outcome::Error { code: 503, reason, message });
        assert_eq!(error["message"], "the server stops");
        assert_eq!(error["code"], 503);
    }
}
