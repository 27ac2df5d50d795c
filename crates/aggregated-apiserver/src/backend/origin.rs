//! The metadata that a backend omits: the stored metadata, and a uid, a creation time and a generation for objects whose
//! backend has none.

use serde::{Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use super::metadata_store::StoredMetadata;
use super::objects;
use crate::kind::Kind;
use crate::object::{Key, Object, Tree, metadata};

/// The fields of the metadata that the library sets in each response.
pub(super) const OF_RESPONSES: [&str; 2] = ["resourceVersion", "selfLink"];

/// The metadata of an object that the backend omits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Omitted<'a> {
    /// No metadata is known.
    Nothing,
    /// The stored metadata. It is not used for another object that has the same name.
    Stored(&'a StoredMetadata),
    /// The metadata of the object that the backend has received in this call.
    Sent(&'a Tree),
}

/// The origins of the metadata that a backend omits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former<'a> {
    pub omitted: Omitted<'a>,
    /// The known object of the same name.
    pub known: Option<&'a Object>,
    /// The creation time of an object of which nothing is known. `None` if objects get no creation time and no
    /// generation.
    pub now: Option<&'a str>,
    /// Whether the backend stores the generations that the library has counted.
    pub keeps_generation: bool,
}

impl Former<'_> {
    /// No metadata is known, and none is added but a uid.
    pub(super) const UNKNOWN: Former<'static> =
        Former { omitted: Omitted::Nothing, known: None, now: None, keeps_generation: false };
}

/// Adds the metadata that the backend omits, but not the generation. `kept` are the fields that the backend stores.
pub(super) fn add_metadata(kind: &Kind, tree: &mut Tree, former: Former<'_>, kept: &[String]) {
    let key = objects::key(tree);
    let created = metadata::text(tree, "creationTimestamp").to_owned();
    let omitted = match former.omitted {
        Omitted::Nothing => Tree::new(),
        Omitted::Stored(stored) if is_other(tree, stored) => Tree::new(),
        Omitted::Stored(stored) => stored.metadata.clone(),
        Omitted::Sent(sent) => sent.clone(),
    };
    metadata::edit(tree, |metadata| {
        for field in OF_RESPONSES {
            metadata.remove(field);
        }
        metadata.retain(|_, value| !value.is_null());
        for (field, value) in omitted {
            let is_added = !OF_RESPONSES.contains(&&*field) && field != "generation";
            if is_added && !kept.contains(&field) {
                metadata.entry(field).or_insert(value);
            }
        }
        metadata.entry("uid").or_insert_with(|| uid(kind, &key, &created).into());
    });
    let Some(now) = former.now else { return };
    if metadata::text(tree, "creationTimestamp").is_empty() {
        // The creation time of another object that had the same name is not used.
        let known = known(tree, former).map(|known| known.to_tree());
        let seen = known.as_ref().map(|known| metadata::text(known, "creationTimestamp"));
        let created = seen.filter(|seen| !seen.is_empty()).unwrap_or(now).to_owned();
        metadata::edit(tree, |metadata| {
            metadata.insert("creationTimestamp".to_owned(), created.into());
        });
    }
}

/// Whether an object has another uid or another creation time than the stored metadata: it was deleted and created again.
fn is_other(tree: &Tree, stored: &StoredMetadata) -> bool {
    let differs = |field| {
        let (one, other) = (metadata::text(tree, field), stored.metadata.get(field));
        let other = other.and_then(Value::as_str).unwrap_or_default();
        !one.is_empty() && !other.is_empty() && one != other
    };
    differs("uid") || !stored.is_first_seen && differs("creationTimestamp")
}

/// A uid for an object whose backend has none. It is the same in every process.
fn uid(kind: &Kind, key: &Key, created: &str) -> String {
    let name = format!("{}/{key}/{created}", kind.qualified());
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}

/// The known object, if it has the uid of this object.
fn known<'a>(tree: &Tree, former: Former<'a>) -> Option<&'a Object> {
    former.known.filter(|known| known.uid() == metadata::text(tree, "uid"))
}

/// Sets the generation. A change that another program has made increments it, same as an update through the server. A
/// generation of a backend that counts itself takes precedence. All other metadata of the object is set already.
///
/// If a generation is stored, replicas agree: each of them compares the object with the hash that is stored with the
/// generation, so only the first one increments it.
pub(super) fn add_generation(kind: &Kind, tree: &mut Tree, former: Former<'_>) {
    let given = generation_of(metadata::of(tree));
    let is_final = given.is_some() && !former.keeps_generation;
    if is_final || former.now.is_none() || !kind.strategy.has_generation {
        return;
    }
    let known = known(tree, former).map(Object::to_tree);
    let known = known.as_ref().map(|known| Known {
        generation: generation_of(metadata::of(known)).unwrap_or(1),
        is_same: kind.storage.counted_fields(tree).eq(kind.storage.counted_fields(known)),
    });
    let generation = match former.omitted {
        Omitted::Sent(sent) => generation_of(sent).map(|sent| after_write(sent, known)),
        Omitted::Stored(stored) if !is_other(tree, stored) => {
            let hash = content_hash(kind, tree);
            generation_of(&stored.metadata).map(|generation| {
                let is_stored = stored.content_hash.as_ref().map(|stored| *stored == hash);
                after_read((generation, is_stored), known)
            })
        }
        Omitted::Nothing | Omitted::Stored(_) => None,
    };
    let counted = known.map_or(1, Known::next);
    // The generation of an object never decreases.
    let generation =
        generation.unwrap_or_else(|| given.map_or(counted, |given| given.max(counted)));
    metadata::edit(tree, |metadata| {
        metadata.insert("generation".to_owned(), generation.into());
    });
}

/// The known object, compared with its present state.
#[derive(Clone, Copy, Debug)]
struct Known {
    generation: i64,
    /// Whether no field has changed that counts.
    is_same: bool,
}

impl Known {
    fn next(self) -> i64 {
        self.generation.saturating_add(i64::from(!self.is_same))
    }
}

/// The generation after a write of a client, which has sent this generation. If it has sent no change that counts, the
/// change is that of another program.
fn after_write(sent: i64, known: Option<Known>) -> i64 {
    known.filter(|known| known.generation == sent).map_or(sent, Known::next)
}

/// The generation of an object that was read, with the stored generation and whether the stored hash is that of the
/// object; `None` if no hash is stored.
fn after_read((stored, is_stored): (i64, Option<bool>), known: Option<Known>) -> i64 {
    match (is_stored, known) {
        (Some(true), _) | (None, None) => stored,
        // The stored generation is that of another state: another replica has seen a change first, or a write has
        // failed.
        (_, Some(known)) if known.is_same => known.generation,
        (_, Some(known)) => Known { generation: known.generation.max(stored), ..known }.next(),
        // The object has changed while no replica was running.
        (Some(false), None) => stored.saturating_add(1),
    }
}

/// The generation in the metadata of an object.
pub(super) fn generation_of(metadata: &Tree) -> Option<i64> {
    metadata.get("generation").and_then(Value::as_i64)
}

/// A hash of the fields whose changes increment the generation. It is the same in every process.
pub(super) fn content_hash(kind: &Kind, tree: &Tree) -> String {
    let json = serde_json::to_vec(&CountedFields { kind, tree }).unwrap_or_default();
    Uuid::new_v5(&Uuid::NAMESPACE_URL, &json).to_string()
}

/// The fields of an object whose changes increment the generation.
struct CountedFields<'a> {
    kind: &'a Kind,
    tree: &'a Tree,
}

impl Serialize for CountedFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.kind.storage.counted_fields(self.tree))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_grow_once_for_a_change_of_another_program() {
        let known = |generation, is_same| Some(Known { generation, is_same });
        // The stored generation and its hash, the known object, and the result.
        let rows = [
            ((4, Some(true)), None, 4),
            ((4, Some(true)), known(3, false), 4),
            ((4, Some(true)), known(4, true), 4),
            ((4, Some(false)), known(3, true), 3),
            ((4, Some(false)), known(3, false), 5),
            ((4, Some(false)), known(4, false), 5),
            ((4, Some(false)), known(5, true), 5),
            ((4, Some(false)), known(5, false), 6),
            ((4, Some(false)), None, 5),
            ((4, None), None, 4),
            ((4, None), known(4, false), 5),
        ];
        for (stored, known, expected) in rows {
            assert_eq!(after_read(stored, known), expected, "{stored:?} {known:?}");
        }
        assert_eq!(after_write(1, None), 1);
        assert_eq!(after_write(2, known(1, false)), 2, "the client has changed the object");
        assert_eq!(after_write(2, known(2, true)), 2);
        assert_eq!(after_write(2, known(2, false)), 3, "the client has changed only metadata");
    }
}
