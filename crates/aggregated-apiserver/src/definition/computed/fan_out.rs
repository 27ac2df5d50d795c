//! The number of objects that are computed from a source.

/// The objects of a computed kind that belong to one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanOut {
    /// At most one object, in the namespace of the source.
    #[default]
    One,
    /// Any number of objects, in the namespace of the source.
    Several,
    /// Any number of objects, in any namespaces. The source has no namespace, or [`SourceOptions::in_namespace`]
    /// selects the sources of one namespace. Readers need their permission on the source there.
    ///
    /// [`SourceOptions::in_namespace`]: crate::cluster::SourceOptions::in_namespace
    AnyNamespace,
}
