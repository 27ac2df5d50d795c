use std::process::Command;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::json;
use standalone_apiserver::TestServer;

use super::kinds;
use super::usage::{Measured, this_program};

fn measured(pod: &str, container: &str, milli_cpus: u64, memory: u64) -> Measured {
    Measured {
        node: "barn".to_owned(),
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        milli_cpus,
        memory,
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
    let server = TestServer::builder().kinds(kinds(measure)).listen().start().await.unwrap();
    let nodes: Api<Node> = Api::all(server.client());
    let node = json!({
        "metadata": {"name": "barn"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let pod = json!({
        "metadata": {"name": "brewer"},
        "spec": {"containers": [{"name": "brewer", "image": "brewer"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
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

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn this_program_uses_memory() {
    if cfg!(target_os = "linux") {
        assert!(this_program().memory > 1 << 20);
    }
}
