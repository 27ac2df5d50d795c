//! Strategies that several kinds share, or that theirs differs from in a few fields.

use aggregated_apiserver::{SelectableFields, Strategy};

/// What most built-in kinds have in common: a missing resourceVersion means an
/// unconditional update, and a write to the status may change labels and annotations.
pub(crate) fn common() -> Strategy {
    Strategy {
        allows_unconditional_update: true,
        updates_metadata_with_status: true,
        ..Strategy::built_in()
    }
}

/// Objects count their changes in `metadata.generation`, and field selectors know their
/// name and namespace alone.
pub(crate) fn with_generation() -> Strategy {
    Strategy { selectable: SelectableFields::name_and_namespace_only(), ..common() }
}

/// The same without `metadata.generation`.
pub(crate) fn without_generation() -> Strategy {
    Strategy { has_generation: false, ..with_generation() }
}

/// The same, and an update must have a resourceVersion.
pub(crate) fn requiring_resource_version() -> Strategy {
    Strategy { allows_unconditional_update: false, ..without_generation() }
}
