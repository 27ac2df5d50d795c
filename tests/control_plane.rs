//! The program behind a real kube-apiserver, as kubectl and kube see it.
//!
//! One control plane and one farm-operator serve the whole run. farm-operator is deployed by `app.yaml` and runs with
//! exactly the permissions of its ServiceAccount. Tests run sequentially; disruptive tests are last.
//!
//! Without a control plane, and without `go` to build one, the tests are reported as ignored. The same applies to a
//! test that needs something else that is missing. With `REQUIRE_CONTROL_PLANE` set, they fail instead.

#[path = "control_plane/audit.rs"]
mod audit;
#[path = "control_plane/budgets.rs"]
mod budgets;
#[path = "control_plane/changes.rs"]
mod changes;
#[path = "control_plane/clients.rs"]
mod clients;
#[path = "control_plane/cluster_proxy.rs"]
mod cluster_proxy;
#[path = "control_plane/development.rs"]
mod development;
#[path = "control_plane/direct.rs"]
mod direct;
#[path = "control_plane/disturbances.rs"]
mod disturbances;
#[path = "control_plane/durable.rs"]
mod durable;
#[path = "control_plane/farm_pods.rs"]
mod farm_pods;
#[path = "control_plane/harness.rs"]
mod harness;
#[path = "control_plane/in_a_pod.rs"]
mod in_a_pod;
#[path = "control_plane/kubelet.rs"]
mod kubelet;
#[path = "control_plane/llamas.rs"]
mod llamas;
#[path = "control_plane/other_languages.rs"]
mod other_languages;
#[path = "control_plane/owners.rs"]
mod owners;
#[path = "control_plane/registration.rs"]
mod registration;
#[path = "control_plane/rights.rs"]
mod rights;
#[path = "control_plane/subresources.rs"]
mod subresources;
#[path = "control_plane/switch.rs"]
mod switch;
#[path = "control_plane/world.rs"]
mod world;

use harness::{Group, Needs};
use world::World;

const NEEDS: &[(&str, Needs)] = &[
    ("a_pod_finds_its_service_account", in_a_pod::is_impossible),
    ("client_go_lists_and_watches", other_languages::informer_is_missing),
    ("client_go_streams", other_languages::informer_is_missing),
    ("python_lists_and_watches", other_languages::python_is_missing),
];

/// The tests, in the order in which they run.
const TESTS: Group<World> = &[
    ("the_api_service_becomes_available_over_verified_tls", registration::becomes_available),
    ("discovery_names_the_kinds", registration::discovery_names_the_kinds),
    ("kubectl_reads_llamas", llamas::are_read),
    ("kubectl_creates_and_deletes_llamas", llamas::are_created_and_deleted),
    ("kubectl_watches_llamas", llamas::are_watched),
    ("llamas_are_the_same_in_both_versions", llamas::are_the_same_in_both_versions),
    ("llamas_cannot_be_created_in_a_terminating_namespace", llamas::need_a_namespace_that_stays),
    ("a_namespace_with_a_llama_is_deleted", llamas::go_with_their_namespace),
    ("kubectl_applies_llamas", changes::are_applied),
    ("kubectl_changes_llamas", changes::are_changed),
    ("llamas_own_and_are_owned", changes::own_and_are_owned),
    ("kubectl_reads_farm_pods", farm_pods::are_read),
    ("farm_pods_are_printed_as_pods", farm_pods::are_shown_as_pods_are),
    ("owners_of_any_kind_are_followed", owners::of_any_kind_are_followed),
    (
        "budgets_that_cannot_be_counted_allow_no_eviction",
        budgets::that_cannot_be_counted_allow_nothing,
    ),
    ("a_deployment_is_scaled_up_and_down", farm_pods::follow_a_deployment),
    ("logs_of_all_containers_are_merged", subresources::logs_of_all_containers_are_merged),
    ("logs_need_permission", subresources::logs_need_permission_on_logs_of_pods),
    ("workloads_are_restarted", subresources::workloads_are_restarted),
    ("kubectl_reaches_another_cluster", cluster_proxy::leads_to_another_cluster),
    ("kubectl_streams_from_another_cluster", cluster_proxy::streams_through),
    ("each_method_reaches_another_cluster", cluster_proxy::passes_each_method),
    (
        "client_go_streams_and_copies_from_another_cluster",
        cluster_proxy::streams_of_client_go_and_copies,
    ),
    ("a_user_without_permission_is_rejected", rights::are_needed),
    ("farm_pods_need_permission_on_pods", rights::on_pods_are_needed),
    ("fields_of_lookups_need_permission", rights::on_what_is_looked_up_are_needed),
    ("forged_headers_are_not_believed", rights::forged_headers_are_not_believed),
    ("tokens_and_certificates_are_believed", rights::tokens_and_certificates_are_believed),
    ("kube_lists_creates_and_watches", clients::list_create_and_watch),
    ("kube_changes_llamas", changes::change_in_programs),
    ("client_go_lists_and_watches", other_languages::an_informer_lists_and_watches),
    ("client_go_streams", other_languages::an_informer_streams),
    ("python_lists_and_watches", other_languages::python_lists_and_watches),
    ("audit_logs_share_the_ids_of_requests", audit::logs_share_their_ids),
    ("llamas_count_against_quota", llamas::count_against_quota),
    ("openapi_is_published", registration::openapi_is_published),
    ("kustomize_prints_the_manifests", registration::kustomize_prints_the_manifests),
    ("kubectl_explains_the_kinds", registration::kubectl_explains),
    ("a_pod_finds_its_service_account", in_a_pod::finds_its_service_account),
    ("no_llama_is_lost_to_a_process_on_a_laptop", development::nothing_owned_is_lost),
    ("the_printed_stateful_set_stores_llamas", durable::a_stateful_set_is_printed),
    ("llamas_in_a_folder_outlive_the_process", durable::llamas_outlive_the_process),
    ("watches_go_on_over_a_restart", durable::watches_outlive_the_process),
    ("the_printed_replicas_share_llamas", durable::replicas_are_printed),
    ("replicas_take_turns", durable::replicas_take_turns),
    ("watches_go_on_at_another_replica", durable::watches_outlive_a_replica),
    ("a_new_process_adopts_the_certificate", disturbances::a_restart_adopts_the_certificate),
    ("another_front_proxy_authority", disturbances::another_front_proxy_authority),
    ("kube_apiserver_is_killed_and_restarted", disturbances::kube_apiserver_is_killed),
    ("a_signal_drains_the_server", disturbances::a_signal_drains_the_server),
    ("namespaces_are_deleted_after_us", disturbances::namespaces_are_deleted_after_us),
];

fn main() {
    harness::run(&[TESTS], NEEDS);
}
