//! Unconvertible: why an object cannot be converted, and whether that is the fault of what was sent.

use std::fmt;

use crate::error::FieldError;

/// Why code cannot convert an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconvertible {
    why: String,
    fault: Option<FieldError>,
}

impl Unconvertible {
    /// A field whose value no other version can say: where a client has sent it, that is the client's fault.
    pub fn field(fault: FieldError) -> Self {
        Self { why: fault.to_string(), fault: Some(fault) }
    }

    /// The field at fault, if one is.
    pub fn into_fault(self) -> Result<FieldError, String> {
        self.fault.ok_or(self.why)
    }
}

impl From<String> for Unconvertible {
    fn from(why: String) -> Self {
        Self { why, fault: None }
    }
}

impl fmt::Display for Unconvertible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
