//! `/version`: the version of the server, and the release of Kubernetes whose behavior it has.

use serde::Serialize;

use crate::document::Document;

const OWN: &str = env!("CARGO_PKG_VERSION");

/// The document, with fields in the order of kube-apiserver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version<'a> {
    major: &'a str,
    minor: &'a str,
    git_version: &'a str,
    git_commit: &'a str,
    git_tree_state: &'a str,
    build_date: &'a str,
    go_version: &'a str,
    compiler: &'a str,
    platform: String,
}

/// The document. Its version is `v1.36.3+farm-operator.0.1.0` for a server with the behavior of a release of
/// Kubernetes, and the server's own version otherwise.
pub(super) fn document(name: &str, kubernetes: Option<&str>, commit: &str) -> Document {
    let git_version = match kubernetes {
        Some(release) => format!("{release}+{name}.{OWN}"),
        None => format!("v{OWN}"),
    };
    let mut numbers = git_version.trim_start_matches('v').split('.');
    let mut next = || numbers.next().unwrap_or_default();
    Document::indented_json(&Version {
        major: next(),
        minor: next(),
        git_version: &git_version,
        git_commit: commit,
        git_tree_state: "",
        build_date: "",
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_version_document_reports_the_emulated_kubernetes_release() {
        let read = |kubernetes: Option<&str>| -> Value {
            serde_json::from_slice(&document("farm", kubernetes, "c0ffee").body).unwrap()
        };
        let standalone = read(Some("v1.36.3"));
        assert_eq!(standalone["gitVersion"], format!("v1.36.3+farm.{OWN}"));
        assert_eq!((&standalone["major"], &standalone["minor"]), (&"1".into(), &"36".into()));
        assert_eq!(read(None)["gitVersion"], format!("v{OWN}"));
        assert_eq!(read(None)["gitCommit"], "c0ffee");
        let text = document("farm", Some("v1.36.3"), "").body;
        assert!(
            text.starts_with(b"{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n  \"gitVersion\": ")
        );
    }
}
