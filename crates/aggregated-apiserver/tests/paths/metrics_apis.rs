//! `custom.metrics.k8s.io` and `external.metrics.k8s.io` from functions: shapes, errors, permissions and discovery.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::auth::{Attributes, Authorizers, Decision, authorizer_fn};
use aggregated_apiserver::paths::metrics_apis::{
    CustomMetric, CustomQuery, ExternalQuery, ExternalValue, MetricValue, Sample, custom_metrics,
    external_metrics,
};
use aggregated_apiserver::subresource::Error;
use aggregated_apiserver::{InProcess, Kinds, User};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use test_server::{admin, api_server, server_of, unreachable_cluster, user};
use tokio::sync::watch;

const CUSTOM: &str = "/apis/custom.metrics.k8s.io";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";

fn rate(value: f64) -> Sample {
    let timestamp = "2026-01-02T03:04:05.6Z".parse().unwrap();
    Sample { timestamp, window: Some(Duration::from_secs(30)), ..Sample::from(value) }
}

fn available() -> Vec<CustomMetric> {
    let pods = ["requests", "panic", "unavailable", "nan"].map(CustomMetric::of::<Pod>);
    let others = [
        CustomMetric::of::<Deployment>("jobs"),
        CustomMetric::of::<Namespace>("cost"),
        CustomMetric::of::<Node>("watts"),
    ];
    pods.into_iter().chain(others).collect()
}

/// Two Pods, and one object of each other resource.
async fn values(query: CustomQuery) -> Result<Vec<MetricValue>, Error> {
    let namespace = query.namespace.as_deref();
    assert_eq!(query.metric.is_namespaced, namespace.is_some());
    match query.metric.name.as_str() {
        "panic" => panic!("a panic of a function"),
        "unavailable" => return Err(Error::unavailable("the database is down")),
        "nan" => return Ok(vec![MetricValue::new("web-0", f64::NAN)]),
        "jobs" => return Ok(vec![MetricValue::new("a", 7), MetricValue::new("b", 8)]),
        "cost" => return Ok(vec![MetricValue::new("n", Quantity("1500m".to_owned()))]),
        "watts" => return Ok(vec![MetricValue::new("n", 90)]),
        _ => {}
    }
    let series = [("path".to_owned(), "home".to_owned())].into();
    if namespace != Some("n") || !query.metric_selector.matches_map(&series) {
        return Ok(Vec::new());
    }
    let labels = |app: &str| -> BTreeMap<_, _> { [("app".to_owned(), app.to_owned())].into() };
    let pods = [("web-0", labels("web"), 12.5), ("db-0", labels("db"), 3.0)];
    let pods = pods.into_iter().filter(|(name, labels, _)| query.objects.include(name, labels));
    Ok(pods.map(|(name, _, value)| MetricValue::new(name, rate(value))).collect())
}

async fn lengths(query: ExternalQuery) -> Result<Vec<ExternalValue>, Error> {
    if query.metric == "panic" {
        panic!("a panic of a function");
    }
    let all = [("orders", 30.0), ("mails", 4.25)]
        .map(|(queue, length)| ExternalValue::new([("queue", queue)], rate(length)));
    Ok(all.into_iter().filter(|one| query.selector.matches_map(&one.labels)).collect())
}

fn kinds() -> Kinds {
    let names = || vec!["queue_length".to_owned(), "panic".to_owned()];
    Kinds::new()
        .group_versions(custom_metrics(available, values))
        .group_version(external_metrics(names, lengths))
}

async fn get_as(server: &InProcess, user: User, path: &str) -> (u16, Value) {
    let response = server.respond(user, Request::get(path).body(Body::empty()).unwrap()).await;
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap())
}

async fn get(server: &InProcess, path: &str) -> (u16, Value) {
    get_as(server, admin(), path).await
}

#[tokio::test]
async fn responses_have_the_shapes_of_their_versions() {
    let server = server_of(kinds()).await;
    let object = json!({"kind": "Pod", "namespace": "n", "name": "web-0", "apiVersion": "v1"});
    let (time, value) = ("2026-01-02T03:04:05Z", "12500m");
    let of_terms = json!({
        "matchLabels": {"path": "home"},
        "matchExpressions": [
            {"key": "path", "operator": "In", "values": ["home", "shop"]},
            {"key": "code", "operator": "NotIn", "values": ["500"]},
            {"key": "path", "operator": "Exists"},
            {"key": "code", "operator": "DoesNotExist"},
        ],
    });
    for (query, selector) in [
        ("", Value::Null),
        ("?metricLabelSelector=path%3Dhome", json!({"matchLabels": {"path": "home"}})),
        ("?metricLabelSelector=path%3Dhome,path+in+(home,shop),code!%3D500,path,!code", of_terms),
        (
            "?metricLabelSelector=path,!code,code+notin+(1,2)",
            json!({"matchExpressions": [
                {"key": "path", "operator": "Exists"},
                {"key": "code", "operator": "DoesNotExist"},
                {"key": "code", "operator": "NotIn", "values": ["1", "2"]},
            ]}),
        ),
    ] {
        let older = json!({
            "describedObject": object, "metricName": "requests", "timestamp": time, "window": 30,
            "value": value, "selector": selector,
        });
        let newer = json!({
            "describedObject": object, "metric": {"name": "requests", "selector": selector},
            "timestamp": time, "windowSeconds": 30, "value": value,
        });
        for (version, item) in [("v1beta1", older), ("v1beta2", newer)] {
            let path = format!("{CUSTOM}/{version}/namespaces/n/pods/web-0/requests{query}");
            let expected = json!({
                "kind": "MetricValueList", "apiVersion": format!("custom.metrics.k8s.io/{version}"),
                "metadata": {}, "items": [item],
            });
            assert_eq!(get(&server, &path).await, (200, expected), "{path}");
        }
    }
    let item = |queue: &str, value: &str| {
        json!({
            "metricName": "queue_length", "metricLabels": {"queue": queue}, "timestamp": time,
            "window": 30, "value": value,
        })
    };
    let expected = json!({
        "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {}, "items": [item("orders", "30"), item("mails", "4250m")],
    });
    assert_eq!(
        get(&server, &format!("{EXTERNAL}/namespaces/n/queue_length")).await,
        (200, expected)
    );
}

#[tokio::test]
async fn queries_select_objects_and_values() {
    let server = server_of(kinds()).await;
    let (root, other) = (format!("{CUSTOM}/v1beta2"), format!("{CUSTOM}/v1beta1"));
    let of_pods = format!("{root}/namespaces/n/pods");
    for (path, expected) in [
        (format!("{of_pods}/*/requests"), "web-0=12500m db-0=3"),
        (format!("{of_pods}/*/requests?labelSelector=app%3Ddb"), "db-0=3"),
        (format!("{of_pods}/*/requests?labelSelector=app+in+(web)"), "web-0=12500m"),
        (format!("{of_pods}/*/requests?labelSelector=none"), ""),
        (format!("{of_pods}/*/requests?metricLabelSelector=path%3Dshop"), ""),
        (format!("{root}/namespaces/empty/pods/*/requests"), ""),
        // Selectors of objects do not apply to a named object.
        (format!("{of_pods}/db-0/requests?labelSelector=app%3Dweb"), "db-0=3"),
        (format!("{root}/namespaces/n/deployments.apps/*/jobs"), "a=7 b=8"),
        // Values of other objects are omitted.
        (format!("{root}/namespaces/n/deployments.apps/b/jobs"), "b=8"),
        (format!("{root}/namespaces/n/metrics/cost"), "n=1500m"),
        (format!("{other}/namespaces/n/metrics/cost"), "n=1500m"),
        (format!("{root}/nodes/n/watts"), "n=90"),
        (format!("{root}/nodes/*/watts"), "n=90"),
    ] {
        let (code, list) = get(&server, &path).await;
        assert_eq!(code, 200, "{path}: {list}");
        let items = list["items"].as_array().unwrap().iter().map(|item| {
            let (name, value) = (&item["describedObject"]["name"], &item["value"]);
            format!("{}={}", name.as_str().unwrap(), value.as_str().unwrap())
        });
        assert_eq!(items.collect::<Vec<_>>().join(" "), expected, "{path}");
    }
    let (_, list) = get(&server, &format!("{root}/namespaces/n/metrics/cost")).await;
    let expected = json!({"kind": "Namespace", "name": "n", "apiVersion": "v1"});
    assert_eq!(list["items"][0]["describedObject"], expected);
    for (query, expected) in
        [("", 2), ("?labelSelector=queue%3Dorders", 1), ("?labelSelector=!queue", 0)]
    {
        let (_, list) = get(&server, &format!("{EXTERNAL}/namespaces/n/queue_length{query}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{query}");
    }
}

#[tokio::test]
async fn errors_have_the_messages_of_kubernetes() {
    let server = server_of(kinds()).await;
    let missing = "the server could not find the metric";
    let parse = "unable to parse requirement";
    for (path, code, message) in [
        ("namespaces/n/pods/*/none", 404, format!("{missing} none for pods")),
        ("namespaces/n/pods/web-0/none", 404, format!("{missing} none for pods")),
        ("namespaces/n/pods/a/requests", 404, format!("{missing} requests for pods a")),
        (
            "namespaces/n/pods/web-0/requests?metricLabelSelector=path+in+(shop,%20cart),b",
            404,
            format!("{missing} requests for pods web-0 with selector path in (cart,shop),b"),
        ),
        ("namespaces/n/jobs.batch/a/jobs", 404, format!("{missing} jobs for jobs.batch")),
        ("namespaces/other/metrics/cost", 404, format!("{missing} cost for namespaces other")),
        ("namespaces/n/metrics/none", 404, format!("{missing} none for namespaces")),
        ("pods/web-0/requests", 404, format!("{missing} requests for pods")),
        ("namespaces/n/nodes/n/watts", 404, format!("{missing} watts for nodes")),
        ("namespaces/n/pods/*/requests?labelSelector=a%3D%3D%3D", 400, parse.to_owned()),
        ("namespaces/n/pods/a/requests?metricLabelSelector=(", 400, "found '('".to_owned()),
        ("namespaces/n/pods/*/panic", 500, "caused the server to panic".to_owned()),
        ("namespaces/n/pods/*/nan", 500, "the metric nan has the value \"NaN\"".to_owned()),
        ("namespaces/n/pods/*/unavailable", 503, "does not answer".to_owned()),
        ("namespaces/n/pods/web-0", 404, "could not find the requested resource".to_owned()),
    ] {
        for version in ["v1beta1", "v1beta2"] {
            let (found, status) = get(&server, &format!("{CUSTOM}/{version}/{path}")).await;
            let text = status["message"].as_str().unwrap();
            assert!(found == code && text.contains(&message), "{path}: {status}");
            let is_whole = !message.starts_with(missing) || text == message;
            assert!(is_whole, "{path}: {status}");
        }
    }
    for (path, code, message) in [
        ("none", 404, "the server could not find the metric none for namespaces n"),
        ("queue_length?labelSelector=a+in", 400, parse),
        ("panic", 500, "caused the server to panic"),
    ] {
        let (found, status) = get(&server, &format!("{EXTERNAL}/namespaces/n/{path}")).await;
        let text = status["message"].as_str().unwrap();
        assert!(found == code && text.contains(message), "{path}: {status}");
    }
}

#[tokio::test]
async fn requests_need_the_permissions_of_their_paths() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let record = Arc::clone(&asked);
    let decide = authorizer_fn(move |user, attributes| {
        record.lock().unwrap().push(attributes_of(attributes));
        match user.name.as_str() {
            "reader" => Decision::allow(""),
            _ => Decision::no_opinion(""),
        }
    });
    let counted = Arc::clone(&calls);
    let counting = move |query: CustomQuery| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert_eq!(query.caller.user().name, "reader");
        values(query)
    };
    let kinds = Kinds::new()
        .group_versions(custom_metrics(available, counting))
        .group_version(external_metrics(|| vec!["queue_length".to_owned()], lengths));
    let server = api_server(kinds).with_authorizers(Authorizers::new().with(decide));
    let server = server.in_process(unreachable_cluster()).await.unwrap();
    let root = format!("{CUSTOM}/v1beta2");
    for (path, permission) in [
        (format!("{root}/namespaces/n/pods/web-0/requests"), "get pods/requests n web-0"),
        (format!("{root}/namespaces/n/pods/*/requests"), "get pods/requests n *"),
        (format!("{root}/namespaces/n/deployments.apps/a/jobs"), "get deployments.apps/jobs n a"),
        (format!("{root}/namespaces/n/metrics/cost"), "get metrics/ n cost"),
        (format!("{root}/nodes/n/watts"), "get nodes/watts  n"),
        (format!("{EXTERNAL}/namespaces/n/queue_length"), "list queue_length/ n "),
    ] {
        let before = calls.load(Ordering::SeqCst);
        let (code, status) = get_as(&server, user("other"), &path).await;
        assert_eq!(code, 403, "{path}: {status}");
        assert_eq!(asked.lock().unwrap().pop().unwrap(), permission, "{path}");
        assert_eq!(calls.load(Ordering::SeqCst), before, "{path}");
        assert_eq!(get_as(&server, user("reader"), &path).await.0, 200, "{path}");
    }
}

/// The verb, the resource, the namespace and the name.
fn attributes_of(attributes: &Attributes) -> String {
    match attributes {
        Attributes::Resource { verb, resource, subresource, namespace, name, .. } => {
            format!("{verb} {resource}/{subresource} {namespace} {name}")
        }
        _ => attributes.verb().to_owned(),
    }
}

#[tokio::test]
async fn discovery_lists_the_available_metrics() {
    let (sender, receiver) = watch::channel(vec![CustomMetric::of::<Pod>("requests")]);
    let listed = move || receiver.borrow().clone();
    let server = server_of(Kinds::new().group_versions(custom_metrics(listed, values))).await;
    let names = async |version: &str| {
        let (_, list) = get(&server, &format!("{CUSTOM}/{version}")).await;
        let resources = list["resources"].as_array().unwrap().iter();
        resources.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, list) = get(&server, &format!("{CUSTOM}/v1beta2")).await;
    let expected = json!([{
        "name": "pods/requests", "singularName": "", "namespaced": true, "kind": "MetricValueList",
        "verbs": ["get"],
    }]);
    assert_eq!(list["resources"], expected);
    let of_deployment = format!("{CUSTOM}/v1beta1/namespaces/n/deployments.apps/a/jobs");
    assert_eq!(get(&server, &of_deployment).await.0, 404);
    sender.send_replace(available());
    let all = [
        "deployments.apps/jobs",
        "namespaces/cost",
        "nodes/watts",
        "pods/nan",
        "pods/panic",
        "pods/requests",
        "pods/unavailable",
    ];
    assert_eq!(names("v1beta1").await, all);
    assert_eq!(names("v1beta2").await, all);
    assert_eq!(get(&server, &of_deployment).await.0, 200);
    sender.send_replace(Vec::new());
    assert!(names("v1beta2").await.is_empty());
    assert_eq!(get(&server, &of_deployment).await.0, 404);
    let (_, group) = get(&server, CUSTOM).await;
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    let server = server_of(kinds()).await;
    let (_, list) = get(&server, EXTERNAL).await;
    let kind = "ExternalMetricValueList";
    let expected = json!({
        "name": "queue_length", "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"],
    });
    assert!(list["resources"].as_array().unwrap().contains(&expected), "{list}");
}

#[tokio::test]
async fn openapi_describes_queries_and_lists() {
    let server = server_of(kinds()).await;
    let (_, v3) = get(&server, "/openapi/v3/apis/custom.metrics.k8s.io/v1beta2").await;
    let path =
        format!("{CUSTOM}/v1beta2/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}");
    let operation = &v3["paths"][&path]["get"];
    let names = operation["parameters"].as_array().unwrap().iter().map(|one| &one["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["labelSelector", "metricLabelSelector"]);
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let item = &schema["properties"]["items"]["items"]["properties"];
    assert!(item.get("describedObject").is_some(), "{operation}");
}
