//! The OpenAPI 2 document in protobuf, which kubectl requests where OpenAPI 3 lacks details: the messages of
//! `openapiv2/OpenAPIv2.proto` of gnostic.

use serde_json::Value;

/// Encodes the JSON document as protobuf.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (name, item) in members(&document["paths"]) {
            paths.message(2, |named| {
                named.string(1, name);
                named.message(2, |out| path_item(out, item));
            });
        }
    });
    out.message(9, |definitions| {
        for (name, schema) in members(&document["definitions"]) {
            definitions.message(1, |named| named_schema(named, name, schema));
        }
    });
    out.0
}

fn path_item(out: &mut Message, item: &Value) {
    let methods = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    for (method, number) in methods {
        if let Some(operation) = item.get(method) {
            out.message(number, |out| self::operation(out, operation));
        }
    }
    parameters(out, 9, item);
}

fn operation(out: &mut Message, operation: &Value) {
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    parameters(out, 8, operation);
    out.message(9, |responses| {
        for (status, response) in members(&operation["responses"]) {
            responses.message(1, |named| {
                named.string(1, status);
                named.message(2, |value| {
                    value.message(1, |out| {
                        out.text(1, &response["description"]);
                        if let Some(schema) = response.get("schema") {
                            out.message(2, |item| item.message(1, |out| self::schema(out, schema)));
                        }
                    });
                });
            });
        }
    });
    out.extensions(13, operation);
}

fn parameters(out: &mut Message, number: u32, of: &Value) {
    for parameter in of["parameters"].as_array().into_iter().flatten() {
        out.message(number, |item| {
            item.message(1, |sort| match parameter["in"].as_str() {
                Some("body") => sort.message(1, |out| {
                    out.text(1, &parameter["description"]);
                    out.text(2, &parameter["name"]);
                    out.text(3, &parameter["in"]);
                    out.flag(4, &parameter["required"]);
                    out.message(5, |out| schema(out, &parameter["schema"]));
                }),
                Some("path") => sort.message(2, |sort| {
                    sort.message(4, |out| {
                        plain_parameter(out, parameter);
                        out.text(5, &parameter["type"]);
                        out.flag(20, &parameter["uniqueItems"]);
                    });
                }),
                _ => sort.message(2, |sort| {
                    sort.message(3, |out| {
                        plain_parameter(out, parameter);
                        out.text(6, &parameter["type"]);
                        out.flag(20, &parameter["uniqueItems"]);
                    });
                }),
            });
        });
    }
}

fn plain_parameter(out: &mut Message, parameter: &Value) {
    out.flag(1, &parameter["required"]);
    out.text(2, &parameter["in"]);
    out.text(3, &parameter["description"]);
    out.text(4, &parameter["name"]);
}

fn named_schema(out: &mut Message, name: &str, schema: &Value) {
    out.string(1, name);
    out.message(2, |out| self::schema(out, schema));
}

fn schema(out: &mut Message, schema: &Value) {
    out.text(1, &schema["$ref"]);
    out.text(2, &schema["format"]);
    out.text(3, &schema["title"]);
    out.text(4, &schema["description"]);
    if let Some(default) = schema.get("default") {
        out.message(5, |out| out.any(default));
    }
    let numbers = [("multipleOf", 6), ("maximum", 7), ("minimum", 9)];
    for (name, number) in numbers {
        if let Some(value) = schema[name].as_f64() {
            out.double(number, value);
        }
    }
    for (name, number) in [("exclusiveMaximum", 8), ("exclusiveMinimum", 10), ("uniqueItems", 16)] {
        out.flag(number, &schema[name]);
    }
    let lengths = [
        ("maxLength", 11),
        ("minLength", 12),
        ("maxItems", 14),
        ("minItems", 15),
        ("maxProperties", 17),
        ("minProperties", 18),
    ];
    for (name, number) in lengths {
        if let Some(value) = schema[name].as_u64() {
            out.number(number, value);
        }
    }
    out.text(13, &schema["pattern"]);
    out.texts(19, &schema["required"]);
    for value in schema["enum"].as_array().into_iter().flatten() {
        out.message(20, |out| out.any(value));
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(is_open)) => out.message(21, |out| out.flag(2, &Value::Bool(*is_open))),
        Some(of) => out.message(21, |out| out.message(1, |out| self::schema(out, of))),
        None => {}
    }
    match schema.get("type") {
        Some(Value::String(name)) => out.message(22, |out| out.string(1, name)),
        Some(names @ Value::Array(_)) => out.message(22, |out| out.texts(1, names)),
        _ => {}
    }
    if let Some(items) = schema.get("items") {
        out.message(23, |out| out.message(1, |out| self::schema(out, items)));
    }
    for one in schema["allOf"].as_array().into_iter().flatten() {
        out.message(24, |out| self::schema(out, one));
    }
    if schema["properties"].is_object() {
        out.message(25, |properties| {
            for (name, property) in members(&schema["properties"]) {
                properties.message(1, |named| named_schema(named, name, property));
            }
        });
    }
    out.extensions(31, schema);
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A message on the wire.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    fn key(&mut self, number: u32, wire_type: u32) {
        self.varint(u64::from(number << 3 | wire_type));
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn string(&mut self, number: u32, text: &str) {
        self.bytes(number, text.as_bytes());
    }

    /// Writes a string unless it is missing or empty.
    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.string(number, text);
        }
    }

    fn texts(&mut self, number: u32, values: &Value) {
        for value in values.as_array().into_iter().flatten() {
            self.string(number, value.as_str().unwrap_or_default());
        }
    }

    fn number(&mut self, number: u32, value: u64) {
        self.key(number, 0);
        self.varint(value);
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if value == true {
            self.number(number, 1);
        }
    }

    fn double(&mut self, number: u32, value: f64) {
        self.key(number, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes any value, as YAML.
    fn any(&mut self, value: &Value) {
        // Trees with string keys always encode.
        self.string(2, &serde_saphyr::to_string(value).unwrap_or_default());
    }

    fn extensions(&mut self, number: u32, of: &Value) {
        for (name, value) in members(of).filter(|(name, _)| name.starts_with("x-")) {
            self.message(number, |named| {
                named.string(1, name);
                named.message(2, |out| out.any(value));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema() {
        let mut out = Message::default();
        schema(
            &mut out,
            &json!({"type": "object", "description": "d", "maxLength": 300, "x-a": [1]}),
        );
        let expected = [
            &[4 << 3 | 2, 1, b'd'][..],
            &[11 << 3, 0xac, 2],
            &[0xb2, 1, 8, 1 << 3 | 2, 6],
            b"object",
            &[0xfa, 1, 13, 1 << 3 | 2, 3],
            b"x-a",
            &[2 << 3 | 2, 6, 2 << 3 | 2, 4],
            b"- 1\n",
        ];
        assert_eq!(out.0, expected.concat());
    }
}
