//! Requests of kubectl.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{World, database, expect_refusal};

impl World<'_> {
    pub(super) fn changes(&self) -> Result<()> {
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

    pub(super) fn other_requests(&self) -> Result<()> {
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
}
