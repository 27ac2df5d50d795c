//! Expressions as a tree, after macros have been expanded.

use std::sync::Arc;

/// What names an expression within its tree: types, references and positions are kept by it.
pub(crate) type Id = usize;

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub id: Id,
    pub kind: Kind,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Where a fault was found.
    Unspecified,
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`, or `has(operand.field)` if it is a test.
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        is_test: bool,
    },
    Call(Box<Call>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// `Name{field: value}`.
    Struct {
        name: Arc<str>,
        fields: Vec<(Id, Arc<str>, Expr)>,
    },
    Comprehension(Box<Comprehension>),
}

/// A value that is written down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A call of a function or an operator.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub function: Arc<str>,
    /// What a method is called on.
    pub target: Option<Expr>,
    pub arguments: Vec<Expr>,
}

/// An item of a list that is written down.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub value: Expr,
    /// Whether it is left out if its value is none: `[?value]`.
    pub is_optional: bool,
}

/// An entry of a map that is written down.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    /// Whether it is left out if its value is none: `{?key: value}`.
    pub is_optional: bool,
}

/// A loop: what macros become.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub range: Expr,
    pub variable: Arc<str>,
    /// The second variable: the value, where the first is the index or the key.
    pub second_variable: Option<Arc<str>>,
    pub accumulator: Arc<str>,
    pub initial: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The accumulator of macros, which no expression can name.
pub(crate) const ACCUMULATOR: &str = "@result";

/// Names of operators, as functions.
pub(crate) mod operators {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const IN: &str = "@in";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
    pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";
}

impl Expr {
    /// The expressions right below this one.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::Unspecified | Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call(call) => call.target.iter().chain(&call.arguments).collect(),
            Kind::List(elements) => elements.iter().map(|element| &element.value).collect(),
            Kind::Map(entries) => {
                entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect()
            }
            Kind::Struct { fields, .. } => fields.iter().map(|(_, _, value)| value).collect(),
            Kind::Comprehension(all) => {
                vec![&all.range, &all.initial, &all.condition, &all.step, &all.result]
            }
        }
    }
}
