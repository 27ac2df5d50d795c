//! Finds or builds the programs of a control plane.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The same environment variable as the envtest tools of controller-runtime.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
const NAMES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];
/// The Go module that pins the versions of their sources.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");
const VERSION: (&str, &str) = ("1", "36");
const RELEASE: &str = "v1.36.3";

/// The error if the programs are not installed and cannot be built.
#[derive(Clone, Debug)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Missing {}

/// The programs of a control plane.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Finds the programs. They are searched in the directory `$KUBEBUILDER_ASSETS`, then in the user's cache. If `go`
    /// is on the path, they are otherwise built into the cache from the sources of Go's module proxy, which takes about
    /// five minutes once.
    ///
    /// # Errors
    /// [`Missing`] when the programs are not found and there is no `go`; another error when they cannot be built.
    pub fn find() -> Result<Self> {
        let mut missing = format!("${ASSETS} is not set");
        if let Some(folder) = env::var_os(ASSETS).map(PathBuf::from) {
            match absent(&folder) {
                None => return Ok(Self { folder }),
                Some(name) => missing = format!("${ASSETS} holds no {name}"),
            }
            eprintln!("{missing}: looking elsewhere");
        }
        let folder = cache()?;
        if absent(&folder).is_none() {
            return Ok(Self { folder });
        }
        if !has_go() {
            let nothing = format!("nothing is in {}", folder.display());
            return Err(
                Missing(format!("{missing}, {nothing}, and there is no go to build it")).into()
            );
        }
        build(&folder)?;
        Ok(Self { folder })
    }

    /// Builds `informer` unless it exists. It watches a resource with the informer that controllers in Go use:
    /// `informer KUBECONFIG GROUP VERSION RESOURCE`.
    ///
    /// # Errors
    /// [`Missing`] when it does not exist and there is no `go`.
    pub fn informer() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./informer", &["go.mod", "go.sum", "informer/main.go"])
    }

    /// Builds `protobuf`, which encodes objects in the same way as clients in Go: a line of JSON in, a line of JSON
    /// with base64 out.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn protobuf() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./protobuf", &["go.mod", "go.sum", "protobuf/main.go"])
    }

    /// Builds `types`, which describes the types of Kubernetes: `types v1 apps/v1`.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn types() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./types", &["go.mod", "go.sum", "types/main.go"])
    }

    /// Builds `parsers`, which returns the results of Go's parsers of URLs, patterns and IP addresses. A request and
    /// its response are a line of JSON each.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn parsers() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./parsers", &["go.mod", "go.sum", "parsers/main.go"])
    }

    /// Builds `promlint`, which parses metrics with the parser of Prometheus and prints the findings of `promtool check
    /// metrics`, one per line.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn promlint() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./promlint", &["go.mod", "go.sum", "promlint/main.go"])
    }

    /// Builds `typed` unless it exists. It uses every kind with the typed clients of Go: `typed KUBECONFIG
    /// json|protobuf`.
    ///
    /// # Errors
    /// [`Missing`] when it does not exist and there is no `go`.
    pub fn typed() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        let mut sources = vec!["go.mod".to_owned(), "go.sum".to_owned()];
        for file in fs::read_dir(module.join("typed"))? {
            sources.push(format!("typed/{}", file?.file_name().to_string_lossy()));
        }
        sources.sort();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        Self::built(module, "./typed", &sources)
    }

    /// Builds `streams`, which executes remote commands and forwards ports: `streams exec TRANSPORT URL [tty]`, `streams
    /// forward TRANSPORT URL PORT`.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn streams() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./streams", &["go.mod", "go.sum", "streams/main.go"])
    }

    /// Builds `watches`, which opens many concurrent watches with a few HTTP clients: `watches KUBECONFIG h2|http1
    /// CLIENTS WATCHES PATH OBJECT`.
    ///
    /// # Errors
    /// Same as [`Programs::informer`].
    pub fn watches() -> Result<PathBuf> {
        let module = Path::new(MODULE);
        Self::built(module, "./watches", &["go.mod", "go.sum", "watches/main.go"])
    }

    /// Finds kine, which implements etcd's protocol with a database: the program in `$KINE`.
    ///
    /// # Errors
    /// [`Missing`] when `$KINE` is not set. This project does not build kine.
    pub fn kine() -> Result<PathBuf> {
        let program = env::var_os("KINE").map(PathBuf::from);
        program.ok_or_else(|| Missing("$KINE is not set".to_owned()).into())
    }

    /// Finds Helm: the program in `$HELM`, or one that is built from the sources of Go's module proxy, which takes a
    /// minute or two once.
    ///
    /// # Errors
    /// [`Missing`] when there is neither, nor a `go` to build it.
    pub fn helm() -> Result<PathBuf> {
        if let Some(program) = env::var_os("HELM") {
            return Ok(program.into());
        }
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("helm");
        Self::built(&module, "helm.sh/helm/v3/cmd/helm", &["go.mod", "go.sum"])
    }

    /// Builds a program from a package of a Go module, unless it was built before from the same `sources`. The sources
    /// are files of the module.
    ///
    /// # Errors
    /// [`Missing`] when it was not built before and there is no `go`.
    pub fn built(module: &Path, package: &str, sources: &[&str]) -> Result<PathBuf> {
        let sources: Vec<PathBuf> = sources.iter().map(|source| module.join(source)).collect();
        let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        let name = package.rsplit('/').next().unwrap_or(package);
        let program = cache()?.with_file_name(format!("{name}-{}", hash(&sources)?));
        if program.is_file() {
            return Ok(program);
        }
        if !has_go() {
            return Err(Missing(format!("there is no go to build {name} with")).into());
        }
        let parent = program.parent().context("the cache has no parent")?;
        let _turn = turn(parent)?;
        if program.is_file() {
            return Ok(program);
        }
        let unfinished = tempfile::tempdir_in(parent)?;
        let built = unfinished.path().join(name);
        go_build(module, "-s -w", &built, &[package.to_owned()])?;
        fs::rename(built, &program)?;
        Ok(program)
    }

    /// Returns the path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn absent(folder: &Path) -> Option<&'static str> {
    NAMES.into_iter().find(|name| !folder.join(name).is_file())
}

/// Returns the cache directory of the programs. Its name contains a hash of their versions.
fn cache() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let base = base.context("neither $XDG_CACHE_HOME nor $HOME is set")?;
    let sources = ["go.mod", "go.sum"].map(|file| Path::new(MODULE).join(file));
    let hash = hash(&sources.each_ref().map(PathBuf::as_path))?;
    Ok(base.join(format!("kubernetes-control-plane/{RELEASE}-{hash}")))
}

fn hash(files: &[&Path]) -> Result<String> {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(fs::read(file)?);
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn has_go() -> bool {
    Command::new("go").arg("version").output().is_ok()
}

/// Builds one package into a file, or several packages into a directory.
fn go_build(module: &Path, flags: &str, into: &Path, packages: &[String]) -> Result<()> {
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", flags, "-o"])
        .arg(into)
        .args(packages)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .status()?;
    if !status.success() {
        bail!("go build: {status}");
    }
    Ok(())
}

/// Waits until no other process builds into this directory, which is created if it is missing. The lock is released
/// when the file is closed, also when the process is killed.
fn turn(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder)?;
    let file = File::create(folder.join(".building"))?;
    file.lock().context("waiting for another build")?;
    Ok(file)
}

fn build(folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the cache has no parent")?;
    let _turn = turn(parent)?;
    if absent(folder).is_none() {
        return Ok(());
    }
    let unfinished = tempfile::tempdir_in(parent)?;
    eprintln!(
        "building etcd, kube-apiserver, kube-controller-manager and kubectl {RELEASE} into {}: this happens once and takes about five minutes",
        folder.display()
    );
    let started = Instant::now();
    let (major, minor) = VERSION;
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let flags = [
        "-s -w".to_owned(),
        set("gitVersion", RELEASE),
        set("gitMajor", major),
        set("gitMinor", minor),
        set("gitTreeState", "clean"),
    ];
    let mut packages = vec!["go.etcd.io/etcd/server/v3".to_owned()];
    packages.extend(NAMES[1..].iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")));
    go_build(Path::new(MODULE), &flags.join(" "), unfinished.path(), &packages)?;
    // The package of etcd is named `server`.
    fs::rename(unfinished.path().join("server"), unfinished.path().join("etcd"))?;
    let finished = unfinished.keep();
    // An interrupted run may have left an incomplete directory.
    let _ = fs::remove_dir_all(folder);
    if let Err(error) = fs::rename(&finished, folder) {
        let _ = fs::remove_dir_all(&finished);
        return Err(error).context("keeping what was built");
    }
    eprintln!("built in {} s", started.elapsed().as_secs());
    Ok(())
}
