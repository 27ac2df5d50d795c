mod control_plane;

use std::process::Command;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use standalone_apiserver::TestServer;

use super::autoscaling::this_machine;
use super::kinds;
use super::usage::{Measured, this_program};

fn measured(pod: &str, container: &str, milli_cpus: u64, memory: u64) -> Measured {
    Measured {
        node: "barn".to_owned(),
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        labels: [("app".to_owned(), pod.to_owned())].into(),
        container: container.to_owned(),
        milli_cpus,
        memory,
        open_files: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_top_shows_the_measurements() {
    let measure = || {
        vec![
            measured("brewer", "brewer", 250, 64 << 20),
            measured("brewer", "proxy", 50, 16 << 20),
            measured("baker", "baker", 1_000, 1 << 30),
        ]
    };
    let kinds = kinds(measure, Vec::new).unwrap();
    let server = TestServer::builder().kinds(kinds).listen().start().await.unwrap();
    let nodes: Api<Node> = Api::all(server.client());
    let node = json!({
        "metadata": {"name": "barn"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    });
    create(&nodes, &node).await;
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let pod = json!({
        "metadata": {"name": "brewer"},
        "spec": {"containers": [{"name": "brewer", "image": "brewer"}]},
    });
    create(&pods, &pod).await;
    let top = |arguments: &[&str]| {
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("top").args(arguments).env("KUBECONFIG", server.kubeconfig().unwrap());
        match kubectl.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                assert!(std::env::var_os("REQUIRE_CONTROL_PLANE").is_none(), "there is no kubectl");
                None
            }
            output => {
                let output = output.unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                assert!(output.status.success(), "{}", text(&output.stderr));
                Some(text(&output.stdout).lines().map(words).collect::<Vec<_>>())
            }
        }
    };
    let Some(shown) = top(&["pods"]) else { return };
    let header = words("NAME CPU(cores) MEMORY(bytes)");
    assert_eq!(shown, [header, words("baker 1000m 1024Mi"), words("brewer 300m 80Mi")]);
    let shown = top(&["pod", "brewer", "--containers"]).unwrap();
    let header = words("POD NAME CPU(cores) MEMORY(bytes)");
    assert_eq!(shown, [header, words("brewer brewer 250m 64Mi"), words("brewer proxy 50m 16Mi")]);
    let shown = top(&["nodes"]).unwrap();
    assert_eq!(shown[1], words("barn 1300m 32% 1104Mi 13%"));
}

async fn create<K>(api: &Api<K>, object: &serde_json::Value)
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn this_program_and_this_machine_are_measured() {
    if cfg!(target_os = "linux") {
        assert!(this_program().memory > 1 << 20 && this_program().open_files > 2);
        assert_eq!(this_machine().len(), 3);
    }
}
