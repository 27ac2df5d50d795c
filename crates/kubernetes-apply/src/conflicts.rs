//! Conflicts: applied fields that other managers own.

use std::fmt;

use super::field_set::FieldSet;
use super::managers::Manager;
use crate::error::beginning;

/// The largest number of reported conflicts, and their largest total size in bytes. Longer messages are not read.
const CONFLICTS_LIMIT: usize = 1_000;
const BYTES_LIMIT: usize = 64 << 10;

/// The fields that other managers own, by manager.
#[derive(Clone, Debug)]
pub struct Conflicts(Vec<(Manager, FieldSet)>);

/// A field that another manager owns.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The owner, as messages name it.
    pub manager: String,
    /// The path of the field.
    pub path: String,
}

impl Conflicts {
    /// Creates the conflicts with these managers, which must be in the order of their identifiers.
    pub fn of(taken: Vec<(Manager, FieldSet)>) -> Self {
        Self(taken)
    }

    /// Returns the number of all conflicts, including those that are not reported.
    fn count(&self) -> usize {
        let mut count = 0;
        self.0.iter().for_each(|(_, set)| set.for_each(&mut |_| count += 1));
        count
    }

    /// Returns the conflicts to report, limited in number and size.
    pub fn all(&self) -> Vec<Conflict> {
        let mut all: Vec<Conflict> = Vec::new();
        let mut bytes = 0;
        for (manager, set) in &self.0 {
            let manager = manager.to_string();
            set.for_each(&mut |path| {
                if all.len() < CONFLICTS_LIMIT && bytes < BYTES_LIMIT {
                    let path: String = path.iter().map(ToString::to_string).collect();
                    let path = beginning(&path).into_owned();
                    bytes += manager.len() + path.len();
                    all.push(Conflict { manager: manager.clone(), path });
                }
            });
        }
        all
    }

    /// Returns the conflicting paths of all managers.
    pub fn paths(&self) -> FieldSet {
        self.0.iter().fold(FieldSet::default(), |all, (_, set)| all.union(set.clone()))
    }

    /// Returns the conflicts except those with these paths.
    #[must_use]
    pub fn without(self, allowed: &FieldSet) -> Self {
        let left = self.0.into_iter().map(|(manager, set)| (manager, set.difference(allowed)));
        Self(left.filter(|(_, set)| !set.is_empty()).collect())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        if let [Conflict { manager, path }] = all.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.count())?;
        let mut last = None;
        for (index, Conflict { manager, path }) in all.iter().enumerate() {
            if last != Some(manager) {
                f.write_str(if index == 0 { "" } else { "\n" })?;
                write!(f, "conflicts with {manager}:")?;
                last = Some(manager);
            }
            write!(f, "\n- {path}")?;
        }
        Ok(())
    }
}
