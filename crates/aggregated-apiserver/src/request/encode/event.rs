//! Encoding of the events of a watch.

use bytes::Bytes;

use super::shared_forms::EventForm;
use super::{Encoder, bookmark, json, protobuf};
use crate::error::ApiError;
use crate::request::negotiate::{Form, Media};
use crate::verb::{Event, ObjectEvent};
use crate::watch_cache::WatchCacheEvent;

impl Encoder {
    /// Encodes one event of a watch. `first` means that it is the first event of the watch. A change is encoded once
    /// for all watches with the same format.
    ///
    /// # Errors
    /// 500 if the object cannot be converted to the requested version.
    pub(in crate::request) fn event(&self, event: &Event, first: bool) -> Result<Bytes, ApiError> {
        if self.format.presentation.media == Media::Protobuf {
            return self.event_in_protobuf(event, first);
        }
        let event = match event {
            Event::Object(event) => event,
            Event::Bookmark(bookmark) => {
                let mut out = b"{\"type\":\"BOOKMARK\",\"object\":".to_vec();
                bookmark::write(self, *bookmark, first, &mut out);
                out.extend_from_slice(b"}\n");
                return Ok(out.into());
            }
        };
        if let Some(change) = self.shared(event) {
            return Ok(change.frame(event.event_type as usize, || {
                let mut out = start_event(event);
                json::write(&event.versioned, &mut out);
                end_event(out).into()
            }));
        }
        self.shared_with_same_form(event, first, || {
            let mut out = start_event(event);
            self.write_object(&event.versioned, first, &mut out)?;
            Ok(end_event(out))
        })
    }

    /// Returns the bytes of an event in the requested format, and encodes the event if no other watch has done so.
    /// Initial events are not shared, because they do not come from a change.
    fn shared_with_same_form(
        &self,
        event: &ObjectEvent,
        first: bool,
        make: impl FnOnce() -> Result<Vec<u8>, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let Some(change) = &event.change else { return make().map(Bytes::from) };
        let is_table = matches!(self.format.form, Form::Table(_));
        let form = EventForm {
            change,
            event_type: event.event_type,
            version: &self.version,
            format: self.format,
            columns: is_table && first,
            second: if is_table { self.now.as_second() } else { 0 },
        };
        self.forms.get_or_make(form, make)
    }

    /// Returns the change of an event, if the watch sends whole objects as stored. The bytes are then stored with the
    /// change.
    fn shared<'a>(&self, event: &'a ObjectEvent) -> Option<&'a WatchCacheEvent> {
        let is_as_kept = self.format.form == Form::Object
            && self.kind.is_shown_as_kept(&event.versioned.object, &self.version);
        event.change.as_deref().filter(|_| is_as_kept)
    }

    fn event_in_protobuf(&self, event: &Event, first: bool) -> Result<Bytes, ApiError> {
        let mut json = Vec::new();
        let event = match event {
            Event::Object(event) => event,
            Event::Bookmark(bookmark) => {
                bookmark::write(self, *bookmark, first, &mut json);
                return Ok(protobuf::event(self, "BOOKMARK", &json).into());
            }
        };
        let name = event.event_type.name();
        if let Some(change) = self.shared(event) {
            return Ok(change.message(event.event_type as usize, || {
                json::write(&event.versioned, &mut json);
                protobuf::event(self, name, &json).into()
            }));
        }
        self.shared_with_same_form(event, first, || {
            self.write_object(&event.versioned, first, &mut json)?;
            Ok(protobuf::event(self, name, &json))
        })
    }

    /// Returns the event with the error that ends a watch.
    pub(in crate::request) fn error_event(&self, error: &ApiError) -> Bytes {
        if self.format.presentation.media == Media::Protobuf {
            let status = serde_json::to_vec(&error.to_status()).unwrap_or_default();
            return protobuf::event(self, "ERROR", &status).into();
        }
        let status = serde_json::to_string(&error.to_status()).unwrap_or_default();
        format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
    }
}

fn start_event(event: &ObjectEvent) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.versioned.object.size() + 128);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.event_type.name().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out
}

fn end_event(mut out: Vec<u8>) -> Vec<u8> {
    out.extend_from_slice(b"}\n");
    out
}
