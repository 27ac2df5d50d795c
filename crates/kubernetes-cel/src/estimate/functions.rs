//! Estimates of the cost of library functions and the size of their results.

use super::{CallCost, Estimator, Place, Range};
use crate::ast::{Call, Expr, Kind, Literal, operators};
use crate::cost::{LIST, PER_CHARACTER, PER_PATTERN_CHARACTER, costs_one};
use crate::types::Type;

impl Estimator<'_> {
    /// Whether an item of a list is a string or bytes, and its size.
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

    /// Estimates functions of lists and sets that create lists or compare all items with all others.
    pub(super) fn of_lists(&mut self, call: &Call, overload: &str) -> Option<CallCost> {
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

    pub(super) fn of_extension(&mut self, call: &Call, overload: &str) -> Option<CallCost> {
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
                // An address has 4 or 16 bytes.
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
                /// The longest pattern of a named format, in characters.
                const PATTERN: f64 = 128.0;
                let cost = walk(argument(self, 0)?).at_price(PATTERN * PER_PATTERN_CHARACTER);
                CallCost::of(cost)
            }
            name if costs_one(name) => CallCost::of(Range::ONE),
            operators::EQUALS => CallCost::of(self.of_equality(call)?),
            _ => return None,
        })
    }

    /// The cost of comparing two values of types that Kubernetes adds.
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
                // The names of formats are short.
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

pub(super) fn of_pattern(text: Range, pattern: Range) -> Range {
    let text = text.plus(Range::ONE).at_price(PER_CHARACTER);
    text.times(pattern.at_price(PER_PATTERN_CHARACTER))
}

/// The length of a string after parts of it are replaced.
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

/// The cost of comparing two items, by the overload for the type of the items.
fn comparing(of_item: &str) -> f64 {
    match of_item {
        "list_string" | "list_bytes" => 2.0 + PER_CHARACTER,
        _ => 2.0,
    }
}
