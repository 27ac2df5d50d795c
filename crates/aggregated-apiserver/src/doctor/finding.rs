//! What was found, and how it is told.

use std::fmt;

use serde::Serialize;

/// How it begins if an answer has not come in time.
const LATE: &str = "no answer within";

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All is well.
    Ok,
    /// It works, but somebody should know.
    Warning,
    /// It cannot be seen with the rights, or from the place, of whoever looks.
    Unknown,
    /// It does not work.
    Fault,
}

/// What one check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, as `front-proxy`.
    pub check: &'static str,
    /// How it came out.
    pub outcome: Outcome,
    /// What is so.
    pub message: String,
    /// What to do about it; nothing, if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Everything that was found, in the order in which it should be mended: what comes later may be a
/// consequence of what comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The findings; of a check that finds nothing wrong there is one.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Whether everything could be looked at, and nothing was found that does not work.
    pub fn is_healthy(&self) -> bool {
        self.exit_code() == 0
    }

    /// What a program ends with that tells this: 0 if all is well, 1 if something does not work, 2 if nothing is
    /// known that does not, and not everything could be looked at.
    pub fn exit_code(&self) -> i32 {
        let has = |outcome| self.findings.iter().any(|finding| finding.outcome == outcome);
        match (has(Outcome::Fault), has(Outcome::Unknown)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        }
    }

    /// The diagnosis as JSON.
    pub fn to_json(&self) -> String {
        // Texts alone.
        let document = serde_json::json!({"healthy": self.is_healthy(), "findings": self.findings});
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

/// A line for each finding, and one for what to do.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { check, outcome, message, remedy } in &self.findings {
            let outcome = match outcome {
                Outcome::Ok => "ok",
                Outcome::Warning => "WARNING",
                Outcome::Unknown => "unknown",
                Outcome::Fault => "FAULT",
            };
            writeln!(f, "{outcome:<8} {check:<16} {message}")?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:<25} {remedy}", "-> ")?;
            }
        }
        Ok(())
    }
}

/// The findings of one check, while it looks.
pub(super) struct Check {
    name: &'static str,
    findings: Vec<Finding>,
}

impl Check {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, findings: Vec::new() }
    }

    pub(super) fn fault(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Fault, message.into(), Some(remedy.into()));
    }

    pub(super) fn warn(&mut self, message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Warning, message.into(), Some(remedy.into()));
    }

    /// What could not be seen, and why.
    pub(super) fn unknown(&mut self, what: &str, why: &str) {
        let remedy = match why.starts_with(LATE) {
            true => "look again when the cluster answers: kubectl get --raw '/readyz?verbose'",
            false => "look again as an administrator of the cluster (--kubeconfig)",
        };
        self.unseen(what, why, remedy);
    }

    /// The same, where more rights are not what helps.
    pub(super) fn unseen(&mut self, what: &str, why: &str, remedy: impl Into<String>) {
        let message = format!("{what} cannot be seen: {why}");
        self.add(Outcome::Unknown, message, Some(remedy.into()));
    }

    /// The findings; this one, if nothing was found.
    pub(super) fn done(mut self, well: impl Into<String>) -> Vec<Finding> {
        if self.findings.is_empty() {
            self.add(Outcome::Ok, well.into(), None);
        }
        self.findings
    }

    /// What was found, if anything was.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    fn add(&mut self, outcome: Outcome, message: String, remedy: Option<String>) {
        // What the cluster says may have lines of its own.
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let remedy = remedy.map(line);
        self.findings.push(Finding { check: self.name, outcome, message: line(message), remedy });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_not_well() {
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
    fn a_finding_is_a_line_and_what_to_do_is_another() {
        let mut check = Check::new("service");
        check.fault("Service a/b is\nmissing", "kubectl apply -f -");
        let mut diagnosis = Diagnosis { findings: check.done("well") };
        assert!(!diagnosis.is_healthy());
        assert_eq!(diagnosis.exit_code(), 1);
        diagnosis.findings.extend(Check::new("clock").done("right"));
        let expected = "FAULT    service          Service a/b is missing\n->                        kubectl apply -f -\nok       clock            right\n";
        assert_eq!(diagnosis.to_string(), expected);
        let json: serde_json::Value = serde_json::from_str(&diagnosis.to_json()).unwrap();
        assert_eq!(json["healthy"], false);
        assert_eq!(
            json["findings"][1],
            serde_json::json!({"check": "clock", "outcome": "ok", "message": "right"})
        );
    }
}
