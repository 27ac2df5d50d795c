//! Lists in protobuf: a message says first how long it is.

use axum::body::Body;
use http::{Response, StatusCode};

use super::super::negotiate::Form;
use super::{Encoder, Page, finished};
use crate::codec;
use crate::error::ApiError;
use crate::object::Tree;
use crate::quota::Account;
use crate::verb::{LOOK, Listed};

/// A list as one message. `account` pays for it as long as it is made.
pub(super) async fn list(
    encoder: &Encoder,
    listed: &Listed,
    account: &Account,
) -> Result<Response<Body>, ApiError> {
    let page = Page::of(listed);
    let types = encoder.types();
    let names = &encoder.kind.names;
    let (api_version, kind, of_item) = match encoder.format.form {
        Form::PartialMetadata(version) => {
            let kind = "PartialObjectMetadata";
            (
                version.api_version().to_owned(),
                kind.to_owned() + "List",
                types.named("meta/v1", kind),
            )
        }
        Form::Object | Form::Table(_) => {
            let (group, version) = (&encoder.kind.group, &encoder.version.name);
            let id = types.kind(group, version, &names.kind);
            let api_version = encoder.kind.api_version(version);
            (api_version, names.list_kind.clone(), id.map(|id| types.get(id)))
        }
    };
    let of_item = of_item.ok_or_else(|| ApiError::internal("a list in protobuf has no type"))?;
    let mut items = Vec::new();
    let mut paid = 0;
    let mut last = None;
    loop {
        let mut ended = true;
        let previous = last.take();
        for (looked_at, (versioned, is_wanted)) in listed.after(previous.as_ref()).enumerate() {
            if looked_at == LOOK {
                ended = false;
                break;
            }
            last = Some(versioned.object.key().clone());
            if is_wanted {
                let mut json = Vec::with_capacity(versioned.object.size());
                encoder.write_item(versioned, &mut json);
                // It was made here.
                let object: Tree = serde_json::from_slice(&json).unwrap_or_default();
                codec::item_in_protobuf(of_item, &object, &mut items);
            }
        }
        // Of what grows there is twice as much for a moment.
        account.take(2 * (items.len() - paid))?;
        paid = items.len();
        if ended {
            break;
        }
        tokio::task::yield_now().await;
    }
    let metadata = format!("{{{}}}", page.metadata(false));
    let metadata: Tree = serde_json::from_str(&metadata).unwrap_or_default();
    let bytes = codec::list_in_protobuf(&api_version, &kind, &metadata, &items, types);
    Ok(finished(StatusCode::OK, encoder.format.presentation, bytes))
}
