//! Encoding of the events of a watch.

use std::convert::Infallible;

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
        let event = match event {
            Event::Object(event) => event,
            Event::Bookmark(bookmark) => {
                let write = |out: &mut Vec<u8>| bookmark::write(self, *bookmark, first, out);
                return Ok(self.frame("BOOKMARK", 0, write).into());
            }
        };
        let (name, size) = (event.event_type.name(), event.versioned.object.size());
        if let Some(change) = self.shared(event) {
            let write = |out: &mut Vec<u8>| json::write(&event.versioned, out);
            let (form, encode) =
                (event.event_type as usize, || self.frame(name, size, write).into());
            return Ok(match self.is_protobuf() {
                true => change.message(form, encode),
                false => change.frame(form, encode),
            });
        }
        self.shared_with_same_form(event, first, || {
            self.try_frame(name, size, |out| self.write_object(&event.versioned, first, out))
        })
    }

    /// Returns the event with the error that ends a watch.
    pub(in crate::request) fn error_event(&self, error: &ApiError) -> Bytes {
        let status = serde_json::to_vec(&error.to_status()).unwrap_or_default();
        self.frame("ERROR", status.len(), |out| out.extend_from_slice(&status)).into()
    }

    /// Encodes an event of this type. `write` appends its object, which has about this size, as JSON.
    fn frame(&self, name: &str, size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let write = |out: &mut Vec<u8>| -> Result<(), Infallible> {
            write(out);
            Ok(())
        };
        let Ok(frame) = self.try_frame(name, size, write);
        frame
    }

    /// Same as [`frame`](Self::frame), for an object that may have no encoding.
    fn try_frame<E>(
        &self,
        name: &str,
        size: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut out = Vec::with_capacity(size + 128);
        if self.is_protobuf() {
            write(&mut out)?;
            return Ok(protobuf::event(self, name, &out));
        }
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        write(&mut out)?;
        out.extend_from_slice(b"}\n");
        Ok(out)
    }

    fn is_protobuf(&self) -> bool {
        self.format.presentation.media == Media::Protobuf
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
}
