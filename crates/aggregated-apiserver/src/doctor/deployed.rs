//! The existing deployment, and the commands that repair it. No command replaces the running image or the store.

use serde_json::Value;

use super::{Found, Installation, items, text};

/// The existing installation, as far as it is visible.
#[derive(Clone, Debug, Default)]
pub(super) struct Deployed {
    /// `None` if there is no workload, or if it cannot be read.
    workload: Option<Workload>,
    /// The name and the namespace of the Helm release that owns the installation.
    release: Option<(String, String)>,
}

/// The workload that creates the Pods.
#[derive(Clone, Debug)]
struct Workload {
    /// For example `deployment`.
    kind: &'static str,
    image: String,
    args: Vec<String>,
    /// The names and values of environment variables.
    env: Vec<(String, String)>,
}

impl Workload {
    fn new(kind: &'static str, object: &Value) -> Self {
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        let texts = ["command", "args"].into_iter().flat_map(|field| items(&container[field]));
        let env = items(&container["env"]).iter();
        Self {
            kind,
            image: text(&container["image"]).to_owned(),
            args: texts.map(|argument| text(argument).to_owned()).collect(),
            env: env
                .map(|one| (text(&one["name"]).to_owned(), text(&one["value"]).to_owned()))
                .collect(),
        }
    }

    /// The value of a flag, or of the environment variable with the same meaning. Returns an empty string if it is set
    /// but its value is not visible here.
    fn said(&self, flag: &str) -> Option<&str> {
        let variable = flag.trim_start_matches('-').replace('-', "_").to_ascii_uppercase();
        let in_args = self.args.iter().find_map(|argument| {
            let rest = argument.strip_prefix(flag)?;
            rest.is_empty().then_some("").or_else(|| rest.strip_prefix('='))
        });
        let in_env = self.env.iter().find(|(name, _)| *name == variable);
        in_args.or_else(|| in_env.map(|(_, value)| value.as_str()))
    }

    /// The flags of `manifests` that select the same store.
    fn store(&self) -> String {
        match (self.said("--etcd-servers"), self.said("--data-dir")) {
            (Some(""), _) => "--store=etcd --etcd-servers=URLS".to_owned(),
            (Some(servers), _) => format!("--store=etcd --etcd-servers={servers}"),
            (None, Some(_)) => "--store=sqlite".to_owned(),
            (None, None) => "--store=memory".to_owned(),
        }
    }
}

impl Deployed {
    /// Reads the existing installation.
    pub(super) async fn look(installation: &Installation) -> Self {
        let Installation { namespace, name, .. } = installation;
        let mut deployed = Self::default();
        for kind in ["deployment", "statefulset"] {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/{kind}s/{name}");
            if let Found::Object(object) = installation.find(&path).await {
                deployed.release = release(&object);
                deployed.workload = Some(Workload::new(kind, &object));
                break;
            }
        }
        if deployed.release.is_none()
            && let Some(name) = installation.api_services.first()
            && let Found::Object(object) = installation.find_api_service(name).await
            && text(&object["spec"]["service"]["namespace"]) == namespace
        {
            deployed.release = release(&object);
        }
        deployed
    }

    /// The command that creates missing objects and leaves existing ones unchanged.
    pub(super) fn create(&self, name: &str, namespace: &str) -> String {
        match self.upgrade() {
            Some(upgrade) => upgrade,
            None => format!("{} | kubectl create -f -", self.manifests(name, namespace)),
        }
    }

    /// The command that grants missing permissions and changes nothing else.
    pub(super) fn grant(&self, name: &str, namespace: &str) -> String {
        match self.upgrade() {
            Some(upgrade) => upgrade,
            None => format!("{} | kubectl auth reconcile -f -", self.manifests(name, namespace)),
        }
    }

    /// The command that deploys another image.
    pub(super) fn replace_image(&self, name: &str, namespace: &str) -> String {
        match (self.upgrade(), &self.workload) {
            (Some(upgrade), _) => format!("{upgrade}, with image.tag of this release"),
            (None, Some(Workload { kind, .. })) => {
                format!(
                    "kubectl -n {namespace} set image {kind}/{name} '*=IMAGE', with the image of this release"
                )
            }
            (None, None) => format!("deploy the image of this release in {namespace}"),
        }
    }

    /// Whether the serving certificate comes from files. Returns `None` if the workload is not visible.
    pub(super) fn has_certificate_of_its_own(&self) -> Option<bool> {
        self.workload.as_ref().map(|workload| workload.said("--tls-cert-file").is_some())
    }

    /// Whether objects are stored on a volume.
    pub(super) fn has_volume(&self) -> bool {
        self.workload.as_ref().is_some_and(|workload| workload.said("--data-dir").is_some())
    }

    fn upgrade(&self) -> Option<String> {
        let (release, namespace) = self.release.as_ref()?;
        Some(format!(
            "helm upgrade {release} CHART -n {namespace} --reuse-values (CHART: the chart of the installed release; it creates the missing objects)"
        ))
    }

    fn manifests(&self, name: &str, namespace: &str) -> String {
        let (image, store) = match &self.workload {
            Some(workload) => (workload.image.as_str(), workload.store()),
            // The image and the store are unknown here; the user must fill them in.
            None => ("IMAGE", "--store=STORE".to_owned()),
        };
        format!("{name} manifests --namespace={namespace} --image={image} {store}")
    }
}

/// The Helm release that an object belongs to.
fn release(object: &Value) -> Option<(String, String)> {
    let metadata = &object["metadata"];
    let is_helm = metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm";
    let annotation = |key: &str| text(&metadata["annotations"][key]).to_owned();
    is_helm.then(|| {
        (annotation("meta.helm.sh/release-name"), annotation("meta.helm.sh/release-namespace"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployed(kind: &'static str, container: &Value) -> Deployed {
        let object = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        Deployed { workload: Some(Workload::new(kind, &object)), ..Deployed::default() }
    }

    #[test]
    fn suggested_commands_preserve_the_deployed_image_and_store() {
        let sqlite = json!({"image": "i:1", "env": [{"name": "DATA_DIR", "value": "/data/farm"}]});
        assert_eq!(
            deployed("statefulset", &sqlite).create("farm", "ns"),
            "farm manifests --namespace=ns --image=i:1 --store=sqlite | kubectl create -f -"
        );
        let etcd = json!({"image": "i:1", "args": ["--etcd-servers=http://a:2379,http://b:2379"]});
        assert_eq!(
            deployed("deployment", &etcd).grant("farm", "ns"),
            "farm manifests --namespace=ns --image=i:1 --store=etcd --etcd-servers=http://a:2379,http://b:2379 | kubectl auth reconcile -f -"
        );
        let unknown = Deployed::default().create("farm", "ns");
        assert!(unknown.contains("--image=IMAGE --store=STORE | kubectl create"), "{unknown}");
    }

    #[test]
    fn suggested_commands_for_helm_releases_use_helm_upgrade() {
        let object = json!({"metadata": {
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "llamas", "meta.helm.sh/release-namespace": "ns"},
        }});
        let deployed = Deployed { release: release(&object), ..Deployed::default() };
        for command in [deployed.create("farm", "ns"), deployed.grant("farm", "ns")] {
            assert!(
                command.starts_with("helm upgrade llamas CHART -n ns --reuse-values"),
                "{command}"
            );
        }
        assert_eq!(release(&json!({"metadata": {"labels": {}}})), None);
    }

    #[test]
    fn flags_name_a_certificate_or_do_not() {
        let with = json!({"args": ["--tls-cert-file=/etc/serving/tls.crt"]});
        assert_eq!(deployed("deployment", &with).has_certificate_of_its_own(), Some(true));
        let apart = json!({"args": ["--tls-cert-file", "/etc/serving/tls.crt"]});
        assert_eq!(deployed("deployment", &apart).has_certificate_of_its_own(), Some(true));
        assert_eq!(deployed("deployment", &json!({})).has_certificate_of_its_own(), Some(false));
        assert_eq!(Deployed::default().has_certificate_of_its_own(), None);
    }
}
