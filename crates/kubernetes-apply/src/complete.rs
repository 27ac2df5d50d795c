//! Complete: adds required fields to a part of an object, so that code which decodes the part as its type can convert
//! it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::list::element_of;
use super::path_element::PathElement;
use super::place::{Place, Relation};
use crate::schema::{Additional, Type};

/// Copies the fields that the type requires from a whole object to a part of it. Types cannot decode null, so a null
/// that stands for a field with nothing left is removed.
pub fn complete(of: Type<'_>, whole: &Map<String, Value>, part: &mut Map<String, Value>) {
    part.retain(|name, value| !value.is_null() || whole.get(name).is_none_or(Value::is_null));
    let required = of.constraints().map_or(&[][..], |constraints| &constraints.required);
    for name in required {
        if let (None, Some(value)) = (part.get(name), whole.get(name)) {
            let demanded = match value {
                Value::Object(_) => Value::Object(Map::new()),
                other => other.clone(),
            };
            part.insert(name.clone(), demanded);
        }
    }
    for (name, part) in part {
        let below = match (of.member(name), &of.node().additional) {
            (Some((_, below)), _) => below,
            (None, Additional::Of(values)) => of.at(values),
            _ => continue,
        };
        match (part, whole.get(name)) {
            (Value::Object(part), Some(Value::Object(whole))) => complete(below, whole, part),
            (Value::Array(part), Some(Value::Array(whole))) => items(below, whole, part),
            _ => {}
        }
    }
}

/// Completes the elements of a list whose elements are identified by key fields. The elements of other lists are
/// complete.
fn items(of: Type<'_>, whole: &[Value], part: &mut [Value]) {
    let (_, Some(atom)) = Place::root(of).containers() else { return };
    let (Some(relation @ Relation::Map(_)), Some(item)) = (atom.relation, &of.node().items) else {
        return;
    };
    let element =
        |item: &Value| element_of(relation, atom.items, item).ok().map(|keyed| keyed.element);
    let whole: BTreeMap<PathElement, &Value> =
        whole.iter().filter_map(|item| Some((element(item)?, item))).collect();
    for one in part {
        let found = element(one).and_then(|element| whole.get(&element));
        if let (Value::Object(part), Some(Value::Object(whole))) = (one, found) {
            complete(of.at(item), whole, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn only_required_fields_are_restored() {
        let schema = Schema::of_definition(&json!({
            "type": "object", "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object", "required": ["size", "by"],
                    "properties": {
                        "size": {"type": "integer"},
                        "by": {"type": "object", "required": ["a"], "properties": {
                            "a": {"type": "string"}, "b": {"type": "string"},
                        }},
                        "color": {"type": "string"},
                    },
                },
                "status": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
            },
        }));
        let whole = json!({
            "spec": {"size": 1, "by": {"a": "1", "b": "2"}, "color": "red"}, "status": {"x": "y"},
        });
        let expected = json!({"spec": {"size": 1, "by": {"a": "1"}}});
        for part in [
            json!({}),
            json!({"spec": null, "status": null}),
            json!({"spec": {}}),
            json!({"spec": {"by": {}, "size": null, "color": null}}),
        ] {
            let (Value::Object(whole), Value::Object(mut part)) = (whole.clone(), part) else {
                continue;
            };
            complete(schema.root(), &whole, &mut part);
            assert_eq!(json!(part), expected);
        }
    }
    #[test]
    fn required_fields_of_keyed_list_items_are_restored() {
        let schema = Schema::of_definition(&json!({"type": "object", "properties": {"l": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name", "size"], "properties": {
                "name": {"type": "string"}, "size": {"type": "integer"}, "color": {"type": "string"},
            }},
        }}}));
        let item = |name: &str| json!({"name": name, "size": 1, "color": "red"});
        let whole = json!({"l": [item("a"), item("b"), item("c")]});
        let mut part = json!({"l": [{"name": "c"}, {"name": "b", "color": "blue"}, {"name": "d"}]});
        complete(schema.root(), whole.as_object().unwrap(), part.as_object_mut().unwrap());
        let expected = json!({"l": [
            {"name": "c", "size": 1}, {"name": "b", "size": 1, "color": "blue"}, {"name": "d"},
        ]});
        assert_eq!(part, expected);
    }
}
