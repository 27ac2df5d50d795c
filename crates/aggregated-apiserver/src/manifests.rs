//! Manifests: all objects that are needed to deploy a server, as YAML.
//!
//! The permissions are the minimum that works: `list` and `watch` of the sources of computed kinds, and access by name
//! to the Secret and the APIServices of the server. The APIService is first, so that deleting the manifests removes it
//! first. An APIService without a server would block cluster-wide operations.

mod direct;
mod group_versions;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::backend::Writes;
use crate::definition::{Backend, Kinds, SourceKind};
use crate::kind::Kind;
use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};
use crate::subresource::Subresource;
use crate::verb::Verb;

/// The options of the command `manifests`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Namespace to install in
    ///
    /// By default it is the name of the server.
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Image of the server
    ///
    /// By default it is the name of the server.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Store of the server
    #[arg(long, value_enum, default_value_t, value_name = "STORE")]
    pub store: DeployedStore,

    /// URLs of the members of an etcd cluster, separated by commas
    ///
    /// For an etcd with TLS, the Secret with the name of the server and the suffix -etcd must have ca.crt, tls.crt and tls.key.
    #[arg(long, value_name = "URLS", value_delimiter = ',', required_if_eq("store", "etcd"))]
    pub etcd_servers: Vec<String>,

    /// More resources that the server may list and watch, such as rollouts.argoproj.io
    ///
    /// They are owners of source objects; the server reads their metadata.
    #[arg(long, value_name = "RESOURCES", value_delimiter = ',', value_parser = owner_resource)]
    pub owner_resources: Vec<String>,
}

/// Checks a resource in the format `rollouts.argoproj.io`, or `configmaps` for the core group.
fn owner_resource(text: &str) -> Result<String, String> {
    let (plural, group) = plural_and_group(text);
    let is_group = group.is_empty() || check_dns_1123_subdomain(group).is_empty();
    if !check_dns_1035_label(plural).is_empty() || !is_group || text.ends_with('.') {
        return Err("must be plural.group in lower case, such as rollouts.argoproj.io".to_owned());
    }
    Ok(text.to_owned())
}

/// Splits a resource into its plural and its group: `rollouts` and `argoproj.io`.
fn plural_and_group(resource: &str) -> (&str, &str) {
    resource.split_once('.').unwrap_or((resource, ""))
}

/// The store of an installed server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DeployedStore {
    /// In memory. A restart loses the objects.
    #[default]
    Memory,
    /// In an embedded database, on a volume with a claim.
    Sqlite,
    /// In an existing etcd cluster, with several replicas.
    Etcd,
}

/// The default port of a server.
pub const PORT: u16 = 3000;
/// The memory limit of a container, in MiB; the sum of all memory limits is lower (`server/memory`).
pub const MEMORY_LIMIT_MIB: usize = 1_280;
/// The time that a terminating Pod keeps serving, in seconds, if there are several replicas, because Services still
/// route to it.
pub const SHUTDOWN_DELAY_SECONDS: u64 = 10;
/// The termination grace period of a Pod, in seconds: the delay above, the time for requests and watches (one minute),
/// the time to flush audit events and spans (five seconds), and a reserve. `server/running` tests that the sum is
/// complete.
pub const GRACE_SECONDS: u64 = 80;
/// The verbs on stored objects for users with the role `edit` in a namespace.
const WRITING: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
/// The user id of the process: any id except that of root, because the image has no user names.
const USER: u32 = 65_532;
/// The mount path of the volume of a server.
const DATA: &str = "/data";
/// The mount path of the certificates for the connection to etcd: the CA and the client certificate.
const ETCD: &str = "/etc/etcd";
/// The number of replicas that share an etcd.
const REPLICAS: u32 = 3;
/// The size of the volume: several times the limit of objects and their history.
const VOLUME: &str = "1Gi";

/// Returns all objects as YAML, in the order in which they should be created.
pub fn render(name: &str, parsed: &[Arc<Kind>], kinds: &Kinds, options: &Options) -> String {
    let namespace = options.namespace.as_deref().unwrap_or(name);
    let image = options.image.as_deref().unwrap_or(name);
    let mut objects = api_services(name, namespace, parsed, kinds);
    let api_services = api_service_names(parsed, kinds);
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }));
    objects.push(object("v1", "ServiceAccount", name, namespace, json!({})));
    let owners = &options.owner_resources;
    objects.extend(rights((name, namespace), kinds, &api_services, owners));
    objects.extend(roles_of_users(parsed, kinds));
    objects.push(object("v1", "Secret", &secret(name), namespace, json!({"type": "Opaque"})));
    objects.extend(workload((name, namespace, image), options));
    objects.push(object(
        "v1",
        "Service",
        name,
        namespace,
        json!({"spec": {
            "selector": {"app.kubernetes.io/name": name},
            "ports": [{"name": "https", "port": 443, "targetPort": "https", "appProtocol": "https"}],
        }}),
    ));
    let mut yaml = format!("# Printed by `{name} manifests`.\n");
    for comment in group_versions::comments(parsed, kinds) {
        let _ = writeln!(yaml, "# {comment}");
    }
    for object in objects {
        // The objects have only string keys, so the encoding cannot fail.
        let text = serde_saphyr::to_string(&object).unwrap_or_default();
        let _ = write!(yaml, "---\n{}\n", text.trim_end());
    }
    yaml
}

/// The name of the Secret with the serving certificate of a server.
pub fn secret(name: &str) -> String {
    format!("{name}-serving-certificate")
}

/// The names of the APIServices of kinds and group versions, for example `v1alpha.farm.example.com`.
pub fn api_service_names(parsed: &[Arc<Kind>], kinds: &Kinds) -> Vec<String> {
    let mut names = Vec::new();
    for kind in parsed {
        for version in &kind.versions {
            let name = format!("{}.{}", version.name, kind.group);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    for name in group_versions::names(kinds) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn object(api_version: &str, kind: &str, name: &str, namespace: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn api_services(name: &str, namespace: &str, parsed: &[Arc<Kind>], kinds: &Kinds) -> Vec<Value> {
    let mut by_name = BTreeMap::new();
    let of_kinds = parsed.iter().flat_map(|kind| {
        let versions = kind.versions.iter().enumerate();
        versions.map(|(index, version)| (kind.group.as_str(), version.name.as_str(), index))
    });
    let of_paths = group_versions::ordered(kinds).into_iter();
    let of_paths = of_paths.map(|(one, index)| (one.group(), one.version(), index));
    for (group, version, index) in of_kinds.chain(of_paths) {
        let api_service = format!("{version}.{group}");
        let priority = 100_usize.saturating_sub(index).max(1);
        let spec = json!({
            "group": group,
            "version": version,
            "groupPriorityMinimum": 1000,
            "versionPriority": priority,
            "service": {"name": name, "namespace": namespace, "port": 443},
        });
        by_name.entry(api_service).or_insert(spec);
    }
    let api_version = "apiregistration.k8s.io/v1";
    let made = by_name.into_iter();
    made.map(|(name, spec)| object(api_version, "APIService", &name, "", json!({"spec": spec})))
        .collect()
}

/// A permission that a server needs, and that its manifests grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// The namespace; empty for the whole cluster.
    pub namespace: String,
    /// The name of the object; empty for all objects.
    pub name: String,
    /// The object of the manifests that grants the permission, for example `ClusterRole farm-operator`.
    pub by: String,
}

/// All permissions that the manifests grant to a server.
pub fn grants(name: &str, namespace: &str, parsed: &[Arc<Kind>], kinds: &Kinds) -> Vec<Grant> {
    let mut grants = Vec::new();
    for object in rights((name, namespace), kinds, &api_service_names(parsed, kinds), &[]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (own, place) =
            (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
        let by = format!("{} {own}", text(&object["kind"]));
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().map(|all| all.iter().map(text).collect()).unwrap_or_default()
        };
        let rules = match object["roleRef"]["name"].as_str() {
            // Kubernetes defines the rules of these roles; these are the ones that a server needs.
            Some("system:auth-delegator") => json!([
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            ]),
            Some("extension-apiserver-authentication-reader") => json!([{
                "apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": ["extension-apiserver-authentication"],
                "verbs": ["get", "list", "watch"],
            }]),
            _ => object["rules"].clone(),
        };
        for rule in rules.as_array().into_iter().flatten() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        grants.extend(texts(&rule["verbs"]).into_iter().map(|verb| Grant {
                            group: group.clone(),
                            resource: resource.clone(),
                            verb,
                            namespace: place.clone(),
                            name: name.clone(),
                            by: by.clone(),
                        }));
                    }
                }
            }
        }
    }
    grants
}

/// The roles and bindings of the server itself.
fn rights(
    (name, namespace): (&str, &str),
    kinds: &Kinds,
    api_services: &[String],
    owner_resources: &[String],
) -> Vec<Value> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let binding = |kind: &str, name: &str, namespace: &str, role_kind: &str, role: &str| {
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role});
        object(RBAC, kind, name, namespace, json!({"roleRef": role, "subjects": subject}))
    };
    let mut read = read(kinds);
    let mut rules = read.remove(&None).unwrap_or_default();
    // A process that replaces the deployed one during development copies its objects.
    for registered in kinds.iter().filter(|kind| matches!(kind.backend, Backend::Stored { .. })) {
        let spec = &registered.definition.spec;
        rules.push(json!({
            "apiGroups": [spec.group],
            "resources": [spec.names.plural],
            "verbs": ["list"],
        }));
    }
    let of_paths = kinds.own_group_versions().iter().flat_map(|one| one.server_rules());
    let of_handlers = kinds.iter().flat_map(|kind| &kind.subresources);
    let of_handlers = of_handlers.flat_map(|subresource| subresource.server_rules());
    let of_handlers = of_handlers.chain(of_paths);
    rules.extend(of_handlers.filter_map(|rule| serde_json::to_value(rule).ok()));
    let is_written = |backend: &Backend| match backend {
        Backend::Stored { .. } => true,
        Backend::Virtual(backend) => backend.writes() != Writes::default(),
        Backend::Direct(backend) => backend.writes() != Writes::default(),
        Backend::Computed { .. } | Backend::Reviewed(_) | Backend::Elsewhere => false,
    };
    if kinds.iter().any(|kind| is_written(&kind.backend)) {
        rules.push(json!({
            "apiGroups": [""],
            "resources": ["namespaces"],
            "verbs": ["get", "list", "watch"],
        }));
        rules.push(json!({
            "apiGroups": [""],
            "resources": ["resourcequotas"],
            "verbs": ["list", "watch"],
        }));
    }
    // Webhooks and policies also apply to subresources that code handles.
    let is_admitted =
        |kind: &crate::definition::Kind| is_written(&kind.backend) || !kind.subresources.is_empty();
    if kinds.iter().any(is_admitted) {
        rules.push(json!({
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": [
                "mutatingwebhookconfigurations",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
                "validatingwebhookconfigurations",
            ],
            "verbs": ["list", "watch"],
        }));
    }
    rules.push(json!({
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "resourceNames": api_services,
        "verbs": ["get", "patch"],
    }));
    for resource in owner_resources {
        let (plural, group) = plural_and_group(resource);
        rules
            .push(json!({"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}));
    }
    // A `create` permission cannot be limited to a name. It does not include reading or changing a Secret.
    let secrets = json!([
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [secret(name)],
            "verbs": ["get", "update"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]);
    let of_namespaces = read.into_iter().filter_map(|(namespace, rules)| Some((namespace?, rules)));
    let of_namespaces = of_namespaces.flat_map(|(namespace, rules)| {
        let name = format!("{name}:sources");
        [
            object(RBAC, "Role", &name, namespace, json!({"rules": rules})),
            binding("RoleBinding", &name, namespace, "Role", &name),
        ]
    });
    let of_namespaces: Vec<Value> = of_namespaces.collect();
    let delegator = format!("{name}:system:auth-delegator");
    let reader = format!("{name}:extension-apiserver-authentication-reader");
    let mut rights = vec![
        object(RBAC, "ClusterRole", name, "", json!({"rules": rules})),
        binding("ClusterRoleBinding", name, "", "ClusterRole", name),
        binding("ClusterRoleBinding", &delegator, "", "ClusterRole", "system:auth-delegator"),
        binding(
            "RoleBinding",
            &reader,
            "kube-system",
            "Role",
            "extension-apiserver-authentication-reader",
        ),
        object(RBAC, "Role", name, namespace, json!({"rules": secrets})),
        binding("RoleBinding", name, namespace, "Role", name),
    ];
    rights.extend(of_namespaces);
    rights
}

/// The roles for the users with `view` or `edit` in a namespace.
fn roles_of_users(parsed: &[Arc<Kind>], kinds: &Kinds) -> Vec<Value> {
    type Plurals<'a> = Vec<&'a str>;
    let mut groups: BTreeMap<&str, (Plurals<'_>, Plurals<'_>, Plurals<'_>)> = BTreeMap::new();
    // The verbs of subresources, for readers and for writers.
    let mut subresources: BTreeMap<&str, [Vec<Value>; 2]> = BTreeMap::new();
    for (kind, registered) in parsed.iter().zip(kinds.iter()) {
        // Users with access to a namespace get no permissions on cluster-scoped kinds.
        if !kind.is_namespaced() {
            continue;
        }
        let of_group = subresources.entry(&kind.group).or_default();
        for subresource in &registered.subresources {
            let rules = subresource_rules(&kind.group, &kind.names.plural, subresource);
            of_group.iter_mut().zip(rules).for_each(|(all, rule)| all.extend(rule));
        }
        let (readable, writable, asked) = groups.entry(&kind.group).or_default();
        match &registered.backend {
            Backend::Stored { .. } => {
                readable.push(kind.names.plural.as_str());
                writable.push(kind.names.plural.as_str());
            }
            // The verbs that the backend does not support are refused.
            Backend::Virtual(backend) => {
                readable.push(kind.names.plural.as_str());
                if backend.writes() != Writes::default() {
                    writable.push(kind.names.plural.as_str());
                }
            }
            Backend::Direct(backend) => {
                let rules = direct::rules(&kind.group, &kind.names.plural, backend.writes());
                of_group.iter_mut().zip(rules).for_each(|(all, rule)| all.extend(rule));
            }
            Backend::Computed { .. } => readable.push(&kind.names.plural),
            // A review is a read: it is sent by a create, but not stored.
            Backend::Reviewed(_) => asked.push(kind.names.plural.as_str()),
            Backend::Elsewhere => {}
        }
    }
    group_versions::add_rules(parsed, kinds, &mut subresources);
    for group in subresources.keys() {
        groups.entry(group).or_default();
    }
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = |group: &str, to: &str, rules: Vec<Value>| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": format!("{group}:{to}"), "labels": {label: "true"}},
            "rules": rules,
        })
    };
    let mut roles = Vec::new();
    for (group, (readable, writable, asked)) in groups {
        let mut viewing = Vec::new();
        if !readable.is_empty() {
            viewing.push(rule(group, &readable, &["get", "list", "watch"]));
        }
        if !asked.is_empty() {
            viewing.push(rule(group, &asked, &["create"]));
        }
        let [reading, writing] = subresources.remove(group).unwrap_or_default();
        viewing.extend(reading);
        if !viewing.is_empty() {
            roles.push(role(group, "view", viewing));
        }
        let mut editing = Vec::new();
        if !writable.is_empty() {
            editing.push(rule(group, &writable, &WRITING));
        }
        editing.extend(writing);
        if !editing.is_empty() {
            roles.push(role(group, "edit", editing));
        }
    }
    roles
}

/// The permissions of readers and of writers on a subresource that code of the user handles.
fn subresource_rules(group: &str, plural: &str, subresource: &Subresource) -> [Option<Value>; 2] {
    [true, false].map(|is_read| {
        let methods = subresource.methods().filter(|method| subresource.is_read(method) == is_read);
        let verbs: Vec<_> = methods.filter_map(Verb::of_method).map(Verb::name).collect();
        let resource = format!("{plural}/{}", subresource.name());
        (!verbs.is_empty())
            .then(|| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}))
    })
}

/// The rules for the sources of computed kinds, by namespace; `None` is the whole cluster. A source that is read from a
/// stream needs no rule, and a polled source needs no `watch`.
fn read(kinds: &Kinds) -> BTreeMap<Option<&'static str>, Vec<Value>> {
    let streams = kinds.source_streams();
    let mut all: Vec<(SourceKind, bool)> = Vec::new();
    let computed = kinds.iter().filter_map(|registered| match &registered.backend {
        Backend::Computed { watched, .. } => Some(watched),
        Backend::Stored { .. }
        | Backend::Virtual(_)
        | Backend::Direct(_)
        | Backend::Reviewed(_)
        | Backend::Elsewhere => None,
    });
    let is_same = |one: &SourceKind, other: &SourceKind| {
        let place = |kind: &SourceKind| kind.scope.namespace();
        (&one.group, &one.plural, place(one)) == (&other.group, &other.plural, place(other))
    };
    for source in computed.flatten().filter(|source| !streams.has(source.type_id)) {
        let is_watched = source.scope.every().is_none();
        match all.iter_mut().find(|(known, _)| is_same(known, source)) {
            Some((_, known)) => *known |= is_watched,
            None => all.push((source.clone(), is_watched)),
        }
    }
    let mut rules: BTreeMap<Option<&str>, Vec<Value>> = BTreeMap::new();
    let is_granted_everywhere = |wanted: &SourceKind, is_watched: bool| {
        wanted.scope.namespace().is_some()
            && all.iter().any(|(other, is_other_watched)| {
                let is_everywhere = other.scope.namespace().is_none();
                let is_it = (&other.group, &other.plural) == (&wanted.group, &wanted.plural);
                is_everywhere && is_it && (*is_other_watched || !is_watched)
            })
    };
    for (source, is_watched) in &all {
        if is_granted_everywhere(source, *is_watched) {
            continue;
        }
        let SourceKind { group, plural, scope, .. } = source;
        let verbs: &[&str] = if *is_watched { &["list", "watch"] } else { &["list"] };
        let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": verbs});
        rules.entry(scope.namespace()).or_default().push(rule);
    }
    rules
}

/// The workload that runs the server. It has a single replica, also during an update, if the objects are in the memory
/// or in the directory of one process. It has several replicas if the objects are in etcd.
fn workload((name, namespace, image): (&str, &str, &str), options: &Options) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": name});
    let mut pod = json!({
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(name, image)],
    });
    let mut spec = json!({"replicas": 1, "selector": {"matchLabels": labels}});
    let mut others = Vec::new();
    let kind = match options.store {
        DeployedStore::Memory => {
            spec["strategy"] = json!({"type": "Recreate"});
            "Deployment"
        }
        DeployedStore::Sqlite => {
            pod["securityContext"]["fsGroup"] = USER.into();
            // The `backup` command in this container needs the variable, too.
            pod["containers"][0]["env"] =
                json!([{"name": "DATA_DIR", "value": format!("{DATA}/{name}")}]);
            pod["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": DATA}]);
            spec["serviceName"] = name.into();
            spec["volumeClaimTemplates"] = json!([{
                "metadata": {"name": "data"},
                "spec": {
                    // For a single Pod, because two Pods on one node must not mount the same directory.
                    "accessModes": ["ReadWriteOncePod"],
                    "resources": {"requests": {"storage": VOLUME}},
                },
            }]);
            "StatefulSet"
        }
        DeployedStore::Etcd => {
            spec["replicas"] = REPLICAS.into();
            // A new Pod is ready before an old one is stopped. The old Pod keeps serving until requests are routed to
            // other Pods.
            spec["strategy"] = json!({
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            });
            pod["containers"][0]["args"] = json!([
                "--logging-format=json",
                format!("--shutdown-delay-duration={SHUTDOWN_DELAY_SECONDS}s"),
            ]);
            pod["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }]);
            let mut env =
                vec![json!({"name": "ETCD_SERVERS", "value": options.etcd_servers.join(",")})];
            if options.etcd_servers.iter().any(|server| server.starts_with("https:")) {
                let files = [
                    ("ETCD_CAFILE", "ca.crt"),
                    ("ETCD_CERTFILE", "tls.crt"),
                    ("ETCD_KEYFILE", "tls.key"),
                ];
                env.extend(files.map(
                    |(variable, file)| json!({"name": variable, "value": format!("{ETCD}/{file}")}),
                ));
                pod["containers"][0]["volumeMounts"] =
                    json!([{"name": "etcd", "mountPath": ETCD, "readOnly": true}]);
                pod["volumes"] =
                    json!([{"name": "etcd", "secret": {"secretName": format!("{name}-etcd")}}]);
                // The files of the Secret belong to root.
                pod["securityContext"]["fsGroup"] = USER.into();
            }
            pod["containers"][0]["env"] = env.into();
            let budget = json!({
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
            });
            others.push(object("policy/v1", "PodDisruptionBudget", name, namespace, budget));
            "Deployment"
        }
    };
    spec["template"] = json!({"metadata": {"labels": labels}, "spec": pod});
    others.insert(0, object("apps/v1", kind, name, namespace, json!({"spec": spec})));
    others
}

fn container(name: &str, image: &str) -> Value {
    json!({
        "name": name,
        "image": image,
        "args": ["--logging-format=json"],
        "ports": [{"name": "https", "containerPort": PORT}],
        // A server at its connection limit must not fail the probe.
        "livenessProbe": {"tcpSocket": {"port": "https"}, "periodSeconds": 10, "failureThreshold": 3},
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"},
            "periodSeconds": 10,
            "failureThreshold": 3,
        },
        "resources": {
            "requests": {"cpu": "20m", "memory": "32Mi"},
            "limits": {"memory": format!("{MEMORY_LIMIT_MIB}Mi")},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
    use kube::runtime::watcher::Event;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::definition::{Computed, Kinds, Lookup, LookupOptions, SourceOptions};
    use crate::kind::ReviewError;
    use crate::schema::Types;
    use crate::user::User;

    /// A kind that only tests which sources are read.
    #[derive(kube::CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Read", namespaced)]
    struct ReadSpec {}

    struct InShop;

    impl LookupOptions for InShop {
        const OPTIONS: SourceOptions = SourceOptions::ALL.in_namespace("shop").with_labels("a=b");
    }

    struct Polled;

    impl LookupOptions for Polled {
        const OPTIONS: SourceOptions = SourceOptions::ALL.polled_every(Duration::from_secs(15));
    }

    impl Computed for Read {
        type Source = Pod;
        type Related = (
            Lookup<ConfigMap, InShop>,
            Lookup<Pod, InShop>,
            Lookup<Node, Polled>,
            Lookup<Secret, Polled>,
            Lookup<Secret>,
            Lookup<Service>,
        );

        fn compute(_: &Pod, _: &Self::Related) -> Option<Self> {
            None
        }
    }

    #[test]
    fn owners_are_resources() {
        for resource in ["rollouts.argoproj.io", "configmaps"] {
            assert_eq!(owner_resource(resource), Ok(resource.to_owned()));
        }
        for fault in ["", "Rollout", "rollouts.", ".argoproj.io", "a/b", "*", "rollouts.a b", "*.*"]
        {
            assert!(owner_resource(fault).is_err(), "{fault}");
        }
        let owners = ["rollouts.argoproj.io".to_owned()];
        let rights = rights(("n", "n"), &Kinds::new(), &[], &owners);
        let rules = rights[0]["rules"].as_array().unwrap();
        let (group, plural) = (["argoproj.io"], ["rollouts"]);
        let rule = json!({"apiGroups": group, "resources": plural, "verbs": ["list", "watch"]});
        assert!(rules.contains(&rule), "{rules:?}");
    }

    #[test]
    fn manifests_grant_permissions_only_on_resources_that_are_read() {
        let services = || futures::stream::empty::<Result<Event<Service>, String>>();
        let kinds = Kinds::new().computed::<Read>().with_source_stream(services);
        let rule = |plural: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [plural], "verbs": verbs});
        let both = ["list", "watch"];
        let rights = read(&kinds);
        let everywhere = [rule("pods", &both), rule("nodes", &["list"]), rule("secrets", &both)];
        assert_eq!(rights[&None], everywhere);
        assert_eq!(rights[&Some("shop")], [rule("configmaps", &both)]);
        assert_eq!(rights.len(), 2);
    }

    #[test]
    fn the_view_role_grants_create_on_review_kinds() {
        let definition = json!({
            "metadata": {"name": "questions.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Question", "plural": "questions"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        });
        let definition = serde_json::from_value(definition).unwrap();
        let answer = async |_: User, question: Value| Ok::<_, ReviewError>(question);
        const TABLE: &str = "package example.com/api/questions/v1 example.com/v1\nQuestion kind\n";
        let types = Arc::new(Types::parse(&[TABLE]).unwrap());
        let kinds = Kinds::new().review(definition, &types, answer);
        let registered = kinds.iter().next().unwrap();
        let kind = Arc::new(Kind::parse_built_in(&registered.definition, None, &types).unwrap());
        let roles = roles_of_users(&[kind], &kinds);
        assert_eq!(roles.len(), 1);
        let rules = json!([{"apiGroups": ["example.com"], "resources": ["questions"], "verbs": ["create"]}]);
        assert_eq!(roles[0]["rules"], rules);
        assert!(roles[0]["metadata"]["name"] == "example.com:view");
    }
}
