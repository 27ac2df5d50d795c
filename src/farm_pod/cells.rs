//! The table cells of farm pods that a JSONPath cannot express.

use aggregated_apiserver::PrinterColumns;
use aggregated_apiserver::strategy::age;
use jiff::Timestamp;

use super::{FarmPod, FarmPodStatus, Why, budgets, images, resources, restarts};

/// Returns the computed cells of farm pods.
pub fn printer_columns() -> PrinterColumns<FarmPod> {
    let of = |cell: fn(&FarmPodStatus) -> Option<String>| {
        move |farm_pod: &FarmPod, _: Timestamp| farm_pod.status.as_ref().and_then(cell)
    };
    PrinterColumns::new()
        .cell("Restarts", |farm_pod: &FarmPod, now| {
            let status = farm_pod.status.as_ref()?;
            Some(restarts::cell(status.restarts, status.last_restart_time.as_ref(), now))
        })
        .cell(
            "CPU",
            of(|status| {
                let cpu = &status.resources.cpu;
                resources::usage_cell(cpu, cpu.percent_of_request, resources::cpu_cell)
            }),
        )
        .cell(
            "Mem",
            of(|status| {
                let memory = &status.resources.memory;
                resources::usage_cell(memory, memory.percent_of_limit, resources::memory_cell)
            }),
        )
        .cell(
            "CPU Used",
            of(|status| resources::used_cell(&status.resources.cpu, resources::cpu_cell)),
        )
        .cell(
            "Mem Used",
            of(|status| resources::used_cell(&status.resources.memory, resources::memory_cell)),
        )
        .cell("Why", |farm_pod: &FarmPod, now| {
            Some(why(farm_pod.status.as_ref()?.why.as_ref()?, now))
        })
        .cell("Images", of(|status| text(images::cell(&status.images))))
        .cell("Services", of(|status| text(status.services.join(","))))
        .cell("Budgets", of(|status| budgets::cell(&status.budgets)))
}

fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Formats a cause, for example `OOMKilled (5m): container feeder ended with exit code 137 (SIGKILL)`.
fn why(why: &Why, now: Timestamp) -> String {
    let Why { code, message, since, .. } = why;
    let since = since.as_ref().map(|since| format!(" ({})", age(since.0, now))).unwrap_or_default();
    match message.as_str() {
        "" => format!("{code}{since}"),
        message => format!("{code}{since}: {message}"),
    }
}
