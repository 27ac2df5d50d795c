//! Evaluates plans and counts their cost.

use std::sync::Arc;

use crate::ast::operators;
use crate::composition::Activation;
use crate::cost::{self, Meter};
use crate::functions::takes;
use crate::library::{Invocation, is_conversion, is_standard};
use crate::operate::{at, check_index, equal, held, made_native, missing};
use crate::plan::{Access, Attribute, Base, Loop, Plan, PlannedCall, Qualifier, Step};
use crate::value::{Entries, Failure, Items, List, Map, Outcome, Value};

/// The state of an evaluation: the values of variables, and the meter.
pub(crate) struct Evaluation<'m, 'v> {
    /// The value of each variable, or its error.
    pub slots: Vec<Option<Outcome<'v>>>,
    pub meter: &'m mut Meter,
    /// The values for named expressions, if the environment has some.
    pub activation: Option<&'m mut Activation<'v>>,
}

/// Go's error of a function that computes its cost from an argument that is not a list.
const NO_LIST: &str =
    "internal error: interface conversion: *types.Err is not traits.Lister: missing method Add";

/// Calls a function whose arguments are constants.
pub(crate) fn call_constant(
    call: &PlannedCall,
    meter: &mut Meter,
) -> Result<Value<'static>, String> {
    let mut evaluation = Evaluation { slots: Vec::new(), meter, activation: None };
    evaluation.call(call).map_err(|failure| failure.to_string())
}

impl<'v> Evaluation<'_, 'v> {
    pub(crate) fn evaluate(&mut self, plan: &Plan) -> Outcome<'v> {
        match plan {
            Plan::Constant(value) => Ok(value.clone()),
            Plan::Attribute(attribute) => self.attribute(attribute, true),
            Plan::Conditional(all) => {
                let (condition, yes, no) = &**all;
                let value = match self.evaluate(condition)? {
                    Value::Bool(true) => self.branch(yes)?,
                    Value::Bool(false) => self.branch(no)?,
                    _ => return Err(Failure::no_such_overload()),
                };
                self.qualify(value, &[])
            }
            Plan::And(terms) => self.logical(terms, false),
            Plan::Or(terms) => self.logical(terms, true),
            Plan::OptionalOr { left, right, is_value } => match self.evaluate(left)? {
                Value::Optional(Some(value)) if *is_value => held(&value),
                Value::Optional(None) => self.evaluate(right),
                // Go accepts values that are not optional here.
                other => Ok(other),
            },
            Plan::Equal { both, is_negated } => {
                let (left, right) = self.both(&both.0, &both.1)?;
                let (function, overload) = match is_negated {
                    false => (operators::EQUALS, "equals"),
                    true => (operators::NOT_EQUALS, "not_equals"),
                };
                let arguments = [left, right];
                let cost = cost::of_call(function, overload, &arguments, None, self.meter)?;
                self.meter.spend(cost)?;
                let are_equal = equal(&arguments[0], &arguments[1], self.meter);
                match are_equal {
                    Ok(are_equal) => Ok(Value::Bool(are_equal != *is_negated)),
                    // Values that cannot be compared are not equal.
                    Err(Failure::Error(_)) if *is_negated => Ok(Value::Bool(true)),
                    Err(why) => Err(why),
                }
            }
            Plan::Among { value, keys } => {
                let value = self.evaluate(value)?;
                self.meter.look_at(&value)?;
                let key = value.key();
                Ok(Value::Bool(key.is_some_and(|key| keys.binary_search(&key).is_ok())))
            }
            Plan::Call(call) => self.call(call),
            Plan::List(items) => self.list(items),
            Plan::Map(entries) => self.map(entries),
            Plan::Loop(all) if all.is_bind => {
                self.slots[all.accumulator] = None;
                self.evaluate(&all.range)?;
                self.evaluate(&all.result)
            }
            Plan::Loop(all) => self.fold(all),
            Plan::Append { slot, items, cost } => self.append(*slot, items, *cost),
            Plan::Insert { slot, key, value } => self.insert(*slot, key, value),
        }
    }

    /// Evaluates both operands: the second is also evaluated if the first fails.
    fn both(&mut self, left: &Plan, right: &Plan) -> Result<(Value<'v>, Value<'v>), Failure> {
        match (self.evaluate(left), self.evaluate(right)) {
            (Err(why @ (Failure::Limit | Failure::Broken(_))), _)
            | (_, Err(why @ (Failure::Limit | Failure::Broken(_)))) => Err(why),
            (Ok(left), Ok(right)) => Ok((left, right)),
            (Err(why), _) | (_, Err(why)) => {
                self.meter.spend(1)?;
                Err(why)
            }
        }
    }

    /// A branch of a conditional. A variable that is a branch has no cost.
    fn branch(&mut self, plan: &Plan) -> Outcome<'v> {
        match plan {
            Plan::Attribute(attribute) => self.attribute(attribute, false),
            other => self.evaluate(other),
        }
    }

    fn logical(&mut self, terms: &[Plan], decisive: bool) -> Outcome<'v> {
        let mut fault = None;
        for term in terms {
            match self.evaluate(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => fault = fault.or(Some(Failure::no_such_overload())),
                Err(why @ (Failure::Limit | Failure::Broken(_))) => return Err(why),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn attribute(&mut self, attribute: &Attribute, counts: bool) -> Outcome<'v> {
        let is_conditional = matches!(attribute.base, Base::Plan(Plan::Conditional(_)));
        let base = match &attribute.base {
            Base::Slot(slot) => self.slots.get(*slot).cloned().flatten(),
            Base::Bound(slot, initial) => match self.slots.get(*slot).cloned().flatten() {
                Some(value) => Some(value),
                None => {
                    let value = self.evaluate(initial);
                    self.slots[*slot] = Some(value.clone());
                    Some(value)
                }
            },
            Base::Plan(plan) => Some(self.evaluate(plan)),
            Base::Named(index, access) => {
                self.meter.spend(1)?;
                let value = match &mut self.activation {
                    Some(activation) => activation.named(*index, self.meter),
                    None => Err(Failure::new("no such attribute")),
                };
                match access {
                    Access::Test => return value.map(|_| Value::Bool(true)),
                    Access::Optional => Some(value.map(Value::optional)),
                    Access::Value => Some(value),
                }
            }
        };
        let base = base.unwrap_or_else(|| Err(Failure::new("no such attribute")));
        let result = base.and_then(|base| self.qualify(base, &attribute.qualifiers));
        let is_test = attribute.qualifiers.last().is_some_and(Qualifier::is_test);
        if counts && !is_conditional && !is_test {
            self.meter.spend(1)?;
        }
        result
    }

    /// Applies the qualifiers in order. After an optional value or an optional qualifier, the result is optional.
    fn qualify(&mut self, base: Value<'v>, qualifiers: &[Qualifier]) -> Outcome<'v> {
        let (mut value, mut is_optional) = match base {
            Value::Optional(None) if qualifiers.is_empty() => return Ok(base),
            Value::Optional(None) => {
                let is_test = qualifiers.last().is_some_and(Qualifier::is_test);
                return Ok(if is_test { Value::Bool(false) } else { Value::Optional(None) });
            }
            Value::Optional(Some(value)) if qualifiers.is_empty() => {
                return Ok(Value::optional(made_native(&value)));
            }
            Value::Optional(Some(value)) => (held(&made_native(&value))?, true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            is_optional |= qualifier.is_optional;
            let computed;
            let index = match &qualifier.step {
                Step::Constant(index) | Step::Test(index) => index,
                Step::Computed(plan) => {
                    computed = self.branch(plan)?;
                    check_index(&computed).map_err(Failure::new)?;
                    &computed
                }
            };
            self.meter.look_at(index)?;
            let found = at(&value, index)?;
            if let Some(found @ Value::Bytes(_)) = &found {
                // Bytes are decoded from a string.
                self.meter.look_at(found)?;
            }
            if qualifier.is_test() {
                self.meter.spend(1)?;
                return Ok(Value::Bool(found.is_some()));
            }
            match found {
                Some(found) => {
                    self.meter.spend(1)?;
                    value = found;
                }
                None if is_optional => return Ok(Value::Optional(None)),
                None => {
                    self.meter.spend(1)?;
                    return Err(missing(&value, index));
                }
            }
        }
        Ok(if is_optional { Value::optional(value) } else { value })
    }

    pub(crate) fn call(&mut self, call: &PlannedCall) -> Outcome<'v> {
        // An error in the condition does not end a loop.
        if *call.function == *operators::NOT_STRICTLY_FALSE {
            let value = call.arguments.first().map(|argument| self.evaluate(argument));
            self.meter.spend(1)?;
            return match value {
                Some(Err(why @ (Failure::Limit | Failure::Broken(_)))) => Err(why),
                Some(Ok(Value::Bool(flag))) => Ok(Value::Bool(flag)),
                _ => Ok(Value::Bool(true)),
            };
        }
        let arguments: Vec<Value<'v>> = match &call.arguments[..] {
            [left, right] => {
                let (left, right) = self.both(left, right)?;
                vec![left, right]
            }
            [only] => match self.evaluate(only) {
                Ok(value) => vec![value],
                Err(Failure::Error(_)) if ["distinct", "sort"].contains(&&*call.function) => {
                    return Err(Failure::Broken(NO_LIST));
                }
                Err(why) => {
                    self.meter.spend(1)?;
                    return Err(why);
                }
            },
            all => all.iter().map(|one| self.evaluate(one)).collect::<Result<_, _>>()?,
        };
        let mut invocation = Invocation {
            meter: self.meter,
            pattern: call.pattern.as_ref(),
            overload: call.overload,
        };
        let is_join = *call.function == *"join";
        if !is_join {
            // The cost is counted before the call, so that a call beyond the limit is not executed.
            let (function, overload) = (&*call.function, call.overload);
            let cost = cost::of_call(function, overload, &arguments, None, invocation.meter)?;
            invocation.meter.spend(cost)?;
        }
        let result = (call.native)(&mut invocation, &arguments).map_err(|why| match why {
            // Go's error contains the name of the function only for `size`, among the functions of the language.
            Failure::Error(why) if why == "no such overload" && *call.function == *"size" => {
                Failure::new("no such overload: size")
            }
            // Errors of library functions and of conversions contain the types of the arguments, if these do not fit.
            Failure::Error(why)
                if is_conversion(&call.function)
                    || (why == "no such overload" && !is_standard(&call.function)) =>
            {
                let types: Vec<&str> = arguments.iter().map(Value::type_name).collect();
                match takes(&call.function, &types) {
                    true => Failure::Error(why),
                    false => Failure::new(format!(
                        "no such overload: {}({})",
                        call.function,
                        types.join(", ")
                    )),
                }
            }
            why => why,
        });
        if is_join {
            let result = result.as_ref().ok();
            let (function, overload) = (&*call.function, call.overload);
            let cost = cost::of_call(function, overload, &arguments, result, self.meter)?;
            self.meter.spend(cost)?;
        }
        result
    }

    fn list(&mut self, items: &[(Plan, bool)]) -> Outcome<'v> {
        let values = self.items(items);
        self.meter.spend(cost::LIST)?;
        values.map(Value::list)
    }

    fn items(&mut self, items: &[(Plan, bool)]) -> Result<Vec<Value<'v>>, Failure> {
        let mut values = Vec::with_capacity(items.len());
        for (plan, is_optional) in items {
            match (self.evaluate(plan)?, is_optional) {
                (value, false) => values.push(value),
                (Value::Optional(Some(value)), true) => values.push((*value).clone()),
                (Value::Optional(None), true) => {}
                (other, true) => {
                    let message = format!(
                        "cannot initialize optional list element from non-optional value {other}"
                    );
                    return Err(Failure::new(message));
                }
            }
        }
        Ok(values)
    }

    fn map(&mut self, entries: &[(Plan, Plan, bool)]) -> Outcome<'v> {
        let values = self.entries(entries);
        self.meter.spend(cost::MAP)?;
        values.map(|values| Value::Map(Map::own(values)))
    }

    fn entries(&mut self, entries: &[(Plan, Plan, bool)]) -> Result<Entries<'v>, Failure> {
        let mut values = Entries::new();
        for (key, value, is_optional) in entries {
            let given = self.evaluate(key)?;
            let value = self.evaluate(value)?;
            self.meter.look_at(&given)?;
            let Some(key) = given.key() else {
                let message = format!("unsupported key type: {}", given.type_name());
                return Err(Failure::new(message));
            };
            match (value, is_optional) {
                (value, false) => {
                    values.insert(key, (given, value));
                }
                (Value::Optional(Some(value)), true) => {
                    values.insert(key, (given, (*value).clone()));
                }
                (Value::Optional(None), true) => {
                    values.remove(&key);
                }
                (other, true) => {
                    let message = format!(
                        "cannot initialize optional entry '{given}' from non-optional value {other}"
                    );
                    return Err(Failure::new(message));
                }
            }
        }
        Ok(values)
    }

    fn fold(&mut self, all: &Loop) -> Outcome<'v> {
        let range = self.evaluate(&all.range)?;
        self.set(all.accumulator, &all.initial)?;
        match &range {
            Value::List(list) => {
                for place in 0..list.len() {
                    let item = list.get(place).unwrap_or(Ok(Value::Null));
                    if let Ok(item @ Value::Bytes(_)) = &item {
                        self.meter.look_at(item)?;
                    }
                    let index = Ok(Value::Int(place as i64));
                    let (first, second) = match all.has_two {
                        true => (index, Some(item)),
                        false => (item, None),
                    };
                    if !self.turn(all, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let value = all.has_two.then(|| {
                        let value = map.find(&key)?;
                        value.ok_or_else(|| Failure::no_such_key(&key))
                    });
                    if !self.turn(all, Ok(key), value)? {
                        break;
                    }
                }
            }
            other => {
                let of = other.go_type();
                return Err(Failure::new(match all.has_two {
                    true => format!("unsupported comprehension range type: {of}"),
                    false => format!("got '{of}', expected iterable type"),
                }));
            }
        }
        self.evaluate(&all.result)
    }

    /// Evaluates a plan and stores its result, which can be an error.
    fn set(&mut self, slot: usize, plan: &Plan) -> Result<(), Failure> {
        match self.evaluate(plan) {
            Err(why @ (Failure::Limit | Failure::Broken(_))) => Err(why),
            outcome => {
                self.slots[slot] = Some(outcome);
                Ok(())
            }
        }
    }

    /// Runs one iteration of a loop and returns whether the loop continues. An error of the step becomes the
    /// accumulator of the next iteration.
    fn turn(
        &mut self,
        all: &Loop,
        first: Outcome<'v>,
        second: Option<Outcome<'v>>,
    ) -> Result<bool, Failure> {
        self.meter.work(1)?;
        let [slot, second_slot] = all.slots;
        self.slots[slot] = Some(first);
        if let Some(second) = second {
            self.slots[second_slot] = Some(second);
        }
        match self.evaluate(&all.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(why @ (Failure::Limit | Failure::Broken(_))) => return Err(why),
            _ => {}
        }
        self.set(all.accumulator, &all.step)?;
        Ok(true)
    }

    fn append(&mut self, slot: usize, items: &[Plan], list_cost: u64) -> Outcome<'v> {
        self.meter.spend(1)?;
        let values: Result<Vec<Value<'v>>, Failure> =
            items.iter().map(|item| self.evaluate(item)).collect();
        self.meter.spend(list_cost + 1)?;
        match self.slots[slot].take() {
            Some(Ok(Value::List(List { items: Items::Own(mut own), equality }))) => {
                Arc::make_mut(&mut own).extend(values?);
                Ok(Value::List(List { items: Items::Own(own), equality }))
            }
            Some(Err(why)) => Err(why),
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn insert(&mut self, slot: usize, key: &Plan, value: &Plan) -> Outcome<'v> {
        self.meter.spend(1)?;
        // An earlier error takes precedence.
        if let Some(Err(why)) = &self.slots[slot] {
            return Err(why.clone());
        }
        let given = self.evaluate(key)?;
        let value = self.evaluate(value)?;
        self.meter.spend(1)?;
        let Some(key) = given.key() else {
            return Err(Failure::new(format!("unsupported key type: {}", given.type_name())));
        };
        match self.slots[slot].take() {
            Some(Ok(Value::Map(Map::Own(mut own)))) => {
                if own.contains_key(&key) {
                    return Err(Failure::new(format!("insert failed: key {given} already exists")));
                }
                Arc::make_mut(&mut own).insert(key, (given, value));
                Ok(Value::Map(Map::Own(own)))
            }
            _ => Err(Failure::no_such_overload()),
        }
    }
}

impl Qualifier {
    fn is_test(&self) -> bool {
        matches!(self.step, Step::Test(_))
    }
}
