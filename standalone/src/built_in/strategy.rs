//! Strategies that several kinds have, or begin from.

use aggregated_apiserver::{SelectableFields, Strategy};

/// One that may be replaced by who has not seen it.
pub(crate) fn common() -> Strategy {
    Strategy {
        allows_unconditional_update: true,
        updates_metadata_with_status: true,
        ..Strategy::default()
    }
}

/// One that does.
pub(crate) fn with_generation() -> Strategy {
    Strategy { selectable: SelectableFields::none(), ..common() }
}

/// An object that does not count its changes, and is selected by nothing but its
/// name and namespace.
pub(crate) fn without_generation() -> Strategy {
    Strategy { has_generation: false, ..with_generation() }
}

/// One that may be replaced only by who has seen it.
pub(crate) fn requiring_resource_version() -> Strategy {
    Strategy { allows_unconditional_update: false, ..without_generation() }
}
