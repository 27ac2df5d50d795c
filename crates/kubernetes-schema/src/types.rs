//! The types of built-in kinds: tables of facts, which are parsed when they are needed.
//!
//! A line of a table is one of
//!
//! - `package k8s.io/api/core/v1 v1`: the Go package of the types that follow, and the group and version of their
//!   kinds, if there are any.
//! - `Pod kind`: a type. `kind` marks a kind, and `atomic` marks objects that are one value. `=` precedes the Go
//!   representation of a type without fields.
//! - ` containers 2 []Container +`: a field of the type, with its protobuf number, or 0. The name `-` marks an inlined
//!   type, whose fields are fields of this type. A type name without a package is of the same package,
//!   `meta/v1.ObjectMeta` is of another package, and lowercase names are Go types.
//!
//! The type of a field is followed by its attributes:
//!
//! - `*`: nil differs from an empty value.
//! - `+`: Go always encodes the field.
//! - `go=`: the name of the type in Go, if it cannot be derived.
//! - `!`: the field is required.
//! - `set`, `atomic` or `keys=a,b`: the type of a list. `atomic` also applies to a map.
//! - `granular`: the field is owned field by field, although its type is `atomic`.
//! - `merge`, `merge=name`, `replace` and `retainKeys`: the treatment in strategic merge patches.
//! - `default=`: the default, as JSON.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::{Map, Value};

use super::node::{
    Additional, Constraints, GoType, JsonType, ListMerge, ListType, Member, Node, PatchStrategy,
    Presence, Schema, Type, TypeRef,
};

/// Types that every server uses: metadata, options, `Status`, `Scale`.
const META: &str = include_str!("meta_types.txt");

static META_TYPES: LazyLock<Arc<Types>> =
    LazyLock::new(|| Arc::new(Types::parse(&[]).unwrap_or_default()));

/// The identifier of a named type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(usize);

/// The types of some packages. A type is parsed from its table when it is first used, so an unused type only costs an
/// index entry.
#[derive(Debug, Default)]
pub struct Types {
    packages: Vec<Package>,
    entries: Vec<Entry>,
    /// The types by the short name of their package and by their own name.
    by_name: HashMap<(&'static str, &'static str), TypeId>,
    descriptions: Option<fn() -> &'static Map<String, Value>>,
}

#[derive(Debug)]
struct Package {
    path: &'static str,
    /// The last two segments of its path.
    short: &'static str,
    /// The group and version of its kinds, such as `apps/v1`.
    version: &'static str,
}

/// The parsed line of a field.
struct Field {
    name: &'static str,
    member: Member,
    is_required: bool,
}

#[derive(Debug)]
struct Entry {
    package: usize,
    name: &'static str,
    /// The rest of the line after the name.
    said: &'static str,
    /// The lines of its fields.
    fields: &'static str,
    node: OnceLock<Node>,
}

/// The line of a string field.
const TEXT: &str = " - 0 string";

/// The Go types that every package can use.
const GO: [(&str, GoType); 6] = [
    ("bool", GoType::Bool),
    ("bytes", GoType::Bytes),
    ("float64", GoType::Float64),
    ("int32", GoType::Int32),
    ("int64", GoType::Int64),
    ("string", GoType::String),
];

/// The names of types with an encoding of their own.
const SPECIAL: [(&str, GoType); 10] = [
    ("int-or-string", GoType::IntOrString),
    ("json", GoType::Json),
    ("micro-time", GoType::MicroTime),
    ("quantity", GoType::Quantity),
    ("schema-or-array", GoType::SchemaOrArray),
    ("schema-or-bool", GoType::SchemaOrBool),
    ("schema-or-strings", GoType::SchemaOrStrings),
    ("strings", GoType::Strings),
    ("time", GoType::Time),
    ("struct", GoType::Struct),
];

impl Types {
    /// Returns the types that every server uses.
    pub fn meta() -> &'static Arc<Self> {
        &META_TYPES
    }

    /// Reads the types of tables, in addition to those that every server uses. The lines of fields are parsed when a
    /// type is first used, and a type with invalid lines accepts anything. A program with its own table therefore calls
    /// [`Types::check`] in a test.
    ///
    /// # Errors
    /// The first line that is invalid, or names a type for the second time.
    pub fn parse(tables: &[&'static str]) -> Result<Self, String> {
        let mut types = Self::default();
        types.packages.push(Package { path: "", short: "", version: "" });
        for (name, go) in GO {
            let entry = Entry { package: 0, name, said: "", fields: "", node: OnceLock::new() };
            let _ = entry.node.set(Node {
                go: Some(go),
                json_type: json_type(go),
                additional: Additional::Pruned,
                ..Node::default()
            });
            types.add(entry);
        }
        for table in [META].iter().chain(tables) {
            types.read(table)?;
        }
        Ok(types)
    }

    /// Sets the function that returns the published schemas of types, by their names in OpenAPI documents. It is called
    /// only when a document is read.
    #[must_use]
    pub fn described_by(self, descriptions: fn() -> &'static Map<String, Value>) -> Self {
        Self { descriptions: Some(descriptions), ..self }
    }

    /// Returns the OpenAPI schema that the author of a type published, for its descriptions.
    pub fn description(&self, published: &str) -> Option<&'static Value> {
        (self.descriptions?)().get(published)
    }

    /// Returns the type of a kind. Kinds that are the same in every group, such as options, are found in all groups.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let wanted = group_version(group, version);
        let own = self.packages.iter().filter(|package| package.version == wanted);
        let found = own.filter_map(|package| self.by_name.get(&(package.short, kind)));
        let everywhere = self.by_name.get(&("meta/v1", kind));
        let is_kind = |id: &&TypeId| self.entries[id.0].said.split(' ').any(|one| one == "kind");
        found.chain(everywhere).find(is_kind).copied()
    }

    /// Returns the schema of a kind.
    pub fn schema(self: &Arc<Self>, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let root = TypeRef::Named(self.kind(group, version, kind)?);
        Some(Schema::new(Arc::clone(self), root))
    }

    /// Returns a type by its package, such as `meta/v1`, and its name.
    pub fn named(&self, package: &str, name: &str) -> Option<Type<'_>> {
        self.by_name.get(&(package, name)).map(|id| self.get(*id))
    }

    /// Returns a type by its identifier.
    pub fn get(&self, id: TypeId) -> Type<'_> {
        let entry = &self.entries[id.0];
        // A test parses all lines of a table.
        let node = entry.node.get_or_init(|| self.node(entry).unwrap_or_default());
        Type::new(self, node)
    }

    /// Returns the name of a type in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub fn published_name(&self, id: TypeId) -> String {
        let entry = &self.entries[id.0];
        let path = self.packages[entry.package].path;
        let path = path.strip_prefix("k8s.io/").unwrap_or(path).replace('/', ".");
        format!("io.k8s.{path}.{}", entry.name)
    }

    /// Resolves a reference.
    pub fn at<'a>(&'a self, reference: &'a TypeRef) -> Type<'a> {
        match reference {
            TypeRef::Own(node) => Type::new(self, node),
            TypeRef::Named(id) => self.get(*id),
        }
    }

    fn add(&mut self, entry: Entry) {
        let short = self.packages[entry.package].short;
        self.by_name.insert((short, entry.name), TypeId(self.entries.len()));
        self.entries.push(entry);
    }

    fn read(&mut self, table: &'static str) -> Result<(), String> {
        let mut rest = table;
        while !rest.is_empty() {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            rest = after;
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let fault = || format!("no line of types: {line:?}");
            if let Some(said) = line.strip_prefix("package ") {
                let (path, version) = said.split_once(' ').unwrap_or((said, ""));
                let mut slashes = path.rmatch_indices('/');
                let before = slashes.nth(1).map_or(0, |(at, _)| at + 1);
                self.packages.push(Package { path, short: &path[before..], version });
                continue;
            }
            let (name, said) = line.split_once(' ').unwrap_or((line, ""));
            if name.is_empty() || self.packages.len() == 1 {
                return Err(fault());
            }
            let mut length = 0;
            while rest[length..].starts_with(' ') {
                length += rest[length..].find('\n').map_or(rest.len() - length, |end| end + 1);
            }
            let (fields, after) = rest.split_at(length);
            rest = after;
            let package = self.packages.len() - 1;
            if self.by_name.contains_key(&(self.packages[package].short, name)) {
                return Err(format!("{line:?} is the second type of this name"));
            }
            self.add(Entry { package, name, said, fields, node: OnceLock::new() });
        }
        Ok(())
    }

    fn node(&self, entry: &Entry) -> Result<Node, String> {
        let fault = || format!("no line of types: {:?}", format!("{} {}", entry.name, entry.said));
        let mut node = Node {
            go: Some(GoType::Struct),
            name: entry.name,
            additional: Additional::Pruned,
            ..Node::default()
        };
        let mut members: Vec<(Box<str>, Member)> = Vec::new();
        let mut required = Vec::new();
        let short = self.packages[entry.package].short;
        let mut words = entry.said.split(' ').filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            match word {
                "kind" => node.is_kind = true,
                "atomic" => node.is_atomic = true,
                "=" => {
                    let said = words.next();
                    let go = SPECIAL.iter().find(|(name, _)| Some(*name) == said);
                    node.go = Some(go.ok_or_else(fault)?.1);
                }
                _ => return Err(fault()),
            }
        }
        node.json_type = node.go.and_then(json_type);
        if node.go != Some(GoType::Struct) {
            node.additional = Additional::Any;
            node.preserves = true;
        }
        if node.is_kind {
            // Every kind has these fields, even if it is a part of another type.
            for name in ["apiVersion", "kind"] {
                members.push((name.into(), self.field(short, TEXT)?.member));
            }
        }
        let schema = ["schema-or-array", "schema-or-bool", "schema-or-strings"];
        if schema.iter().any(|name| entry.said.ends_with(name)) {
            let props = self.by_name.get(&(short, "JSONSchemaProps"));
            node.items = props.map(|id| TypeRef::Named(*id));
        }
        for line in entry.fields.lines() {
            let Field { name, member, is_required } = self.field(short, line)?;
            if is_required {
                required.push(name.to_owned());
            }
            if name != "-" {
                members.push((name.into(), member));
                continue;
            }
            let TypeRef::Named(id) = member.of else { return Err(format!("what is in {line:?}?")) };
            node.inlined.push((member.number, id));
            let brought = self.get(id).node();
            required.extend(brought.constraints.iter().flat_map(|more| more.required.clone()));
            for (name, inner) in brought.members.iter() {
                // The fields of a type take precedence over inlined fields, as in Go.
                if members.iter().any(|(known, _)| **known == *name) {
                    continue;
                }
                let mut inner = inner.clone();
                inner.embedded_structs =
                    [brought.name].iter().chain(&inner.embedded_structs).copied().collect();
                inner.number = 0;
                members.push((name.into(), inner));
            }
        }
        node.members = members.into_iter().collect();
        if !required.is_empty() {
            node.constraints = Some(Box::new(Constraints { required, ..Constraints::default() }));
        }
        Ok(node)
    }

    fn field(&self, package: &'static str, line: &'static str) -> Result<Field, String> {
        let fault = || format!("no line of types: {line:?}");
        let mut words = line.trim_start().split(' ');
        let mut next = || words.next().ok_or_else(fault);
        let (name, number, of) = (next()?, next()?.parse().map_err(|_| fault())?, next()?);
        let mut member = Member {
            of: TypeRef::Named(TypeId(0)),
            default: None,
            presence: Presence::OmitEmpty,
            is_pointer: false,
            number,
            go_type: self.go_type(package, of).into(),
            embedded_structs: Box::default(),
            patch: PatchStrategy::default(),
        };
        // Whether values are atomic, if the field declares it instead of its type.
        let (mut list_type, mut is_atomic, mut is_required) = (ListType::Unset, None, false);
        for word in words {
            match word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value))) {
                ("*", None) => {
                    member.presence = Presence::Optional;
                    member.is_pointer = true;
                }
                ("+", None) => member.presence = Presence::Required,
                ("!", None) => is_required = true,
                ("go", Some(go_type)) => member.go_type = go_type.into(),
                ("atomic", None) => {
                    list_type = ListType::Atomic;
                    is_atomic = Some(true);
                }
                ("granular", None) => is_atomic = Some(false),
                ("set", None) => list_type = ListType::Set,
                ("keys", Some(keys)) => {
                    list_type = ListType::Map(keys.split(',').map(str::to_owned).collect());
                }
                ("merge", None) => member.patch.list = ListMerge::Union,
                ("merge", Some(key)) => member.patch.list = ListMerge::By(key.into()),
                ("retainKeys", None) => member.patch.retain_keys = true,
                ("replace", None) => member.patch.replaces_object = true,
                ("default", Some(text)) => {
                    member.default = Some(serde_json::from_str(text).map_err(|_| fault())?);
                }
                _ => return Err(fault()),
            }
        }
        member.of = self.reference(package, of, list_type, is_atomic).ok_or_else(fault)?;
        Ok(Field { name, member, is_required })
    }

    fn reference(
        &self,
        package: &'static str,
        of: &'static str,
        list_type: ListType,
        is_atomic: Option<bool>,
    ) -> Option<TypeRef> {
        let unset = ListType::Unset;
        let node = if let Some(items) = of.strip_prefix("[]") {
            Node {
                go: Some(GoType::List),
                json_type: Some(JsonType::Array),
                items: Some(self.reference(package, items, unset, None)?),
                list_type,
                ..Node::default()
            }
        } else if let Some(values) = of.strip_prefix("map[string]") {
            let values = self.reference(package, values, unset, None)?;
            Node {
                go: Some(GoType::Map),
                json_type: Some(JsonType::Object),
                additional: Additional::Of(values),
                is_atomic: is_atomic == Some(true),
                ..Node::default()
            }
        } else {
            let package = if of.starts_with(char::is_lowercase) { "" } else { package };
            let (package, name) = of.rsplit_once('.').unwrap_or((package, of));
            let id = *self.by_name.get(&(package, name))?;
            let own = || self.get(id).node().clone();
            match is_atomic {
                None => return Some(TypeRef::Named(id)),
                // Bytes are a list in Go.
                Some(true) => Node { list_type, ..own() },
                Some(false) => Node { is_atomic: false, granular_of: Some(id), ..own() },
            }
        };
        Some(TypeRef::Own(Arc::new(node)))
    }

    /// Returns the name of a type in Go, in most cases.
    fn go_type(&self, package: &str, of: &str) -> String {
        if let Some(items) = of.strip_prefix("[]") {
            return format!("[]{}", self.go_type(package, items));
        }
        if let Some(values) = of.strip_prefix("map[string]") {
            return format!("map[string]{}", self.go_type(package, values));
        }
        match of {
            "bytes" => "[]uint8".to_owned(),
            of if of.contains('/') => of.rsplit('/').next().unwrap_or(of).to_owned(),
            of if of.starts_with(char::is_lowercase) => of.to_owned(),
            of => format!("{}.{of}", package.rsplit('/').next().unwrap_or(package)),
        }
    }

    /// Parses all types.
    ///
    /// # Errors
    /// The first line that cannot be parsed.
    pub fn check(&self) -> Result<(), String> {
        let read = |entry| self.node(entry).map(drop);
        self.entries[GO.len()..].iter().try_for_each(read)
    }

    /// Returns all kinds, each with its group version: `apps/v1`, `Deployment`.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let kinds =
            self.entries.iter().filter(|entry| entry.said.split(' ').any(|one| one == "kind"));
        kinds.map(|entry| (self.packages[entry.package].version, entry.name))
    }
}

/// Returns `apps/v1`, or `v1` for the core group.
fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn json_type(go: GoType) -> Option<JsonType> {
    match go {
        GoType::Struct | GoType::Map => Some(JsonType::Object),
        GoType::List | GoType::Strings => Some(JsonType::Array),
        GoType::String | GoType::Bytes | GoType::Time | GoType::MicroTime => Some(JsonType::String),
        GoType::Bool => Some(JsonType::Boolean),
        GoType::Int32 | GoType::Int64 => Some(JsonType::Integer),
        GoType::Float64 => Some(JsonType::Number),
        GoType::Quantity
        | GoType::IntOrString
        | GoType::Json
        | GoType::SchemaOrArray
        | GoType::SchemaOrBool
        | GoType::SchemaOrStrings => None,
    }
}
