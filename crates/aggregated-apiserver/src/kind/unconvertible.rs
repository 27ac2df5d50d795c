//! Unconvertible: the reason why an object cannot be converted, and whether it is an invalid field.

use std::fmt;

use crate::error::FieldError;

/// The reason why code cannot convert an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconvertible {
    why: String,
    fault: Option<FieldError>,
}

impl Unconvertible {
    /// A field whose value the other version cannot express. If a client sent it, it is a client error.
    pub fn field(fault: FieldError) -> Self {
        Self { why: fault.to_string(), fault: Some(fault) }
    }

    /// The invalid field, or the message if no field is invalid.
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
