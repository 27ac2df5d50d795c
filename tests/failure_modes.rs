//! The behaviour of a cluster while an aggregated API server has a problem, and the recovery without intervention. The
//! tests use a real kube-apiserver and a real kube-controller-manager.
//!
//! Each group of tests has its own control plane and farm-operator, behind a port whose process can be exchanged. The
//! tests of a group run sequentially. The groups run concurrently, because they mostly wait. With `FAILURE_MODES=all`,
//! tests that take many minutes run too.
//!
//! `docs/guides/install.md` documents this behaviour for administrators.

#[path = "failure_modes/availability.rs"]
mod availability;
#[path = "failure_modes/certificates.rs"]
mod certificates;
#[path = "control_plane/direct.rs"]
mod direct;
#[path = "failure_modes/discovery.rs"]
mod discovery;
#[path = "failure_modes/front_proxy.rs"]
mod front_proxy;
#[path = "control_plane/harness.rs"]
mod harness;
#[path = "failure_modes/install.rs"]
mod install;
#[path = "failure_modes/rest.rs"]
mod rest;
#[path = "failure_modes/rights.rs"]
mod rights;
#[path = "failure_modes/stage.rs"]
mod stage;
#[path = "failure_modes/streams.rs"]
mod streams;
#[path = "control_plane/switch.rs"]
mod switch;
#[path = "failure_modes/traffic.rs"]
mod traffic;
#[path = "control_plane/world.rs"]
mod world;

use harness::Group;
use stage::Stage;

/// The server is unreachable.
const AWAY: Group<Stage> = &[
    ("a_server_that_cannot_be_reached", availability::unreachable),
    ("a_server_that_does_not_respond", availability::suspended),
    ("a_deleted_server", availability::gone),
];

/// Certificates and authentication.
const TRUST: Group<Stage> = &[
    ("serving_certificates_in_files_are_wrong", certificates::files_are_wrong_and_mended),
    ("the_config_map_of_authentication_is_lost", front_proxy::the_config_map_is_lost),
    ("another_authority_of_users", front_proxy::another_client_authority),
    ("the_front_proxy_has_another_name", front_proxy::a_name_is_not_allowed),
    ("another_authority_of_the_front_proxy", front_proxy::another_authority),
];

/// The requirements of an installation.
const INSTALLATION: Group<Stage> = &[
    ("the_secret_of_the_serving_certificate_is_lost", certificates::the_secret_is_lost),
    ("the_role_binding_in_kube_system_is_missing", rights::the_role_binding_is_missing),
    ("the_permission_for_access_reviews_is_missing", rights::nobody_can_be_authorized),
    ("the_permissions_on_sources_are_missing", rights::nothing_is_in_view),
];

/// Requests in progress, and other users of a cluster.
const TRAFFIC: Group<Stage> = &[
    ("a_rollout_fails_no_request", streams::a_rollout),
    ("requests_of_any_size", streams::large_requests),
    ("watchers_that_do_not_read", streams::slow_readers),
    ("etcd_is_killed", streams::etcd_is_killed),
    ("kube_apiserver_is_killed", streams::kube_apiserver_is_killed),
    ("policies_of_the_cluster_reach_llamas", install::policies_reach_llamas),
    ("webhooks_of_the_cluster_reach_llamas", install::webhooks_reach_llamas),
    ("the_permission_on_webhook_configurations_is_missing", rights::webhooks_are_unknown),
    ("a_definition_of_our_group", install::a_definition_of_our_group),
    ("a_read_only_file_system", install::nothing_can_be_written),
];

/// The registration of the program, until its removal by the last test.
const REGISTRATION: Group<Stage> = &[
    ("documents_of_all_servers_are_merged", discovery::documents_are_merged),
    ("a_version_without_a_server", discovery::a_version_that_nobody_serves),
    ("a_version_of_one_of_two_replicas", discovery::a_version_that_one_of_two_replicas_serves),
    ("a_kind_of_one_of_two_replicas", discovery::a_kind_that_one_of_two_replicas_serves),
    ("the_api_service_is_of_another", install::the_api_service_is_of_another),
    ("another_authority_is_named", install::another_authority_is_named),
    ("the_api_service_is_recreated", install::the_api_service_is_made_anew),
    ("the_api_service_is_left_behind", install::the_api_service_is_left_behind),
    ("everything_is_removed_in_another_order", install::everything_is_removed_in_another_order),
    ("everything_is_removed", install::everything_is_removed),
];

/// Tests that take many minutes.
const LONG: Group<Stage> = &[("connections_are_renewed", streams::connections_are_renewed)];

fn main() {
    let all = std::env::var_os("FAILURE_MODES").is_some_and(|which| which == "all");
    let long = if all { LONG } else { &[] };
    harness::run(&[AWAY, TRUST, INSTALLATION, TRAFFIC, REGISTRATION, long], &[]);
}
