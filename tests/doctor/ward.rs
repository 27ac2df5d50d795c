//! A healthy installation, and the doctor command, as an administrator runs it.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::{Kubectl, Programs};

use crate::harness::Shared;
use crate::world::{API_SERVICES, NAMESPACE, PATIENCE, World, install};

/// Longer than the doctor may take in any cluster.
const ROUND: std::time::Duration = std::time::Duration::from_secs(100);
/// The number of doctor runs for which kube-apiserver is made to check availability once.
const LOOKS: u32 = 12;

pub struct Ward {
    pub world: World,
    number: AtomicU32,
}

impl Shared for Ward {
    fn start(programs: &Programs) -> Result<Self> {
        Ok(Self { world: World::start(programs)?, number: AtomicU32::new(0) })
    }

    fn server_log(&self) -> String {
        self.world.server_log()
    }

    fn mend(&mut self) -> Result<()> {
        install(&self.world.control_plane)?;
        self.world.restart_server()?;
        self.lead_to(self.world.port)?;
        self.wait_well()
    }
}

impl Ward {
    pub fn kubectl<const N: usize>(&self, arguments: [&str; N]) -> Kubectl {
        self.world.kubectl(arguments)
    }

    /// Applies this object, or these.
    pub fn apply(&self, objects: &Value) -> Result<()> {
        self.kubectl(["apply", "-f", "-"]).input(&objects.to_string()).run()?;
        Ok(())
    }

    /// Pipes the manifests into this kubectl command. Messages about unchanged objects do not matter, because the
    /// missing object must exist afterwards.
    pub fn follow(&self, command: &[&str]) -> Result<()> {
        let manifest = std::fs::read_to_string(crate::world::manifest_file())?;
        let mut arguments = command.to_vec();
        arguments.extend(["-f", "-"]);
        self.world.control_plane.kubectl(arguments).input(&manifest).output()?;
        Ok(())
    }

    /// Makes the APIServices and the Service refer to a port of this machine.
    pub fn lead_to(&self, port: u16) -> Result<()> {
        let service = (NAMESPACE, farm_operator::NAME);
        self.world.control_plane.lead_to_localhost(&API_SERVICES, service, port)
    }

    /// Patches all APIServices of the server.
    pub fn patch_api_services(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        for api_service in API_SERVICES {
            let change = ["patch", "apiservice", api_service, "--type=merge", "-p", &patch];
            self.kubectl(change).run()?;
        }
        Ok(())
    }

    /// Runs doctor. Returns its output and exit code.
    pub fn ask(&self, arguments: &[&str]) -> Result<(String, i32)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        command.arg("doctor").args(arguments).env_remove("KUBECONFIG");
        if !arguments.contains(&"--kubeconfig") {
            command.arg("--kubeconfig").arg(self.world.control_plane.kubeconfig());
        }
        let started = Instant::now();
        let output = command.output()?;
        ensure!(started.elapsed() < ROUND, "it took {:?}", started.elapsed());
        let printed = String::from_utf8(output.stdout)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().with_context(|| format!("it was killed: {errors}"))?;
        Ok((printed, code))
    }

    /// Runs doctor until this check has the outcome, with these words and this remedy.
    pub fn wait_for(&self, check: &str, outcome: &str, words: &str, remedy: &str) -> Result<()> {
        let arguments = ["-o", "json"];
        let mut looks = 0;
        self.world.eventually(|| {
            self.make_kube_apiserver_look(&mut looks)?;
            let (printed, code) = self.ask(&arguments)?;
            let said: Value = serde_json::from_str(&printed)?;
            let findings = said["findings"].as_array().context("no findings")?;
            let contains =
                |value: &Value, part: &str| value.as_str().is_some_and(|text| text.contains(part));
            let found = findings.iter().find(|finding| {
                finding["check"] == check
                    && finding["outcome"] == outcome
                    && contains(&finding["message"], words)
                    && contains(&finding["remedy"], remedy)
            });
            ensure!(
                found.is_some(),
                "no {outcome} of {check} with {words:?} and {remedy:?}: {printed}"
            );
            ensure!(said["healthy"] == json!(code == 0), "{code}: {printed}");
            ensure!(outcome != "error" || code == 1, "{code}: {printed}");
            // Every problem has a remedy.
            let is_mute =
                |finding: &&Value| finding["outcome"] != "ok" && !contains(&finding["remedy"], " ");
            ensure!(!findings.iter().any(|finding| is_mute(&finding)), "{printed}");
            Ok(())
        })
    }

    /// kube-apiserver checks the availability of a server when its APIService changes, otherwise every half a minute.
    /// The result is lost if the APIService changes during the check. So not every run of doctor triggers a check.
    fn make_kube_apiserver_look(&self, looks: &mut u32) -> Result<()> {
        if looks.is_multiple_of(LOOKS) {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let annotation = format!("example.com/looked={number}");
            for api_service in API_SERVICES {
                let annotate = ["annotate", "--overwrite", "apiservice", api_service, &annotation];
                // The APIService may not exist.
                self.kubectl(annotate).output()?;
            }
        }
        *looks += 1;
        Ok(())
    }

    /// Waits until doctor finds no problem.
    pub fn wait_well(&self) -> Result<()> {
        let mut looks = 0;
        self.world
            .eventually(|| {
                self.make_kube_apiserver_look(&mut looks)?;
                let (printed, code) = self.ask(&[])?;
                ensure!(code == 0 && !printed.contains("ERROR"), "{printed}");
                Ok(())
            })
            .with_context(|| format!("it is not well after {PATIENCE:?}"))
    }
}
