//! Why something was refused: [`ApiError`] for the client, [`StartError`] for the operator.

mod api;
mod field;
mod path;
mod reason;
mod start;
mod text;

pub use api::{ApiError, Cause, Details};
pub use field::FieldError;
pub use path::{key_path, member_path};
pub use reason::Reason;
pub use start::StartError;
pub use text::{go_type, no_object, qualified, quote};
