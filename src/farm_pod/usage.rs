//! The usage of a Pod, as measured periodically by the metrics API.

use std::time::Duration;

use aggregated_apiserver::computed::{LookupOptions, SourceApi, SourceOptions, SourceType};
use aggregated_apiserver::types::Quantity;
use serde::{Deserialize, Deserializer};

use super::amounts::{Amounts, Written};
use super::metadata::Named;
use super::resources::{Amount, Resources};
use super::view::Text;

/// The smallest change of the usage, in percent of the request, that is published at once. A smaller change is
/// published later, together with other changes.
const WORTH_PERCENT: i128 = 10;

/// The fields that are read of the measurements of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodMetricsView {
    /// The name and namespace of the Pod.
    #[serde(default)]
    pub metadata: Named,
    /// The usage of its containers.
    #[serde(default, rename = "containers")]
    pub usages: Usages,
}

/// The CPU and memory usage of each container of a Pod, as the strings of the measurement. One string contains the
/// usage of all containers, because there is one such value for each Pod of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Usages(Text);

impl Usages {
    /// The usage of each container.
    fn iter(&self) -> impl Iterator<Item = Amounts> {
        self.0.split_terminator(BEHIND_CONTAINER).map(|container| {
            let (cpu, memory) = container.split_once(BEHIND_CPU).unwrap_or_default();
            let mut used = Amounts::default();
            for (name, text) in [("cpu", cpu), ("memory", memory)] {
                // An invalid quantity is omitted. The metrics server does not produce any.
                if let Ok(amount) = Quantity::parse(text) {
                    used.set(name, amount);
                }
            }
            used
        })
    }
}

/// Separators. No quantity contains one of them.
const BEHIND_CPU: char = ' ';
const BEHIND_CONTAINER: char = '\n';

impl<'de> Deserialize<'de> for Usages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Container {
            usage: Written,
        }

        let mut texts = String::new();
        for Container { usage } in Vec::deserialize(deserializer)? {
            let text = |name: &str| {
                let text = usage.iter().find(|(known, _)| *known == name).map(|(_, text)| text);
                text.filter(|text| !text.contains([BEHIND_CPU, BEHIND_CONTAINER]))
                    .unwrap_or_default()
            };
            texts.push_str(text("cpu"));
            texts.push(BEHIND_CPU);
            texts.push_str(text("memory"));
            texts.push(BEHIND_CONTAINER);
        }
        Ok(Self(texts.into()))
    }
}

impl SourceType for PodMetricsView {
    fn api() -> SourceApi {
        measured_of("pods", true)
    }

    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    fn each_label(&self, _: &mut dyn FnMut(&str, &str)) {}
}

/// The fields that are read of the measurements of a node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NodeMetricsView {
    /// The name of the node.
    #[serde(default)]
    pub metadata: Named,
    /// The usage of the whole node.
    #[serde(default)]
    pub usage: Written,
}

impl SourceType for NodeMetricsView {
    fn api() -> SourceApi {
        measured_of("nodes", false)
    }

    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    fn each_label(&self, _: &mut dyn FnMut(&str, &str)) {}
}

/// The metrics API of a kind of objects.
fn measured_of(plural: &'static str, is_namespaced: bool) -> SourceApi {
    let (group, version) = ("metrics.k8s.io".into(), "v1beta1".into());
    SourceApi { group, version, plural: plural.into(), is_namespaced, is_metadata: false }
}

/// The poll options of measurements, because the metrics API has no watch. metrics-server, where it is installed,
/// measures every 15 seconds.
pub struct Polled;

impl LookupOptions for Polled {
    const OPTIONS: SourceOptions =
        SourceOptions::ALL.polled_every(Duration::from_secs(15)).if_served();
}

/// Adds the usage of all containers to the requests and limits.
pub fn add(resources: &mut Resources, metrics: &PodMetricsView) {
    let mut used = Amounts::default();
    sum(&mut used, metrics);
    set(&mut resources.cpu, &mut resources.memory, &used);
}

/// Adds the usage of all containers of a Pod to `used`.
pub fn sum(used: &mut Amounts, metrics: &PodMetricsView) {
    for container in metrics.usages.iter() {
        used.add(&container);
    }
}

/// Sets the usage and its percentages.
pub fn set(cpu: &mut Amount, memory: &mut Amount, used: &Amounts) {
    for (name, amount) in [("cpu", cpu), ("memory", memory)] {
        // Usage is measured in billionths of a processor; thousandths are precise enough.
        if let Some(used) = used.get(name).map(Quantity::in_thousandths) {
            *amount = measured(amount, used);
        }
    }
}

fn measured(amount: &Amount, used: Quantity) -> Amount {
    let percent = |whole: &Option<String>| {
        let whole = Quantity::parse(whole.as_deref()?).ok()?.nanos();
        let percent = used.nanos().saturating_mul(100).checked_div(whole)?;
        i64::try_from(percent).ok()
    };
    Amount {
        usage: Some(used.to_string()),
        percent_of_request: percent(&amount.request),
        percent_of_limit: percent(&amount.limit),
        ..amount.clone()
    }
}

/// Whether the usage of a resource changed enough to publish the object.
pub fn has_moved(shown: &Resources, computed: &Resources) -> bool {
    let pairs = [(&shown.cpu, &computed.cpu), (&shown.memory, &computed.memory)];
    pairs.into_iter().any(|(shown, computed)| {
        let nanos = |text: &Option<String>| {
            Some(Quantity::parse(text.as_deref()?).ok()?.nanos()).filter(|nanos| *nanos != 0)
        };
        let (before, now) = (nanos(&shown.usage), nanos(&computed.usage));
        let whole = nanos(&computed.request).or_else(|| nanos(&computed.limit)).or(before);
        let moved = before.unwrap_or(0).abs_diff(now.unwrap_or(0));
        let worth = whole.unwrap_or(0).unsigned_abs().saturating_mul(WORTH_PERCENT as u128) / 100;
        before.is_some() != now.is_some() || (moved > 0 && moved >= worth)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resources(request: Option<&str>, limit: Option<&str>) -> Resources {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let amount = Amount { request: text(request), limit: text(limit), ..Amount::default() };
        Resources { cpu: amount.clone(), memory: amount, ..Resources::default() }
    }

    fn used(mut resources: Resources, cpu: &[&str]) -> Resources {
        let containers: Vec<_> = cpu.iter().map(|cpu| json!({"usage": {"cpu": cpu}})).collect();
        let metrics = json!({"metadata": {"name": "p"}, "containers": containers});
        add(&mut resources, &serde_json::from_value(metrics).unwrap());
        resources
    }

    #[test]
    fn container_usage_is_summed_and_compared_with_requests_and_limits() {
        let check = |request, limit, expected: (Option<i64>, Option<i64>)| {
            let cpu = used(resources(request, limit), &["100000001n", "20m"]).cpu;
            assert_eq!(cpu.usage.as_deref(), Some("121m"));
            assert_eq!((cpu.percent_of_request, cpu.percent_of_limit), expected);
        };
        check(Some("250m"), Some("1"), (Some(48), Some(12)));
        check(Some("60m"), None, (Some(201), None));
        check(Some("0"), None, (None, None));
        let unmeasured = used(resources(Some("1"), None), &[]);
        assert_eq!(unmeasured, resources(Some("1"), None));
    }

    /// A usage that is missing or is no valid quantity adds nothing; the others are summed.
    #[test]
    fn missing_and_invalid_usage_adds_nothing() {
        let containers = json!([
            {"usage": {"cpu": "100m"}}, {"usage": {"memory": "1Mi", "example.com/gpu": "1"}}, {}, {"usage": {}},
            {"usage": {"cpu": "1 2", "memory": "1\n"}}, {"usage": {"cpu": "x", "memory": ""}},
            {"usage": {"cpu": "20m", "memory": "1Ki"}},
        ]);
        let metrics = serde_json::from_value(json!({"containers": containers})).unwrap();
        let mut used = Amounts::default();
        sum(&mut used, &metrics);
        let text = |resource: &str| used.get(resource).map(|amount| amount.to_string());
        assert_eq!(
            (text("cpu").as_deref(), text("memory").as_deref()),
            (Some("120m"), Some("1025Ki"))
        );
        assert_eq!(used.iter().count(), 2);
        let mut nothing = Amounts::default();
        sum(&mut nothing, &serde_json::from_value(json!({"containers": [{}]})).unwrap());
        assert_eq!(nothing.iter().count(), 0);
    }

    #[test]
    fn small_changes_are_not_worth_an_event() {
        let check = |request: Option<&str>, before: &[&str], now: &[&str], expected: bool| {
            let of = |cpu: &[&str]| used(resources(request, None), cpu);
            assert_eq!(has_moved(&of(before), &of(now)), expected, "{before:?} {now:?}");
        };
        check(Some("1"), &["500m"], &["599m"], false);
        check(Some("1"), &["500m"], &["600m"], true);
        check(Some("1"), &["500m"], &["400m"], true);
        // Without a request, the threshold is a tenth of the previous usage.
        check(None, &["100m"], &["109m"], false);
        check(None, &["100m"], &["110m"], true);
        check(Some("1"), &["1m"], &["1m"], false);
        check(Some("1"), &[], &["1m"], true);
        check(Some("1"), &["1m"], &[], true);
    }
}
