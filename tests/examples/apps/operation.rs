//! Unreadable objects, several replicas, restarts, and changes of definitions.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::free_port;

use super::{DEFINITION, World, database, expect_refusal, start};
use crate::world::PATIENCE;

impl World<'_> {
    pub(super) fn rubbish(&mut self) -> Result<()> {
        self.with_input("create -f -", &database("other", &json!({})))?;
        let uid = self.get("database orders")?["metadata"]["uid"].clone();
        let spec = self.get("database orders")?["spec"].clone();
        for unfit in ["{rubbish", "{\"engine\": \"postgres\", \"replicas\": \"many\"}"] {
            self.edit_config_map("orders", unfit)?;
            self.edit_config_map("other", "{\"engine\": \"mariadb\", \"replicas\": 2}")?;
            self.kubectl("wait --for=jsonpath={.spec.replicas}=2 database/other")?;
            self.edit_config_map("other", "{\"engine\": \"mariadb\", \"replicas\": 1}")?;
            self.kubectl("wait --for=jsonpath={.spec.replicas}=1 database/other")?;
            ensure!(self.get("database orders")?["spec"] == spec, "the last readable spec stays");
        }
        self.server.wait_until_printed("ignored object of the backend", PATIENCE)?;
        // An object that cannot be read can be deleted.
        self.edit_config_map("other", "{rubbish")?;
        self.kubectl("delete database other --timeout=60s")?;
        self.is_gone("configmap databases.other")?;
        self.edit_config_map("orders", "{\"engine\": \"postgres\", \"replicas\": 5}")?;
        self.kubectl("wait --for=jsonpath={.spec.replicas}=5 database/orders")?;
        let orders = self.get("database orders")?;
        ensure!(orders["metadata"]["uid"] == uid && orders["spec"]["replicas"] == 5, "{orders}");
        Ok(())
    }

    /// Two replicas show the same objects, and no write of one is lost by a write of the other.
    pub(super) fn replicas(&self) -> Result<()> {
        let port = free_port()?;
        let mut second = start(self.control_plane, &self.kubeconfig, port, "second.log")?;
        second.wait_until_printed("listening", PATIENCE)?;
        let config = std::fs::read_to_string(self.control_plane.kubeconfig())?;
        let mut config: Value = serde_saphyr::from_str(&config)?;
        config["clusters"][0]["cluster"] = json!({
            "server": format!("https://localhost:{port}"), "insecure-skip-tls-verify": true,
        });
        let file = self.control_plane.folder().join("second.kubeconfig");
        std::fs::write(&file, config.to_string())?;
        let at_second =
            |arguments: &str| self.control_plane.kubectl_as(&file, arguments.split(' ')).run();
        self.eventually(|| at_second("get databases"))?;
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                (0..10).try_for_each(|number| {
                    at_second(&format!("label database orders second-{number}=x")).map(drop)
                })
            });
            for number in 0..10 {
                self.kubectl(&format!("label database orders first-{number}=x"))?;
            }
            writing.join().map_err(|_| anyhow::anyhow!("panicked"))?
        })?;
        self.edit_config_map("orders", "{\"engine\": \"mariadb\", \"replicas\": 2}")?;
        let mut orders = self.eventually(|| {
            let shown = at_second("get database orders -o json")?;
            let mut shown: Value = serde_json::from_str(&shown)?;
            let mut first = self.get("database orders")?;
            for one in [&mut shown, &mut first] {
                one["metadata"]["resourceVersion"].take();
            }
            ensure!(shown == first && first["spec"]["replicas"] == 2, "{shown} {first}");
            Ok(shown)
        })?;
        let labels = orders["metadata"]["labels"].take();
        ensure!(labels.as_object().is_some_and(|labels| labels.len() == 21), "{labels}");
        Ok(())
    }

    /// A new process shows the same objects.
    pub(super) fn restart(&mut self) -> Result<()> {
        let metadata = json!({
            "metadata": {"name": "held", "finalizers": ["example.com/hold"], "labels": {"a": "b"}},
        });
        self.with_input("create -f -", &database("held", &metadata))?;
        self.kubectl("delete database held --wait=false")?;
        let shown = |world: &Self| {
            let mut databases = world.get("databases")?;
            for one in databases["items"].as_array_mut().context("no list")? {
                one["metadata"]["resourceVersion"].take();
            }
            anyhow::Ok(databases["items"].take())
        };
        let before = shown(self)?;
        self.server.kill();
        let server = start(self.control_plane, &self.kubeconfig, self.port, "apps.log")?;
        let after = self.eventually(|| shown(self))?;
        ensure!(before == after, "{before} {after}");
        let held = &after[0];
        ensure!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        self.server = server;
        let patch = "{\"metadata\":{\"finalizers\":null}}";
        self.kubectl(&format!("patch database held --type=merge -p {patch}"))?;
        self.is_gone("configmap databases.held")
    }

    /// A definition is changed, removed while it has objects, and added again. An invalid one does not disturb the others.
    pub(super) fn definitions(&self) -> Result<()> {
        let uid = self.get("database orders")?["metadata"]["uid"].clone();
        self.apply(&DEFINITION.replace("[mariadb, postgres]", "[mariadb, postgres, oracle]"))?;
        let spec = json!({"spec": {"engine": "oracle"}});
        self.eventually(|| self.apply(&database("new", &spec)))?;
        self.kubectl("delete database new")?;
        let invalid =
            DEFINITION.replace("name: databases", "name: caches").replace("Database", "Cache");
        self.apply(&invalid.replace("type: integer", "type: whole"))?;
        let state = "get definition caches -o jsonpath={.status.state}";
        self.eventually(|| {
            let state = self.kubectl(state)?;
            ensure!(state.contains("whole"), "{state:?}");
            Ok(())
        })?;
        self.kubectl("delete definition databases")?;
        self.eventually(|| expect_refusal(&self.output("get databases", None)?, ""))?;
        // Not 404: the objects exist still, and the garbage collector would delete their dependents.
        let raw = "get --raw /apis/apps.example.com/v1/namespaces/default/databases";
        expect_refusal(
            &self.output(raw, None)?,
            "does not serve databases of apps.example.com/v1",
        )?;
        self.kubectl("get configmap databases.orders")?;
        self.apply(DEFINITION)?;
        let orders = self.eventually(|| self.get("database orders"))?;
        ensure!(orders["metadata"]["uid"] == uid, "{orders}");
        self.kubectl("delete database orders")?;
        self.kubectl("delete definition databases caches")?;
        self.is_gone("configmap databases.orders")
    }
}
