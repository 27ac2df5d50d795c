//! The command `doctor`: looks at a cluster in which a server is installed, or should be, and says in order
//! what is wrong and what to do about it.
//!
//! It changes nothing. Every look has a deadline and every list a limit, so that it ends in any cluster.

mod control_plane;
mod finding;
mod front_proxy;
mod registration;
mod rights;
mod served;
mod serving_certificate;
mod webhooks;
mod workload;

pub use finding::{Diagnosis, Finding, Outcome};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::kind::Kind;
use crate::manifests::{self, Grant};
use crate::server::ApiServer;
use finding::Check;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Which installation is looked at, and how it is told.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DoctorOptions {
    /// How to reach the cluster. Without it: $KUBECONFIG, ~/.kube/config, then the service
    /// account of the pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace that the server is installed in; without it the name of the server
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// The name of its Service; without it the name of the server
    #[arg(long, value_name = "NAME")]
    pub service_name: Option<String>,

    /// The name of its ServiceAccount; without it the name of the server
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,

    /// Where the server can be reached from here, to see the certificate that it shows; without it what
    /// its Service says is tried
    #[arg(long, value_name = "HOST:PORT")]
    pub server_address: Option<String>,

    /// The form of what is told
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: DoctorOutput,
}

/// The form of a diagnosis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DoctorOutput {
    /// A line for each finding, and one for what to do.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

impl DoctorOptions {
    /// Looks at the cluster.
    ///
    /// # Errors
    /// When there is no cluster to look at, or a kind of the server cannot be served.
    pub async fn examine(&self, server: &ApiServer) -> Result<Diagnosis, StartError> {
        let name = server.name().to_owned();
        let or_name = |said: &Option<String>| said.clone().unwrap_or_else(|| name.clone());
        let (namespace, kinds) = (or_name(&self.namespace), server.parsed_kinds()?);
        let grants = manifests::grants(&name, &namespace, &kinds, server.kinds());
        let installation = Installation {
            cluster: ApiServer::cluster(self.kubeconfig.as_deref()).await?,
            service: or_name(&self.service_name),
            account: or_name(&self.service_account),
            server_address: self.server_address.clone(),
            api_services: manifests::api_service_names(&kinds),
            clock: server.clock().clone(),
            name,
            namespace,
            kinds,
            grants,
        };
        Ok(installation.examine().await)
    }

    /// The same as a text in the form that was asked for, and whether all is well.
    ///
    /// # Errors
    /// As [`DoctorOptions::examine`].
    pub async fn run(&self, server: &ApiServer) -> Result<(String, bool), StartError> {
        let diagnosis = self.examine(server).await?;
        let text = match self.output {
            DoctorOutput::Text => diagnosis.to_string(),
            DoctorOutput::Json => diagnosis.to_json() + "\n",
        };
        Ok((text, diagnosis.is_healthy()))
    }
}

/// What is looked at.
struct Installation {
    cluster: Cluster,
    name: String,
    namespace: String,
    service: String,
    account: String,
    server_address: Option<String>,
    /// As `v1alpha.farm.example.com`.
    api_services: Vec<String>,
    kinds: Vec<Arc<Kind>>,
    grants: Vec<Grant>,
    clock: Clock,
}

/// An object that was looked for.
enum Found {
    Object(Value),
    Absent,
    /// It was not shown: why.
    Hidden(String),
}

impl Installation {
    async fn examine(&self) -> Diagnosis {
        let deadline = Instant::now() + PATIENCE;
        let mut findings = control_plane::is_there(self).await;
        if findings.iter().any(|finding| finding.outcome == Outcome::Fault) {
            return Diagnosis { findings };
        }
        // Causes before what follows from them.
        let all = async {
            findings.extend(control_plane::clock(self).await);
            findings.extend(front_proxy::check(self).await);
            findings.extend(workload::namespace(self).await);
            findings.extend(rights::check(self).await);
            findings.extend(webhooks::check(self).await);
            findings.extend(registration::registered(self).await);
            findings.extend(workload::service(self).await);
            findings.extend(workload::endpoints(self).await);
            findings.extend(serving_certificate::check(self).await);
            findings.extend(registration::available(self).await);
            findings.extend(served::check(self).await);
        };
        if timeout_at(deadline, all).await.is_err() {
            let mut late = Check::new("time");
            let why = format!("the cluster answers too slowly: {} s are over", PATIENCE.as_secs());
            late.unknown("the rest", &why);
            findings.extend(late.done(""));
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

    /// The command that makes what is missing, or makes it again as it should be.
    fn install(&self) -> String {
        let Self { name, namespace, .. } = self;
        format!("{name} manifests --namespace={namespace} --image=IMAGE | kubectl apply -f -")
    }

    /// The command that shows what the server says.
    fn logs(&self) -> String {
        let Self { name, namespace, .. } = self;
        format!("kubectl -n {namespace} logs -l app.kubernetes.io/name={name} --tail=50")
    }
}

/// The text of a field.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list.
fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
