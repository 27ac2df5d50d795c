//! Plans: the steps of an evaluation, computed once for each expression.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Comprehension, Expr, Kind, Literal, operators};
use crate::checker::{Checked, Reference};
use crate::composition::Composition;
use crate::cost::Meter;
use crate::evaluate::call_constant;
use crate::library::{self, Native};
use crate::operate::check_index;
use crate::pattern::Pattern;
use crate::value::{Key, Map, Value};

/// One step of an evaluation, with the steps that compute its operands.
#[derive(Debug)]
pub(crate) enum Plan {
    Constant(Value<'static>),
    /// A value with qualifiers.
    Attribute(Box<Attribute>),
    /// `condition ? yes : no`
    Conditional(Box<(Plan, Plan, Plan)>),
    And(Box<[Plan]>),
    Or(Box<[Plan]>),
    /// `left or right`, where `right` is only evaluated if `left` is empty.
    OptionalOr {
        left: Box<Plan>,
        right: Box<Plan>,
        is_value: bool,
    },
    Equal {
        both: Box<(Plan, Plan)>,
        is_negated: bool,
    },
    /// Whether a value is in a list of constants, by their keys.
    Among {
        value: Box<Plan>,
        keys: Arc<[Key]>,
    },
    Call(Box<PlannedCall>),
    List(Box<[(Plan, bool)]>),
    Map(Box<[(Plan, Plan, bool)]>),
    Loop(Box<Loop>),
    /// Appends items to the result list of a comprehension, such as `map` or `filter`.
    Append {
        slot: usize,
        items: Box<[Plan]>,
        cost: u64,
    },
    /// Adds an entry to the map that a loop collects.
    Insert {
        slot: usize,
        key: Box<Plan>,
        value: Box<Plan>,
    },
}

/// A value with qualifiers, which are applied in order.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
}

/// The value that qualifiers are applied to.
#[derive(Debug)]
pub(crate) enum Base {
    Slot(usize),
    /// A named value, which is evaluated at its first use.
    Bound(usize, Arc<Plan>),
    Plan(Plan),
    /// The result of a named expression.
    Named(usize, Access),
}

/// The use of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Value,
    /// The value as an optional value.
    Optional,
    /// A test whether the field exists.
    Test,
}

/// One access to a field, an index or a key of a value.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub step: Step,
    /// Whether the result is an optional value.
    pub is_optional: bool,
}

/// The index or key of a qualifier.
#[derive(Debug)]
pub(crate) enum Step {
    /// A constant index or key.
    Constant(Value<'static>),
    /// A computed index or key.
    Computed(Plan),
    /// A test whether a field exists.
    Test(Value<'static>),
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub function: Arc<str>,
    /// The overload; empty if several overloads fit.
    pub overload: &'static str,
    pub native: Native,
    pub arguments: Box<[Plan]>,
    pub pattern: Option<Pattern>,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct Loop {
    pub range: Plan,
    pub slots: [usize; 2],
    pub has_two: bool,
    pub accumulator: usize,
    pub initial: Arc<Plan>,
    pub condition: Plan,
    pub step: Plan,
    pub result: Plan,
    /// Whether the loop is the expansion of `cel.bind`, which only names a value.
    pub is_bind: bool,
}

/// The planner, which turns an expression into a plan.
pub(crate) struct Planner<'a> {
    checked: &'a Checked,
    slots: usize,
    names: HashMap<Arc<str>, Vec<Named>>,
    /// The named expressions, and the slot of the variable with their results.
    composition: Option<(&'a Composition, usize)>,
}

/// The slot of a named value, and its plan if it is evaluated at its first use.
type Named = (usize, Option<Arc<Plan>>);

/// The plan of an expression and the number of its slots, or the error.
pub(crate) fn plan(
    checked: &Checked,
    variables: &[&str],
    composition: Option<&Composition>,
) -> Result<(Plan, usize), String> {
    let mut planner = Planner { checked, slots: 0, names: HashMap::new(), composition: None };
    for variable in variables {
        let slot = planner.declare(&Arc::from(*variable), None);
        let of = composition.filter(|composition| *composition.variable == **variable);
        planner.composition = planner.composition.or(of.map(|composition| (composition, slot)));
    }
    let plan = planner.plan(&checked.root)?;
    Ok((plan, planner.slots))
}

impl<'a> Planner<'a> {
    fn declare(&mut self, name: &Arc<str>, bound: Option<Arc<Plan>>) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.names.entry(Arc::clone(name)).or_default().push((slot, bound));
        slot
    }

    fn forget(&mut self, name: &str) {
        if let Some(slots) = self.names.get_mut(name) {
            slots.pop();
        }
    }

    fn plan(&mut self, expr: &Expr) -> Result<Plan, String> {
        match &expr.kind {
            Kind::Unspecified | Kind::Struct { .. } => Err("unsupported expression".to_owned()),
            Kind::Literal(literal) => Ok(Plan::Constant(constant(literal))),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, is_test } => {
                let operand = self.plan(operand)?;
                let field = Value::text(Arc::clone(field));
                let step = if *is_test { Step::Test(field) } else { Step::Constant(field) };
                Ok(self.qualified(operand, Qualifier { step, is_optional: false }))
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let items: Vec<(Plan, bool)> = elements
                    .iter()
                    .map(|element| Ok((self.plan(&element.value)?, element.is_optional)))
                    .collect::<Result<_, String>>()?;
                let constants = items.iter().map(|(plan, is_optional)| match plan {
                    Plan::Constant(value) if !is_optional => Some(value.clone()),
                    _ => None,
                });
                Ok(match constants.collect::<Option<Vec<_>>>() {
                    Some(constants) => Plan::Constant(Value::list(constants)),
                    None => Plan::List(items.into()),
                })
            }
            Kind::Map(entries) => {
                let entries: Vec<(Plan, Plan, bool)> = entries
                    .iter()
                    .map(|entry| {
                        Ok((self.plan(&entry.key)?, self.plan(&entry.value)?, entry.is_optional))
                    })
                    .collect::<Result<_, String>>()?;
                let constants = entries.iter().map(|entry| match entry {
                    (Plan::Constant(key), Plan::Constant(value), false) => {
                        Some((key.key()?, (key.clone(), value.clone())))
                    }
                    _ => None,
                });
                Ok(match constants.collect::<Option<_>>() {
                    Some(constants) => Plan::Constant(Value::Map(Map::own(constants))),
                    None => Plan::Map(entries.into()),
                })
            }
            Kind::Comprehension(all) => self.comprehension(all),
        }
    }

    fn ident(&mut self, expr: &Expr, name: &Arc<str>) -> Result<Plan, String> {
        if let Some(Reference::Type(name)) = &self.checked.references[expr.id] {
            return Ok(Plan::Constant(Value::Type(Arc::clone(name))));
        }
        let plain = name.strip_prefix('.').unwrap_or(name);
        let declared = self.names.get(plain).and_then(|slots| slots.last());
        let base = match declared {
            Some((slot, None)) => Base::Slot(*slot),
            Some((slot, Some(bound))) => Base::Bound(*slot, Arc::clone(bound)),
            None => return Err(format!("undeclared reference to '{name}'")),
        };
        Ok(Plan::Attribute(Box::new(Attribute { base, qualifiers: Vec::new() })))
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Result<Plan, String> {
        let given = call.target.iter().chain(&call.arguments);
        let mut arguments: Vec<Plan> = given.map(|one| self.plan(one)).collect::<Result<_, _>>()?;
        let overload = match self.checked.overloads(expr.id) {
            [only] => only,
            _ => "",
        };
        let function = &*call.function;
        let count = arguments.len();
        let mut pop = || arguments.pop().ok_or_else(|| "no such overload".to_owned());
        match function {
            operators::AND => return Ok(Plan::And(arguments.into())),
            operators::OR => return Ok(Plan::Or(arguments.into())),
            operators::CONDITIONAL => {
                let (no, yes, condition) = (pop()?, pop()?, pop()?);
                return Ok(Plan::Conditional(Box::new((condition, yes, no))));
            }
            operators::EQUALS | operators::NOT_EQUALS => {
                let (right, left) = (pop()?, pop()?);
                let is_negated = function == operators::NOT_EQUALS;
                return Ok(Plan::Equal { both: Box::new((left, right)), is_negated });
            }
            operators::INDEX | operators::OPTIONAL_INDEX | operators::OPTIONAL_SELECT => {
                let (index, operand) = (pop()?, pop()?);
                let step = match index {
                    Plan::Constant(value) => {
                        check_index(&value)?;
                        Step::Constant(value)
                    }
                    computed => Step::Computed(computed),
                };
                let is_optional = function != operators::INDEX;
                return Ok(self.qualified(operand, Qualifier { step, is_optional }));
            }
            "or" | "orValue" if count == 2 => {
                let (right, left) = (Box::new(pop()?), Box::new(pop()?));
                return Ok(Plan::OptionalOr { left, right, is_value: function == "orValue" });
            }
            operators::ADD if count == 2 => {
                if let Some(append) = self.append(call, &mut arguments) {
                    return Ok(append);
                }
            }
            operators::MAP_INSERT if count == 3 => {
                let (value, key, _) = (pop()?, pop()?, pop()?);
                let slot = self.accumulator().ok_or("no such overload")?;
                let (key, value) = (Box::new(key), Box::new(value));
                return Ok(Plan::Insert { slot, key, value });
            }
            operators::IN if overload == "in_list" => {
                if let Some(among) = among(&mut arguments) {
                    return Ok(among);
                }
            }
            _ => {}
        }
        let native = library::native(function)
            .ok_or_else(|| format!("the function '{function}' is not supported"))?;
        let pattern = match (function, arguments.get(1)) {
            ("matches" | "find" | "findAll", Some(Plan::Constant(pattern))) => {
                let pattern = pattern.as_str().unwrap_or_default();
                Some(Pattern::compile(pattern)?)
            }
            _ => None,
        };
        let call = PlannedCall {
            function: Arc::clone(&call.function),
            overload,
            native,
            arguments: arguments.into(),
            pattern,
        };
        // A conversion of a constant is a constant.
        const CONVERSIONS: [&str; 10] = [
            "bool",
            "bytes",
            "double",
            "duration",
            "dyn",
            "int",
            "string",
            "timestamp",
            "type",
            "uint",
        ];
        if CONVERSIONS.contains(&&*call.function)
            && matches!(&call.arguments[..], [Plan::Constant(_)])
        {
            return call_constant(&call, &mut Meter::new(u64::MAX, usize::MAX, usize::MAX))
                .map(Plan::Constant);
        }
        Ok(Plan::Call(Box::new(call)))
    }

    /// The slot in which the innermost loop collects its result.
    fn accumulator(&self) -> Option<usize> {
        self.names.get(ACCUMULATOR)?.last().map(|(slot, _)| *slot)
    }

    /// `@result + [...]`, which macros generate. The collected list grows in place.
    fn append(&self, call: &Call, arguments: &mut Vec<Plan>) -> Option<Plan> {
        let [accumulator, list] = &call.arguments[..] else { return None };
        let Kind::Ident(name) = &accumulator.kind else { return None };
        let Kind::List(elements) = &list.kind else { return None };
        let is_plain = elements.iter().all(|element| !element.is_optional);
        if **name != *ACCUMULATOR || !is_plain {
            return None;
        }
        let slot = self.accumulator()?;
        let (items, cost): (Vec<Plan>, u64) = match arguments.pop()? {
            // A list of constants has no cost.
            Plan::Constant(Value::List(list)) => {
                let items = list.items().ok()?;
                (items.into_iter().map(Plan::Constant).collect(), 0)
            }
            Plan::List(items) => {
                (items.into_iter().map(|(plan, _)| plan).collect(), crate::cost::LIST)
            }
            _ => return None,
        };
        Some(Plan::Append { slot, items: items.into(), cost })
    }

    /// Adds a qualifier to a value.
    fn qualified(&self, operand: Plan, qualifier: Qualifier) -> Plan {
        let mut attribute = match operand {
            Plan::Attribute(attribute) => attribute,
            other => Box::new(Attribute { base: Base::Plan(other), qualifiers: Vec::new() }),
        };
        match self.named(&attribute, &qualifier) {
            Some(base) => attribute.base = base,
            None => attribute.qualifiers.push(qualifier),
        }
        Plan::Attribute(attribute)
    }

    /// The named expression that a qualifier selects, if the value is the variable with their results.
    fn named(&self, attribute: &Attribute, qualifier: &Qualifier) -> Option<Base> {
        let (composition, slot) = self.composition?;
        let Attribute { base: Base::Slot(of), qualifiers } = attribute else { return None };
        if *of != slot || !qualifiers.is_empty() {
            return None;
        }
        let (name, access) = match &qualifier.step {
            Step::Constant(name) if qualifier.is_optional => (name, Access::Optional),
            Step::Constant(name) => (name, Access::Value),
            Step::Test(name) => (name, Access::Test),
            Step::Computed(_) => return None,
        };
        Some(Base::Named(composition.find(name.as_str()?)?, access))
    }

    fn comprehension(&mut self, all: &Comprehension) -> Result<Plan, String> {
        let range = self.plan(&all.range)?;
        let initial = Arc::new(self.plan(&all.initial)?);
        let is_bind = *all.accumulator != *ACCUMULATOR;
        let bound = is_bind.then(|| Arc::clone(&initial));
        let accumulator = self.declare(&all.accumulator, bound);
        let result = self.plan(&all.result)?;
        let first = self.declare(&all.variable, None);
        let second = match &all.second_variable {
            Some(name) => self.declare(name, None),
            None => first,
        };
        let condition = self.plan(&all.condition)?;
        let step = self.plan(&all.step)?;
        self.forget(&all.variable);
        if let Some(name) = &all.second_variable {
            self.forget(name);
        }
        self.forget(&all.accumulator);
        Ok(Plan::Loop(Box::new(Loop {
            range,
            slots: [first, second],
            has_two: all.second_variable.is_some(),
            accumulator,
            initial,
            condition,
            step,
            result,
            is_bind,
        })))
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(flag) => Value::Bool(*flag),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::text(Arc::clone(text)),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}

/// `value in [...]`, if all items are constants that can be keys.
fn among(arguments: &mut Vec<Plan>) -> Option<Plan> {
    let Some(Plan::Constant(Value::List(list))) = arguments.get(1) else { return None };
    let mut keys: Vec<Key> = list.iter().map(|item| item.ok()?.key()).collect::<Option<_>>()?;
    if keys.is_empty() {
        return Some(Plan::Constant(Value::Bool(false)));
    }
    keys.sort_unstable();
    arguments.pop();
    Some(Plan::Among { value: Box::new(arguments.pop()?), keys: keys.into() })
}
