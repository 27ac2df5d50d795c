//! What an expression may cost at most, before anything is known but the schema.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Comprehension, Expr, Id, Kind, Literal, operators};
use crate::checker::{Checked, Reference};
use crate::cost::{LIST, MAP, OBJECT, PER_CHARACTER, PER_PATTERN_CHARACTER, costs_one};
use crate::declared::{Declared, Shape};
use crate::types::Type;

/// The fewest and the most of something: of costs, of items, of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    min: u64,
    max: u64,
}

impl Range {
    const ZERO: Self = Self::of(0);
    const ONE: Self = Self::of(1);
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    /// What any first one replaces.
    const NONE: Self = Self { min: u64::MAX, max: 0 };

    const fn of(exactly: u64) -> Self {
        Self { min: exactly, max: exactly }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn at_price(self, price: f64) -> Self {
        Self { min: scaled(self.min, price), max: scaled(self.max, price) }
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// So many units at a price, rounded up.
fn scaled(units: u64, price: f64) -> u64 {
    let exact = (units as f64 * price).ceil();
    if exact >= 18_446_744_073_709_551_616.0 { u64::MAX } else { exact as u64 }
}

/// What is known of the entries of a list or a map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: Range,
    value: Range,
}

impl EntrySize {
    fn or(self, other: Self) -> Self {
        Self { key: self.key.or(other.key), value: self.value.or(other.value), ..self }
    }
}

/// A variable of a loop.
#[derive(Clone, Debug)]
struct Local<'a> {
    path: Place<'a>,
    size: Option<Range>,
    entries: Option<EntrySize>,
}

/// Where an expression leads to in the schema.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// To nothing that has a name. Whatever is below it counts as the root: so kube-apiserver does it.
    Unnamed,
    /// To what the schema does not say.
    Nowhere,
    At(&'a Declared),
    /// A key of a map, of which the schema says nothing.
    Key,
}

impl<'a> Place<'a> {
    fn size(self) -> Option<Range> {
        match self {
            Self::Unnamed | Self::Nowhere => None,
            Self::At(declared) => Some(Range { min: 0, max: declared.largest }),
            Self::Key => Some(Range::ZERO),
        }
    }

    fn element(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            Self::At(Declared { shape: Shape::List(of, _) | Shape::Map(of), .. }) => Self::At(of),
            _ => Self::Nowhere,
        }
    }

    fn key(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            Self::At(Declared { shape: Shape::Map(_), .. }) => Self::Key,
            _ => Self::Nowhere,
        }
    }

    fn index(self, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            _ => Self::Nowhere,
        }
    }

    fn member(self, name: &str, root: &'a Declared) -> Self {
        match self {
            Self::Unnamed => Self::At(root),
            // Only by the name that is escaped is its size known.
            Self::At(Declared { shape: Shape::Object(members), .. }) => {
                match members.by_name.get(name) {
                    Some((_, of)) => Self::At(of),
                    None => Self::Nowhere,
                }
            }
            _ => Self::Nowhere,
        }
    }
}

/// The most that an expression may cost.
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

/// What a call costs, and how large its result is.
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

    /// What an item of a list may be: whether it is a text or bytes, and its size.
    fn item_of(&self, list: &Expr) -> Option<(bool, Range)> {
        let of = match self.checked.type_of(list) {
            Type::List(of) => (**of).clone(),
            Type::Map(of) => of.0.clone(),
            Type::Opaque(_, of) => of.first()?.clone(),
            _ => return None,
        };
        let place = match self.place(list) {
            Place::Unnamed => Place::Nowhere,
            named => named.element(self.root),
        };
        let size = place.size().unwrap_or(Range::UNKNOWN);
        Some((matches!(of, Type::String | Type::Bytes), size))
    }

    /// Functions of lists and sets that make new lists, or compare all items to all.
    fn of_lists(&mut self, call: &Call, overload: &str) -> Option<CallCost> {
        let making = |factor: f64, size: Range| {
            let cost = size.at_price(factor).plus(Range::of(1 + LIST));
            CallCost::sized(cost, size)
        };
        let written = |at: usize| match call.arguments.get(at).map(|argument| &argument.kind) {
            Some(Kind::Literal(Literal::Int(number))) => {
                Some(u64::try_from(*number).unwrap_or_default())
            }
            _ => None,
        };
        if let Some(of_item) = overload.strip_suffix("_sortByAssociatedKeys") {
            let size = self.size_or_unknown(call.arguments.first()?);
            return Some(making(comparing(of_item), size.times(size)));
        }
        if let Some(of_item) = overload.strip_suffix("_sort") {
            let size = self.size_or_unknown(call.target.as_ref()?);
            return Some(making(comparing(of_item), size.times(size)));
        }
        Some(match overload {
            "list_slice" => {
                let own = self.size_or_unknown(call.target.as_ref()?);
                let start = written(0).unwrap_or_default();
                let end = written(1).unwrap_or(own.max);
                making(1.0, Range::of(end.wrapping_sub(start)))
            }
            "lists_range" => making(1.0, Range::of(written(0).unwrap_or(u64::MAX))),
            "list_reverse" => making(1.0, self.size_or_unknown(call.target.as_ref()?)),
            "list_flatten" => making(1.0, self.size_or_unknown(call.target.as_ref()?)),
            "list_flatten_int" => {
                let depth = written(0).unwrap_or(u64::MAX) as f64;
                making(depth, self.size_or_unknown(call.target.as_ref()?))
            }
            "list_distinct" => {
                let own = self.size_or_unknown(call.target.as_ref()?);
                making(2.0, own.times(own))
            }
            "list_sets_contains_list"
            | "list_sets_intersects_list"
            | "list_sets_equivalent_list" => {
                let [left, right] = &call.arguments[..] else { return None };
                let pairs = self.size_or_unknown(left).times(self.size_or_unknown(right));
                let factor = if overload.contains("equivalent") { 2.0 } else { 1.0 };
                CallCost::of(pairs.at_price(factor).plus(Range::ONE))
            }
            _ => return None,
        })
    }

    fn of_extension(&mut self, call: &Call, overload: &str) -> Option<CallCost> {
        let target = call.target.as_ref();
        let own = target.map(|target| self.size_or_unknown(target));
        let argument = |of: &mut Self, at: usize| {
            call.arguments.get(at).map(|argument| of.size_or_unknown(argument))
        };
        let walk = |size: Range| size.at_price(PER_CHARACTER);
        Some(match &*call.function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let own = own?;
                match self.item_of(target?) {
                    Some((true, size)) => CallCost::of(own.times(Range::ONE.plus(walk(size)))),
                    Some(_) => CallCost::of(own),
                    None => CallCost::of(walk(own)),
                }
            }
            "url" => {
                let size = argument(self, 0)?;
                CallCost::sized(walk(size), size)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let own = own?;
                CallCost::sized(walk(own), own)
            }
            "replace" => {
                let (own, from, to) = (own?, argument(self, 0)?, argument(self, 1)?);
                let size = replaced(own, from, to);
                CallCost::sized(own.at_price(2.0 * PER_CHARACTER), size)
            }
            "split" => {
                let own = own?;
                let most = match call.arguments.get(1).map(|count| &count.kind) {
                    Some(Kind::Literal(Literal::Int(count))) => *count as u64,
                    _ => own.max,
                };
                CallCost::sized(own.at_price(2.0 * PER_CHARACTER), Range { min: 0, max: most })
            }
            "join" => {
                let own = own?;
                let mut size = Range::ZERO;
                if let Some((_, item)) = self.item_of(target?) {
                    size = own.times(item);
                }
                if let Some(separator) = argument(self, 0) {
                    let count =
                        Range { min: own.min.saturating_sub(1), max: own.max.saturating_sub(1) };
                    size = size.plus(separator.times(count));
                }
                CallCost::sized(walk(size), size)
            }
            "find" | "findAll" => {
                let own = own?;
                let cost = of_pattern(own, argument(self, 0)?);
                CallCost::sized(cost, Range { min: 0, max: own.max })
            }
            "ip" if overload == "cidr_ip" => CallCost::of(Range::ONE),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => CallCost::of(walk(argument(self, 0)?)),
            "ip.isCanonical" => CallCost::of(argument(self, 0)?.at_price(2.0 * PER_CHARACTER)),
            "containsIP" | "containsCIDR" => {
                let given = argument(self, 0)?;
                // Addresses are 4 or 16 bytes.
                let bytes = Range { min: 4, max: 16 };
                let mut cost = walk(bytes.plus(bytes));
                if &*call.function == "containsCIDR" {
                    cost = cost.plus(walk(bytes)).plus(Range::ONE);
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(walk(given));
                }
                CallCost::of(cost)
            }
            "validate" => {
                /// The longest pattern of a format of names, in characters.
                const PATTERN: f64 = 128.0;
                let cost = walk(argument(self, 0)?).at_price(PATTERN * PER_PATTERN_CHARACTER);
                CallCost::of(cost)
            }
            name if costs_one(name) => CallCost::of(Range::ONE),
            operators::EQUALS => CallCost::of(self.of_equality(call)?),
            _ => return None,
        })
    }

    /// What it costs to hold two values of Kubernetes' own types against each other.
    fn of_equality(&mut self, call: &Call) -> Option<Range> {
        let [left, right] = &call.arguments[..] else { return None };
        let (of_left, of_right) = (self.checked.type_of(left), self.checked.type_of(right));
        if !of_left.is_same(of_right) {
            return None;
        }
        match of_left {
            Type::Opaque(name, _) if ["net.IP", "net.CIDR"].contains(&&**name) => Some(Range::ONE),
            Type::Object(object) => match &*object.name {
                "kubernetes.Quantity" | "kubernetes.Semver" => Some(Range::ONE),
                // Names of formats are short.
                "kubernetes.NamedFormat" => Some(Range { min: 1, max: 64 }.at_price(PER_CHARACTER)),
                "kubernetes.URL" => {
                    let max = self.size(right).map_or(1, |size| size.max);
                    Some(Range { min: 1, max }.at_price(PER_CHARACTER))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whether it only gives a value a name.
fn is_bind(all: &Comprehension) -> bool {
    matches!(&all.range.kind, Kind::List(elements) if elements.is_empty())
        && matches!(all.condition.kind, Kind::Literal(Literal::Bool(false)))
        && *all.accumulator != *ACCUMULATOR
}

fn of_pattern(text: Range, pattern: Range) -> Range {
    let text = text.plus(Range::ONE).at_price(PER_CHARACTER);
    text.times(pattern.at_price(PER_PATTERN_CHARACTER))
}

/// How long a text becomes in which parts are replaced.
fn replaced(own: Range, from: Range, to: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if from.min == 0 {
        count.max = own.max.saturating_add(1);
        kept.max = own.max;
    } else if to.max <= from.min {
        kept.max = own.max;
    } else {
        count.max = (own.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = own.min.saturating_add(1);
        kept.min = own.min;
    } else if from.max <= to.min {
        kept.min = own.min;
    } else {
        count.min = (own.min as f64 / from.max as f64).ceil() as u64;
    }
    count.times(to).plus(kept)
}

/// What it costs to sort two items, by the name of their type.
fn comparing(of_item: &str) -> f64 {
    match of_item {
        "list_string" | "list_bytes" => 2.0 + PER_CHARACTER,
        _ => 2.0,
    }
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
