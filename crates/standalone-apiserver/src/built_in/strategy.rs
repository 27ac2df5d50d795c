//! Strategies that several kinds share, or modify in a few fields.

use aggregated_apiserver::{SelectableFields, Strategy};

/// The strategy of most built-in kinds: a missing resourceVersion means an unconditional update, and a write to the
/// status may change labels and annotations.
pub(crate) fn common() -> Strategy {
    Strategy {
        allows_unconditional_update: true,
        updates_metadata_with_status: true,
        ..Strategy::built_in()
    }
}

/// The common strategy of kinds whose `metadata.generation` counts changes, and whose only field selectors are name and
/// namespace.
pub(crate) fn with_generation() -> Strategy {
    Strategy { selectable: SelectableFields::name_and_namespace_only(), ..common() }
}

/// Same as [`with_generation`], but without `metadata.generation`.
pub(crate) fn without_generation() -> Strategy {
    Strategy { has_generation: false, ..with_generation() }
}

/// Same as [`without_generation`], but an update must have a resourceVersion.
pub(crate) fn requiring_resource_version() -> Strategy {
    Strategy { allows_unconditional_update: false, ..without_generation() }
}
