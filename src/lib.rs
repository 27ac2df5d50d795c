//! Llamas, farm pods, farm workloads and farm nodes: the kinds of farm-operator.

mod farm_node;
mod farm_pod;
mod farm_workload;
mod llama;
mod program;

pub use farm_node::{Capacity, FarmNode, FarmNodeSpec, FarmNodeStatus, NotReady, Versions};
pub use farm_pod::{
    Amount, AnyOwnerView, Budget, BudgetView, Claim, ClaimedView, Counted, CountedView, EventView,
    FarmPod, FarmPodSpec, FarmPodStatus, Finding, IfServed, Image, LastEnd, NodeFacts,
    NodeMetricsView, NodeView, ObjectView, Owner, OwnerView, PodMetricsView, PodView, Polled,
    Release, Resources, ServiceView, WarningsOfPods, Why,
};
pub use farm_workload::{
    FarmWorkload, FarmWorkloadSpec, FarmWorkloadStatus, Trouble, WorkloadView,
};
pub use llama::{v1, v1alpha};
pub use program::{Command, CompletionOptions, Program};

use aggregated_apiserver::{ApiServer, Kind, Kinds};

/// The name of the program, its Service and its objects in the cluster.
pub const NAME: &str = "farm-operator";

/// The commit that the program is built from, if the environment variable `FARM_OPERATOR_COMMIT` is set for the build.
/// The build itself does not run git.
pub const COMMIT: Option<&str> = match option_env!("FARM_OPERATOR_COMMIT") {
    // An empty value comes from a build argument that was not given.
    Some(commit) if commit.is_empty() => None,
    commit => commit,
};

/// Every kind that the program serves.
pub fn kinds() -> Kinds {
    Kinds::new()
        .stored::<v1::Llama>()
        .kind(Kind::computed::<FarmPod>().subresource(farm_pod::log()))
        .kind(Kind::computed_from_variants::<FarmWorkload>().subresource(farm_workload::restart()))
        .computed::<FarmNode>()
}

/// The server of these kinds.
pub fn server() -> ApiServer {
    let server = ApiServer::new(NAME, kinds());
    match COMMIT {
        Some(commit) => server.with_commit(commit),
        None => server,
    }
}
