//! `farmpods/log`: the logs of all containers of a Pod, merged.

use std::time::Duration;

use aggregated_apiserver::subresource::{
    Caller, Error, Parameters, Parent, ParentKey, Subresource,
};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::LogParams;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FarmPod;

/// The longest duration of a log that is followed.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest number of containers whose logs are merged. Each is a connection to the cluster.
const CONTAINERS: usize = 20;
/// The length at which a line is broken, in bytes.
const LINE: u64 = 16 << 10;

/// The options of a log: those of `pods/log`, for all containers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct LogOptions {
    /// The container whose log is returned; all containers by default.
    container: Option<String>,
    /// Whether the log is followed.
    follow: bool,
    /// Whether the logs of the previous containers are returned.
    previous: bool,
    /// The age of the oldest line, in seconds.
    since_seconds: Option<i64>,
    /// The number of lines of each container.
    tail_lines: Option<i64>,
    /// Whether each line begins with its time.
    timestamps: bool,
}

/// The subresource.
pub fn log() -> Subresource {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods".to_owned(), "pods/log".to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    let log =
        Subresource::new("log").get(follow).long_running(LONGEST).open_ended().server_rule(rule);
    log.parameters::<LogOptions>().produces("text/plain")
}

async fn follow(
    ParentKey(key): ParentKey,
    Parent(farm_pod): Parent<FarmPod>,
    caller: Caller,
    Parameters(options): Parameters<LogOptions>,
) -> Result<Response, Error> {
    let (namespace, name) = (key.namespace().unwrap_or_default(), &farm_pod.spec.pod);
    let permission = ResourceAttributes {
        verb: Some("get".to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("pods".to_owned()),
        subresource: Some("log".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.clone()),
        ..ResourceAttributes::default()
    };
    caller.demand(&permission).await?;
    let pods = Api::<Pod>::namespaced(caller.server_client(), namespace);
    let containers = match &options.container {
        Some(container) => vec![container.clone()],
        None => containers(&pods.get(name).await?),
    };
    if containers.len() > CONTAINERS {
        let why = format!("the Pod has more than {CONTAINERS} containers: choose one (container)");
        return Err(Error::bad_request(why));
    }
    let has_prefix = containers.len() > 1;
    let mut merged: SelectAll<BoxStream<'static, Line>> = SelectAll::new();
    let (mut is_any_open, mut refused) = (false, None);
    for container in containers {
        let prefix = if has_prefix { format!("[{container}] ") } else { String::new() };
        match pods.log_stream(name, &options.of(container)).await {
            Ok(log) => {
                is_any_open = true;
                merged.push(lines(prefix, log).boxed());
            }
            // A container that has not started yet has no log.
            Err(kube::Error::Api(status)) if has_prefix && status.code == 400 => {
                let line = Ok(format!("{prefix}{}\n", status.message.trim_end()).into_bytes());
                merged.push(stream::once(async { line }).boxed());
                refused.get_or_insert(kube::Error::Api(status));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = refused.filter(|_| !is_any_open) {
        return Err(error.into());
    }
    let body = Body::from_stream(merged);
    Ok(([(CONTENT_TYPE, "text/plain")], body).into_response())
}

impl LogOptions {
    /// The options for one container.
    fn of(&self, container: String) -> LogParams {
        LogParams {
            container: Some(container),
            follow: self.follow,
            previous: self.previous,
            since_seconds: self.since_seconds,
            tail_lines: self.tail_lines,
            timestamps: self.timestamps,
            ..LogParams::default()
        }
    }
}

/// The names of all containers, in the order in which they start.
fn containers(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|one| &one.name);
    let debug = spec.ephemeral_containers.iter().flatten().map(|one| &one.name);
    init.chain(spec.containers.iter().map(|one| &one.name)).chain(debug).cloned().collect()
}

type Line = std::io::Result<Vec<u8>>;

/// The lines of a log, each with a prefix. A longer line is broken.
fn lines(
    prefix: String,
    log: impl AsyncBufRead + Send + Unpin + 'static,
) -> impl futures::Stream<Item = Line> + Send {
    stream::unfold((prefix, log), async |(prefix, mut log)| {
        let mut line = prefix.clone().into_bytes();
        let read = (&mut log).take(LINE).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => None,
            Ok(_) => {
                if line.last() != Some(&b'\n') {
                    line.push(b'\n');
                }
                Some((Ok(line), (prefix, log)))
            }
            Err(error) => Some((Err(error), (prefix, log))),
        }
    })
}
