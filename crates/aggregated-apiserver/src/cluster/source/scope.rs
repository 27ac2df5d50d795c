//! Which objects of a type are read, and how.

use std::time::Duration;

/// Which objects of a type are read of the cluster: all of them ([`SourceOptions::ALL`]), or those of
/// a namespace, or those that selectors select. Whoever reads the same of the same type shares one
/// watch.
///
/// ```
/// use aggregated_apiserver::computed::SourceOptions;
///
/// /// The Events that are about Pods.
/// const POD_EVENTS: SourceOptions = SourceOptions::ALL.with_fields("involvedObject.kind=Pod");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceOptions {
    namespace: Option<&'static str>,
    labels: Option<&'static str>,
    fields: Option<&'static str>,
    /// How often they are listed, if they are not watched.
    every: Option<Duration>,
    is_measured: bool,
    /// At most so often computations look at what has changed of them.
    pace: Option<Duration>,
    may_be_absent: bool,
}

impl SourceOptions {
    /// All objects.
    pub const ALL: Self = Self {
        namespace: None,
        labels: None,
        fields: None,
        every: None,
        is_measured: false,
        pace: None,
        may_be_absent: false,
    };

    /// Only those in this namespace. The manifests ask for rights in it alone.
    #[must_use]
    pub const fn in_namespace(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// Only those that this label selector selects, as `app=web,tier!=cache`.
    #[must_use]
    pub const fn with_labels(self, selector: &'static str) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// Only those that this field selector selects, as `involvedObject.kind=Pod`: one that
    /// the cluster knows for this type.
    #[must_use]
    pub const fn with_fields(self, selector: &'static str) -> Self {
        Self { fields: Some(selector), ..self }
    }

    /// They are listed every so often, and not watched: for what knows no watch, as the metrics of
    /// `metrics.k8s.io`. Times vary by a tenth, so that not all servers ask at once. They are
    /// [measured](Self::measured).
    ///
    /// # Panics
    /// At most once a second: what is shorter does not compile where it is a constant.
    #[must_use]
    pub const fn polled_every(self, every: Duration) -> Self {
        assert!(every.as_secs() >= 1, "the cluster is asked once a second at most");
        Self { every: Some(every), is_measured: true, ..self }
    }

    /// They are measurements, which change all the time: what only they have changed of an object is
    /// told when `Computed::is_worth_publishing` says so, and not too often.
    #[must_use]
    pub const fn measured(self) -> Self {
        Self { is_measured: true, ..self }
    }

    /// They are [measurements](Self::measured) that are watched, and what has changed of them is looked at
    /// so often at most, all at once: for counters that move with each of many objects. Looked at each time, a
    /// budget of a thousand Pods would have all of them computed again whenever one of them becomes ready. Of what
    /// is looked up only.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use aggregated_apiserver::computed::SourceOptions;
    ///
    /// const COUNTERS: SourceOptions = SourceOptions::ALL.measured_every(Duration::from_secs(15));
    /// ```
    #[must_use]
    pub const fn measured_every(self, pace: Duration) -> Self {
        Self { pace: Some(pace), is_measured: true, ..self }
    }

    /// A cluster may do without this API, as one without a metrics-server does without
    /// `metrics.k8s.io`. As long as it answers that there is no such API (404), clients are not warned of
    /// what is left out; metrics, the log and `/readyz` say it. What is there and cannot be read (403, away,
    /// too much) is warned of all the same. What is computed from it is none then: such a
    /// kind is served, and does not wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use aggregated_apiserver::computed::SourceOptions;
    ///
    /// /// What metrics-server measures, where there is one.
    /// const METRICS: SourceOptions = SourceOptions::ALL.polled_every(Duration::from_secs(15)).if_served();
    /// ```
    #[must_use]
    pub const fn if_served(self) -> Self {
        Self { may_be_absent: true, ..self }
    }

    /// Whether a cluster may do without this API.
    pub fn may_be_absent(&self) -> bool {
        self.may_be_absent
    }

    /// The same without what does not matter to how they are read.
    pub(super) fn as_read(self) -> Self {
        Self { is_measured: false, pace: None, may_be_absent: false, ..self }
    }

    /// Whether they are measurements.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// At most how often what has changed of them is looked at.
    pub fn pace(&self) -> Option<Duration> {
        self.pace
    }

    /// How often they are listed, if they are not watched.
    pub fn every(&self) -> Option<Duration> {
        self.every
    }

    /// The only namespace that is read.
    pub fn namespace(&self) -> Option<&'static str> {
        self.namespace
    }

    /// The label selector.
    pub(super) fn labels(&self) -> Option<&'static str> {
        self.labels
    }

    /// The field selector.
    pub(super) fn fields(&self) -> Option<&'static str> {
        self.fields
    }
}
