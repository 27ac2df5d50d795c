//! The text format of Prometheus for metrics.

/// Counters without the suffix `_total` that OpenMetrics requires, because kube-apiserver's names lack it.
const NOT_TOTAL: [&str; 1] = ["authentication_attempts"];

/// Converts the OpenMetrics format into the older format 0.0.4. In the older format, `HELP` and `TYPE` lines contain
/// the whole name of a counter, and there is no `EOF` line.
pub(super) fn as_0_0_4(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let total = |name: &str| if NOT_TOTAL.contains(&name) { "" } else { "_total" };
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        let counter = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter"));
        if let Some((name, words)) = help {
            let next = lines.peek().copied().unwrap_or_default();
            let total = if next.ends_with(" counter") { total(name) } else { "" };
            text.push_str(&format!("# HELP {name}{total} {words}"));
        } else if let Some(name) = counter {
            text.push_str(&format!("# TYPE {name}{} counter", total(name)));
        } else if line == "# EOF" {
            continue;
        } else if let Some((name, rest)) =
            line.split_once("_total{").filter(|(name, _)| NOT_TOTAL.contains(name))
        {
            text.push_str(&format!("{name}{{{rest}"));
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::as_0_0_4;

    #[test]
    fn counters_are_described_by_the_names_of_their_samples() {
        let text = "# HELP a_b Words.\n# TYPE a_b counter\na_b_total{c=\"d\"} 1\n# EOF\n";
        let expected = "# HELP a_b_total Words.\n# TYPE a_b_total counter\na_b_total{c=\"d\"} 1\n";
        assert_eq!(as_0_0_4(text), expected);
        let text = "# HELP authentication_attempts Words.\n# TYPE authentication_attempts counter\nauthentication_attempts_total{c=\"d\"} 1\n# EOF\n";
        assert_eq!(as_0_0_4(text), text.replace("_total", "").replace("# EOF\n", ""));
    }
}
