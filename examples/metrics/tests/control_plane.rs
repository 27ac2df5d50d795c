//! The metrics APIs behind a real kube-apiserver: RBAC, `kubectl top`, HorizontalPodAutoscalers that a real
//! kube-controller-manager scales, and its other controllers, which discover the APIs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Programs, Token, free_port, unless_missing};

use super::{Measured, kinds, measured, words};

/// The log of the controllers.
const LOG: &str = "kube-controller-manager.log";
const SERVICES: [&str; 4] = [
    "v1beta1.metrics.k8s.io",
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
];

/// The usage that the server reports.
type Usage = Arc<Mutex<Vec<Measured>>>;

fn server(usage: &Usage) -> ApiServer {
    let usage = Arc::clone(usage);
    let measure = move || usage.lock().unwrap().clone();
    let kinds: Kinds = kinds(measure, || vec![30.0, 20.0, 10.0]).unwrap();
    ApiServer::new("metrics", kinds)
}

/// A control plane without nodes, whose Pods are those of Deployments.
struct World {
    control_plane: ControlPlane,
    usage: Usage,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_apis_work_behind_kube_apiserver() {
    let Some(programs) = unless_missing(Programs::find()).unwrap() else { return };
    let tokens = ["all", "one", "none"].map(Token::of);
    let control_plane = ControlPlane::start(&programs, &tokens).unwrap();
    let world = World { control_plane, usage: Usage::default() };
    let manifests = server(&world.usage).manifests(&ManifestOptions::default()).unwrap();
    world.apply(&manifests);
    let port = free_port().unwrap();
    world.control_plane.lead_to_localhost(&SERVICES, ("metrics", "metrics"), port).unwrap();
    let token = world.kubectl("create token metrics -n metrics");
    let kubeconfig = world.control_plane.kubeconfig_of_token("metrics", token.trim()).unwrap();
    let mut args = ServeArgs::default();
    args.bind_address = [127, 0, 0, 1].into();
    args.secure_port = port;
    args.namespace = Some("metrics".to_owned());
    args.kubeconfig = Some(kubeconfig);
    let _running = server(&world.usage).bind(&args).await.unwrap().start().await.unwrap();
    let services = SERVICES.join(" ");
    world.kubectl(&format!("wait --for=condition=Available --timeout=60s apiservice {services}"));
    // Controllers log errors while the APIServices have no server.
    let before = std::fs::read(world.control_plane.folder().join(LOG)).unwrap().len();
    world.autoscalers();
    world.top();
    world.permissions();
    world.other_controllers();
    let log = std::fs::read_to_string(world.control_plane.folder().join(LOG)).unwrap();
    let errors = log.get(before..).unwrap_or_default().lines().filter(|line| line.starts_with('E'));
    let errors: Vec<&str> = errors.filter(|line| line.contains("metrics.k8s.io")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

impl World {
    fn kubectl(&self, arguments: &str) -> String {
        self.control_plane.kubectl(arguments.split(' ')).run().unwrap()
    }

    fn apply(&self, objects: &str) {
        self.control_plane.kubectl(["apply", "-f", "-"]).input(objects).run().unwrap();
    }

    /// Creates a Deployment, and reports that its Pod runs. Returns the name of the Pod.
    fn deploy(&self, name: &str) -> String {
        let labels = json!({"app": name});
        let container =
            json!({"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m"}}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [container]},
            }},
        });
        self.apply(&deployment.to_string());
        self.kubectl(&format!("wait --for=create --timeout=60s pod --selector=app={name}"));
        let names = "-o jsonpath={.items[0].metadata.name}";
        let pod = self.kubectl(&format!("get pods --selector=app={name} {names}"));
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z",
        });
        self.patch_status(
            "pod",
            &pod,
            &json!({
                "phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": [ready],
            }),
        );
        pod
    }

    fn patch_status(&self, resource: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let arguments = ["patch", resource, name, "--subresource=status", "-p", &patch];
        self.control_plane.kubectl(arguments).run().unwrap();
    }

    /// A HorizontalPodAutoscaler for each type of metric. The usage is two or three times as high as its target.
    fn autoscalers(&self) {
        let target = json!({"type": "AverageValue", "averageValue": "10"});
        let files = json!({"name": "open_files"});
        let queue = json!({"apiVersion": "v1", "kind": "Pod", "name": "queue"});
        let load = json!({"name": "load_average", "selector": {"matchLabels": {"minutes": "1"}}});
        let cpu =
            json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}});
        let all = [
            ("by-cpu", "Resource", cpu, 3),
            ("by-pods", "Pods", json!({"metric": files, "target": target}), 2),
            (
                "by-object",
                "Object",
                json!({"metric": files, "target": target, "describedObject": queue}),
                4,
            ),
            ("by-load", "External", json!({"metric": load, "target": target}), 3),
        ];
        let of_queue = Measured { open_files: 40, ..measured("queue", "c", 0, 0) };
        self.usage.lock().unwrap().push(of_queue);
        for (name, metric, source, _) in &all {
            let pod = self.deploy(name);
            let labels = [("app".to_owned(), (*name).to_owned())].into();
            let usage = Measured { labels, open_files: 20, ..measured(&pod, "c", 300, 64 << 20) };
            self.usage.lock().unwrap().push(usage);
            let field = metric.to_lowercase();
            let autoscaler = json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "minReplicas": 1, "maxReplicas": 9, "metrics": [{"type": metric, (field): source}],
                },
            });
            self.apply(&autoscaler.to_string());
        }
        for (name, _, _, replicas) in all {
            let condition = format!("--for=jsonpath={{.status.desiredReplicas}}={replicas}");
            self.kubectl(&format!("wait {condition} --timeout=120s hpa {name}"));
            let condition = format!("--for=jsonpath={{.status.currentReplicas}}={replicas}");
            self.kubectl(&format!("wait {condition} --timeout=60s hpa {name}"));
        }
    }

    fn top(&self) {
        self.apply(
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "barn"}}).to_string(),
        );
        let allocatable = json!({"cpu": "4", "memory": "8Gi"});
        let ready = json!({"type": "Ready", "status": "True"});
        let status =
            json!({"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]});
        self.patch_status("node", "barn", &status);
        let lines = |text: String| text.lines().map(words).collect::<Vec<_>>();
        let nodes = lines(self.kubectl("top nodes"));
        let header = words("NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)");
        assert_eq!(nodes, [header, words("barn 1200m 30% 256Mi 3%")]);
        let pods = lines(self.kubectl("top pods --selector=app=by-cpu"));
        assert_eq!(pods.len(), 2, "{pods:?}");
        assert_eq!(pods[1][1..], words("300m 64Mi"));
        assert_eq!(lines(self.kubectl("top pods")).len(), 6);
    }

    /// The permissions of users are those of RBAC in kube-apiserver.
    fn permissions(&self) {
        let (custom, external) = ("custom.metrics.k8s.io", "external.metrics.k8s.io");
        let role = |name: &str, resource: &str| {
            let rule = json!({"apiGroups": [custom], "resources": [resource], "verbs": ["get"]});
            let role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": name, "namespace": "default"}, "rules": [rule],
            });
            self.apply(&role.to_string());
            self.kubectl(&format!("create rolebinding {name} --role={name} --user={name}"));
        };
        role("all", "*");
        role("one", "pods/open_files");
        let root = format!("/apis/{custom}/v1beta2/namespaces/default");
        let of_external = format!("/apis/{external}/v1beta1/namespaces/default/load_average");
        for (name, path, expected) in [
            ("all", format!("{root}/pods/queue/open_files"), ""),
            ("all", format!("{root}/pods/*/open_files?labelSelector=a%3Db"), ""),
            ("all", format!("/apis/{custom}/v1beta1/namespaces/default/pods/queue/open_files"), ""),
            (
                "all",
                format!("{root}/pods/none/open_files"),
                "could not find the metric open_files for pods none",
            ),
            ("all", format!("{root}/pods/*/none"), "could not find the metric none for pods"),
            (
                "all",
                format!("/apis/{custom}/v1beta2/namespaces/other/pods/queue/open_files"),
                "Forbidden",
            ),
            ("all", of_external, "Forbidden"),
            ("one", format!("{root}/pods/*/open_files"), ""),
            ("one", format!("{root}/pods/queue/errors"), "Forbidden"),
            ("none", format!("{root}/pods/queue/open_files"), "Forbidden"),
        ] {
            let token = format!("{name}-token");
            let kubeconfig = self.control_plane.kubeconfig_of_token(name, &token).unwrap();
            let raw = ["get", "--raw", &path];
            let printed = self.control_plane.kubectl_as(&kubeconfig, raw).output().unwrap();
            assert_eq!(printed.succeeded, expected.is_empty(), "{name} {path}: {}", printed.errors);
            assert!(printed.errors.contains(expected), "{name} {path}: {}", printed.errors);
        }
    }

    /// The garbage collector, the controller of quotas and that of namespaces read the discovery of all APIs.
    fn other_controllers(&self) {
        for group_version in [
            ("custom.metrics.k8s.io/v1beta2", "pods/open_files"),
            ("external.metrics.k8s.io/v1beta1", "load_average"),
        ] {
            let discovered = self.kubectl(&format!("get --raw /apis/{}", group_version.0));
            assert!(discovered.contains(&format!("\"{}\"", group_version.1)), "{discovered}");
        }
        assert!(
            self.kubectl("get --raw /openapi/v3").contains("apis/custom.metrics.k8s.io/v1beta2")
        );
        self.kubectl("create namespace short");
        self.kubectl("create configmap owner -n short");
        self.kubectl("create secret generic counted -n short");
        let uid = self.kubectl("get configmap owner -n short -o jsonpath={.metadata.uid}");
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        self.kubectl("create serviceaccount owned -n short");
        self.kubectl(&format!("patch serviceaccount owned -n short -p {owned}"));
        self.kubectl("create quota secrets -n short --hard=secrets=5");
        self.kubectl(
            "wait -n short --for=jsonpath={.status.used.secrets}=1 --timeout=60s quota secrets",
        );
        self.kubectl("delete configmap owner -n short");
        self.kubectl("wait -n short --for=delete --timeout=60s serviceaccount owned");
        let began = Instant::now();
        self.kubectl("delete namespace short --timeout=60s");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
