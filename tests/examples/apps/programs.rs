//! Informers of client-go and kube, and Helm.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use test_cluster::Process;
use test_server::client;

use super::World;
use crate::world::{PATIENCE, block_on};

impl World<'_> {
    /// A change of a ConfigMap reaches kubectl, client-go and kube.
    pub(super) fn events(&self) -> Result<()> {
        let folder = self.control_plane.folder();
        let mut informer = Command::new(&self.tools.informer);
        informer.arg(self.control_plane.kubeconfig()).args(["apps.example.com", "v1", "databases"]);
        informer.env("KUBE_FEATURE_WatchListClient", "true");
        let mut informer = Process::spawn(&informer, &folder.join("informer.log"))?;
        informer.wait_until_printed("synced 1", PATIENCE)?;
        let watch = ["get", "databases", "-w", "--output-watch-events", "--no-headers"];
        let watch = self.control_plane.kubectl(watch).into_command();
        let mut watch = Process::spawn(&watch, &folder.join("apps-watch.log"))?;
        watch.wait_until_printed("ADDED", PATIENCE)?;
        let generation = self.get("database orders")?["metadata"]["generation"].clone();
        block_on(async {
            let resource = ApiResource {
                group: "apps.example.com".to_owned(),
                version: "v1".to_owned(),
                api_version: "apps.example.com/v1".to_owned(),
                kind: "Database".to_owned(),
                plural: "databases".to_owned(),
            };
            let client = client(&self.control_plane.kubeconfig()).await?;
            let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
            let config = watcher::Config::default().streaming_lists();
            let mut events = Box::pin(watcher::watcher(api, config));
            while !matches!(events.try_next().await?, Some(Event::InitDone)) {}
            self.edit_config_map("orders", "{\"engine\": \"postgres\", \"replicas\": 7}")?;
            let event = tokio::time::timeout(PATIENCE, events.try_next()).await??;
            let Some(Event::Apply(changed)) = event else { anyhow::bail!("{event:?}") };
            let counted = generation.as_i64().map(|generation| generation + 1);
            ensure!(changed.metadata.generation == counted, "{changed:?}");
            ensure!(changed.data["spec"]["replicas"] == 7, "{changed:?}");
            Ok(())
        })?;
        watch.wait_until_printed("MODIFIED   orders   postgres   7", PATIENCE)?;
        let copy = "create configmap databases.made --from-literal=spec={\"engine\":\"mariadb\"}";
        self.kubectl(copy)?;
        self.kubectl("label configmap databases.made apps.example.com/resource=databases")?;
        informer.wait_until_printed("added default/made", PATIENCE)?;
        self.kubectl("delete configmap databases.made")?;
        informer.wait_until_printed("deleted default/made", PATIENCE)?;
        Ok(())
    }

    pub(super) fn helm(&self) -> Result<()> {
        let chart = self.control_plane.folder().join("shop");
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 0.1.0\n")?;
        std::fs::write(chart.join("values.yaml"), "replicas: 1\n")?;
        let template = "apiVersion: apps.example.com/v1\nkind: Database\nmetadata:\n  name: shop\nspec:\n  engine: postgres\n  replicas: {{ .Values.replicas }}\n";
        std::fs::write(chart.join("templates/database.yaml"), template)?;
        let chart = chart.to_str().context("a path in UTF-8")?;
        let helm = |arguments: &[&str]| {
            let mut helm = Command::new(&self.tools.helm);
            helm.args(arguments).env("KUBECONFIG", self.control_plane.kubeconfig());
            let output = helm.env("HOME", self.control_plane.folder()).output()?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "helm {arguments:?}: {errors}");
            Ok(())
        };
        helm(&["install", "shop", chart, "--wait"])?;
        helm(&["upgrade", "shop", chart, "--set=replicas=3"])?;
        ensure!(self.get("database shop")?["spec"]["replicas"] == 3);
        helm(&["rollback", "shop", "1"])?;
        ensure!(self.get("database shop")?["spec"]["replicas"] == 1);
        helm(&["uninstall", "shop"])?;
        self.is_gone("database shop")
    }
}
