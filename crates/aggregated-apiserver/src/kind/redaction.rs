//! Redaction: which fields of an object are left out for a caller who lacks a right to what they come from.
//!
//! There is one object for all callers. What some of them are not shown is taken out of it for them, by paths that are
//! known from the start, so nothing of a reader is in what is computed, in its revisions, or in the order of its changes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

use super::Kind;
use crate::object::{Object, Tree};
use crate::schema::Type;

/// The rights that may be missing, as bits: that to the first protected lookup is the lowest.
pub type MissingRights = u8;

/// How many rights a kind may ask for besides those on its sources: what is missing is a part of the
/// resourceVersions that a caller is given, and there is room for so many.
pub const MOST_RIGHTS: usize = 6;

/// The fields of a kind that are shown to those alone who have a right, by the right.
#[derive(Debug, Default)]
pub struct ProtectedFields {
    by_right: Vec<Vec<FieldSteps>>,
    /// Objects of which something was left out, of all kinds of the server.
    redacted: Arc<RedactedObjects>,
}

/// A way to a field: `status.claims[*].phase`.
#[derive(Debug)]
struct FieldSteps(Box<[FieldStep]>);

#[derive(Debug)]
struct FieldStep {
    name: Box<str>,
    /// Whether it leads on into each item of a list.
    is_each: bool,
    /// Whether an object need not have it. What must be there stays, emptied.
    is_optional: bool,
}

impl ProtectedFields {
    /// The fields at these paths, by right.
    ///
    /// # Errors
    /// When there are too many rights, or a path leads to nothing that may be left out; says what is wrong with each.
    pub fn parse(kind: &Kind, by_right: &[Vec<String>]) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        if by_right.len() > MOST_RIGHTS {
            let many = by_right.len();
            faults.push(format!(
                "disclosures: {many} rights are asked for, and {MOST_RIGHTS} may be: declare what may be shown to all readers"
            ));
        }
        let steps = |path: &String| {
            let steps = FieldSteps::parse(kind, path);
            let is_demanded =
                |steps: &FieldSteps| steps.0.last().is_some_and(|one| !one.is_optional);
            match steps {
                Ok(steps) if is_demanded(&steps) => {
                    Err(format!("disclosures: {path}: is required, so it cannot be left out"))
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

    /// What is wrong with paths of fields that all readers are shown.
    pub fn faults_of_shown(kind: &Kind, paths: &[String]) -> Vec<String> {
        paths.iter().filter_map(|path| FieldSteps::parse(kind, path).err()).collect()
    }

    /// What is left out for a caller who lacks these rights; `None` if that is nothing.
    pub fn redaction(self: &Arc<Self>, missing: MissingRights) -> Option<Redaction> {
        (missing != 0).then(|| Redaction { fields: Arc::clone(self), missing })
    }

    /// All rights that may be missing.
    pub fn rights(&self) -> MissingRights {
        self.by_right.iter().fold(0, |rights, _| rights << 1 | 1)
    }

    /// Takes out of a tree what is protected by these rights.
    pub fn take_out(&self, tree: &mut Tree, missing: MissingRights) {
        for (_, fields) in self.of(missing) {
            for FieldSteps(steps) in fields {
                take_out(tree, steps);
            }
        }
    }

    fn of(&self, missing: MissingRights) -> impl Iterator<Item = (usize, &Vec<FieldSteps>)> {
        let is_missing = move |place: usize| {
            // More rights than there are bits do not pass the start.
            u32::try_from(place).ok().and_then(|place| missing.checked_shr(place)).unwrap_or(0) & 1
                == 1
        };
        self.by_right.iter().enumerate().filter(move |(place, _)| is_missing(*place))
    }
}

impl FieldSteps {
    /// A path as it is written, held against the version of storage.
    fn parse(kind: &Kind, path: &str) -> Result<Self, String> {
        let fault = |what: &str| format!("disclosures: {path}: {what}");
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

/// Takes a field out of a tree. What holds nothing then is taken out too, if it need not be there, so that it does not
/// say that there was something.
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

/// What is left out for a caller.
#[derive(Clone, Debug)]
pub struct Redaction {
    fields: Arc<ProtectedFields>,
    missing: MissingRights,
}

impl Redaction {
    /// The rights that are missing.
    pub fn missing(&self) -> MissingRights {
        self.missing
    }

    /// Whether it changes what objects are labelled with.
    pub fn changes_labels(&self) -> bool {
        let mut fields = self.fields.of(self.missing).flat_map(|(_, fields)| fields);
        fields.any(|FieldSteps(steps)| steps.first().is_some_and(|step| &*step.name == "metadata"))
    }

    /// An object as the caller is shown it, made once for all who ask for the same within a moment.
    /// `None` if that is no object any more, which no path leads to.
    pub fn apply(&self, object: &Arc<Object>) -> Option<Arc<Object>> {
        let redacted = &self.fields.redacted;
        if let Some(shown) = redacted.lock().find(object, self.missing) {
            return Some(shown);
        }
        let mut tree = object.to_tree();
        self.fields.take_out(&mut tree, self.missing);
        let shown = Object::from_tree(&tree).and_then(|shown| shown.still_is(object)).ok()?;
        // Of which nothing was left out.
        let shown = match shown.same_content(object) {
            true => Arc::clone(object),
            false => Arc::new(shown.of_shape(object.shape())),
        };
        // What is forgotten may be large: others do not wait until it is freed.
        let forgotten = redacted.lock().add(object, self.missing, &shown);
        drop(forgotten);
        Some(shown)
    }
}

/// What objects that are remembered may take, in bytes, of all kinds of a server together.
const BYTES: usize = 4 << 20;
/// How many are remembered.
const COUNT: usize = 64;

/// Objects that something was left out of a moment ago: what is asked of one, whether it is selected and how it is
/// written, by one reader after the other, is asked of the same.
#[derive(Default)]
struct Remembered {
    /// The one that was made first is in front.
    all: VecDeque<Redacted>,
    bytes: usize,
}

struct Redacted {
    /// While it is referred to, nothing else has its address.
    whole: Weak<Object>,
    missing: MissingRights,
    shown: Arc<Object>,
}

/// Objects that something was left out of, of all kinds of a server.
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

    /// Remembers an object. Answers what is forgotten instead.
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
    fn what_a_missing_right_protects_is_taken_out() {
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
        // What must be there stays without its members, and what need not be there goes.
        let first = json!({"ready": "1/1", "claims": emptied, "cpu": {}, "memory": {"usage": "2"}});
        assert_eq!(shown(1), first);
        let second = json!({"ready": "1/1", "claims": claimed, "cpu": {"usage": "1"}});
        assert_eq!(shown(2), second);
        assert_eq!(shown(3), json!({"ready": "1/1", "claims": emptied, "cpu": {}}));
    }

    #[test]
    fn whether_there_was_something_cannot_be_told() {
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
    fn what_is_forgotten_is_handed_out() {
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
    fn paths_that_lead_nowhere_are_faults() {
        let check = |path: &str, expected: &str| {
            let said = fields(&[&[path]]).unwrap_err();
            assert_eq!(said, [format!("disclosures: {path}: {expected}")]);
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
