//! [`SourceOptions`]: the selection of the objects of a source, and the way to read them.

use std::time::Duration;

/// The objects of a type that are read from the cluster: all objects ([`SourceOptions::ALL`]), the objects of a
/// namespace, or the objects that selectors match. All readers of the same type and scope share one watch.
///
/// ```
/// use aggregated_apiserver::computed::SourceOptions;
///
/// /// The Events of Pods.
/// const POD_EVENTS: SourceOptions = SourceOptions::ALL.with_fields("involvedObject.kind=Pod");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceOptions {
    namespace: Option<&'static str>,
    labels: Option<&'static str>,
    fields: Option<&'static str>,
    /// The interval between lists, if the objects are polled instead of watched.
    every: Option<Duration>,
    is_measured: bool,
    /// The shortest time between two computations that are caused by changes of these objects.
    pace: Option<Duration>,
    may_be_absent: bool,
}

impl SourceOptions {
    /// All objects of a type.
    pub const ALL: Self = Self {
        namespace: None,
        labels: None,
        fields: None,
        every: None,
        is_measured: false,
        pace: None,
        may_be_absent: false,
    };

    /// Selects the objects in this namespace. The generated manifests request permissions only in this namespace.
    #[must_use]
    pub const fn in_namespace(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// Selects the objects that match this label selector, for example `app=web,tier!=cache`.
    #[must_use]
    pub const fn with_labels(self, selector: &'static str) -> Self {
        Self { labels: Some(selector), ..self }
    }

    /// Selects the objects that match this field selector, for example `involvedObject.kind=Pod`. The cluster must
    /// support the selector for this type.
    #[must_use]
    pub const fn with_fields(self, selector: &'static str) -> Self {
        Self { fields: Some(selector), ..self }
    }

    /// Lists the objects at this interval instead of watching them. This is necessary for APIs without watches, such as
    /// `metrics.k8s.io`. Intervals vary by a tenth, so that servers do not all send their requests at the same time.
    /// The objects are [measured](Self::measured).
    ///
    /// # Panics
    /// If the interval is shorter than one second. In a constant, this is a compile error.
    #[must_use]
    pub const fn polled_every(self, every: Duration) -> Self {
        assert!(every.as_secs() >= 1, "the cluster is asked once a second at most");
        Self { every: Some(every), is_measured: true, ..self }
    }

    /// Marks the objects as measurements, which change all the time. If only measurements of a computed object have
    /// changed, `Computed::is_worth_publishing` decides whether watchers receive an event, and the rate of these events
    /// is limited.
    #[must_use]
    pub const fn measured(self) -> Self {
        Self { is_measured: true, ..self }
    }

    /// Marks the objects as watched [measurements](Self::measured), and processes their changes together, at most once
    /// in this time. Applies to lookups only.
    ///
    /// This is for counters that change with each of many objects. For example, a budget of a thousand Pods changes
    /// whenever one of the Pods becomes ready, and without a limit each change would cause the computation of all
    /// thousand.
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

    /// Allows a cluster without this API: `metrics.k8s.io`, for example, is missing in a cluster without
    /// metrics-server.
    ///
    /// While the cluster responds that the API does not exist (404), responses carry no warning about the omitted
    /// fields; metrics, the log and `/readyz` still report it. Objects that exist and cannot be read (403, cluster
    /// unreachable, memory limit) still cause a warning. A kind with this scope for its source objects is served with
    /// no objects, and does not wait for the API.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use aggregated_apiserver::computed::SourceOptions;
    ///
    /// /// The metrics of metrics-server, if the cluster has one.
    /// const METRICS: SourceOptions = SourceOptions::ALL.polled_every(Duration::from_secs(15)).if_served();
    /// ```
    #[must_use]
    pub const fn if_served(self) -> Self {
        Self { may_be_absent: true, ..self }
    }

    /// Whether a cluster may lack this API.
    pub fn may_be_absent(&self) -> bool {
        self.may_be_absent
    }

    /// The scope without the settings that do not affect the requests to the cluster.
    pub(super) fn as_read(self) -> Self {
        Self { is_measured: false, pace: None, may_be_absent: false, ..self }
    }

    /// Whether the objects are measurements.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The shortest time between two computations that are caused by changes of these objects.
    pub fn pace(&self) -> Option<Duration> {
        self.pace
    }

    /// The interval between lists, if the objects are polled instead of watched.
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
