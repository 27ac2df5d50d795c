//! The findings of the checks, and their output formats.

use std::fmt::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// The prefix of errors that report a timeout.
const LATE: &str = "no answer within";

/// The width of the column of outcomes.
const OUTCOME: usize = 8;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// No problem was found.
    Ok,
    /// It works, but an administrator should know about it.
    Warning,
    /// The check was not possible with these permissions or from this machine.
    Unknown,
    /// It does not work.
    Error,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check, for example `front-proxy`.
    pub check: &'static str,
    /// The outcome of the check.
    pub outcome: Outcome,
    /// The description of the finding.
    pub message: String,
    /// The remedy; `None` if there is no problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All findings, in the order in which problems should be fixed: a later problem may be the consequence of an earlier
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The findings. A check without problems has one finding.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Whether every check was possible and no check found an error.
    pub fn is_healthy(&self) -> bool {
        self.exit_code() == 0
    }

    /// The exit code of the program: 0 if there is no error, 1 if something does not work, 2 if nothing is known to
    /// fail but some checks were not possible.
    pub fn exit_code(&self) -> i32 {
        let has = |outcome| self.findings.iter().any(|finding| finding.outcome == outcome);
        match (has(Outcome::Error), has(Outcome::Unknown)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        }
    }

    /// The diagnosis as text in which the outcomes have colours.
    pub fn to_styled(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let (line, style) = (finding.to_string(), finding.outcome.style());
            let (outcome, rest) = line.split_at(OUTCOME);
            // Writing to a string cannot fail.
            let _ = write!(text, "{style}{outcome}{style:#}{rest}");
        }
        text
    }

    /// The diagnosis as JSON.
    pub fn to_json(&self) -> String {
        // Serialization cannot fail, because all values are strings.
        let document = serde_json::json!({"healthy": self.is_healthy(), "findings": self.findings});
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

impl Outcome {
    /// The word at the beginning of a line.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "WARNING",
            Self::Unknown => "unknown",
            Self::Error => "ERROR",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
            Self::Unknown => AnsiColor::Cyan.on_default(),
            Self::Error => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// Formats one line for the finding, and one for its remedy.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, outcome, message, remedy } = self;
        writeln!(f, "{:<OUTCOME$} {check:<16} {message}", outcome.word())?;
        match remedy {
            Some(remedy) => writeln!(f, "{:<25} {remedy}", "-> "),
            None => Ok(()),
        }
    }
}

/// Formats the findings in their order.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| finding.fmt(f))
    }
}

/// Collects the findings of one check.
pub(super) struct Check {
    name: &'static str,
    findings: Vec<Finding>,
}

impl Check {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, findings: Vec::new() }
    }

    pub(super) fn fault(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Error, message.into(), Some(remedy.into()));
    }

    pub(super) fn warn(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Warning, message.into(), Some(remedy.into()));
    }

    /// Adds that something cannot be read, and why. The remedy is derived from the reason.
    pub(super) fn unknown(&mut self, what: &str, why: &str) {
        let remedy = match why.starts_with(LATE) {
            true => "retry when the cluster responds: kubectl get --raw '/readyz?verbose'",
            false => "retry as an administrator of the cluster (--kubeconfig)",
        };
        self.unseen(what, why, remedy);
    }

    /// Adds that something cannot be read, with a remedy other than more permissions.
    pub(super) fn unseen(&mut self, what: &str, why: &str, remedy: impl Into<String>) {
        let message = format!("cannot read {what}: {why}");
        self.add(Outcome::Unknown, message, Some(remedy.into()));
    }

    /// Returns the findings. Without findings, returns one with the outcome `Ok` and this message.
    pub(super) fn done(mut self, well: impl Into<String>) -> Vec<Finding> {
        if self.findings.is_empty() {
            self.add(Outcome::Ok, well.into(), None);
        }
        self.findings
    }

    /// Returns the findings, possibly none.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    fn add(&mut self, outcome: Outcome, message: String, remedy: Option<String>) {
        // A message from the cluster may have several lines.
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let remedy = remedy.map(line);
        self.findings.push(Finding { check: self.name, outcome, message: line(message), remedy });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_findings_make_a_diagnosis_unhealthy() {
        let mut check = Check::new("service");
        check.unknown("Service a/b", "services is forbidden");
        check.unknown("Service a/c", "no answer within 10 s");
        let mut diagnosis = Diagnosis { findings: check.done("well") };
        assert!(diagnosis.findings[0].remedy.as_ref().unwrap().contains("administrator"));
        assert!(diagnosis.findings[1].remedy.as_ref().unwrap().contains("readyz"));
        assert_eq!((diagnosis.exit_code(), diagnosis.is_healthy()), (2, false));
        diagnosis.findings = Check::new("clock").done("right");
        assert_eq!((diagnosis.exit_code(), diagnosis.is_healthy()), (0, true));
    }

    #[test]
    fn only_the_outcome_is_styled() {
        let mut check = Check::new("service");
        check.fault("it is missing", "create it");
        let diagnosis = Diagnosis { findings: check.done("") };
        let styled = diagnosis.to_styled();
        assert!(styled.starts_with("\u{1b}[1m\u{1b}[31mERROR   \u{1b}[0m service"), "{styled:?}");
        let plain = styled.replace("\u{1b}[1m\u{1b}[31m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, diagnosis.to_string());
    }

    #[test]
    fn a_finding_is_printed_as_one_line_followed_by_its_remedy() {
        let mut check = Check::new("service");
        check.fault("Service a/b is\nmissing", "kubectl apply -f -");
        let mut diagnosis = Diagnosis { findings: check.done("well") };
        assert!(!diagnosis.is_healthy());
        assert_eq!(diagnosis.exit_code(), 1);
        diagnosis.findings.extend(Check::new("clock").done("right"));
        let expected = "ERROR    service          Service a/b is missing\n->                        kubectl apply -f -\nok       clock            right\n";
        assert_eq!(diagnosis.to_string(), expected);
        let json: serde_json::Value = serde_json::from_str(&diagnosis.to_json()).unwrap();
        assert_eq!(json["healthy"], false);
        assert_eq!(
            json["findings"][1],
            serde_json::json!({"check": "clock", "outcome": "ok", "message": "right"})
        );
    }
}
