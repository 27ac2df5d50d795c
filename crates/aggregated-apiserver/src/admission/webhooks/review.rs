//! The AdmissionReviews that are sent to webhooks.

use crate::admission::AdmissionRequest;
use serde_json::{Map, Value, json};

use super::{Tree, matching};

/// The data of a request to a webhook.
pub(super) struct Question<'a> {
    pub request: &'a AdmissionRequest<'a>,
    /// The version of both objects.
    pub version: &'a str,
    /// The object that would be stored; `None` for a deletion.
    pub object: Option<&'a Tree>,
    /// The stored object.
    pub old: Option<&'a Tree>,
}

impl Question<'_> {
    /// Returns the AdmissionReview in this version (`v1` or `v1beta1`).
    pub(super) fn review(&self, review_version: &str, uid: &str) -> String {
        let mut asked = self.attributes();
        asked["uid"] = uid.into();
        // The objects are large, so they are written into the result without a copy in a tree.
        let asked = asked.to_string();
        let asked = asked.strip_suffix('}').unwrap_or_default();
        let (new_version, old_version) = self.request.resource_versions();
        let object = text_of(self.object, new_version);
        let old = text_of(self.old, old_version);
        format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/{review_version}\",\"request\":{asked},\"object\":{object},\"oldObject\":{old}}}}}"
        )
    }

    /// The `request` of the AdmissionReview, without its uid and its objects.
    pub(super) fn attributes(&self) -> Value {
        let request = self.request;
        // The representation of a subresource has the same version in all versions of the kind.
        let kind = |version: &str| {
            let (group, own, kind) = request.shown_kind();
            let version = if kind == request.kind { version } else { own };
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource = |version: &str| json!({"group": request.group, "version": version, "resource": request.resource});
        let mut asked = json!({
            "kind": kind(self.version),
            "resource": resource(self.version),
            "requestKind": kind(request.version),
            "requestResource": resource(request.version),
            "operation": request.operation.name(),
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
        asked
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

/// The JSON of an object, with its resourceVersion.
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
