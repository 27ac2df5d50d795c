//! Llamas and farm pods: the kinds of farm-operator.

mod farm_pod;
mod llama;

pub use farm_pod::{
    FarmPod, FarmPodSpec, FarmPodStatus, JobMetadata, LastRestart, Owner, PodView,
    ReplicaSetMetadata,
};
pub use llama::{Llama, LlamaSpec};

use aggregated_apiserver::{ApiServer, Kinds};

/// The name of the program, its Service and its objects in the cluster.
pub const NAME: &str = "farm-operator";

/// Every kind that is served.
pub fn kinds() -> Kinds {
    Kinds::new().stored::<Llama>().computed::<FarmPod>()
}

/// The server of these kinds.
pub fn server() -> ApiServer {
    ApiServer::new(NAME, kinds())
}
