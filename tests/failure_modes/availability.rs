//! An unavailable server. The deletion of namespaces waits for any aggregated server. Everything else continues, and
//! the namespaces are deleted as soon as the server is available again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::rest::{self, Work};
use crate::stage::{SERVICE, Stage, llama};
use crate::world::{API_SERVICES, LLAMAS};

/// The process was killed, and no other one replaces it.
pub fn gone(stage: &mut Stage) -> Result<()> {
    let herd = rest::herd(stage, "gone")?;
    // The sample llama has the same uid in every process.
    let dolly = stage.get(&format!("{LLAMAS}/dolly"))?;
    stage.create(&rest::owned_by(&dolly, "default", "of-dolly"))?;
    stage.world.server.kill();
    let message = stage.wait_unavailable("failing or missing response from https://localhost:")?;
    ensure!(message.contains("/apis/farm.example.com/v1alpha"), "{message}");
    let work = Work::give(stage, "gone")?;
    work.delete_namespace(stage)?;
    rest::delete_namespace(stage, &herd)?;
    goes_on(stage, &work)?;
    let refused = stage.kubectl(["get", "llamas"]).output()?;
    let expected = "Error from server (ServiceUnavailable): the server is currently unable to handle the request (get llamas.farm.example.com)\n";
    ensure!(refused.errors == expected, "{}", refused.errors);
    work.waits_for_us(stage)?;
    rest::is_held_by_discovery(stage, &herd)?;
    // The OpenAPI document of the cluster is available, with those of all other servers.
    let documents = stage.kubectl(["get", "--raw", "/openapi/v2"]).run()?;
    ensure!(documents.contains("/apis/apps/v1/deployments"), "no Deployments in /openapi/v2");
    stage.kubectl(["explain", "deployment.spec"]).run()?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    work.finish(stage)?;
    rest::is_gone(stage, &herd)?;
    // The garbage collector did not treat the llama as deleted.
    let secrets = rest::secrets(stage, "default")?;
    ensure!(secrets == ["of-dolly"], "{secrets:?}");
    stage.kubectl(["delete", "secret", "of-dolly"]).run()?;
    rest::is_silent(stage)
}

/// The process is suspended. This looks like a dead node, whose connections remain open.
pub fn suspended(stage: &mut Stage) -> Result<()> {
    stage.create(&llama("default", "parent"))?;
    let parent = stage.get(&format!("{LLAMAS}/parent"))?;
    stage.create(&rest::owned_by(&parent, "default", "of-parent"))?;
    stage.world.server.suspend()?;
    stage.wait_unavailable("https://localhost:")?;
    let work = Work::give(stage, "held")?;
    goes_on(stage, &work)?;
    stage.world.server.resume()?;
    has_ended(stage, work)?;
    stage.kubectl(["delete", "llama", "parent"]).run()?;
    stage.world.eventually(|| {
        let secrets = rest::secrets(stage, "default")?;
        ensure!(secrets.is_empty(), "not collected: {secrets:?}");
        Ok(())
    })
}

/// Connection attempts get no response. This looks like a firewall, a NetworkPolicy, or a control plane without a route
/// to Pods.
pub fn unreachable(stage: &mut Stage) -> Result<()> {
    let hole = Hole::dig()?;
    stage.world.control_plane.lead_to_localhost(&API_SERVICES, SERVICE, hole.port)?;
    stage.wait_unavailable("https://localhost:")?;
    let work = Work::give(stage, "unreached")?;
    goes_on(stage, &work)?;
    stage.lead_through_the_switch()?;
    has_ended(stage, work)
}

/// Checks what other clients see while the server is unavailable.
fn goes_on(stage: &Stage, work: &Work) -> Result<()> {
    // kube-apiserver may still wait, for the server or for its own cached state.
    let refused = stage.kubectl(["get", "llamas", "--request-timeout=2s"]).output()?;
    ensure!(!refused.succeeded, "{refused:?}");
    let all = stage.fresh_kubectl(&["get", "all", "-A"])?;
    ensure!(all.succeeded && all.output.contains("service/kubernetes"), "{all:?}");
    // There is no error about other kinds.
    let is_ours = |line: &str| line.contains(rest::NOTICED);
    ensure!(all.errors.lines().all(is_ours), "{}", all.errors);
    work.is_collected_and_counted(stage).context("while nobody answers for us")
}

/// Blocked operations continue by themselves.
fn has_ended(stage: &Stage, work: Work) -> Result<()> {
    stage.wait_available()?;
    work.delete_namespace(stage)?;
    work.finish(stage)?;
    stage.kubectl(["get", "llama", "dolly"]).run()?;
    rest::is_silent(stage)
}

/// A port whose connections are never accepted. Once the backlog of the kernel is full, further attempts get no
/// response at all.
struct Hole {
    port: u16,
    _listener: TcpListener,
    _open: Vec<TcpStream>,
}

impl Hole {
    fn dig() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address: SocketAddr = listener.local_addr()?;
        let mut open = Vec::new();
        // Far more than the backlog of the kernel.
        for _ in 0..10_000 {
            match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
                Ok(stream) => open.push(stream),
                Err(_) => {
                    return Ok(Self { port: address.port(), _listener: listener, _open: open });
                }
            }
        }
        bail!("the kernel accepts every connection")
    }
}
