//! Three control planes. The first serves the definitions itself. The second has an aggregator that forwards requests
//! for them to our server. The third has no controllers and runs beside our server without a cluster.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aggregated_apiserver::{ApiServer, Kinds, Running, ServeArgs};
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use test_cluster::{Certificate, ControlPlane, Programs};

use crate::conversion_webhook::ConversionWebhook;
use crate::herd;
use crate::row::{GROUP, HOOKS};
use crate::run::Side;
use crate::server::{Sent, Server};

/// The name of our Service and of its namespace.
const NAME: &str = "oracle";
/// The largest time until a server serves a definition.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_millis(50);

/// Returns the path of the definitions that all servers serve.
pub fn definitions_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("definitions.yaml")
}

/// The control planes and the servers to compare.
pub struct World {
    /// A kube-apiserver with the definitions as custom resources.
    pub reference: Side,
    /// Our server, connected directly.
    pub direct: Side,
    /// Our server behind kube-aggregator.
    pub aggregated: Side,
    /// A kube-apiserver without controllers, with the definitions as custom resources.
    pub plain: Side,
    /// Our server without a cluster. Its built-in kinds exist from the start; the definitions are created at run time.
    pub standalone: Side,
    _running: Option<Running>,
    _webhooks: Vec<ConversionWebhook>,
    test_server: Option<TestServer>,
    control_planes: [ControlPlane; 3],
}

impl World {
    /// Starts all servers. With `twice`, a second kube-apiserver serves the definitions instead of our server, which
    /// shows the differences between two runs of kube-apiserver.
    pub async fn start(programs: &Programs, twice: bool) -> Result<Self> {
        let start = |has_controllers: bool| {
            let programs = programs.clone();
            thread::spawn(move || match has_controllers {
                true => ControlPlane::start(&programs, &[]),
                false => ControlPlane::start_without_controllers(&programs),
            })
        };
        let starting = [start(true), start(true), start(false)];
        let mut started = Vec::new();
        for one in starting {
            started.push(one.join().map_err(|_| anyhow::anyhow!("starting panicked"))??);
        }
        let control_planes: [ControlPlane; 3] =
            started.try_into().map_err(|_| anyhow::anyhow!("three were started"))?;
        let [there, here, alone] = &control_planes;
        let reference = cluster("kube-apiserver", there)?;
        let other = cluster("kube-aggregator", here)?;
        for plane in [there, here] {
            plane.kubectl(["apply", "-f", "-"]).input(&rights()).run()?;
        }
        define(there, &reference.server).await?;
        let mut webhooks = vec![define_herds(there, &reference.server).await?];
        let (direct, running) = if twice {
            define(here, &other.server).await?;
            webhooks.push(define_herds(here, &other.server).await?);
            (cluster("another kube-apiserver", here)?, None)
        } else {
            let (server, running) = serve(here).await?;
            let direct = Side { server: Arc::new(server), cluster: Arc::clone(&other.cluster) };
            wait_for_lists(&other.server).await?;
            (direct, Some(running))
        };
        let plain = cluster("kube-apiserver", alone)?;
        define(alone, &plain.server).await?;
        let of_plain = define_herds(alone, &plain.server).await?;
        // Only one `World` exists in a process.
        let _ = HOOKS.set(of_plain.admission());
        let (standalone, test_server) = if twice {
            (cluster("the same kube-apiserver", alone)?, None)
        } else {
            let herds = of_plain.definition()?;
            let (server, running) = Box::pin(without_a_cluster(alone.folder(), herds)).await?;
            let server = Arc::new(server);
            (Side { cluster: Arc::clone(&server), server }, Some(running))
        };
        webhooks.push(of_plain);
        Ok(Self {
            reference,
            direct,
            aggregated: other,
            plain,
            standalone,
            _running: running,
            _webhooks: webhooks,
            test_server,
            control_planes,
        })
    }

    /// Returns the control plane that serves the definitions itself, and the control plane that forwards requests to
    /// our server.
    pub fn control_planes(&self) -> (&ControlPlane, &ControlPlane) {
        let [there, here, _] = &self.control_planes;
        (there, here)
    }

    /// Returns the control plane without controllers, and the kubeconfig of our server without a cluster.
    pub fn without_a_cluster(&self) -> (&ControlPlane, PathBuf) {
        let [_, _, alone] = &self.control_planes;
        let ours = self.test_server.as_ref().and_then(TestServer::kubeconfig);
        (alone, ours.unwrap_or_else(|| alone.kubeconfig()))
    }
}

fn cluster(name: &'static str, control_plane: &ControlPlane) -> Result<Side> {
    let server = Arc::new(of_control_plane(name, control_plane)?.without_protobuf());
    Ok(Side { cluster: Arc::clone(&server), server })
}

/// Returns the ClusterRole of the user jane and its binding, which both sides get.
fn rights() -> String {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "jane"},
        "rules": [
            {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get", "list"]},
            {"apiGroups": [GROUP], "resources": ["widgets"], "resourceNames": ["hers"], "verbs": ["watch", "delete"]},
        ],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "jane"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    });
    format!("{role}\n---\n{binding}")
}

/// Creates the definitions as custom resources.
async fn define(control_plane: &ControlPlane, server: &Server) -> Result<()> {
    let file = definitions_file().display().to_string();
    control_plane.kubectl(["create", "-f", &file]).run()?;
    wait_for_lists(server).await
}

/// Creates herds as a custom resource, whose versions a webhook converts.
async fn define_herds(control_plane: &ControlPlane, server: &Server) -> Result<ConversionWebhook> {
    let folder = control_plane.folder();
    let webhook = ConversionWebhook::start(control_plane.authority(), folder).await?;
    let definition = webhook.definition()?.to_string();
    control_plane.kubectl(["create", "-f", "-"]).input(&definition).run()?;
    for version in ["v1", "v1alpha"] {
        wait_for_list(server, format!("/apis/example.com/{version}/herds")).await?;
    }
    Ok(webhook)
}

/// Waits until every kind can be listed in every version.
async fn wait_for_lists(server: &Server) -> Result<()> {
    let paths = [
        "v1/widgets",
        "v1beta1/widgets",
        "v1/gadgets",
        "v1/gizmos",
        "v1/gears",
        "v1/dials",
        "v1/demos",
        "v1/verdicts",
        "v1/seals",
    ];
    for path in paths {
        wait_for_list(server, format!("/apis/{GROUP}/{path}")).await?;
    }
    Ok(())
}

async fn wait_for_list(server: &Server, path: String) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let sent = Sent { method: "GET".to_owned(), path, ..Sent::default() };
    loop {
        let answer = server.ask(&sent).await?;
        if answer.status == 200 && answer.body["items"].is_array() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{}: {}", sent.path, answer.body);
        tokio::time::sleep(ASK).await;
    }
}

/// Serves the definitions with our server, behind an APIService per version.
async fn serve(control_plane: &ControlPlane) -> Result<(Server, Running)> {
    let folder = control_plane.folder();
    let authority = control_plane.authority();
    let names = ["localhost".to_owned(), format!("{NAME}.{NAME}.svc")];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let certificate = authority.server(folder, "oracle", &names)?;
    let mut args = ServeArgs::default();
    args.bind_address = Ipv4Addr::LOCALHOST.into();
    args.secure_port = 0;
    args.kubeconfig = Some(control_plane.kubeconfig());
    args.namespace = Some(NAME.to_owned());
    args.tls_cert_file = Some(certificate.certificate);
    args.tls_private_key_file = Some(certificate.key);
    args.client_ca_file = Some(authority.file.clone());
    args.requestheader_client_ca_file = Some(folder.join("front-proxy-ca.crt"));
    args.requestheader_uid_headers = vec!["x-remote-uid".to_owned()];
    let yaml = std::fs::read_to_string(definitions_file())?;
    let kinds = Kinds::new().crds_from_yaml(&yaml)?.stored::<herd::v1::Herd>().allow_partial();
    let running = ApiServer::new(NAME, kinds).bind(&args).await?.start().await?;
    let address = running.address();
    let ca = STANDARD.encode(std::fs::read(&authority.file)?);
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": NAME},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
    ];
    for (version, priority) in [("v1", 100), ("v1beta1", 99)] {
        objects.push(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{GROUP}")},
            "spec": {
                "group": GROUP, "version": version, "caBundle": ca,
                "groupPriorityMinimum": 1000, "versionPriority": priority,
                "service": {"name": NAME, "namespace": NAME, "port": address.port()},
            },
        }));
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    control_plane.kubectl(["create", "-f", "-"]).input(&texts.join("\n---\n")).run()?;
    let available = "--for=condition=Available";
    for version in ["v1", "v1beta1"] {
        let api_service = format!("apiservice/{version}.{GROUP}");
        control_plane.kubectl(["wait", available, &api_service, "--timeout=60s"]).run()?;
    }
    let server =
        Server::new("aggregated-apiserver", address, &authority.file, control_plane.front_proxy())?;
    Ok((server, running))
}

/// Starts our server without a cluster and creates the definitions in it. Its herds are converted by the same webhook
/// as those of kube-apiserver.
async fn without_a_cluster(folder: &Path, herds: Value) -> Result<(Server, TestServer)> {
    let running = {
        let no_log = async |_| Ok(String::new());
        TestServer::builder().listen().pod_log(no_log).without_quota_controller().start().await?
    };
    let server = of_test_server(&running, folder)?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in
        serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(definitions_file())?)?
    {
        server.demand("POST", definitions, Some(definition.to_string())).await?;
    }
    server.demand("POST", definitions, Some(herds.to_string())).await?;
    for version in ["v1", "v1alpha"] {
        wait_for_list(&server, format!("/apis/example.com/{version}/herds")).await?;
    }
    wait_for_lists(&server).await?;
    Ok((server, running))
}

/// Returns a client of a kube-apiserver.
///
/// # Errors
/// When its files cannot be read.
pub fn of_control_plane(name: &'static str, control_plane: &ControlPlane) -> Result<Server> {
    let address = control_plane.url();
    let address = address.strip_prefix("https://").context("an URL of https")?.parse()?;
    let authority = &control_plane.authority().file;
    Server::new(name, address, authority, control_plane.front_proxy())
}

/// Returns a client of our server without a cluster, with the credentials of its administrator. The certificates are
/// written to `folder`.
///
/// # Errors
/// When its kubeconfig cannot be read.
pub fn of_test_server(running: &TestServer, folder: &Path) -> Result<Server> {
    let kubeconfig = running.kubeconfig().context("it listens")?;
    let kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    let (cluster, user) = (&kubeconfig["clusters"][0]["cluster"], &kubeconfig["users"][0]["user"]);
    let file = |name: &str, data: &Value| -> Result<PathBuf> {
        let file = folder.join(name);
        std::fs::write(&file, STANDARD.decode(data.as_str().context("data of a kubeconfig")?)?)?;
        Ok(file)
    };
    let authority = file("standalone-ca.crt", &cluster["certificate-authority-data"])?;
    let admin = Certificate {
        certificate: file("standalone-admin.crt", &user["client-certificate-data"])?,
        key: file("standalone-admin.key", &user["client-key-data"])?,
    };
    let address = cluster["server"].as_str().and_then(|url| url.strip_prefix("https://"));
    let address = address.context("an URL of https")?.parse()?;
    Server::new("standalone-apiserver", address, &authority, &admin)
}
