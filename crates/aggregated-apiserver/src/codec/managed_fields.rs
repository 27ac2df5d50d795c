//! Parses the `metadata.managedFields` of an object without a tree of values. They make up half of the object, and
//! nearly always the client sends them back unchanged.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The JSON of `metadata.managedFields` in the format of servers: it contains nothing that would be dropped, rejected
/// or encoded differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsText {
    /// The whole list, as JSON.
    pub text: Bytes,
    /// The entries, at least one.
    pub entries: Vec<ManagedFieldsEntry>,
}

/// An entry of `metadata.managedFields`. No string except the subresource is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// The apiVersion, for example `example.com/v1`.
    pub api_version: String,
    /// The name of the field manager.
    pub manager: String,
    /// Whether the operation is `Apply`; otherwise it is `Update`.
    pub is_applied: bool,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The time, in the format of Go.
    pub time: String,
    /// The position of the fields, a JSON object, in `text`.
    pub fields: Range<usize>,
}

/// The largest number of entries, and the largest size of a string in bytes, with which `managedFields` are parsed
/// here. Servers write about ten entries.
const ENTRIES_LIMIT: usize = 64;
const TEXT_LIMIT: usize = 512;

/// Entries that were found in a document, and their memory addresses. They are addresses because a deserializer does
/// not report positions.
pub(super) struct Met {
    entries: Vec<ManagedFieldsEntry>,
    /// From the first string of the first entry to the last string of the last entry.
    texts: Range<usize>,
}

impl Met {
    /// Parses the entries; `None` if one of them has an unusual format. A deserializer that has failed here cannot
    /// continue.
    pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Option<Self> {
        let entries = deserializer.deserialize_seq(PlainEntries).ok()?;
        let texts = entries.first()?.addresses()?.start..entries.last()?.addresses()?.end;
        let entries = entries.into_iter().map(PlainEntry::read).collect::<Option<_>>()?;
        Some(Self { entries, texts })
    }

    /// The JSON of the entries in the document that contains them; `None` for another document.
    pub(super) fn text_in(self, document: &[u8]) -> Option<ManagedFieldsText> {
        let Self { mut entries, texts } = self;
        let start = document.as_ptr().addr();
        let before = document.get(..texts.start.checked_sub(start)?)?;
        // Only the name of a field precedes the first string.
        let from = before.iter().rposition(|byte| *byte == b'[')?;
        let end = texts.end.checked_sub(start)?;
        let to = end + document.get(end..)?.iter().position(|byte| *byte == b']')?;
        let text = Bytes::copy_from_slice(document.get(from..=to)?);
        for entry in &mut entries {
            let place = |address: usize| address.checked_sub(start + from);
            entry.fields = place(entry.fields.start)?..place(entry.fields.end)?;
        }
        Some(ManagedFieldsText { text, entries })
    }
}

/// An entry with exactly the fields that servers write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlainEntry<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: &'a RawValue,
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

impl PlainEntry<'_> {
    /// The memory addresses of the strings; `None` if one contains escapes, because the document does not contain the
    /// unescaped string.
    fn addresses(&self) -> Option<Range<usize>> {
        let texts = [
            &self.api_version,
            &self.fields_type,
            &self.manager,
            &self.operation,
            &self.subresource,
            &self.time,
        ];
        let mut all = addresses_of(self.fields.get());
        // A missing subresource is not in the document, either.
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let Cow::Borrowed(text) = *text else { return None };
            let one = addresses_of(text);
            all = all.start.min(one.start)..all.end.max(one.end);
        }
        Some(all)
    }

    /// Returns `None` if the entry has an unusual format.
    fn read(self) -> Option<ManagedFieldsEntry> {
        let is_said = !self.api_version.is_empty() && !self.manager.is_empty();
        let texts = [&self.api_version, &self.manager, &self.subresource];
        let is_said = is_said && texts.iter().all(|text| text.len() <= TEXT_LIMIT);
        let is_plain = is_said && self.fields_type == "FieldsV1" && is_plain_time(&self.time);
        let is_applied = match &*self.operation {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        let fields = self.fields.get();
        (is_plain && fields.starts_with('{')).then(|| ManagedFieldsEntry {
            api_version: self.api_version.into_owned(),
            manager: self.manager.into_owned(),
            is_applied,
            subresource: self.subresource.into_owned(),
            time: self.time.into_owned(),
            fields: addresses_of(fields),
        })
    }
}

fn addresses_of(text: &str) -> Range<usize> {
    let start = text.as_ptr().addr();
    start..start + text.len()
}

/// The entries of a list, if they are at most [`ENTRIES_LIMIT`].
struct PlainEntries;

impl<'de> Visitor<'de> for PlainEntries {
    type Value = Vec<PlainEntry<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of managers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_element()? {
            if entries.len() == ENTRIES_LIMIT {
                return Err(serde::de::Error::custom("too many"));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Whether a time has the format of Go: `2026-01-31T23:59:59Z`.
fn is_plain_time(time: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let has_form = time.len() == FORM.len()
        && time.bytes().zip(FORM).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == *form,
        });
    // The second 60 is valid, but is decoded as another time.
    has_form && !time.ends_with(":60Z") && time.parse::<jiff::Timestamp>().is_ok()
}

/// An upper limit for the number of objects and lists in JSON. Brackets within strings are counted too.
pub fn most_in(json: &[u8]) -> usize {
    // `{` and `[` differ in this bit only. The sum of a chunk fits into one byte, so that the processor counts many
    // bytes at a time.
    let of_part = |part: &[u8]| part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    json.chunks(usize::from(u8::MAX)).map(|part| usize::from(of_part(part))).sum()
}
