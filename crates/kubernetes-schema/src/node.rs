//! The nodes of the graph of types, and the references between them.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

use super::Pattern;
use super::rules::NodeRules;
use super::types::{TypeId, Types};
use crate::error::Path;

/// The schema of an object: its type, and all types that it refers to.
#[derive(Clone, Debug)]
pub struct Schema {
    types: Arc<Types>,
    root: TypeRef,
}

/// A type: a node, and the table that its references point into.
#[derive(Clone, Copy, Debug)]
pub struct Type<'a> {
    types: &'a Types,
    node: &'a Node,
}

/// A reference to a node.
#[derive(Clone, Debug)]
pub enum TypeRef {
    /// A node that is defined in place and has no name.
    Own(Arc<Node>),
    /// A type with a name in the table. It can refer back to the referring node.
    Named(TypeId),
}

/// A type of values. Some nodes come from CustomResourceDefinitions, others from Go types. Walkers use only the
/// contents of a node and do not depend on its source.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The Go type into which Go decodes a value. `None` for the types of a definition: their values are not converted,
    /// but validated against the other fields of this node.
    pub go: Option<GoType>,
    /// The name in Go, without the package, such as `PodSpec`.
    pub name: &'static str,
    /// Whether the type is a kind: its objects have `apiVersion` and `kind`.
    pub is_kind: bool,
    /// The JSON type; `None` if any type is allowed.
    pub json_type: Option<JsonType>,
    /// Whether `null` is allowed.
    pub nullable: bool,
    /// The declared fields.
    pub members: Members,
    /// The inlined types, whose fields are fields of this type, with their protobuf numbers.
    pub inlined: Vec<(u32, TypeId)>,
    /// The fields that are not declared.
    pub additional: Additional,
    /// Whether `x-kubernetes-preserve-unknown-fields` retains undeclared fields, here and in the elements of a list.
    pub preserves: bool,
    /// The type of list elements.
    pub items: Option<TypeRef>,
    /// The default of list elements and of undeclared fields. It replaces a null where null is not allowed.
    pub default_of_element: Option<Value>,
    /// The type of the list, which determines duplicate elements.
    pub list_type: ListType,
    /// Whether an object is owned as one value, instead of field by field.
    pub is_atomic: bool,
    /// The original type, if this node is its granular variant: objects of the original type are one value, and objects
    /// of this node are owned field by field.
    pub granular_of: Option<TypeId>,
    /// The format of a number or a string.
    pub format: Option<Box<str>>,
    /// Whether values are integers or strings.
    pub int_or_string: bool,
    /// Whether the value is an embedded resource with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// Constraints besides types. Go types only have required fields.
    pub constraints: Option<Box<Constraints>>,
    /// The validation rules of the values.
    pub rules: Option<Arc<NodeRules>>,
    /// A summary of this node and all nodes below it, for walkers.
    pub subtree: Subtree,
}

/// A summary of a node and all nodes below it. Walkers skip nodes that need no work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subtree {
    /// Whether there are defaults.
    pub defaults: bool,
    /// Whether there are lists whose elements must be unique.
    pub list_types: bool,
    /// Whether there are embedded resources.
    pub embedded: bool,
    /// Whether there are lists with key fields, or objects with fields that have no type.
    pub correlation: bool,
    /// Whether there are validation rules.
    pub rules: bool,
    /// The approximate largest number of steps for the validation of one value.
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

/// The Go types into which values are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoType {
    /// An object with declared fields.
    Struct,
    /// A list.
    List,
    /// An object with arbitrary keys and values of one type.
    Map,
    /// A string.
    String,
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// Any number.
    Float64,
    /// Bytes, in base64.
    Bytes,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A quantity, such as `100m`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// Any JSON value, which is not converted.
    Json,
    /// A list of strings that is a message of its own in protobuf.
    Strings,
    /// A schema, or a list of schemas.
    SchemaOrArray,
    /// A schema, or a boolean: whether anything is allowed.
    SchemaOrBool,
    /// A schema, or a list of names.
    SchemaOrStrings,
}

/// A declared field of an object.
#[derive(Clone, Debug)]
pub struct Member {
    /// The type of the field.
    pub of: TypeRef,
    /// The default value.
    pub default: Option<Value>,
    /// When Go encodes the field.
    pub presence: Presence,
    /// Whether the Go field is a pointer, so that nil differs from an empty value.
    pub is_pointer: bool,
    /// The protobuf number; 0 if the field has none.
    pub number: u32,
    /// The name of its type in Go, such as `[]v1.Container`.
    pub go_type: Box<str>,
    /// The embedded Go structs that contain the field, outermost first. Messages name them.
    pub embedded_structs: Box<[&'static str]>,
    /// The treatment of the field in strategic merge patches.
    pub patch: PatchStrategy,
}

/// When Go encodes a field: the effect of `omitempty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// If the value is not empty: not `0`, `false`, `""`, `[]` or `{}`.
    OmitEmpty,
    /// If the field was given, even if its value is empty: a pointer.
    #[default]
    Optional,
    /// Always.
    Required,
}

/// The treatment of a field in strategic merge patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// How a list is merged.
    pub list: ListMerge,
    /// Whether a patch lists the fields to retain (`$retainKeys`).
    pub retain_keys: bool,
    /// Whether an object is replaced, instead of merged.
    pub replaces_object: bool,
}

/// How strategic merge patches merge a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListMerge {
    /// The list is replaced.
    #[default]
    Replace,
    /// Missing elements are added.
    Union,
    /// Elements with equal values of this field are merged; other elements are added.
    By(Box<str>),
}

/// Declared fields, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Members {
    all: Box<[(Box<str>, Member)]>,
    /// Protobuf numbers with the indexes of their fields, in the order of numbers.
    by_number: Box<[(u32, u32)]>,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        let place = self.all.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.all[place].1)
    }

    /// Returns the fields with a protobuf number, in the order of numbers.
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

    /// Returns all fields.
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

/// A JSON type.
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
    /// Returns the name in JSON Schema.
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

/// The undeclared fields that an object can have.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// None: undeclared fields are pruned.
    Pruned,
    /// None: undeclared fields are an error.
    Forbidden,
    /// Any fields, but the fields of their values are pruned, as in kube-apiserver for `true`.
    Unspecified,
    /// Any fields.
    #[default]
    Any,
    /// Fields of this type.
    Of(TypeRef),
}

/// The type of a list, which decides which elements are duplicates. Duplicates are rejected for custom resources. For
/// built-in kinds the type only affects merges, same as in kube-apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not declared: the list is one value.
    #[default]
    Unset,
    /// The list is one value.
    Atomic,
    /// Equal elements are duplicates.
    Set,
    /// Elements with equal values of these fields are duplicates.
    Map(Vec<String>),
}

/// Constraints on values besides their types.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// The only allowed values.
    pub enumeration: Option<Vec<Value>>,
    /// The lower bound of a number; `true` excludes the bound itself.
    pub minimum: Option<(f64, bool)>,
    /// The upper bound of a number; `true` excludes the bound itself.
    pub maximum: Option<(f64, bool)>,
    /// The smallest and the largest length of a string, in characters.
    pub length: (Option<u64>, Option<u64>),
    /// The pattern that a string must match somewhere.
    pub pattern: Option<Pattern>,
    /// The factor of which a number must be a multiple.
    pub multiple_of: Option<f64>,
    /// The names of required fields, declared or not, in the order of the schema.
    pub required: Vec<String>,
    /// The smallest and the largest number of fields.
    pub member_count: (Option<u64>, Option<u64>),
    /// The smallest and the largest number of list elements.
    pub item_count: (Option<u64>, Option<u64>),
    /// Schemas that are combined for the same value.
    pub junctors: Junctors,
    /// The paths of keywords that are not enforced.
    pub unenforced: Vec<String>,
}

/// The schemas of `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Clone, Debug, Default)]
pub struct Junctors {
    /// Schemas that must all match.
    pub all_of: Vec<TypeRef>,
    /// Schemas of which at least one must match.
    pub any_of: Vec<TypeRef>,
    /// Schemas of which exactly one must match.
    pub one_of: Vec<TypeRef>,
    /// The schema that must not match.
    pub not: Option<TypeRef>,
}

impl Constraints {
    /// Returns the approximate number of steps for the validation of a value.
    pub(super) fn steps(&self) -> usize {
        /// The size of a compiled pattern that counts as one step, in bytes.
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
    /// Whether there are no schemas.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns all schemas.
    pub fn iter(&self) -> impl Iterator<Item = &TypeRef> {
        self.all_of.iter().chain(&self.any_of).chain(&self.one_of).chain(self.not.as_ref())
    }
}

impl Schema {
    pub(super) fn new(types: Arc<Types>, root: TypeRef) -> Self {
        Self { types, root }
    }

    /// Returns the type of a whole object.
    pub fn root(&self) -> Type<'_> {
        self.types.at(&self.root)
    }

    /// Returns the table that references point into.
    pub fn types(&self) -> &Arc<Types> {
        &self.types
    }

    /// Returns the name of the root type in the table, if it has one.
    pub fn root_name(&self) -> Option<TypeId> {
        match self.root {
            TypeRef::Named(id) => Some(id),
            TypeRef::Own(_) => None,
        }
    }

    /// Whether objects are decoded into Go types.
    pub fn is_typed(&self) -> bool {
        self.root().go.is_some()
    }
}

impl<'a> Type<'a> {
    pub(super) fn new(types: &'a Types, node: &'a Node) -> Self {
        Self { types, node }
    }

    /// Returns the node, with the lifetime of the graph.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// Resolves a reference of this node.
    pub fn at(self, reference: &'a TypeRef) -> Self {
        self.types.at(reference)
    }

    /// Returns a declared field and its type.
    pub fn member(self, name: &str) -> Option<(&'a Member, Self)> {
        let member = self.node.members.get(name)?;
        Some((member, self.at(&member.of)))
    }

    /// Whether a field is declared.
    pub fn knows(self, name: &str) -> bool {
        self.node.members.get(name).is_some()
    }

    /// Returns a declared field by its protobuf number.
    pub fn numbered(self, number: u32) -> Option<(&'a str, &'a Member)> {
        self.node.members.numbered(number).map(|(name, member)| (&**name, member))
    }

    /// Returns the inlined types, with their protobuf numbers.
    pub fn inlined_types(self) -> impl Iterator<Item = (u32, Self)> {
        self.node.inlined.iter().map(move |(number, id)| (*number, self.types.get(*id)))
    }

    /// Returns the inlined type with this protobuf number.
    pub fn inlined_at(self, number: u32) -> Option<Self> {
        let (_, id) = self.node.inlined.iter().find(|(known, _)| *known == number)?;
        Some(self.types.get(*id))
    }

    /// Returns the type of a field, declared or not; `None` if the field has no type.
    pub fn of_member(self, name: &str) -> Option<Self> {
        match (self.node.members.get(name), &self.node.additional) {
            (Some(member), _) => Some(self.at(&member.of)),
            (None, Additional::Of(of)) => Some(self.at(of)),
            (None, _) => None,
        }
    }

    /// Returns the type of a field and its path. The path distinguishes declared fields (`spec.known`) from additional
    /// properties (`spec.map[key]`). Returns `None` if the field has no type.
    pub fn described<'b>(self, name: &'b str, path: &'b Path<'b>) -> Option<(Self, Path<'b>)> {
        match (self.node.members.get(name), &self.node.additional) {
            (Some(member), _) => Some((self.at(&member.of), Path::Member(path, name))),
            (None, Additional::Of(of)) => Some((self.at(of), Path::Key(path, name))),
            _ => None,
        }
    }

    /// Returns the type of the list elements.
    pub fn of_items(self) -> Option<Self> {
        self.node.items.as_ref().map(|items| self.at(items))
    }

    /// Returns the type of all list elements, or of all undeclared fields.
    pub fn element(self) -> Option<(&'a TypeRef, Self)> {
        let element = match (&self.node.items, &self.node.additional) {
            (Some(items), _) => items,
            (None, Additional::Of(values)) => values,
            (None, _) => return None,
        };
        Some((element, self.at(element)))
    }

    /// Returns the constraints besides types.
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
