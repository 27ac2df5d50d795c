//! The backends: each read measures, because a cached measurement is wrong soon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use aggregated_apiserver::backend::{Backend, BackendError, Read, ReadContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

/// The usage of one container.
#[derive(Clone, Debug)]
pub struct Measured {
    pub node: String,
    pub namespace: String,
    pub pod: String,
    /// The labels of the Pod. HorizontalPodAutoscalers select measurements by them.
    pub labels: BTreeMap<String, String>,
    pub container: String,
    /// The processor time in thousandths of a processor.
    pub milli_cpus: u64,
    /// The memory in bytes.
    pub memory: u64,
}

type Measure = Arc<dyn Fn() -> Vec<Measured> + Send + Sync>;

/// The usage of Pods.
pub struct PodUsage(pub Measure);
/// The usage of nodes: the sum over their containers.
pub struct NodeUsage(pub Measure);

fn object(kind: &str, name: &str, data: serde_json::Value) -> DynamicObject {
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", kind);
    let mut object = DynamicObject::new(name, &ApiResource::from_gvk(&kind)).data(data);
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).ok();
    object.data["timestamp"] = json!(now);
    // Same as metrics-server, so that AGE is the age of the measurement.
    object.metadata.creation_timestamp = now.map(Time);
    object.data["window"] = "30s".into();
    object
}

fn usage(milli_cpus: u64, memory: u64) -> serde_json::Value {
    json!({"cpu": format!("{milli_cpus}m"), "memory": format!("{}Ki", memory >> 10)})
}

impl PodUsage {
    fn pods(&self, namespace: Option<&str>) -> Vec<DynamicObject> {
        let mut pods: BTreeMap<(String, String), Vec<Measured>> = BTreeMap::new();
        for one in (self.0)() {
            if namespace.is_none_or(|namespace| namespace == one.namespace) {
                let key = (one.namespace.clone(), one.pod.clone());
                pods.entry(key).or_default().push(one);
            }
        }
        let pod = |((namespace, name), containers): ((String, String), Vec<Measured>)| {
            let labels = containers.first().map(|one| one.labels.clone());
            let containers = containers.iter().map(
                |one| json!({"name": one.container, "usage": usage(one.milli_cpus, one.memory)}),
            );
            let containers: Vec<_> = containers.collect();
            let pod = object("PodMetrics", &name, json!({"containers": containers}));
            let mut pod = pod.within(&namespace);
            pod.metadata.labels = labels;
            pod
        };
        pods.into_iter().map(pod).collect()
    }
}

impl NodeUsage {
    fn nodes(&self) -> Vec<DynamicObject> {
        let mut nodes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for one in (self.0)() {
            let (milli_cpus, memory) = nodes.entry(one.node).or_default();
            *milli_cpus += one.milli_cpus;
            *memory += one.memory;
        }
        let node = |(name, (milli_cpus, memory)): (String, (u64, u64))| {
            object("NodeMetrics", &name, json!({"usage": usage(milli_cpus, memory)}))
        };
        nodes.into_iter().map(node).collect()
    }
}

impl Backend for PodUsage {
    type Object = DynamicObject;
}

impl Backend for NodeUsage {
    type Object = DynamicObject;
}

impl Read for PodUsage {
    async fn get(
        &self,
        _: &ReadContext,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, BackendError> {
        Ok(self.pods(namespace).into_iter().find(|pod| pod.metadata.name.as_deref() == Some(name)))
    }

    async fn list(
        &self,
        _: &ReadContext,
        namespace: Option<&str>,
    ) -> Result<Vec<DynamicObject>, BackendError> {
        Ok(self.pods(namespace))
    }
}

impl Read for NodeUsage {
    async fn get(
        &self,
        _: &ReadContext,
        _: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, BackendError> {
        Ok(self.nodes().into_iter().find(|node| node.metadata.name.as_deref() == Some(name)))
    }

    async fn list(
        &self,
        _: &ReadContext,
        _: Option<&str>,
    ) -> Result<Vec<DynamicObject>, BackendError> {
        Ok(self.nodes())
    }
}

/// The usage of this program since its start, from Linux's `/proc`; 0 on other systems.
pub fn this_program() -> Measured {
    static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    /// The ticks of a second, and the bytes of a page.
    const TICKS: u64 = 100;
    const PAGE: u64 = 4096;
    let field = |file: &str, number: usize| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().nth(number).and_then(|field| field.parse().ok()).unwrap_or(0_u64)
    };
    let ticks = field("/proc/self/stat", 13) + field("/proc/self/stat", 14);
    let seconds = STARTED.elapsed().as_secs().max(1);
    Measured {
        node: "this-machine".to_owned(),
        namespace: "default".to_owned(),
        pod: "metrics".to_owned(),
        labels: BTreeMap::new(),
        container: "metrics".to_owned(),
        milli_cpus: ticks * 1000 / TICKS / seconds,
        memory: field("/proc/self/statm", 1) * PAGE,
    }
}
