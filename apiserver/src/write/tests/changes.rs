//! What becomes of an object that is there.

use crate::quota::Account;
use std::sync::LazyLock;

use super::*;
use crate::user::User;

/// Nobody in particular writes.
fn context() -> RuleContext<'static> {
    static NOBODY: LazyLock<User> = LazyLock::new(User::default);
    RuleContext::new(&NOBODY, jiff::Timestamp::UNIX_EPOCH, false)
}

/// An object that is kept, at revision 5.
fn live(metadata: Value) -> Live {
    let mut kept = json!({
        "name": "a", "namespace": "default", "uid": "u", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    for (key, value) in metadata.as_object().unwrap() {
        kept[key] = value.clone();
    }
    let Value::Object(tree) = foo(kept, json!({"size": 1})) else { unreachable!() };
    Live { tree, revision: "5".to_owned(), size: 0 }
}

/// What becomes of the object when a merge patch is applied to it.
fn patched(live: &Live, patch: Value) -> Result<PreparedChange, ApiError> {
    let kind = kind();
    let submitted = SubmittedPatch { patch: Patch::Merge(patch), problems: Vec::new() };
    let strict = FieldValidation::Strict;
    let mut room = Account::own().room(0)?;
    let decoded = apply_patch(&kind, &kind.storage, &submitted, live, strict, &mut room)?;
    prepare_change(&kind, &kind.storage, live, decoded, Part::Main, &context())
}

fn kept(prepared: PreparedChange) -> Tree {
    match prepared.change {
        Change::Kept(object) => object.to_tree(),
        Change::Gone(_) => panic!("it is gone"),
    }
}

#[test]
fn the_generation_has_generation_of_the_content() {
    let live = live(json!({}));
    let generation = |patch: Value| {
        let tree = kept(patched(&live, patch).unwrap());
        tree["metadata"]["generation"].as_i64().unwrap()
    };
    assert_eq!(generation(json!({})), 3);
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}, "generation": 9}})), 3);
    assert_eq!(generation(json!({"spec": {"size": 2}})), 4);
    assert_eq!(generation(json!({"spec": {"size": 1}})), 3);
}

#[test]
fn what_only_the_system_sets_stays() {
    let live = live(json!({}));
    let metadata = json!({
        "creationTimestamp": null, "generation": null, "uid": null, "selfLink": "/x",
        "managedFields": [{}],
    });
    let tree = kept(patched(&live, json!({"metadata": metadata})).unwrap());
    assert_eq!(tree, live.tree);
    let refused =
        |metadata: Value| patched(&live, json!({"metadata": metadata})).unwrap_err().to_string();
    for (metadata, expected) in [
        (json!({"uid": "other"}), "metadata.uid: Invalid value: \"other\": field is immutable"),
        (
            json!({"deletionGracePeriodSeconds": 3}),
            "metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable",
        ),
        (
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            "metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable",
        ),
    ] {
        let message = refused(metadata);
        assert_eq!(message, format!("Foo.example.com \"a\" is invalid: {expected}"));
    }
}

#[test]
fn who_changes_an_object_has_seen_it() {
    let live = live(json!({}));
    let outcome = |revision: Value| {
        let patch = json!({"metadata": {"resourceVersion": revision}});
        patched(&live, patch).map(drop).map_err(|error| (error.reason(), error.to_string()))
    };
    assert!(outcome(json!("5")).is_ok());
    assert!(outcome(json!("005")).is_ok());
    for nothing in [json!(null), json!(""), json!("0"), json!("00")] {
        let (reason, message) = outcome(nothing).unwrap_err();
        assert_eq!(reason, Reason::Invalid);
        assert!(message.ends_with("Invalid value: 0: must be specified for an update"));
    }
    assert_eq!(outcome(json!("4")).unwrap_err().0, Reason::Conflict);
    for none in ["x", "-5", "+5", "5 ", "99999999999999999999"] {
        assert_eq!(outcome(json!(none)).unwrap_err().0, Reason::BadRequest, "{none}");
    }
}

#[test]
fn what_was_wrong_before_may_stay() {
    let mut live = live(json!({}));
    live.tree["spec"] = json!({"size": 99, "mode": "a"});
    assert!(patched(&live, json!({"spec": {"mode": "b"}})).is_ok());
    let message = patched(&live, json!({"spec": {"size": 98}})).unwrap_err().to_string();
    assert!(message.contains("spec.size in body should be less than or equal to 10"), "{message}");
}

#[test]
fn an_object_that_goes_gains_no_finalizers() {
    let gone = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        "finalizers": ["x/one", "x/two"],
    });
    let live = live(gone);
    let with = |finalizers: Value| patched(&live, json!({"metadata": {"finalizers": finalizers}}));
    let message = with(json!(["x/one", "x/new", "x/b"])).unwrap_err().to_string();
    assert!(message.ends_with("found new finalizers []string{\"x/b\", \"x/new\"}"), "{message}");
    assert!(matches!(with(json!(["x/two"])).unwrap().change, Change::Kept(_)));
    assert!(matches!(with(json!(null)).unwrap().change, Change::Gone(_)));
    // Nothing takes the mark away.
    let patch = json!({"metadata": {"deletionTimestamp": null}});
    assert_eq!(kept(patched(&live, patch).unwrap()), live.tree);
}

#[test]
fn what_holds_an_object() {
    let ambient =
        Ambient::given(|| "2026-01-01T00:00:00.5Z".parse().unwrap(), || Uuid::from_u128(7), || 7);
    let marked = |finalizers: Value, propagation| {
        let live = live(json!({"finalizers": finalizers}));
        let object = Object::from_tree(&live.tree).unwrap();
        let options = DeletionOptions { propagation, ..DeletionOptions::default() };
        mark(&object, &crate::kind::Strategy::default(), &options, &ambient).unwrap().map(
            |object| {
                let again = mark(&object, &crate::kind::Strategy::default(), &options, &ambient)
                    .unwrap()
                    .unwrap();
                assert!(again.same_content(&object), "{again:?}");
                object.to_tree()["metadata"].clone()
            },
        )
    };
    let held = marked(json!(["x/hold"]), None).unwrap();
    assert_eq!(held["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(held["deletionGracePeriodSeconds"], 0);
    assert_eq!(held["generation"], 4);
    let finalizers = |before: Value, propagation| {
        marked(before, propagation).map(|metadata| metadata["finalizers"].clone())
    };
    let (background, foreground, orphan) =
        (Some(Propagation::Background), Some(Propagation::Foreground), Some(Propagation::Orphan));
    assert_eq!(finalizers(json!([]), None), None);
    assert_eq!(finalizers(json!([]), background), None);
    assert_eq!(finalizers(json!([]), foreground), Some(json!(["foregroundDeletion"])));
    assert_eq!(finalizers(json!(["x/y"]), orphan), Some(json!(["x/y", "orphan"])));
    assert_eq!(finalizers(json!(["orphan"]), None), Some(json!(["orphan"])));
    assert_eq!(finalizers(json!(["orphan"]), background), None);
    let both = finalizers(json!(["orphan", "x/y"]), foreground);
    assert_eq!(both, Some(json!(["x/y", "foregroundDeletion"])));
}

#[test]
fn a_patch_that_makes_no_object_is_refused() {
    let live = live(json!({}));
    for (patch, expected) in [
        (json!([1]), "couldn't get version/kind"),
        (json!({"kind": null}), "Object 'Kind' is missing in"),
        (json!({"metadata": {"labels": 5}}), "json: cannot unmarshal number into Go struct field"),
        (json!({"odd": 1}), "strict decoding error: unknown field \"odd\""),
    ] {
        let error = patched(&live, patch).unwrap_err();
        assert_eq!(error.reason(), Reason::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = patched(&live, json!({"kind": "Sheep", "apiVersion": "v1"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Sheep \"a\" is invalid: [kind: Invalid value: \"Sheep\": must be Foo, apiVersion: Invalid value: \"v1\": must be example.com/v1]"
    );
}

/// A kind whose status is written apart, and that can be scaled.
fn scalable() -> Kind {
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
                    "labelSelectorPath": ".status.selector",
                }},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {
                        "size": {"type": "integer", "maximum": 10}, "selector": {"type": "string"},
                    }},
                }}},
            }],
        },
    });
    Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap()
}

#[test]
fn a_status_is_written_apart() {
    let kind = scalable();
    let mut live = live(json!({}));
    live.tree.insert("status".to_owned(), json!({"size": 3}));
    let change = |spec: Value, status: Value, part| {
        let mut tree = live.with_revision();
        tree.insert("spec".to_owned(), spec);
        tree.insert("status".to_owned(), status);
        tree.get_mut("metadata").unwrap()["labels"] = json!({"a": "b"});
        let decoded = Decoded { tree, is_kind: true, warnings: Vec::new() };
        prepare_change(&kind, &kind.storage, &live, decoded, part, &context())
    };
    let main = kept(change(json!({"size": 2}), json!({"size": 4}), Part::Main).unwrap());
    assert_eq!(main["spec"], json!({"size": 2}));
    assert_eq!(main["status"], json!({"size": 3}));
    assert_eq!(main["metadata"]["generation"], 4);
    let status = kept(change(json!({"size": -2}), json!({"size": 4}), Part::Status).unwrap());
    assert_eq!(status["spec"], json!({"size": 1}));
    assert_eq!(status["status"], json!({"size": 4}));
    assert_eq!(status["metadata"], live.tree["metadata"]);
    let error = change(json!({}), json!({"size": 11}), Part::Status).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "status.size: Invalid value: 11: size in body should be less than or equal to 10"
        ),
        "{error}"
    );
    let error = change(json!({"size": -1}), json!({}), Part::Main).unwrap_err().to_string();
    assert!(
        error.ends_with(".spec.size: Invalid value: -1: should be a non-negative integer"),
        "{error}"
    );
}

#[test]
fn replicas_are_said_in_one_way() {
    let kind = scalable();
    let paths = kind.storage.subresources.scale.as_ref().unwrap();
    let mut live = live(json!({}));
    live.tree.insert("status".to_owned(), json!({"size": 3, "selector": "app=a"}));
    let scale = scale_of(paths, &live.tree).unwrap().to_tree();
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"], json!({"replicas": 3, "selector": "app=a"}));
    let wanted = |tree: Value| {
        let Value::Object(tree) = tree else { unreachable!() };
        let submitted = Submitted { tree, duplicates: Vec::new() };
        let wanted = Wanted::submitted(submitted, FieldValidation::Strict)?;
        Ok::<_, ApiError>(wanted.applied_to(paths, &live).tree)
    };
    let metadata = json!({"name": "a", "resourceVersion": "9"});
    let tree = wanted(json!({"metadata": metadata, "spec": {"replicas": 5}})).unwrap();
    assert_eq!(tree["spec"], json!({"size": 5}));
    assert_eq!(tree["metadata"]["resourceVersion"], "9");
    assert_eq!(wanted(json!({})).unwrap()["spec"], json!({"size": 0}));
    for none in [
        json!({"kind": "Sheep"}),
        json!({"spec": {"replicas": 2_147_483_648_u64}}),
        json!({"spec": {"replicas": 1.5}}),
        json!({"spec": {"odd": 1}}),
        json!({"spec": 5}),
    ] {
        assert!(wanted(none.clone()).is_err(), "{none}");
    }
    live.tree.insert("spec".to_owned(), json!({}));
    let error = scale_of(paths, &live.tree).unwrap_err().to_string();
    assert!(error.ends_with("the spec replicas field \".spec.size\" does not exist"), "{error}");
}

#[test]
fn an_object_that_a_store_begins_with_keeps_its_status() {
    let kind = scalable();
    let ambient =
        Ambient::given(|| "2026-01-01T00:00:00Z".parse().unwrap(), || Uuid::from_u128(7), || 7);
    let begin = |status: Value| {
        let mut tree = foo(json!({"name": "a", "namespace": "default", "uid": "u"}), json!({}));
        tree["status"] = status;
        let Value::Object(tree) = tree else { unreachable!() };
        prepare_initial(&kind, &kind.storage, tree, None, &ambient)
    };
    let tree = begin(json!({"size": 3})).unwrap().to_tree();
    assert_eq!((&tree["status"], &tree["metadata"]["uid"]), (&json!({"size": 3}), &json!("u")));
    assert!(begin(json!({"size": 11})).is_err());
}
