//! Subresources that code of the user handles: requests, streams, uploads, connections and proxies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

#[path = "subresources/connections.rs"]
mod connections;
#[path = "subresources/forwarding.rs"]
mod forwarding;
#[path = "subresources/kinds.rs"]
mod kinds_of_every_sort;
#[path = "subresources/machine.rs"]
mod machine;
#[path = "subresources/streams.rs"]
mod streams;

use std::sync::{Arc, Mutex};

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::auth::{
    Attributes, AuthError, Authenticated, AuthenticationRequest, Authenticator, Authenticators,
    Authorizers, Decision, authorizer_fn,
};
use aggregated_apiserver::subresource::Subresource;
use aggregated_apiserver::{InProcess, Kind, Kinds, User};
use axum::body::Body;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use test_server::{admin, api_server, ask, server_of, unreachable_cluster, user};

use machine::{Log, MACHINES, kinds};

/// A server with the machine `a`.
async fn serving() -> InProcess {
    with_machine(server_of(kinds(&Log::default())).await).await
}

async fn with_machine(server: InProcess) -> InProcess {
    create(&server).await;
    server
}

async fn create(server: &InProcess) {
    let machine = json!({
        "apiVersion": "example.com/v1", "kind": "Machine", "metadata": {"name": "a"},
        "spec": {"image": "debian"},
    });
    let (status, created) = ask(server, Method::POST, MACHINES, &machine).await;
    assert_eq!(status, 201, "{created}");
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let path = format!("{MACHINES}/{path}");
    Request::builder().method(method).uri(path).body(body.into()).unwrap()
}

async fn text(response: Response<Body>) -> (StatusCode, String) {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn send(server: &InProcess, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    text(server.respond(admin(), request(method, path, body.to_owned())).await).await
}

async fn send_json(
    server: &InProcess,
    method: &str,
    path: &str,
    body: &str,
) -> (StatusCode, Value) {
    let (status, text) = send(server, method, path, body).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
}

#[tokio::test]
async fn handlers_get_the_object_the_body_and_the_user() {
    let server = serving().await;
    let shown = (StatusCode::OK, "n/a debian".to_owned());
    assert_eq!(send(&server, "GET", "a/start", "").await, shown);
    assert_eq!(send(&server, "DELETE", "a/start", "").await, shown);
    assert_eq!(send(&server, "HEAD", "a/start", "").await, (StatusCode::OK, String::new()));
    for method in ["POST", "PUT", "PATCH"] {
        let (status, answer) = send_json(&server, method, "a/start", "now").await;
        assert_eq!(status, StatusCode::ACCEPTED);
        let version = &answer["version"];
        assert!(version.as_str().is_some_and(|version| version.parse::<u64>().is_ok()));
        let expected = json!({
            "image": "debian", "version": version, "user": "admin", "method": method, "sent": "now",
        });
        assert_eq!(answer, expected);
    }
    // The object exists unchanged: a handler changes nothing by itself.
    let (status, _) = ask(&server, Method::GET, &format!("{MACHINES}/a"), &Value::Null).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn requests_without_an_object_or_a_handler_are_rejected() {
    let server = serving().await;
    for (method, path, code, message) in [
        ("GET", "b/start", 404, "machines.example.com \"b\" not found"),
        ("POST", "a/log", 405, "the server does not allow this method on the requested resource"),
        ("GET", "a/fail", 405, "the server does not allow this method on the requested resource"),
        ("GET", "a/halt", 404, "machines.example.com \"a\" not found"),
        (
            "GET",
            "a/log?tailLines=x",
            400,
            "the parameter tailLines is \"x\", which is not an integer",
        ),
    ] {
        let (status, error) = send_json(&server, method, path, "").await;
        assert_eq!((status.as_u16(), &error["code"]), (code, &code.into()), "{path}: {error}");
        assert_eq!(error["kind"], "Status");
        let told = error["message"].as_str().unwrap();
        assert!(told == message || code == 405, "{path}: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_handlers_are_statuses() {
    let server = serving().await;
    for (what, code, reason, message) in [
        ("text", 409, "Conflict", "it runs already"),
        ("status", 429, "TooManyRequests", "slowly"),
        ("cluster", 404, "NotFound", "no such pod"),
        (
            "switch",
            500,
            "InternalError",
            "the handler upgrades a connection that cannot be upgraded",
        ),
        ("continue", 500, "InternalError", "the handler answers with 100 Continue"),
        ("panic", 500, "InternalError", "this request caused the server to panic"),
        ("hang", 504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
    ] {
        let (status, error) = send_json(&server, "POST", "a/fail", what).await;
        assert_eq!(status, code, "{what}");
        assert_eq!(
            (&error["reason"], &error["kind"]),
            (&reason.into(), &"Status".into()),
            "{what}"
        );
        assert!(error["message"].as_str().unwrap().contains(message), "{what}: {error}");
    }
    // A response in JSON stays unchanged.
    assert_eq!(
        send(&server, "POST", "a/fail", "json").await,
        (StatusCode::IM_A_TEAPOT, "{}".to_owned())
    );
    assert_eq!(send(&server, "GET", "a/start", "").await.0, 200, "the server continues");
}

#[tokio::test]
async fn whole_bodies_and_uploads_have_different_limits() {
    let server = serving().await;
    let megabytes = |count: usize| vec![b'x'; count << 20];
    let put = async |path: &str, body: Body| {
        text(server.respond(admin(), request("PUT", path, body)).await).await
    };
    let is_too_large = |(status, text): (StatusCode, String)| {
        assert_eq!(status, 413, "{text}");
        assert!(text.contains("\"kind\":\"Status\""), "{text}");
    };
    assert_eq!(put("a/whole", megabytes(3).into()).await, (StatusCode::OK, (3 << 20).to_string()));
    is_too_large(put("a/whole", megabytes(4).into()).await);
    assert_eq!(
        put("a/upload", megabytes(64).into()).await,
        (StatusCode::OK, (64 << 20).to_string())
    );
    is_too_large(put("a/upload", megabytes(65).into()).await);
    // The length of a stream is not known before.
    let stream = |count| {
        let chunk = bytes::Bytes::from(megabytes(1));
        let chunks = futures::stream::iter(std::iter::repeat_n(chunk, count));
        Body::from_stream(futures::StreamExt::map(chunks, Ok::<_, std::io::Error>))
    };
    is_too_large(put("a/whole", stream(4)).await);
    let (status, error) = put("a/upload", stream(65)).await;
    assert_eq!(status, 400, "{error}");
    assert!(error.contains("length limit exceeded"), "{error}");
}

#[tokio::test]
async fn a_dry_run_is_executed_by_no_handler_that_does_not_know_it() {
    let server = serving().await;
    let (status, error) = send_json(&server, "PUT", "a/start?dryRun=All", "").await;
    let message = &error["message"];
    assert_eq!((status.as_u16(), message), (400, &"the subresource start has no dry run".into()));
    assert_eq!(send(&server, "POST", "a/stop?dryRun=All", "").await.0, 200);
    assert_eq!(send(&server, "GET", "a/start?dryRun=All", "").await.0, 200, "a read");
    assert_eq!(send(&server, "PUT", "a/proxy/x?dryRun=All", "").await.0, 200, "not ours");
}

#[tokio::test]
async fn subresources_that_cannot_be_served_prevent_the_start() {
    let handler = async || "";
    let named = |name| Subresource::new(name).get(handler);
    for (subresources, expected) in [
        (vec![named("status")], "subresource \"status\": the name is already used"),
        (vec![named("a"), named("a")], "subresource \"a\": the name is already used"),
        (vec![named("a/b")], "subresource \"a/b\": the name must be a DNS label"),
        (vec![named("")], "subresource \"\": the name must be a DNS label"),
        (vec![Subresource::new("a")], "subresource \"a\": no method has a handler"),
    ] {
        let kind = Kind::stored::<machine::Machine>();
        let kind = subresources.into_iter().fold(kind, Kind::subresource);
        let server = api_server(Kinds::new().kind(kind)).in_process(unreachable_cluster()).await;
        let error = server.err().unwrap().to_string();
        assert_eq!(error, format!("kind machines.example.com: {expected}"));
    }
}

#[tokio::test]
async fn proxies_get_all_methods_and_paths() {
    let server = serving().await;
    let proxied = async |method: &str, path: &str| {
        let (status, answer) = send_json(&server, method, path, "").await;
        assert_eq!(status, 200, "{answer}");
        (answer["method"].clone(), answer["path"].clone(), answer["query"].clone())
    };
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let expected = (method.into(), "api/v1/pods".into(), "watch=true&x=%20".into());
        assert_eq!(proxied(method, "a/proxy/api/v1/pods?watch=true&x=%20").await, expected);
    }
    for (path, expected) in [
        ("a/proxy", ""),
        ("a/proxy/", ""),
        ("a/proxy/x/", "x/"),
        ("a/proxy//x", "/x"),
        ("a/proxy/x%2Fy", "x%2Fy"),
        ("a/proxy/...", "..."),
    ] {
        assert_eq!(proxied("GET", path).await.1, expected, "{path}");
    }
    let (status, refused) = send(&server, "GET", "a/proxy/refused", "").await;
    assert_eq!((status, refused.as_str()), (StatusCode::BAD_GATEWAY, "as it is"));
    for path in [
        "a/proxy/..",
        "a/proxy/x/../../../b",
        "a/proxy/%2e%2E/b",
        "a/proxy/x%2f..%2fb",
        "a/proxy/.",
        "a/proxy/..%5cb",
    ] {
        let (status, error) = send_json(&server, "GET", path, "").await;
        assert_eq!(
            (status.as_u16(), &error["message"]),
            (400, &"the path has a part that is . or ..".into()),
            "{path}"
        );
    }
    // The path that is authorized is the one that is handled.
    let (status, error) = send_json(&server, "GET", "a%2Fproxy%2Fx", "").await;
    assert_eq!(status, 400, "{error}");
    let (status, _) = send(&server, "TRACE", "a/proxy/x", "").await;
    assert_eq!(status, 405);
}

/// An authenticator that reads a header of its own.
struct ApiKeys;

impl Authenticator for ApiKeys {
    fn credential_headers(&self) -> Vec<HeaderName> {
        vec![HeaderName::from_static("x-api-key")]
    }

    fn authenticate<'a>(
        &'a self,
        _: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        async { Ok(None) }.boxed()
    }
}

#[tokio::test]
async fn handlers_do_not_get_the_credentials_of_a_request() {
    let chain = Authenticators::new().with(ApiKeys).built_in();
    let server = api_server(kinds(&Log::default())).with_authenticators(chain);
    let server = with_machine(server.in_process(unreachable_cluster()).await.unwrap()).await;
    let request = Request::get(format!("{MACHINES}/a/proxy"))
        .header("authorization", "Bearer secret")
        .header("x-remote-user", "forged")
        .header("X-Remote-Extra-Key", "forged")
        .header(
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io",
        )
        .header("x-own", "kept")
        .header("x-api-key", "secret")
        .body(Body::empty());
    let (_, answer) = text(server.respond(admin(), request.unwrap()).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let headers: Vec<_> =
        answer["headers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(
        headers.contains(&"x-own") && headers.contains(&"sec-websocket-protocol"),
        "{headers:?}"
    );
    let secret =
        |name: &&str| ["authorization", "x-api-key"].contains(name) || name.starts_with("x-remote");
    assert!(!headers.iter().any(secret), "{headers:?}");
}

/// A server whose authorizer allows these permissions, as `verb resource/subresource`, and the machine `a`.
async fn authorized(allowed: &'static [&'static str]) -> InProcess {
    let authorizer = authorizer_fn(move |_, asked| {
        let Attributes::Resource { verb, resource, subresource, .. } = asked else {
            return Decision::no_opinion("");
        };
        let full = match subresource.as_str() {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        };
        match allowed.contains(&full.as_str()) {
            true => Decision::allow(""),
            false => Decision::no_opinion(""),
        }
    });
    let server = api_server(kinds(&Log::default()));
    let server = server.with_authorizers(Authorizers::new().with(authorizer));
    with_machine(server.in_process(unreachable_cluster()).await.unwrap()).await
}

#[tokio::test]
async fn each_method_needs_the_permission_for_its_verb() {
    for (method, verb) in [
        ("GET", "get machines/start"),
        ("POST", "create machines/start"),
        ("PUT", "update machines/start"),
        ("PATCH", "patch machines/start"),
        ("DELETE", "delete machines/start"),
    ] {
        let allowed: &'static [&'static str] = vec![verb].leak();
        let server = authorized(allowed).await;
        for other in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = server.respond(user("jane"), request(other, "a/start", "")).await;
            let expected =
                if other == method { answer.status().is_success() } else { answer.status() == 403 };
            assert!(expected, "{verb}: {other} {}", answer.status());
        }
    }
}

#[tokio::test]
async fn an_upgrade_also_needs_create() {
    let upgrade = |path: &str| {
        let mut request = request("GET", path, "");
        let headers = request.headers_mut();
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        request
    };
    let may_get: &[&str] = &["get machines/console", "get machines/view", "get machines/proxy"];
    let server = authorized(may_get).await;
    for path in ["a/console", "a/proxy/x"] {
        let (status, error) = text(server.respond(user("jane"), upgrade(path)).await).await;
        assert_eq!(status, 403, "{path}");
        let subresource = path.split('/').nth(1).unwrap();
        let expected =
            format!("cannot create resource \\\"machines/{subresource}\\\" in API group");
        assert!(error.contains(&expected), "{error}");
    }
    // The subresource can do without it. There is no connection in the process, so the upgrade itself fails.
    let (status, _) = text(server.respond(user("jane"), upgrade("a/view")).await).await;
    assert_eq!(status, 426);
    let server = authorized(&["get machines/console", "create machines/console"]).await;
    let (status, _) = text(server.respond(user("jane"), upgrade("a/console")).await).await;
    assert_eq!(status, 426);
}

#[tokio::test]
async fn handlers_ask_for_further_permissions_of_the_user() {
    for (allowed, expected) in [
        (&["get machines/may", "detonate machines"][..], "true"),
        (&["get machines/may"][..], "false"),
    ] {
        let server = authorized(allowed).await;
        let answer = server.respond(user("jane"), request("GET", "a/may", "")).await;
        assert_eq!(text(answer).await.1, expected);
    }
}

/// Records the requests that it gets, and rejects those of `jane`.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Vec<String>>>);

impl AdmissionPlugin for Gate {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == AdmissionOperation::Connect
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Map<String, Value>>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        assert!(object.is_none());
        let old: Value = request.old().unwrap();
        let seen = format!("{} {} {}", request.subresource, request.name, old["spec"]["image"]);
        self.0.lock().unwrap().push(seen);
        let refused = (request.user.name == "jane").then(|| AdmissionError::forbidden("not today"));
        async move { refused.map_or(Ok(()), Err) }.boxed()
    }
}

#[tokio::test]
async fn admission_sees_requests_that_may_have_effects() {
    let gate = Gate::default();
    let kinds: Kinds = kinds(&Log::default()).with_admission_plugin(gate.clone());
    let allowing = Authorizers::new().with(authorizer_fn(|_, _| Decision::allow("")));
    let server = api_server(kinds).with_authorizers(allowing);
    let server = with_machine(server.in_process(unreachable_cluster()).await.unwrap()).await;
    let status = async |user: User, method, path| {
        let (status, text) = text(server.respond(user, request(method, path, "")).await).await;
        (status.as_u16(), text)
    };
    assert_eq!(status(user("jane"), "GET", "a/start").await.0, 200);
    assert!(gate.0.lock().unwrap().is_empty(), "a read has no effect");
    let (code, error) = status(user("jane"), "PUT", "a/start").await;
    assert_eq!(code, 403);
    assert!(error.contains("machines.example.com \\\"a\\\" is forbidden: not today"), "{error}");
    assert_eq!(status(user("joe"), "PUT", "a/start").await.0, 202);
    assert_eq!(status(user("joe"), "GET", "a/proxy/x").await.0, 200);
    let seen = gate.0.lock().unwrap().clone();
    assert_eq!(seen, ["start a \"debian\"", "start a \"debian\"", "proxy a \"debian\""]);
}

#[tokio::test]
async fn discovery_and_openapi_describe_the_subresources() {
    let server = serving().await;
    let (_, list) = ask(&server, Method::GET, "/apis/example.com/v1", &Value::Null).await;
    let verbs = |name: &str| {
        let resources = list["resources"].as_array().unwrap();
        let found = resources.iter().find(|one| one["name"] == name).unwrap();
        assert_eq!((&found["kind"], &found["namespaced"]), (&"Machine".into(), &true.into()));
        found["verbs"].clone()
    };
    assert_eq!(verbs("machines/log"), json!(["get"]));
    assert_eq!(verbs("machines/console"), json!(["create", "get"]));
    assert_eq!(verbs("machines/proxy"), json!(["create", "delete", "get", "patch", "update"]));
    let path = "/openapi/v3/apis/example.com/v1";
    let (_, document) = ask(&server, Method::GET, path, &Value::Null).await;
    let of = |path: &str| {
        let path =
            format!("/apis/example.com/v1/namespaces/{{namespace}}/machines/{{name}}/{path}");
        document["paths"][path].clone()
    };
    let log = of("log");
    assert_eq!(
        log["get"]["parameters"][0],
        json!({
            "description": "Whether the log is followed.", "in": "query", "name": "follow",
            "schema": {"type": "boolean", "uniqueItems": true},
        })
    );
    assert_eq!(log["get"]["responses"]["200"]["content"]["text/plain"]["schema"]["type"], "string");
    assert_eq!(log["get"]["operationId"], "readExampleComV1NamespacedMachineLog");
    let image = |schema: &Value| {
        schema["application/json"]["schema"]["properties"]["image"]["type"].clone()
    };
    assert_eq!(image(&of("start")["put"]["requestBody"]["content"]), "string");
    assert_eq!(image(&of("start")["get"]["responses"]["200"]["content"]), "string");
    assert_eq!(of("console")["post"]["x-kubernetes-action"], "connect");
    assert_eq!(
        of("proxy/{path}")["patch"]["operationId"],
        "connectPatchExampleComV1NamespacedMachineProxyWithPath"
    );
    // kubectl reads the older document.
    let (status, _) = ask(&server, Method::GET, "/openapi/v2", &Value::Null).await;
    assert_eq!(status, 200);
}
