//! Related: what a computation may look at, as one value.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Lookup, Scoped, Tracked};
use crate::cluster::Sources;
use crate::definition::SourceType;
use crate::definition::kinds::SourceKind;

/// What a computation may look at besides its source: nothing, a [`Lookup`],
/// or up to twelve of them; each may be a tuple itself.
pub trait Related: Send + Sync + Sized + 'static {
    #[doc(hidden)]
    fn open(sources: &Sources, notify: &Arc<Notify>) -> Self;
    #[doc(hidden)]
    fn lookups(&self) -> Vec<&dyn Tracked>;
    #[doc(hidden)]
    fn kinds() -> Vec<SourceKind>;
}

impl<K: SourceType, S: Scoped> Related for Lookup<K, S> {
    fn open(sources: &Sources, notify: &Arc<Notify>) -> Self {
        Lookup::open(sources, notify)
    }

    fn lookups(&self) -> Vec<&dyn Tracked> {
        vec![self]
    }

    fn kinds() -> Vec<SourceKind> {
        vec![SourceKind::of::<K>(S::SCOPE)]
    }
}

impl Related for () {
    fn open(_: &Sources, _: &Arc<Notify>) -> Self {}

    fn lookups(&self) -> Vec<&dyn Tracked> {
        Vec::new()
    }

    fn kinds() -> Vec<SourceKind> {
        Vec::new()
    }
}

macro_rules! related {
    ($($name:ident)*) => {
        impl<$($name: Related),*> Related for ($($name,)*) {
            fn open(sources: &Sources, notify: &Arc<Notify>) -> Self {
                ($($name::open(sources, notify),)*)
            }

            #[allow(non_snake_case)] // each value is bound to the name of its type
            fn lookups(&self) -> Vec<&dyn Tracked> {
                let ($($name,)*) = self;
                let mut lookups: Vec<&dyn Tracked> = Vec::new();
                $(lookups.extend($name.lookups());)*
                lookups
            }

            fn kinds() -> Vec<SourceKind> {
                let mut kinds = Vec::new();
                $(kinds.extend($name::kinds());)*
                kinds
            }
        }
    };
}

related!(A);
related!(A B);
related!(A B C);
related!(A B C D);
related!(A B C D E);
related!(A B C D E F);
related!(A B C D E F G);
related!(A B C D E F G H);
related!(A B C D E F G H I);
related!(A B C D E F G H I J);
related!(A B C D E F G H I J K);
related!(A B C D E F G H I J K L);
