//! Where lines go, and how many of them arrive: a disk that is full takes a part.

use std::io::{self, Write};

/// Takes lines.
pub(super) trait Sink: Send {
    /// Writes lines. Answers how many bytes of them were taken, and why not all.
    fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>);
}

/// What is written to as it is.
pub(super) struct Plain<W>(pub W);

impl<W: Write + Send> Sink for Plain<W> {
    fn put(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let (taken, result) = write(&mut self.0, lines);
        (taken, result.and_then(|()| self.0.flush()))
    }
}

/// Writes all of it, or as much as is taken.
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
