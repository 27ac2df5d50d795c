//! The program in an image of its own, which podman runs like a node does (`image/run`). `image/build` checks that the
//! program of a release needs no other files, by a build with musl. This test uses a test build, and copies its
//! libraries into the image.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::path::Path;
use std::process::{Command, Output};

/// The output of a command, or `None` if the program does not exist.
fn run(command: &mut Command) -> Option<Output> {
    command.output().ok()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_container_image_runs_as_an_unprivileged_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (storage, archive) = (path("storage"), path("image.tar"));
    let buildah = |arguments: &[&str]| {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
        run(command.args(["--storage-driver", "vfs"]).args(arguments))
    };
    let made = buildah(&["from", "scratch"]).filter(|made| made.status.success());
    let Some(made) = made else {
        eprintln!("not done: there is no buildah that works here (apt-get install buildah podman)");
        return;
    };
    let container = String::from_utf8(made.stdout).unwrap();
    let container = container.trim();
    let program = env!("CARGO_BIN_EXE_farm-operator");
    let libraries = run(Command::new("ldd").arg(program)).expect("ldd");
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let files = libraries.map(|library| (library, library));
    for (from, to) in files.chain([(program, "/farm-operator")]) {
        let from = std::fs::canonicalize(from).unwrap();
        let copied = buildah(&["copy", "--quiet", container, from.to_str().unwrap(), to]).unwrap();
        assert!(copied.status.success(), "{to}: {}", printed(&copied));
    }
    let entrypoint = r#"["/farm-operator"]"#;
    let user = ["config", "--user", "65532:65532", "--entrypoint", entrypoint, container];
    assert!(buildah(&user).unwrap().status.success());
    let to = format!("oci-archive:{}:farm-operator", archive.display());
    let committed = buildah(&["commit", "--quiet", container, &to]).unwrap();
    assert!(committed.status.success(), "{}", printed(&committed));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("image/run");
    let tried = run(Command::new(script).arg(&archive)).expect("image/run");
    let said = printed(&tried);
    match tried.status.code() {
        Some(0) => assert!(said.contains("it runs as user 65532:65532"), "{said}"),
        Some(3) => eprintln!("{said}"),
        code => panic!("{code:?}: {said}"),
    }
}
