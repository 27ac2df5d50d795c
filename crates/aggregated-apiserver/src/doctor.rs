//! The command `doctor`: examines a cluster in which a server is installed, or should be, and prints the problems and
//! their remedies in the order in which to fix them.
//!
//! The command changes nothing. Every request has a deadline and every list a limit, so that the command ends in any
//! cluster.

mod control_plane;
mod deployed;
mod finding;
mod front_proxy;
mod permissions;
mod registration;
mod served;
mod serving_certificate;
mod webhooks;
mod workload;

pub use finding::{Diagnosis, Finding, Outcome};

use anstream::{AutoStream, ColorChoice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::kind::Kind;
use crate::manifests::{self, Grant};
use crate::server::ApiServer;
use deployed::Deployed;
use finding::Check;

/// The time limit of the whole examination.
const PATIENCE: Duration = Duration::from_secs(90);

/// The installation that `doctor` examines, and the output format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DoctorOptions {
    /// Kubeconfig of the cluster
    ///
    /// By default it is $KUBECONFIG, then ~/.kube/config, then the ServiceAccount of the Pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the installation
    ///
    /// By default it is the namespace of the APIService's Service, or the name of the server.
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Name of the server's Service
    ///
    /// By default it is the name of the server.
    #[arg(long, value_name = "NAME")]
    pub service_name: Option<String>,

    /// Name of the server's ServiceAccount
    ///
    /// By default it is the name of the server.
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,

    /// Address of the server as this machine reaches it, to check its certificate
    ///
    /// By default it is the address of its Service.
    #[arg(long, value_name = "HOST:PORT")]
    pub server_address: Option<String>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: DoctorOutput,
}

/// The output format of a diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DoctorOutput {
    /// A line for each finding, and one for its remedy.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

impl DoctorOptions {
    /// Examines the cluster.
    ///
    /// # Errors
    /// No cluster is configured, or a kind of the server cannot be served.
    pub async fn examine(&self, server: &ApiServer) -> Result<Diagnosis, StartError> {
        let name = server.name().to_owned();
        let or_name = |said: &Option<String>| said.clone().unwrap_or_else(|| name.clone());
        let (namespace, kinds) = (or_name(&self.namespace), server.parsed_kinds()?);
        let deadline = Instant::now() + PATIENCE;
        let Some(cluster) = self.connect(deadline).await? else {
            let mut check = Check::new("control-plane");
            let what =
                "there are no credentials yet: a program that the kubeconfig names has not ended";
            let remedy =
                "kubectl auth whoami: log in first, or name another kubeconfig (--kubeconfig)";
            check.fault(format!("{what} after {} s", PATIENCE.as_secs()), remedy);
            return Ok(Diagnosis { findings: check.done("") });
        };
        let mut installation = Installation {
            cluster,
            service: or_name(&self.service_name),
            account: or_name(&self.service_account),
            server_address: self.server_address.clone(),
            api_services: manifests::api_service_names(&kinds, server.kinds()),
            clock: server.clock().clone(),
            name,
            namespace,
            kinds,
            grants: Vec::new(),
            deployed: Deployed::default(),
        };
        let findings = control_plane::is_there(&installation).await;
        if findings.iter().any(|finding| finding.outcome == Outcome::Error) {
            return Ok(Diagnosis { findings });
        }
        let settled = async {
            if self.namespace.is_none()
                && let Some(namespace) = registration::namespace(&installation).await
            {
                installation.namespace = namespace;
            }
            installation.deployed = Deployed::look(&installation).await;
        };
        if timeout_at(deadline, settled).await.is_err() {
            return Ok(Diagnosis { findings: findings.into_iter().chain(late()).collect() });
        }
        let Installation { name, namespace, kinds, .. } = &installation;
        let mut grants = manifests::grants(name, namespace, kinds, server.kinds());
        if installation.deployed.has_certificate_of_its_own() == Some(true) {
            // The permission on the Secret is only for a certificate that the server generates.
            grants.retain(|grant| !(grant.group.is_empty() && grant.resource == "secrets"));
        }
        installation.grants = grants;
        Ok(installation.examine(findings, deadline).await)
    }

    /// Connects to the cluster. Returns `None` if there is no connection at the deadline. A kubeconfig may name a
    /// program that provides credentials, and that program may wait for input, so it runs on a thread of its own.
    async fn connect(&self, deadline: Instant) -> Result<Option<Cluster>, StartError> {
        let (kubeconfig, runtime) = (self.kubeconfig.clone(), Handle::current());
        let connecting = tokio::task::spawn_blocking(move || {
            runtime.block_on(async { ApiServer::cluster(kubeconfig.as_deref()).await })
        });
        match timeout_at(deadline, connecting).await {
            Ok(Ok(cluster)) => cluster.map(Some),
            Ok(Err(failed)) => Err(StartError::Cluster(failed.to_string())),
            Err(_) => Ok(None),
        }
    }

    /// Examines the cluster. Returns the diagnosis in the selected output format, and the exit code of the program
    /// ([`Diagnosis::exit_code`]).
    ///
    /// # Errors
    /// Same as [`DoctorOptions::examine`].
    pub async fn run(&self, server: &ApiServer) -> Result<(String, i32), StartError> {
        let diagnosis = self.examine(server).await?;
        let text = match self.output {
            DoctorOutput::Text if has_colors() => diagnosis.to_styled(),
            DoctorOutput::Text => diagnosis.to_string(),
            DoctorOutput::Json => diagnosis.to_json() + "\n",
        };
        Ok((text, diagnosis.exit_code()))
    }
}

/// Whether standard output shows colours: it is a terminal, and `NO_COLOR` is not set.
fn has_colors() -> bool {
    AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

/// The finding of an examination that reached its time limit.
fn late() -> Vec<Finding> {
    let mut late = Check::new("time");
    let why = format!(
        "the cluster responds too slowly: the limit of {} s is reached",
        PATIENCE.as_secs()
    );
    let remedy = "retry when it responds: kubectl get --raw '/readyz?verbose'";
    late.unseen("the rest", &why, remedy);
    late.done("")
}

/// The installation that is examined.
struct Installation {
    cluster: Cluster,
    name: String,
    namespace: String,
    service: String,
    account: String,
    server_address: Option<String>,
    /// For example `v1alpha.farm.example.com`.
    api_services: Vec<String>,
    kinds: Vec<Arc<Kind>>,
    grants: Vec<Grant>,
    deployed: Deployed,
    clock: Clock,
}

/// The result of reading an object.
enum Found {
    Object(Value),
    Absent,
    /// The object cannot be read, for this reason.
    Hidden(String),
}

impl Installation {
    /// Runs the remaining checks and appends to these findings.
    async fn examine(&self, mut findings: Vec<Finding>, deadline: Instant) -> Diagnosis {
        // A cause is checked before its consequences.
        let all = async {
            findings.extend(control_plane::clock(self).await);
            findings.extend(front_proxy::check(self).await);
            // If another namespace serves the API group, findings about this one would be useless.
            let elsewhere = registration::elsewhere(self).await;
            if !elsewhere.is_empty() {
                findings.extend(elsewhere);
                return;
            }
            findings.extend(workload::namespace(self).await);
            findings.extend(permissions::check(self).await);
            findings.extend(webhooks::check(self).await);
            findings.extend(registration::registered(self).await);
            findings.extend(workload::service(self).await);
            findings.extend(workload::endpoints(self).await);
            findings.extend(serving_certificate::check(self).await);
            findings.extend(registration::available(self).await);
            findings.extend(served::check(self).await);
        };
        if timeout_at(deadline, all).await.is_err() {
            findings.extend(late());
        }
        Diagnosis { findings }
    }

    async fn find(&self, path: &str) -> Found {
        match self.cluster.look(path).await {
            Ok(look) if look.status.is_success() => Found::Object(look.json),
            Ok(look) if look.status == StatusCode::NOT_FOUND => Found::Absent,
            Ok(look) => Found::Hidden(look.message().to_owned()),
            Err(why) => Found::Hidden(why),
        }
    }

    async fn find_api_service(&self, name: &str) -> Found {
        self.find(&format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}")).await
    }

    async fn find_service(&self) -> Found {
        let Self { namespace, service, .. } = self;
        self.find(&format!("/api/v1/namespaces/{namespace}/services/{service}")).await
    }

    /// The command that creates missing objects.
    fn create(&self) -> String {
        self.deployed.create(&self.name, &self.namespace)
    }

    /// The command that grants missing permissions.
    fn grant(&self) -> String {
        self.deployed.grant(&self.name, &self.namespace)
    }

    /// The command that shows the log of the server.
    fn logs(&self) -> String {
        let Self { name, namespace, .. } = self;
        format!("kubectl -n {namespace} logs -l app.kubernetes.io/name={name} --tail=50")
    }
}

/// The string value of a field, or an empty string.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list.
fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
