//! The cost of an evaluation, and the limits that stop it.

use crate::pattern::Pattern;
use crate::value::{Failure, Value};

/// The cost per character of visiting the characters of a string.
pub(crate) const PER_CHARACTER: f64 = 0.1;
/// The cost per character of a pattern.
pub(crate) const PER_PATTERN_CHARACTER: f64 = 0.25;
/// The cost of a list literal.
pub(crate) const LIST: u64 = 10;
/// The cost of a map literal.
pub(crate) const MAP: u64 = 30;
/// The cost of an object literal.
pub(crate) const OBJECT: u64 = 40;
/// The limit, in steps, of work that the CEL cost model does not charge, for example comparisons of large values. A step takes 10 to 100
/// nanoseconds.
const WORK: usize = 5_000_000;
/// The limit of strings and lists that costs do not count, in bytes.
const MADE: usize = 32 << 20;
/// The number of bytes that are read in one step.
const BYTES_OF_STEP: usize = 64;

/// Counts cost, work and memory, and stops the evaluation at a limit.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    limit: u64,
    work: usize,
    made: usize,
    /// The last compiled pattern that is not a constant, with its text.
    pattern: Option<(String, Result<Pattern, String>)>,
}

impl Meter {
    pub(crate) fn new(limit: u64, work: usize, made: usize) -> Self {
        Self { spent: 0, limit, work, made, pattern: None }
    }

    /// Compiles a pattern. The last pattern is cached, because it is nearly always the same and compiling takes long.
    pub(crate) fn pattern(
        &mut self,
        text: &str,
        make: fn(&str) -> Result<Pattern, String>,
    ) -> Result<Result<Pattern, String>, Failure> {
        /// The number of steps to compile a pattern; each byte adds more.
        const MADE: usize = 1_000;
        if let Some((known, pattern)) = &self.pattern
            && known == text
        {
            return Ok(pattern.clone());
        }
        self.work(MADE + 100 * text.len())?;
        let pattern = make(text);
        self.pattern = Some((text.to_owned(), pattern.clone()));
        Ok(pattern)
    }

    /// Counts cost.
    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), Failure> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(Failure::Limit) } else { Ok(()) }
    }

    /// Counts steps that have no cost and are limited separately.
    pub(crate) fn work(&mut self, steps: usize) -> Result<(), Failure> {
        self.work = self.work.checked_sub(steps).ok_or(Failure::Limit)?;
        Ok(())
    }

    /// Counts the work of reading bytes.
    pub(crate) fn look(&mut self, bytes: usize) -> Result<(), Failure> {
        self.work(1 + bytes / BYTES_OF_STEP)
    }

    /// Counts the work of reading the content of a string or of bytes.
    pub(crate) fn look_at(&mut self, value: &Value<'_>) -> Result<(), Failure> {
        match value {
            Value::String(text) => self.look(text.as_str().len()),
            Value::Bytes(bytes) => self.look(bytes.len()),
            _ => Ok(()),
        }
    }

    /// Counts bytes that are allocated, and the work of writing them.
    pub(crate) fn make(&mut self, bytes: usize) -> Result<(), Failure> {
        self.made = self.made.checked_sub(bytes).ok_or(Failure::Limit)?;
        self.look(bytes)
    }

    /// Charges the allocation of a list of `values` values.
    pub(crate) fn make_list(&mut self, values: usize) -> Result<(), Failure> {
        self.make(values.saturating_mul(size_of::<Value<'_>>()))
    }

    /// Takes over the limits that another meter has left. The cost stays.
    pub(crate) fn continue_from(&mut self, other: &Self) {
        (self.work, self.made) = (other.work, other.made);
    }

    pub(crate) fn made_left(&self) -> usize {
        self.made
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn work_left(&self) -> usize {
        self.work
    }
}

/// The budget for one object or one message: see [`Program::evaluate`](crate::Program::evaluate).
#[derive(Debug)]
pub struct Budget {
    pub(crate) left: u64,
    pub(crate) per_call: u64,
    pub(crate) work: usize,
    pub(crate) made: usize,
}

impl Budget {
    /// A budget of `all` for all evaluations and of `per_call` for each evaluation.
    pub fn new(all: u64, per_call: u64) -> Self {
        Self { left: all, per_call, work: WORK, made: MADE }
    }

    /// Divides the limits of work and memory that costs do not count by `parts`.
    #[must_use]
    pub fn with_part_of_work(mut self, parts: usize) -> Self {
        self.work /= parts.max(1);
        self.made /= parts.max(1);
        self
    }

    /// The budget that is left.
    pub fn left(&self) -> u64 {
        self.left
    }
}

/// The cost of `units` at a price per unit.
pub(crate) fn at_price(units: u64, price: f64) -> u64 {
    (units as f64 * price).ceil() as u64
}

fn size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(value)) => size(value),
        value => value.size().unwrap_or(1),
    }
}

/// The cost of a call.
pub(crate) fn of_call(
    function: &str,
    overload: &str,
    arguments: &[Value<'_>],
    result: Option<&Value<'_>>,
    meter: &mut Meter,
) -> Result<u64, Failure> {
    // Counting the characters of an argument is work.
    arguments.iter().try_for_each(|argument| meter.look_at(argument))?;
    if let Some(cost) = of_lists(overload, arguments) {
        return Ok(cost);
    }
    if ["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"].contains(&function) {
        return arguments.first().map_or(Ok(0), |first| of_traversal(first, meter));
    }
    let cost = of_extension(function, overload, arguments, result);
    Ok(cost.unwrap_or_else(|| of_standard(overload, arguments)))
}

/// The cost of functions of lists and sets that create lists or compare all items with all others.
fn of_lists(overload: &str, arguments: &[Value<'_>]) -> Option<u64> {
    let size = |at: usize| arguments.get(at).and_then(Value::size).unwrap_or(1);
    let whole = |at: usize| match arguments.get(at) {
        Some(Value::Int(number)) => u64::try_from(*number).unwrap_or_default(),
        _ => 0,
    };
    let making = |items: u64, factor: f64| {
        1_u64.saturating_add(LIST).saturating_add((items as f64 * factor) as u64)
    };
    let comparing = |at: usize| {
        let first = match arguments.get(at) {
            Some(Value::List(list)) => list.get(0),
            _ => None,
        };
        let is_text = matches!(first, Some(Ok(Value::String(_) | Value::Bytes(_))));
        let factor = if is_text { 2.0 + PER_CHARACTER } else { 2.0 };
        making(size(at).saturating_mul(size(at)), factor)
    };
    Some(match overload {
        // A call that fails counts as one item.
        "list_slice" if whole(2) > size(0) || whole(1) > whole(2) => making(1, 1.0),
        "list_slice" => making(whole(2).saturating_sub(whole(1)), 1.0),
        "list_flatten" => making(size(0), 1.0),
        "list_flatten_int" => making(size(0), whole(1) as f64),
        "lists_range" => making(whole(0), 1.0),
        "list_reverse" => making(size(0), 1.0),
        "list_distinct" => comparing(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            size(0).saturating_mul(size(1)).saturating_add(1)
        }
        "list_sets_equivalent_list" => {
            size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(1)
        }
        other if other.starts_with("list_") && other.ends_with("_sort") => comparing(0),
        other if other.ends_with("_sortByAssociatedKeys") => comparing(1),
        _ => return None,
    })
}

fn of_standard(overload: &str, arguments: &[Value<'_>]) -> u64 {
    let size = |at: usize| arguments.get(at).map_or(1, size);
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => at_price(size(0), PER_CHARACTER),
        "in_list" => size(1),
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => at_price(size(0).min(size(1)), PER_CHARACTER),
        "add_string" | "add_bytes" => at_price(size(0) + size(1), PER_CHARACTER),
        "matches_string" => of_pattern(size(0), size(1)),
        "contains_string" => at_price(size(0), PER_CHARACTER) * at_price(size(1), PER_CHARACTER),
        _ => 1,
    }
}

fn of_pattern(text: u64, pattern: u64) -> u64 {
    at_price(text + 1, PER_CHARACTER) * at_price(pattern, PER_PATTERN_CHARACTER)
}

/// Whether a function of Kubernetes has the same cost for all arguments.
pub(crate) fn costs_one(function: &str) -> bool {
    matches!(
        function,
        "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
    )
}

fn of_extension(
    function: &str,
    overload: &str,
    arguments: &[Value<'_>],
    result: Option<&Value<'_>>,
) -> Option<u64> {
    let plain_size = |value: &Value<'_>| match value {
        Value::Extension(of) => of.size(),
        value => value.size().unwrap_or(1),
    };
    let size = |at: usize| arguments.get(at).map_or(1, plain_size);
    let characters = |at: usize| at_price(size(at), PER_CHARACTER);
    Some(match function {
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => characters(0),
        "replace" | "split" => at_price(size(0), 2.0 * PER_CHARACTER),
        "join" => at_price(result.map_or(1, plain_size), 2.0 * PER_CHARACTER),
        "find" | "findAll" => of_pattern(size(0), size(1)),
        "cidr" | "isIP" | "isCIDR" => characters(0),
        "ip" if overload == "cidr_ip" => 1,
        "ip" => characters(0),
        "ip.isCanonical" => at_price(size(0), 2.0 * PER_CHARACTER),
        "containsIP" => {
            let own = at_price(2 * size(0), PER_CHARACTER);
            own + if overload == "cidr_contains_ip_string" { characters(1) } else { 0 }
        }
        "containsCIDR" => {
            let own = at_price(2 * size(0), PER_CHARACTER) + characters(0) + 1;
            own + if overload == "cidr_contains_cidr_string" { characters(1) } else { 0 }
        }
        "quantity" | "isQuantity" | "semver" | "isSemver" => characters(0),
        "validate" => match arguments.first() {
            Some(Value::Extension(of)) => of_pattern(size(1), of.longest_pattern()?),
            _ => return None,
        },
        name if costs_one(name) => 1,
        "_==_" if matches!(arguments.first(), Some(Value::Extension(_))) => 1,
        _ => return None,
    })
}

/// The cost of visiting all of a value. Shared parts count each time.
fn of_traversal(value: &Value<'_>, meter: &mut Meter) -> Result<u64, Failure> {
    meter.work(1)?;
    Ok(match value {
        Value::String(text) => (text.as_str().len() as f64 * PER_CHARACTER) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHARACTER) as u64,
        Value::List(list) => {
            let mut sum = 0_u64;
            for item in list.iter().flatten() {
                sum = sum.saturating_add(of_traversal(&item, meter)?);
            }
            sum
        }
        Value::Map(map) => {
            let mut sum = 0_u64;
            for key in &map.keys() {
                let value = match map.find(key) {
                    Ok(Some(value)) => of_traversal(&value, meter)?,
                    _ => 1,
                };
                sum = sum.saturating_add(of_traversal(key, meter)?).saturating_add(value);
            }
            sum
        }
        _ => 1,
    })
}
