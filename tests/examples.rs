//! The example programs, as users run them. The main function of each is tested against a
//! [`TestServer`](standalone_apiserver::TestServer) on a socket, and in the same way against a real control plane.
//! Behaviour that needs injected errors is tested in this process.
//!
//! Without a control plane, and without `go` to build one, its tests are reported as ignored. With
//! `REQUIRE_CONTROL_PLANE` set, they fail instead.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

// The modules of the examples, under the same names.
#[path = "../examples/echoes/backoff.rs"]
mod backoff;
#[allow(dead_code)]
#[path = "../examples/shared/definition.rs"]
mod definition;
#[path = "../examples/machines/device.rs"]
mod device;
#[path = "../examples/echoes/echo.rs"]
mod echo;
#[allow(dead_code)]
#[path = "../examples/collector/folder.rs"]
mod folder;
#[allow(dead_code)]
#[path = "../examples/reflected/foos.rs"]
mod foos;
#[allow(dead_code)]
#[path = "../examples/collector/kinds.rs"]
mod kinds;
#[path = "../examples/books/library.rs"]
mod library;
#[allow(dead_code)]
#[path = "../examples/shared/program.rs"]
mod program;
#[path = "../examples/echoes/reconcile.rs"]
mod reconcile;
#[allow(dead_code)]
#[path = "../examples/collector/record.rs"]
mod record;
#[allow(dead_code)]
#[path = "../examples/collector/recording.rs"]
mod recording;
#[path = "../examples/machines/subresources.rs"]
mod subresources;
#[allow(dead_code)]
#[path = "../examples/collector/typed.rs"]
mod typed;

#[path = "examples/apps.rs"]
mod apps;
#[path = "examples/books.rs"]
mod books;
#[path = "examples/collector.rs"]
mod collector;
#[path = "examples/echoes.rs"]
mod echoes;
#[path = "examples/machines.rs"]
mod machines;
#[path = "examples/reflected.rs"]
mod reflected;
#[path = "examples/world.rs"]
mod world;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use test_cluster::{ControlPlane, Programs};
use world::{Cluster, block_on, on_a_test_server};

type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Scenario = fn(&Cluster) -> Run<'_>;
type Alone = fn() -> Result<()>;
type OnControlPlane = Box<dyn FnOnce(&mut ControlPlane) -> Result<()> + Send>;

/// The main function of each program, on any cluster.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("books_are_added_and_deleted", |cluster| Box::pin(books::come_and_go(cluster))),
    ("an_older_definition_is_replaced", |cluster| Box::pin(books::had_another_definition(cluster))),
    ("echoes_have_deployments", |cluster| Box::pin(echoes::have_deployments(cluster))),
    ("echoes_do_not_change_other_objects", |cluster| Box::pin(echoes::leave_others_alone(cluster))),
    ("foos_are_served", |cluster| Box::pin(reflected::foos_are_served(cluster))),
    ("a_recording_is_served_again", |cluster| Box::pin(collector::is_served_again(cluster))),
    ("a_recording_has_rules", |cluster| Box::pin(collector::has_rules(cluster))),
    ("bad_flags_are_named", |cluster| Box::pin(collector::names_bad_flags(cluster))),
];

/// Tests that need no cluster, or start their own.
const ALONE: &[(&str, Alone)] = &[
    ("samples_are_valid", world::samples_fit_their_kinds),
    ("each_book_is_reported_once_despite_failures", books::survive_faults),
    ("an_operator_retries_after_errors", echoes::try_again),
    ("an_operator_sends_no_requests_without_events", echoes::are_quiet),
    ("retry_delays_grow_up_to_a_limit", echoes::pause),
    ("the_manifest_contains_the_definition_of_the_kind", reflected::has_a_manifest),
    ("foos_are_current_after_a_restart", reflected::survives_a_restart),
    ("no_object_name_leads_out_of_the_directory", collector::stays_in_its_folder),
    ("written_objects_equal_the_read_ones", collector::writes_what_it_read),
    ("without_a_cluster_there_is_a_clear_error", collector::needs_a_cluster),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for &(name, run) in ALONE {
        trials.push(Trial::test(name, move || run().map_err(failed)));
    }
    for &(name, scenario) in SCENARIOS {
        let run = move || on_a_test_server(scenario).map_err(failed);
        trials.push(Trial::test(format!("{name}_on_a_test_server"), run));
    }
    let shared = Arc::new(Mutex::new(None));
    trials.extend(on_a_control_plane(&arguments, &shared));
    trials.extend(of_machines(&arguments, &shared));
    trials.push(of_apps(&arguments, &shared));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Everything is stopped and removed before the process ends.
    drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
    conclusion.exit();
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Tests that share one control plane, which the first of them starts.
fn on_a_control_plane(
    arguments: &Arguments,
    shared: &Arc<Mutex<Option<ControlPlane>>>,
) -> Vec<Trial> {
    let mut tests: Vec<(String, OnControlPlane)> = Vec::new();
    for &(name, scenario) in SCENARIOS {
        let run = move |control_plane: &mut ControlPlane| {
            let kubeconfig = control_plane.kubeconfig();
            block_on(async { scenario(&Cluster::real(kubeconfig).await?).await })
        };
        tests.push((format!("{name}_on_a_control_plane"), Box::new(run)));
    }
    let restarted = "foos_are_current_after_a_restart_of_kube_apiserver".to_owned();
    tests.push((restarted, Box::new(reflected::survives_kube_apiserver)));

    let is_needed = tests.iter().any(|(name, _)| is_wanted(arguments, name));
    let programs = found(arguments, is_needed, Programs::find);
    let trial = |(name, run): (String, OnControlPlane)| {
        let shared = Arc::clone(shared);
        trial_with(name, programs.clone(), move |programs| with(&shared, &programs, run))
    };
    tests.into_iter().map(trial).collect()
}

/// Tests of machines, which also need the program with client-go.
fn of_machines(arguments: &Arguments, shared: &Arc<Mutex<Option<ControlPlane>>>) -> Vec<Trial> {
    let direct = "machines_are_served_by_a_test_server";
    let behind = "machines_are_served_behind_kube_apiserver";
    let is_needed = is_wanted(arguments, direct) || is_wanted(arguments, behind);
    let tools = found(arguments, is_needed, machines::Tools::find);
    let shared = Arc::clone(shared);
    let run_behind = move |tools: machines::Tools| {
        let programs = tools.programs.clone();
        let run = |control_plane: &mut ControlPlane| {
            machines::are_served_behind_kube_apiserver(control_plane, tools)
        };
        with(&shared, &programs, Box::new(run))
    };
    vec![
        trial_with(direct.to_owned(), tools.clone(), machines::are_served_by_a_test_server),
        trial_with(behind.to_owned(), tools, run_behind),
    ]
}

/// The test of apps, which also needs Helm and the program with client-go.
fn of_apps(arguments: &Arguments, shared: &Arc<Mutex<Option<ControlPlane>>>) -> Trial {
    let name = "apps_are_served_behind_kube_apiserver";
    let tools = found(arguments, is_wanted(arguments, name), apps::Tools::find);
    let shared = Arc::clone(shared);
    trial_with(name.to_owned(), tools, move |tools| {
        let programs = tools.programs.clone();
        let run = |control_plane: &mut ControlPlane| {
            apps::are_served_behind_kube_apiserver(control_plane, tools)
        };
        with(&shared, &programs, Box::new(run))
    })
}

/// Finds what tests need, unless none of them runs.
fn found<T>(
    arguments: &Arguments,
    is_needed: bool,
    find: impl FnOnce() -> Result<T>,
) -> Result<T, String> {
    if arguments.list || !is_needed {
        return Err("not wanted".to_owned());
    }
    find().map_err(|error| format!("{error:#}"))
}

/// A test with what it needs. Without it, the test is ignored.
fn trial_with<T: Send + 'static>(
    name: String,
    needed: Result<T, String>,
    run: impl FnOnce(T) -> Result<()> + Send + 'static,
) -> Trial {
    match needed {
        Ok(needed) => Trial::test(name, move || run(needed).map_err(failed)),
        Err(reason) => {
            let trial = Trial::test(name, move || Err(reason.into()));
            trial.with_kind("no control plane").with_ignored_flag(!test_cluster::is_required())
        }
    }
}

/// Runs one test at a time.
fn with(
    shared: &Mutex<Option<ControlPlane>>,
    programs: &Programs,
    run: OnControlPlane,
) -> Result<()> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let control_plane = match &mut *shared {
        Some(control_plane) => control_plane,
        none => none.insert(ControlPlane::start(programs, &[])?),
    };
    run(control_plane)
}

fn is_wanted(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| {
        if arguments.exact { filter == name } else { name.contains(filter.as_str()) }
    };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}
