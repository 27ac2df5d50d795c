//! `farm-operator doctor`: its output for a healthy installation, and for each problem, which the tests cause behind a
//! real control plane. Every problem must be reported with a remedy.

#[path = "doctor/faults.rs"]
mod faults;
#[path = "control_plane/harness.rs"]
mod harness;
#[path = "doctor/ward.rs"]
mod ward;
#[allow(dead_code)] // of what all tests behind a control plane share
#[path = "control_plane/world.rs"]
mod world;

use harness::Group;
use ward::Ward;

/// The tests share one control plane; each reverts its changes.
const FAULTS: Group<Ward> = &[
    ("a_healthy_installation_has_no_findings", faults::all_is_well),
    ("there_is_no_control_plane", faults::there_is_no_control_plane),
    ("a_user_without_permissions_gets_unknown_outcomes", faults::a_user_without_rights_looks),
    ("clocks_differ", faults::clocks_differ),
    ("the_front_proxy_is_not_described", faults::the_front_proxy_is_not_described),
    ("missing_permissions_are_reported", faults::rights_are_missing),
    ("a_webhook_is_in_the_way", faults::a_webhook_is_in_the_way),
    ("the_api_service_is_missing", faults::the_api_service_is_missing),
    ("the_api_service_is_of_another", faults::the_api_service_is_of_another),
    ("an_installation_in_another_namespace_is_found", faults::it_is_installed_elsewhere),
    ("tls_is_not_verified", faults::tls_is_not_verified),
    ("the_service_is_missing", faults::the_service_is_missing),
    ("no_pod_is_ready", faults::no_pod_is_ready),
    ("another_authority_is_trusted", faults::another_authority_is_trusted),
    ("the_secret_is_missing", faults::the_secret_is_missing),
    ("a_certificate_in_files_needs_no_secret", faults::a_certificate_in_files_needs_no_secret),
    ("the_certificate_is_of_another", faults::the_certificate_is_of_another),
    ("the_front_proxy_has_another_name", faults::the_front_proxy_has_another_name),
    ("a_closed_port_is_reported", faults::nothing_listens),
    ("another_release_is_deployed", faults::another_release_is_deployed),
    ("a_missing_installation_is_reported", faults::nothing_is_installed),
];

fn main() {
    harness::run(&[FAULTS], &[]);
}
