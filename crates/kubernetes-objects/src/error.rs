//! Errors: [`ApiError`] is for the client, [`StartError`] for the operator.

mod api;
mod field;
mod path;
mod reason;
mod start;
mod status;
mod text;

pub use api::{ApiError, Cause, Details};
pub use field::FieldError;
pub use path::Path;
pub use reason::Reason;
pub use start::StartError;
pub use status::Given;
pub use text::{
    beginning, go_float, go_type, go_value, is_printed, joined, no_object, qualified, quote,
};
