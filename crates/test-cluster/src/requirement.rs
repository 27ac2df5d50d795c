//! Tests that need programs which not every machine has.

use anyhow::Result;

use crate::Missing;

/// Whether tests fail when a program is missing: `REQUIRE_CONTROL_PLANE` is set, for example in CI.
pub fn is_required() -> bool {
    std::env::var_os("REQUIRE_CONTROL_PLANE").is_some()
}

/// Returns what a test needs, or `None` if its program is missing. The test is then skipped, which is printed.
///
/// # Errors
/// When the program is missing and [`is_required`], and for every other error.
pub fn unless_missing<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(why) if why.is::<Missing>() && !is_required() => {
            eprintln!("skipped: {why}");
            Ok(None)
        }
        found => found.map(Some),
    }
}
