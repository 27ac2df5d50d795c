//! Shows each user the namespaces that RoleBindings give them: `projects.project.example.com`, as OpenShift has them.
//!
//! RBAC cannot do this: a user is allowed to list either all Namespaces or none.

mod access;
mod namespaces;

use std::path::PathBuf;
use std::sync::Arc;

use aggregated_apiserver::backend::{BackendError, VirtualKind};
use aggregated_apiserver::{ApiServer, Kind, Kinds, ServeArgs, Visibility, start_logging};
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, CustomResourceExt};
use standalone_apiserver::{Standalone, StandaloneArgs};
use tokio::sync::watch;

use access::Access;
use namespaces::{Namespaces, Project};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    standalone: StandaloneArgs,
}

/// The cluster with the Namespaces and the RoleBindings.
#[derive(Clone)]
struct Cluster {
    /// The file with its address and credentials. `None` for the default file, or for the ServiceAccount of the Pod.
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    async fn client(&self) -> Result<Client, BackendError> {
        let Some(file) = &self.kubeconfig else {
            return Client::try_default().await.map_err(BackendError::internal_from);
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(BackendError::internal_from)?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.map_err(BackendError::internal_from)?;
        Client::try_from(config).map_err(BackendError::internal_from)
    }
}

/// The kind, for the Namespaces of this cluster. A task of the runtime follows the RoleBindings.
fn kinds(cluster: &Cluster) -> Kinds {
    let (access, newest) = watch::channel(Arc::new(Access::default()));
    tokio::spawn(access::follow(cluster.clone(), access));
    let visibility =
        Visibility::following_by_identity(newest, |access: &Arc<Access>, user, project| {
            access.allows(user, project.name())
        });
    let namespaces = Arc::new(Namespaces(cluster.clone()));
    let projects = VirtualKind::watched(Project::crd(), namespaces);
    Kinds::new().kind(Kind::virtual_kind(projects).visibility::<Project>(visibility))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut program = Program::parse();
    start_logging(&program.serve);
    if program.standalone.standalone {
        // The server is its own cluster.
        let file = program.standalone.write_kubeconfig.get_or_insert("projects.kubeconfig".into());
        // The file of an earlier server has other certificates. This one is written when the server listens.
        let _ = std::fs::remove_file(&*file);
        let kinds = kinds(&Cluster { kubeconfig: Some(file.clone()) });
        Standalone::new("projects", kinds).run(&program.serve, &program.standalone).await?;
    } else {
        let kinds = kinds(&Cluster { kubeconfig: program.serve.kubeconfig.clone() });
        ApiServer::new("projects", kinds).run(&program.serve).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
