//! farm-operator behind a switch, and the state of its APIServices in kube-apiserver.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use http::header::ACCEPT;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use test_cluster::{Kubectl, Printed, Programs};
use test_server::client_without_retries;

use crate::harness::Shared;
use crate::rest::Work;
use crate::switch::Switch;
use crate::world::{API_SERVICE, API_SERVICES, LLAMAS_OF_VERSIONS, NAMESPACE, World, install};

pub const SERVICE: (&str, &str) = (NAMESPACE, farm_operator::NAME);
pub const REGISTRATIONS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// The number of reads of an APIService for which kube-apiserver is made to check availability once. A check takes up
/// to six seconds, and its result is lost if the APIService changes during it.
const LOOKS: usize = 100;

/// The world, with a switch between kube-apiserver and farm-operator.
pub struct Stage {
    // Dropped first, with the process of the server.
    pub world: World,
    pub switch: Switch,
    runtime: tokio::runtime::Runtime,
    client: Client,
    numbers: AtomicUsize,
}

impl Shared for Stage {
    fn start(programs: &Programs) -> Result<Self> {
        let world = World::start(programs)?;
        let switch = Switch::to(world.port)?;
        let runtime = tokio::runtime::Runtime::new()?;
        let client = runtime.block_on(client_without_retries(&world.control_plane.kubeconfig()))?;
        let stage = Self { world, switch, runtime, client, numbers: AtomicUsize::new(0) };
        stage.lead_through_the_switch()?;
        // Waits until kube-controller-manager works, before a test causes a problem.
        Work::give(&stage, "well")?.is_collected_and_counted(&stage)?;
        Ok(stage)
    }

    fn server_log(&self) -> String {
        self.world.server_log()
    }

    fn mend(&mut self) -> Result<()> {
        install(&self.world.control_plane)?;
        self.world.restart_server()?;
        self.lead_through_the_switch()
    }
}

impl Stage {
    pub fn kubectl<const N: usize>(&self, arguments: [&str; N]) -> Kubectl {
        self.world.kubectl(arguments)
    }

    /// Runs kubectl with an empty discovery cache, as on its first run.
    pub fn fresh_kubectl(&self, arguments: &[&str]) -> Result<Printed> {
        let cache = format!("--cache-dir={}", self.fresh_folder("discovery").display());
        let mut all = arguments.to_vec();
        all.push(&cache);
        self.world.control_plane.kubectl(all).output()
    }

    /// Sends a request to kube-apiserver as an administrator, without kubectl, for frequent requests.
    pub fn ask(&self, path: &str, accept: &str) -> Result<Response<Vec<u8>>> {
        let request = Request::get(path).header(ACCEPT, accept).body(Body::empty())?;
        self.runtime.block_on(async {
            let (head, body) = self.client.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            Ok(Response::from_parts(head, body))
        })
    }

    /// The object at a path of kube-apiserver, or `None`.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.ask(path, "application/json")?;
        let (status, body) = (answer.status(), String::from_utf8_lossy(answer.body()));
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(Some(serde_json::from_str(&body)?))
    }

    /// The object at a path of kube-apiserver.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("there is no {path}"))
    }

    /// The APIService of the version that has all kinds.
    pub fn api_service(&self) -> Result<Value> {
        self.get(&format!("{REGISTRATIONS}/{API_SERVICE}"))
    }

    /// Patches all APIServices of the server.
    pub fn patch_api_services(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        for api_service in API_SERVICES {
            let change = ["patch", "apiservice", api_service, "--type=merge", "-p", &patch];
            self.kubectl(change).run()?;
        }
        Ok(())
    }

    /// The name of an unused directory.
    pub fn fresh_folder(&self, name: &str) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.world.control_plane.folder().join(format!("{name}-{number}"))
    }

    /// Creates this object, or these.
    pub fn create(&self, objects: &Value) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let objects = if objects.is_array() { &list } else { objects };
        self.kubectl(["create", "-f", "-"]).input(&objects.to_string()).run()?;
        Ok(())
    }

    /// Makes the APIService refer to the switch, and the switch to the server of the world.
    pub fn lead_through_the_switch(&self) -> Result<()> {
        self.switch.lead_to(self.world.port);
        self.world.control_plane.lead_to_localhost(&API_SERVICES, SERVICE, self.switch.port)?;
        self.wait_available()
    }

    /// Waits until kube-apiserver reports the server as available, and the server responds.
    pub fn wait_available(&self) -> Result<()> {
        self.world.eventually(|| {
            self.wait_for_condition("True", "all checks passed")?;
            // kube-apiserver forwards requests for a version some time after it has set the condition of the version.
            for path in LLAMAS_OF_VERSIONS {
                self.get(path)?;
            }
            Ok(())
        })
    }

    /// Waits until kube-apiserver reports the server as unavailable, with this message.
    pub fn wait_unavailable(&self, expected: &str) -> Result<String> {
        self.wait_for_condition("False", expected)
    }

    fn wait_for_condition(&self, status: &str, expected: &str) -> Result<String> {
        let mut looks = 0;
        self.world.eventually(|| {
            if looks % LOOKS == 0 {
                self.make_kube_apiserver_look()?;
            }
            looks += 1;
            let mut said = String::new();
            for api_service in API_SERVICES {
                let condition = self.condition_of(api_service)?;
                let message = condition["message"].as_str().unwrap_or_default();
                ensure!(condition["status"] == status && message.contains(expected), "{condition}");
                message.clone_into(&mut said);
            }
            Ok(said)
        })
    }

    /// The condition `Available` of the APIService of the version that has all kinds.
    pub fn condition(&self) -> Result<Value> {
        self.condition_of(API_SERVICE)
    }

    fn condition_of(&self, api_service: &str) -> Result<Value> {
        let mut found = self.get(&format!("{REGISTRATIONS}/{api_service}"))?;
        Ok(found["status"]["conditions"][0].take())
    }

    /// kube-apiserver checks the availability of a server when its APIService changes, otherwise every half a minute.
    fn make_kube_apiserver_look(&self) -> Result<()> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let annotation = format!("example.com/looked={number}");
        let [v1, v1alpha] = API_SERVICES;
        let annotate = ["annotate", "--overwrite", "apiservice", v1, v1alpha, &annotation];
        self.kubectl(annotate).run()?;
        Ok(())
    }
}

pub fn llama(namespace: &str, name: &str) -> Value {
    llama_of("v1alpha", namespace, name)
}

/// A llama of this version.
pub fn llama_of(version: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("farm.example.com/{version}"), "kind": "Llama",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"weight": 20, "height": 1.5},
    })
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}
