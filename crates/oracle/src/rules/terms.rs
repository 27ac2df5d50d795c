//! The types of expressions, and the functions by result type. The functions are those of the table that our type
//! checker uses.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The table of functions. Its columns are name, overload, kind of call, argument types and result type.
const TABLE: &str = include_str!("../../../kubernetes-cel/src/functions.txt");

/// A type: its name and its type parameters, for example `map(string, int)`. A name of one capital letter is a type
/// variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    pub name: String,
    pub of: Vec<Term>,
}

/// An overload of a function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub is_member: bool,
    pub arguments: Vec<Term>,
    pub result: Term,
}

/// The types of type variables.
pub type Bound = BTreeMap<String, Term>;

impl Term {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), of: Vec::new() }
    }

    pub fn list(of: Self) -> Self {
        Self { name: "list".to_owned(), of: vec![of] }
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self { name: "map".to_owned(), of: vec![key, value] }
    }

    pub fn optional(of: Self) -> Self {
        Self { name: "optional_type".to_owned(), of: vec![of] }
    }

    /// Parses a type such as `map(string, list(A))`.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let Some((name, inner)) = text.split_once('(') else { return Self::named(text) };
        let inner = inner.strip_suffix(')').unwrap_or(inner);
        let (mut depth, mut of, mut start) = (0, Vec::new(), 0);
        for (at, char) in inner.char_indices() {
            match char {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    of.push(Self::parse(&inner[start..at]));
                    start = at + 1;
                }
                _ => {}
            }
        }
        of.push(Self::parse(&inner[start..]));
        Self { name: name.to_owned(), of }
    }

    fn is_variable(&self) -> bool {
        self.name.len() == 1 && self.name.bytes().all(|byte| byte.is_ascii_uppercase())
    }

    /// Whether the type can be `wanted`. Binds its type variables accordingly.
    pub fn matches(&self, wanted: &Self, bound: &mut Bound) -> bool {
        if self.is_variable() {
            return bound.entry(self.name.clone()).or_insert_with(|| wanted.clone()) == wanted;
        }
        self.name == wanted.name
            && self.of.len() == wanted.of.len()
            && self.of.iter().zip(&wanted.of).all(|(mine, theirs)| mine.matches(theirs, bound))
    }

    /// Replaces the type variables by their bindings. `free` returns the type of an unbound variable.
    pub fn filled(&self, bound: &mut Bound, free: &mut impl FnMut() -> Self) -> Self {
        if self.is_variable() {
            return bound.entry(self.name.clone()).or_insert_with(free).clone();
        }
        let of = self.of.iter().map(|term| term.filled(bound, free)).collect();
        Self { name: self.name.clone(), of }
    }
}

/// Returns all functions, except those of the authorizer and the internal functions that macros expand to.
pub fn functions() -> &'static [Function] {
    static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| TABLE.lines().filter_map(function).collect())
}

fn function(line: &str) -> Option<Function> {
    let mut cells = line.split('\t');
    let (name, _overload, how, arguments) =
        (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
    let result = cells.next()?;
    let is_internal = name.contains('@') && name != "@in";
    // Its second argument is the name of a field, which is not an expression.
    let takes_a_name = name == "_?._";
    if is_internal || takes_a_name || line.contains("authorization") {
        return None;
    }
    let arguments = arguments.split(';').filter(|text| !text.trim().is_empty());
    Some(Function {
        name: name.to_owned(),
        is_member: how == "member",
        arguments: arguments.map(Term::parse).collect(),
        result: Term::parse(result),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let size = functions().iter().filter(|one| one.name == "size" && one.is_member).count();
        assert_eq!(size, 4);
        let index =
            functions().iter().find(|one| one.name == "_[_]" && one.arguments[0].name == "map");
        assert_eq!(index.unwrap().arguments[0].of.len(), 2);
        assert!(functions().iter().all(|one| one.name != "check"));
    }

    #[test]
    fn type_variables_are_bound_by_matching() {
        let (mut bound, text) = (Bound::new(), Term::named("string"));
        let optional = Term::parse("optional_type(V)");
        assert!(optional.matches(&Term::optional(text.clone()), &mut bound));
        let list = Term::parse("list(V)").filled(&mut bound, &mut || Term::named("int"));
        assert_eq!(list, Term::list(text.clone()));
        assert!(!Term::parse("list(A)").matches(&text, &mut Bound::new()));
        let pair = Term::parse("map(A, A)");
        assert!(!pair.matches(&Term::map(text, Term::named("int")), &mut Bound::new()));
    }
}
