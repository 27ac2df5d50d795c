//! The type checker: finds the types of all parts of an expression, and reports errors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Call, Comprehension, Element, Entry, Expr, Id, Kind, Literal, operators};
use crate::composition::Composition;
use crate::functions::{overloads, type_called};
use crate::parser::Parsed;
use crate::parser::RESERVED;
use crate::source::{Faults, Source};
use crate::types::{Known, Type, most_general};

/// The declaration that an expression refers to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reference {
    /// A variable.
    Variable(Arc<str>),
    /// The name of a type, used as a value.
    Type(Arc<str>),
    /// The overloads that a call can have.
    Overloads(Vec<&'static str>),
}

/// An expression with the types of all parts.
#[derive(Debug)]
pub(crate) struct Checked {
    pub root: Expr,
    /// Types, by the numbers of expressions.
    pub types: Vec<Type>,
    pub references: Vec<Option<Reference>>,
    /// The indexes of the named expressions that are used.
    pub named: Vec<usize>,
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        &self.types[expr.id]
    }

    pub(crate) fn overloads(&self, id: Id) -> &[&'static str] {
        match &self.references[id] {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }
}

/// Finds the types of all parts. Errors are reported to `faults`.
pub(crate) fn check(
    parsed: Parsed,
    source: &Source,
    variables: &[(&str, Type)],
    composition: Option<&Composition>,
    faults: &mut Faults,
) -> Checked {
    let Parsed { mut root, offsets } = parsed;
    let global = variables.iter().map(|(name, of)| (Arc::from(*name), of.clone())).collect();
    let count = offsets.len();
    let mut checker = Checker {
        source,
        offsets,
        faults,
        scopes: vec![global],
        known: Known::default(),
        types: vec![Type::Dyn; count],
        references: vec![None; count],
        composition,
        named: Vec::new(),
    };
    checker.check(&mut root);
    let Checker { types, references, known, named, .. } = checker;
    let types = types.iter().map(|of| known.resolve(of, true)).collect();
    Checked { root, types, references, named }
}

struct Checker<'a> {
    source: &'a Source,
    offsets: Vec<usize>,
    faults: &'a mut Faults,
    /// The variables of each loop, innermost loop last.
    scopes: Vec<HashMap<Arc<str>, Type>>,
    known: Known,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
    composition: Option<&'a Composition>,
    named: Vec<usize>,
}

impl Checker<'_> {
    fn complain(&mut self, at: Id, message: String) {
        self.faults.push(self.source.place(self.offsets[at]), message);
    }

    fn mismatch(&mut self, at: Id, expected: &Type, found: &Type) {
        self.complain(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, at: Id, name: &str) {
        self.complain(at, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn variable(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    fn set(&mut self, at: Id, of: Type) {
        self.types[at] = of;
    }

    /// Looks up a variable, or a type by its name.
    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(of) = self.variable(name) {
            return Some((of.clone(), Reference::Variable(name.into())));
        }
        type_called(name).map(|of| (of, Reference::Type(name.into())))
    }

    fn check(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            Kind::Unspecified => self.set(id, Type::Error),
            Kind::Literal(literal) => {
                let of = type_of_literal(literal);
                self.set(id, of);
            }
            Kind::Ident(name) => match self.lookup(name) {
                Some((of, reference)) => {
                    self.set(id, of);
                    self.references[id] = Some(reference);
                }
                None => {
                    let name = Arc::clone(name);
                    self.set(id, Type::Error);
                    self.undeclared(id, &name);
                }
            },
            Kind::Select { .. } => self.check_select(expr),
            Kind::Call(_) => self.check_call(expr),
            Kind::List(elements) => {
                let of = self.check_list(elements);
                self.set(id, Type::list(of));
            }
            Kind::Map(entries) => {
                let of = self.check_map(entries);
                self.set(id, of);
            }
            Kind::Struct { name, fields } => {
                let name = Arc::clone(name);
                self.set(id, Type::Error);
                let place = self.source.place(self.offsets[id]);
                let message = match type_called(&name) {
                    None => format!("undeclared reference to '{name}' (in container '')"),
                    Some(_) => format!("'{name}' is not a message type"),
                };
                self.faults.push(place, message);
                fields.iter_mut().for_each(|(_, _, value)| self.check(value));
            }
            Kind::Comprehension(all) => {
                let of = self.check_comprehension(all);
                self.set(id, of);
            }
        }
    }

    fn check_select(&mut self, expr: &mut Expr) {
        let id = expr.id;
        // A name with dots can be the name of a type.
        if let Some(name) = qualified_name(expr)
            && let Some((of, reference)) = self.lookup(&name)
        {
            self.set(id, of);
            self.references[id] = Some(reference);
            expr.kind = Kind::Ident(name.into());
            return;
        }
        let Kind::Select { operand, field, is_test } = &mut expr.kind else { return };
        let (field, is_test) = (Arc::clone(field), *is_test);
        let of = self.check_field(id, operand, &field, false);
        let of = if is_test { Type::Bool } else { of };
        let of = self.known.resolve(&of, false);
        self.set(id, of);
    }

    fn check_field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let of_operand = self.known.resolve(&self.types[operand.id].clone(), false);
        let target = of_operand.within_optional().unwrap_or(&of_operand).clone();
        let is_optional = of_operand.within_optional().is_some();
        let result = match &target {
            Type::Map(of) => of.1.clone(),
            Type::Object(object) if object.declared.is_none() => {
                match self.composed(&object.name, field) {
                    Some(of) => of,
                    None => {
                        self.complain(id, format!("undefined field '{field}'"));
                        Type::Error
                    }
                }
            }
            Type::Object(object) => {
                let member = object.declared.as_ref().and_then(|declared| declared.member(field));
                match member {
                    Some((_, of)) => of.of_type(&format!("{}.{}", object.name, written(field))),
                    None => {
                        self.complain(id, format!("undefined field '{field}'"));
                        Type::Error
                    }
                }
            }
            Type::Variable(_) => {
                self.known.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.complain(id, message);
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    /// The type of a named expression, which is a field of the type with this name.
    fn composed(&mut self, type_name: &str, field: &str) -> Option<Type> {
        let composition = self.composition.filter(|all| *all.type_name == *type_name)?;
        self.named.extend(composition.find(field));
        composition.type_of(field).cloned()
    }

    fn check_call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Call(call) = &mut expr.kind else { return };
        if *call.function == *operators::OPTIONAL_SELECT {
            self.check_optional_select(id, call);
            return;
        }
        for argument in &mut call.arguments {
            self.check(argument);
        }
        let Some(target) = &mut call.target else {
            let name: Arc<str> = call.function.strip_prefix('.').unwrap_or(&call.function).into();
            call.function = Arc::clone(&name);
            if overloads(&name).is_none() {
                self.undeclared(id, &name);
                self.set(id, Type::Error);
                return;
            }
            self.resolve(id, call);
            return;
        };
        // `a.b(c)` is a call of the function `a.b`, if there is one, or of the method `b`.
        if let Some(name) = qualified_name(target) {
            let name = format!("{name}.{}", call.function);
            if overloads(&name).is_some() {
                call.target = None;
                call.function = name.into();
                self.resolve(id, call);
                return;
            }
        }
        self.check(target);
        if overloads(&call.function).is_none() {
            let name = Arc::clone(&call.function);
            self.set(id, Type::Error);
            self.undeclared(id, &name);
            return;
        }
        self.resolve(id, call);
    }

    fn check_optional_select(&mut self, id: Id, call: &mut Call) {
        let [operand, field] = &mut call.arguments[..] else { return };
        let Kind::Literal(Literal::String(name)) = &field.kind else { return };
        let name = Arc::clone(name);
        let of = self.check_field(id, operand, &name, true);
        self.set(field.id, Type::String);
        let of = self.known.resolve(&of, false);
        self.set(id, of);
        self.references[id] = Some(Reference::Overloads(vec!["select_optional_field"]));
    }

    /// Finds the overloads that fit a call, and the type of its result.
    fn resolve(&mut self, id: Id, call: &Call) {
        let given = call.target.iter().chain(&call.arguments);
        let mut types: Vec<Type> = given.map(|argument| self.types[argument.id].clone()).collect();
        let (mut result, mut fitting): (Option<Type>, Vec<&'static str>) = (None, Vec::new());
        for overload in overloads(&call.function).unwrap_or_default() {
            if overload.is_method != call.target.is_some() {
                continue;
            }
            if [operators::AND, operators::OR].contains(&&*call.function) {
                self.resolve_logical(id, call, &types, overload.id);
                return;
            }
            let fresh: HashMap<Arc<str>, Type> = overload
                .parameters
                .iter()
                .map(|name| (Arc::clone(name), self.known.variable()))
                .collect();
            let arguments: Vec<Type> =
                overload.arguments.iter().map(|argument| argument.with(&fresh)).collect();
            if !self.known.all_fit(&types, &arguments) {
                continue;
            }
            fitting.push(overload.id);
            let of = self.known.resolve(&overload.result.with(&fresh), false);
            result = Some(match result {
                None => of,
                Some(dynamic @ (Type::Dyn | Type::Any)) => dynamic,
                Some(known) if of.is_same(&known) => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(of) => {
                self.set(id, of);
                self.references[id] = Some(Reference::Overloads(fitting));
            }
            None => {
                types.iter_mut().for_each(|of| *of = self.known.resolve(of, true));
                let names: Vec<String> = types.iter().map(ToString::to_string).collect();
                let signature = match call.target {
                    Some(_) => format!("{}.({})", names[0], names[1..].join(", ")),
                    None => format!("({})", names.join(", ")),
                };
                let function = &call.function;
                let message =
                    format!("found no matching overload for '{function}' applied to '{signature}'");
                self.complain(id, message);
                self.set(id, Type::Error);
            }
        }
    }

    fn resolve_logical(&mut self, id: Id, call: &Call, types: &[Type], overload: &'static str) {
        let mut all_fit = true;
        for (argument, of) in call.arguments.iter().zip(types) {
            if !self.known.fits(of, &Type::Bool) {
                self.mismatch(argument.id, &Type::Bool, of);
                all_fit = false;
            }
        }
        if all_fit {
            self.references[id] = Some(Reference::Overloads(vec![overload]));
        }
        self.set(id, if all_fit { Type::Bool } else { Type::Error });
    }

    /// The type of the value in an entry. If the entry is optional, the type inside of the optional value.
    fn unwrapped(&mut self, value: &Expr, is_optional: bool) -> Type {
        let of = self.types[value.id].clone();
        if !is_optional {
            return of;
        }
        match of.within_optional() {
            Some(inner) => inner.clone(),
            None => {
                if !matches!(of, Type::Dyn | Type::Any) {
                    self.mismatch(value.id, &Type::optional(of.clone()), &of);
                }
                of
            }
        }
    }

    fn check_list(&mut self, elements: &mut [Element]) -> Type {
        let mut joined = None;
        for Element { value, is_optional } in elements {
            self.check(value);
            let of = self.unwrapped(value, *is_optional);
            joined = Some(self.join(joined, of));
        }
        joined.unwrap_or_else(|| self.known.variable())
    }

    fn check_map(&mut self, entries: &mut [Entry]) -> Type {
        let mut joined: Option<(Type, Type)> = None;
        for Entry { key, value, is_optional } in entries {
            let (of_keys, of_values) = joined.map_or((None, None), |(a, b)| (Some(a), Some(b)));
            self.check(key);
            let of_key = self.join(of_keys, self.types[key.id].clone());
            self.check(value);
            let of_value = self.unwrapped(value, *is_optional);
            joined = Some((of_key, self.join(of_values, of_value)));
        }
        let (key, value) = joined.unwrap_or_else(|| (self.known.variable(), self.known.variable()));
        Type::map(key, value)
    }

    /// The joined type of items, one of which has the type `of`. Mixed types are reported later.
    fn join(&mut self, known: Option<Type>, of: Type) -> Type {
        let Some(known) = known else { return of };
        match self.known.fits(&known, &of) {
            true => most_general(&known, &of),
            false => Type::Dyn,
        }
    }

    fn check_comprehension(&mut self, all: &mut Comprehension) -> Type {
        self.check(&mut all.range);
        self.check(&mut all.initial);
        let range = self.known.resolve(&self.types[all.range.id].clone(), false);
        let accumulator = self.types[all.initial.id].clone();
        let outer = HashMap::from([(Arc::clone(&all.accumulator), accumulator.clone())]);
        self.scopes.push(outer);
        let has_two = all.second_variable.is_some();
        let (first, second) = match &range {
            Type::List(of) if has_two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.known.fits(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(all.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let mut inner = HashMap::from([(Arc::clone(&all.variable), first)]);
        if let Some(name) = &all.second_variable {
            inner.insert(Arc::clone(name), second);
        }
        self.scopes.push(inner);
        self.check(&mut all.condition);
        self.demand(all.condition.id, &Type::Bool);
        self.check(&mut all.step);
        self.demand(all.step.id, &accumulator);
        self.scopes.pop();
        self.check(&mut all.result);
        self.scopes.pop();
        self.known.resolve(&self.types[all.result.id].clone(), false)
    }

    fn demand(&mut self, at: Id, expected: &Type) {
        let found = self.types[at].clone();
        if !self.known.fits(expected, &found) {
            self.mismatch(at, expected, &found);
        }
    }
}

fn type_of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The name that consists of names and dots, such as `a.b.c`.
fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.to_string()),
        Kind::Select { operand, field, is_test: false } => {
            Some(format!("{}.{field}", qualified_name(operand)?))
        }
        _ => None,
    }
}

/// The form of a field in names of types.
fn written(field: &str) -> Cow<'_, str> {
    match RESERVED.contains(&field) {
        true => format!("__{field}__").into(),
        false => field.into(),
    }
}
