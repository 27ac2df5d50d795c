//! Annotations of audit events about the calls of webhooks, in the format of kube-apiserver.

use std::collections::BTreeMap;

use crate::admission::AdmissionRequest;
use crate::admission::audit_annotations::go_json;
use serde::Serialize;
use serde_json::value::RawValue;

use super::hook::Hook;

/// The key of the audit annotation for a validating webhook that failed and has the failure policy `Ignore`. `number`
/// is its index among the called webhooks.
pub(super) fn failed_open(number: usize) -> String {
    format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{number}")
}

/// The call of a mutating webhook.
pub(super) struct Call<'a> {
    pub hook: &'a Hook,
    pub request: &'a AdmissionRequest<'a>,
    /// The number of earlier rounds of calls.
    pub round: usize,
    /// The index of the webhook among all mutating webhooks.
    pub number: usize,
}

#[derive(Serialize)]
struct Mutation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patch<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: Vec<Operation>,
    patch_type: &'a str,
}

/// An operation of a JSON patch, with its fields in the order of their names.
type Operation = Option<BTreeMap<String, Option<Box<RawValue>>>>;

impl Call<'_> {
    /// The key for a webhook that has failed without failing the write.
    pub(super) fn failed_open(&self) -> String {
        self.key("failed-open.mutation")
    }

    /// Records whether the webhook has changed the object.
    pub(super) fn note_mutation(&self, mutated: bool) {
        if !self.request.is_audited() {
            return;
        }
        let (configuration, webhook) = (&self.hook.configuration, &self.hook.name);
        let note = Mutation { configuration, webhook, mutated };
        if let Ok(note) = serde_json::to_string(&note) {
            self.request.annotate(&self.key("mutation"), &go_json(&note));
        }
    }

    /// Records the patch of the webhook, if the event contains bodies.
    pub(super) fn note_patch(&self, sent: &[u8]) {
        self.request.annotate_with_body(&self.key("patch"), || {
            let operations: Vec<Operation> = serde_json::from_slice(sent).ok()?;
            let (configuration, webhook) = (&*self.hook.configuration, &*self.hook.name);
            let note = Patch { configuration, webhook, patch: operations, patch_type: "JSONPatch" };
            serde_json::to_string(&note).ok().map(|note| go_json(&note))
        });
    }

    fn key(&self, of: &str) -> String {
        format!("{of}.webhook.admission.k8s.io/round_{}_index_{}", self.round, self.number)
    }
}
