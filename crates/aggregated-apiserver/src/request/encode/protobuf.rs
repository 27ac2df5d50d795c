//! Objects in protobuf, as parts of a list and of a watch.

use super::super::negotiate::Form;
use super::{Encoder, Page};
use crate::codec;
use crate::conversion::known;
use crate::error::ApiError;
use crate::object::{Key, Tree};
use crate::quota::Account;
use crate::schema::Type;
use crate::storage::Versioned;
use crate::verb::{ListPage, Step};

/// The parts of a list before and after its items.
pub(super) struct Frame {
    /// The beginning of the list, which contains its total length.
    pub head: Vec<u8>,
    /// The end of the list.
    pub tail: Vec<u8>,
}

impl Frame {
    /// The frame of a list. All items are encoded once to compute the length, and dropped, because a second copy of all
    /// items would need too much memory.
    ///
    /// # Errors
    /// 500 if an item cannot be converted.
    pub(super) async fn of(
        encoder: &Encoder,
        listed: &ListPage,
        page: &Page,
        account: &Account,
    ) -> Result<Self, ApiError> {
        let mut items = 0;
        let mut last = None;
        loop {
            let previous = last.take();
            let step = || -> Result<(usize, Option<Key>, bool), ApiError> {
                let (mut items, mut last) = (0, None);
                let mut step = Step::default();
                let mut failed = Ok(());
                for (versioned, is_wanted) in listed.after(previous.as_ref()) {
                    if step.is_over(versioned.object.size()) {
                        return failed.map(|()| (items, last, false));
                    }
                    last = Some(versioned.object.key().clone());
                    if is_wanted {
                        let mut item = Vec::new();
                        failed = failed.and(write_item(encoder, &versioned, &mut item));
                        items += item.len();
                    }
                }
                failed.map(|()| (items, last, true))
            };
            let (more, next, ended) = known(encoder.kind(), account, step).await??;
            items += more;
            last = next;
            if ended {
                break;
            }
            tokio::task::yield_now().await;
        }
        let metadata = format!("{{{}}}", page.metadata(false));
        let metadata: Tree = serde_json::from_str(&metadata).unwrap_or_default();
        let (api_version, kind) = match encoder.format.form {
            Form::PartialMetadata(version) => {
                (version.api_version().to_owned(), PARTIAL.to_owned() + "List")
            }
            Form::Object | Form::Table(_) => {
                let api_version = encoder.kind.api_version(&encoder.version.name);
                (api_version, encoder.kind.names.list_kind.clone())
            }
        };
        let types = encoder.types();
        let (head, tail) =
            codec::list_frame_in_protobuf(&api_version, &kind, &metadata, items, types);
        Ok(Self { head, tail })
    }
}

const PARTIAL: &str = "PartialObjectMetadata";

fn type_of_item(encoder: &Encoder) -> Option<Type<'_>> {
    let types = encoder.types();
    match encoder.format.form {
        Form::PartialMetadata(_) => types.named("meta/v1", PARTIAL),
        Form::Object | Form::Table(_) => {
            let (group, version) = (&encoder.kind.group, &encoder.version.name);
            types.kind(group, version, &encoder.kind.names.kind).map(|id| types.get(id))
        }
    }
}

/// An item of a list.
///
/// # Errors
/// 500 if the item cannot be converted.
pub(super) fn write_item(
    encoder: &Encoder,
    versioned: &Versioned,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let mut json = Vec::with_capacity(versioned.object.size());
    encoder.write_item(versioned, &mut json)?;
    match (serde_json::from_slice::<Tree>(&json), type_of_item(encoder)) {
        (Ok(object), Some(of)) => codec::item_in_protobuf(of, &object, out),
        // Negotiation has checked the type, and the JSON was encoded here, so this does not happen.
        _ => tracing::error!(object = %versioned.object.key(), "cannot encode object as protobuf"),
    }
    Ok(())
}

/// One event of a watch.
pub(super) fn event(encoder: &Encoder, event_type: &str, json: &[u8]) -> Vec<u8> {
    let object: Tree = serde_json::from_slice(json).unwrap_or_default();
    let event = codec::event_in_protobuf(event_type, &object, encoder.types());
    if event.is_none() {
        tracing::error!(kind = %encoder.kind.qualified(), "cannot encode watch event as protobuf");
    }
    event.unwrap_or_default()
}
