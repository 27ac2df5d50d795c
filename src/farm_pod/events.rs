//! Warning Events of schedulers, kubelets and controllers about a Pod. They are used where they contain more than the
//! Pod itself.
//!
//! A repeated Event is updated every few seconds. The fields that such an update changes are not read, so that a farm
//! pod changes only with new information.

use aggregated_apiserver::computed::{LookupOptions, SourceApi, SourceOptions, SourceType};
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

/// The annotation with the uid that a kubelet gave to a static Pod. It differs from the uid of the mirror Pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The fields that are read of an Event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// The metadata of the Event.
    #[serde(default)]
    pub metadata: Named,
    /// The object that the Event is about.
    #[serde(default)]
    pub involved_object: InvolvedObjectView,
    /// The reason, one word in CamelCase.
    pub reason: Option<Word>,
    /// The message.
    pub message: Option<Word>,
    /// The time of the first occurrence.
    #[serde(default)]
    pub first_timestamp: Moment,
    /// The time of the first occurrence, in Events that use the newer field.
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

/// The object that an Event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObjectView {
    /// The uid of the object.
    pub uid: Option<Text>,
    /// The part of the object, for example `spec.containers{feeder}`.
    pub field_path: Option<Word>,
}

impl EventView {
    fn since(&self) -> Option<Timestamp> {
        self.first_timestamp.timestamp().or_else(|| self.event_time.timestamp())
    }

    fn is_about(&self, container: &str) -> bool {
        // For example `spec.initContainers{early}`.
        let path = given(self.involved_object.field_path.as_ref()).unwrap_or_default();
        let name = path.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
        name.is_none_or(|name| name == container)
    }
}

/// The watch options of Events: only warnings about Pods.
pub struct WarningsOfPods;

impl LookupOptions for WarningsOfPods {
    const OPTIONS: SourceOptions =
        SourceOptions::ALL.with_fields("involvedObject.kind=Pod,type=Warning");
}

/// Indexes Events by the uid of their Pod.
pub fn pod_uid(event: &EventView) -> Option<Text> {
    event.involved_object.uid.clone()
}

/// The uid by which Events refer to a Pod.
pub fn uid(pod: &PodView) -> Option<Cow<'_, str>> {
    pod.metadata.annotation(MIRROR).map(Cow::Borrowed).or_else(|| pod.metadata.uid())
}

/// Reasons why a Pod on a node does not start.
const START: &[&str] = &[
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedCreatePodSandBox",
    "FailedPrepareDynamicResources",
    "NetworkNotReady",
    "FailedSync",
];
/// Reasons why a Pod is not scheduled.
const SCHEDULING: &[&str] = &["FailedScheduling"];
/// Reasons why a Pod does not end.
const END: &[&str] = &["FailedKillPod", "FailedPreStopHook", "ExceededGracePeriod"];
/// Reasons of Events about probes.
const PROBES: &[&str] = &["Unhealthy", "ProbeWarning"];
/// Reasons of Events about images, and about containers that cannot be created.
const FAILED: &[&str] = &["Failed", "InspectFailed"];

/// Refines a cause with the newest matching warning about the Pod. `was_killed` tells whether the container of the
/// cause was killed rather than ended by itself.
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
        // Without a kill, a failed probe may be an old event that is unrelated.
        "CrashLoopBackOff" | "Error" if was_killed => {
            // A container that was killed because of its probe did not fail by itself.
            let killed = newest(PROBES, "Liveness probe").or(newest(PROBES, "Startup probe"));
            let code = |event: &EventView| match event.message.as_deref() {
                Some(message) if message.starts_with("Liveness") => "LivenessProbe".to_owned(),
                _ => "StartupProbe".to_owned(),
            };
            killed.map(|event| Why { code: code(event), ..beside(event, &why) })
        }
        // Older kubelets do not report why the image is missing.
        "ImagePullBackOff" if !why.message.contains("ErrImagePull") => {
            newest(FAILED, "Failed to pull image").map(|event| beside(event, &why))
        }
        _ => None,
    }
    .unwrap_or(why)
}

/// Replaces the cause by an Event, because the Pod itself contains almost no information.
fn instead(event: &EventView, why: &Why) -> Why {
    let code = given(event.reason.as_ref()).unwrap_or(&why.code);
    let message = event.message.as_deref().unwrap_or_default();
    let told = Why::new(code, message, event.since().map(Time));
    Why { since: told.since.or_else(|| why.since.clone()), ..told }
}

/// Appends the message of an Event to the cause.
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
    fn events_explain_why_a_pod_does_not_start() {
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
        // An Event about the start is ignored once the container runs.
        check("ReadinessProbe", std::slice::from_ref(&mount), ("ReadinessProbe", "it is so"));
        let told = told(Why::new("NotStarted", "", None), false, &[mount]);
        assert_eq!(told.since.unwrap().0.to_string(), EARLY);
        let scheduling = event("FailedScheduling", "no nodes", EARLY, "");
        check("NotScheduled", &[scheduling], ("FailedScheduling", "no nodes"));
    }

    #[test]
    fn probe_failure_events_explain_unready_and_restarting_containers() {
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
    fn events_explain_failed_termination_and_image_pull_errors() {
        let kill = event("FailedKillPod", "error killing pod", EARLY, "");
        check("Terminating", &[kill], ("Terminating", "it is so: error killing pod"));
        let text = "Failed to pull image \"x\": not found";
        let pull = event("Failed", text, EARLY, "spec.containers{a}");
        let again = event("Failed", "Error: ImagePullBackOff", LATE, "spec.containers{a}");
        let message = format!("it is so: {text}");
        check("ImagePullBackOff", &[pull, again], ("ImagePullBackOff", &message));
    }

    #[test]
    fn events_are_matched_to_pods_by_uid_or_mirror_annotation() {
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
