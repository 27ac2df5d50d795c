//! `pods/log`.

use std::time::Duration;

use aggregated_apiserver::subresource::{Error, Parameters, Parent, Subresource};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::Pod;
use kube::core::response::{Status, StatusCause, StatusDetails};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{container, go, has_node};

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
    /// The stream of the container. Requests with a stream are invalid, same as in kube-apiserver, whose feature gate
    /// `PodLogsQuerySplitStreams` is off.
    stream: Option<String>,
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
    let get = async move |Parent(pod): Parent<Pod>, Parameters(query): Parameters<Query>| {
        let options = query.options(pod.metadata.name.as_deref().unwrap_or_default())?;
        let container = container(&pod, options.container.as_deref())?;
        // A Pod without a node has no log, same as in kube-apiserver.
        if !has_node(&pod) {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let body: Body = handler(LogRequest { pod, container, options }).await?.into();
        Ok::<Response, Error>(([(CONTENT_TYPE, "text/plain")], body).into_response())
    };
    let log = Subresource::new("log").get(get).parameters::<LogOptions>().produces("text/plain");
    log.long_running(LONGEST).open_ended()
}

/// The parameters of a request, before their validation.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct Query {
    container: Option<String>,
    follow: bool,
    #[serde(rename = "insecureSkipTLSVerifyBackend")]
    insecure_skip_tls_verify_backend: bool,
    limit_bytes: Option<String>,
    previous: bool,
    since_seconds: Option<String>,
    since_time: Option<String>,
    stream: Option<String>,
    tail_lines: Option<String>,
    timestamps: bool,
}

impl Query {
    /// The options for a Pod of this name.
    ///
    /// # Errors
    /// 400 and 422, with the messages of kube-apiserver.
    fn options(self, pod: &str) -> Result<LogOptions, Error> {
        let integer = |text: &Option<String>| text.as_deref().map(go::integer).transpose();
        // kube-apiserver parses the parameters in this order.
        let since_seconds = integer(&self.since_seconds)?;
        let has_since_time = self.since_time.is_some();
        let since_time = self.since_time.filter(|time| !time.is_empty());
        since_time.as_deref().map_or(Ok(()), go::check_time)?;
        let options = LogOptions {
            container: self.container,
            follow: self.follow,
            insecure_skip_tls_verify_backend: self.insecure_skip_tls_verify_backend,
            previous: self.previous,
            since_seconds,
            since_time,
            stream: self.stream,
            tail_lines: integer(&self.tail_lines)?,
            limit_bytes: integer(&self.limit_bytes)?,
            timestamps: self.timestamps,
        };
        match &*options.causes(has_since_time) {
            [] => Ok(options),
            causes => Err(invalid(pod, causes)),
        }
    }
}

impl LogOptions {
    /// The invalid options, in the order of kube-apiserver.
    fn causes(&self, has_since_time: bool) -> Vec<StatusCause> {
        let invalid = |field: &str, value: i64, why: &str| {
            cause("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
        };
        let forbidden = |field: &str, why: &str| {
            cause("FieldValueForbidden", field, format!("Forbidden: {why}"))
        };
        let mut causes = Vec::new();
        if let Some(lines @ ..0) = self.tail_lines {
            causes.push(invalid("tailLines", lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes @ ..1) = self.limit_bytes {
            causes.push(invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match self.since_seconds {
            Some(_) if has_since_time => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                causes.push(forbidden("[]", why));
            }
            Some(seconds @ ..1) => {
                causes.push(invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if self.stream.is_some() {
            causes.push(forbidden("stream", "may not be specified"));
        }
        causes
    }
}

/// The error for invalid options.
fn invalid(pod: &str, causes: &[StatusCause]) -> Error {
    let reasons = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
    let reasons: Vec<String> = reasons.collect();
    let reasons = match &*reasons {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let message = format!("PodLogOptions {pod:?} is invalid: {reasons}");
    let details = StatusDetails {
        name: pod.to_owned(),
        kind: "PodLogOptions".to_owned(),
        causes: causes.to_vec(),
        group: String::new(),
        uid: String::new(),
        retry_after_seconds: 0,
    };
    let status = Status::failure(&message, "Invalid").with_code(422).with_details(details);
    kube::Error::Api(Box::new(status)).into()
}

fn cause(reason: &str, field: &str, message: String) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message, field: field.to_owned() }
}
