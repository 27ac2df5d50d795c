//! The sums of one text: of each namespace, and of all of them.

use std::any::Any;
use std::collections::BTreeMap;

use super::totals::Total;

/// A sum, and of how many objects it is.
#[derive(Clone, Default)]
pub(super) struct Group<T> {
    pub total: T,
    pub members: usize,
}

/// The sums of one text by namespace. Most texts stand in one: then its sum is that of all.
#[derive(Clone)]
pub(super) enum ByNamespace<T> {
    One(Box<One<T>>),
    Several(Box<Several<T>>),
}

#[derive(Clone)]
pub(super) struct One<T> {
    /// None, where objects are in none.
    namespace: Option<Box<str>>,
    group: Group<T>,
}

#[derive(Clone)]
pub(super) struct Several<T> {
    all: Group<T>,
    by_namespace: BTreeMap<Option<Box<str>>, Group<T>>,
}

impl<T: Total> ByNamespace<T> {
    /// Those of a namespace, of no objects yet.
    pub fn of(namespace: Option<&str>) -> Self {
        let group = Group { total: T::default(), members: 0 };
        Self::One(Box::new(One { namespace: namespace.map(Box::from), group }))
    }

    /// Changes the sums that an object of a namespace is in. Answers whether there are no objects any more.
    pub fn change(&mut self, namespace: Option<&str>, change: impl Fn(&mut Group<T>)) -> bool {
        match self {
            Self::One(one) if one.namespace.as_deref() == namespace => {
                change(&mut one.group);
                one.group.members == 0
            }
            Self::One(one) => {
                let One { namespace: other, group } = (**one).clone();
                let all = group.clone();
                let by_namespace = BTreeMap::from([(other, group)]);
                *self = Self::Several(Box::new(Several { all, by_namespace }));
                self.change(namespace, change)
            }
            Self::Several(several) => {
                let Several { all, by_namespace } = &mut **several;
                change(all);
                let namespace = namespace.map(Box::from);
                let group = by_namespace.entry(namespace.clone());
                let group = group.or_insert_with(|| Group { total: T::default(), members: 0 });
                change(group);
                if group.members == 0 {
                    by_namespace.remove(&namespace);
                }
                if by_namespace.len() < 2
                    && let Some((namespace, group)) = by_namespace.pop_first()
                {
                    *self = Self::One(Box::new(One { namespace, group }));
                }
                false
            }
        }
    }

    /// The sum of a namespace, or of all.
    pub fn of_namespace(&self, namespace: Option<&str>) -> Option<&dyn Any> {
        match self {
            Self::One(one) => {
                let is_meant = namespace.is_none() || one.namespace.as_deref() == namespace;
                is_meant.then_some(&one.group.total)
            }
            Self::Several(several) => match namespace {
                None => Some(&several.all.total),
                namespace => {
                    let group = several.by_namespace.get(&namespace.map(Box::from))?;
                    Some(&group.total)
                }
            },
        }
    }
}
