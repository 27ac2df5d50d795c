//! Destinations of lines. They report how many bytes were written, because a full disk accepts only a part.

use std::io::{self, Write};

/// A destination of lines.
pub(super) trait Sink: Send {
    /// Writes lines. Returns the number of bytes that were written, and an error if these are not all.
    fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>);
}

/// A destination without rotation.
pub(super) struct Plain<W>(pub W);

impl<W: Write + Send> Sink for Plain<W> {
    fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let (taken, result) = write(&mut self.0, lines);
        (taken, result.and_then(|()| self.0.flush()))
    }
}

/// Writes all bytes, or as many as the destination accepts.
pub(super) fn write(to: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut taken = 0;
    while let Some(left) = bytes.get(taken..).filter(|left| !left.is_empty()) {
        match to.write(left) {
            Ok(0) => return (taken, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => taken += more,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return (taken, Err(why)),
        }
    }
    (taken, Ok(()))
}
