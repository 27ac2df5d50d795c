use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

use super::namespaces::Project;
use super::{Cluster, kinds};

/// A server that is its own cluster. All authenticated users may read projects.
async fn start() -> (TestServer, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let kinds = kinds(&Cluster { kubeconfig: Some(file.clone()) });
    let role: ClusterRole = object(json!({
        "metadata": {"name": "project-reader"},
        "rules": [{
            "apiGroups": ["project.example.com"], "resources": ["projects"],
            "verbs": ["get", "list", "watch"],
        }],
    }));
    let binding: ClusterRoleBinding = object(json!({
        "metadata": {"name": "project-readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "project-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    }));
    let server = TestServer::builder().kinds(kinds).listen().start().await.unwrap();
    std::fs::copy(server.kubeconfig().unwrap(), file).unwrap();
    let client = server.client();
    let create = PostParams::default();
    Api::all(client.clone()).create(&create, &role).await.unwrap();
    Api::all(client.clone()).create(&create, &binding).await.unwrap();
    for name in ["red", "blue"] {
        let namespace: Namespace = object(json!({"metadata": {"name": name}}));
        Api::all(client.clone()).create(&create, &namespace).await.unwrap();
    }
    (server, directory)
}

fn object<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// Lets a user or a group see a namespace.
async fn bind(client: &Client, namespace: &str, kind: &str, name: &str) {
    let binding: RoleBinding = object(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}],
    }));
    let bindings = Api::namespaced(client.clone(), namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

async fn unbind(client: &Client, namespace: &str, name: &str) {
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    bindings.delete(name, &DeleteParams::default()).await.unwrap();
}

/// `kubectl get projects -w` as a user.
struct Watching {
    kubectl: Child,
    output: std::path::PathBuf,
}

impl Watching {
    /// Returns `None` if there is no kubectl.
    fn start(server: &TestServer, directory: &tempfile::TempDir, user: &str) -> Option<Self> {
        let output = directory.path().join(user);
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["get", "projects", "-w", "--output-watch-events", "--no-headers"]);
        kubectl.args(["--as", user, "--as-group", "system:authenticated"]);
        kubectl.args(["--as-group", &format!("{user}s")]);
        kubectl.env("KUBECONFIG", server.kubeconfig().unwrap());
        kubectl.stdout(std::fs::File::create(&output).unwrap()).stderr(Stdio::inherit());
        match kubectl.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(std::env::var_os("REQUIRE_CONTROL_PLANE").is_none(), "there is no kubectl");
                None
            }
            kubectl => Some(Self { kubectl: kubectl.unwrap(), output }),
        }
    }

    /// The events so far, such as `ADDED red`.
    fn events(&self) -> Vec<String> {
        let output = std::fs::read_to_string(&self.output).unwrap();
        let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        output.lines().map(words).collect()
    }

    async fn expect(&self, events: &[&str]) {
        for _ in 0..300 {
            if self.events() == events {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.events(), events);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_follows_the_projects_of_three_users() {
    let (server, directory) = start().await;
    let watch = |user| Watching::start(&server, &directory, user);
    let (Some(jane), Some(joe), Some(kim)) = (watch("jane"), watch("joe"), watch("kim")) else {
        return;
    };
    let client = server.client();
    bind(&client, "red", "User", "jane").await;
    bind(&client, "blue", "Group", "joes").await;
    jane.expect(&["ADDED red"]).await;
    joe.expect(&["ADDED blue"]).await;
    bind(&client, "blue", "User", "jane").await;
    jane.expect(&["ADDED red", "ADDED blue"]).await;
    unbind(&client, "red", "jane").await;
    jane.expect(&["ADDED red", "ADDED blue", "DELETED red"]).await;
    // A new namespace is hidden until a RoleBinding names the user.
    let namespace: Namespace = object(json!({"metadata": {"name": "green"}}));
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    bind(&client, "green", "Group", "joes").await;
    joe.expect(&["ADDED blue", "ADDED green"]).await;
    kim.expect(&[]).await;
    // The lists of a user and of an administrator.
    let list = async |client| -> Vec<String> {
        let projects = Api::<Project>::all(client).list(&ListParams::default()).await.unwrap();
        projects.items.iter().map(ResourceExt::name_any).collect()
    };
    let joe = server.client_as("joe", ["system:authenticated", "joes"]);
    assert_eq!(list(joe).await, ["blue", "green"]);
    let all = list(client).await;
    assert!(
        ["blue", "default", "green", "red"].iter().all(|name| all.iter().any(|one| one == name))
    );
}
