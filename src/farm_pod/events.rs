//! What schedulers, kubelets and controllers say of a Pod in Events, where it says more than the
//! Pod itself.
//!
//! An Event that is repeated is counted up, every few seconds. Nothing is taken from it that
//! changes then, so that a farm pod changes with what is new only.

use aggregated_apiserver::{Scoped, SourceApi, SourceScope, SourceType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use std::borrow::Cow;
use std::sync::Arc;

use super::compact::Moment;
use super::metadata::Named;
use super::view::{PodView, Text, Word, given};
use super::why::Why;

/// The uid that kubelets give to a Pod from a file: not that of the Pod which stands for it.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// What is read of an Event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Named,
    /// What it is about.
    #[serde(default)]
    pub involved_object: InvolvedObjectView,
    /// What it says, in a word.
    pub reason: Option<Word>,
    /// What it says, in words.
    pub message: Option<Word>,
    /// When it was first said.
    #[serde(default)]
    pub first_timestamp: Moment,
    /// The same, of those who say it in the newer form.
    #[serde(default)]
    pub event_time: Moment,
}

impl SourceType for EventView {
    fn api() -> SourceApi {
        SourceApi::of::<Event>()
    }

    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    fn each_label(&self, _: &mut dyn FnMut(&str, &str)) {}
}

/// What an Event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObjectView {
    /// Which one.
    pub uid: Option<Text>,
    /// Which part of it, as `spec.containers{feeder}`.
    pub field_path: Option<Word>,
}

impl EventView {
    fn since(&self) -> Option<Timestamp> {
        self.first_timestamp.timestamp().or_else(|| self.event_time.timestamp())
    }

    fn is_about(&self, container: &str) -> bool {
        // As `spec.initContainers{early}`.
        let path = given(self.involved_object.field_path.as_ref()).unwrap_or_default();
        let name = path.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
        name.is_none_or(|name| name == container)
    }
}

/// Of all Events only the warnings about Pods.
pub struct WarningsOfPods;

impl Scoped for WarningsOfPods {
    const SCOPE: SourceScope = SourceScope::ALL.with_fields("involvedObject.kind=Pod,type=Warning");
}

/// An index: the uid of the Pod that each is about.
pub fn pod_uid(event: &EventView) -> Option<Text> {
    event.involved_object.uid.clone()
}

/// The uid by which Events are about a Pod.
pub fn uid(pod: &PodView) -> Option<Cow<'_, str>> {
    pod.metadata.annotation(MIRROR).map(Cow::Borrowed).or_else(|| pod.metadata.uid())
}

/// What keeps a Pod from starting, once it has a node.
const START: &[&str] = &[
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedCreatePodSandBox",
    "FailedPrepareDynamicResources",
    "NetworkNotReady",
    "FailedSync",
];
/// What keeps a Pod from getting one.
const SCHEDULING: &[&str] = &["FailedScheduling"];
/// What keeps a Pod from ending.
const END: &[&str] = &["FailedKillPod", "FailedPreStopHook", "ExceededGracePeriod"];
/// What probes say.
const PROBES: &[&str] = &["Unhealthy", "ProbeWarning"];
/// What is said of images, and of containers that cannot be made.
const FAILED: &[&str] = &["Failed", "InspectFailed"];

/// The cause, as the warnings of a Pod tell it. `was_killed` says whether the container that it is about did not
/// end by itself.
pub fn told(why: Why, was_killed: bool, warnings: &[Arc<EventView>]) -> Why {
    let container = why.container.clone().unwrap_or_default();
    let newest = |reasons: &[&str], begin: &str| {
        let of_reason = warnings.iter().filter(|event| {
            event.reason.as_deref().is_some_and(|reason| reasons.contains(&reason))
                && event.is_about(&container)
                && event.message.as_deref().is_some_and(|message| message.starts_with(begin))
        });
        of_reason.max_by_key(|event| (event.since(), event.metadata.name.clone()))
    };
    match why.code.as_str() {
        "ContainerCreating" | "NotStarted" => newest(START, "").map(|event| instead(event, &why)),
        "NotScheduled" => newest(SCHEDULING, "").map(|event| instead(event, &why)),
        "Terminating" => newest(END, "").map(|event| beside(event, &why)),
        "ReadinessProbe" => {
            let failed = newest(PROBES, "Readiness probe");
            failed.map(|event| beside(event, &why))
        }
        "StartupProbe" => newest(PROBES, "Startup probe").map(|event| beside(event, &why)),
        // A probe may have failed long before, for once.
        "CrashLoopBackOff" | "Error" if was_killed => {
            // One that was killed for what its probe said did not fail by itself.
            let killed = newest(PROBES, "Liveness probe").or(newest(PROBES, "Startup probe"));
            let code = |event: &EventView| match event.message.as_deref() {
                Some(message) if message.starts_with("Liveness") => "LivenessProbe".to_owned(),
                _ => "StartupProbe".to_owned(),
            };
            killed.map(|event| Why { code: code(event), ..beside(event, &why) })
        }
        // Older kubelets do not say why the image is not there.
        "ImagePullBackOff" if !why.message.contains("ErrImagePull") => {
            newest(FAILED, "Failed to pull image").map(|event| beside(event, &why))
        }
        _ => None,
    }
    .unwrap_or(why)
}

/// What an Event says, where the Pod itself says next to nothing.
fn instead(event: &EventView, why: &Why) -> Why {
    let code = given(event.reason.as_ref()).unwrap_or(&why.code);
    let message = event.message.as_deref().unwrap_or_default();
    let told = Why::new(code, message, event.since().map(Time));
    Why { since: told.since.or_else(|| why.since.clone()), ..told }
}

/// The cause, and what an Event says of it.
fn beside(event: &EventView, why: &Why) -> Why {
    let message = event.message.as_deref().unwrap_or_default();
    let message = format!("{}: {message}", why.message);
    Why { container: why.container.clone(), ..Why::new(&*why.code, message, why.since.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(reason: &str, message: &str, since: &str, part: &str) -> Arc<EventView> {
        let event = json!({
            "metadata": {"name": since}, "type": "Warning", "reason": reason, "message": message,
            "firstTimestamp": since, "involvedObject": {"kind": "Pod", "uid": "u", "fieldPath": part},
        });
        Arc::new(serde_json::from_value(event).unwrap())
    }

    fn check(code: &str, events: &[Arc<EventView>], expected: (&str, &str)) {
        let why = Why::new(code, "it is so", Some(Time("2026-01-01T00:00:00Z".parse().unwrap())));
        let told = told(Why { container: Some("a".to_owned()), ..why }, true, events);
        assert_eq!((told.code.as_str(), told.message.as_str()), expected);
    }

    const EARLY: &str = "2026-01-01T01:00:00Z";
    const LATE: &str = "2026-01-01T02:00:00Z";

    #[test]
    fn what_keeps_a_pod_from_starting() {
        let missing = "MountVolume.SetUp failed for volume \"c\": configmap \"c\" not found";
        let mount = event("FailedMount", missing, EARLY, "");
        let late = event("FailedCreatePodSandBox", "no network", LATE, "");
        check("ContainerCreating", std::slice::from_ref(&mount), ("FailedMount", missing));
        check(
            "NotStarted",
            &[late.clone(), mount.clone()],
            ("FailedCreatePodSandBox", "no network"),
        );
        check("ContainerCreating", &[], ("ContainerCreating", "it is so"));
        // What was in the way is over when it runs.
        check("ReadinessProbe", std::slice::from_ref(&mount), ("ReadinessProbe", "it is so"));
        let told = told(Why::new("NotStarted", "", None), false, &[mount]);
        assert_eq!(told.since.unwrap().0.to_string(), EARLY);
        let scheduling = event("FailedScheduling", "no nodes", EARLY, "");
        check("NotScheduled", &[scheduling], ("FailedScheduling", "no nodes"));
    }

    #[test]
    fn what_probes_say() {
        let of = |what: &str, part: &str| event("Unhealthy", what, EARLY, part);
        let readiness = of("Readiness probe failed: refused", "spec.containers{a}");
        let message = "it is so: Readiness probe failed: refused";
        check("ReadinessProbe", std::slice::from_ref(&readiness), ("ReadinessProbe", message));
        let other = of("Readiness probe failed: refused", "spec.containers{b}");
        check("ReadinessProbe", &[other], ("ReadinessProbe", "it is so"));
        let liveness = of("Liveness probe failed: refused", "spec.containers{a}");
        let message = "it is so: Liveness probe failed: refused";
        check("CrashLoopBackOff", &[readiness.clone(), liveness], ("LivenessProbe", message));
        check("CrashLoopBackOff", &[readiness], ("CrashLoopBackOff", "it is so"));
        let startup = of("Startup probe failed: refused", "spec.containers{a}");
        let message = "it is so: Startup probe failed: refused";
        check("StartupProbe", std::slice::from_ref(&startup), ("StartupProbe", message));
        check("CrashLoopBackOff", &[startup], ("StartupProbe", message));
    }

    #[test]
    fn what_keeps_a_pod_from_ending_and_an_image_away() {
        let kill = event("FailedKillPod", "error killing pod", EARLY, "");
        check("Terminating", &[kill], ("Terminating", "it is so: error killing pod"));
        let text = "Failed to pull image \"x\": not found";
        let pull = event("Failed", text, EARLY, "spec.containers{a}");
        let again = event("Failed", "Error: ImagePullBackOff", LATE, "spec.containers{a}");
        let message = format!("it is so: {text}");
        check("ImagePullBackOff", &[pull, again], ("ImagePullBackOff", &message));
    }

    #[test]
    fn warnings_are_found_by_their_pod() {
        let event: EventView = serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {"kind": "Pod", "uid": "u"},
        }))
        .unwrap();
        assert_eq!(pod_uid(&event).as_deref(), Some("u"));
        let pod = |annotations: Value| -> PodView {
            let metadata = json!({"name": "p", "uid": "u", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        assert_eq!(uid(&pod(json!({}))).as_deref(), Some("u"));
        assert_eq!(uid(&pod(json!({MIRROR: "hash"}))).as_deref(), Some("hash"));
    }
}
