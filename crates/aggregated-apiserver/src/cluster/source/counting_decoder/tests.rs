//! Tests of counted decoding, with types of Kubernetes and of their own.

use super::*;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PartialObjectMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ROOM: usize = 100_000_000;

fn size<K: DeserializeOwned>(object: &Value) -> usize {
    decode_in::<K>(&object.to_string(), ROOM).unwrap().bytes
}

fn decode_in<K: DeserializeOwned>(
    text: &str,
    free_bytes: usize,
) -> Result<Decoded<K>, DecodeError> {
    decode(text, free_bytes, &RandomState::new())
}

fn pod() -> Value {
    json!({
        "metadata": {
            "name": "p", "labels": {"a": "b"}, "annotations": {"c": "d", LAST_APPLIED: "e"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
        },
        "spec": {
            "containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}],
            "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    })
}

#[test]
fn a_counted_object_equals_the_object_that_serde_json_reads() {
    let mut read = decode_in::<Pod>(&pod().to_string(), ROOM).unwrap().object;
    let mut expected: Pod = serde_json::from_value(pod()).unwrap();
    assert!(expected.metadata.managed_fields.take().is_some());
    assert!(expected.metadata.annotations.as_mut().unwrap().remove(LAST_APPLIED).is_some());
    assert_eq!(read, expected);
    read.metadata.name = None;
    assert_ne!(read, expected);
}

#[test]
fn counted_reads_support_every_shape_of_serde_types() {
    #[derive(Debug, PartialEq, Deserialize)]
    enum Choice {
        Unit,
        Newtype(String),
        Tuple(u8, String),
        Struct { a: Option<bool> },
    }
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Forms {
        choices: Vec<Choice>,
        either: (Either, Either),
        numbered: BTreeMap<u32, f64>,
        nothing: Option<()>,
        any: Value,
        #[serde(flatten)]
        more: BTreeMap<String, Value>,
    }
    let given = json!({
        "choices": ["Unit", {"Newtype": "a"}, {"Tuple": [1, "b"]}, {"Struct": {"a": true}}],
        "either": [1, "c"], "numbered": {"1": 0.5}, "nothing": null,
        "any": {"a": [null, 1, -1, 1.5, "d", {"b": {}}]}, "e": "f",
    });
    let forms = decode_in::<Forms>(&given.to_string(), ROOM).unwrap().object;
    assert_eq!(forms, serde_json::from_value(given.clone()).unwrap());
    assert_eq!(decode_in::<Value>(&given.to_string(), ROOM).unwrap().object, given);
}

#[test]
fn dropped_fields_do_not_count_towards_the_object_size() {
    let mut given = pod();
    let (whole, metadata) = (size::<Pod>(&given), size::<PartialObjectMeta<Pod>>(&given));
    assert!(metadata < whole, "{metadata} {whole}");
    given["metadata"]["managedFields"][0]["fieldsV1"] = json!("x".repeat(100_000));
    given["metadata"]["annotations"][LAST_APPLIED] = "x".repeat(100_000).into();
    given["spec"]["unknown"] = "x".repeat(100_000).into();
    assert_eq!(size::<Pod>(&given), whole);
    given["metadata"]["annotations"]["a"] = "x".repeat(100_000).into();
    assert!(size::<PartialObjectMeta<Pod>>(&given) > metadata + 100_000);
}

/// Densely nested values use far more memory than the length of their JSON.
#[test]
fn object_sizes_include_memory_beyond_the_json_bytes() {
    let names: BTreeMap<String, &str> = (0..1_000).map(|n| (n.to_string(), "")).collect();
    let config_map = json!({"data": names});
    let least = 1_000 * 2 * size_of::<String>();
    assert!(size::<ConfigMap>(&config_map) > least);
    assert!(size::<Value>(&config_map) > least);
    let finalizers = json!({"metadata": {"finalizers": vec![""; 1_000]}});
    assert!(size::<ReplicaSet>(&finalizers) > 1_000 * size_of::<String>());
    let deep = (0..100).fold(json!(0), |inner, _| json!({"": inner}));
    assert!(size::<Value>(&deep) > 100 * NODE * size_of::<Value>());
}

#[test]
fn objects_beyond_the_memory_budget_are_not_read() {
    let given = pod().to_string();
    let size = decode_in::<Pod>(&given, ROOM).unwrap().bytes;
    assert_eq!(decode_in::<Pod>(&given, size).unwrap().bytes, size);
    assert!(matches!(decode_in::<Pod>(&given, size - 1), Err(DecodeError::TooLarge)));
    assert!(matches!(decode_in::<Pod>("[]", ROOM), Err(DecodeError::Malformed(_))));
    assert!(matches!(decode_in::<Pod>("{} {}", ROOM), Err(DecodeError::Malformed(_))));
}

/// A type that decodes some fields of an object.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Seen {
    number: Option<i64>,
    text: Option<String>,
    list: Vec<SeenElement>,
    any: BTreeMap<String, Value>,
    presence: Option<IgnoredAny>,
    names: BTreeMap<String, IgnoredAny>,
    numbers: BTreeMap<u8, IgnoredAny>,
    choices: BTreeMap<Chosen, IgnoredAny>,
    wrapped: BTreeMap<Wrapped, IgnoredAny>,
    choice: Option<Chosen>,
    floating: f64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenElement {
    a: Option<bool>,
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
enum Chosen {
    One,
    Other,
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Wrapped(String);

/// Objects with different decoded values have different hashes, and ignored fields do not change the hash.
#[test]
fn content_hashes_cover_exactly_the_fields_that_are_read() {
    let hasher = RandomState::new();
    let content =
        |object: &Value| decode::<Seen>(&object.to_string(), ROOM, &hasher).unwrap().content;
    let objects = [
        json!({}),
        json!({"number": null}),
        json!({"number": 1}),
        json!({"number": 2}),
        json!({"text": "1"}),
        json!({"text": ""}),
        json!({"list": []}),
        json!({"list": [{}]}),
        json!({"list": [{}, {}]}),
        json!({"list": [{"a": true}, {}]}),
        json!({"list": [{}, {"a": true}]}),
        json!({"list": [{"a": false}, {}]}),
        json!({"list": [{"a": null}, {}]}),
        json!({"any": {}}),
        json!({"any": {"a": {}}}),
        json!({"any": {"a": []}}),
        json!({"any": {"a": [[], []]}}),
        json!({"any": {"a": [[[]]]}}),
        json!({"any": {"a": "b", "c": "d"}}),
        json!({"any": {"a": "bc", "": "d"}}),
        json!({"any": {"a": true}}),
        json!({"any": {"a": "true"}}),
        json!({"any": {"a": 1}}),
        json!({"any": {"a": 1.5}}),
        json!({"presence": {"a": 1}}),
        json!({"names": {"a": 1}}),
        json!({"names": {"b": 1}}),
        json!({"names": {"a": 1, "b": 1}}),
        json!({"numbers": {"1": 1}}),
        json!({"numbers": {"2": 1}}),
        json!({"choices": {"One": 1}}),
        json!({"choices": {"Other": 1}}),
        json!({"choices": {"One": 1, "Other": 1}}),
        json!({"wrapped": {"a": 1}}),
        json!({"wrapped": {"b": 1}}),
        json!({"choice": "One"}),
        json!({"choice": "Other"}),
        json!({"floating": 0.5}),
    ];
    for (index, object) in objects.iter().enumerate() {
        for other in &objects[..index] {
            assert_ne!(content(object), content(other), "{object} {other}");
        }
        let mut more = object.clone();
        more["unknown"] = json!({"number": [1, {"list": "2"}]});
        more["another"] = json!(null);
        if let Some(element) = more.pointer_mut("/list/0") {
            element["unknown"] = json!([{}]);
        }
        assert_eq!(content(&more), content(object), "{more}");
    }
    // Only the keys of these maps are decoded, so their values do not count.
    for name in ["names", "wrapped"] {
        let one = content(&json!({name: {"a": 1, "b": {"c": 2}}}));
        assert_eq!(one, content(&json!({name: {"a": [{}], "b": null}})), "{name}");
    }
    let presence = |inner: Value| content(&json!({"presence": inner}));
    assert_eq!(presence(json!(1)), presence(json!({"b": []})));
    let metadata = |metadata: Value| {
        let object = json!({"metadata": metadata}).to_string();
        decode::<ConfigMap>(&object, ROOM, &hasher).unwrap().content
    };
    let name = metadata(json!({"name": "a"}));
    assert_eq!(name, metadata(json!({"name": "a", "managedFields": [{"manager": "m"}]})));
    assert_ne!(name, metadata(json!({"name": "a", "resourceVersion": "1"})));
}
