//! Encoding of a tree as the JSON of an object.

use super::field_positions::FieldPositions;
use super::{Tree, write_json};

pub(super) struct Encoded {
    pub json: Vec<u8>,
    pub places: FieldPositions,
}

const VERSION: &str = "resourceVersion";
pub(super) const MANAGED_FIELDS: &str = "managedFields";

/// Writes the tree in byte order of its keys, and records the position of a resourceVersion in the metadata. The
/// position is after every key that sorts before `resourceVersion`; `name` is always one of these keys.
pub(super) fn encode(tree: &Tree, metadata: &Tree, managed_fields: Option<&[u8]>) -> Encoded {
    let mut encoded = Vec::with_capacity(512 + managed_fields.map_or(0, <[u8]>::len));
    let (mut splice, mut whole, mut of_managers) = (0, 0..0, 0..0);
    let json = &mut encoded;
    for (position, key) in sorted_keys(tree).into_iter().enumerate() {
        json.push(if position == 0 { b'{' } else { b',' });
        write_json(json, key);
        json.push(b':');
        if key != "metadata" {
            write_json(json, &tree[key]);
            continue;
        }
        let start = json.len();
        let mut keys = sorted_keys(metadata);
        let beside = MANAGED_FIELDS.to_owned();
        match (managed_fields, keys.binary_search(&&beside)) {
            (Some([]), Ok(place)) => drop(keys.remove(place)),
            (Some([_, ..]), Err(place)) => keys.insert(place, &beside),
            _ => {}
        }
        let mut first = true;
        for key in keys {
            if key == VERSION {
                continue;
            }
            if key.as_str() > VERSION && splice == 0 {
                splice = json.len();
            }
            json.push(if first { b'{' } else { b',' });
            first = false;
            write_json(json, key);
            json.push(b':');
            let start_of_value = json.len();
            match managed_fields.filter(|_| key == MANAGED_FIELDS) {
                Some(managed_fields) => json.extend_from_slice(managed_fields),
                None => write_json(json, &metadata[key]),
            }
            if key == MANAGED_FIELDS {
                of_managers = start_of_value..json.len();
            }
        }
        if splice == 0 {
            splice = json.len();
        }
        json.push(b'}');
        whole = start..json.len();
    }
    json.push(b'}');
    Encoded { places: FieldPositions::new(splice, whole, of_managers), json: encoded }
}

/// The keys of a tree in byte order. Trees are sorted already, unless a crate in the build enables insertion order in
/// serde_json.
fn sorted_keys(tree: &Tree) -> Vec<&String> {
    let mut keys: Vec<&String> = tree.keys().collect();
    keys.sort_unstable();
    keys
}
