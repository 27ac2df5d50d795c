//! Herds, with two versions that have the same content in different fields.

#![allow(clippy::panic, clippy::unwrap_used)] // one of its faults, and tests

use serde_json::{Value, json};

use aggregated_apiserver::versions::ConversionError;
use aggregated_apiserver::{Convert, FieldError, Stored, Validation, Versions};

/// A schema that allows any value.
fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// Converts the extra field: wraps it in an object, or unwraps it again.
fn wrapped(extra: Value, (from, to): (&str, &str)) -> Value {
    match extra {
        Value::Object(mut members) if members.contains_key(to) => members.remove(to).unwrap(),
        extra => json!({from: extra}),
    }
}

/// The annotation for the field that `v1alpha` lacks.
const NOTE: &str = "example.com/note";

pub mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1",
        kind = "Herd",
        namespaced,
        shortname = "hd",
        status = "HerdStatus",
        selectable = ".spec.paint",
        scale(
            spec_replicas_path = ".spec.size.heads",
            status_replicas_path = ".status.observed.heads"
        ),
        printcolumn(name = "Grams", type_ = "integer", json_path = ".spec.grams")
    )]
    #[serde(rename_all = "camelCase")]
    pub struct HerdSpec {
        pub grams: i64,
        pub size: Size,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(max = 12))]
        pub paint: Option<String>,
        /// Serialized as null if it is not set.
        pub note: Option<String>,
        /// Any value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(schema_with = "super::anything")]
        pub extra: Option<serde_json::Value>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub struct Size {
        pub heads: i64,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub struct HerdStatus {
        pub observed: Size,
    }
}

pub mod v1alpha {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1alpha",
        kind = "Herd",
        namespaced,
        deprecated = "use example.com/v1",
        status = "HerdStatus",
        selectable = ".spec.color",
        scale(spec_replicas_path = ".spec.heads", status_replicas_path = ".status.seen"),
        printcolumn(name = "Weight", type_ = "number", json_path = ".spec.weight")
    )]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "self.weight != 666.0", "message": "is not said in kilograms"},
    ]))]
    pub struct HerdSpec {
        pub weight: f64,
        pub heads: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
        /// Any value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(schema_with = "super::anything")]
        pub extra: Option<serde_json::Value>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub struct HerdStatus {
        pub seen: i64,
    }
}

impl Stored for v1::Herd {
    fn versions() -> Versions<Self> {
        Versions::new().version::<v1alpha::Herd>()
    }

    fn validation() -> Validation<Self> {
        Validation::<Self>::new()
            .prepare(|herd, _| {
                if herd.spec.paint.as_deref() == Some("") {
                    herd.spec.paint = Some("GREY".to_owned());
                }
            })
            .validate(|herd, old, _| {
                let mut errors = Vec::new();
                if herd.spec.grams > 9_000_000 {
                    errors.push(FieldError::invalid("spec.grams", herd.spec.grams, "too heavy"));
                }
                if old.is_some_and(|old| old.spec.size.heads > herd.spec.size.heads + 50) {
                    errors.push(FieldError::forbidden("spec.size.heads", "not so many at once"));
                }
                errors
            })
    }
}

impl Convert<v1::Herd> for v1alpha::Herd {
    #[allow(clippy::cast_possible_truncation)] // compared with what it was
    fn into_hub(self) -> Result<v1::Herd, ConversionError> {
        let Self { mut metadata, spec, status } = self;
        let grams = (spec.weight * 1_000.0).round();
        if (grams / 1_000.0 - spec.weight).abs() > f64::EPSILON || grams.abs() > 1e12 {
            return Err(ConversionError::new(format!("{} kg are no whole grams", spec.weight)));
        }
        if spec.color.as_deref() == Some("one-way") {
            let fault = FieldError::invalid("spec.color", "\"one-way\"", "is of no paint");
            return Err(ConversionError::field(fault));
        }
        if spec.color.as_deref() == Some("bare") {
            metadata.annotations = None;
        }
        let note = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(NOTE));
        metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
        Ok(v1::Herd {
            metadata,
            spec: v1::HerdSpec {
                grams: grams as i64,
                size: v1::Size { heads: spec.heads },
                paint: spec.color.map(|color| color.to_uppercase()),
                note,
                extra: spec.extra.map(|extra| wrapped(extra, ("v1alpha", "v1"))),
            },
            status: status
                .map(|status| v1::HerdStatus { observed: v1::Size { heads: status.seen } }),
        })
    }

    #[allow(clippy::cast_precision_loss)] // refused beyond
    fn from_hub(hub: v1::Herd) -> Result<Self, ConversionError> {
        let v1::Herd { mut metadata, spec, status } = hub;
        match spec.paint.as_deref() {
            Some("RAINBOW") => return Err(ConversionError::new("no such color")),
            Some("PANIC") => panic!("what the user wrote is wrong"),
            Some("RENAMED") => metadata.name = Some("other".to_owned()),
            _ => {}
        }
        if let Some(note) = spec.note {
            metadata.annotations.get_or_insert_default().insert(NOTE.to_owned(), note);
        }
        Ok(Self {
            metadata,
            spec: v1alpha::HerdSpec {
                weight: spec.grams as f64 / 1_000.0,
                heads: spec.size.heads,
                color: spec.paint.map(|paint| paint.to_lowercase()),
                extra: match spec.extra {
                    // A small value becomes a very large one.
                    Some(Value::Number(length)) => {
                        Some("x".repeat(length.as_u64().unwrap_or_default() as usize).into())
                    }
                    extra => extra.map(|extra| wrapped(extra, ("v1", "v1alpha"))),
                },
            },
            status: status.map(|status| v1alpha::HerdStatus { seen: status.observed.heads }),
        })
    }
}
