//! Redaction: fields of a computed object are omitted for callers without permission on the objects that they come
//! from.
//!
//! There is one object for all callers. Fields are removed from it per caller, by paths that are fixed at startup. The
//! computed objects, their revisions and the order of their changes therefore do not depend on readers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

use super::Kind;
use crate::object::{Object, Tree};
use crate::schema::Type;

/// A set of missing permissions as bits; the lowest bit is the permission on the first protected lookup.
pub type MissingRights = u8;

/// The largest number of permissions that a kind may require besides those on its sources. The missing permissions are
/// a part of the resourceVersions that a caller receives, which have this many bits for them.
pub const MOST_RIGHTS: usize = 6;

/// The protected fields of a kind, by the permission that they require.
#[derive(Debug, Default)]
pub struct ProtectedFields {
    by_right: Vec<Vec<FieldSteps>>,
    /// A cache of redacted objects, shared by all kinds of the server.
    redacted: Arc<RedactedObjects>,
}

/// The path of a field: `status.claims[*].phase`.
#[derive(Debug)]
struct FieldSteps(Box<[FieldStep]>);

#[derive(Debug)]
struct FieldStep {
    name: Box<str>,
    /// Whether the path continues in each element of a list.
    is_each: bool,
    /// Whether the field is optional. A required field is emptied instead of removed.
    is_optional: bool,
}

impl ProtectedFields {
    /// Parses the paths of the fields of each permission.
    ///
    /// # Errors
    /// If there are too many permissions, or if a path does not lead to a field that may be omitted. There is one error
    /// per path.
    pub fn parse(kind: &Kind, by_right: &[Vec<String>]) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        if by_right.len() > MOST_RIGHTS {
            let many = by_right.len();
            faults.push(format!(
                "field_permissions: {many} rights are asked for, and {MOST_RIGHTS} may be: declare what may be shown to all readers"
            ));
        }
        let steps = |path: &String| {
            let steps = FieldSteps::parse(kind, path);
            let is_demanded =
                |steps: &FieldSteps| steps.0.last().is_some_and(|one| !one.is_optional);
            match steps {
                Ok(steps) if is_demanded(&steps) => {
                    Err(format!("field_permissions: {path}: is required, so it cannot be left out"))
                }
                steps => steps,
            }
        };
        let steps = |path| steps(path).map_err(|fault| faults.push(fault)).ok();
        let mut steps = steps;
        let fields = by_right.iter().map(|paths| paths.iter().filter_map(&mut steps).collect());
        let (by_right, redacted) = (fields.collect(), Arc::clone(&kind.shown().redacted));
        if faults.is_empty() { Ok(Self { by_right, redacted }) } else { Err(faults) }
    }

    /// The errors in the paths of fields that are visible to all readers.
    pub fn faults_of_shown(kind: &Kind, paths: &[String]) -> Vec<String> {
        paths.iter().filter_map(|path| FieldSteps::parse(kind, path).err()).collect()
    }

    /// The redaction for a caller without these permissions; `None` if no permission is missing.
    pub fn redaction(self: &Arc<Self>, missing: MissingRights) -> Option<Redaction> {
        (missing != 0).then(|| Redaction { fields: Arc::clone(self), missing })
    }

    /// All permissions that can be missing.
    pub fn rights(&self) -> MissingRights {
        self.by_right.iter().fold(0, |rights, _| rights << 1 | 1)
    }

    /// Removes the fields that these permissions protect.
    pub fn take_out(&self, tree: &mut Tree, missing: MissingRights) {
        for (_, fields) in self.of(missing) {
            for FieldSteps(steps) in fields {
                take_out(tree, steps);
            }
        }
    }

    fn of(&self, missing: MissingRights) -> impl Iterator<Item = (usize, &Vec<FieldSteps>)> {
        let is_missing = move |place: usize| {
            // Startup fails with more permissions than there are bits.
            u32::try_from(place).ok().and_then(|place| missing.checked_shr(place)).unwrap_or(0) & 1
                == 1
        };
        self.by_right.iter().enumerate().filter(move |(place, _)| is_missing(*place))
    }
}

impl FieldSteps {
    /// Parses a path and checks it against the storage version.
    fn parse(kind: &Kind, path: &str) -> Result<Self, String> {
        let fault = |what: &str| format!("field_permissions: {path}: {what}");
        let names: Vec<&str> = path.split('.').collect();
        if let [first @ ("apiVersion" | "kind" | "metadata"), rest @ ..] = &names[..] {
            return match (*first, rest) {
                ("metadata", [name @ ("labels" | "annotations")]) => {
                    Ok(Self(["metadata", name].map(FieldStep::optional).into()))
                }
                _ => Err(fault(
                    "of what an object is called only metadata.labels and metadata.annotations may be named",
                )),
            };
        }
        let mut of = kind.storage.schema.root();
        let mut steps = Vec::with_capacity(names.len());
        for (place, written) in names.iter().enumerate() {
            let name = written.strip_suffix("[*]").unwrap_or(written);
            let is_each = name.len() != written.len();
            if is_each && place + 1 == names.len() {
                return Err(fault("leads to all items of a list: name the list"));
            }
            let is_optional = !is_required(of, name);
            let below = of.of_member(name).ok_or_else(|| fault("there is no such field"))?;
            let below = if is_each { below.of_items() } else { Some(below) };
            of = below.ok_or_else(|| fault("leads through something that is no list"))?;
            steps.push(FieldStep { name: name.into(), is_each, is_optional });
        }
        Ok(Self(steps.into()))
    }
}

impl FieldStep {
    fn optional(name: &str) -> Self {
        Self { name: name.into(), is_each: false, is_optional: true }
    }
}

fn is_required(of: Type<'_>, name: &str) -> bool {
    of.constraints().is_some_and(|constraints| constraints.required.iter().any(|one| one == name))
}

/// Removes a field from a tree. An optional object that becomes empty is removed too, so that it does not reveal that
/// the field existed.
fn take_out(tree: &mut Tree, steps: &[FieldStep]) {
    let Some((step, rest)) = steps.split_first() else { return };
    if rest.is_empty() {
        tree.remove(&*step.name);
        return;
    }
    match tree.get_mut(&*step.name) {
        Some(Value::Object(below)) if !step.is_each => {
            take_out(below, rest);
            if below.is_empty() && step.is_optional {
                tree.remove(&*step.name);
            }
        }
        Some(Value::Array(items)) if step.is_each => {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                take_out(item, rest);
            }
        }
        _ => {}
    }
}

/// The fields that are omitted for a caller.
#[derive(Clone, Debug)]
pub struct Redaction {
    fields: Arc<ProtectedFields>,
    missing: MissingRights,
}

impl Redaction {
    /// The missing permissions.
    pub fn missing(&self) -> MissingRights {
        self.missing
    }

    /// Whether the redaction changes the labels of objects.
    pub fn changes_labels(&self) -> bool {
        let mut fields = self.fields.of(self.missing).flat_map(|(_, fields)| fields);
        fields.any(|FieldSteps(steps)| steps.first().is_some_and(|step| &*step.name == "metadata"))
    }

    /// Redacts an object for the caller. The result is cached for a moment for other callers with the same permissions.
    /// `None` if the result is not a valid object, which cannot happen with a valid path.
    pub fn apply(&self, object: &Arc<Object>) -> Option<Arc<Object>> {
        let redacted = &self.fields.redacted;
        if let Some(shown) = redacted.lock().find(object, self.missing) {
            return Some(shown);
        }
        let mut tree = object.to_tree();
        self.fields.take_out(&mut tree, self.missing);
        let shown = Object::from_tree(&tree).and_then(|shown| shown.still_is(object)).ok()?;
        // The object is unchanged if it had none of the fields.
        let shown = match shown.same_content(object) {
            true => Arc::clone(object),
            false => Arc::new(shown.of_shape(object.shape())),
        };
        // Evicted objects can be large, so they are freed after the lock has been released.
        let forgotten = redacted.lock().add(object, self.missing, &shown);
        drop(forgotten);
        Some(shown)
    }
}

/// The memory limit of the cache in bytes, for all kinds of a server.
const BYTES: usize = 4 << 20;
/// The largest number of cached objects.
const COUNT: usize = 64;

/// Recently redacted objects: each reader needs an object several times, to match selectors and to encode it, and other
/// readers need the same object next.
#[derive(Default)]
struct Remembered {
    /// The oldest entry is at the front.
    all: VecDeque<Redacted>,
    bytes: usize,
}

struct Redacted {
    /// As long as this reference exists, the address is not used again.
    whole: Weak<Object>,
    missing: MissingRights,
    shown: Arc<Object>,
}

/// A cache of redacted objects, shared by all kinds of a server.
#[derive(Default)]
pub struct RedactedObjects(Mutex<Remembered>);

impl RedactedObjects {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedactedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactedObjects").finish_non_exhaustive()
    }
}

impl Remembered {
    fn find(&self, whole: &Arc<Object>, missing: MissingRights) -> Option<Arc<Object>> {
        let is_it =
            |one: &&Redacted| one.whole.as_ptr() == Arc::as_ptr(whole) && one.missing == missing;
        self.all.iter().rev().find(is_it).map(|one| Arc::clone(&one.shown))
    }

    /// Adds an object. Returns the evicted ones.
    #[must_use]
    fn add(
        &mut self,
        whole: &Arc<Object>,
        missing: MissingRights,
        shown: &Arc<Object>,
    ) -> Vec<Redacted> {
        self.bytes += shown.size();
        let mut forgotten = Vec::new();
        let whole = Arc::downgrade(whole);
        self.all.push_back(Redacted { whole, missing, shown: Arc::clone(shown) });
        while (self.bytes > BYTES || self.all.len() > COUNT)
            && let Some(first) = self.all.pop_front()
        {
            self.bytes -= first.shown.size();
            forgotten.push(first);
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind() -> Kind {
        let text = json!({"type": "string"});
        let amount = json!({"type": "object", "properties": {"request": text, "usage": text}});
        let item = json!({
            "type": "object", "required": ["name"],
            "properties": {"name": text, "phase": text},
        });
        let status = json!({
            "type": "object", "required": ["ready", "cpu"],
            "properties": {
                "ready": text, "cpu": amount, "memory": amount,
                "claims": {"type": "array", "items": item},
            },
        });
        let schema = json!({"type": "object", "properties": {"status": status}});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap()
    }

    fn fields(by_right: &[&[&str]]) -> Result<Arc<ProtectedFields>, Vec<String>> {
        let owned = |paths: &&[&str]| paths.iter().map(ToString::to_string).collect();
        let by_right: Vec<Vec<String>> = by_right.iter().map(owned).collect();
        ProtectedFields::parse(&kind(), &by_right).map(Arc::new)
    }

    fn object(status: &Value) -> Arc<Object> {
        let tree = json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
            "status": status,
        });
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    }

    #[test]
    fn fields_protected_by_a_missing_permission_are_removed() {
        let fields = fields(&[
            &["status.claims[*].phase", "status.cpu.usage"],
            &["status.memory.usage", "metadata.labels"],
        ]);
        let fields = fields.unwrap();
        let claims = json!([{"name": "c", "phase": "Bound"}, {"name": "d"}]);
        let whole = object(&json!({
            "ready": "1/1", "claims": claims,
            "cpu": {"usage": "1"}, "memory": {"usage": "2"},
        }));
        assert!(fields.redaction(0).is_none());
        let shown = |missing| {
            let redaction = fields.redaction(missing).unwrap();
            let shown = redaction.apply(&whole).unwrap();
            assert!(Arc::ptr_eq(&shown, &redaction.apply(&whole).unwrap()), "it is remembered");
            assert_eq!(redaction.changes_labels(), shown.labels().iter().next().is_none());
            assert_eq!((shown.key(), shown.uid()), (whole.key(), whole.uid()));
            shown.to_tree()["status"].clone()
        };
        let (emptied, claimed) = (json!([{"name": "c"}, {"name": "d"}]), &claims);
        // A required field stays without its content, and an optional field is removed.
        let first = json!({"ready": "1/1", "claims": emptied, "cpu": {}, "memory": {"usage": "2"}});
        assert_eq!(shown(1), first);
        let second = json!({"ready": "1/1", "claims": claimed, "cpu": {"usage": "1"}});
        assert_eq!(shown(2), second);
        assert_eq!(shown(3), json!({"ready": "1/1", "claims": emptied, "cpu": {}}));
    }

    #[test]
    fn redaction_hides_whether_a_protected_field_was_set() {
        let fields = fields(&[&["status.memory.usage"]]).unwrap();
        let redaction = fields.redaction(1).unwrap();
        let shown = |memory: Value| {
            let whole = object(&json!({"ready": "", "cpu": {}, "memory": memory}));
            redaction.apply(&whole).unwrap().to_tree()
        };
        assert_eq!(shown(json!({"usage": "1"})), shown(json!({})));
        let whole = object(&json!({"ready": "", "cpu": {}}));
        assert_eq!(shown(json!({"usage": "1"})), whole.to_tree());
        assert!(Arc::ptr_eq(&redaction.apply(&whole).unwrap(), &whole), "nothing is left out");
    }

    #[test]
    fn evicted_redacted_objects_are_returned_oldest_first() {
        let mut remembered = Remembered::default();
        let objects = (0..COUNT + 2).map(|number| object(&json!({"ready": number.to_string()})));
        let objects: Vec<_> = objects.collect();
        let mut forgotten = Vec::new();
        for whole in &objects {
            forgotten.extend(remembered.add(whole, 1, whole));
        }
        let shown = |one: &Redacted| Arc::clone(&one.shown);
        let forgotten: Vec<_> = forgotten.iter().map(shown).collect();
        assert!(forgotten.iter().zip(&objects).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!((forgotten.len(), remembered.all.len()), (2, COUNT));
        let bytes = remembered.all.iter().map(|one| one.shown.size()).sum::<usize>();
        assert_eq!(remembered.bytes, bytes);
    }

    #[test]
    fn invalid_paths_of_protected_fields_are_rejected() {
        let check = |path: &str, expected: &str| {
            let said = fields(&[&[path]]).unwrap_err();
            assert_eq!(said, [format!("field_permissions: {path}: {expected}")]);
        };
        check("status.usage", "there is no such field");
        check("status.ready", "is required, so it cannot be left out");
        check("status.claims[*].name", "is required, so it cannot be left out");
        check("status.claims[*]", "leads to all items of a list: name the list");
        check("status.cpu[*].usage", "leads through something that is no list");
        check("status.claims.phase", "there is no such field");
        let of_metadata = "of what an object is called only metadata.labels and metadata.annotations may be named";
        check("metadata.name", of_metadata);
        check("metadata", of_metadata);
        check("kind", of_metadata);
        let many: Vec<&[&str]> = vec![&["status.memory"]; MOST_RIGHTS + 1];
        assert!(fields(&many).unwrap_err()[0].contains("7 rights are asked for, and 6 may be"));
        assert!(fields(&many[1..]).is_ok());
    }
}
