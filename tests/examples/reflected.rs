//! reflected: its responses contain the objects of the cluster.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use test_cluster::ControlPlane;
use test_server::client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::foos::{Foo, FooSpec};
use crate::world::{Cluster, Program, block_on, delete, eventually};

const MANIFEST: &str = include_str!("../../examples/reflected/deployment.yaml");

fn foo(name: &str, info: &str) -> Foo {
    Foo::new(name, FooSpec { name: name.to_uppercase(), info: Some(info.to_owned()) })
}

/// The program, and its address.
struct Reflected {
    program: Program,
    address: String,
}

impl Reflected {
    async fn start(kubeconfig: &Path) -> Result<Self> {
        let mut program = Program::example("reflected", kubeconfig, &["--listen", "127.0.0.1:0"])?;
        let address = program.prints("listening on http://").await?;
        Ok(Self { program, address })
    }

    /// The status and the body of a response.
    async fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: reflected\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    async fn answers(&self, path: &str, status: u16) -> Result<String> {
        eventually(async || {
            let (found, body) = self.get(path).await?;
            ensure!(found == status, "{path}: {found} {body}");
            Ok(body)
        })
        .await
    }

    /// Waits until these are all Foos: their names and their info.
    async fn serves(&self, expected: &[(&str, &str)]) -> Result<()> {
        eventually(async || {
            let (status, body) = self.get("/foos").await?;
            ensure!(status == 200, "{status} {body}");
            let foos: Vec<Foo> = serde_json::from_str(&body)?;
            let foos = foos.iter().map(|one| {
                let name = one.metadata.name.as_deref().unwrap_or_default();
                (name, one.spec.info.as_deref().unwrap_or_default())
            });
            let foos: Vec<(&str, &str)> = foos.collect();
            ensure!(foos == expected, "{foos:?}");
            Ok(())
        })
        .await
    }
}

async fn create(foos: &Api<Foo>, name: &str, info: &str) -> Result<()> {
    eventually(async || {
        foos.create(&PostParams::default(), &foo(name, info)).await?;
        Ok(())
    })
    .await
}

pub async fn foos_are_served(cluster: &Cluster) -> Result<()> {
    let reflected = Reflected::start(&cluster.kubeconfig).await?;
    ensure!(reflected.get("/livez").await? == (200, "ok\n".to_owned()));
    reflected.answers("/readyz", 200).await?;
    reflected.serves(&[]).await?;
    let foos: Api<Foo> = Api::default_namespaced(cluster.client.clone());
    create(&foos, "b", "second").await?;
    create(&foos, "a", "first").await?;
    reflected.serves(&[("a", "first"), ("b", "second")]).await?;
    let one: Value = serde_json::from_str(&reflected.answers("/foos/default/b", 200).await?)?;
    let expected = json!({"name": "B", "info": "second"});
    ensure!(one["kind"] == "Foo" && one["spec"] == expected, "{one}");
    ensure!(one["metadata"].get("managedFields").is_none(), "{one}");
    for path in ["/foos/default/c", "/foos/elsewhere/b", "/foos/default/%2e%2e", "/bars"] {
        ensure!(reflected.get(path).await?.0 == 404, "{path}");
    }
    let info = Patch::Merge(json!({"spec": {"info": "changed"}}));
    foos.patch("b", &PatchParams::default(), &info).await?;
    delete(&foos, "a").await?;
    reflected.serves(&[("b", "changed")]).await?;
    delete(&foos, "b").await?;
    if cluster.is_real {
        return reflected.program.end("TERM").await;
    }
    // A client with an unfinished request does not prevent the program from ending.
    let mut slow = TcpStream::connect(&reflected.address).await?;
    slow.write_all(b"GET /foos HTTP/1.1\r\n").await?;
    reflected.program.end("TERM").await
}

/// The manifest has the definition, and grants only the necessary permissions.
pub fn has_a_manifest() -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST)?;
    let find = |kind: &str| {
        let found = documents.iter().find(|document| document["kind"] == kind);
        found.with_context(|| kind.to_owned())
    };
    let definition = find("CustomResourceDefinition")?.clone();
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    ensure!(definition.spec == Foo::crd().spec, "{}", serde_saphyr::to_string(&Foo::crd())?);
    let rules =
        json!([{"apiGroups": ["clux.dev"], "resources": ["foos"], "verbs": ["list", "watch"]}]);
    ensure!(find("ClusterRole")?["rules"] == rules);
    let pod = &find("Deployment")?["spec"]["template"]["spec"];
    ensure!(pod["securityContext"]["runAsNonRoot"] == true);
    ensure!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] == true);
    Ok(())
}

/// A server without a cluster, on the same port each time, with these files.
fn standalone(port: u16, data: &Path, files: &Path) -> Result<Program> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    command.args(["--standalone", "--secure-port", &port.to_string()]);
    command.arg("--data-dir").arg(data).arg("--load").arg(files).env_remove("RUST_LOG");
    Program::start(&command)
}

/// Writes the files of a server: the definition, and objects.
fn write(folder: &Path, objects: &[Foo]) -> Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::write(folder.join("kind.yaml"), serde_saphyr::to_string(&Foo::crd())?)?;
    for (number, object) in objects.iter().enumerate() {
        let file = folder.join(format!("{number}.yaml"));
        std::fs::write(file, serde_saphyr::to_string(object)?)?;
    }
    Ok(())
}

/// The program starts before the server and outlives it. The second server has lost the objects of the first one, and
/// does not know its revisions.
pub fn survives_a_restart() -> Result<()> {
    block_on(async {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let (data, first, second) =
            (folder.join("data"), folder.join("first"), folder.join("second"));
        write(&first, &[foo("a", "stays not"), foo("b", "old")])?;
        write(&second, &[foo("b", "new"), foo("c", "comes")])?;
        let port = test_cluster::free_port()?;
        // The server leaves its kubeconfig.
        let mut server = standalone(port, &data, &first)?;
        server.prints("export KUBECONFIG=").await?;
        drop(server);

        let reflected = Reflected::start(&data.join("kubeconfig")).await?;
        ensure!(reflected.get("/livez").await?.0 == 200);
        for path in ["/readyz", "/foos", "/foos/default/a"] {
            let (status, body) = reflected.get(path).await?;
            ensure!(status == 503 && body.contains("not been read yet"), "{status} {body}");
        }
        let mut server = standalone(port, &data, &first)?;
        server.prints("export KUBECONFIG=").await?;
        reflected.answers("/readyz", 200).await?;
        reflected.serves(&[("a", "stays not"), ("b", "old")]).await?;

        drop(server);
        // The last known state is still served.
        ensure!(reflected.get("/readyz").await?.0 == 200);
        reflected.serves(&[("a", "stays not"), ("b", "old")]).await?;
        for file in ["objects.db", "objects.db-wal", "objects.db-shm"] {
            let _ = std::fs::remove_file(data.join(file));
        }
        let mut server = standalone(port, &data, &second)?;
        server.prints("export KUBECONFIG=").await?;
        reflected.serves(&[("b", "new"), ("c", "comes")]).await?;
        let foos: Api<Foo> = Api::default_namespaced(client(&data.join("kubeconfig")).await?);
        delete(&foos, "b").await?;
        reflected.serves(&[("c", "comes")]).await?;
        reflected.program.end("INT").await
    })
}

/// Runs the program with the permissions of its manifest, before and after kube-apiserver is killed.
pub fn survives_kube_apiserver(control_plane: &mut ControlPlane) -> Result<()> {
    control_plane.kubectl(["apply", "-f", "-"]).input(MANIFEST).run()?;
    control_plane
        .kubectl(["wait", "--for=condition=Established", "crd/foos.clux.dev", "--timeout=60s"])
        .run()?;
    let token = control_plane.kubectl(["create", "token", "reflected", "-n", "reflected"]).run()?;
    let kubeconfig = control_plane.kubeconfig_of_token("reflected", token.trim())?;
    block_on(async {
        let foos: Api<Foo> = Api::default_namespaced(client(&control_plane.kubeconfig()).await?);
        create(&foos, "a", "stays not").await?;
        create(&foos, "b", "stays").await?;
        let reflected = Reflected::start(&kubeconfig).await?;
        reflected.answers("/readyz", 200).await?;
        reflected.serves(&[("a", "stays not"), ("b", "stays")]).await?;
        control_plane.kill_api_server();
        reflected.serves(&[("a", "stays not"), ("b", "stays")]).await?;
        control_plane.restart_api_server()?;
        eventually(async || delete(&foos, "a").await).await?;
        create(&foos, "c", "comes").await?;
        reflected.serves(&[("b", "stays"), ("c", "comes")]).await?;
        for name in ["b", "c"] {
            delete(&foos, name).await?;
        }
        reflected.program.end("TERM").await
    })
}
