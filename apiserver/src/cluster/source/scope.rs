//! Which objects of a type are read.

/// Which objects of a type are read of the cluster: all of them ([`SourceScope::ALL`]), or those of
/// a namespace, or those that selectors select. Whoever reads the same of the same type shares one
/// watch.
///
/// ```
/// use aggregated_apiserver::SourceScope;
///
/// /// The Events that are about Pods.
/// const POD_EVENTS: SourceScope = SourceScope::ALL.with_fields("involvedObject.kind=Pod");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceScope {
    namespace: Option<&'static str>,
    labels: Option<&'static str>,
    fields: Option<&'static str>,
}

impl SourceScope {
    /// All objects.
    pub const ALL: Self = Self { namespace: None, labels: None, fields: None };

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
