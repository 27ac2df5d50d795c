//! Logs, commands and forwarded ports of Pods, which closures of the test handle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

#[path = "pods/ends.rs"]
mod ends;
#[path = "pods/errors.rs"]
mod errors;

use aggregated_apiserver::backend::Reason;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, LogParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::response::Status;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use standalone_apiserver::pods::{
    Body, Error, ExecRequest, LogRequest, Outcome, PortForwardRequest, Session,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A Pod with these containers.
fn pod(name: &str, node: Option<&str>, containers: &[&str]) -> Value {
    let containers: Vec<_> =
        containers.iter().map(|name| json!({"name": name, "image": "x"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node, "containers": containers,
            "initContainers": [{"name": "first", "image": "x"}],
        },
    })
}

/// Three lines, of which the last ones are returned. A log that is followed has further lines.
async fn log(request: LogRequest) -> Result<Body, Error> {
    if request.options.previous {
        let why = format!("previous terminated container {:?} not found", request.container);
        return Err(Error::new(Reason::BadRequest, why));
    }
    let name = request.pod.metadata.name.unwrap_or_default();
    let lines = (1..=3).map(|number| format!("{name} {} {number}\n", request.container));
    let count = request.options.tail_lines.map_or(3, |count| usize::try_from(count).unwrap());
    let lines: Vec<String> = lines.skip(3_usize.saturating_sub(count)).collect();
    let lines = stream::iter(lines).map(Ok::<_, std::io::Error>);
    let rest = stream::pending().take(usize::from(request.options.follow));
    Ok(Body::from_stream(lines.chain(rest)))
}

async fn serving() -> TestServer {
    let pods = [
        pod("one", Some("stable"), &["web"]),
        pod("several", Some("stable"), &["web", "proxy"]),
        pod("pending", None, &["web"]),
    ];
    TestServer::builder().objects(pods).pod_log(log).start().await.unwrap()
}

fn pods(server: &TestServer) -> Api<Pod> {
    Api::default_namespaced(server.client())
}

async fn refused(pods: &Api<Pod>, name: &str, params: &LogParams) -> Status {
    match pods.logs(name, params).await {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn logs_come_from_the_closure() {
    let server = serving().await;
    let pods = pods(&server);
    let log = pods.logs("one", &LogParams::default()).await.unwrap();
    assert_eq!(log, "one web 1\none web 2\none web 3\n");
    let last = LogParams {
        container: Some("first".to_owned()),
        tail_lines: Some(1),
        ..LogParams::default()
    };
    assert_eq!(pods.logs("several", &last).await.unwrap(), "several first 3\n");
    // Same as in kube-apiserver.
    assert_eq!(pods.logs("pending", &LogParams::default()).await.unwrap(), "");
}

#[tokio::test]
async fn a_log_is_followed_until_its_pod_is_deleted() {
    let server = serving().await;
    let pods = pods(&server);
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream("one", &follow).await.unwrap().lines();
    for number in 1..=3 {
        let line = lines.try_next().await.unwrap();
        assert_eq!(line, Some(format!("one web {number}")));
    }
    pods.delete("one", &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(lines.try_next().await.unwrap(), None);
}

#[tokio::test]
async fn invalid_requests_have_the_messages_of_kube_apiserver() {
    let server = serving().await;
    let pods = pods(&server);
    let of = |container: Option<&str>| LogParams {
        container: container.map(str::to_owned),
        ..LogParams::default()
    };
    for (name, container, code, message) in [
        ("none", None, 404, "pods \"none\" not found"),
        (
            "several",
            None,
            400,
            "a container name must be specified for pod several, choose one of: [first web proxy]",
        ),
        ("one", Some("x"), 400, "container x is not valid for pod one"),
    ] {
        let status = refused(&pods, name, &of(container)).await;
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
    let previous = LogParams { previous: true, ..LogParams::default() };
    let status = refused(&pods, "one", &previous).await;
    let message = "previous terminated container \"web\" not found";
    assert_eq!((status.code, status.message.as_str()), (400, message));
    for (params, message, field) in [
        (
            LogParams { tail_lines: Some(-1), ..LogParams::default() },
            "PodLogOptions \"one\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            "tailLines",
        ),
        (
            LogParams { limit_bytes: Some(0), ..LogParams::default() },
            "PodLogOptions \"one\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
            "limitBytes",
        ),
        (
            LogParams { since_seconds: Some(0), ..LogParams::default() },
            "PodLogOptions \"one\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
            "sinceSeconds",
        ),
    ] {
        let status = refused(&pods, "one", &params).await;
        assert_eq!((status.code, status.message.as_str()), (422, message));
        assert_eq!(status.reason, "Invalid");
        let details = status.details.unwrap();
        assert_eq!((details.kind.as_str(), details.name.as_str()), ("PodLogOptions", "one"));
        assert_eq!(details.causes[0].field, field);
    }
}

#[tokio::test]
async fn logs_need_permission() {
    let server = serving().await;
    let pods: Api<Pod> = Api::default_namespaced(server.client_as("jane", ["farmers"]));
    let status = refused(&pods, "one", &LogParams::default()).await;
    assert_eq!(status.code, 403);
    assert!(status.message.contains("cannot get resource \"pods/log\""), "{}", status.message);
}

#[tokio::test]
async fn without_a_closure_there_are_no_logs() {
    let objects = [pod("one", Some("stable"), &["web"])];
    let server = TestServer::builder().objects(objects).start().await.unwrap();
    assert_eq!(refused(&pods(&server), "one", &LogParams::default()).await.code, 404);
}

/// Returns the command, or the input of `cat`. The command `exit` ends with a code.
async fn run(request: ExecRequest, mut session: Session) -> Outcome {
    let command: Vec<&str> = request.command.iter().map(String::as_str).collect();
    let done = match *command {
        ["exit", code] => return Outcome::ExitCode(code.parse().unwrap()),
        ["cat"] | [] => tokio::io::copy(&mut session.stdin, &mut session.stdout).await.map(drop),
        _ => session.stdout.write_all(command.join(" ").as_bytes()).await,
    };
    done.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Success)
}

/// A server on a port or not, whose Pods run commands and echo what their ports receive.
async fn serving_streams(listens: bool) -> TestServer {
    let open = async |request: PortForwardRequest| {
        if request.port != 80 {
            return Err(format!("nothing listens on port {}", request.port));
        }
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (mut input, mut output) = tokio::io::split(far);
            tokio::io::copy(&mut input, &mut output).await
        });
        Ok(near)
    };
    let pods = [pod("one", Some("stable"), &["web"]), pod("pending", None, &["web"])];
    let builder = TestServer::builder().objects(pods).pod_exec(run).pod_attach(run);
    let builder = builder.pod_port_forward(open);
    let builder = if listens { builder.listen() } else { builder };
    builder.start().await.unwrap()
}

/// A client in process, and one over TLS.
async fn clients() -> [(TestServer, Client); 2] {
    let (inside, outside) = (serving_streams(false).await, serving_streams(true).await);
    let kubeconfig = Kubeconfig::read_from(outside.kubeconfig().unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let (client, over_tls) = (inside.client(), Client::try_from(config).unwrap());
    [(inside, client), (outside, over_tls)]
}

#[tokio::test]
async fn commands_run_in_the_closure() {
    for (_server, client) in clients().await {
        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut ran = pods.exec("one", ["ls", "-l"], &AttachParams::default()).await.unwrap();
        let mut output = String::new();
        ran.stdout().unwrap().read_to_string(&mut output).await.unwrap();
        assert_eq!(output, "ls -l");
        let status = ran.take_status().unwrap().await.unwrap();
        assert_eq!(status.status.as_deref(), Some("Success"));

        let mut failed = pods.exec("one", ["exit", "3"], &AttachParams::default()).await.unwrap();
        let status = failed.take_status().unwrap().await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
        assert_eq!(
            status.message.as_deref(),
            Some("command terminated with non-zero exit code: command terminated with exit code 3")
        );

        let with_input = AttachParams::default().stdin(true).stderr(false);
        for is_attached in [false, true] {
            let mut ran = match is_attached {
                true => pods.attach("one", &with_input).await.unwrap(),
                false => pods.exec("one", ["cat"], &with_input).await.unwrap(),
            };
            let mut input = ran.stdin().unwrap();
            input.write_all(b"hello").await.unwrap();
            let mut output = [0; 5];
            ran.stdout().unwrap().read_exact(&mut output).await.unwrap();
            assert_eq!(&output, b"hello");
        }
    }
}

#[tokio::test]
async fn ports_lead_to_the_closure() {
    for (_server, client) in clients().await {
        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut forwarder = pods.portforward("one", &[80]).await.unwrap();
        let mut stream = forwarder.take_stream(80).unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut output = [0; 5];
        stream.read_exact(&mut output).await.unwrap();
        assert_eq!(&output, b"hello");
        let mut forwarder = pods.portforward("one", &[81]).await.unwrap();
        let error = forwarder.take_error(81).unwrap().await;
        assert!(error.unwrap().contains("nothing listens on port 81"));
    }
}

#[tokio::test]
async fn commands_of_invalid_requests_have_the_messages_of_kube_apiserver() {
    let server = serving_streams(false).await;
    let pods = pods(&server);
    let other = AttachParams::default().container("x");
    for (name, params, code, message) in [
        ("none", AttachParams::default(), 404, "pods \"none\" not found"),
        ("one", other, 400, "container x is not valid for pod one"),
        ("pending", AttachParams::default(), 400, "pod pending does not have a host assigned"),
    ] {
        let Err(kube::Error::Api(status)) = pods.exec(name, ["ls"], &params).await else {
            panic!("{name} is not refused");
        };
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
    let Err(kube::Error::Api(status)) = pods.portforward("pending", &[80]).await else {
        panic!("not refused");
    };
    assert_eq!(status.message, "pod pending does not have a host assigned");
    // A role with get must not be able to run commands.
    let jane: Api<Pod> = Api::default_namespaced(server.client_as("jane", ["farmers"]));
    let Err(kube::Error::Api(status)) = jane.exec("one", ["ls"], &AttachParams::default()).await
    else {
        panic!("not refused");
    };
    assert_eq!(status.code, 403);
}
