use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use standalone_apiserver::TestServer;
use test_cluster::{Programs, start_controller_manager, unless_missing};

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

/// kube-controller-manager reads the measurements, as from metrics-server.
#[tokio::test(flavor = "multi_thread")]
async fn a_horizontal_pod_autoscaler_scales_by_the_measurements() {
    let Some(programs) = unless_missing(Programs::find()).unwrap() else { return };
    let measure = || vec![measured("brewer", "brewer", 300, 64 << 20)];
    let server = TestServer::builder().kinds(kinds(measure)).listen().start().await.unwrap();
    let labels = json!({"app": "brewer"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{
            "name": "brewer", "image": "brewer", "resources": {"requests": {"cpu": "100m"}},
        }]},
    });
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let deployment = json!({
        "metadata": {"name": "brewer"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    });
    create(&deployments, &deployment).await;
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let mut pod = template;
    pod["metadata"]["name"] = "brewer".into();
    create(&pods, &pod).await;
    let ready = json!({"status": {
        "phase": "Running", "startTime": "2020-01-01T00:00:00Z",
        "conditions": [{
            "type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z",
        }],
    }});
    let parameters = PatchParams::default();
    pods.patch_status("brewer", &parameters, &Patch::Merge(&ready)).await.unwrap();
    let scalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(server.client());
    let scaler = json!({
        "metadata": {"name": "brewer"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "brewer"},
            "minReplicas": 1, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100},
            }}],
        },
    });
    create(&scalers, &scaler).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig().unwrap();
    let flags = [
        ("controllers", "horizontal-pod-autoscaler-controller".to_owned()),
        ("horizontal-pod-autoscaler-sync-period", "1s".to_owned()),
    ];
    let manager = start_controller_manager(&programs, &kubeconfig, folder.path(), &flags).unwrap();
    // 300m are used, and 100m are requested.
    let is_scaled = |deployment: Option<&Deployment>| {
        deployment.is_some_and(|one| one.spec.as_ref().is_some_and(|spec| spec.replicas == Some(3)))
    };
    let scaled = await_condition(deployments, "brewer", is_scaled);
    let scaled = tokio::time::timeout(Duration::from_secs(90), scaled).await;
    assert!(scaled.is_ok(), "{}", manager.printed());
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
fn this_program_uses_memory() {
    if cfg!(target_os = "linux") {
        assert!(this_program().memory > 1 << 20);
    }
}
