//! apps: kinds that are defined at run time behind a real kube-apiserver, with kubectl, Helm, client-go and kube.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Printed, Process, Programs, example, free_port};
use test_server::client;

use crate::world::{PATIENCE, block_on};

const API_SERVICE: &str = "v1.apps.example.com";
const DEFINITION: &str = include_str!("../../examples/apps/databases.yaml");

/// The programs that the test needs.
#[derive(Clone)]
pub struct Tools {
    pub programs: Programs,
    helm: PathBuf,
    informer: PathBuf,
}

impl Tools {
    pub fn find() -> Result<Self> {
        let (helm, informer) = (Programs::helm()?, Programs::informer()?);
        Ok(Self { programs: Programs::find()?, helm, informer })
    }
}

struct World<'a> {
    control_plane: &'a ControlPlane,
    tools: Tools,
    kubeconfig: PathBuf,
    port: u16,
    server: Process,
}

/// All requests pass through kube-apiserver. The program has the permissions of its manifests.
pub fn are_served_behind_kube_apiserver(
    control_plane: &mut ControlPlane,
    tools: Tools,
) -> Result<()> {
    let manifests = Command::new(example("apps")?).arg("manifests").output()?;
    let manifests = String::from_utf8(manifests.stdout)?;
    control_plane.kubectl(["apply", "-f", "-"]).input(&manifests).run()?;
    let port = free_port()?;
    control_plane.lead_to_localhost(&[API_SERVICE], ("apps", "apps"), port)?;
    let token = control_plane.kubectl(["create", "token", "apps", "-n", "apps"]).run()?;
    let kubeconfig = control_plane.kubeconfig_of_token("apps", token.trim())?;
    let server = start(control_plane, &kubeconfig, port, "apps.log")?;
    let wait = ["wait", "--for=condition=Available", "--timeout=60s", "apiservice", API_SERVICE];
    control_plane.kubectl(wait).run().with_context(|| server.printed())?;
    let mut world = World { control_plane, tools, kubeconfig, port, server };
    let result = world.run();
    let log = world.server.printed();
    // An APIService without a server would disturb the other tests.
    control_plane.kubectl(["delete", "apiservice", API_SERVICE]).run()?;
    control_plane.kubectl(["delete", "namespace", "apps", "--wait=false"]).run()?;
    result.with_context(|| log[log.len().saturating_sub(3000)..].to_owned())
}

fn start(control_plane: &ControlPlane, kubeconfig: &Path, port: u16, log: &str) -> Result<Process> {
    let mut command = Command::new(example("apps")?);
    command.args(["--bind-address=127.0.0.1", "--namespace=apps"]).env_remove("RUST_LOG");
    command.arg(format!("--secure-port={port}")).arg("--kubeconfig").arg(kubeconfig);
    Process::spawn(&command, &control_plane.folder().join(log))
}

fn database(name: &str, more: &Value) -> String {
    let mut object = json!({
        "apiVersion": "apps.example.com/v1", "kind": "Database",
        "metadata": {"name": name}, "spec": {"engine": "postgres"},
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more.clone());
    }
    object.to_string()
}

fn expect_refusal(printed: &Printed, expected: &str) -> Result<()> {
    ensure!(!printed.succeeded && printed.errors.contains(expected), "{expected}: {printed:?}");
    Ok(())
}

impl World<'_> {
    fn run(&mut self) -> Result<()> {
        self.eventually(|| self.apply(DEFINITION)).context("define")?;
        self.kubectl("wait --for=jsonpath={.status.state}=Served definition/databases")?;
        self.eventually(|| self.apply(&database("orders", &json!({})))).context("create")?;
        self.changes().context("changes of kubectl")?;
        self.other_requests().context("other requests of kubectl")?;
        self.events().context("events")?;
        self.owners().context("owners")?;
        self.quotas().context("quotas")?;
        self.namespaces().context("namespaces")?;
        self.refusals().context("refusals")?;
        self.rubbish().context("rubbish")?;
        self.helm().context("Helm")?;
        self.replicas().context("replicas")?;
        self.restart().context("restart")?;
        self.definitions().context("definitions")
    }

    fn output(&self, arguments: &str, input: Option<&str>) -> Result<Printed> {
        let kubectl = self.control_plane.kubectl(arguments.split(' '));
        match input {
            Some(input) => kubectl.input(input).output(),
            None => kubectl.output(),
        }
    }

    fn kubectl(&self, arguments: &str) -> Result<String> {
        self.control_plane.kubectl(arguments.split(' ')).run()
    }

    fn with_input(&self, arguments: &str, input: &str) -> Result<String> {
        self.control_plane.kubectl(arguments.split(' ')).input(input).run()
    }

    fn apply(&self, objects: &str) -> Result<String> {
        self.with_input("apply -f -", objects)
    }

    fn get(&self, resource: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&format!("get {resource} -o json"))?)?)
    }

    fn eventually<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE * 2;
        loop {
            match ask() {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
                done => return done,
            }
        }
    }

    fn is_gone(&self, resource: &str) -> Result<()> {
        self.eventually(|| {
            let name = self.kubectl(&format!("get {resource} --ignore-not-found -o name"))?;
            ensure!(name.is_empty(), "{name}");
            Ok(())
        })
    }

    /// Changes the spec behind the back of the server.
    fn edit_config_map(&self, name: &str, spec: &str) -> Result<()> {
        let patch = json!({"data": {"spec": spec}}).to_string();
        let map = format!("databases.{name}");
        let arguments = ["patch", "configmap", &map, "--type=merge", "-p", &patch];
        self.control_plane.kubectl(arguments).run()?;
        Ok(())
    }

    fn changes(&self) -> Result<()> {
        let wanted = database("orders", &json!({"spec": {"engine": "postgres", "replicas": 2}}));
        let diff = self.output("diff -f -", Some(&wanted))?;
        ensure!(diff.output.contains("+  replicas: 2"), "{diff:?}");
        self.apply(&wanted)?;
        ensure!(self.output("diff -f -", Some(&wanted))?.succeeded);
        let wanted = database("orders", &json!({"spec": {"engine": "postgres", "replicas": 3}}));
        let apply = "apply --server-side --field-manager=other -f -";
        expect_refusal(&self.output(apply, Some(&wanted))?, "conflict with \"kubectl-client-side")?;
        self.with_input(&format!("{apply} --force-conflicts"), &wanted)?;
        self.kubectl("patch database orders --type=merge -p {\"spec\":{\"size\":\"1Gi\"}}")?;
        let json = "[{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":\"2Gi\"}]";
        self.kubectl(&format!("patch database orders --type=json -p {json}"))?;
        let strategic = "patch database orders --type=strategic -p {\"spec\":{}}";
        expect_refusal(&self.output(strategic, None)?, "strategic")?;
        self.kubectl("label database orders team=a")?;
        self.kubectl("annotate database orders note=b")?;
        self.kubectl("scale database orders --replicas=4")?;
        let status = "{\"status\":{\"replicas\":4}}";
        self.kubectl(&format!(
            "patch database orders --subresource=status --type=merge -p {status}"
        ))?;
        let mut edit = self.control_plane.kubectl(["edit", "database", "orders"]).into_command();
        let edit = edit.env("EDITOR", "sed -i s/2Gi/3Gi/").output()?;
        ensure!(edit.status.success(), "{edit:?}");
        let mut orders = self.get("database orders")?;
        orders["spec"]["engine"] = "mariadb".into();
        self.with_input("replace -f -", &orders.to_string())?;
        // The resourceVersion is that of an older state.
        expect_refusal(&self.output("replace -f -", Some(&orders.to_string()))?, "Conflict")?;
        let orders = self.get("database orders")?;
        let spec = json!({"engine": "mariadb", "replicas": 4, "size": "3Gi"});
        ensure!(orders["spec"] == spec && orders["status"]["replicas"] == 4, "{orders}");
        let metadata = &orders["metadata"];
        let is_kept = metadata["labels"]["team"] == "a" && metadata["annotations"]["note"] == "b";
        // replicas twice, size three times, the scale, and the engine; not the first one.
        ensure!(is_kept && metadata["generation"] == 8, "{metadata}");
        Ok(())
    }

    fn other_requests(&self) -> Result<()> {
        let other = database("other", &json!({}));
        self.with_input("create --dry-run=server -f -", &other)?;
        let missing = self.output("get configmap databases.other", None)?;
        expect_refusal(&missing, "not found")?;
        self.with_input("create -f -", &other)?;
        let invalid = database("third", &json!({"spec": {"engine": "oracle"}}));
        let invalid = self.output("create -f -", Some(&invalid))?;
        expect_refusal(&invalid, "spec.engine: Unsupported value: \"oracle\"")?;
        let names = self.kubectl("get databases --chunk-size=1 -o name")?;
        ensure!(names.lines().count() == 2, "{names}");
        let table = self.kubectl("get databases --field-selector=metadata.name=orders")?;
        ensure!(table.contains("ENGINE") && !table.contains("other"), "{table}");
        let explained = self.eventually(|| self.kubectl("explain databases.spec.engine"))?;
        ensure!(explained.contains("The program that serves the database."), "{explained}");
        let mut wait = self.control_plane.kubectl(["wait", "--for=create", "database/late"]);
        wait = wait.input("");
        let late = database("late", &json!({}));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait.run());
            self.with_input("create -f -", &late)?;
            waiting.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            let waiting = scope.spawn(|| self.kubectl("wait --for=delete database/late"));
            self.kubectl("delete database late")?;
            waiting.join().map_err(|_| anyhow::anyhow!("panicked"))?
        })?;
        self.kubectl("delete database other")?;
        Ok(())
    }

    /// A change of a ConfigMap reaches kubectl, client-go and kube.
    fn events(&self) -> Result<()> {
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

    fn owners(&self) -> Result<()> {
        let dependent = |name: &str, owner: &Value, kind: &str, version: &str| {
            json!([{
                "apiVersion": version, "kind": kind, "name": name, "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": true,
            }])
        };
        for (cascade, survives) in [("background", false), ("foreground", false), ("orphan", true)]
        {
            self.with_input("create -f -", &database(cascade, &json!({})))?;
            let owner = self.get(&format!("database {cascade}"))?;
            let owners = dependent(cascade, &owner, "Database", "apps.example.com/v1");
            let name = format!("of-{cascade}");
            let metadata = json!({"name": name, "ownerReferences": owners});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            self.with_input("create -f -", &map.to_string())?;
            // The garbage collector has to know the kind first.
            self.eventually(|| {
                self.kubectl(&format!(
                    "delete database {cascade} --cascade={cascade} --timeout=90s"
                ))
                .map(drop)
                .or_else(|_| self.is_gone(&format!("database {cascade}")))
            })?;
            self.is_gone(&format!("configmap databases.{cascade}"))?;
            match survives {
                true => drop(self.kubectl(&format!("delete configmap {name}"))?),
                false => self.is_gone(&format!("configmap {name}"))?,
            }
        }
        self.kubectl("create configmap owner")?;
        let owners = dependent("owner", &self.get("configmap owner")?, "ConfigMap", "v1");
        let metadata = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
        self.with_input("create -f -", &database("owned", &metadata))?;
        self.kubectl("delete configmap owner")?;
        self.is_gone("database owned")?;
        self.is_gone("configmap databases.owned")
    }

    /// kube-controller-manager counts the objects.
    fn quotas(&self) -> Result<()> {
        self.kubectl("create namespace counted")?;
        self.with_input("create -n counted -f -", &database("a", &json!({})))?;
        self.kubectl("create quota one -n counted --hard=count/databases.apps.example.com=5")?;
        // The controller counts the objects of its informer, which may be behind. A change of the limits causes a new count.
        let mut limit = 5;
        self.eventually(|| {
            limit += 1;
            let hard = json!({"count/databases.apps.example.com": limit.to_string()});
            let patch = json!({"spec": {"hard": hard}});
            self.kubectl(&format!("patch quota one -n counted -p {patch}"))?;
            let used = self.get("quota one -n counted")?["status"]["used"].clone();
            ensure!(used == json!({"count/databases.apps.example.com": "1"}), "{used:?}");
            Ok(())
        })?;
        self.kubectl("delete namespace counted")?;
        Ok(())
    }

    /// The finalizers of an object are respected although its ConfigMap is deleted with the namespace.
    fn namespaces(&self) -> Result<()> {
        self.kubectl("create namespace left")?;
        let metadata = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        self.with_input("create -n left -f -", &database("held", &metadata))?;
        self.with_input("create -n left -f -", &database("free", &json!({})))?;
        self.kubectl("delete namespace left --wait=false")?;
        self.eventually(|| {
            let databases = self.get("databases -n left")?;
            let databases = databases["items"].as_array().cloned().unwrap_or_default();
            ensure!(databases.len() == 1, "{databases:?}");
            ensure!(databases[0]["metadata"]["deletionTimestamp"].is_string(), "{databases:?}");
            self.get("configmap databases.held -n left")
        })?;
        let patch = "{\"metadata\":{\"finalizers\":null}}";
        self.kubectl(&format!("patch database held -n left --type=merge -p {patch}"))?;
        self.kubectl("wait --for=delete namespace/left --timeout=90s")?;
        Ok(())
    }

    /// kube-apiserver refuses the ConfigMap.
    fn refusals(&self) -> Result<()> {
        self.kubectl("create namespace full")?;
        self.kubectl("create quota none -n full --hard=configmaps=0")?;
        self.kubectl("wait --for=jsonpath={.status.hard.configmaps}=0 quota/none -n full")?;
        let refused = self.output("create -n full -f -", Some(&database("a", &json!({}))))?;
        expect_refusal(&refused, "exceeded quota: none")?;
        let spec = json!({"spec": {"engine": "postgres", "size": "x".repeat(1_100_000)}});
        let large = self.output("create -f -", Some(&database("large", &spec)))?;
        expect_refusal(&large, "may not be more than 1048576 bytes")?;
        self.kubectl("delete namespace full")?;
        Ok(())
    }

    fn rubbish(&mut self) -> Result<()> {
        self.with_input("create -f -", &database("other", &json!({})))?;
        let uid = self.get("database orders")?["metadata"]["uid"].clone();
        self.edit_config_map("orders", "{rubbish")?;
        self.server.wait_until_printed("cannot read a ConfigMap", PATIENCE)?;
        let orders = self.eventually(|| {
            let orders = self.get("database orders")?;
            ensure!(orders.get("spec").is_none(), "{orders}");
            Ok(orders)
        })?;
        ensure!(orders["metadata"]["uid"] == uid, "{orders}");
        ensure!(self.get("database other")?["spec"]["engine"] == "postgres");
        let log = self.server.printed();
        let mut lines = log.lines().filter(|line| line.contains("cannot read a ConfigMap"));
        ensure!(lines.all(|line| line.contains("name=\"databases.orders\"")), "{log}");
        // A value of another type, which typed clients cannot decode.
        self.edit_config_map("orders", "{\"engine\": \"postgres\", \"replicas\": \"many\"}")?;
        self.server.wait_until_printed("ignored object of the backend", PATIENCE)?;
        self.kubectl("delete database other")?;
        self.edit_config_map("orders", "{\"engine\": \"postgres\", \"replicas\": 5}")?;
        self.kubectl("wait --for=jsonpath={.spec.replicas}=5 database/orders")?;
        let orders = self.get("database orders")?;
        ensure!(orders["metadata"]["uid"] == uid && orders["spec"]["replicas"] == 5, "{orders}");
        Ok(())
    }

    fn helm(&self) -> Result<()> {
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

    /// Two replicas show the same objects, and no write of one is lost by a write of the other.
    fn replicas(&self) -> Result<()> {
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
    fn restart(&mut self) -> Result<()> {
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
    fn definitions(&self) -> Result<()> {
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
        self.kubectl("get configmap databases.orders")?;
        self.apply(DEFINITION)?;
        let orders = self.eventually(|| self.get("database orders"))?;
        ensure!(orders["metadata"]["uid"] == uid, "{orders}");
        self.kubectl("delete database orders")?;
        self.kubectl("delete definition databases caches")?;
        self.is_gone("configmap databases.orders")
    }
}
