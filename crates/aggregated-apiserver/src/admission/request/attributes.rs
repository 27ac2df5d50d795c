//! The data of a write in the format of an AdmissionReview.

use serde_json::{Map, Value, json};

use super::AdmissionRequest;
use crate::admission::matching;

impl AdmissionRequest<'_> {
    /// The data of the write as in an AdmissionReview, without uid and objects, for a webhook or policy that gets the
    /// objects in this version.
    pub(in crate::admission) fn attributes(&self, version: &str) -> Value {
        let request = self;
        // The representation of a subresource has the same version in all versions of the kind.
        let kind = |version: &str| {
            let (group, own, kind) = request.shown_kind();
            let version = if kind == request.kind { version } else { own };
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource = |version: &str| json!({"group": request.group, "version": version, "resource": request.resource});
        let mut attributes = json!({
            "kind": kind(version),
            "resource": resource(version),
            "requestKind": kind(request.version),
            "requestResource": resource(request.version),
            "operation": request.operation.name(),
            "userInfo": self.user_info(),
            "dryRun": request.dry_run,
            "options": request.operation_options(),
        });
        for (field, value) in [
            ("subResource", request.subresource),
            ("requestSubResource", request.subresource),
            ("name", if request.is_of_collection() { "" } else { request.name }),
            ("namespace", matching::namespace(request)),
        ] {
            if !value.is_empty() {
                attributes[field] = value.into();
            }
        }
        attributes
    }

    fn user_info(&self) -> Value {
        let user = self.user;
        let mut info = Map::new();
        if !user.name.is_empty() {
            info.insert("username".to_owned(), user.name.as_str().into());
        }
        if let Some(uid) = user.uid.as_ref().filter(|uid| !uid.is_empty()) {
            info.insert("uid".to_owned(), uid.as_str().into());
        }
        if !user.groups.is_empty() {
            info.insert("groups".to_owned(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            info.insert("extra".to_owned(), json!(user.extra));
        }
        Value::Object(info)
    }
}
