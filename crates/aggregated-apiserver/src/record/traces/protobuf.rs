//! A protobuf encoder and decoder for spans and for the responses to them. Fields are appended directly to the message,
//! without an intermediate tree.

/// A message that is being encoded.
#[derive(Debug, Default)]
pub(super) struct Message(pub Vec<u8>);

impl Message {
    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Appends a field of bytes whose length is known at compile time.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self, field: u32, bytes: [u8; N]) {
        self.begin(field, N);
        self.0.extend_from_slice(&bytes);
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.begin(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.key(field, 0);
        self.varint(number);
    }

    pub(super) fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u32, number: u32) {
        self.key(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Appends a nested message that is usually short, so that its length needs one byte.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.message_of::<1>(field, write);
    }

    /// Appends a nested message that is usually longer than 127 bytes. Its length always has at least two bytes, so
    /// that the content need not be moved.
    pub(super) fn long_message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.message_of::<2>(field, write);
    }

    fn message_of<const LENGTH: usize>(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, 2);
        let place = self.0.len();
        self.0.extend_from_slice(&[0; LENGTH]);
        write(self);
        let length = self.0.len() - place - LENGTH;
        let fits = length >> (7 * LENGTH) == 0;
        match self.0.get_mut(place..place + LENGTH).filter(|_| fits) {
            Some(digits) => {
                for (index, digit) in digits.iter_mut().enumerate() {
                    let goes_on = if index + 1 < LENGTH { 0x80 } else { 0 };
                    *digit = (length >> (7 * index) & 0x7f) as u8 | goes_on;
                }
            }
            None => {
                let mut digits = Self::default();
                digits.varint(length as u64);
                self.0.splice(place..place + LENGTH, digits.0);
            }
        }
    }

    /// Appends the key and the length of a field with this number of bytes.
    #[inline]
    pub(super) fn begin(&mut self, field: u32, length: usize) {
        let short = |number: u64| u8::try_from(number).ok().filter(|byte| *byte < 0x80);
        match (short(u64::from(field << 3 | 2)), short(length as u64)) {
            // This is the usual case.
            (Some(key), Some(length)) => self.0.extend_from_slice(&[key, length]),
            _ => {
                self.key(field, 2);
                self.varint(length as u64);
            }
        }
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, number: u64) {
        let (digits, length) = varint(number);
        self.0.extend_from_slice(digits.get(..length).unwrap_or_default());
    }
}

/// Encodes a number as a varint of seven bits per byte. Returns the bytes and their number.
#[inline]
pub(super) fn varint(mut number: u64) -> ([u8; 10], usize) {
    let (mut digits, mut length) = ([0; 10], 0);
    for digit in &mut digits {
        length += 1;
        #[allow(clippy::cast_possible_truncation)] // seven bits at a time
        let seven = number as u8 & 0x7f;
        number >>= 7;
        *digit = if number > 0 { seven | 0x80 } else { seven };
        if number == 0 {
            break;
        }
    }
    (digits, length)
}

/// The value of a decoded field.
#[derive(Debug, PartialEq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A value of a wire type that responses do not use.
    Other,
}

/// Iterates over the fields of a message, up to the first malformed one.
pub(super) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let key = read_varint(&mut message)?;
        let field = match key & 7 {
            0 => Field::Number(read_varint(&mut message)?),
            1 => take(&mut message, 8).map(|_| Field::Other)?,
            2 => {
                let length = read_varint(&mut message)?;
                Field::Bytes(take(&mut message, length)?)
            }
            5 => take(&mut message, 4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((key >> 3, field))
    })
}

fn take<'a>(from: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(usize::try_from(length).ok()?)?;
    *from = rest;
    Some(taken)
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for index in 0..10 {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Field, Message, fields};

    #[test]
    fn encoded_protobuf_fields_are_read_until_the_first_invalid_field() {
        let mut message = Message::default();
        message.number(1, u64::MAX);
        message.fixed64(2, 1);
        message.fixed32(3, 1);
        message.text(300, "testing");
        let expected = [
            (1, Field::Number(u64::MAX)),
            (2, Field::Other),
            (3, Field::Other),
            (300, Field::Bytes(b"testing")),
        ];
        assert_eq!(fields(&message.0).collect::<Vec<_>>(), expected);
        for length in 0..message.0.len() {
            assert!(fields(&message.0[..length]).count() < 4, "{length}");
        }
        for broken in [
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..],
            &[0xff; 20],
            &[0x0b],
            &[8],
        ] {
            assert_eq!(fields(broken).count(), 0);
        }
    }

    #[test]
    fn trace_fields_have_the_protobuf_wire_format() {
        let mut message = Message::default();
        message.number(1, 150);
        message.text(2, "testing");
        assert_eq!(message.0, b"\x08\x96\x01\x12\x07testing");
        let mut outer = Message::default();
        outer.message(3, |inner| inner.number(1, 150));
        outer.fixed32(16, 1);
        outer.fixed64(7, 2);
        let expected = b"\x1a\x03\x08\x96\x01\x85\x01\x01\0\0\0\x39\x02\0\0\0\0\0\0\0";
        assert_eq!(outer.0, expected);
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let mut outer = Message::default();
        outer.message(1, |inner| inner.text(1, &"x".repeat(300)));
        assert_eq!(outer.0[..6], *b"\x0a\xaf\x02\x0a\xac\x02");
        assert_eq!(outer.0.len(), 306);
        let mut outer = Message::default();
        outer.long_message(1, |inner| inner.text(1, "x"));
        outer.long_message(1, |inner| inner.text(1, &"x".repeat(200)));
        outer.long_message(1, |inner| inner.text(1, &"x".repeat(20_000)));
        assert_eq!(outer.0[..6], *b"\x0a\x83\x00\x0a\x01x");
        assert_eq!(outer.0[6..12], *b"\x0a\xcb\x01\x0a\xc8\x01");
        assert_eq!(outer.0[212..217], *b"\x0a\xa4\x9c\x01\x0a");
    }
}
