//! The estimated largest cost of an expression, based on the schema alone.

mod functions;
mod place;
mod range;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Comprehension, Expr, Id, Kind, Literal};
use crate::checker::{Checked, Reference};
use crate::cost::{LIST, MAP, OBJECT, PER_CHARACTER};
use crate::declared::Declared;
use crate::types::Type;
use functions::of_pattern;
use place::Place;
use range::{EntrySize, Range};

/// A variable of a loop.
#[derive(Clone, Debug)]
struct Local<'a> {
    path: Place<'a>,
    size: Option<Range>,
    entries: Option<EntrySize>,
}

/// The largest cost of an expression.
pub(crate) fn most(checked: &Checked, root: &Declared) -> u64 {
    let mut estimator = Estimator {
        checked,
        root,
        places: HashMap::new(),
        locals: HashMap::new(),
        sizes: HashMap::new(),
        entry_sizes: HashMap::new(),
    };
    estimator.cost(&checked.root).max
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: &'a Declared,
    places: HashMap<Id, Place<'a>>,
    locals: HashMap<Arc<str>, Vec<Local<'a>>>,
    sizes: HashMap<Id, Range>,
    entry_sizes: HashMap<Id, EntrySize>,
}

/// The cost of a call and the size of its result.
struct CallCost {
    cost: Range,
    size: Option<Range>,
}

impl CallCost {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self { cost, size: Some(size) }
    }
}

impl<'a> Estimator<'a> {
    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.get(name).and_then(|all| all.last())
    }

    fn push(&mut self, name: &Arc<str>, local: Local<'a>) {
        self.locals.entry(Arc::clone(name)).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(all) = self.locals.get_mut(name) {
            all.pop();
        }
    }

    fn place(&self, expr: &Expr) -> Place<'a> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path;
        }
        self.places.get(&expr.id).copied().unwrap_or(Place::Unnamed)
    }

    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Unspecified | Kind::Literal(_) => Range::ZERO,
            Kind::Ident(name) => {
                let place = match self.local(name) {
                    Some(local) => local.path,
                    None => Place::At(self.root),
                };
                self.places.insert(expr.id, place);
                Range::ONE
            }
            Kind::Select { operand, field, is_test } => {
                let cost = self.cost(operand);
                if *is_test {
                    return cost;
                }
                let place = self.place(operand).member(field, self.root);
                self.places.insert(expr.id, place);
                match self.checked.type_of(operand) {
                    Type::Map(_) | Type::Object(_) => cost.plus(Range::ONE),
                    _ => cost,
                }
            }
            Kind::Call(call) => self.of_call(expr, call),
            Kind::List(elements) => {
                let mut cost = Range::of(LIST);
                let mut value = if elements.is_empty() { Range::ZERO } else { Range::NONE };
                for element in elements {
                    cost = cost.plus(self.cost(&element.value));
                    value = value.or(self.size_or_unknown(&element.value));
                }
                let entries = EntrySize { is_list: true, key: Range::ONE, value };
                self.entry_sizes.insert(expr.id, entries);
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::of(MAP);
                let none = if entries.is_empty() { Range::ZERO } else { Range::NONE };
                let mut sizes = EntrySize { is_list: false, key: none, value: none };
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    sizes.key = sizes.key.or(self.size_or_unknown(&entry.key));
                    sizes.value = sizes.value.or(self.size_or_unknown(&entry.value));
                }
                self.entry_sizes.insert(expr.id, sizes);
                cost
            }
            Kind::Struct { fields, .. } => fields
                .iter()
                .fold(Range::of(OBJECT), |cost, (_, _, value)| cost.plus(self.cost(value))),
            Kind::Comprehension(all) if is_bind(all) => self.of_bind(expr, all),
            Kind::Comprehension(all) => self.of_loop(expr, all),
        }
    }

    fn push_value(&mut self, name: &Arc<str>, value: &Expr) {
        let local =
            Local { path: self.place(value), size: self.size(value), entries: self.entries(value) };
        self.push(name, local);
    }

    fn of_bind(&mut self, expr: &Expr, all: &Comprehension) -> Range {
        let cost = self.cost(&all.range).plus(self.cost(&all.initial));
        self.push_value(&all.accumulator, &all.initial);
        let cost = cost.plus(self.cost(&all.result));
        self.pop(&all.accumulator);
        self.copy_sizes(expr, &all.result);
        cost
    }

    fn of_loop(&mut self, expr: &Expr, all: &Comprehension) -> Range {
        let cost = self.cost(&all.range).plus(self.cost(&all.initial));
        self.push_value(&all.accumulator, &all.initial);
        let entries = self.entries(&all.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(&all.range), Type::List(_)),
        };
        let place = self.place(&all.range);
        let value = Local {
            path: place.element(self.root),
            size: entries.map(|entries| entries.value),
            entries: None,
        };
        let key = Local {
            path: if is_list { place.index(self.root) } else { place.key(self.root) },
            size: entries.map(|entries| entries.key),
            entries: None,
        };
        match &all.second_variable {
            Some(second) => {
                self.push(&all.variable, key);
                self.push(second, value);
            }
            None => self.push(&all.variable, if is_list { value } else { key }),
        }
        let step = self.cost(&all.condition);
        let step = self.cost(&all.step).plus(step);
        self.pop(&all.variable);
        if let Some(second) = &all.second_variable {
            self.pop(second);
        }
        let cost = cost.plus(self.cost(&all.result));
        self.pop(&all.accumulator);
        let count = self.size_or_unknown(&all.range);
        match all.initial.kind {
            Kind::Literal(_) => {
                let size = self.size(&all.initial);
                self.set_size(expr, size);
            }
            Kind::List(_) | Kind::Map(_) => {
                self.set_size(expr, Some(count));
                if let Some(entries) = self.entries(&all.step) {
                    self.entry_sizes.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        cost.plus(count.times(step))
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let size = self.size(from);
        self.set_size(to, size);
        if let Some(entries) = self.entries(from) {
            self.entry_sizes.insert(to.id, entries);
        }
    }

    fn entries(&self, expr: &Expr) -> Option<EntrySize> {
        if let Some(known) = self.entry_sizes.get(&expr.id) {
            return Some(*known);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(known) = self.sizes.get(&expr.id) {
            return Some(*known);
        }
        let written = match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(text.chars().count()),
            Kind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Kind::Literal(_) => Some(1),
            Kind::List(elements) => Some(elements.len()),
            Kind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(written) = written {
            return Some(Range::of(written as u64));
        }
        if let Some(size) = self.place(expr).size() {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr)) {
            return Some(Range::ONE);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn of_call(&mut self, expr: &Expr, call: &Call) -> Range {
        if *call.function == *"dyn" {
            let Some(argument) = call.arguments.first() else { return Range::ONE };
            let cost = self.cost(argument);
            self.copy_sizes(expr, argument);
            return Range::ONE.plus(cost);
        }
        let costs: Vec<Range> = call
            .arguments
            .iter()
            .map(|argument| {
                let cost = self.cost(argument);
                self.size(argument);
                cost
            })
            .collect();
        let overloads = self.checked.overloads(expr.id).to_vec();
        if overloads.is_empty() {
            return Range::ZERO;
        }
        let mut target_cost = Range::ZERO;
        if let Some(target) = &call.target {
            target_cost = self.cost(target);
            self.size(target);
        }
        let (mut cost, mut size) = (Range::NONE, None);
        for overload in overloads {
            let of_overload = self.of_overload(expr, call, overload, &costs);
            cost = cost.or(of_overload.cost);
            if let Some(of_result) = of_overload.size {
                size = Some(size.map_or(of_result, |size: Range| size.or(of_result)));
            }
            if let ("index_list" | "index_map", Some(container)) =
                (overload, call.arguments.first())
            {
                size = self.entries(container).map(|entries| entries.value);
                let place = self.place(container).element(self.root);
                self.places.insert(expr.id, place);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        self.set_size(expr, size);
        target_cost.plus(cost)
    }

    fn of_overload(
        &mut self,
        expr: &Expr,
        call: &Call,
        overload: &str,
        costs: &[Range],
    ) -> CallCost {
        let of_arguments = costs.iter().fold(Range::ZERO, |sum, cost| sum.plus(*cost));
        let extension = match self.of_lists(call, overload) {
            Some(of_lists) => Some(of_lists),
            None => self.of_extension(call, overload),
        };
        if let Some(extension) = extension {
            return CallCost { cost: extension.cost.plus(of_arguments), ..extension };
        }
        let arguments: Vec<Range> =
            call.arguments.iter().map(|argument| self.size_or_unknown(argument)).collect();
        let target = call.target.as_ref().map(|target| self.size_or_unknown(target));
        let walk = |size: Range| size.at_price(PER_CHARACTER).plus(of_arguments);
        match (overload, target, &arguments[..]) {
            ("string_format", Some(target), _) => CallCost::of(walk(target)),
            ("string_to_bytes", _, [text]) => {
                let size = Range { min: text.min, max: text.max.wrapping_mul(4) };
                CallCost::sized(walk(*text), size)
            }
            ("bytes_to_string", _, [bytes]) => {
                CallCost::sized(walk(*bytes), Range { min: bytes.min / 4, max: bytes.max })
            }
            ("strings_quote", _, [text]) => {
                let max = text.max.wrapping_mul(2).wrapping_add(2);
                let size = Range { min: text.min.wrapping_add(2), max };
                CallCost::sized(walk(*text), size)
            }
            ("starts_with_string" | "ends_with_string", _, [text]) => CallCost::of(walk(*text)),
            ("in_list", _, [_, list]) => CallCost::of(list.plus(of_arguments)),
            ("matches_string", Some(text), [pattern]) => {
                CallCost::of(of_pattern(text, *pattern).plus(of_arguments))
            }
            ("contains_string", Some(text), [part]) => {
                let cost = text.at_price(PER_CHARACTER).times(part.at_price(PER_CHARACTER));
                CallCost::of(cost.plus(of_arguments))
            }
            ("logical_or" | "logical_and", _, _) => {
                let [left, right] = costs else { return CallCost::of(of_arguments) };
                CallCost::of(Range { min: left.min, max: left.plus(*right).max })
            }
            ("conditional", _, [_, yes, no]) => {
                let size = yes.or(*no);
                let entries = (self.entries(&call.arguments[1]), self.entries(&call.arguments[2]));
                if let (Some(yes), Some(no)) = entries {
                    self.entry_sizes.insert(expr.id, yes.or(no));
                }
                CallCost::sized(costs[0].plus(costs[1].or(costs[2])), size)
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = left.plus(*right);
                let entries = (self.entries(&call.arguments[0]), self.entries(&call.arguments[1]));
                if let (Some(left), Some(right)) = entries {
                    self.entry_sizes.insert(expr.id, left.or(right));
                }
                let cost = match overload {
                    "add_list" => Range::ONE.plus(of_arguments),
                    _ => walk(size),
                };
                CallCost::sized(cost, size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = left.max.min(right.max);
                let range = Range { min: u64::from(max > 0), max };
                CallCost::of(walk(range))
            }
            _ => CallCost::of(Range::ONE.plus(of_arguments)),
        }
    }
}

/// Whether a loop is the expansion of `cel.bind`, which only names a value.
fn is_bind(all: &Comprehension) -> bool {
    matches!(&all.range.kind, Kind::List(elements) if elements.is_empty())
        && matches!(all.condition.kind, Kind::Literal(Literal::Bool(false)))
        && *all.accumulator != *ACCUMULATOR
}

fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.within_optional().is_some_and(is_scalar),
    }
}

/// Whether an expression refers to a variable.
pub(crate) fn refers_to(checked: &Checked, variable: &str) -> bool {
    let is_it = |reference: &Reference| matches!(reference, Reference::Variable(name) if **name == *variable);
    checked.references.iter().flatten().any(is_it)
}
