//! Tests of changes of an existing object.

use super::*;

/// An existing object, and the store that contains it.
struct There {
    world: World,
    tree: Tree,
    revision: Revision,
}

fn live(metadata: Value) -> There {
    let Value::Object(tree) = tree(metadata) else { unreachable!() };
    live_in(kind(), tree)
}

fn live_in(kind: Kind, tree: Tree) -> There {
    let world = World::new(kind);
    let revision = world.keep(&tree);
    There { world, tree, revision }
}

fn tree(metadata: Value) -> Value {
    let mut kept = json!({
        "name": "a", "namespace": "default", "uid": "u", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    for (key, value) in metadata.as_object().unwrap() {
        kept[key] = value.clone();
    }
    foo(kept, json!({"size": 1}))
}

impl There {
    fn write(&self, part: Part, change: Change) -> Result<Written, ApiError> {
        self.world.write((Some("a"), part), change, FieldValidation::Strict)
    }

    /// The object as it is stored now.
    fn now(&self) -> Option<Tree> {
        let collection = Collection::new(&self.world.served.kind.collection());
        let key = Key::new(Some("default"), "a");
        let kept = at_once(self.world.store.get(&collection, &key)).unwrap();
        kept.map(|kept| kept.object.to_tree())
    }
}

/// Applies a merge patch to the object.
fn patched(live: &There, patch: Value) -> Result<Written, ApiError> {
    let submitted = SubmittedPatch { patch: Patch::Merge(patch), problems: Vec::new() };
    live.write(Part::Main, Change::Patch(Ok(submitted)))
}

fn kept(written: Written) -> Tree {
    written.versioned.object.to_tree()
}

#[test]
fn the_generation_counts_changes_of_the_content() {
    let generation = |patch: Value| {
        let live = live(json!({}));
        let tree = kept(patched(&live, patch).unwrap());
        tree["metadata"]["generation"].as_i64().unwrap()
    };
    assert_eq!(generation(json!({})), 3);
    assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}, "generation": 9}})), 3);
    assert_eq!(generation(json!({"spec": {"size": 2}})), 4);
    assert_eq!(generation(json!({"spec": {"size": 1}})), 3);
}

#[test]
fn patches_cannot_change_system_metadata() {
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
fn a_patch_with_an_empty_stale_or_malformed_resource_version_is_rejected() {
    let live = live(json!({}));
    let current = live.revision.to_string();
    let outcome = |revision: Value| {
        let patch = json!({"metadata": {"resourceVersion": revision}});
        patched(&live, patch).map(drop).map_err(|error| (error.reason(), error.to_string()))
    };
    assert!(outcome(json!(current)).is_ok());
    assert!(outcome(json!(format!("00{current}"))).is_ok());
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
fn unchanged_invalid_fields_do_not_block_an_update() {
    let mut tree = tree(json!({}));
    tree["spec"] = json!({"size": 99, "mode": "a"});
    let live = live_in(kind(), tree.as_object().unwrap().clone());
    assert!(patched(&live, json!({"spec": {"mode": "b"}})).is_ok());
    let message = patched(&live, json!({"spec": {"size": 98}})).unwrap_err().to_string();
    assert!(message.contains("spec.size in body should be less than or equal to 10"), "{message}");
}

#[test]
fn finalizers_cannot_be_added_to_an_object_being_deleted() {
    let gone = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        "finalizers": ["x/one", "x/two"],
    });
    let live = live(gone);
    let with = |finalizers: Value| patched(&live, json!({"metadata": {"finalizers": finalizers}}));
    let message = with(json!(["x/one", "x/new", "x/b"])).unwrap_err().to_string();
    assert!(message.ends_with("found new finalizers []string{\"x/b\", \"x/new\"}"), "{message}");
    // A patch cannot remove the deletion mark.
    let patch = json!({"metadata": {"deletionTimestamp": null}});
    assert_eq!(kept(patched(&live, patch).unwrap()), live.tree);
    with(json!(["x/two"])).unwrap();
    assert!(live.now().is_some());
    assert_eq!(with(json!(null)).unwrap().versioned.object.key().name(), "a");
    assert_eq!(live.now(), None);
}

#[test]
fn finalizers_and_the_propagation_policy_delay_a_deletion() {
    let clock =
        Clock::new(|| "2026-01-01T00:00:00.5Z".parse().unwrap(), || Uuid::from_u128(7), || 7);
    let marked = |finalizers: Value, propagation| {
        let live = live(json!({"finalizers": finalizers}));
        let object = Object::from_tree(&live.tree).unwrap();
        let options = MarkOptions { propagation, ..MarkOptions::default() };
        mark(&object, &Strategy::default(), &options, &clock).unwrap().map(|object| {
            let again = mark(&object, &Strategy::default(), &options, &clock).unwrap().unwrap();
            assert!(again.same_content(&object), "{again:?}");
            object.to_tree()["metadata"].clone()
        })
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
fn a_patch_that_results_in_an_invalid_object_is_rejected() {
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

/// A kind with the subresources `status` and `scale`.
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
    let there = || {
        let mut tree = tree(json!({}));
        tree["status"] = json!({"size": 3});
        live_in(scalable(), tree.as_object().unwrap().clone())
    };
    let change = |spec: Value, status: Value, part| {
        let live = there();
        let mut tree = live.tree.clone();
        tree.insert("spec".to_owned(), spec);
        tree.insert("status".to_owned(), status);
        let metadata = tree.get_mut("metadata").unwrap();
        metadata["labels"] = json!({"a": "b"});
        metadata["resourceVersion"] = live.revision.to_string().into();
        live.write(part, Change::Update(Submitted::new(tree, Vec::new())))
    };
    let main = kept(change(json!({"size": 2}), json!({"size": 4}), Part::Main).unwrap());
    assert_eq!(main["spec"], json!({"size": 2}));
    assert_eq!(main["status"], json!({"size": 3}));
    assert_eq!(main["metadata"]["generation"], 4);
    let status = kept(change(json!({"size": -2}), json!({"size": 4}), Part::Status).unwrap());
    assert_eq!(status["spec"], json!({"size": 1}));
    assert_eq!(status["status"], json!({"size": 4}));
    assert_eq!(status["metadata"], there().tree["metadata"]);
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
fn a_scale_update_sets_the_replicas_field_and_rejects_invalid_input() {
    let there = |spec: Value| {
        let mut tree = tree(json!({}));
        tree["spec"] = spec;
        tree["status"] = json!({"size": 3, "selector": "app=a"});
        live_in(scalable(), tree.as_object().unwrap().clone())
    };
    let wanted = |change: Value| {
        let live = there(json!({"size": 1}));
        let mut metadata = json!({"name": "a", "resourceVersion": live.revision.to_string()});
        if change["metadata"].is_object() {
            metadata = change["metadata"].clone();
        }
        let mut scale = change;
        scale["metadata"] = metadata;
        let Value::Object(tree) = scale else { unreachable!() };
        let written = live.write(Part::Scale, Change::Update(Submitted::new(tree, Vec::new())))?;
        Ok::<_, ApiError>((live.now().unwrap(), kept(written)))
    };
    let (tree, scale) = wanted(json!({"spec": {"replicas": 5}})).unwrap();
    assert_eq!(tree["spec"], json!({"size": 5}));
    assert_eq!(scale["spec"], json!({"replicas": 5}));
    assert_eq!(scale["status"], json!({"replicas": 3, "selector": "app=a"}));
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "9"}});
    assert_eq!(wanted(stale).unwrap_err().reason(), Reason::Conflict);
    assert_eq!(wanted(json!({})).unwrap().0["spec"], json!({"size": 0}));
    for none in [
        json!({"kind": "Sheep"}),
        json!({"spec": {"replicas": 2_147_483_648_u64}}),
        json!({"spec": {"replicas": 1.5}}),
        json!({"spec": {"odd": 1}}),
        json!({"spec": 5}),
    ] {
        assert_eq!(wanted(none.clone()).unwrap_err().reason(), Reason::BadRequest, "{none}");
    }
    let live = there(json!({}));
    let patch = SubmittedPatch { patch: Patch::Merge(json!({})), problems: Vec::new() };
    let error = live.write(Part::Scale, Change::Patch(Ok(patch))).unwrap_err().to_string();
    assert!(error.ends_with("the spec replicas field \".spec.size\" cannot be empty"), "{error}");
    let error = scale_of(
        &live.world.served.kind,
        &live.world.served.kind.storage,
        &Versioned {
            revision: live.revision,
            object: Object::from_tree(&live.tree).unwrap().into(),
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("the spec replicas field \".spec.size\" does not exist"), "{error}");
}

#[test]
fn a_restore_preserves_metadata_and_status_but_not_the_deletion_mark() {
    let restored = |change: &dyn Fn(&mut Value)| {
        let world = World::new(scalable());
        let mut tree = tree(json!({"resourceVersion": "9"}));
        tree["status"] = json!({"size": 3});
        change(&mut tree);
        let Value::Object(tree) = tree else { unreachable!() };
        let (served, version) = (&world.served, &world.served.kind.storage);
        at_once(restore(served, version, tree.clone(), &world.clock))?;
        let collection = Collection::new(&served.kind.collection());
        let kept = at_once(world.store.get(&collection, &Key::new(Some("default"), "a")));
        let again = at_once(restore(served, version, tree, &world.clock)).unwrap_err();
        assert_eq!(again.reason(), Reason::AlreadyExists);
        Ok::<_, ApiError>(kept.unwrap().unwrap().object.to_tree())
    };
    let mut expected = tree(json!({}));
    expected["status"] = json!({"size": 3});
    assert_eq!(Value::Object(restored(&|_| {}).unwrap()), expected);
    // Missing metadata is generated.
    let nothing = restored(&|tree| {
        tree["metadata"] = json!({"name": "a", "namespace": "default", "creationTimestamp": null});
    });
    let metadata = nothing.unwrap()["metadata"].clone();
    assert_eq!(metadata["uid"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["generation"], 1);
    assert!(restored(&|tree| tree["status"]["size"] = json!(11)).is_err());
    // The restored object is not being deleted.
    let held = restored(&|tree| {
        tree["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        tree["metadata"]["finalizers"] = json!(["x/hold"]);
    });
    assert!(held.unwrap()["metadata"].get("deletionTimestamp").is_none());
}
