//! The ends of commands and forwarded ports in process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::api::{AttachedProcess, DeleteParams};
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(60);
const DELETED: &str = "the request has ended: the object was deleted";
const FORBIDDEN: &str = "the request has ended: the permission was withdrawn";

/// The number of commands that were started, and of those that have ended.
#[derive(Clone, Default)]
struct Commands(Arc<(AtomicUsize, AtomicUsize)>);

struct Started(Commands);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

impl Commands {
    fn start(&self) -> Started {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Started(self.clone())
    }

    /// The number of commands in progress.
    fn running(&self) -> usize {
        self.0.0.load(Ordering::SeqCst) - self.0.1.load(Ordering::SeqCst)
    }
}

/// A server whose commands do not end by themselves, except `panic`. Port 81 panics, and the others echo.
async fn serving() -> (TestServer, Commands) {
    let commands = Commands::default();
    let counted = commands.clone();
    let run = move |request: ExecRequest, mut session: Session| {
        let started = counted.start();
        async move {
            let _started = started;
            assert_ne!(request.command, ["panic"]);
            let streams = [request.stdin, request.stdout, request.stderr, request.tty];
            session.stdout.write_all(format!("{streams:?}").as_bytes()).await.unwrap();
            std::future::pending().await
        }
    };
    let open = async |request: PortForwardRequest| {
        assert_ne!(request.port, 81);
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (mut input, mut output) = tokio::io::split(far);
            tokio::io::copy(&mut input, &mut output).await
        });
        Ok(near)
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "farmers", "namespace": "default"},
        "rules": [{
            "apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "farmers", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "farmers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "farmers"}],
    });
    let objects = [pod("one", Some("stable"), &["web"]), role, binding];
    let builder = TestServer::builder().objects(objects).pod_exec(run).pod_port_forward(open);
    (builder.start().await.unwrap(), commands)
}

/// The Pods as a user with a role sees them.
fn of_jane(server: &TestServer) -> Api<Pod> {
    Api::default_namespaced(server.client_as("jane", ["farmers"]))
}

/// Runs a command that does not end by itself.
async fn endless(pods: &Api<Pod>) -> AttachedProcess {
    let mut process = pods.exec("one", ["sleep"], &AttachParams::default()).await.unwrap();
    let mut output = [0; 26];
    process.stdout().unwrap().read_exact(&mut output).await.unwrap();
    assert_eq!(&output, b"[false, true, true, false]");
    process
}

/// Waits until a command has ended. Returns the code and the message of its status; `None` if it has none.
async fn end(mut process: AttachedProcess) -> Option<(i32, String)> {
    let status =
        timeout(SOON * 60, process.take_status().unwrap()).await.expect("it has not ended");
    status.map(|status| (status.code.unwrap(), status.message.unwrap()))
}

/// Waits until no command is in progress.
async fn all_ended(commands: &Commands) {
    let ended = async {
        while commands.running() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, ended).await.expect("a command has not ended");
}

#[tokio::test]
async fn connections_end_when_the_pod_is_deleted() {
    let (server, commands) = serving().await;
    let pods = pods(&server);
    let process = endless(&pods).await;
    let mut forwarder = pods.portforward("one", &[80]).await.unwrap();
    let mut stream = forwarder.take_stream(80).unwrap();
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
    let error = forwarder.take_error(80).unwrap();
    pods.delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(end(process).await, Some((404, DELETED.to_owned())));
    assert_eq!(timeout(SOON, error).await.unwrap().as_deref(), Some(DELETED));
    all_ended(&commands).await;
}

#[tokio::test]
async fn connections_end_when_the_role_is_removed() {
    let (server, commands) = serving().await;
    let pods = of_jane(&server);
    let process = endless(&pods).await;
    let mut forwarder = pods.portforward("one", &[80]).await.unwrap();
    let error = forwarder.take_error(80).unwrap();
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::default_namespaced(server.client());
    roles.delete("farmers", &DeleteParams::default()).await.unwrap();
    // Permissions of long requests are checked every few minutes.
    tokio::time::pause();
    assert_eq!(end(process).await, Some((403, FORBIDDEN.to_owned())));
    assert_eq!(timeout(SOON * 60, error).await.unwrap().as_deref(), Some(FORBIDDEN));
    all_ended(&commands).await;
}

#[tokio::test]
async fn connections_end_with_the_server() {
    let (server, commands) = serving().await;
    let pods = pods(&server);
    let process = endless(&pods).await;
    let mut forwarder = pods.portforward("one", &[80]).await.unwrap();
    let error = forwarder.take_error(80).unwrap();
    drop(server);
    end(process).await;
    timeout(SOON, error).await.expect("the port is still forwarded");
    all_ended(&commands).await;
    assert!(pods.exec("one", ["sleep"], &AttachParams::default()).await.is_err());
}

#[tokio::test]
async fn a_client_can_drop_a_request_before_its_response() {
    let (server, commands) = serving().await;
    let pods = pods(&server);
    // The request is dropped in different states.
    for polls in 0..20 {
        let params = AttachParams::default();
        let mut request = Box::pin(pods.exec("one", ["sleep"], &params));
        for _ in 0..polls {
            if (&mut request).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    tokio::time::pause();
    tokio::time::sleep(SOON).await;
    all_ended(&commands).await;
    tokio::time::resume();
    endless(&pods).await;
}

#[tokio::test]
async fn a_panic_of_a_closure_is_an_error_for_the_client() {
    let (server, _) = serving().await;
    let pods = pods(&server);
    let process = pods.exec("one", ["panic"], &AttachParams::default()).await.unwrap();
    let message = "Internal error occurred: the handler panicked";
    assert_eq!(end(process).await, Some((500, message.to_owned())));
    let mut forwarder = pods.portforward("one", &[80, 81]).await.unwrap();
    let error = forwarder.take_error(81).unwrap().await;
    assert_eq!(error.as_deref(), Some("the handler panicked"));
    let mut stream = forwarder.take_stream(80).unwrap();
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
}

#[tokio::test]
async fn a_request_forwards_up_to_127_ports() {
    let (server, _) = serving().await;
    let pods = pods(&server);
    let ports: Vec<u16> = (1000..1127).collect();
    let mut forwarder = pods.portforward("one", &ports).await.unwrap();
    for port in [1000, 1126] {
        let mut stream = forwarder.take_stream(port).unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    }
    let more: Vec<u16> = (1000..1128).collect();
    assert!(pods.portforward("one", &more).await.is_err());
}
