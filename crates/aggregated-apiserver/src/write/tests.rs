//! Tests of writes: creates, and their errors.

mod changes;
mod managers;
mod quotas;

use std::sync::Arc;

use super::pipeline::Written;
use super::*;
use crate::admission::AdmissionChain;
use crate::clock::Clock;
use crate::error::{ApiError, Reason};
use crate::kind::{Kind, Strategy};
use crate::object::{Key, Object};
use crate::quota::Account;
use crate::served_kind::{Backing, CommitGate, CreateGate, ServedKind, ServedKinds};
use crate::storage::{
    Collection, Commit, LogReader, MEMORY_STORE_LIMIT, MemoryStore, NamespaceLimit, Precondition,
    Revision, RevisionSequencer, Store, StoreError, Versioned,
};
use crate::user::User;
use crate::watch_cache::{WINDOW_LIMIT, WatchCache};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn kind() -> Kind {
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1, "maximum": 10},
                        "weight": {"type": "number", "nullable": true},
                        "mode": {"type": "string", "enum": ["a", "b"], "maxLength": 5},
                        "list": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
                        "map": {"type": "object", "additionalProperties": {"type": "string"}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }}}],
        },
    });
    Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap()
}

/// A store with one kind, without admission plugins.
struct World {
    served: ServedKind,
    store: Arc<MemoryStore>,
    clock: Clock,
    user: User,
    account: Account,
}

impl World {
    fn new(kind: Kind) -> Self {
        let now = || "2026-01-01T00:00:00.5Z".parse().unwrap();
        let sequencer = Arc::new(RevisionSequencer::starting(now(), 7));
        let cache = Arc::new(WatchCache::new(Arc::clone(&sequencer), WINDOW_LIMIT));
        let store =
            Arc::new(MemoryStore::new(MEMORY_STORE_LIMIT, sequencer, NamespaceLimit::default()));
        let served = ServedKind {
            kind: Arc::new(kind),
            cache,
            backing: Backing::Stored(store.clone()),
            visibility: None,
            ended: CancellationToken::new(),
            create_gate: CreateGate::default(),
            gate: CommitGate::default(),
            unavailable: None,
            came_at_run_time: false,
        };
        let clock = Clock::new(now, || Uuid::from_u128(7), || 7);
        Self { served, store, clock, user: User::default(), account: Account::own() }
    }

    /// Stores an object without validation, and returns its revision.
    fn keep(&self, tree: &Tree) -> Revision {
        self.keep_object(Object::from_tree(tree).unwrap())
    }

    fn keep_object(&self, object: Object) -> Revision {
        let commit = Commit {
            collection: Collection::new(&self.served.kind.collection()),
            key: object.key().clone(),
            expected: Precondition::Absent,
            object: Some(Arc::new(object)),
            marks: false,
        };
        at_once(self.store.commit(commit)).unwrap()
    }

    /// Writes the object called `name`, or creates one.
    fn write(
        &self,
        target: (Option<&str>, Part),
        change: Change,
        field_validation: FieldValidation,
    ) -> Result<Written, ApiError> {
        self.write_as(&restore::AlwaysAllow, target, change, field_validation)
    }

    /// Same as `write`, with the permissions of `authorizer`.
    fn write_as(
        &self,
        authorizer: &dyn CreateAuthorizer,
        (name, part): (Option<&str>, Part),
        change: Change,
        field_validation: FieldValidation,
    ) -> Result<Written, ApiError> {
        let options = WriteOptions { field_validation, ..WriteOptions::default() };
        let (admission, kinds) = (AdmissionChain::default(), ServedKinds::default());
        let turns = SlowWrites::default();
        let attributes = Attributes {
            served: &self.served,
            version: &self.served.kind.storage,
            part,
            namespace: Some("default"),
            name,
            options: &options,
            user: &self.user,
            now: self.clock.now(),
            origin: Origin::Request,
            account: &self.account,
            environment: Environment {
                clock: &self.clock,
                admission: &admission,
                kinds: &kinds,
                turns: &turns,
                unsettled: &UnsettledWrites::default(),
                managed_fields: ManagedFields::default(),
            },
            authorizer,
            section: &CriticalSection::default(),
            audit: None,
        };
        at_once(write(&attributes, change))
    }
}

/// The future must be ready at once, because a store in memory never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn prepare(tree: Value, field_validation: FieldValidation) -> Result<Written, ApiError> {
    let Value::Object(tree) = tree else { panic!("not an object") };
    let submitted = Submitted::new(tree, Vec::new());
    World::new(kind()).write((None, Part::Main), Change::Create(submitted), field_validation)
}

fn foo(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata, "spec": spec})
}

fn refused(metadata: Value, spec: Value) -> String {
    prepare(foo(metadata, spec), FieldValidation::Strict).unwrap_err().to_string()
}

#[test]
fn a_create_sets_system_metadata_and_ignores_client_values() {
    let metadata = json!({
        "name": "a", "uid": "mine", "generation": 9, "creationTimestamp": null,
        "deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {"x": null}, "annotations": {},
        "managedFields": [{}], "selfLink": "/x", "resourceVersion": "0",
    });
    let prepared = prepare(foo(metadata, json!({"size": 1})), FieldValidation::Strict).unwrap();
    assert_eq!(
        Value::Object(prepared.versioned.object.to_tree()),
        json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {
                "name": "a", "namespace": "default", "labels": {"x": ""}, "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{
                    "manager": "unknown", "operation": "Update",
                    "apiVersion": "example.com/v1", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {
                        "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
                        "f:spec": {".": {}, "f:size": {}},
                    },
                }],
                "uid": "00000000-0000-0000-0000-000000000007",
            },
            "spec": {"size": 1},
        })
    );
}

#[test]
fn generates_names() {
    let prefix = format!("{}-", "a".repeat(70));
    let prepared =
        prepare(foo(json!({"generateName": prefix}), json!({"size": 1})), FieldValidation::Strict);
    let prepared = prepared.unwrap();
    assert_eq!(prepared.versioned.object.key().name().len(), 63);
    let both = foo(json!({"generateName": "x-", "name": "a"}), json!({"size": 1}));
    let both = prepare(both, FieldValidation::Strict).unwrap();
    assert_eq!(both.versioned.object.key().name(), "a");
}

#[test]
fn unknown_fields() {
    let spec = json!({"size": 1, "odd": 1, "list": [{"y": 1}], "map": {"k": "v"}, "free": {"any": {"thing": 1}}});
    let tree = || foo(json!({"name": "a", "odd": 1}), spec.clone());
    let warned = prepare(tree(), FieldValidation::Warn).unwrap();
    let expected = [
        "unknown field \"metadata.odd\"",
        "unknown field \"spec.list[0].y\"",
        "unknown field \"spec.odd\"",
    ];
    assert_eq!(warned.warnings, expected);
    assert_eq!(
        warned.versioned.object.to_tree()["spec"],
        json!({"size": 1, "list": [{}], "map": {"k": "v"}, "free": {"any": {"thing": 1}}})
    );
    assert!(prepare(tree(), FieldValidation::Ignore).unwrap().warnings.is_empty());
    assert_eq!(
        prepare(tree(), FieldValidation::Strict).unwrap_err().to_string(),
        "Foo in version \"v1\" cannot be handled as a Foo: strict decoding error: unknown field \"metadata.odd\", unknown field \"spec.list[0].y\", unknown field \"spec.odd\""
    );
}

#[test]
fn nulls() {
    let spec = json!({"size": 1, "weight": null, "mode": null});
    let prepared = prepare(foo(json!({"name": "a"}), spec), FieldValidation::Strict).unwrap();
    assert_eq!(prepared.versioned.object.to_tree()["spec"], json!({"size": 1, "weight": null}));
}

#[test]
fn the_schema_names_the_field() {
    let rows = [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1.5}),
            "[spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\", <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.size]",
        ),
        (
            json!({"size": 11}),
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 1, "mode": "c"}),
            "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"size": 1, "list": [{}, {}, {}]}),
            "spec.list: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"size": 1, "list": [{"x": 1}]}),
            "spec.list[0].x: Invalid value: \"integer\": spec.list[0].x in body must be of type boolean: \"integer\"",
        ),
        (
            json!({"size": 1, "map": {"k": 1}}),
            "spec.map.k: Invalid value: \"integer\": spec.map.k in body must be of type string: \"integer\"",
        ),
        (
            json!(5),
            "spec: Invalid value: \"integer\": spec in body must be of type object: \"integer\"",
        ),
    ];
    for (spec, expected) in rows {
        let expected = format!("Foo.example.com \"a\" is invalid: {expected}");
        assert_eq!(refused(json!({"name": "a"}), spec), expected);
    }
    let many = refused(json!({"name": "a"}), json!({"size": 1, "mode": "toolong"}));
    assert!(many.starts_with("Foo.example.com \"a\" is invalid: [spec.mode: Too long"), "{many}");
}

#[test]
fn the_metadata_names_the_field() {
    let check = |metadata: Value, expected: &str| {
        let message = refused(metadata, json!({"size": 1}));
        assert!(message.contains(expected), "{message}");
    };
    check(
        json!({}),
        "Foo.example.com \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    check(
        json!({"name": "A"}),
        "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
    );
    check(json!({"generateName": "AB-"}), "[metadata.generateName: Invalid value: \"AB-\":");
    check(
        json!({"name": "a", "labels": {"-": "v"}}),
        "metadata.labels: Invalid value: \"-\": name part",
    );
    check(
        json!({"name": "a", "labels": {"k": "-"}}),
        "metadata.labels: Invalid value: \"-\": a valid label",
    );
    check(
        json!({"name": "a", "annotations": {"k": "x".repeat(263_000)}}),
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    );
    check(
        json!({"name": "a", "finalizers": ["x/"]}),
        "metadata.finalizers: Invalid value: \"x/\": name part must be non-empty",
    );
    check(
        json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]}),
        "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
    );
    check(
        json!({"name": "a", "namespace": "other"}),
        "the namespace of the provided object does not match",
    );
    check(
        json!({"name": "a", "resourceVersion": "7"}),
        "resourceVersion should not be set on objects to be created",
    );
    check(
        json!({"name": "a", "labels": {"k": 1}}),
        "Foo in version \"v1\" cannot be handled as a Foo: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
    );
    check(json!("text"), "json: cannot unmarshal string into Go value of type v1.ObjectMeta");
}

#[test]
fn an_object_of_another_kind_is_rejected() {
    let tree = json!({"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "a"}, "odd": 1});
    assert_eq!(
        prepare(tree, FieldValidation::Strict).unwrap_err().to_string(),
        "Other.example.com \"a\" is invalid: kind: Invalid value: \"Other\": must be Foo"
    );
}

#[test]
fn the_error_for_many_controller_references_is_limited_in_size() {
    let owner = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "name": "x".repeat(5_000),
            "uid": number.to_string(), "controller": true,
        })
    };
    let owners: Vec<Value> = (0..100).map(owner).collect();
    let message = refused(json!({"name": "a", "ownerReferences": owners}), json!({"size": 1}));
    assert!(message.len() < 2_000_000, "{}", message.len());
    assert!(message.contains("Only one reference can have Controller set to true"));
}

/// A user that may update objects, but not create them.
struct Updater;

impl CreateAuthorizer for Updater {
    fn authorize_create(&self) -> BoxFuture<'_, Result<(), ApiError>> {
        let refused = ApiError::forbidden("example.com", "foos", "a", "jane cannot create");
        std::future::ready(Err(refused)).boxed()
    }
}

#[test]
fn an_update_that_creates_an_object_needs_create_permission() {
    let strategy = Strategy { allows_create_on_update: true, ..Strategy::default() };
    let world = World::new(kind().with_strategy(strategy));
    let put = |authorizer: &dyn CreateAuthorizer, size: i64, part| {
        let Value::Object(tree) = foo(json!({"name": "a"}), json!({"size": size})) else {
            unreachable!()
        };
        let change = Change::Update(Submitted::new(tree, Vec::new()));
        world.write_as(authorizer, (Some("a"), part), change, FieldValidation::Strict)
    };
    let refused = |size| put(&Updater, size, Part::Main).unwrap_err().reason();
    // kube-apiserver validates before it authorizes the create.
    assert_eq!((refused(1), refused(99)), (Reason::Forbidden, Reason::Invalid));
    let status = put(&restore::AlwaysAllow, 1, Part::Status).unwrap_err();
    assert_eq!(status.reason(), Reason::NotFound);
    assert!(put(&restore::AlwaysAllow, 1, Part::Main).unwrap().is_created);
    // Once the object exists, this is an ordinary update without a resourceVersion.
    assert_eq!(refused(2), Reason::Invalid);
}

/// A store that closes the definition of the kind during each commit.
struct Closing(MemoryStore, CreateGate);

impl Store for Closing {
    fn get<'a>(
        &'a self,
        collection: &'a Collection,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
        self.0.get(collection, key)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.1.close();
        self.0.commit(commit)
    }

    fn follow(
        &self,
        collection: &Collection,
        reader: Arc<dyn LogReader>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.follow(collection, reader)
    }

    fn collections(&self) -> Vec<Collection> {
        self.0.collections()
    }

    fn sequencer(&self) -> Arc<RevisionSequencer> {
        self.0.sequencer()
    }
}

#[test]
fn an_object_created_while_its_definition_closes_is_removed() {
    let mut world = World::new(kind());
    let sequencer = Arc::new(RevisionSequencer::starting(world.clock.now(), 7));
    let store = MemoryStore::new(MEMORY_STORE_LIMIT, sequencer, NamespaceLimit::default());
    let store = Arc::new(Closing(store, world.served.create_gate.clone()));
    world.served.backing = Backing::Stored(store.clone());
    let Value::Object(tree) = foo(json!({"name": "a"}), json!({"size": 1})) else { unreachable!() };
    let create = Change::Create(Submitted::new(tree, Vec::new()));
    let refused = world.write((None, Part::Main), create, FieldValidation::Ignore);
    assert_eq!(refused.unwrap_err().reason(), Reason::Forbidden);
    let collection = Collection::new(&world.served.kind.collection());
    assert!(at_once(store.get(&collection, &Key::new(Some("default"), "a"))).unwrap().is_none());
}

/// An object that an old definition has validated is not committed after another definition has replaced it.
#[tokio::test]
async fn writes_under_a_replaced_definition_are_rejected_with_429() {
    let world = World::new(kind());
    let gate = world.served.gate.clone();
    let entered = gate.enter().unwrap();
    let closing = tokio::spawn({
        let gate = gate.clone();
        async move { gate.close().await }
    });
    while gate.enter().is_some() {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished(), "a commit has gone through and has not ended");
    drop(entered);
    closing.await.unwrap();
    let Value::Object(tree) = foo(json!({"name": "a"}), json!({"size": 1})) else { unreachable!() };
    let create = Change::Create(Submitted::new(tree, Vec::new()));
    let refused = world.write((None, Part::Main), create, FieldValidation::Ignore).unwrap_err();
    assert_eq!(refused.reason(), Reason::TooManyRequests);
    assert_eq!(refused.retry_after_seconds(), Some(1));
}
