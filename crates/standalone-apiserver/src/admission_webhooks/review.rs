//! AdmissionReviews that are sent.

use aggregated_apiserver::{AdmissionOperation, AdmissionRequest};
use serde_json::{Map, Value, json};

use super::{Tree, matching};

/// What a webhook is asked about.
pub(super) struct Question<'a> {
    pub request: &'a AdmissionRequest<'a>,
    /// The version of both objects.
    pub version: &'a str,
    /// The object that would be kept; none of a deletion.
    pub object: Option<&'a Tree>,
    /// The object that is there.
    pub old: Option<&'a Tree>,
}

impl Question<'_> {
    /// A review of this version (`v1` or `v1beta1`) that asks it.
    pub(super) fn review(&self, review_version: &str, uid: &str) -> String {
        let request = self.request;
        // What a subresource shows is the same in each version.
        let kind = |version: &str| {
            let (group, own, kind) = request.shown_kind();
            let version = if kind == request.kind { version } else { own };
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource = |version: &str| json!({"group": request.group, "version": version, "resource": request.resource});
        let operation = match request.operation {
            AdmissionOperation::Create => "CREATE",
            AdmissionOperation::Update => "UPDATE",
            _ => "DELETE",
        };
        let mut asked = json!({
            "uid": uid,
            "kind": kind(self.version),
            "resource": resource(self.version),
            "requestKind": kind(request.version),
            "requestResource": resource(request.version),
            "operation": operation,
            "userInfo": self.user(),
            "dryRun": request.dry_run,
            "options": request.operation_options(),
        });
        for (member, text) in [
            ("subResource", request.subresource),
            ("requestSubResource", request.subresource),
            ("name", if request.is_of_collection() { "" } else { request.name }),
            ("namespace", matching::namespace(request)),
        ] {
            if !text.is_empty() {
                asked[member] = text.into();
            }
        }
        // The objects are large: they are written where they are.
        let asked = asked.to_string();
        let asked = asked.strip_suffix('}').unwrap_or_default();
        let (new_version, old_version) = request.resource_versions();
        let object = text_of(self.object, new_version);
        let old = text_of(self.old, old_version);
        format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/{review_version}\",\"request\":{asked},\"object\":{object},\"oldObject\":{old}}}}}"
        )
    }

    fn user(&self) -> Value {
        let user = self.request.user;
        let mut told = Map::new();
        if !user.name.is_empty() {
            told.insert("username".to_owned(), user.name.as_str().into());
        }
        if let Some(uid) = user.uid.as_ref().filter(|uid| !uid.is_empty()) {
            told.insert("uid".to_owned(), uid.as_str().into());
        }
        if !user.groups.is_empty() {
            told.insert("groups".to_owned(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            told.insert("extra".to_owned(), json!(user.extra));
        }
        Value::Object(told)
    }
}

/// An object in JSON, with its resourceVersion.
fn text_of(tree: Option<&Tree>, resource_version: Option<&str>) -> String {
    let Some(tree) = tree else { return "null".to_owned() };
    let mut text = String::from("{");
    for (name, value) in tree {
        if text.len() > 1 {
            text.push(',');
        }
        text += &json!(name).to_string();
        text.push(':');
        match (name.as_str(), value, resource_version) {
            ("metadata", Value::Object(metadata), Some(version)) => {
                let mut metadata = metadata.clone();
                metadata.insert("resourceVersion".to_owned(), version.into());
                text += &Value::Object(metadata).to_string();
            }
            _ => text += &value.to_string(),
        }
    }
    text.push('}');
    text
}
