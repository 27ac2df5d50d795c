//! Nodes of the graph of types, and how one leads to the next.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

use super::Pattern;
use super::rules::NodeRules;
use super::types::{TypeId, Types};
use crate::error::Path;

/// What an object may hold: a type, and all that it refers to.
#[derive(Clone, Debug)]
pub struct Schema {
    types: Arc<Types>,
    root: TypeRef,
}

/// A type: a node, and the table that its references lead into.
#[derive(Clone, Copy, Debug)]
pub struct Type<'a> {
    types: &'a Types,
    node: &'a Node,
}

/// How a node refers to another one.
#[derive(Clone, Debug)]
pub enum TypeRef {
    /// It is described in place, and by nobody else.
    Own(Arc<Node>),
    /// It has a name in the table, and may lead back here.
    Named(TypeId),
}

/// One type: what a value may be. Definitions describe some, and Go has others; a
/// walker is told here what there is to do, and never where a type came from.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// What Go's decoder makes of a value. `None` of what a definition describes:
    /// there a value stays as it is, and is held against the rest of this.
    pub go: Option<GoType>,
    /// What it is called in Go, without its package: `PodSpec`.
    pub name: &'static str,
    /// Whether objects of it stand alone, with `apiVersion` and `kind`.
    pub is_kind: bool,
    /// `None` where anything goes.
    pub json_type: Option<JsonType>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// Members that are known.
    pub members: Members,
    /// The numbers in protobuf of types whose members are members of this one.
    pub inlined: Vec<(u32, TypeId)>,
    /// Members that are not.
    pub additional: Additional,
    /// Whether `x-kubernetes-preserve-unknown-fields` keeps fields that are not known, here and in
    /// the items of a list.
    pub preserves: bool,
    /// What a list holds.
    pub items: Option<TypeRef>,
    /// What stands in the place of an item, or of a member that is not known, if it is
    /// null and may not be.
    pub default_of_element: Option<Value>,
    /// Which items of a list count as duplicates.
    pub list_type: ListType,
    /// Whether an object is one value, and not one for each of its members.
    pub is_atomic: bool,
    /// The type of which it is a form with members that count each for itself, where objects of that
    /// type are one value.
    pub granular_of: Option<TypeId>,
    /// A format, of a number or a text.
    pub format: Option<Box<str>>,
    /// Whether it is a whole number or a text.
    pub int_or_string: bool,
    /// Whether it is a resource of its own, with `apiVersion`, `kind` and
    /// `metadata`.
    pub embedded: bool,
    /// What is demanded besides types: of types of Go, which members must be there.
    pub constraints: Option<Box<Constraints>>,
    /// Expressions that judge its values.
    pub rules: Option<Arc<NodeRules>>,
    /// What there is to do for walkers in it and below it.
    pub subtree: Subtree,
}

/// What there is in a node and below it. Walkers turn back where there is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subtree {
    /// Defaults that are filled in.
    pub defaults: bool,
    /// Lists in which something may not be twice.
    pub list_types: bool,
    /// Resources that stand in the object.
    pub embedded: bool,
    /// Items that are found by their keys, and members that nothing is said of.
    pub correlation: bool,
    /// Expressions that judge values.
    pub rules: bool,
    /// How many steps the validation of one value may take at most, about.
    pub steps: usize,
}

impl Subtree {
    pub(super) fn add(&mut self, other: Self) {
        self.defaults |= other.defaults;
        self.list_types |= other.list_types;
        self.embedded |= other.embedded;
        self.correlation |= other.correlation;
        self.rules |= other.rules;
        self.steps = self.steps.max(other.steps);
    }
}

/// What Go's decoder makes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoType {
    /// An object with known members.
    Struct,
    /// A list.
    List,
    /// An object with any members, all of one type.
    Map,
    /// A text.
    String,
    /// `true` or `false`.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// Any number.
    Float64,
    /// Bytes, in base64.
    Bytes,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// An amount, as `100m`.
    Quantity,
    /// A number or a text.
    IntOrString,
    /// Anything, taken as it is.
    Json,
    /// A list of texts that is a message of its own in protobuf.
    Strings,
    /// A schema, or a list of them.
    SchemaOrArray,
    /// A schema, or whether anything is allowed.
    SchemaOrBool,
    /// A schema, or a list of names.
    SchemaOrStrings,
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it is.
    pub of: TypeRef,
    /// What it is if nothing is said.
    pub default: Option<Value>,
    /// When Go writes it down.
    pub presence: Presence,
    /// Whether the Go field is a pointer, so that nil is not the same as empty.
    pub is_pointer: bool,
    /// Its number in protobuf; 0 if it has none.
    pub number: u32,
    /// What its type is called in Go: `[]v1.Container`.
    pub go_type: Box<str>,
    /// The structs that bring it along, from the outermost on, if they are embedded in
    /// Go: messages name them.
    pub embedded_structs: Box<[&'static str]>,
    /// How strategic merge patches change it.
    pub patch: PatchStrategy,
}

/// When Go writes a member down: its `omitempty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// When it is not empty: not `0`, `false`, `""`, `[]` or `{}`.
    OmitEmpty,
    /// When it was given, empty or not: a pointer.
    #[default]
    Optional,
    /// Always.
    Required,
}

/// How strategic merge patches change a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// How a list is merged.
    pub list: ListMerge,
    /// Whether a patch says which members of it stay.
    pub retain_keys: bool,
    /// Whether an object is replaced, and not merged.
    pub replaces_object: bool,
}

/// How strategic merge patches merge a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListMerge {
    /// It is replaced.
    #[default]
    Replace,
    /// Items that are not in it are added.
    Union,
    /// Items in which this member is equal are merged, others added.
    By(Box<str>),
}

/// Members, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Members {
    all: Box<[(Box<str>, Member)]>,
    /// Numbers in protobuf and where their members are, in order.
    by_number: Box<[(u32, u32)]>,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        let place = self.all.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.all[place].1)
    }

    /// Those that have a number in protobuf, in the order of numbers.
    pub fn by_number(&self) -> impl Iterator<Item = (u32, &str, &Member)> {
        self.by_number.iter().map(|(number, place)| {
            let (name, member) = &self.all[*place as usize];
            (*number, &**name, member)
        })
    }

    fn numbered(&self, number: u32) -> Option<&(Box<str>, Member)> {
        let place = self.by_number.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.all.get(self.by_number[place].1 as usize)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.all.iter().map(|(name, member)| (&**name, member))
    }
}

impl FromIterator<(Box<str>, Member)> for Members {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Member)>>(members: I) -> Self {
        let mut all: Box<[(Box<str>, Member)]> = members.into_iter().collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let numbers = (0..).zip(all.iter()).map(|(place, (_, member))| (member.number, place));
        let mut by_number: Box<[(u32, u32)]> = numbers.filter(|(number, _)| *number != 0).collect();
        by_number.sort_unstable();
        Self { all, by_number }
    }
}

/// A type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// `{}`
    Object,
    /// `[]`
    Array,
    /// `""`
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// `true` and `false`
    Boolean,
}

impl JsonType {
    /// The word of JSON Schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// What an object may hold besides its known members.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// Nothing: further members are pruned.
    Pruned,
    /// Nothing: further members are a fault.
    Forbidden,
    /// Anything without members of its own, as kube-apiserver takes `true`.
    Unspecified,
    /// Anything.
    #[default]
    Any,
    /// Members of this type.
    Of(TypeRef),
}

/// Which items of a list count as duplicates. Definitions are held to it; of types of Go
/// it is said for those who merge lists, and kube-apiserver does not enforce it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Nothing is said: the list is one value.
    #[default]
    Unset,
    /// The list is one value.
    Atomic,
    /// Equal items.
    Set,
    /// Items in which these members are equal.
    Map(Vec<String>),
}

/// What is demanded of values besides their types.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// The only values allowed.
    pub enumeration: Option<Vec<Value>>,
    /// Lower bound of a number; `true` excludes the bound itself.
    pub minimum: Option<(f64, bool)>,
    /// See `minimum`.
    pub maximum: Option<(f64, bool)>,
    /// Shortest and longest text, in characters.
    pub length: (Option<u64>, Option<u64>),
    /// What a text must match somewhere.
    pub pattern: Option<Pattern>,
    /// What a number must be a multiple of.
    pub multiple_of: Option<f64>,
    /// Members that must be there, known or not, in the order in which they are named.
    pub required: Vec<String>,
    /// Fewest and most members.
    pub member_count: (Option<u64>, Option<u64>),
    /// Fewest and most items.
    pub item_count: (Option<u64>, Option<u64>),
    /// Types that judge the same value together.
    pub junctors: Junctors,
    /// Keywords, with their paths, that say something which is not enforced.
    pub unenforced: Vec<String>,
}

/// Types that judge a value together.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    /// Each of them must be satisfied.
    pub all_of: Vec<TypeRef>,
    /// At least one must be.
    pub any_of: Vec<TypeRef>,
    /// Exactly one must be.
    pub one_of: Vec<TypeRef>,
    /// It must not be.
    pub not: Option<TypeRef>,
}

impl Constraints {
    /// How many steps it takes to hold a value against them, about.
    pub(super) fn steps(&self) -> usize {
        /// Bytes of a pattern that are one step.
        const PATTERN: usize = 4 << 10;
        let enumeration = self.enumeration.as_ref().map_or(0, Vec::len);
        let pattern = self.pattern.as_ref().map_or(0, |pattern| pattern.size() / PATTERN);
        let of_branch = |branch: &TypeRef| match branch {
            TypeRef::Own(node) => 1 + node.subtree.steps,
            TypeRef::Named(_) => 1,
        };
        let branches = self.junctors.iter().map(of_branch).fold(0, usize::saturating_add);
        (enumeration + pattern + self.required.len()).saturating_add(branches)
    }
}

impl Junctors {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &TypeRef> {
        self.all_of.iter().chain(&self.any_of).chain(&self.one_of).chain(self.not.as_ref())
    }
}

impl Schema {
    pub(super) fn new(types: Arc<Types>, root: TypeRef) -> Self {
        Self { types, root }
    }

    /// The type of a whole object.
    pub fn root(&self) -> Type<'_> {
        self.types.at(&self.root)
    }

    /// The table that references lead into.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// The name of the root in that table, if it has one.
    pub fn root_name(&self) -> Option<TypeId> {
        match self.root {
            TypeRef::Named(id) => Some(id),
            TypeRef::Own(_) => None,
        }
    }

    /// Whether objects are read as Go reads them.
    pub fn is_typed(&self) -> bool {
        self.root().go.is_some()
    }
}

impl<'a> Type<'a> {
    pub(super) fn new(types: &'a Types, node: &'a Node) -> Self {
        Self { types, node }
    }

    /// Its node, for as long as the graph is there.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// Where a reference of this node leads to.
    pub fn at(self, reference: &'a TypeRef) -> Self {
        self.types.at(reference)
    }

    /// A known member, and its type.
    pub fn member(self, name: &str) -> Option<(&'a Member, Self)> {
        let member = self.node.members.get(name)?;
        Some((member, self.at(&member.of)))
    }

    /// Whether a member is known.
    pub fn knows(self, name: &str) -> bool {
        self.node.members.get(name).is_some()
    }

    /// A known member by its number in protobuf.
    pub fn numbered(self, number: u32) -> Option<(&'a str, &'a Member)> {
        self.node.members.numbered(number).map(|(name, member)| (&**name, member))
    }

    /// The types whose members are members of this one, with their numbers in protobuf.
    pub fn inlined_types(self) -> impl Iterator<Item = (u32, Self)> {
        self.node.inlined.iter().map(move |(number, id)| (*number, self.types.get(*id)))
    }

    /// The type of this number in protobuf whose members are members of this one.
    pub fn inlined_at(self, number: u32) -> Option<Self> {
        let (_, id) = self.node.inlined.iter().find(|(known, _)| *known == number)?;
        Some(self.types.get(*id))
    }

    /// The type of a member, known or not; nothing if nothing is said of it.
    pub fn of_member(self, name: &str) -> Option<Self> {
        match (self.node.members.get(name), &self.node.additional) {
            (Some(member), _) => Some(self.at(&member.of)),
            (None, Additional::Of(of)) => Some(self.at(of)),
            (None, _) => None,
        }
    }

    /// The type of a member and its path, for checks that tell members that are
    /// known from others: `spec.known`, `spec.map[key]`. Nothing if nothing is said
    /// of it.
    pub fn described<'b>(self, name: &'b str, path: &'b Path<'b>) -> Option<(Self, Path<'b>)> {
        match (self.node.members.get(name), &self.node.additional) {
            (Some(member), _) => Some((self.at(&member.of), Path::Member(path, name))),
            (None, Additional::Of(of)) => Some((self.at(of), Path::Key(path, name))),
            _ => None,
        }
    }

    /// The type of the items of a list.
    pub fn of_items(self) -> Option<Self> {
        self.node.items.as_ref().map(|items| self.at(items))
    }

    /// What all items are, or all members that are not known.
    pub fn element(self) -> Option<(&'a TypeRef, Self)> {
        let element = match (&self.node.items, &self.node.additional) {
            (Some(items), _) => items,
            (None, Additional::Of(values)) => values,
            (None, _) => return None,
        };
        Some((element, self.at(element)))
    }

    /// What is demanded besides types.
    pub fn constraints(self) -> Option<&'a Constraints> {
        self.node.constraints.as_deref()
    }
}

impl Deref for Type<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}
