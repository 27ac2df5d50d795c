//! An etcd that is unavailable, was replaced by another one, or was used by another program; and invalid flags.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use aggregated_apiserver::ServeArgs;
use aggregated_apiserver::commands::TransferOptions;
use anyhow::{Context, Result, bail, ensure};
use http::Request;
use kube::api::PostParams;
use serde_json::json;

use test_cluster::{Etcd, Process, free_port};

use crate::installation::{Installation, Replica};
use crate::llama;

const PATIENCE: Duration = Duration::from_secs(60);

async fn text(replica: &Replica, path: &str) -> kube::Result<String> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    replica.client.request_text(request).await
}

/// Waits until the process has ended by itself. Returns its output.
async fn ended(replica: &mut Replica) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    while replica.process.ensure_running().is_ok() {
        ensure!(Instant::now() < deadline, "it goes on: {}", replica.process.printed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(replica.process.wait()?.code() == Some(1), "{}", replica.process.printed());
    Ok(replica.process.printed())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_etcd_discovery_and_health_answer() -> Result<()> {
    // This server accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let silent = format!("http://127.0.0.1:{}", silent.local_addr()?.port());
    let nobody = format!("http://127.0.0.1:{}", free_port()?);
    for away in [vec![nobody.clone()], vec![silent, nobody]] {
        let installation = Installation::new(away.clone())?;
        let replica = installation.begin(free_port()?, &away, &[]).await?;
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = text(&replica, "/livez").await {
            ensure!(Instant::now() < deadline, "never alive: {error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let found = text(&replica, "/apis/farm.example.com/v1alpha").await?;
        ensure!(found.contains("\"llamas\""), "{found}");
        let Err(kube::Error::Api(status)) = replica.llamas.get("dolly").await else {
            bail!("nobody can know that");
        };
        ensure!((status.code, status.reason.as_str()) == (429, "TooManyRequests"), "{status:?}");
        let refused = replica.llamas.create(&PostParams::default(), &llama("a", 1.0)).await;
        let Err(kube::Error::Api(status)) = refused else { bail!("{refused:?}") };
        ensure!(status.code == 503, "{status:?}");
        ensure!(status.message == "the store cannot be reached", "{status:?}");
        let check = text(&replica, "/readyz/store").await;
        let Err(kube::Error::Api(status)) = check else { bail!("{check:?}") };
        ensure!(status.code == 500, "{status:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_exits_if_etcd_is_replaced_by_another_cluster() -> Result<()> {
    let (Some(mut first), Some(mut second)) =
        (Etcd::start_unless_missing(1)?, Etcd::start_unless_missing(1)?)
    else {
        return Ok(());
    };
    let installation = Installation::new(first.urls())?;
    let urls = [first.urls(), second.urls()].concat();
    let mut replica = installation.start_on(free_port()?, &urls, &[]).await?;
    replica.llamas.create(&PostParams::default(), &llama("a", 1.0)).await?;
    first.member(0).kill();
    let said = ended(&mut replica).await?;
    ensure!(said.contains("etcd has been replaced by another one"), "{said}");
    second.member(0).kill();
    Ok(())
}

#[test]
fn unusable_etcd_flags_are_named_in_the_error() -> Result<()> {
    let installation = Installation::new(Vec::new())?;
    let file = installation.path().join("nonsense.pem");
    std::fs::write(&file, "nonsense")?;
    let file = file.to_str().context("a name")?;
    let certificate = installation.path().join("ca.crt");
    let certificate = certificate.to_str().context("a name")?;
    let cases: [(&[&str], &str); 9] = [
        (&["--etcd-servers", "10.0.0.1:2379"], "--etcd-servers: \"10.0.0.1:2379\""),
        (&["--etcd-servers", "ftp://a"], "must begin with https:// or http://"),
        (&["--etcd-servers", "https://a:2379"], "needs --etcd-cafile, the CA of its certificate"),
        (&["--etcd-servers", "https://a:1", "--etcd-cafile", "/nowhere"], "--etcd-cafile /nowhere"),
        (&["--etcd-servers", "https://a:1", "--etcd-cafile", file], "--etcd-cafile"),
        (
            &["--etcd-servers", "http://a:1", "--etcd-prefix", "/"],
            "--etcd-prefix must not be empty",
        ),
        (&["--etcd-servers", "http://a:1", "--data-dir", "x"], "cannot be used with"),
        (&["--etcd-prefix", "/a"], "--etcd-servers"),
        (
            &[
                "--etcd-servers",
                "https://a:1",
                "--etcd-cafile",
                certificate,
                "--etcd-certfile",
                certificate,
            ],
            "--etcd-keyfile",
        ),
    ];
    for (index, (flags, expected)) in cases.into_iter().enumerate() {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        let kubeconfig = installation.path().join("kubeconfig");
        command.args(["--secure-port", "0"]).args(flags).arg("--kubeconfig").arg(kubeconfig);
        let log = installation.path().join(format!("{index}.log"));
        let mut process = Process::spawn(&command, &log)?;
        let deadline = Instant::now() + PATIENCE;
        while process.ensure_running().is_ok() {
            ensure!(Instant::now() < deadline, "{flags:?}: {}", process.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (code, said) = (process.wait()?.code(), process.printed());
        ensure!(code.is_some_and(|code| code == 1 || code == 2), "{flags:?}: {said}");
        ensure!(said.contains(expected), "{flags:?}: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_exits_if_etcd_contains_an_object_of_an_unknown_version() -> Result<()> {
    let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(()) };
    let installation = Installation::new(etcd.urls())?;
    let line = json!({"collection": "llamas.farm.example.com", "object": {
        "apiVersion": "farm.example.com/v9", "kind": "Llama",
        "metadata": {"name": "late", "namespace": "default", "uid": "u"},
    }});
    let options = TransferOptions {
        data_dir: None,
        etcd: {
            let mut args = ServeArgs::default().etcd;
            args.etcd_servers = etcd.urls();
            args
        },
        encryption_provider_config: None,
    };
    options.import(farm_operator::NAME, line.to_string().as_bytes()).await?;
    let mut replica = installation.begin(free_port()?, &etcd.urls(), &[]).await?;
    let said = ended(&mut replica).await?;
    let expected = "llamas.farm.example.com default/late is stored in farm.example.com/v9, which this release does not have";
    ensure!(said.contains(expected), "{said}");
    Ok(())
}
