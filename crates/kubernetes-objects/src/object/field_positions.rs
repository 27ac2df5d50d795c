//! The positions of fields in the JSON of an object.

use std::ops::Range;

/// The positions in the JSON of an object, in bytes. Each fits in 32 bits, because a request is limited to 3 MiB.
#[derive(Clone, Debug)]
pub(super) struct FieldPositions {
    splice: u32,
    metadata: Range<u32>,
    managed_fields: Range<u32>,
}

fn small(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl FieldPositions {
    pub fn new(splice: usize, metadata: Range<usize>, managed_fields: Range<usize>) -> Self {
        let both = |range: Range<usize>| small(range.start)..small(range.end);
        let (metadata, managed_fields) = (both(metadata), both(managed_fields));
        Self { splice: small(splice), metadata, managed_fields }
    }

    /// The position at which `,"resourceVersion":"…"` is inserted.
    pub fn splice(&self) -> usize {
        self.splice as usize
    }

    /// The range of the `{…}` of `metadata`.
    pub fn metadata(&self) -> Range<usize> {
        range(&self.metadata)
    }

    /// The range of the `[…]` of `metadata.managedFields`; empty if the object has none.
    pub fn managed_fields(&self) -> Range<usize> {
        range(&self.managed_fields)
    }
}

/// The uid of an object. It is a range of the JSON, unless the JSON contains it with escapes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Uid {
    Within(Range<u32>),
    Apart(Box<str>),
}

impl Uid {
    pub fn within(json: &[u8], places: &FieldPositions, uid: &str) -> Self {
        const MEMBER: &str = "\"uid\":\"";
        let member = [MEMBER, uid, "\""].concat();
        let metadata = places.metadata();
        let found =
            json.get(metadata.clone()).and_then(|json| super::find_last(json, member.as_bytes()));
        found.map_or_else(
            || Self::Apart(uid.into()),
            |found| {
                let start = metadata.start + found + MEMBER.len();
                Self::Within(small(start)..small(start + uid.len()))
            },
        )
    }

    /// The uid of an object that shares its JSON. The uid is unique to the object, so the patch contains it whole.
    pub fn in_patch(patch: &[u8], uid: &str) -> Self {
        let scalar = ["\"", uid, "\""].concat();
        let found = super::find(patch, scalar.as_bytes());
        found.map_or_else(
            || Self::Apart(uid.into()),
            |found| Self::Within(small(found + 1)..small(found + 1 + uid.len())),
        )
    }

    /// The same uid in an object whose metadata begin at another offset.
    pub fn moved(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Within(place) => {
                let moved = |place: u32| small((place as usize + to).saturating_sub(from));
                Self::Within(moved(place.start)..moved(place.end))
            }
            Self::Apart(uid) => Self::Apart(uid.clone()),
        }
    }

    /// The offset of the uid in the JSON or the patch, unless it is stored apart.
    pub fn place(&self) -> Option<usize> {
        match self {
            Self::Within(place) => Some(place.start as usize),
            Self::Apart(_) => None,
        }
    }

    /// The uid of an object with this JSON or this patch.
    pub fn text<'a>(&'a self, json: &'a [u8]) -> &'a str {
        match self {
            Self::Within(place) => {
                json.get(range(place)).and_then(|uid| str::from_utf8(uid).ok()).unwrap_or_default()
            }
            Self::Apart(uid) => uid,
        }
    }
}
