//! The AdmissionReviews that are sent to webhooks.

use crate::admission::AdmissionRequest;
use serde_json::{Value, json};

use super::Tree;

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
        let mut asked = self.request.attributes(self.version);
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
