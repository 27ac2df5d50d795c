//! Requests that fail without a kubelet. The status codes and messages are those of kube-apiserver v1.36.3.

use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use kube::client::Body;

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const INIT_AND_TWO: &str = "choose one of: [first web proxy]";

/// A server with two Pods on a node, and two without a node.
async fn serving() -> TestServer {
    let pods = [
        pod("one", Some("stable"), &["web"]),
        pod("several", Some("stable"), &["web", "proxy"]),
        pod("pending", None, &["web"]),
        pod("waiting", None, &["web", "proxy"]),
    ];
    let open = async |_: PortForwardRequest| Err::<tokio::io::DuplexStream, _>(String::new());
    let builder = TestServer::builder().objects(pods).pod_log(log).pod_exec(run).pod_attach(run);
    builder.pod_port_forward(open).start().await.unwrap()
}

/// Sends a request. Returns the status code, the content type and the body.
async fn ask(server: &TestServer, path: &str) -> (u16, Option<String>, Value) {
    let mut request = Request::get(format!("{PODS}/{path}"));
    if !path.contains("/log") {
        request = request.header("connection", "Upgrade").header("upgrade", "websocket");
        request = request.header("sec-websocket-version", "13");
        request = request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        request = request.header("sec-websocket-protocol", "v4.channel.k8s.io");
    }
    let request = request.body(Body::empty()).unwrap();
    let (head, body) = server.client().send(request).await.unwrap().into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).map(|one| one.to_str().unwrap().to_owned());
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), content_type, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn errors_that_need_no_kubelet_are_those_of_kube_apiserver() {
    let server = serving().await;
    let several = format!("a container name must be specified for pod several, {INIT_AND_TWO}");
    let waiting = format!("a container name must be specified for pod waiting, {INIT_AND_TWO}");
    let (no_one, no_pending) =
        ("container x is not valid for pod one", "container x is not valid for pod pending");
    let (no_pod, no_host) =
        ("pods \"none\" not found", "pod pending does not have a host assigned");
    let integer = |text: &str, why: &str| format!("strconv.ParseInt: parsing {text:?}: {why}");
    let time = |text: &str, rest: &str, what: &str| {
        let layout = "2006-01-02T15:04:05Z07:00";
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {what:?}")
    };
    let port = |text: &str, why: &str| {
        format!("cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}")
    };
    let (syntax, range) = ("invalid syntax", "value out of range");
    let invalid = |why: &str| format!("PodLogOptions \"one\" is invalid: {why}");
    for (path, code, message) in [
        ("none/log", 404, no_pod),
        ("one/log?container=x", 400, no_one),
        ("pending/log?container=x", 400, no_pending),
        ("several/log", 400, &several),
        ("several/log?container=", 400, &several),
        ("waiting/log", 400, &waiting),
        ("one/log?tailLines=x", 400, &integer("x", syntax)),
        ("one/log?tailLines=", 400, &integer("", syntax)),
        ("one/log?sinceSeconds=99999999999999999999", 400, &integer("99999999999999999999", range)),
        ("one/log?tailLines=x&limitBytes=y&sinceSeconds=z", 400, &integer("z", syntax)),
        ("one/log?tailLines=x&limitBytes=y", 400, &integer("x", syntax)),
        ("one/log?tailLines=x&sinceTime=q", 400, &time("q", "q", "2006")),
        ("one/log?sinceTime=2020-01-01", 400, &time("2020-01-01", "", "T")),
        ("one/log?sinceTime=2020-01-01T00:00:00", 400, &time("2020-01-01T00:00:00", "", "Z07:00")),
        (
            "one/log?sinceTime=2020-13-01T00:00:00Z",
            400,
            "parsing time \"2020-13-01T00:00:00Z\": month out of range",
        ),
        (
            "one/log?sinceTime=2020-02-30T00:00:00Z",
            400,
            "parsing time \"2020-02-30T00:00:00Z\": day out of range",
        ),
        (
            "one/log?sinceTime=2020-01-01T00:00:00Zx",
            400,
            "parsing time \"2020-01-01T00:00:00Zx\": extra text: \"x\"",
        ),
        (
            "one/log?limitBytes=0",
            422,
            &invalid("limitBytes: Invalid value: 0: must be greater than 0"),
        ),
        ("one/log?stream=Stdout", 422, &invalid("stream: Forbidden: may not be specified")),
        ("one/log?stream=", 422, &invalid("stream: Forbidden: may not be specified")),
        (
            "one/log?sinceSeconds=1&sinceTime=",
            422,
            &invalid(
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
        ),
        (
            "one/log?tailLines=-1&limitBytes=0&sinceSeconds=0&stream=x",
            422,
            &invalid(
                "[tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: \
                 must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0, stream: Forbidden: \
                 may not be specified]",
            ),
        ),
        ("none/exec?command=ls&stdout=true", 404, no_pod),
        ("one/exec?command=ls&stdout=true&container=x", 400, no_one),
        ("several/exec?command=ls&stdout=true", 400, &several),
        ("waiting/exec?command=ls&stdout=true", 400, &waiting),
        ("pending/exec?command=ls&stdout=true&container=x", 400, no_pending),
        ("pending/exec?command=ls&stdout=true", 400, no_host),
        ("pending/exec?command=ls", 400, no_host),
        ("none/attach?stdout=true", 404, no_pod),
        ("one/attach?stdout=true&container=x", 400, no_one),
        ("several/attach?stdout=true", 400, &several),
        ("pending/attach", 400, no_host),
        ("none/portforward?ports=80", 404, no_pod),
        ("pending/portforward?ports=80", 400, no_host),
        ("pending/portforward", 400, no_host),
        ("pending/portforward?ports=0", 400, no_host),
        ("pending/portforward?port=x", 400, no_host),
        ("pending/portforward?ports=80,x", 400, &port("x", syntax)),
        ("pending/portforward?ports=80&ports=", 400, &port("", syntax)),
        ("pending/portforward?ports=-1", 400, &port("-1", syntax)),
        ("pending/portforward?ports=%2B80", 400, &port("+80", syntax)),
        ("pending/portforward?ports=65536", 400, &port("65536", range)),
    ] {
        let (status, content_type, body) = ask(&server, path).await;
        let found = (status, body["message"].as_str(), content_type.as_deref());
        assert_eq!(found, (code, Some(message), Some("application/json")), "{path}");
    }
    // The names of kubelet's own parameters have no effect, so this request has no streams.
    let (status, _, _) = ask(&server, "one/exec?command=ls&output=1").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_pod_without_a_node_has_no_log() {
    let server = serving().await;
    for query in [
        "",
        "container=first",
        "sinceTime=",
        "sinceTime=2020-01-01T00:00:00.5Z",
        "tailLines=%2B5",
        "follow=x",
        "unknown=1",
        "previous=true",
    ] {
        let (status, content_type, _) = ask(&server, &format!("pending/log?{query}")).await;
        assert_eq!((status, content_type), (204, None), "{query}");
    }
}
