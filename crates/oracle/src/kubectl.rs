//! Runs kubectl commands and compares their output: `kubectl.calls` runs behind an aggregator, `kubectl-built-in.calls`
//! without a cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use test_cluster::ControlPlane;

/// A patch type that is not implemented: docs/reference/differences.md.
const NOT_SERVED: &str = ", application/apply-patch+yaml";

/// Patterns of values that differ each time, with their replacements: versions, uids, times, ages and generated names.
static BY_CHANCE: LazyLock<Result<Vec<(Regex, &'static str)>, regex::Error>> =
    LazyLock::new(|| {
        let masks = [
            (r#"resourceVersion("?): "\d+""#, "resourceVersion$1: VERSION"),
            (r"Resource Version: +\d+", "Resource Version: VERSION"),
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
            (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
            (r"\b(\d+m)?\d+s\b", "AGE"),
            (r"made-[a-z0-9]{5}\b", "made-SUFFIX"),
        ];
        masks.into_iter().map(|(mask, name)| Ok((Regex::new(mask)?, name))).collect()
    });

#[derive(Debug, PartialEq, Eq)]
struct Call {
    arguments: Vec<String>,
    input: String,
}

fn parse(text: &str, namespace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(arguments) = line.strip_prefix("$ ") {
            let words = arguments.split_whitespace();
            let arguments = words.map(|word| if word == "@" { namespace } else { word }.to_owned());
            calls.push(Call { arguments: arguments.collect(), input: String::new() });
        } else if let Some(call) = calls.last_mut() {
            call.input.push_str(line);
            call.input.push('\n');
        }
    }
    calls
}

/// Runs every command of a file with both kubeconfigs. Returns the differences of their output as text.
///
/// # Errors
/// When the file or kubectl does not exist.
pub fn compare(plane: &ControlPlane, file: &str, there: &Path, here: &Path) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let calls = parse(&std::fs::read_to_string(file)?, "kubectl-calls");
    ensure!(!calls.is_empty(), "there are no calls");
    let mut report = String::new();
    for call in calls {
        let ask = |kubeconfig: &Path| -> Result<String> {
            let asked =
                plane.kubectl_as(kubeconfig, &call.arguments).input(&call.input).output()?;
            let text = format!("{}{}", asked.output, asked.errors);
            Ok(format!("{}\n(succeeded: {})\n", masked(&text)?, asked.succeeded))
        };
        let (theirs, ours) = (ask(there)?, ask(here)?);
        if theirs != ours {
            let call = call.arguments.join(" ");
            let _ =
                write!(report, "$ kubectl {call}\n--- kube-apiserver\n{theirs}--- we\n{ours}\n");
        }
    }
    Ok(report)
}

fn masked(text: &str) -> Result<String> {
    let masks = BY_CHANCE.as_ref().ok().context("the masks are no expressions")?;
    let masked = masks.iter().fold(text.replace(NOT_SERVED, ""), |text, (mask, name)| {
        mask.replace_all(&text, *name).into_owned()
    });
    // Column widths depend on the values that were masked.
    let lines = masked.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_where_the_next_begins() {
        let calls = parse("# words\n\n$ -n @ apply -f -\na: 1\n\n$ get pods\n", "x");
        let [apply, get] = calls.as_slice() else { panic!("{calls:?}") };
        assert_eq!(apply.arguments, ["-n", "x", "apply", "-f", "-"]);
        assert_eq!((apply.input.trim(), get.input.trim()), ("a: 1", ""));
    }

    #[test]
    fn generated_values_in_kubectl_output_are_masked() {
        let text = "a   12s\nuid: 0a1b2c3d-0000-4000-8000-000000000000\nresourceVersion: \"7\"\n";
        assert_eq!(masked(text).unwrap(), "a AGE\nuid: UID\nresourceVersion: VERSION");
    }
}
