//! Types of expressions, and their assignability.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::declared::Declared;

/// The type of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// The type of an expression with an error. It fits every type.
    Error,
    /// A type that is known only at run time.
    Dyn,
    /// The type of a value in JSON without a schema. It is like `Dyn`, but cannot be the range of a macro.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An abstract type with type parameters, such as an optional value or an address.
    Opaque(Arc<str>, Arc<[Type]>),
    /// An object whose fields a schema declares, or an object type of Kubernetes without fields.
    Object(Object),
    /// The type of types.
    Meta(Option<Arc<Type>>),
    /// A type parameter in the overload of a function.
    Parameter(Arc<str>),
    /// A type variable, which stands for a type that is not known yet.
    Variable(usize),
}

/// An object type: its name, and the schema of its fields.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub name: Arc<str>,
    pub declared: Option<Arc<Declared>>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([of]))
    }

    pub(crate) fn object(name: &str) -> Self {
        Self::Object(Object { name: name.into(), declared: None })
    }

    /// The type inside of an optional type.
    pub(crate) fn within_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, of) if **name == *OPTIONAL => of.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// The name of the type at run time.
    pub(crate) fn run_time_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Meta(_) => "type".to_owned(),
            Self::Opaque(name, _) => name.to_string(),
            other => other.to_string(),
        }
    }

    /// The type in the format of cel-go's `Type.String`, with the names of run time and type parameters.
    pub(crate) fn to_go_string(&self) -> String {
        let parameters: Vec<String> =
            self.parameters().into_iter().map(Self::to_go_string).collect();
        match &parameters[..] {
            [] => self.run_time_name(),
            of => format!("{}({})", self.run_time_name(), of.join(", ")),
        }
    }

    /// The type parameters.
    fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(of) => vec![of],
            Self::Map(of) => vec![&of.0, &of.1],
            Self::Opaque(_, of) => of.iter().collect(),
            Self::Meta(Some(of)) => vec![of],
            _ => Vec::new(),
        }
    }

    /// Whether both types are identical.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Variable(a), Self::Variable(b)) => a == b,
            (Self::Parameter(a), Self::Parameter(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Opaque(a, of), Self::Opaque(b, other)) => {
                a == b
                    && of.len() == other.len()
                    && of.iter().zip(&**other).all(|(a, b)| a.is_same(b))
            }
            (Self::List(a), Self::List(b)) => a.is_same(b),
            (Self::Map(a), Self::Map(b)) => a.0.is_same(&b.0) && a.1.is_same(&b.1),
            (Self::Meta(Some(a)), Self::Meta(Some(b))) => a.is_same(b),
            (a, b) => {
                std::mem::discriminant(a) == std::mem::discriminant(b)
                    && a.parameters().len() == b.parameters().len()
            }
        }
    }

    /// The same type, with type parameters replaced.
    pub(crate) fn with(&self, of: &HashMap<Arc<str>, Self>) -> Self {
        self.map_leaves(&mut |leaf| match leaf {
            Self::Parameter(name) => of.get(name).cloned(),
            _ => None,
        })
    }

    fn map_leaves(&self, replace: &mut dyn FnMut(&Self) -> Option<Self>) -> Self {
        if let Some(replaced) = replace(self) {
            return replaced;
        }
        match self {
            Self::List(of) => Self::list(of.map_leaves(replace)),
            Self::Map(of) => Self::map(of.0.map_leaves(replace), of.1.map_leaves(replace)),
            Self::Opaque(name, of) => {
                let of = of.iter().map(|of| of.map_leaves(replace)).collect();
                Self::Opaque(Arc::clone(name), of)
            }
            Self::Meta(Some(of)) => Self::Meta(Some(Arc::new(of.map_leaves(replace)))),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map({}, {})", of.0, of.1),
            Self::Opaque(name, of) if of.is_empty() => f.write_str(name),
            Self::Opaque(name, of) => {
                let of: Vec<String> = of.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", of.join(", "))
            }
            Self::Object(object) => f.write_str(&object.name),
            Self::Meta(None) => f.write_str("type"),
            Self::Meta(Some(of)) => write!(f, "type({of})"),
            Self::Parameter(name) => f.write_str(name),
            Self::Variable(number) => write!(f, "_var{number}"),
        }
    }
}

/// The known types of type variables.
#[derive(Debug, Default)]
pub(crate) struct Known {
    types: HashMap<usize, Type>,
    count: usize,
    /// The former types of the variables that an attempt changes.
    before: Vec<(usize, Option<Type>)>,
}

impl Known {
    /// A new type variable.
    pub(crate) fn variable(&mut self) -> Type {
        self.count += 1;
        Type::Variable(self.count - 1)
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Variable(number) => self.types.get(number),
            _ => None,
        }
    }

    /// The type with its known variables replaced. Unknown variables stay, or become `dyn`.
    pub(crate) fn resolve(&self, of: &Type, unknown_is_dyn: bool) -> Type {
        of.map_leaves(&mut |leaf| match leaf {
            Type::Variable(number) => match self.types.get(number) {
                Some(known) => Some(self.resolve(known, unknown_is_dyn)),
                None if unknown_is_dyn => Some(Type::Dyn),
                None => None,
            },
            _ => None,
        })
    }

    /// Whether a value of type `one` can be used as a value of type `other`. If so, the types of variables that follow
    /// from it are stored.
    pub(crate) fn fits(&mut self, one: &Type, other: &Type) -> bool {
        self.all_fit(std::slice::from_ref(one), std::slice::from_ref(other))
    }

    /// Same as [`fits`](Self::fits), for several pairs of types.
    pub(crate) fn all_fit(&mut self, these: &[Type], those: &[Type]) -> bool {
        self.before.clear();
        let fit = these.len() == those.len()
            && these.iter().zip(those).all(|(one, other)| self.is_assignable(one, other));
        while let Some((number, before)) = self.before.pop().filter(|_| !fit) {
            match before {
                Some(before) => self.types.insert(number, before),
                None => self.types.remove(&number),
            };
        }
        fit
    }

    fn learn(&mut self, number: usize, of: Type) {
        let before = self.types.insert(number, of);
        self.before.push((number, before));
    }

    fn is_assignable(&mut self, one: &Type, other: &Type) -> bool {
        if matches!(other, Type::Variable(_)) {
            let (fits, is_known) = self.substitutes(one, other);
            if fits || is_known {
                return fits;
            }
        }
        if matches!(one, Type::Variable(_)) {
            return self.substitutes(other, one).0;
        }
        match (one, other) {
            _ if one.is_dyn_or_error() || other.is_dyn_or_error() => true,
            (Type::Null, nullable) | (nullable, Type::Null) => matches!(
                nullable,
                Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Timestamp | Type::Duration
            ),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(a), Type::List(b)) => self.is_assignable(a, b),
            (Type::Map(a), Type::Map(b)) => {
                self.is_assignable(&a.0, &b.0) && self.is_assignable(&a.1, &b.1)
            }
            (Type::Opaque(a, of), Type::Opaque(b, others)) => {
                a == b
                    && of.len() == others.len()
                    && of.iter().zip(&**others).all(|(a, b)| self.is_assignable(a, b))
            }
            (a, b) => a.is_same(b),
        }
    }

    /// Whether a type can be used for a variable, and whether the type of the variable was known.
    fn substitutes(&mut self, one: &Type, variable: &Type) -> (bool, bool) {
        let Type::Variable(number) = variable else { return (false, false) };
        if one.is_same(variable) {
            return (true, true);
        }
        if let Some(known) = self.types.get(number).cloned() {
            if one.is_same(&known) {
                return (true, true);
            }
            if !self.is_assignable(one, &known) {
                return (false, true);
            }
            let general = most_general(one, &known);
            if self.is_not_within(variable, &general) {
                self.learn(*number, general);
            }
            return (true, true);
        }
        if self.is_not_within(variable, one) {
            self.learn(*number, one.clone());
            return (true, false);
        }
        (false, false)
    }

    fn is_not_within(&self, variable: &Type, within: &Type) -> bool {
        if variable.is_same(within) {
            return false;
        }
        if matches!(within, Type::Variable(_)) {
            return self.find(within).is_none_or(|known| self.is_not_within(variable, known));
        }
        within.parameters().into_iter().all(|of| self.is_not_within(variable, of))
    }
}

/// The more general one of two types that fit each other.
pub(crate) fn most_general(one: &Type, other: &Type) -> Type {
    if is_as_general(one, other) { one.clone() } else { other.clone() }
}

fn is_as_general(one: &Type, other: &Type) -> bool {
    if matches!(one, Type::Dyn | Type::Any | Type::Variable(_) | Type::Parameter(_)) {
        return true;
    }
    if matches!(other, Type::Dyn | Type::Any | Type::Variable(_) | Type::Parameter(_)) {
        return false;
    }
    match (one, other) {
        (Type::Opaque(a, of), Type::Opaque(b, others)) => {
            a == b
                && of.len() == others.len()
                && of.iter().zip(&**others).all(|(a, b)| is_as_general(a, b))
        }
        (Type::List(a), Type::List(b)) => is_as_general(a, b),
        (Type::Map(a), Type::Map(b)) => is_as_general(&a.0, &b.0) && is_as_general(&a.1, &b.1),
        (Type::Meta(_), Type::Meta(_)) => true,
        (a, b) => a.is_same(b),
    }
}
