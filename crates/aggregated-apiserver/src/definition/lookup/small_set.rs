//! A set that needs little memory for few elements: nearly all sets in this module have one or two. A single element is
//! stored inline.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

/// The largest number of elements in a sorted list.
const FEW: usize = 32;
/// A set that shrinks to this number of elements becomes a sorted list again.
const FEW_AGAIN: usize = 16;

/// An ordered set.
#[derive(Clone, Debug)]
pub(super) enum SmallSet<T> {
    One(T),
    /// Sorted; either empty or with at least two elements.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<T: Ord> SmallSet<T> {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Adds an element. Returns whether it is new.
    pub fn insert(&mut self, element: T) -> bool {
        match self {
            Self::One(one) if *one == element => false,
            Self::One(_) => {
                if let Self::One(one) = std::mem::take(self) {
                    let both = if one < element { [one, element] } else { [element, one] };
                    *self = Self::Few(Vec::from(both));
                }
                true
            }
            Self::Few(few) if few.is_empty() => {
                *self = Self::One(element);
                true
            }
            Self::Few(few) => {
                let Err(place) = few.binary_search(&element) else { return false };
                if few.len() < FEW {
                    few.reserve_exact(1);
                    few.insert(place, element);
                } else {
                    let mut many: BTreeSet<T> = std::mem::take(few).into_iter().collect();
                    many.insert(element);
                    *self = Self::Many(many);
                }
                true
            }
            Self::Many(many) => many.insert(element),
        }
    }

    /// Removes an element. Returns whether it was present.
    pub fn remove(&mut self, element: &T) -> bool {
        match self {
            Self::One(one) => {
                let is_removed = one == element;
                if is_removed {
                    *self = Self::default();
                }
                is_removed
            }
            Self::Few(few) => {
                let Ok(place) = few.binary_search(element) else { return false };
                few.remove(place);
                if few.len() > 1 {
                    if few.capacity() > 2 * few.len() {
                        few.shrink_to_fit();
                    }
                } else if let Some(one) = few.pop() {
                    *self = Self::One(one);
                }
                true
            }
            Self::Many(many) => {
                let is_removed = many.remove(element);
                if many.len() <= FEW_AGAIN {
                    *self = Self::Few(std::mem::take(many).into_iter().collect());
                }
                is_removed
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T>
    where
        T: Clone,
    {
        self.range((Bound::Unbounded, Bound::Unbounded))
    }

    /// The elements of a range, in order.
    pub fn range(&self, range: (Bound<T>, Bound<T>)) -> impl Iterator<Item = &T>
    where
        T: Clone,
    {
        let (few, many) = match self {
            Self::One(one) => (std::slice::from_ref(one), None),
            Self::Few(few) => (few.as_slice(), None),
            Self::Many(many) => (&[][..], Some(many.range(range.clone()))),
        };
        let is_before = |element: &T| match range.start_bound() {
            Bound::Included(start) => element < start,
            Bound::Excluded(start) => element <= start,
            Bound::Unbounded => false,
        };
        let is_not_behind = |element: &T| match range.end_bound() {
            Bound::Included(end) => element <= end,
            Bound::Excluded(end) => element < end,
            Bound::Unbounded => true,
        };
        let start = few.partition_point(is_before);
        let few = few.get(start..few.partition_point(is_not_behind));
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_set_behaves_like_a_btree_set() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut set, mut expected) = (SmallSet::default(), BTreeSet::new());
        let mut forms = [false; 3];
        for round in 0..20_000 {
            // The set grows and shrinks past the sizes at which its representation changes.
            let grows = round / 500 % 2 == 0;
            let element = random.u8(0..60);
            if (random.u8(0..4) > 0) == grows {
                assert_eq!(set.insert(element), expected.insert(element));
            } else {
                assert_eq!(set.remove(&element), expected.remove(&element));
            }
            forms[match set {
                SmallSet::One(_) => 0,
                SmallSet::Few(_) => 1,
                SmallSet::Many(_) => 2,
            }] = true;
            assert!(!matches!(&set, SmallSet::Few(few) if few.len() == 1));
            assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
            assert!(set.iter().eq(&expected));
            let bound = |random: &mut fastrand::Rng, from: u8| match random.u8(0..3) {
                0 => Bound::Included(from),
                1 => Bound::Excluded(from),
                _ => Bound::Unbounded,
            };
            let range = (bound(&mut random, 20), bound(&mut random, 40));
            assert!(set.range(range).eq(expected.range(range)), "{range:?}");
        }
        assert_eq!(forms, [true; 3]);
    }
}
