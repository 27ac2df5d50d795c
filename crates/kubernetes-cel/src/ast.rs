//! The syntax tree of an expression, after macros have been expanded.

use std::sync::Arc;

/// The number of an expression within its tree. Types, references and positions are stored by this number.
pub(crate) type Id = usize;

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub id: Id,
    pub kind: Kind,
}

/// The kind of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The expression contains an error.
    Unspecified,
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`; `has(operand.field)` if `is_test` is set.
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

/// A literal value.
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
    /// The receiver of a method call.
    pub target: Option<Expr>,
    pub arguments: Vec<Expr>,
}

/// An item of a list literal.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub value: Expr,
    /// Whether the item is omitted if its value is empty: `[?value]`.
    pub is_optional: bool,
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    /// Whether the entry is omitted if its value is empty: `{?key: value}`.
    pub is_optional: bool,
}

/// A loop, which is the expansion of most macros.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub range: Expr,
    pub variable: Arc<str>,
    /// The second variable: the value, if the first variable is the index or the key.
    pub second_variable: Option<Arc<str>>,
    pub accumulator: Arc<str>,
    pub initial: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// The name of the accumulator in macros. It is not an identifier, so an expression cannot use it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The names of operators, as functions.
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
    /// The direct children of this expression.
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
