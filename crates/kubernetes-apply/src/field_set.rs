//! Sets of fields: paths in an object, such as the fields of a manager.
//!
//! A set is a sorted tree of path elements, so that every operation walks two sets side by side, once.

use std::cmp::Ordering;

use super::path_element::PathElement;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(Vec<(PathElement, Node)>);

/// The entry of a path in a set: whether the path is in the set, and the paths below it that are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether the path itself is in the set.
    pub is_member: bool,
    /// The paths below it.
    pub children: FieldSet,
}

impl Node {
    /// Returns a node whose path is in the set, with no paths below it.
    pub fn member() -> Self {
        Self { is_member: true, children: FieldSet::default() }
    }

    /// Whether neither the path nor a path below it is in the set.
    pub fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    fn union(self, other: Self) -> Self {
        Self {
            is_member: self.is_member || other.is_member,
            children: self.children.union(other.children),
        }
    }
}

impl FieldSet {
    /// Builds a set from nodes in any order. A path may occur several times.
    pub fn of(mut nodes: Vec<(PathElement, Node)>) -> Self {
        nodes.retain(|(_, node)| !node.is_empty());
        if nodes.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Self(nodes);
        }
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut merged: Vec<(PathElement, Node)> = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter().peekable();
        while let Some((element, mut node)) = nodes.next() {
            let mut same = Vec::new();
            while let Some((_, another)) = nodes.next_if(|(another, _)| *another == element) {
                node.is_member |= another.is_member;
                same.push(another.children);
            }
            if !same.is_empty() {
                // All duplicates are merged at once, because sequential merging would move the nodes repeatedly.
                let first = std::mem::take(&mut node.children);
                node.children = Self::union_of(std::iter::once(first).chain(same));
            }
            merged.push((element, node));
        }
        Self(merged)
    }

    /// Returns the paths that are in any of the sets.
    pub fn union_of(sets: impl Iterator<Item = Self>) -> Self {
        Self::of(sets.flat_map(Self::into_nodes).collect())
    }

    /// Returns the set of one path. The empty path results in an empty set.
    pub fn of_path(path: impl DoubleEndedIterator<Item = PathElement>) -> Self {
        let mut set = Self::default();
        for (steps, element) in path.rev().enumerate() {
            set = Self(vec![(element, Node { is_member: steps == 0, children: set })]);
        }
        set
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first elements of all paths with their nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&PathElement, &Node)> {
        self.0.iter().map(|(element, node)| (element, node))
    }

    /// Consumes the set and returns the first elements of all paths with their nodes, in order.
    pub fn into_nodes(self) -> impl Iterator<Item = (PathElement, Node)> {
        self.0.into_iter()
    }

    /// Returns the node of the paths that begin with this element.
    pub fn get(&self, element: &PathElement) -> Option<&Node> {
        let place = self.0.binary_search_by(|(known, _)| known.cmp(element)).ok()?;
        Some(&self.0[place].1)
    }

    /// Returns the node of the paths that begin with this field.
    pub fn field(&self, name: &str) -> Option<&Node> {
        let compare = |known: &PathElement| match known {
            PathElement::Field(known) => (**known).cmp(name),
            _ => Ordering::Greater,
        };
        let place = self.0.binary_search_by(|(known, _)| compare(known)).ok()?;
        Some(&self.0[place].1)
    }

    /// Whether any path begins with a list element.
    pub fn has_items(&self) -> bool {
        // Fields are sorted before list elements.
        self.0.last().is_some_and(|(element, _)| !matches!(element, PathElement::Field(_)))
    }

    /// Whether the other set contains all paths of this set.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|(element, node)| {
            other.get(element).is_some_and(|other| {
                (other.is_member || !node.is_member) && node.children.is_within(&other.children)
            })
        })
    }

    /// Returns the paths that are in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut merged = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut ours, mut theirs) =
            (self.0.into_iter().peekable(), other.0.into_iter().peekable());
        while let (Some((one, _)), Some((other, _))) = (ours.peek(), theirs.peek()) {
            let order = one.cmp(other);
            let mut next = if order.is_gt() { theirs.next() } else { ours.next() };
            if order.is_eq()
                && let (Some((_, node)), Some((_, other))) = (&mut next, theirs.next())
            {
                *node = std::mem::take(node).union(other);
            }
            merged.extend(next);
        }
        merged.extend(ours);
        merged.extend(theirs);
        Self(merged)
    }

    /// Returns the paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let nodes = self.0.iter().filter_map(|(element, node)| {
            let other = other.get(element)?;
            let node = Node {
                is_member: node.is_member && other.is_member,
                children: node.children.intersection(&other.children),
            };
            (!node.is_empty()).then(|| (element.clone(), node))
        });
        Self(nodes.collect())
    }

    /// Returns the paths that are only in this set. Paths below a path of the other set are retained.
    #[must_use]
    pub fn difference(self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Returns the paths that are only in this set and not below a path of the other set.
    #[must_use]
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(mut self, other: &Self, and_below: bool) -> Self {
        if other.is_empty() {
            return self;
        }
        self.0.retain_mut(|(element, node)| {
            let Some(other) = other.get(element) else { return true };
            if other.is_member {
                node.is_member = false;
                if and_below {
                    return false;
                }
            }
            let children = std::mem::take(&mut node.children);
            node.children = children.without(&other.children, and_below);
            !node.is_empty()
        });
        self
    }

    /// Calls a function with each path, in the order of messages: a level comes before the levels below it.
    pub fn for_each<'a>(&'a self, call: &mut impl FnMut(&[&'a PathElement])) {
        self.walk(&mut Vec::new(), call);
    }

    fn walk<'a>(
        &'a self,
        path: &mut Vec<&'a PathElement>,
        call: &mut impl FnMut(&[&'a PathElement]),
    ) {
        for (element, _) in self.0.iter().filter(|(_, node)| node.is_member) {
            path.push(element);
            call(path);
            path.pop();
        }
        for (element, node) in &self.0 {
            path.push(element);
            node.children.walk(path, call);
            path.pop();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Builds a set from paths of fields, such as `a.b`.
    pub fn set(paths: &[&str]) -> FieldSet {
        let of = |path: &&str| {
            let steps: Vec<PathElement> = path.split('.').map(PathElement::field).collect();
            FieldSet::of_path(steps.into_iter())
        };
        paths.iter().map(of).fold(FieldSet::default(), FieldSet::union)
    }

    #[test]
    fn only_recursive_difference_removes_paths_below() {
        assert_eq!(set(&["a.b"]).difference(&set(&["a"])), set(&["a.b"]));
        assert_eq!(set(&["a"]).difference(&set(&["a.b"])), set(&["a"]));
        assert_eq!(set(&["a", "a.b"]).difference(&set(&["a"])), set(&["a.b"]));
        assert!(set(&["a"]).intersection(&set(&["a.b"])).is_empty());
        assert!(set(&["a.b.c"]).recursive_difference(&set(&["a.b"])).is_empty());
        assert_eq!(set(&["a.b.c", "d"]).recursive_difference(&set(&["a.x"])), set(&["a.b.c", "d"]));
    }

    #[test]
    fn a_set_is_within_another_if_all_of_its_paths_are() {
        assert!(set(&["a.b"]).is_within(&set(&["a.b", "a", "c"])));
        assert!(!set(&["a"]).is_within(&set(&["a.b"])));
        assert!(!set(&["a.b", "d"]).is_within(&set(&["a.b", "c"])));
        assert!(set(&[]).is_within(&set(&[])));
    }

    #[test]
    fn paths_of_one_level_are_visited_before_deeper_paths() {
        let mut found = Vec::new();
        set(&["b", "a.c", "a.b.d", "a", "c"]).for_each(&mut |path| {
            found.push(path.iter().map(ToString::to_string).collect::<String>());
        });
        assert_eq!(found, [".a", ".b", ".c", ".a.c", ".a.b.d"]);
    }

    #[test]
    fn a_field_set_is_built_from_unordered_elements() {
        let node = |children| Node { is_member: true, children };
        let nodes = vec![
            (PathElement::field("b"), Node::member()),
            (PathElement::field("a"), node(set(&["x"]))),
            (PathElement::field("c"), Node::default()),
            (PathElement::field("a"), node(set(&["y"]))),
        ];
        assert_eq!(FieldSet::of(nodes), set(&["a", "a.x", "a.y", "b"]));
        let sets = ["a.x", "b", "a", "a.x.z", "a.y", "a.x"].map(|path| set(&[path]));
        assert_eq!(FieldSet::union_of(sets.into_iter()), set(&["a", "a.x", "a.x.z", "a.y", "b"]));
        assert!(FieldSet::union_of(std::iter::empty()).is_empty());
    }
}
