//! The key and the uid of a computed object.

use serde_json::Value;
use uuid::Uuid;

use super::variant::Variant;
use super::{FanOut, SourceNaming};
use crate::cluster::SourceType;
use crate::definition::qualified;
use crate::object::names::check_path_segment;
use crate::object::{Key, Tree};

/// The UUID namespace of computed objects: their uids are version 5 UUIDs of the source's uid and the kind.
const UIDS: Uuid = Uuid::from_u128(0x6f1a_4c9e_52d3_4b58_9c07_1d9b_3a6e_80f4);

/// The uid of an object. It depends on the source and the kind; if a source may have several objects, also on the key
/// of the object.
pub(super) fn uid<V: Variant>(source: &V::Source, metadata: &Tree) -> Uuid {
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = qualified::<V::Object>();
    let own_place = || {
        let (namespace, name) = (source.namespace(), source.name());
        format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
    };
    let uid = source.uid().unwrap_or_else(|| own_place().into());
    let name = match V::FAN_OUT {
        FanOut::One => format!("{uid}/{kind}"),
        _ => format!("{uid}/{kind}/{}/{}", text("namespace"), text("name")),
    };
    Uuid::new_v5(&UIDS, name.as_bytes())
}

/// Checks that an object has a namespace and a name that belong to its source, and returns its key. Permissions are
/// checked on the source that the name and namespace of an object lead to, so an object elsewhere would circumvent them.
///
/// A name belongs to the first variant whose `source_name` accepts it: otherwise two variants would replace each
/// other's object.
pub(super) fn check_authority<V: Variant>(
    source: &V::Source,
    (namespace, name): (Option<&str>, &str),
    earlier: &[SourceNaming],
) -> Result<Key, String> {
    for (field, value) in [("namespace", namespace.unwrap_or_default()), ("name", name)] {
        if let Some(problem) = check_path_segment(value).first() {
            return Err(format!("its {field} is {value:?}, but it {problem}"));
        }
    }
    let key = Key::new(namespace, name);
    if V::FAN_OUT == FanOut::AnyNamespace {
        if key.namespace().is_none() {
            return Err(format!("it has no namespace: {key}"));
        }
    } else if key.namespace() != source.namespace() {
        return Err(format!("its namespace is not that of its source: {key}"));
    }
    if V::source_name(key.name()).as_deref() != source.name() {
        return Err(format!("source_name does not lead from {key} to its source"));
    }
    if let Some((resource, _)) = earlier.iter().find(|(_, name_of)| name_of(key.name()).is_some()) {
        return Err(format!("the name of {key} belongs to the variant with the source {resource}"));
    }
    Ok(key)
}
