//! Runs the example that serves definitions from files.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use test_cluster::{Authority, Process};

/// The timeout for the start, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// The path where `cargo test` builds examples.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/serve_crd");
    assert!(program.is_file(), "`cargo test` without --test builds {}", program.display());
    program
}

fn definition(plural: &str, kind: &str, more: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{plural: {plural}, kind: {kind}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {{spec: {{type: object, properties: {{text: {{type: string{more}}}}}}}}}
"
    )
}

/// Writes two documents into one file, and one into another.
fn files(folder: &Path, more: &str) -> [PathBuf; 2] {
    let several =
        format!("{}---\n{}", definition("larks", "Lark", ""), definition("owls", "Owl", ""));
    let files = [folder.join("several.yaml"), folder.join("one.yaml")];
    std::fs::write(&files[0], several).unwrap();
    std::fs::write(&files[1], definition("wrens", "Wren", more)).unwrap();
    files
}

fn manifests(files: &[PathBuf], more: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("manifests").args(more).arg("--crd").args(files);
    command.output().unwrap()
}

#[test]
fn invalid_patterns_are_reported_and_unenforced_ones_need_allow_partial() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), ", pattern: \"(?=a)\"");
    let refused = manifests(&files, &[]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    let field = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[text].pattern";
    assert!(errors.contains(&format!("wrens.example.com: {field}: Invalid value")), "{errors}");
    let files = self::files(folder.path(), &format!(", pattern: \"{}\"", r"\\pL{500}"));
    let refused = manifests(&files, &[]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains(&format!("wrens.example.com: {field}: is not enforced")), "{errors}");
    let served = manifests(&files, &["--allow-partial"]);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    let printed = String::from_utf8(served.stdout).unwrap();
    for plural in ["larks", "owls", "wrens"] {
        assert!(printed.contains(plural), "{printed}");
    }
}

#[test]
fn a_missing_crd_file_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.yaml");
    let refused = manifests(std::slice::from_ref(&missing), &[]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors.contains(&format!("--crd {}", missing.display())), "{errors}");
}

#[test]
fn serve_crd_starts_with_several_definitions_and_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let authority = Authority::new("ca", &path.join("ca.crt")).unwrap();
    authority.server(path, "serving", &["localhost"]).unwrap();
    // No program listens on this port. An unreachable cluster does not prevent the start.
    let kubeconfig = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
        "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
        "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
        "users":[{"name":"u","user":{}}]}"#;
    std::fs::write(path.join("kubeconfig"), kubeconfig).unwrap();
    let mut command = Command::new(program());
    command
        .args(["--bind-address", "127.0.0.1", "--secure-port", "0"])
        .arg("--kubeconfig")
        .arg(path.join("kubeconfig"))
        .arg("--tls-cert-file")
        .arg(path.join("serving.crt"))
        .arg("--tls-private-key-file")
        .arg(path.join("serving.key"))
        .arg("--crd")
        .args(files(path, ""));
    let mut process = Process::spawn(&command, &path.join("log")).unwrap();
    let deadline = Instant::now() + START;
    while !process.printed().contains("address=127.0.0.1:") {
        process.ensure_running().unwrap();
        assert!(Instant::now() < deadline, "{}", process.printed());
        thread::sleep(Duration::from_millis(10));
    }
    for plural in ["larks", "owls", "wrens"] {
        let printed = process.printed();
        let line = printed.lines().find(|line| line.contains("storing objects in memory"));
        assert!(
            line.is_some_and(|line| line.contains(&format!("{plural}.example.com"))),
            "{printed}"
        );
    }
}
