//! `custom.metrics.k8s.io` and `external.metrics.k8s.io`: the open files of Pods, and the load of the machine.

use std::collections::BTreeMap;

use aggregated_apiserver::paths::GroupVersion;
use aggregated_apiserver::paths::metrics_apis::{
    CustomMetric, CustomQuery, ExternalQuery, ExternalValue, MetricValue, custom_metrics,
    external_metrics,
};
use k8s_openapi::api::core::v1::Pod;

use super::usage::{Measure, Measured};

/// The metric `open_files` of Pods.
pub fn open_files(measure: Measure) -> [GroupVersion; 2] {
    let available = || vec![CustomMetric::of::<Pod>("open_files")];
    custom_metrics(available, move |query| {
        let values = files(measure(), &query);
        async { Ok(values) }
    })
}

/// The sums over the containers of each Pod of a query.
fn files(measured: Vec<Measured>, query: &CustomQuery) -> Vec<MetricValue> {
    let mut files: BTreeMap<String, u32> = BTreeMap::new();
    for one in measured {
        let is_here = query.namespace.as_ref() == Some(&one.namespace);
        if is_here && query.objects.include(&one.pod, &one.labels) {
            *files.entry(one.pod).or_default() += one.open_files;
        }
    }
    files.into_iter().map(|(pod, files)| MetricValue::new(pod, files)).collect()
}

/// The metric `load_average`, with a value for each of `minutes=1`, `minutes=5` and `minutes=15`.
pub fn load_average(load: impl Fn() -> Vec<f64> + Send + Sync + 'static) -> GroupVersion {
    external_metrics(
        || vec!["load_average".to_owned()],
        move |query: ExternalQuery| {
            let values = ["1", "5", "15"].into_iter().zip(load());
            let values =
                values.map(|(minutes, load)| ExternalValue::new([("minutes", minutes)], load));
            let values = values.filter(|value| query.selector.matches_map(&value.labels)).collect();
            async { Ok(values) }
        },
    )
}

/// The load of this machine, from Linux's `/proc`; no values on other systems.
pub fn this_machine() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|field| field.parse().ok()).collect()
}
