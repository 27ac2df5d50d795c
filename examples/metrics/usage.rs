//! `metrics.k8s.io`: the usage of Pods and nodes. Each read measures, because a cached measurement is wrong soon.

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
    pub open_files: u32,
}

pub type Measure = Arc<dyn Fn() -> Vec<Measured> + Send + Sync>;

/// The objects of a kind, which are measured for each read.
pub struct Usage(Box<dyn Fn() -> Vec<DynamicObject> + Send + Sync>);

impl Usage {
    /// The usage of Pods.
    pub fn of_pods(measure: Measure) -> Self {
        Self(Box::new(move || pods(measure())))
    }

    /// The usage of nodes: the sum over their containers.
    pub fn of_nodes(measure: Measure) -> Self {
        Self(Box::new(move || nodes(measure())))
    }
}

impl Backend for Usage {
    type Object = DynamicObject;
}

impl Read for Usage {
    async fn get(
        &self,
        context: &ReadContext,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, BackendError> {
        let all = self.list(context, namespace).await?;
        Ok(all.into_iter().find(|one| one.metadata.name.as_deref() == Some(name)))
    }

    async fn list(
        &self,
        _: &ReadContext,
        namespace: Option<&str>,
    ) -> Result<Vec<DynamicObject>, BackendError> {
        let is_wanted = |one: &DynamicObject| {
            namespace.is_none() || one.metadata.namespace.as_deref() == namespace
        };
        Ok((self.0)().into_iter().filter(is_wanted).collect())
    }
}

fn pods(measured: Vec<Measured>) -> Vec<DynamicObject> {
    let mut pods: BTreeMap<(String, String), Vec<Measured>> = BTreeMap::new();
    for one in measured {
        pods.entry((one.namespace.clone(), one.pod.clone())).or_default().push(one);
    }
    let pod = |((namespace, name), containers): ((String, String), Vec<Measured>)| {
        let usage = |one: &Measured| json!({"name": one.container, "usage": usage(one.milli_cpus, one.memory)});
        let of_containers: Vec<_> = containers.iter().map(usage).collect();
        let pod = object("PodMetrics", &name, json!({"containers": of_containers}));
        let mut pod = pod.within(&namespace);
        pod.metadata.labels = containers.into_iter().next().map(|one| one.labels);
        pod
    };
    pods.into_iter().map(pod).collect()
}

fn nodes(measured: Vec<Measured>) -> Vec<DynamicObject> {
    let mut nodes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for one in measured {
        let (milli_cpus, memory) = nodes.entry(one.node).or_default();
        *milli_cpus += one.milli_cpus;
        *memory += one.memory;
    }
    let node = |(name, (milli_cpus, memory)): (String, (u64, u64))| {
        object("NodeMetrics", &name, json!({"usage": usage(milli_cpus, memory)}))
    };
    nodes.into_iter().map(node).collect()
}

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
        labels: [("app".to_owned(), "metrics".to_owned())].into(),
        container: "metrics".to_owned(),
        milli_cpus: ticks * 1000 / TICKS / seconds,
        memory: field("/proc/self/statm", 1) * PAGE,
        open_files: std::fs::read_dir("/proc/self/fd")
            .map_or(0, |files| files.fold(0, |count, _| count + 1)),
    }
}
