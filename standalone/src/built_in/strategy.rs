//! Strategies that several kinds have, or begin from.

use aggregated_apiserver::{SelectableFields, Strategy};

/// One that may be replaced by who has not seen it.
pub(crate) fn base() -> Strategy {
    Strategy {
        allows_unconditional_update: true,
        updates_metadata_with_status: true,
        ..Strategy::default()
    }
}

/// One that does.
pub(crate) fn counted() -> Strategy {
    Strategy { selectable: SelectableFields::none(), ..base() }
}

/// An object that does not count its changes, and is selected by nothing but its
/// name and namespace.
pub(crate) fn plain() -> Strategy {
    Strategy { has_generation: false, ..counted() }
}

/// One that may be replaced only by who has seen it.
pub(crate) fn guarded() -> Strategy {
    Strategy { allows_unconditional_update: false, ..plain() }
}
