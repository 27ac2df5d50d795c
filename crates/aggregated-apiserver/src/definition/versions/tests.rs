//! Random objects are converted with and without a JSON tree; both results must be equal.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::definition::ConversionError;
use crate::kind::Kind;
use crate::object::Object;

/// The number of objects that are tested for each schema.
const OBJECTS: usize = 3_000;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum Shape {
    Point,
    Circle(f64),
    Square { side: u64, comment: Option<String> },
    Line(i32, i32),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type")]
enum Tagged {
    Named { name: String },
    Counted { count: Option<i64> },
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Part {
    zone: Option<String>,
    #[serde(default)]
    area: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<Box<Part>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Common {
    text: String,
    #[serde(default)]
    number: u64,
    float: Option<f64>,
    #[serde(default)]
    parts: Vec<Option<Part>>,
    #[serde(default)]
    by_name: BTreeMap<String, Option<Part>>,
    #[serde(default)]
    by_number: BTreeMap<u16, char>,
    shape: Option<Shape>,
    tagged: Option<Tagged>,
    #[serde(default)]
    any: Value,
    #[serde(default)]
    pair: (Option<i8>, String),
}

mod v1 {
    use super::{Common, CustomResource, Deserialize, Serialize, Value};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
    #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
    #[kube(status = "Value", schema = "disabled")]
    pub(super) struct FooSpec {
        pub weight: f64,
        #[serde(flatten)]
        pub common: Common,
    }
}

mod v2 {
    use super::{Common, CustomResource, Deserialize, Serialize, Value};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
    #[kube(group = "example.com", version = "v2", kind = "Foo", namespaced)]
    #[kube(status = "Value", schema = "disabled")]
    pub(super) struct FooSpec {
        pub weight: String,
        pub common: Common,
        pub absent: Option<String>,
    }
}

impl Stored for v1::Foo {}

impl Convert<v1::Foo> for v2::Foo {
    fn into_hub(self) -> Result<v1::Foo, ConversionError> {
        let Self { metadata, spec, status } = self;
        let weight = spec.weight.parse()?;
        Ok(v1::Foo { metadata, spec: v1::FooSpec { weight, common: spec.common }, status })
    }

    fn from_hub(hub: v1::Foo) -> Result<Self, ConversionError> {
        let v1::Foo { mut metadata, spec, status } = hub;
        assert!(spec.common.text != "panic", "as is wanted");
        match spec.common.text.as_str() {
            "refuse" => return Err(ConversionError::new("as is wanted")),
            "note" => {
                let annotations = metadata.annotations.get_or_insert_default();
                annotations.insert("example.com/note".to_owned(), "x".to_owned());
            }
            "forget" => metadata.annotations = None,
            "rename" => metadata.name = Some("b".to_owned()),
            "lose" => metadata = Default::default(),
            _ => {}
        }
        let weight = spec.weight.to_string();
        let spec = v2::FooSpec { weight, common: spec.common, absent: None };
        Ok(Self { metadata, spec, status })
    }
}

/// Random values, the same in each run.
struct Chance(fastrand::Rng);

impl Chance {
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())].clone()
    }

    fn text(&mut self) -> String {
        let texts = ["", "a", "z", "null", "\"", "a\\b\n", "ü€", "\u{1}\u{7f}\u{2028}", "<&>"];
        let special = ["panic", "refuse", "note", "forget", "rename", "lose"];
        match self.0.u8(..24) {
            0 => self.one_of(&special).to_owned(),
            1..=3 => "x".repeat(self.0.usize(..200)),
            _ => self.one_of(&texts).to_owned(),
        }
    }

    fn number(&mut self) -> Value {
        let numbers = [
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1.0),
            json!(-0.0),
            json!(1e21),
            json!(1e-7),
            json!(i64::MIN),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(9e15),
            json!(0.1),
            json!(1e300),
        ];
        self.one_of(&numbers)
    }

    fn any(&mut self, depth: usize) -> Value {
        match self.0.u8(..if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.0.bool()),
            2 => self.number(),
            3 | 4 => json!(self.text()),
            5 => (0..self.0.usize(..4)).map(|_| self.any(depth - 1)).collect(),
            _ => {
                let mut names = vec!["b", "a", "type", "zone", "area", "unknown", "ä", "below"];
                if self.0.u8(..10) == 0 {
                    names.push("q\"q");
                }
                let count = self.0.usize(..15);
                let member = |_| (self.one_of(&names).to_owned(), self.any(depth - 1));
                Value::Object((0..count).map(member).collect())
            }
        }
    }

    /// The value, or rarely another one or null.
    fn mostly(&mut self, value: Value) -> Value {
        match self.0.u8(..40) {
            0 => Value::Null,
            1 => self.any(2),
            _ => value,
        }
    }

    fn part(&mut self, depth: usize) -> Value {
        let mut part = json!({});
        if self.0.bool() {
            part["zone"] = json!(self.text());
        }
        if self.0.bool() {
            part["area"] = self.number();
        }
        if depth > 0 && self.0.bool() {
            part["below"] = self.part(depth - 1);
        }
        self.mostly(part)
    }

    fn common(&mut self) -> Value {
        let mut common = json!({"text": self.text()});
        let shapes = [
            json!("point"),
            json!({"circle": self.number()}),
            json!({"line": [1, -2]}),
            json!({"square": {"side": 4, "comment": null}}),
            json!({"square": {"side": 4}}),
        ];
        let tagged =
            [json!({"type": "Named", "name": self.text()}), json!({"type": "Counted", "count": 3})];
        let members = [
            ("number", json!(self.0.u64(..))),
            ("float", self.number()),
            ("parts", (0..self.0.usize(..5)).map(|_| self.part(2)).collect()),
            ("by_name", json!({"b": self.part(1), self.text(): self.part(0), "a": self.part(0)})),
            ("by_number", json!({"10": "x", "9": "ü", "100": "\n"})),
            ("shape", self.one_of(&shapes)),
            ("tagged", self.one_of(&tagged)),
            ("any", self.any(4)),
            ("pair", json!([self.0.i8(..), self.text()])),
            ("unknown", self.any(1)),
        ];
        for (name, value) in members {
            if self.0.bool() {
                common[name] = self.mostly(value);
            }
        }
        common
    }

    /// A random object as it is stored in this version.
    fn object(&mut self, version: &str) -> Value {
        let mut metadata = json!({"name": "a", "namespace": "n", "uid": "u", "generation": 1});
        let members = [
            ("labels", json!({"x": "y", "a/b": ""})),
            ("annotations", json!({"note": self.text(), "example.com/note": "y"})),
            ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
            ("finalizers", json!(["a/b"])),
            (
                "ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "v"}]),
            ),
            ("managedFields", json!([{"manager": "m", "fieldsV1": {"f:spec": {"f:text": {}}}}])),
        ];
        for (name, value) in members {
            if self.0.bool() {
                metadata[name] = value;
            }
        }
        let mut spec = self.common();
        if version == "v2" {
            spec = json!({"common": spec, "weight": self.one_of(&["1", "2.5", "heavy"])});
        } else {
            spec["weight"] = self.number();
        }
        let mut object = json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Foo",
            "metadata": metadata, "spec": spec,
        });
        if self.0.bool() {
            object["status"] = self.any(3);
        }
        if self.0.u8(..40) == 0 {
            object["extra"] = self.any(1);
        }
        object
    }
}

/// Kinds whose schemas use all forms of pruning.
fn kinds() -> Vec<Kind> {
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    let text = json!({"type": "string"});
    let nullable = json!({"type": "string", "nullable": true});
    let part = json!({
        "type": "object", "required": ["zone"],
        "properties": {"zone": nullable, "area": {"type": "number"}, "below": any},
    });
    let common = json!({
        "text": text, "float": {"type": "number", "nullable": true},
        "parts": {"type": "array", "items": part},
        "by_name": {"type": "object", "additionalProperties": part},
        "by_number": {"type": "object", "additionalProperties": true},
        "shape": {"type": "object", "nullable": true, "additionalProperties": any},
        "tagged": {"type": "object", "properties": {"name": text, "count": {"type": "integer"}}},
        "any": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}},
        "absent": nullable,
    });
    let mut flat = common.clone();
    flat["common"] =
        json!({"type": "object", "properties": common, "required": ["shape", "float"]});
    flat["weight"] = any.clone();
    let strict = json!({"type": "object", "properties": flat, "required": ["absent", "shape"]});
    let schemas = [
        json!({"type": "object", "properties": {"spec": any, "status": any}}),
        json!({"type": "object", "properties": {"spec": strict, "status": part}}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {
            "type": "object", "additionalProperties": any,
        }}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": any}}),
        json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        }}}),
    ];
    let of_schema = |schema: Value| {
        let version = |name: &str| {
            let schema = json!({"openAPIV3Schema": schema});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
        };
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
                "versions": [version("v1"), version("v2")],
            },
        });
        serde_json::from_value(definition).unwrap()
    };
    let conversion =
        || ErasedConversion::new(vec![code_of_hub::<v1::Foo>(), code::<v2::Foo, v1::Foo>()]);
    let kind = |schema| {
        let kind = Kind::parse(&of_schema(schema), None).unwrap();
        kind.with_conversion(Some(conversion().into()))
    };
    schemas.into_iter().map(kind).collect()
}

#[test]
fn direct_conversion_equals_conversion_through_a_json_tree() {
    let mut chance = Chance(fastrand::Rng::with_seed(1));
    let mut shares = Vec::new();
    for kind in kinds() {
        let (mut direct, mut possible) = (0, 0);
        for _ in 0..OBJECTS {
            let (from, to) = chance.one_of(&[("v1", "v2"), ("v2", "v1")]);
            let tree = chance.object(from);
            let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
            let version = kind.version(to).unwrap();
            let by_tree = kind.converted_by_tree(&object, version);
            possible += usize::from(by_tree.is_ok());
            let Some(made) = kind.converted_directly(&object, version) else { continue };
            direct += 1;
            let by_tree = by_tree.map(|by_tree| format!("{by_tree:?}"));
            assert_eq!(Ok(format!("{made:?}")), by_tree, "{tree}");
        }
        shares.push((direct, possible));
    }
    // Many objects are converted directly, though they are unusual. Objects of two schemas never are.
    let many = |(direct, possible): &(usize, usize)| possible / 2 < *direct;
    let went: Vec<bool> = shares.iter().map(many).collect();
    assert_eq!(went, [true, true, true, false, false], "{shares:?}");
}
