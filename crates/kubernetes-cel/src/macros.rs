//! Macros: calls that are expanded to loops and tests before types are checked.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Comprehension, Element, Expr, Id, Kind, Literal, operators};
use crate::parser::Parser;

/// The name of the unused variable in the loop of `cel.bind`.
const UNUSED: &str = "#unused";
/// The name of the list in the expansion of `sortBy`.
const SORTED: &str = "@__sortBy_input__";
/// The former name of accumulators. Variables of macros may not have this name.
const OLD_ACCUMULATOR: &str = "__result__";

/// Expands a call if it is a call of a macro.
///
/// # Errors
/// The unchanged call if it is not a call of a macro.
pub(crate) fn expand(
    parser: &mut Parser<'_>,
    id: Id,
    function: &str,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Result<Expr, Call> {
    let is_macro = matches!(
        (function, arguments.len(), target.is_some()),
        ("has", 1, false)
            | ("all" | "exists" | "exists_one", 2 | 3, true)
            | ("existsOne", 3, true)
            | ("map", 2 | 3, true)
            | ("filter" | "sortBy" | "optMap" | "optFlatMap", 2, true)
            | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4, true)
    );
    if !is_macro {
        return Err(Call { function: function.into(), target, arguments });
    }
    let mut macros = Macros { offset: parser.offset(id), parser };
    let mut arguments = arguments.into_iter();
    let mut next = || arguments.next().unwrap_or(Expr { id, kind: Kind::Unspecified });
    let Some(target) = target else { return Ok(macros.has(next())) };
    let expanded = match function {
        "optMap" | "optFlatMap" => {
            let (variable, body) = (next(), next());
            macros.bind_optional(function, target, &variable, body)
        }
        "sortBy" => {
            let (variable, key) = (next(), next());
            macros.sort_by(target, variable, key)
        }
        "map" | "filter" => {
            let variable = next();
            macros.collect(function, target, variable, arguments.collect())
        }
        _ => {
            let first = next();
            let all: Vec<Expr> = arguments.collect();
            macros.fold(function, target, first, all)
        }
    };
    Ok(match expanded {
        Ok(expanded) => expanded,
        Err((at, why)) => {
            let offset = macros.parser.offset(at);
            macros.parser.fault(offset, why)
        }
    })
}

/// The expression with the error, and the message.
type Fault = (Id, String);

/// The builder of expanded expressions, whose position is that of the macro call.
struct Macros<'a, 'p> {
    parser: &'a mut Parser<'p>,
    offset: usize,
}

impl Macros<'_, '_> {
    fn make(&mut self, kind: Kind) -> Expr {
        self.parser.expr(self.offset, kind)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.make(Kind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.make(Kind::Ident(name.into()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        let call = Call { function: function.into(), target: None, arguments };
        self.make(Kind::Call(Box::new(call)))
    }

    fn method(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        let call = Call { function: function.into(), target: Some(target), arguments };
        self.make(Kind::Call(Box::new(call)))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let elements =
            elements.into_iter().map(|value| Element { value, is_optional: false }).collect();
        self.make(Kind::List(elements))
    }

    fn has(&mut self, argument: Expr) -> Expr {
        match argument.kind {
            Kind::Select { operand, field, .. } => {
                self.make(Kind::Select { operand, field, is_test: true })
            }
            _ => {
                let offset = self.parser.offset(argument.id);
                self.parser.fault(offset, "invalid argument to has() macro".to_owned())
            }
        }
    }

    /// `map` and `filter`: a loop that collects items in a list.
    fn collect(
        &mut self,
        function: &str,
        range: Expr,
        variable: Expr,
        mut rest: Vec<Expr>,
    ) -> Result<Expr, Fault> {
        let name = name_of(&variable, "argument is not an identifier")?;
        let (filter, item) = match (function, rest.len()) {
            ("filter", _) => (rest.pop(), Some(variable)),
            (_, 2) => {
                let item = rest.pop();
                (rest.pop(), item)
            }
            _ => (None, rest.pop()),
        };
        let initial = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let list = self.list(item.into_iter().collect());
        let accumulator = self.accumulator();
        let step = self.call(operators::ADD, vec![accumulator, list]);
        let step = self.if_kept(filter, step);
        let result = self.accumulator();
        Ok(self.comprehension(range, name, None, initial, condition, step, result))
    }

    /// A step that runs only if the condition holds, or always if there is no condition.
    fn if_kept(&mut self, condition: Option<Expr>, step: Expr) -> Expr {
        match condition {
            None => step,
            Some(condition) => {
                let accumulator = self.accumulator();
                self.call(operators::CONDITIONAL, vec![condition, step, accumulator])
            }
        }
    }

    /// Macros over one or two variables, whose result is a value, a list or a map.
    fn fold(
        &mut self,
        function: &str,
        range: Expr,
        first: Expr,
        mut rest: Vec<Expr>,
    ) -> Result<Expr, Fault> {
        const SIMPLE: &str = "argument must be a simple name";
        let first_id = first.id;
        let is_transform = function.starts_with("transform");
        let has_two = is_transform || rest.len() == 2;
        let (first, second) = if has_two {
            let given = rest.remove(0);
            let names = (simple_name(&first, SIMPLE)?, simple_name(&given, SIMPLE)?);
            if names.0 == names.1 {
                return Err((given.id, format!("duplicate variable name: {}", names.0)));
            }
            check_name(first_id, &names.0)?;
            check_name(given.id, &names.1)?;
            (names.0, Some(names.1))
        } else {
            (name_of(&first, SIMPLE)?, None)
        };
        let body = rest.pop().unwrap_or(Expr { id: first_id, kind: Kind::Unspecified });
        let filter = rest.pop();
        let (initial, condition, step, result) = match function {
            "all" => {
                let initial = self.literal(Literal::Bool(true));
                let accumulator = self.accumulator();
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![accumulator]);
                let accumulator = self.accumulator();
                let step = self.call(operators::AND, vec![accumulator, body]);
                (initial, condition, step, self.accumulator())
            }
            "exists" => {
                let initial = self.literal(Literal::Bool(false));
                let accumulator = self.accumulator();
                let not = self.call(operators::NOT, vec![accumulator]);
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![not]);
                let accumulator = self.accumulator();
                let step = self.call(operators::OR, vec![accumulator, body]);
                (initial, condition, step, self.accumulator())
            }
            "exists_one" | "existsOne" => {
                let initial = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let more = self.call(operators::ADD, vec![accumulator, one]);
                let accumulator = self.accumulator();
                let step = self.call(operators::CONDITIONAL, vec![body, more, accumulator]);
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                (initial, condition, step, self.call(operators::EQUALS, vec![accumulator, one]))
            }
            _ => {
                let accumulator = self.accumulator();
                let (initial, step) = match function {
                    "transformList" => {
                        let list = self.list(vec![body]);
                        let step = self.call(operators::ADD, vec![accumulator, list]);
                        (self.list(Vec::new()), step)
                    }
                    "transformMap" => {
                        let key = self.ident(&first);
                        let step = self.call(operators::MAP_INSERT, vec![accumulator, key, body]);
                        (self.make(Kind::Map(Vec::new())), step)
                    }
                    _ => {
                        let step = self.call(operators::MAP_INSERT, vec![accumulator, body]);
                        (self.make(Kind::Map(Vec::new())), step)
                    }
                };
                let step = self.if_kept(filter, step);
                (initial, self.literal(Literal::Bool(true)), step, self.accumulator())
            }
        };
        Ok(self.comprehension(range, first, second, initial, condition, step, result))
    }

    #[expect(clippy::too_many_arguments, reason = "a loop has so many parts")]
    fn comprehension(
        &mut self,
        range: Expr,
        variable: Arc<str>,
        second_variable: Option<Arc<str>>,
        initial: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
    ) -> Expr {
        self.make(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR.into(),
            initial,
            condition,
            step,
            result,
        })))
    }

    /// A named value in an expression.
    fn bind(&mut self, name: &Arc<str>, value: Expr, body: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        self.make(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.into(),
            second_variable: None,
            accumulator: Arc::clone(name),
            initial: value,
            condition,
            step,
            result: body,
        })))
    }

    fn bind_optional(
        &mut self,
        function: &str,
        target: Expr,
        variable: &Expr,
        body: Expr,
    ) -> Result<Expr, Fault> {
        let Kind::Ident(name) = &variable.kind else {
            let why = format!("{function}() variable name must be a simple identifier");
            return Err((variable.id, why));
        };
        let Some(copy) = self.copy(&target) else {
            return Err((target.id, format!("{function}() makes the expression too large")));
        };
        let has_value = self.method("hasValue", target, Vec::new());
        let value = self.method("value", copy, Vec::new());
        let mut bound = self.bind(name, value, body);
        if function == "optMap" {
            bound = self.call("optional.of", vec![bound]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call(operators::CONDITIONAL, vec![has_value, bound, none]))
    }

    fn sort_by(&mut self, target: Expr, variable: Expr, key: Expr) -> Result<Expr, Fault> {
        if !matches!(
            target.kind,
            Kind::List(_)
                | Kind::Select { .. }
                | Kind::Ident(_)
                | Kind::Comprehension(_)
                | Kind::Call(_)
        ) {
            let why = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.id, why.to_owned()));
        }
        let range = self.ident(SORTED);
        let keys = self.collect("map", range, variable, vec![key])?;
        let list = self.ident(SORTED);
        let sorted = self.method(operators::SORT_BY_KEYS, list, vec![keys]);
        Ok(self.bind(&SORTED.into(), target, sorted))
    }

    /// A copy of an expression with new numbers. `None` if there are too many copies: each nested macro doubles the
    /// size of its copies.
    fn copy(&mut self, expr: &Expr) -> Option<Expr> {
        if !self.parser.may_copy(size(expr)) {
            return None;
        }
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        Some(copy)
    }

    fn renumber(&mut self, expr: &mut Expr) {
        let offset = self.parser.offset(expr.id);
        expr.id = self.parser.id(offset);
        match &mut expr.kind {
            Kind::Unspecified | Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call(call) => {
                let all = call.target.iter_mut().chain(&mut call.arguments);
                all.for_each(|expr| self.renumber(expr));
            }
            Kind::List(elements) => {
                elements.iter_mut().for_each(|element| self.renumber(&mut element.value));
            }
            Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
                self.renumber(&mut entry.key);
                self.renumber(&mut entry.value);
            }),
            Kind::Struct { fields, .. } => {
                fields.iter_mut().for_each(|(_, _, value)| self.renumber(value));
            }
            Kind::Comprehension(all) => {
                self.renumber(&mut all.range);
                self.renumber(&mut all.initial);
                self.renumber(&mut all.condition);
                self.renumber(&mut all.step);
                self.renumber(&mut all.result);
            }
        }
    }
}

/// The number of nodes in an expression.
fn size(expr: &Expr) -> usize {
    1 + expr.children().into_iter().map(size).sum::<usize>()
}

fn simple_name(expr: &Expr, why: &str) -> Result<Arc<str>, Fault> {
    match &expr.kind {
        Kind::Ident(name) => Ok(Arc::clone(name)),
        _ => Err((expr.id, why.to_owned())),
    }
}

fn check_name(id: Id, name: &str) -> Result<(), Fault> {
    if [ACCUMULATOR, OLD_ACCUMULATOR].contains(&name) {
        return Err((id, "iteration variable overwrites accumulator variable".to_owned()));
    }
    Ok(())
}

fn name_of(expr: &Expr, why: &str) -> Result<Arc<str>, Fault> {
    let name = simple_name(expr, why)?;
    check_name(expr.id, &name)?;
    Ok(name)
}
