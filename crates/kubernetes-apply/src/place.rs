//! Place: the position of a value in the graph of types, and the fields that managers can own there.
//!
//! A place accepts a scalar, a list, an object, or several of these; the value decides which of them applies. Where a
//! type declares nothing, objects are split into fields and lists are not split.

use serde_json::Value;

use crate::schema::{Additional, GoType, JsonType, ListType, Presence, Type, Types};

/// The position of a value in the graph of types.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A value with a declared type.
    Typed {
        /// The type.
        of: Type<'a>,
        /// Whether this type, or a type above it, accepts unknown fields.
        preserves: bool,
        /// Whether the object has `apiVersion`, `kind` and `metadata` that the type does not have to declare.
        is_resource: bool,
    },
    /// A value without a declared type. If it is an object, its fields are places of their own.
    Deduced,
    /// A value that is not split into fields or elements.
    Untyped,
    /// A string that no type declares, such as `apiVersion`.
    Text,
}

/// The structure of a value.
#[derive(Clone, Copy, Debug)]
pub enum Atom<'a> {
    /// A value without parts.
    Scalar(Scalar),
    /// A list.
    List(ListAtom<'a>),
    /// An object.
    Map(MapAtom<'a>),
}

/// The scalars that a place accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Strings.
    Text,
    /// Numbers.
    Numeric,
    /// `true` and `false`.
    Boolean,
    /// Strings, numbers and booleans.
    Any,
}

/// The structure of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListAtom<'a> {
    /// The place of each element.
    pub items: Place<'a>,
    /// How the elements are identified; `None` if the list is owned as one value.
    pub relation: Option<Relation<'a>>,
}

/// How the elements of a list are identified.
#[derive(Clone, Copy, Debug)]
pub enum Relation<'a> {
    /// By their value.
    Set,
    /// By the values of these fields.
    Map(&'a [String]),
}

/// The structure of an object.
#[derive(Clone, Copy, Debug)]
pub struct MapAtom<'a> {
    /// The place of the object.
    place: Place<'a>,
    /// Whether the object is owned as one value.
    pub is_atomic: bool,
}

/// The JSON type of a value, with all scalars as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Scalar,
    List,
    Map,
}

impl Sort {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Array(_) => Some(Self::List),
            Value::Object(_) => Some(Self::Map),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(Self::Scalar),
        }
    }
}

/// All structures that a place accepts.
struct Atoms<'a> {
    scalar: Option<Scalar>,
    list: Option<ListAtom<'a>>,
    map: Option<MapAtom<'a>>,
}

impl<'a> Place<'a> {
    /// Returns the place of an object of this type.
    pub fn root(of: Type<'a>) -> Self {
        Self::Typed { of, preserves: preserves(of), is_resource: true }
    }

    fn below(self, of: Type<'a>) -> Self {
        let preserves = matches!(self, Self::Typed { preserves: true, .. }) || preserves(of);
        Self::Typed { of, preserves, is_resource: of.embedded }
    }

    /// Returns the structure of a value at this place. For null, or for a value that the place does not accept, returns
    /// the first structure of this list that the place accepts: object, scalar, list.
    pub fn atom(self, value: &Value) -> Atom<'a> {
        let Atoms { scalar, list, map } = self.atoms();
        let wanted = match (Sort::of(value), scalar, list, map) {
            (Some(Sort::Scalar), Some(scalar), ..) => Some(Atom::Scalar(scalar)),
            (Some(Sort::List), _, Some(list), _) => Some(Atom::List(list)),
            (Some(Sort::Map), .., Some(map)) => Some(Atom::Map(map)),
            _ => None,
        };
        let first = map.map(Atom::Map).or(scalar.map(Atom::Scalar)).or(list.map(Atom::List));
        wanted.or(first).unwrap_or(Atom::Scalar(Scalar::Any))
    }

    /// Returns the structure of objects and the structure of lists at this place.
    pub fn containers(self) -> (Option<MapAtom<'a>>, Option<ListAtom<'a>>) {
        let Atoms { map, list, .. } = self.atoms();
        (map, list)
    }

    /// Returns the structure of objects and the structure of lists, if this place has a declared type.
    pub fn taken_apart(self) -> Option<(Option<MapAtom<'a>>, Option<ListAtom<'a>>)> {
        match self {
            Self::Typed { .. } => Some(self.containers()),
            Self::Deduced | Self::Untyped | Self::Text => None,
        }
    }

    /// Whether this place has a declared type that accepts objects or lists, and each of them is owned as one value.
    pub fn is_one_value(self) -> bool {
        let (map, list) = match self {
            Self::Typed { .. } => self.containers(),
            Self::Deduced | Self::Untyped | Self::Text => return false,
        };
        let is_map = map.is_none_or(|map| map.is_atomic);
        let is_list = list.is_none_or(|list| list.relation.is_none());
        (map.is_some() || list.is_some()) && is_map && is_list
    }

    fn atoms(self) -> Atoms<'a> {
        let (scalar, list, map) = (None, None, None);
        let untyped = |place| Atoms {
            scalar: Some(Scalar::Any),
            list: Some(ListAtom { items: Place::Untyped, relation: None }),
            map: Some(MapAtom { place, is_atomic: matches!(place, Place::Untyped) }),
        };
        let (of, is_resource) = match self {
            Self::Deduced | Self::Untyped => return untyped(self),
            Self::Text => return Atoms { scalar: Some(Scalar::Text), list, map },
            Self::Typed { of, is_resource, .. } => (of, is_resource),
        };
        let scalar_of = |scalar| Atoms { scalar: Some(scalar), list, map };
        let as_map = || Some(MapAtom { place: self, is_atomic: of.is_atomic });
        let is_map = || Atoms { scalar, list, map: as_map() };
        let as_list = || {
            let items = of.of_items().map_or(Place::Untyped, |items| self.below(items));
            let relation = match &of.node().list_type {
                ListType::Set => Some(Relation::Set),
                ListType::Map(keys) => Some(Relation::Map(keys)),
                ListType::Unset | ListType::Atomic => None,
            };
            Some(ListAtom { items, relation })
        };
        let is_list = || Atoms { scalar, list: as_list(), map };
        if let Some(go) = of.go {
            return match go {
                GoType::Struct | GoType::Map => is_map(),
                GoType::List | GoType::Strings => is_list(),
                GoType::String | GoType::Bytes => scalar_of(Scalar::Text),
                GoType::Bool => scalar_of(Scalar::Boolean),
                GoType::Int32 | GoType::Int64 | GoType::Float64 => scalar_of(Scalar::Numeric),
                GoType::Time | GoType::MicroTime | GoType::Quantity | GoType::IntOrString => {
                    scalar_of(Scalar::Any)
                }
                GoType::Json if of.node().name == "JSON" => untyped(Place::Deduced),
                GoType::Json => untyped(Place::Untyped),
                GoType::SchemaOrArray | GoType::SchemaOrBool | GoType::SchemaOrStrings => {
                    untyped(Place::Deduced)
                }
            };
        }
        match of.json_type {
            Some(JsonType::String) => match of.format.as_deref() {
                None | Some("byte") => scalar_of(Scalar::Text),
                Some(_) => scalar_of(Scalar::Any),
            },
            Some(JsonType::Integer | JsonType::Number) => scalar_of(Scalar::Numeric),
            Some(JsonType::Boolean) => scalar_of(Scalar::Boolean),
            Some(JsonType::Array) => is_list(),
            Some(JsonType::Object) => is_map(),
            None if is_resource => is_map(),
            None => Atoms { scalar: Some(Scalar::Any), list: as_list(), map: as_map() },
        }
    }
}

/// Whether a type of a CustomResourceDefinition accepts fields that it does not declare.
fn preserves(of: Type<'_>) -> bool {
    of.go.is_none() && of.preserves
}

impl<'a> MapAtom<'a> {
    /// Returns the place of a field; `None` if the object cannot have a field of this name.
    pub fn member(self, name: &str) -> Option<Place<'a>> {
        let (of, preserved, is_resource) = match self.place {
            Place::Deduced => return Some(Place::Deduced),
            Place::Untyped | Place::Text => return Some(Place::Untyped),
            Place::Typed { of, preserves, is_resource } => (of, preserves, is_resource),
        };
        if is_resource && of.go.is_none() {
            match name {
                "apiVersion" | "kind" => return Some(Place::Text),
                "metadata" => {
                    let metadata = Types::meta().named("meta/v1", "ObjectMeta");
                    return metadata.map(|of| Place::Typed {
                        of,
                        preserves: false,
                        is_resource: false,
                    });
                }
                _ => {}
            }
        }
        if is_resource && of.go.is_some() && matches!(name, "apiVersion" | "kind") {
            return Some(Place::Text);
        }
        if let Some(known) = of.of_member(name) {
            return Some(self.place.below(known));
        }
        let has_members = of.node().members.iter().next().is_some();
        match of.additional {
            Additional::Unspecified | Additional::Any if of.go.is_none() => Some(Place::Deduced),
            Additional::Pruned if of.go.is_none() => {
                // A resource has fields that its type does not have to declare.
                (preserved || !(has_members || is_resource)).then_some(Place::Deduced)
            }
            _ => None,
        }
    }

    /// Whether the type declares a field of this name. Additional properties are not declared fields.
    pub fn declares(self, name: &str) -> bool {
        match self.place {
            Place::Typed { of, is_resource, .. } => {
                let of_every_object = matches!(name, "apiVersion" | "kind" | "metadata");
                of.knows(name) || (is_resource && of_every_object)
            }
            Place::Deduced | Place::Untyped | Place::Text => false,
        }
    }

    /// Returns the default of a key field of a list element. Fields that Go always writes default to their zero value.
    pub fn default_of(self, name: &str) -> Option<Value> {
        let Place::Typed { of, .. } = self.place else { return None };
        let (member, of_member) = of.member(name)?;
        let is_always_written = member.presence == Presence::Required && !member.is_pointer;
        member.default.clone().or_else(|| match of_member.go.filter(|_| is_always_written)? {
            GoType::String => Some("".into()),
            GoType::Int32 | GoType::Int64 => Some(0.into()),
            GoType::Bool => Some(false.into()),
            _ => None,
        })
    }
}
