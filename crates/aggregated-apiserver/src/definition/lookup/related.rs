//! Related: the lookups of a computation, as one value.

use super::{AnyLookup, Lookup, LookupContext, LookupOptions};
use crate::cluster::SourceType;
use crate::definition::kind::SourceKind;

/// The lookups of a computation: none (`()`), a [`Lookup`], or a tuple of up to twelve. Elements of a tuple can be
/// tuples themselves.
pub trait Related: Send + Sync + Sized + 'static {
    #[doc(hidden)]
    fn open(context: &LookupContext<'_>) -> Self;
    #[doc(hidden)]
    fn lookups(&self) -> Vec<&dyn AnyLookup>;
    #[doc(hidden)]
    fn kinds() -> Vec<SourceKind>;
}

impl<K: SourceType, S: LookupOptions> Related for Lookup<K, S> {
    fn open(context: &LookupContext<'_>) -> Self {
        Lookup::open(context)
    }

    fn lookups(&self) -> Vec<&dyn AnyLookup> {
        vec![self]
    }

    fn kinds() -> Vec<SourceKind> {
        vec![SourceKind::of::<K>(S::OPTIONS)]
    }
}

impl Related for () {
    fn open(_: &LookupContext<'_>) -> Self {}

    fn lookups(&self) -> Vec<&dyn AnyLookup> {
        Vec::new()
    }

    fn kinds() -> Vec<SourceKind> {
        Vec::new()
    }
}

macro_rules! related {
    ($($name:ident)*) => {
        impl<$($name: Related),*> Related for ($($name,)*) {
            fn open(context: &LookupContext<'_>) -> Self {
                ($($name::open(context),)*)
            }

            #[allow(non_snake_case)] // each value is bound to the name of its type
            fn lookups(&self) -> Vec<&dyn AnyLookup> {
                let ($($name,)*) = self;
                let mut lookups: Vec<&dyn AnyLookup> = Vec::new();
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
