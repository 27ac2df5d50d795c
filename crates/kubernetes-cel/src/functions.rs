//! The table of overloads of functions and operators, in the order in which they are tried.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::{OPTIONAL, Type};

/// One overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The id of the overload, which determines the cost.
    pub id: &'static str,
    pub is_method: bool,
    pub arguments: Vec<Type>,
    pub result: Type,
    /// The names of its type parameters.
    pub parameters: Vec<Arc<str>>,
}

/// The table, with one line per overload: name, id, `global` or `member`, types of arguments, type of the result.
const TABLE: &str = include_str!("functions.txt");

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in TABLE.lines() {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, id, style, arguments, result) = (next(), next(), next(), next(), next());
        let given = arguments.split("; ").filter(|text| !text.is_empty());
        let arguments: Vec<Type> = given.map(parse).collect();
        let result = parse(result);
        let mut parameters = Vec::new();
        arguments.iter().chain([&result]).for_each(|of| collect_parameters(of, &mut parameters));
        functions.entry(name).or_default().push(Overload {
            id,
            is_method: style == "member",
            arguments,
            result,
            parameters,
        });
    }
    functions
});

/// All overloads of a function.
pub(crate) fn overloads(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

/// Whether a function accepts values of these types, by their names at run time. Types of items, keys and values are
/// ignored.
pub(crate) fn takes(name: &str, given: &[&str]) -> bool {
    let fits = |(expected, given): (&Type, &&str)| {
        matches!(expected, Type::Parameter(_) | Type::Dyn) || expected.run_time_name() == **given
    };
    let takes = |one: &Overload| {
        one.arguments.len() == given.len() && one.arguments.iter().zip(given).all(fits)
    };
    overloads(name).is_some_and(|all| all.iter().any(takes))
}

fn collect_parameters(of: &Type, found: &mut Vec<Arc<str>>) {
    match of {
        Type::Parameter(name) if !found.contains(name) => found.push(Arc::clone(name)),
        Type::List(of) => collect_parameters(of, found),
        Type::Map(of) => {
            collect_parameters(&of.0, found);
            collect_parameters(&of.1, found);
        }
        Type::Opaque(_, of) => of.iter().for_each(|of| collect_parameters(of, found)),
        Type::Meta(Some(of)) => collect_parameters(of, found),
        _ => {}
    }
}

/// Parses a type in the notation of the table.
fn parse(text: &str) -> Type {
    let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(of) = inner("list(") {
        return Type::list(parse(of));
    }
    if let Some(of) = inner("map(") {
        let (key, value) = of.split_once(", ").unwrap_or((of, "dyn"));
        return Type::map(parse(key), parse(value));
    }
    if let Some(of) = inner("optional_type(") {
        return Type::optional(parse(of));
    }
    if let Some(of) = inner("type(") {
        return Type::Meta(Some(Arc::new(parse(of))));
    }
    named(text).unwrap_or_else(|| Type::Parameter(text.into()))
}

/// A type by its name in overloads.
fn named(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "net.IP" | "net.CIDR" => Type::Opaque(name.into(), Arc::new([])),
        name if name.starts_with("kubernetes.") => Type::object(name),
        _ => return None,
    })
}

/// A type by its name in expressions, where it is a value.
pub(crate) fn type_called(name: &str) -> Option<Type> {
    let of = match name {
        "null_type" => Type::Null,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => return Some(Type::Meta(Some(Arc::new(Type::Meta(None))))),
        OPTIONAL => Type::optional(Type::Dyn),
        "bool" | "int" | "uint" | "double" | "string" | "bytes" | "net.IP" | "net.CIDR" => {
            named(name)?
        }
        _ => return None,
    };
    Some(Type::Meta(Some(Arc::new(of))))
}
