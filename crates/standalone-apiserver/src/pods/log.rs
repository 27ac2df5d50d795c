//! `pods/log`.

use std::time::Duration;

use aggregated_apiserver::subresource::{Error, Parameters, Parent, Subresource};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::core::response::{Status, StatusCause, StatusDetails};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{container, has_node};

/// The longest time for which a log is followed.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A request for the log of a container.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogRequest {
    /// The Pod.
    pub pod: Pod,
    /// The name of the container; the only one of the Pod if the client names none.
    pub container: String,
    /// The options of the client.
    pub options: LogOptions,
}

/// The options of a request for a log (`PodLogOptions`), after their validation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LogOptions {
    /// The container for which to stream logs.
    pub container: Option<String>,
    /// Follow the log stream of the pod.
    pub follow: bool,
    /// Do not verify the certificate of the kubelet.
    #[serde(rename = "insecureSkipTLSVerifyBackend")]
    pub insecure_skip_tls_verify_backend: bool,
    /// The number of bytes after which the log ends.
    pub limit_bytes: Option<i64>,
    /// Return the log of the previous, terminated container.
    pub previous: bool,
    /// The age of the oldest line, in seconds.
    pub since_seconds: Option<i64>,
    /// The time of the oldest line, in RFC 3339.
    pub since_time: Option<String>,
    /// The stream: `All`, `Stdout` or `Stderr`.
    pub stream: Option<String>,
    /// The number of lines from the end of the log.
    pub tail_lines: Option<i64>,
    /// Add a timestamp to each line.
    pub timestamps: bool,
}

/// The subresource `log` with this handler.
pub(crate) fn subresource<H, F, B>(handler: H) -> Subresource
where
    H: Fn(LogRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<B, Error>> + Send + 'static,
    B: Into<Body> + Send + 'static,
{
    let get = async move |Parent(pod): Parent<Pod>, Parameters(options): Parameters<LogOptions>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        options.validate(name)?;
        let container = container(&pod, options.container.as_deref())?;
        // kube-apiserver returns an empty log for a Pod without a node.
        let body = match has_node(&pod) {
            true => handler(LogRequest { pod, container, options }).await?.into(),
            false => Body::empty(),
        };
        Ok::<Response, Error>(([(CONTENT_TYPE, "text/plain")], body).into_response())
    };
    let log = Subresource::new("log").get(get).parameters::<LogOptions>().produces("text/plain");
    log.long_running(LONGEST).open_ended()
}

impl LogOptions {
    /// Rejects the same options as kube-apiserver, with its messages.
    fn validate(&self, pod: &str) -> Result<(), Error> {
        if let Some(time) = &self.since_time
            && time.parse::<Timestamp>().is_err()
        {
            let why = format!("sinceTime is {time:?}, which is not a time in RFC 3339");
            return Err(Error::bad_request(why));
        }
        let causes = self.causes();
        let reasons: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let reasons = match &*reasons {
            [] => return Ok(()),
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("PodLogOptions {pod:?} is invalid: {reasons}");
        let details = StatusDetails {
            name: pod.to_owned(),
            kind: "PodLogOptions".to_owned(),
            causes,
            group: String::new(),
            uid: String::new(),
            retry_after_seconds: 0,
        };
        let status = Status::failure(&message, "Invalid").with_code(422).with_details(details);
        Err(kube::Error::Api(Box::new(status)).into())
    }

    /// The invalid options, in the order of kube-apiserver.
    fn causes(&self) -> Vec<StatusCause> {
        let invalid = |field: &str, value: i64, why: &str| {
            cause("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
        };
        let forbidden = |why: &str| cause("FieldValueForbidden", "", format!("Forbidden: {why}"));
        let mut causes = Vec::new();
        if let Some(lines @ ..0) = self.tail_lines {
            causes.push(invalid("tailLines", lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes @ ..1) = self.limit_bytes {
            causes.push(invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match self.since_seconds {
            Some(_) if self.since_time.is_some() => causes
                .push(forbidden("at most one of `sinceTime` or `sinceSeconds` may be specified")),
            Some(seconds @ ..1) => {
                causes.push(invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        let stream = self.stream.as_deref().unwrap_or("All");
        if !STREAMS.contains(&stream) {
            let why = format!("Unsupported value: {stream:?}: supported values: {SUPPORTED}");
            causes.push(cause("FieldValueNotSupported", "stream", why));
        }
        if stream != "All" && self.tail_lines.is_some() {
            causes.push(forbidden(
                "`tailLines` and specific `stream` are mutually exclusive for now",
            ));
        }
        causes
    }
}

const STREAMS: [&str; 3] = ["All", "Stdout", "Stderr"];
const SUPPORTED: &str = "\"All\", \"Stderr\", \"Stdout\"";

fn cause(reason: &str, field: &str, message: String) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message, field: field.to_owned() }
}
