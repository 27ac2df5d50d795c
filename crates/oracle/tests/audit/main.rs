//! Compares the audit log with that of a real kube-apiserver. Both servers have the same policy and get the same
//! requests. They must write the same events, except for times, uids, users and addresses.
//!
//! [`DIFFERENCES`] lists the intended differences, which must persist.

mod admission;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use admission::{AS_JOE, ENDPOINTS_OF_JOE};
use aggregated_apiserver::serving::AuditArgs;
use anyhow::{Context, Result, ensure};
use oracle::conversion_webhook::ConversionWebhook;
use oracle::server::{Sent, Server};
use oracle::world;
use serde_json::Value;
use standalone_apiserver::TestServer;
use test_cluster::{ControlPlane, Programs, unless_missing};

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: [/readyz*, /livez*, /openapi*]
- level: None
  resources: [{group: apiextensions.k8s.io}, {group: coordination.k8s.io}]
- level: None
  namespaces: [kube-system, default, kube-public]
- level: Metadata
  resources: [{group: '', resources: [secrets, serviceaccounts/token]}, {group: authentication.k8s.io}]
- level: Request
  namespaces: [audited]
  verbs: [update, deletecollection]
  omitStages: [RequestReceived]
- level: RequestResponse
  namespaces: [audited]
- level: Request
  namespaces: [hooked]
- level: Metadata
  namespaces: [secured, noted, free]
- level: RequestResponse
  resources: [{group: authorization.k8s.io}]
- level: Metadata
  nonResourceURLs: [/none*]
";

/// The prefix of the audit ids of the test's requests. Events with other ids are ignored.
const ID: &str = "audited-";
/// The prefix of annotations about requests that take longer than half a second.
const LATENCY: &str = "apiserver.latency.k8s.io/";
/// The largest time until an event is in the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request: method, path, media type of the body, and body.
const REQUESTS: &[[&str; 4]] = &[
    [
        "POST",
        "/configmaps",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#,
    ],
    [
        "POST",
        "/configmaps",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#,
    ],
    ["POST", "/configmaps?fieldManager=malformed", "json", "not json"],
    ["POST", "/configmaps", "yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: in-yaml}\n"],
    [
        "POST",
        "/configmaps?dryRun=All",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}"#,
    ],
    [
        "POST",
        "/configmaps?fieldValidation=Strict",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s"},"unknown":1}"#,
    ],
    ["GET", "/configmaps/a", "", ""],
    ["GET", "/configmaps/none", "", ""],
    ["GET", "/configmaps?limit=1&labelSelector=x", "", ""],
    ["GET", "/configmaps?watch=true&timeoutSeconds=1&labelSelector=x", "", ""],
    ["GET", "/endpoints?watch=true&timeoutSeconds=1&labelSelector=x", "", ""],
    [
        "PUT",
        "/configmaps/a",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"}}"#,
    ],
    [
        "PUT",
        "/configmaps/a",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}"#,
    ],
    [
        "PUT",
        "/configmaps/other",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"name"}}"#,
    ],
    ["PATCH", "/configmaps/a", "merge-patch+json", r#"{"data": {"x": "y"}}"#],
    ["PATCH", "/configmaps/a", "json-patch+json", r#"[{"op":"add","path":"/data/z","value":"1"}]"#],
    ["PATCH", "/configmaps/a", "json-patch+json", r#"[{"op":"remove","path":"/none"}]"#],
    ["PATCH", "/configmaps/a", "strategic-merge-patch+json", r#"{"data":{"s":"y"}}"#],
    [
        "PATCH",
        "/configmaps/b?fieldManager=me",
        "apply-patch+yaml",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"q":"r"}}"#,
    ],
    ["PATCH", "/configmaps/none", "merge-patch+json", "{}"],
    ["PATCH", "/configmaps/a?fieldManager=unknown", "x-none", "{}"],
    [
        "DELETE",
        "/configmaps/b",
        "json",
        r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#,
    ],
    ["DELETE", "/configmaps/a", "", ""],
    ["DELETE", "/configmaps/a?dryRun=All", "", ""],
    ["DELETE", "/configmaps?labelSelector=x", "", ""],
    [
        "DELETE",
        "/configmaps?labelSelector=x",
        "json",
        r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#,
    ],
    [
        "POST",
        "/secrets",
        "json",
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"password":"hidden"}}"#,
    ],
    ["GET", "/secrets/a", "", ""],
    ["DELETE", "/secrets/a", "", ""],
    ["GET", "/configmaps?limit=2", AS_JOE, ""],
    ["GET", "/nonesuch", "", ""],
    ["GET", "/configmaps/a/none", "", ""],
    [
        "POST",
        "/serviceaccounts",
        "json",
        r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"s"}}"#,
    ],
    [
        "POST",
        "/serviceaccounts/s/token",
        "json",
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#,
    ],
    [
        "POST",
        SUBJECT_ACCESS_REVIEWS,
        "json",
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","resourceAttributes":{"verb":"get","resource":"pods"}}}"#,
    ],
    ["GET", "!/none/such", "", ""],
    ["GET", WIDGETS, "", ""],
];

/// The intended differences: method and path of the request, field of the event, and reason.
const DIFFERENCES: &[[&str; 4]] = &[
    ["POST", "/configmaps?fieldManager=malformed", "responseObject", PARSER],
    ["POST", "/configmaps?fieldManager=malformed", "responseStatus", PARSER],
    ["POST", "/configmaps?fieldValidation=Strict", "requestObject", STRICT],
    ["POST", "/configmaps?fieldValidation=Strict", "objectRef", STRICT],
    ["PATCH", "/configmaps/a?fieldManager=unknown", "responseObject", MEDIA_TYPE],
    ["PATCH", "/configmaps/a?fieldManager=unknown", "responseStatus", MEDIA_TYPE],
    ["POST", "/serviceaccounts/s/token", "annotations", "it says the id of the token"],
    ["POST", SUBJECT_ACCESS_REVIEWS, "requestObject", "it is filled in as Go does it"],
    ["GET", "/configmaps?limit=2", "authenticationMetadata", IMPERSONATION],
    ["GET", ENDPOINTS_OF_JOE, "authenticationMetadata", IMPERSONATION],
    ["GET", "!/none/such", "responseStatus", NO_ROUTE],
    ["GET", WIDGETS, "responseStatus", NO_ROUTE],
    ["GET", WIDGETS, "responseObject", NO_ROUTE],
];
const IMPERSONATION: &str = "it knows several ways to impersonate";
const PARSER: &str = "another parser has other words";
const STRICT: &str = "what is refused for its unknown fields is written down all the same";
const MEDIA_TYPE: &str = "it writes down another status than it answers";
const NO_ROUTE: &str = "paths that nobody serves are answered with a text";
const SUBJECT_ACCESS_REVIEWS: &str = "!/apis/authorization.k8s.io/v1/subjectaccessreviews";
const WIDGETS: &str = "!/apis/oracle.example.com/v1/namespaces/audited/widgets";

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_equal_those_of_kube_apiserver() -> Result<()> {
    let Some(programs) = unless_missing(Programs::find())? else { return Ok(()) };
    let there = tokio::task::spawn_blocking(move || ControlPlane::start_audited(&programs, POLICY));
    let folder = tempfile::tempdir()?;
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, POLICY)?;
    let mut args = AuditArgs::default();
    args.audit_policy_file = Some(policy);
    let ours = folder.path().join("audit.log");
    args.audit_log_path = Some(ours.clone());
    let here = Box::pin(TestServer::builder().listen().audit(args).start()).await?;
    let server = world::of_test_server(&here, folder.path())?;
    let there = there.await??;
    let reference = world::of_control_plane("kube-apiserver", &there)?;
    let webhook = ConversionWebhook::start(there.authority(), folder.path()).await?;
    for server in [&reference, &server] {
        admission::set_up(server, &webhook.admission()).await?;
        send(server).await?;
    }
    let expected = events(&there.audit_log())?;
    let found = events(&ours)?;
    compare(&expected, &found)
}

async fn send(server: &Server) -> Result<()> {
    let json = |format: &str| match format {
        "" => Vec::new(),
        AS_JOE => vec![("impersonate-user".to_owned(), "joe".to_owned())],
        format => vec![("content-type".to_owned(), format!("application/{format}"))],
    };
    for (index, [method, path, format, body]) in requests().enumerate() {
        let mut headers = json(format);
        headers.push(("audit-id".to_owned(), format!("{ID}{index:03}")));
        headers.push(("user-agent".to_owned(), "oracle".to_owned()));
        let path = match path.strip_prefix('!') {
            Some(path) => path.to_owned(),
            None => format!("/api/v1/namespaces/audited{path}"),
        };
        let body = Some((*body).to_owned()).filter(|body| !body.is_empty());
        let method = (*method).to_owned();
        server.ask(&Sent { method, path, headers, body, ..Sent::default() }).await?;
    }
    Ok(())
}

/// All requests.
fn requests() -> impl Iterator<Item = &'static [&'static str; 4]> {
    REQUESTS.iter().chain(admission::REQUESTS)
}

/// Returns the events of each request. Waits until those of the last request are written.
fn events(file: &Path) -> Result<BTreeMap<usize, Vec<Value>>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(file)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut events: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line)?;
            let id = event["auditID"].as_str().unwrap_or_default();
            if let Some(index) = id.strip_prefix(ID) {
                events.entry(index.parse()?).or_default().push(event);
            }
        }
        let last = events.get(&(requests().count() - 1)).and_then(|events| events.last());
        if last.is_some_and(|event| event["stage"] == "ResponseComplete") {
            return Ok(events);
        }
        ensure!(Instant::now() < deadline, "the last event is not in {}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Masks the values that differ each time.
fn masked(mut event: Value) -> Result<Value> {
    let top = event.as_object_mut().context("an object")?;
    for member in ["user", "sourceIPs", "requestReceivedTimestamp", "stageTimestamp"] {
        ensure!(top.contains_key(member), "{member} is missing");
        top.insert(member.to_owned(), "masked".into());
    }
    if let Some(annotations) = event["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(LATENCY));
    }
    mask(&mut event);
    Ok(event)
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let is_of_moment = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
                if is_of_moment.contains(&name.as_str()) && value != "1" {
                    *value = "masked".into();
                }
                mask(value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        _ => {}
    }
}

fn compare(
    expected: &BTreeMap<usize, Vec<Value>>,
    found: &BTreeMap<usize, Vec<Value>>,
) -> Result<()> {
    let mut report = String::new();
    for (index, [method, path, ..]) in requests().enumerate() {
        let of = |events: &BTreeMap<usize, Vec<Value>>| -> Result<Vec<Value>> {
            events.get(&index).into_iter().flatten().cloned().map(masked).collect()
        };
        let (there, here) = (of(expected)?, of(found)?);
        let stages = |events: &[Value]| -> Vec<Value> {
            events.iter().map(|event| event["stage"].clone()).collect()
        };
        if stages(&there) != stages(&here) {
            let (there, here) = (stages(&there), stages(&here));
            report.push_str(&format!("{method} {path}: {there:?}, we have {here:?}\n"));
            continue;
        }
        for (there, here) in there.iter().zip(&here) {
            let none = serde_json::Map::new();
            let (one, other) =
                (there.as_object().unwrap_or(&none), here.as_object().unwrap_or(&none));
            let mut members: Vec<&String> = one.keys().chain(other.keys()).collect();
            members.sort();
            members.dedup();
            for member in members {
                let is_known = DIFFERENCES
                    .iter()
                    .any(|[of, at, known, _]| (of, at, known) == (method, path, &member.as_str()));
                let is_known = is_known && there["stage"] == "ResponseComplete";
                let (one, other) = (&there[member], &here[member]);
                if (one == other) == is_known {
                    let stage = &there["stage"];
                    report.push_str(&format!(
                        "{method} {path} {stage} {member}:\n  {one}\n  {other}\n"
                    ));
                }
            }
        }
    }
    ensure!(report.is_empty(), "events differ:\n{report}");
    Ok(())
}
