//! What an object says of its managers, `metadata.managedFields`, read without making a tree of it: nearly
//! always it is what the client was shown, and half of the object.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// `metadata.managedFields` as servers write it, with nothing in it that would be dropped, refused or written
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsText {
    /// All of it, as JSON.
    pub text: Bytes,
    /// Its entries, one at least.
    pub entries: Vec<ManagedFieldsEntry>,
}

/// An entry of `metadata.managedFields`. All texts but the subresource say something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// As `example.com/v1`.
    pub api_version: String,
    /// Who manages the fields.
    pub manager: String,
    /// Whether they were applied, or updated.
    pub is_applied: bool,
    /// By which subresource; empty for the object itself.
    pub subresource: String,
    /// When, as Go writes it.
    pub time: String,
    /// Where in the text the fields are: an object.
    pub fields: Range<usize>,
}

/// More entries than this are not set apart, nor those with longer texts: servers write some ten.
const ENTRIES_LIMIT: usize = 64;
const TEXT_LIMIT: usize = 512;

/// Entries that were met in a document, and where: addresses, because a deserializer does not say where it is.
pub(super) struct Met {
    entries: Vec<ManagedFieldsEntry>,
    /// From the first text of the first entry to the last one of the last.
    texts: Range<usize>,
}

impl Met {
    /// Reads entries; `None` if one of them needs a second look. A deserializer that has failed
    /// here cannot go on.
    pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Option<Self> {
        let entries = deserializer.deserialize_seq(PlainEntries).ok()?;
        let texts = entries.first()?.addresses()?.start..entries.last()?.addresses()?.end;
        let entries = entries.into_iter().map(PlainEntry::read).collect::<Option<_>>()?;
        Some(Self { entries, texts })
    }

    /// What they are in the document in which they were met; `None` if it is another one.
    pub(super) fn text_in(self, document: &[u8]) -> Option<ManagedFieldsText> {
        let Self { mut entries, texts } = self;
        let start = document.as_ptr().addr();
        let before = document.get(..texts.start.checked_sub(start)?)?;
        // Only the name of a member stands between.
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

/// An entry with all that servers write, and nothing else.
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
    /// Where its texts are; `None` if one is written with escapes, and so is nowhere.
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
        // The missing subresource is nowhere, too.
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let Cow::Borrowed(text) = *text else { return None };
            let one = addresses_of(text);
            all = all.start.min(one.start)..all.end.max(one.end);
        }
        Some(all)
    }

    /// `None` if it needs a second look.
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

/// The entries of a list, if there are not too many.
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

/// Whether a time is written as Go writes it: `2026-01-31T23:59:59Z`.
fn is_plain_time(time: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let has_form = time.len() == FORM.len()
        && time.bytes().zip(FORM).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == *form,
        });
    // A second 60 is read, and is another time.
    has_form && !time.ends_with(":60Z") && time.parse::<jiff::Timestamp>().is_ok()
}

/// How many objects and lists are in JSON, at most: it may also be texts that look so.
pub fn most_in(json: &[u8]) -> usize {
    // `{` and `[` differ in this bit. In parts whose sum is a byte a processor counts many at once.
    let of_part = |part: &[u8]| part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    json.chunks(usize::from(u8::MAX)).map(|part| usize::from(of_part(part))).sum()
}
