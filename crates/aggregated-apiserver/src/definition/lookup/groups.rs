//! The sums for one index value: of each namespace, and of all namespaces.

use std::any::Any;
use std::collections::BTreeMap;

use super::sums::Aggregate;

/// A sum and the number of its objects.
#[derive(Clone, Default)]
pub(super) struct Group<T> {
    pub total: T,
    pub members: usize,
}

/// The sums for one index value, by namespace. Most values occur in one namespace only: its sum is then the sum of all.
#[derive(Clone)]
pub(super) enum ByNamespace<T> {
    One(Box<One<T>>),
    Several(Box<Several<T>>),
}

#[derive(Clone)]
pub(super) struct One<T> {
    /// `None` for cluster-scoped objects.
    namespace: Option<Box<str>>,
    group: Group<T>,
}

#[derive(Clone)]
pub(super) struct Several<T> {
    all: Group<T>,
    by_namespace: BTreeMap<Option<Box<str>>, Group<T>>,
    /// The memory of the sums in `by_namespace`, in bytes.
    bytes: usize,
}

/// The memory overhead of an entry of `by_namespace`, in bytes, besides the sum and the name.
const PLACE: usize = 48;

fn size<T: Aggregate>(namespace: Option<&str>, group: &Group<T>) -> usize {
    size_of::<Group<T>>() + PLACE + namespace.map_or(0, str::len) + group.total.size()
}

impl<T: Aggregate> ByNamespace<T> {
    /// The sums for a namespace, with no objects yet.
    pub fn of(namespace: Option<&str>) -> Self {
        let group = Group { total: T::default(), members: 0 };
        Self::One(Box::new(One { namespace: namespace.map(Box::from), group }))
    }

    /// Changes the sums that an object of a namespace belongs to. Returns whether no objects are left.
    pub fn change(&mut self, namespace: Option<&str>, change: impl Fn(&mut Group<T>)) -> bool {
        match self {
            Self::One(one) if one.namespace.as_deref() == namespace => {
                change(&mut one.group);
                one.group.members == 0
            }
            Self::One(one) => {
                let One { namespace: other, group } = (**one).clone();
                let (all, bytes) = (group.clone(), size(other.as_deref(), &group));
                let by_namespace = BTreeMap::from([(other, group)]);
                *self = Self::Several(Box::new(Several { all, by_namespace, bytes }));
                self.change(namespace, change)
            }
            Self::Several(several) => {
                let Several { all, by_namespace, bytes } = &mut **several;
                change(all);
                let name = namespace.map(Box::from);
                let group = by_namespace.entry(name.clone()).or_insert_with(|| {
                    let group = Group { total: T::default(), members: 0 };
                    *bytes += size(namespace, &group);
                    group
                });
                *bytes -= size(namespace, group);
                change(group);
                if group.members == 0 {
                    by_namespace.remove(&name);
                } else {
                    *bytes += size(namespace, group);
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

    /// The approximate memory of all sums, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::One(one) => size(one.namespace.as_deref(), &one.group),
            Self::Several(several) => size(None, &several.all) + several.bytes,
        }
    }

    /// The sum of a namespace, or of all namespaces.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The counted bytes equal those of the existing sums after any sequence of changes.
    #[test]
    fn the_memory_of_sums_by_namespace_is_counted() {
        let mut random = fastrand::Rng::with_seed(23);
        let mut sums: Option<ByNamespace<BTreeMap<u8, i64>>> = None;
        let mut members: Vec<(Option<&str>, u8)> = Vec::new();
        for _ in 0..3_000 {
            let comes = members.is_empty() || random.bool();
            let (namespace, key) = if comes {
                let namespace = random.choice([None, Some("a"), Some("long")]).unwrap();
                members.push((namespace, random.u8(..)));
                members[members.len() - 1]
            } else {
                members.swap_remove(random.usize(0..members.len()))
            };
            let one = BTreeMap::from([(key, 1_i64)]);
            let sums_now = sums.get_or_insert_with(|| ByNamespace::of(namespace));
            let is_empty = sums_now.change(namespace, |group| {
                if comes {
                    group.total.add(&one);
                    group.members += 1;
                } else {
                    group.total.subtract(&one);
                    group.members -= 1;
                }
            });
            assert_eq!(is_empty, members.is_empty());
            if is_empty {
                sums = None;
            }
            if let Some(ByNamespace::Several(several)) = &sums {
                let groups = several.by_namespace.iter();
                let expected: usize =
                    groups.map(|(name, group)| size(name.as_deref(), group)).sum();
                assert_eq!(several.bytes, expected);
            }
        }
    }
}
