//! The program without a cluster, used by kube and, if available, by kubectl.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

/// The program of the tutorial, whose tests run here.
#[allow(dead_code)]
#[path = "../examples/alpacas/main.rs"]
mod alpacas;
/// The example whose objects are measured for each request.
#[allow(dead_code)]
#[path = "../examples/metrics/main.rs"]
mod metrics;
/// The example that shows each user the namespaces of the user.
#[allow(dead_code)]
#[path = "../examples/projects/main.rs"]
mod projects;
/// The example whose objects are rows of a table.
#[allow(dead_code)]
#[path = "../examples/shelf/main.rs"]
mod shelf;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use farm_operator::FarmPod;
use farm_operator::v1alpha::Llama;
use futures::FutureExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use test_cluster::{Programs, Standalone, unless_missing};

const PROGRAM: &str = env!("CARGO_BIN_EXE_farm-operator");

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/farm.yaml")
}

fn start(arguments: &[&str]) -> Standalone {
    Standalone::start(PROGRAM, arguments).unwrap()
}

async fn client_of(program: &Standalone) -> Client {
    test_server::client(&program.kubeconfig).await.unwrap()
}

/// The configuration of a client.
fn config(program: &Standalone) -> Config {
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).now_or_never().unwrap().unwrap()
}

/// The error message of a program that does not start.
fn refusal(arguments: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["--standalone", "--secure-port", "0"]).args(arguments);
    command.env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    said.lines().find(|line| line.starts_with("Error: ")).unwrap_or(&said).to_owned()
}

#[tokio::test]
async fn the_farm_is_there_at_once() {
    let program = start(&["--load", example().to_str().unwrap()]);
    let client = client_of(&program).await;
    let pods: Api<FarmPod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let fed = pods.iter().find(|pod| pod.name_any() == "farm-feeder-7d9c-2xk4p").unwrap();
    let status = fed.status.as_ref().unwrap();
    assert_eq!(status.owner.as_ref().map(|owner| owner.name.as_str()), Some("feeder"));
    let zone = status.node.as_ref().and_then(|node| node.zone.as_deref());
    assert_eq!((zone, status.restarts), (Some("eu-1a"), 2));
    // The top-level owner is found once the kinds of the owners are known.
    let farm_pods: Api<FarmPod> = Api::default_namespaced(client.clone());
    let is_owned = |farm_pod: Option<&FarmPod>| {
        let owner = farm_pod.and_then(|one| one.status.as_ref()?.owner.as_ref());
        owner.is_some_and(|owner| (&*owner.kind, &*owner.name) == ("Brewery", "brewery"))
    };
    let brewed = await_condition(farm_pods, "farm-brewer-6c4f-m8s2q", is_owned);
    let brewed = tokio::time::timeout(Duration::from_secs(60), brewed).await.unwrap().unwrap();
    let owners = brewed.unwrap().status.unwrap().owners;
    assert_eq!(owners, ["ReplicaSet/brewer-6c4f", "Rollout/brewer", "Brewery/brewery"]);
    let llamas: Api<Llama> = Api::all(client);
    let names = llamas.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = names.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["shaun", "timmy", "dolly"]);
}

#[tokio::test]
async fn bearer_tokens_authenticate_users_of_the_token_file() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "s3cret,jane,7,\"farmers,system:masters\"\nother,joe,8\n").unwrap();
    let program = start(&["--token-auth-file", tokens.to_str().unwrap()]);
    let ask = async |token: Option<&str>| {
        let mut config = config(&program);
        config.auth_info.client_certificate_data = None;
        config.auth_info.client_key_data = None;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = Client::try_from(config).unwrap();
        let who: Api<SelfSubjectReview> = Api::all(client.clone());
        let who = who.create(&PostParams::default(), &SelfSubjectReview::default()).await;
        let who = who.ok().and_then(|who| who.status?.user_info?.username);
        let namespaces: Api<Namespace> = Api::all(client);
        (who, namespaces.list(&ListParams::default()).await.is_ok())
    };
    assert_eq!(ask(Some("s3cret")).await, (Some("jane".to_owned()), true));
    assert_eq!(ask(Some("other")).await, (Some("joe".to_owned()), false));
    assert_eq!(ask(Some("wrong")).await, (None, false));
    assert_eq!(ask(None).await, (None, false));
}

#[tokio::test]
async fn certificates_in_a_data_directory_survive_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = ["--data-dir", data.to_str().unwrap()];
    let first = start(&arguments);
    let config = std::fs::read_to_string(&first.kubeconfig).unwrap();
    assert_eq!(first.kubeconfig, data.join("kubeconfig"));
    drop(first);
    let second = start(&arguments);
    let again = std::fs::read_to_string(&second.kubeconfig).unwrap();
    let ca =
        |config: &str| config.split("certificate-authority-data").nth(1).unwrap()[..500].to_owned();
    assert_eq!(ca(&config), ca(&again));
    client_of(&second).await.apiserver_version().await.unwrap();
}

/// A definition, one of its objects with a finalizer, and a ConfigMap.
const KEPT: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: barns.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: barns, singular: barn, kind: Barn}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: example.com/v1
kind: Barn
metadata: {name: held, namespace: meadow, finalizers: [example.com/hold]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: meadow}
data: {animals: few}
"#;

#[tokio::test]
async fn objects_in_a_data_directory_survive_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("kept.yaml"));
    std::fs::write(&file, KEPT).unwrap();
    let arguments = ["--data-dir", data.to_str().unwrap(), "--load", file.to_str().unwrap()];
    let barns = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Barn"));
    let of_barns =
        |client: &Client| Api::<DynamicObject>::namespaced_with(client.clone(), "meadow", &barns);
    let of_maps = |client: &Client| Api::<ConfigMap>::namespaced(client.clone(), "meadow");

    let first = start(&arguments);
    let client = client_of(&first).await;
    let uid = of_barns(&client).get("held").await.unwrap().uid();
    let many = Patch::Merge(json!({"data": {"animals": "many"}}));
    of_maps(&client).patch("settings", &PatchParams::default(), &many).await.unwrap();
    let slices: Api<EndpointSlice> = Api::namespaced(client, "default");
    let port = slices.get("kubernetes").await.unwrap().ports.unwrap()[0].port;
    assert_eq!(port.map(i64::from), config(&first).cluster_url.port_u16().map(i64::from));
    drop(first);

    let second = start(&arguments);
    let client = client_of(&second).await;
    let settings = of_maps(&client).get("settings").await.unwrap();
    assert_eq!(settings.data.unwrap()["animals"], "many");
    assert_eq!(of_barns(&client).get("held").await.unwrap().uid(), uid);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let port = slices.get("kubernetes").await.unwrap().ports.unwrap()[0].port;
    assert_eq!(port.map(i64::from), config(&second).cluster_url.port_u16().map(i64::from));
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    definitions.delete("barns.example.com", &DeleteParams::default()).await.unwrap();
    drop(second);

    // The deletion of the definition continues: the kind is served until no finalizer holds its objects.
    let arguments = &arguments[..2];
    let third = start(arguments);
    let client = client_of(&third).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    of_barns(&client).patch("held", &PatchParams::default(), &free).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let gone = await_condition(definitions, "barns.example.com", is_gone());
    tokio::time::timeout(Duration::from_mins(1), gone).await.unwrap().unwrap();
    drop(third);

    let fourth = start(arguments);
    assert!(of_barns(&client_of(&fourth).await).list(&ListParams::default()).await.is_err());
}

fn is_gone() -> impl Condition<CustomResourceDefinition> {
    |definition: Option<&CustomResourceDefinition>| definition.is_none()
}

#[test]
fn unusable_files_and_ports_are_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let bad = file("bad.yaml", "kind: Pod\n---\na: [\n");
    let said = refusal(&["--load", &bad]);
    assert!(said.contains("--load") && said.contains(&bad) && said.contains("line"), "{said}");
    let unknown =
        file("unknown.yaml", "apiVersion: x.example.com/v1\nkind: Foo\nmetadata: {name: a}\n");
    let said = refusal(&["--load", &unknown]);
    let expected = format!(
        "Error: --load {unknown}, document 1 (Foo \"a\"): x.example.com/v1 Foo is not served: give its CustomResourceDefinition too"
    );
    assert_eq!(said, expected);
    let wrong = file(
        "wrong.yaml",
        "apiVersion: farm.example.com/v1alpha\nkind: Llama\nmetadata: {name: a}\nspec: {weight: x, height: 1}\n",
    );
    let said = refusal(&["--load", &wrong]);
    assert!(said.contains("document 1 (Llama \"a\")") && said.contains("spec.weight"), "{said}");
    let theirs = file("config", "apiVersion: v1\nkind: Config\n");
    let said = refusal(&["--write-kubeconfig", &theirs]);
    assert_eq!(
        said,
        format!(
            "Error: --write-kubeconfig {theirs}: exists and was not written by this server; use another file"
        )
    );
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "apiVersion: v1\nkind: Config\n");
    let said = refusal(&["--data-dir", &theirs]);
    assert!(said.starts_with(&format!("Error: --data-dir {theirs}")), "{said}");
    let theirs = folder.path().display().to_string();
    let said = refusal(&["--data-dir", &theirs]);
    let expected = format!(
        "Error: --data-dir {theirs}: is not empty and does not contain the certificates of this server; use an empty directory"
    );
    assert_eq!(said, expected);
    assert!(!folder.path().join("pki").exists());
    let wanted = folder.path().join("wanted").display().to_string();
    refusal(&["--load", &unknown, "--write-kubeconfig", &wanted]);
    assert!(!Path::new(&wanted).exists());
    let tokens = file("tokens", "abc\n");
    let said = refusal(&["--token-auth-file", &tokens]);
    assert!(said.starts_with(&format!("Error: --token-auth-file {tokens}: line 1: ")), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output =
        Command::new(PROGRAM).args(["--standalone", "--secure-port", &port]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--secure-port") && said.contains(&port), "{said}");
}

/// kubectl with a program and its own home directory.
struct Kubectl {
    path: PathBuf,
    program: Standalone,
    home: tempfile::TempDir,
}

impl Kubectl {
    /// Returns `None` if there is no kubectl and none is required.
    fn find() -> Option<Self> {
        let programs = unless_missing(Programs::find()).unwrap()?;
        let home = tempfile::tempdir().unwrap();
        let program = start(&["--load", example().to_str().unwrap()]);
        Some(Self { path: programs.path("kubectl"), program, home })
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.env("KUBECONFIG", &self.program.kubeconfig).env("HOME", self.home.path());
        command.args(arguments.split(' ')).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command that must succeed. Returns its output.
    fn run(&self, arguments: &str, input: Option<&str>) -> String {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.unwrap_or_default().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{arguments}: {}", text(output.stderr));
        text(output.stdout)
    }
}

/// The lines that a program logs until it serves its farm pods.
async fn logged(arguments: &[&str]) -> Vec<String> {
    let program = start(&[&["--load", example().to_str().unwrap()], arguments].concat());
    let farm_pods: Api<FarmPod> = Api::all(client_of(&program).await);
    // Lists fail until all sources are synced.
    while farm_pods.list(&ListParams::default()).await.is_err() {
        tokio::task::yield_now().await;
    }
    let printed = program.process.printed();
    let lines = printed.lines().filter(|line| !line.starts_with("export KUBECONFIG="));
    // A busy machine adds log lines.
    let lines = lines.filter(|line| !line.contains("slow request"));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn startup_logs_one_info_line_and_details_with_verbosity_2() {
    let lines = logged(&[]).await;
    let text = lines.join("\n");
    assert!(lines.len() <= 10, "{text}");
    assert_eq!(lines.iter().filter(|line| line.contains(" INFO ")).count(), 1, "{text}");
    assert!(text.contains("listening server=\"farm-operator\" address=127.0.0.1:"), "{text}");
    for unwanted in ["left_out", "suppressed", "synced source", " ERROR "] {
        assert!(!text.contains(unwanted), "{text}");
    }
    let text = logged(&["-v", "2"]).await.join("\n");
    for detail in ["synced source pods", "memory limits: "] {
        assert!(text.contains(detail), "{text}");
    }
}

/// kubectl reads OpenAPI documents, describes objects with their Events, and watches.
#[test]
fn kubectl_explains_describes_and_watches() {
    let Some(kubectl) = Kubectl::find() else { return };
    for (arguments, expected) in [
        ("explain deployment.spec.template.spec.containers.image", "FIELD: image <string>"),
        ("explain pod.spec.tolerations", "FIELD: tolerations <[]Toleration>"),
        ("explain crd.spec.scope", "FIELD: scope <string>"),
        ("explain pod.spec.nodeName --output=plaintext-openapiv2", "FIELD:    nodeName <string>"),
        ("auth can-i --list", "selfsubjectrulesreviews.authorization.k8s.io"),
        ("describe node", "Roles:"),
        ("describe pod scarecrow", "Tolerations:"),
        ("describe llama dolly", "Kind:         Llama"),
        ("get all", "pod/scarecrow"),
        ("get pods -o wide", "NOMINATED NODE"),
        ("get farmpods -o custom-columns-file=examples/farm-pods-nodes.columns", "INSTANCE"),
        ("get farmpods -o custom-columns-file=examples/farm-pods-nodes.columns", "Burstable"),
        ("get farmpods -o custom-columns-file=examples/farm-pods-review.columns", "NoLimits"),
        ("get ns --show-labels", "kubernetes.io/metadata.name=default"),
        ("api-resources --api-group=events.k8s.io", "events"),
    ] {
        let printed = kubectl.run(arguments, None);
        assert!(printed.contains(expected), "{arguments}: {printed}");
    }
    // The default columns of a table fit on a screen.
    let table = kubectl.run("get farmpods", None);
    let widest = table.lines().map(str::len).max();
    assert!(widest.is_some_and(|widest| widest <= 120), "{table}");
    for heading in ["STATUS", "RESTARTS", "OWNER", "NODE", "ZONE", "CPU", "MEM"] {
        assert!(table.contains(heading), "{table}");
    }
    let wide = kubectl.run("get farmpods -o wide", None);
    let headings = wide.lines().next().unwrap_or_default().split("   ");
    let headings = headings.filter(|heading| !heading.trim().is_empty()).count();
    assert!((18..=21).contains(&headings), "{wide}");
    for (selector, expected) in [
        ("status.why.code=FailedAttachVolume", "farm-cellar"),
        ("status.node.spot=true,status.restarts!=0", "farm-brewer-6c4f-m8s2q"),
        ("status.resources.memory.percentOfLimit=92", "farm-feeder-7d9c-2xk4p"),
        ("status.lastEnd.reason=OOMKilled,status.release.tool=Helm", "farm-feeder-7d9c-2xk4p"),
    ] {
        let selected =
            kubectl.run(&format!("get farmpods --field-selector {selector} -o name"), None);
        assert_eq!(selected, format!("farmpod.farm.example.com/{expected}\n"), "{selector}");
    }
    for (pod, path, expected) in [
        (
            "farm-cellar",
            "{.status.claims}",
            r#"[{"name":"barrels","phase":"Bound","size":"20Gi","storageClass":"fast"}]"#,
        ),
        ("farm-feeder-7d9c-2xk4p", "{.status.budgets[*].name}", "feeder"),
        ("farm-feeder-7d9c-2xk4p", "{.status.disruptionsAllowed}", "0"),
    ] {
        let shown = kubectl.run(&format!("get farmpod {pod} -o jsonpath={path}"), None);
        assert_eq!(shown, expected, "{pod} {path}");
    }
    let workloads = kubectl.run("get farmworkloads --no-headers", None);
    // The width of a column depends on its header and on the time.
    let cells = workloads.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(cells.contains("farm-feeder.deploy 1/2 2 ("), "{workloads}");
    assert!(cells.contains("24% 46% ImagePullBackOff (1)"), "{workloads}");
    let nodes = kubectl.run("get farmnodes --no-headers", None);
    assert!(nodes.contains("4/29   2 (12%, 50%)   7Gi (1%, 29%)"), "{nodes}");
    let deployment = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: barn}
spec:
  selector: {matchLabels: {app: barn}}
  template:
    metadata: {labels: {app: barn}}
    spec:
      containers:
      - {name: a, image: \"a:1\", env: [{name: X, value: \"1\"}]}
      - {name: b, image: \"b:1\"}
";
    kubectl.run("create -f -", Some(deployment));
    kubectl.run("apply -f -", Some(deployment));
    // kubectl merges applied lists by the keys in the OpenAPI document.
    let less = deployment
        .replace("      - {name: a, image: \"a:1\", env: [{name: X, value: \"1\"}]}\n", "");
    kubectl.run("apply -f -", Some(&less));
    let images = "get deploy barn -o jsonpath={.spec.template.spec.containers[*].name}";
    assert_eq!(kubectl.run(images, None), "b");
    assert!(kubectl.run("describe deploy barn", None).contains("Selector:               app=barn"));
    let unknown = kubectl.command("apply -f -").spawn().map(|mut child| {
        let odd = deployment.replace("image: \"b:1\"", "imaeg: \"b:1\"");
        child.stdin.take().unwrap().write_all(odd.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    });
    let unknown = unknown.unwrap();
    let expected = "unknown field \"spec.template.spec.containers[1].imaeg\"";
    assert!(unknown.contains(expected), "{unknown}");

    let mut watching = kubectl.command("get configmaps -w --no-headers").spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Each namespace has its own `kube-root-ca.crt`.
    let mut lines = lines.filter(|line| !line.starts_with("kube-root-ca.crt "));
    kubectl.run("create configmap seen --from-literal=a=b", None);
    let line = lines.next().unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert!(line.starts_with("seen "), "{line}");
}

/// kubectl's typed commands send protobuf, and its patches of built-in kinds merge lists by keys.
#[test]
fn kubectl_is_at_home() {
    let Some(kubectl) = Kubectl::find() else { return };
    let run = |arguments: &str, input: Option<&str>| kubectl.run(arguments, input);
    let example = example().display().to_string();
    run(&format!("apply -f {example}"), None);
    let applied_again = run(&format!("apply -f {example}"), None);
    assert!(applied_again.contains("pod/scarecrow unchanged"), "{applied_again}");
    for line in applied_again.lines() {
        // kubectl sends a selector that is replaced as a whole each time, also to a real cluster.
        let is_replaced = line == "poddisruptionbudget.policy/feeder configured";
        assert!(line.ends_with(" unchanged") || is_replaced, "{line}");
    }
    for (arguments, expected) in [
        ("create ns meadow", "namespace/meadow created\n"),
        ("create configmap c --from-literal=a=b --from-literal=e=", "configmap/c created\n"),
        ("get configmap c -o jsonpath={.data}", r#"{"a":"b","e":""}"#),
        ("create secret generic s --from-literal=a=b", "secret/s created\n"),
        ("get secret s -o jsonpath={.data.a}", "Yg=="),
        ("create deployment d --image=x:1 --replicas=0 --port=80", "deployment.apps/d created\n"),
        (
            "get deployment d -o jsonpath={.spec.replicas}{.spec.template.spec.containers[0].ports}",
            r#"0[{"containerPort":80,"protocol":"TCP"}]"#,
        ),
        ("scale deployment d --replicas=2", "deployment.apps/d scaled\n"),
        ("set image deployment/d x=x:2", "deployment.apps/d image updated\n"),
        ("get deployment d -o jsonpath={.spec.template.spec.containers[*].image}", "x:2"),
        ("rollout restart deployment/d", "deployment.apps/d restarted\n"),
        ("create job j --image=x", "job.batch/j created\n"),
        ("auth can-i delete pods", "yes\n"),
        ("label pod scarecrow hat=black", "pod/scarecrow labeled\n"),
        ("get pods -l hat -o name", "pod/scarecrow\n"),
        (
            "wait pod/scarecrow --for=jsonpath={.status.phase}=Running",
            "pod/scarecrow condition met\n",
        ),
        ("delete pod scarecrow", "pod \"scarecrow\" deleted from default namespace\n"),
        (
            "get farmpods -l app=feeder -o name",
            "farmpod.farm.example.com/farm-feeder-7d9c-2xk4p\nfarmpod.farm.example.com/farm-feeder-7d9c-9vbqt\n",
        ),
        ("delete ns meadow", "namespace \"meadow\" deleted\n"),
    ] {
        assert_eq!(run(arguments, None), expected, "{arguments}");
    }
    let who = run("auth whoami -o jsonpath={.status.userInfo.username}", None);
    assert_eq!(who, "kubernetes-admin");
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: owls.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: owls, kind: Owl}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {eyes: {type: integer}}}}}}
";
    run("apply -f -", Some(definition));
    run("wait crd/owls.example.com --for=condition=Established", None);
    let owl = "apiVersion: example.com/v1\nkind: Owl\nmetadata: {name: o}\nspec: {eyes: 2}\n";
    assert_eq!(run("apply -f -", Some(owl)), "owl.example.com/o created\n");
    assert!(run("explain owls.spec.eyes", None).contains("eyes <integer>"));
    run("delete crd owls.example.com", None);
    assert!(!run("api-resources", None).contains("owls"));
}
