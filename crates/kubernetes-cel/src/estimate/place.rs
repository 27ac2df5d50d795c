//! The position of an expression in the schema, and the size of the value there.

use super::range::Range;
use crate::declared::{Declared, Shape};

/// The position of an expression in the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// A value without a name. Anything below it counts as the root, same as in kube-apiserver.
    Unnamed,
    /// A value that the schema does not describe.
    Nowhere,
    At(&'a Declared),
    /// A key of a map, which the schema does not describe.
    Key,
}

impl<'a> Place<'a> {
    pub(super) fn size(self) -> Option<Range> {
        match self {
            Self::Unnamed | Self::Nowhere => None,
            Self::At(declared) => Some(Range { min: 0, max: declared.largest }),
            Self::Key => Some(Range::ZERO),
        }
    }

    pub(super) fn element(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            Self::At(Declared { shape: Shape::List(of, _) | Shape::Map(of), .. }) => Self::At(of),
            _ => Self::Nowhere,
        }
    }

    pub(super) fn key(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            Self::At(Declared { shape: Shape::Map(_), .. }) => Self::Key,
            _ => Self::Nowhere,
        }
    }

    pub(super) fn index(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            _ => Self::Nowhere,
        }
    }

    pub(super) fn member(self, name: &str, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            // The size of a field is known only by its escaped name.
            Self::At(Declared { shape: Shape::Object(members), .. }) => {
                match members.by_name.get(name) {
                    Some((_, of)) => Self::At(of),
                    None => Self::Nowhere,
                }
            }
            _ => Self::Nowhere,
        }
    }
}
