//! The body of a patch. It is parsed before the object is looked up. Its unknown and duplicate fields are reported only
//! if the object exists.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::duplicate_keys;
use crate::codec::{self, ParseError, REPEATED_KEYS, YamlParsers};
use crate::error::{ApiError, Reason, go_type};
use crate::kind::Kind;
use crate::object::Tree;
use crate::object::json_patch::Unfit;
use crate::quota::Account;
use crate::schema::{Schema, StrategicMergePatch, normalize_numbers_in_place};
use crate::write::{
    FieldValidation, ManagedFields, OPERATIONS_LIMIT, Operation, Patch, SubmittedApply,
    SubmittedPatch,
};

/// The maximum number of problems of a patch that are reported.
const PROBLEMS_LIMIT: usize = 100;

/// The media types of patches, in the order of kube-apiserver's error message.
const ALL: [(PatchType, &str); 4] = [
    (PatchType::Json, "application/json-patch+json"),
    (PatchType::Merge, "application/merge-patch+json"),
    (PatchType::Strategic, "application/strategic-merge-patch+json"),
    (PatchType::Apply, "application/apply-patch+yaml"),
];

/// The types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch, in which lists are merged by keys; only for built-in kinds of Kubernetes.
    Strategic,
    /// Server-side apply. The applied fields belong to the field manager afterwards.
    Apply,
}

/// Returns the type of a patch by its media type, which must match exactly.
pub(super) fn named(headers: &HeaderMap) -> Option<PatchType> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let given = given.split(';').next();
    ALL.iter().find(|(_, name)| given == Some(*name)).map(|(patch_type, _)| *patch_type)
}

/// Returns the type of a patch if it is supported. A strategic merge patch requires `is_strategic`, and server-side
/// apply requires that objects have `managedFields`.
///
/// # Errors
/// 415 for any other type.
pub(super) fn patch_type(
    headers: &HeaderMap,
    is_strategic: bool,
    managed_fields: ManagedFields,
) -> Result<PatchType, ApiError> {
    let is_taken = |patch_type| match patch_type {
        PatchType::Json | PatchType::Merge => true,
        PatchType::Strategic => is_strategic,
        PatchType::Apply => managed_fields == ManagedFields::Kept,
    };
    named(headers).filter(|&patch_type| is_taken(patch_type)).ok_or_else(|| {
        let taken = ALL.iter().filter(|(patch_type, _)| is_taken(*patch_type));
        let taken: Vec<&str> = taken.map(|(_, name)| *name).collect();
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            taken.join(", ")
        );
        ApiError::new(Reason::UnsupportedMediaType, message)
    })
}

/// The error for server-side apply if the backend of a kind does not store `managedFields`: 415.
pub(super) fn no_managed_fields(kind: &Kind) -> ApiError {
    let message = format!(
        "server-side apply is not supported, because the backend of {} does not store metadata.managedFields",
        kind.qualified()
    );
    ApiError::new(Reason::UnsupportedMediaType, message)
}

/// Parses a patch.
///
/// # Errors
/// 400 if the body is not a patch, 413 if it has too many operations.
pub(super) fn read(
    patch_type: PatchType,
    schema: &Schema,
    bytes: &Bytes,
    field_validation: FieldValidation,
    account: &Account,
) -> Result<SubmittedPatch, ApiError> {
    let is_lenient = field_validation == FieldValidation::Ignore;
    let undecodable = |why: &str| {
        let prefix = if is_lenient { "" } else { "error decoding patch: " };
        ApiError::bad_request(format!("{prefix}{why}"))
    };
    let parsed = codec::from_json(bytes, account).map_err(|error| match error {
        ParseError::Refused(refused) => refused,
        ParseError::Malformed(_) if patch_type == PatchType::Merge && is_lenient => {
            ApiError::bad_request("Invalid JSON Patch")
        }
        ParseError::Malformed(why) => undecodable(&why),
    })?;
    let duplicates = parsed.duplicates.into_iter();
    match patch_type {
        PatchType::Apply => Err(undecodable("an applied object is no patch")),
        PatchType::Strategic => match parsed.value {
            // In Go, null is a map without keys.
            patch @ (Value::Object(_) | Value::Null) => {
                let problems = duplicates.collect();
                // In Go, this patch is merged as a map: `7.0` is a valid integer.
                let mut patch = if let Value::Object(patch) = patch { patch } else { Tree::new() };
                patch.values_mut().for_each(normalize_numbers_in_place);
                let patch = StrategicMergePatch { patch, schema: schema.clone() };
                Ok(SubmittedPatch { patch: Patch::Strategic(patch), problems })
            }
            other => Err(undecodable(&format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                go_type(&other)
            ))),
        },
        PatchType::Merge => {
            let problems = duplicates.collect();
            let patch = merge(parsed.value, is_lenient).map_err(|why| match why {
                Some(why) => undecodable(&why),
                None => ApiError::bad_request("Invalid JSON Patch"),
            })?;
            Ok(SubmittedPatch { patch: Patch::Merge(patch), problems })
        }
        PatchType::Json => {
            let mut problems: Vec<String> = duplicates.filter(|one| is_of_known(one)).collect();
            let operations = operations(parsed.value, is_lenient, &mut problems)
                .map_err(|why| undecodable(&why))?;
            problems.sort_by_key(|problem| operation_of(problem));
            problems.truncate(PROBLEMS_LIMIT);
            problems.iter_mut().for_each(|problem| problem.insert_str(0, "json patch "));
            if operations.len() > OPERATIONS_LIMIT {
                let message = format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {}",
                    operations.len()
                );
                return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
            }
            Ok(SubmittedPatch { patch: Patch::json(operations), problems })
        }
    }
}

/// Parses an applied object: YAML, which includes JSON.
///
/// # Errors
/// 400 if the body is not an object.
pub(super) async fn read_applied(
    bytes: &Bytes,
    force: bool,
    (account, yaml): (&Account, &YamlParsers),
) -> Result<SubmittedApply, ApiError> {
    let undecodable = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let unconverted = |why: &str| undecodable(&format!("error converting YAML to JSON: {why}"));
    // Most clients send JSON, which is parsed in a tenth of the time.
    let (parsed, is_json) = match codec::from_json(bytes, account) {
        Ok(parsed) => (parsed, true),
        Err(ParseError::Refused(refused)) => return Err(refused),
        Err(ParseError::Malformed(_)) => {
            let parsed = yaml.parse(bytes.clone(), account).await;
            let parsed = parsed.map_err(|error| match error {
                ParseError::Refused(refused) => refused,
                ParseError::Malformed(why) => unconverted(&why),
            })?;
            (parsed, false)
        }
    };
    let mut tree = match parsed.value {
        Value::Object(tree) => tree,
        Value::Null => Tree::new(),
        other => {
            return Err(undecodable(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                go_type(&other)
            )));
        }
    };
    // In Go, numbers are serialized and parsed again: `1.0` is an integer.
    tree.values_mut().for_each(normalize_numbers_in_place);
    let problems = match parsed.duplicates.is_empty() {
        false if is_json => duplicate_keys::told_by_lines(bytes),
        _ => parsed.duplicates.iter().flat_map(|problem| repeated_keys(problem)).collect(),
    };
    Ok(SubmittedApply { tree, problems, force })
}

/// Returns the index of the operation that a problem is about: that of `duplicate field "[1].path"` is 1.
fn operation_of(problem: &str) -> usize {
    let number = problem.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    number.and_then(|(number, _)| number.parse().ok()).unwrap_or(usize::MAX)
}

/// Whether a duplicate field is a known field of an operation, or is inside of one. Other fields are only reported as
/// unknown.
fn is_of_known(problem: &str) -> bool {
    let name = problem.split_once("].").map_or("", |(_, path)| path);
    let name = name.split(['.', '[', '"']).next().unwrap_or_default();
    ["op", "path", "from", "value"].contains(&name)
}

/// The lines of go-yaml's message about repeated keys.
fn repeated_keys(problem: &str) -> Vec<String> {
    let lines = problem.strip_prefix(REPEATED_KEYS).unwrap_or(problem).lines();
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Returns a merge patch. The error is `None` where kube-apiserver has a fixed message.
fn merge(value: Value, is_lenient: bool) -> Result<Value, Option<String>> {
    match value {
        Value::Object(_) => Ok(value),
        Value::Array(_) if is_lenient => Ok(value),
        Value::Null => Err(None),
        _ if is_lenient => Err(None),
        other => Err(Some(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(&other)
        ))),
    }
}

/// Returns the operations of a JSON patch. In lenient mode kube-apiserver uses another parser, with other type names in
/// its errors. It checks the fields of an operation only when the operation is applied.
fn operations(
    value: Value,
    is_lenient: bool,
    problems: &mut Vec<String>,
) -> Result<Vec<Operation>, String> {
    let mismatch = |found: &Value, strict: &str, lenient: &str| {
        let expected = if is_lenient { lenient } else { strict };
        format!("json: cannot unmarshal {} into Go {expected}", go_type(found))
    };
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => {
            let types = ["value of type []handlers.jsonPatchOp", "value of type jsonpatch.Patch"];
            return Err(mismatch(&other, types[0], types[1]));
        }
    };
    let mut operations = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let members = match item {
            Value::Object(members) => members,
            Value::Null => Tree::new(),
            other => {
                let types =
                    ["value of type handlers.jsonPatchOp", "value of type jsonpatch.Operation"];
                return Err(mismatch(&other, types[0], types[1]));
            }
        };
        operations.push(Operation::read(members, |unfit| match unfit {
            Unfit::Unknown(name) => {
                if problems.len() < 2 * PROBLEMS_LIMIT {
                    problems.push(format!("unknown field \"[{index}].{name}\""));
                }
                Ok(())
            }
            Unfit::NoText(..) if is_lenient => Ok(()),
            Unfit::NoText(name, found) => {
                let field = format!("struct field jsonPatchOp.{name} of type string");
                Err(mismatch(found, &field, ""))
            }
        })?);
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::scale;

    fn read(patch_type: PatchType, text: &str) -> Result<SubmittedPatch, String> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        super::read(
            patch_type,
            &scale().unwrap().storage.schema,
            &bytes,
            FieldValidation::Warn,
            &Account::own(),
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn languages() {
        let of = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, given.parse().unwrap());
            patch_type(&headers, false, ManagedFields::Kept).ok()
        };
        assert_eq!(of("application/json-patch+json"), Some(PatchType::Json));
        assert_eq!(of("application/merge-patch+json;charset=utf-8"), Some(PatchType::Merge));
        for other in [
            "",
            "application/json",
            "application/Merge-patch+json",
            "application/merge-patch+json ;x=y",
            "application/strategic-merge-patch+json",
            "application/apply-patch+cbor",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(patch_type(&HeaderMap::new(), true, ManagedFields::Kept).is_err());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/apply-patch+yaml".parse().unwrap());
        assert_eq!(patch_type(&headers, true, ManagedFields::Kept).unwrap(), PatchType::Apply);
        let refused = patch_type(&headers, true, ManagedFields::Dropped).unwrap_err();
        assert!(!refused.to_string().contains("apply-patch"), "{refused}");
    }

    #[test]
    fn duplicate_and_unknown_patch_fields_are_reported() {
        let twice = read(PatchType::Merge, r#"{"spec":{"a":1,"a":2}}"#).unwrap();
        assert_eq!(twice.problems, ["duplicate field \"spec.a\""]);
        let text = r#"[{"op":"add","op":"test","path":"/a","value":1,"foo":1}]"#;
        let odd = read(PatchType::Json, text).unwrap();
        let expected =
            ["json patch duplicate field \"[0].op\"", "json patch unknown field \"[0].foo\""];
        assert_eq!(odd.problems, expected);
        assert!(read(PatchType::Json, "null").unwrap().problems.is_empty());
    }

    #[test]
    fn malformed_patches_are_rejected_with_the_errors_of_kubernetes() {
        for (patch_type, text, expected) in [
            (PatchType::Merge, "null", "Invalid JSON Patch"),
            (
                PatchType::Merge,
                "[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (PatchType::Merge, "", "error decoding patch: unexpected end of JSON input"),
            (
                PatchType::Json,
                "{}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                PatchType::Json,
                r#"[{"op":1}]"#,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (
                PatchType::Json,
                "[1]",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
        ] {
            assert_eq!(read(patch_type, text).unwrap_err(), expected, "{text}");
        }
        let many = format!("[{}]", vec!["{}"; OPERATIONS_LIMIT + 1].join(","));
        assert!(read(PatchType::Json, &many).unwrap_err().ends_with("is 10000, got 10001"));
    }
}
