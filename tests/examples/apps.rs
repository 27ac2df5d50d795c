//! apps: kinds that are defined at run time behind a real kube-apiserver, with kubectl, Helm, client-go and kube.

#[path = "apps/controllers.rs"]
mod controllers;
#[path = "apps/kubectl.rs"]
mod kubectl;
#[path = "apps/operation.rs"]
mod operation;
#[path = "apps/programs.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Printed, Process, Programs, example, free_port};

use crate::world::PATIENCE;

const API_SERVICE: &str = "v1.apps.example.com";
const DEFINITION: &str = include_str!("../../examples/apps/databases.yaml");

/// The programs that the test needs.
#[derive(Clone)]
pub struct Tools {
    pub programs: Programs,
    helm: PathBuf,
    informer: PathBuf,
}

impl Tools {
    pub fn find() -> Result<Self> {
        let (helm, informer) = (Programs::helm()?, Programs::informer()?);
        Ok(Self { programs: Programs::find()?, helm, informer })
    }
}

struct World<'a> {
    control_plane: &'a ControlPlane,
    tools: Tools,
    kubeconfig: PathBuf,
    port: u16,
    server: Process,
}

/// All requests pass through kube-apiserver. The program has the permissions of its manifests.
pub fn are_served_behind_kube_apiserver(
    control_plane: &mut ControlPlane,
    tools: Tools,
) -> Result<()> {
    let manifests = Command::new(example("apps")?).arg("manifests").output()?;
    let manifests = String::from_utf8(manifests.stdout)?;
    control_plane.kubectl(["apply", "-f", "-"]).input(&manifests).run()?;
    let port = free_port()?;
    control_plane.lead_to_localhost(&[API_SERVICE], ("apps", "apps"), port)?;
    let token = control_plane.kubectl(["create", "token", "apps", "-n", "apps"]).run()?;
    let kubeconfig = control_plane.kubeconfig_of_token("apps", token.trim())?;
    let server = start(control_plane, &kubeconfig, port, "apps.log")?;
    let wait = ["wait", "--for=condition=Available", "--timeout=60s", "apiservice", API_SERVICE];
    control_plane.kubectl(wait).run().with_context(|| server.printed())?;
    let mut world = World { control_plane, tools, kubeconfig, port, server };
    let result = world.run();
    let log = world.server.printed();
    // An APIService without a server would disturb the other tests.
    control_plane.kubectl(["delete", "apiservice", API_SERVICE]).run()?;
    control_plane.kubectl(["delete", "namespace", "apps", "--wait=false"]).run()?;
    result.with_context(|| log[log.len().saturating_sub(3000)..].to_owned())
}

fn start(control_plane: &ControlPlane, kubeconfig: &Path, port: u16, log: &str) -> Result<Process> {
    let mut command = Command::new(example("apps")?);
    command.args(["--bind-address=127.0.0.1", "--namespace=apps"]).env_remove("RUST_LOG");
    command.arg(format!("--secure-port={port}")).arg("--kubeconfig").arg(kubeconfig);
    Process::spawn(&command, &control_plane.folder().join(log))
}

fn database(name: &str, more: &Value) -> String {
    let mut object = json!({
        "apiVersion": "apps.example.com/v1", "kind": "Database",
        "metadata": {"name": name}, "spec": {"engine": "postgres"},
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more.clone());
    }
    object.to_string()
}

fn expect_refusal(printed: &Printed, expected: &str) -> Result<()> {
    ensure!(!printed.succeeded && printed.errors.contains(expected), "{expected}: {printed:?}");
    Ok(())
}

impl World<'_> {
    fn run(&mut self) -> Result<()> {
        self.eventually(|| self.apply(DEFINITION)).context("define")?;
        self.kubectl("wait --for=jsonpath={.status.state}=Served definition/databases")?;
        self.eventually(|| self.apply(&database("orders", &json!({})))).context("create")?;
        self.changes().context("changes of kubectl")?;
        self.other_requests().context("other requests of kubectl")?;
        self.events().context("events")?;
        self.owners().context("owners")?;
        self.quotas().context("quotas")?;
        self.namespaces().context("namespaces")?;
        self.refusals().context("refusals")?;
        self.rubbish().context("rubbish")?;
        self.helm().context("Helm")?;
        self.replicas().context("replicas")?;
        self.restart().context("restart")?;
        self.definitions().context("definitions")
    }

    fn output(&self, arguments: &str, input: Option<&str>) -> Result<Printed> {
        let kubectl = self.control_plane.kubectl(arguments.split(' '));
        match input {
            Some(input) => kubectl.input(input).output(),
            None => kubectl.output(),
        }
    }

    fn kubectl(&self, arguments: &str) -> Result<String> {
        self.control_plane.kubectl(arguments.split(' ')).run()
    }

    fn with_input(&self, arguments: &str, input: &str) -> Result<String> {
        self.control_plane.kubectl(arguments.split(' ')).input(input).run()
    }

    fn apply(&self, objects: &str) -> Result<String> {
        self.with_input("apply -f -", objects)
    }

    fn get(&self, resource: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&format!("get {resource} -o json"))?)?)
    }

    fn eventually<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE * 2;
        loop {
            match ask() {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
                done => return done,
            }
        }
    }

    fn is_gone(&self, resource: &str) -> Result<()> {
        self.eventually(|| {
            let name = self.kubectl(&format!("get {resource} --ignore-not-found -o name"))?;
            ensure!(name.is_empty(), "{name}");
            Ok(())
        })
    }

    /// Changes the spec behind the back of the server.
    fn edit_config_map(&self, name: &str, spec: &str) -> Result<()> {
        let patch = json!({"data": {"spec": spec}}).to_string();
        let map = format!("databases.{name}");
        let arguments = ["patch", "configmap", &map, "--type=merge", "-p", &patch];
        self.control_plane.kubectl(arguments).run()?;
        Ok(())
    }
}
