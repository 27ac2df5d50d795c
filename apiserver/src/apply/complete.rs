//! Complete: a part of an object gets back what its type demands, so that code which reads it as that
//! type can convert it.

use serde_json::{Map, Value};

use crate::schema::{Additional, Type};

/// Puts those members of a whole object that its type demands into a part of it.
pub fn complete(of: Type<'_>, whole: &Map<String, Value>, part: &mut Map<String, Value>) {
    let required = of.constraints().map_or(&[][..], |constraints| &constraints.required);
    for name in
        required.iter().filter(|name| !part.contains_key(*name)).cloned().collect::<Vec<_>>()
    {
        if let Some(value) = whole.get(&name) {
            let demanded = match value {
                Value::Object(_) => Value::Object(Map::new()),
                other => other.clone(),
            };
            part.insert(name, demanded);
        }
    }
    for (name, value) in part {
        let below = match (of.member(name), &of.node().additional) {
            (Some((_, below)), _) => below,
            (None, Additional::Of(values)) => of.at(values),
            _ => continue,
        };
        if let (Value::Object(part), Some(Value::Object(whole))) = (value, whole.get(name)) {
            complete(below, whole, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn what_is_demanded_is_put_back_and_nothing_else() {
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
        for part in [json!({}), json!({"spec": {}}), json!({"spec": {"by": {}}})] {
            let (Value::Object(whole), Value::Object(mut part)) = (whole.clone(), part) else {
                continue;
            };
            complete(schema.root(), &whole, &mut part);
            assert_eq!(json!(part), expected);
        }
    }
}
