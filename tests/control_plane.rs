//! The program as kubectl and kube see it, behind a real kube-apiserver.
//!
//! One control plane and one farm-operator for the whole run, deployed by
//! `app.yaml` and running with the rights of its ServiceAccount and nothing
//! more. Tests run one after the other; those that disturb come last.
//!
//! Without a control plane, and without `go` to build one, the tests show as
//! ignored, as does one that needs something else that is missing; with
//! `REQUIRE_CONTROL_PLANE` set they fail instead.

#[path = "control_plane/changes.rs"]
mod changes;
#[path = "control_plane/clients.rs"]
mod clients;
#[path = "control_plane/development.rs"]
mod development;
#[path = "control_plane/disturbances.rs"]
mod disturbances;
#[path = "control_plane/farm_pods.rs"]
mod farm_pods;
#[path = "control_plane/in_a_pod.rs"]
mod in_a_pod;
#[path = "control_plane/llamas.rs"]
mod llamas;
#[path = "control_plane/other_languages.rs"]
mod other_languages;
#[path = "control_plane/registration.rs"]
mod registration;
#[path = "control_plane/rights.rs"]
mod rights;
#[path = "control_plane/world.rs"]
mod world;

use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use test_cluster::{Missing, Programs};
use world::World;

type Test = fn(&mut World) -> anyhow::Result<()>;

/// What a test needs that not every machine has.
type Needs = fn() -> Option<&'static str>;

const NEEDS: &[(&str, Needs)] = &[
    ("a_pod_finds_its_service_account", in_a_pod::is_impossible),
    ("client_go_lists_and_watches", other_languages::informer_is_missing),
    ("client_go_streams", other_languages::informer_is_missing),
    ("python_lists_and_watches", other_languages::python_is_missing),
];

/// In the order in which they run.
const TESTS: &[(&str, Test)] = &[
    ("the_api_service_becomes_available_over_verified_tls", registration::becomes_available),
    ("discovery_names_the_kinds", registration::discovery_names_the_kinds),
    ("kubectl_reads_llamas", llamas::are_read),
    ("kubectl_creates_and_deletes_llamas", llamas::are_created_and_deleted),
    ("kubectl_watches_llamas", llamas::are_watched),
    ("llamas_need_a_namespace_that_stays", llamas::need_a_namespace_that_stays),
    ("a_namespace_with_a_llama_is_deleted", llamas::go_with_their_namespace),
    ("kubectl_applies_llamas", changes::are_applied),
    ("kubectl_changes_llamas", changes::are_changed),
    ("llamas_own_and_are_owned", changes::own_and_are_owned),
    ("kubectl_reads_farm_pods", farm_pods::are_read),
    ("a_deployment_is_scaled_up_and_down", farm_pods::follow_a_deployment),
    ("a_user_without_rights_is_refused", rights::are_needed),
    ("farm_pods_need_the_right_on_pods", rights::on_pods_are_needed),
    ("forged_headers_are_not_believed", rights::forged_headers_are_not_believed),
    ("tokens_and_certificates_are_believed", rights::tokens_and_certificates_are_believed),
    ("kube_lists_creates_and_watches", clients::list_create_and_watch),
    ("kube_changes_llamas", changes::change_in_programs),
    ("client_go_lists_and_watches", other_languages::an_informer_lists_and_watches),
    ("client_go_streams", other_languages::an_informer_streams),
    ("python_lists_and_watches", other_languages::python_lists_and_watches),
    ("llamas_count_against_quota", llamas::count_against_quota),
    ("openapi_is_published", registration::openapi_is_published),
    ("kubectl_explains_the_kinds", registration::kubectl_explains),
    ("a_pod_finds_its_service_account", in_a_pod::finds_its_service_account),
    ("nothing_is_lost_to_a_process_for_development", development::nothing_owned_is_lost),
    ("a_new_process_adopts_the_certificate", disturbances::a_restart_adopts_the_certificate),
    ("another_front_proxy_authority", disturbances::another_front_proxy_authority),
    ("kube_apiserver_is_killed_and_comes_back", disturbances::kube_apiserver_is_killed),
    ("a_signal_drains_the_server", disturbances::a_signal_drains_the_server),
    ("namespaces_are_deleted_after_us", disturbances::namespaces_are_deleted_after_us),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // They share one world.
    arguments.test_threads = Some(1);
    let wanted = !arguments.list && TESTS.iter().any(|(name, _)| is_wanted(&arguments, name));
    let world = if wanted { start() } else { Err("not wanted".to_owned()) };
    let required = std::env::var_os("REQUIRE_CONTROL_PLANE").is_some();
    let mut trials = Vec::new();
    let shared = Arc::new(Mutex::new(None));
    match world {
        Ok(world) => {
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(world);
            for &(name, test) in TESTS {
                let shared = Arc::clone(&shared);
                let trial = Trial::test(name, move || run(&shared, test));
                let missing = missing(name);
                let trial = trial.with_ignored_flag(missing.is_some() && !required);
                trials.push(trial.with_kind(missing.unwrap_or_default()));
            }
        }
        Err(reason) => {
            for &(name, _) in TESTS {
                let failure = Failed::from(reason.clone());
                let trial = Trial::test(name, move || Err(failure));
                trials.push(trial.with_kind("no control plane").with_ignored_flag(!required));
            }
            if wanted {
                eprintln!("the tests of this file need a control plane: {reason}");
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Everything is ended and removed before the process is.
    drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
    conclusion.exit();
}

/// What this machine does not have and the test needs.
fn missing(test: &str) -> Option<&'static str> {
    NEEDS.iter().find(|(name, _)| *name == test).and_then(|(_, needs)| needs())
}

fn is_wanted(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| {
        if arguments.exact { filter == name } else { name.contains(filter.as_str()) }
    };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// The world, or why there is none on this machine. What is broken is no reason.
fn start() -> Result<World, String> {
    let found = Programs::find();
    if let Err(error) = &found
        && error.is::<Missing>()
    {
        return Err(error.to_string());
    }
    match found.and_then(|programs| World::start(&programs)) {
        Ok(world) => Ok(world),
        Err(error) => {
            eprintln!("the world of the tests cannot be made: {error:?}");
            std::process::exit(1);
        }
    }
}

fn run(shared: &Mutex<Option<World>>, test: Test) -> Result<(), Failed> {
    let mut world = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = world.as_mut() else { return Err("there is no world".into()) };
    test(world).map_err(|error| {
        let log = world.server_log();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("{error:#}\n\nthe end of farm-operator's log:\n{end}").into()
    })
}
