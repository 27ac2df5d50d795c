//! Checks of literals: times, durations, patterns, templates, and the types of list items and map entries, which must
//! be the same.

use crate::ast::{Call, Element, Expr, Id, Kind, Literal};
use crate::checker::Checked;
use crate::convert;
use crate::library;
use crate::pattern::Pattern;
use crate::source::{Faults, Source};
use crate::types::Type;
use crate::value::Value;

/// Reports invalid literals.
pub(crate) fn check(checked: &Checked, source: &Source, offsets: &[usize], faults: &mut Faults) {
    let mut found = Vec::new();
    let literals = Literals { checked };
    literals.check(&checked.root, false, &mut found);
    for (at, message) in found {
        faults.push(source.place(offsets[at]), message);
    }
}

struct Literals<'a> {
    checked: &'a Checked,
}

impl Literals<'_> {
    /// Checks an expression and its children. Lists and maps in the arguments of `format` may have mixed types.
    fn check(&self, expr: &Expr, may_be_mixed: bool, found: &mut Vec<(Id, String)>) {
        let mut may_be_mixed = may_be_mixed;
        match &expr.kind {
            Kind::Call(call) => {
                may_be_mixed |= *call.function == *"format";
                found.extend(fault_of(call).or_else(|| self.fault_of_template(expr.id, call)));
            }
            Kind::List(elements) if !may_be_mixed => {
                let mut items = elements.iter().map(|element| self.of_element(element));
                let Some((_, first)) = items.next() else { return };
                // Only the first item of another type is reported.
                let other = items.find(|(_, of)| !of.is_same(&first));
                found.extend(other.map(|(at, of)| mismatch(at, &first, &of)));
            }
            Kind::Map(entries) if !may_be_mixed => {
                let mut entries = entries.iter().map(|entry| {
                    let key = (entry.key.id, self.checked.type_of(&entry.key).clone());
                    (key, self.unwrapped(&entry.value, entry.is_optional))
                });
                if let Some((first_key, first_value)) = entries.next() {
                    for (key, value) in entries {
                        let of_key = (!key.1.is_same(&first_key.1))
                            .then(|| mismatch(key.0, &first_key.1, &key.1));
                        let of_value = (!value.1.is_same(&first_value.1))
                            .then(|| mismatch(value.0, &first_value.1, &value.1));
                        found.extend(of_key.into_iter().chain(of_value));
                    }
                }
            }
            _ => {}
        }
        for child in expr.children() {
            self.check(child, may_be_mixed, found);
        }
    }

    fn of_element(&self, element: &Element) -> (Id, Type) {
        self.unwrapped(&element.value, element.is_optional)
    }

    fn unwrapped(&self, value: &Expr, is_optional: bool) -> (Id, Type) {
        let of = self.checked.type_of(value);
        let inner = of.within_optional().filter(|_| is_optional);
        (value.id, inner.unwrap_or(of).clone())
    }

    fn fault_of_template(&self, id: Id, call: &Call) -> Option<(Id, String)> {
        let ("format", Some(template), [arguments]) =
            (&*call.function, &call.target, &call.arguments[..])
        else {
            return None;
        };
        let Kind::Literal(Literal::String(text)) = &template.kind else { return None };
        let Kind::List(elements) = &arguments.kind else { return None };
        let clauses = library::clauses(text);
        for (at, verb) in clauses.iter().enumerate() {
            let Some(element) = elements.get(at) else {
                // The error of a template that ends after `%` does not depend on the arguments.
                let ends_there =
                    |why: &&String| *why == library::UNEXPECTED_END && text.ends_with('%');
                let ends = verb.as_ref().err().filter(ends_there).cloned();
                return Some((id, ends.unwrap_or_else(|| format!("index {at} out of range"))));
            };
            let verb = match verb {
                Ok(verb) => verb,
                Err(why) => return Some((id, why.clone())),
            };
            if let Some(part) = self.misfit(*verb, &element.value) {
                let of = self.checked.type_of(part);
                return Some((part.id, library::misfit(*verb, &of.run_time_name())));
            }
        }
        let (expected, given) = (clauses.len(), elements.len());
        (given > expected).then(|| {
            let message = format!(
                "too many arguments supplied to string.format (expected {expected}, got {given})"
            );
            (id, message)
        })
    }
}

impl Literals<'_> {
    /// The first part of an argument that does not fit a clause. Only lists and maps, when formatted as strings, have
    /// parts.
    fn misfit<'e>(&self, verb: char, argument: &'e Expr) -> Option<&'e Expr> {
        if !fits(verb, self.checked.type_of(argument)) {
            return Some(argument);
        }
        match &argument.kind {
            Kind::List(elements) => {
                elements.iter().find_map(|element| self.misfit(verb, &element.value))
            }
            Kind::Map(entries) => entries.iter().find_map(|entry| {
                self.misfit(verb, &entry.key).or_else(|| self.misfit(verb, &entry.value))
            }),
            _ => None,
        }
    }
}

fn mismatch(at: Id, expected: &Type, found: &Type) -> (Id, String) {
    (at, format!("expected type '{expected}' but found '{found}'"))
}

/// Whether a clause supports values of a type.
fn fits(verb: char, of: &Type) -> bool {
    match (verb, of) {
        (_, Type::Dyn | Type::Any) => true,
        ('s', Type::Object(_) | Type::Opaque(..)) => false,
        ('s', _) => true,
        ('d' | 'o' | 'b' | 'x' | 'X', Type::Int | Type::Uint) => true,
        ('f' | 'e', Type::Double | Type::String) => true,
        ('b', Type::Bool) | ('x' | 'X', Type::String | Type::Bytes) => true,
        _ => false,
    }
}

/// The error of a call with an invalid literal for a time, a duration or a pattern.
fn fault_of(call: &Call) -> Option<(Id, String)> {
    let (argument, is_valid) = match (&*call.function, &call.target, &call.arguments[..]) {
        ("duration", None, [argument]) => {
            let given = constant(argument)?;
            let is_text = given.as_str().is_some();
            (argument, is_text && convert::to_duration(&given).is_ok())
        }
        ("timestamp", None, [argument]) => {
            (argument, convert::to_timestamp(&constant(argument)?).is_ok())
        }
        // kube-apiserver checks the string instead of the pattern if the function is called without a receiver.
        ("matches", Some(_), [argument]) | ("matches", None, [argument, _]) => {
            let pattern = constant(argument)?;
            (argument, Pattern::compile(pattern.as_str()?).is_ok())
        }
        _ => return None,
    };
    (!is_valid).then(|| (argument.id, format!("invalid {} argument", call.function)))
}

fn constant(expr: &Expr) -> Option<Value<'static>> {
    match &expr.kind {
        Kind::Literal(Literal::String(text)) => Some(Value::text(text.clone())),
        Kind::Literal(Literal::Int(number)) => Some(Value::Int(*number)),
        _ => None,
    }
}
