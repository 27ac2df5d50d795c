//! `/version`: what the server is, and as which release of Kubernetes it behaves.

use serde_json::json;

use crate::document::Document;

const OWN: &str = env!("CARGO_PKG_VERSION");

/// The document: `v1.36.3+farm-operator.0.1.0` of a server that behaves as a release
/// of Kubernetes, else its own version.
pub(super) fn document(name: &str, kubernetes: Option<&str>, commit: &str) -> Document {
    let git_version = match kubernetes {
        Some(release) => format!("{release}+{name}.{OWN}"),
        None => format!("v{OWN}"),
    };
    let mut numbers = git_version.trim_start_matches('v').split('.');
    let mut next = || numbers.next().unwrap_or_default().to_owned();
    Document::json(&json!({
        "major": next(),
        "minor": next(),
        "gitVersion": git_version,
        "gitCommit": commit,
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn says_which_release_it_behaves_as() {
        let read = |kubernetes: Option<&str>| -> Value {
            serde_json::from_slice(&document("farm", kubernetes, "c0ffee").body).unwrap()
        };
        let standalone = read(Some("v1.36.3"));
        assert_eq!(standalone["gitVersion"], format!("v1.36.3+farm.{OWN}"));
        assert_eq!((&standalone["major"], &standalone["minor"]), (&"1".into(), &"36".into()));
        assert_eq!(read(None)["gitVersion"], format!("v{OWN}"));
        assert_eq!(read(None)["gitCommit"], "c0ffee");
    }
}
