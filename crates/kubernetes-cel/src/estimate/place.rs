//! Places: where in the schema an expression leads to, and how large what is there may be.

use super::range::Range;
use crate::declared::{Declared, Shape};

/// Where an expression leads to in the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// To nothing that has a name. Whatever is below it counts as the root: so kube-apiserver does it.
    Unnamed,
    /// To what the schema does not say.
    Nowhere,
    At(&'a Declared),
    /// A key of a map, of which the schema says nothing.
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
            // Only by the name that is escaped is its size known.
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
