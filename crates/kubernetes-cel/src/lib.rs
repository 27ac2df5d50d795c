//! CEL, the language of rules, as Kubernetes speaks it.
//!
//! An [`Environment`] knows what a rule is about: a [`Declared`] type, made of a schema. It compiles
//! expressions: they are parsed, their types are checked, and what they may cost is estimated, with
//! the messages and to the numbers of kube-apiserver. A [`Program`] is evaluated on values of JSON,
//! which are read where they are, and stops when it has spent what it may.
//!
//! ```
//! use std::sync::Arc;
//!
//! use kubernetes_cel::{Budget, Declared, Environment, Field, Outcome};
//! use serde_json::json;
//!
//! let replicas = Field {
//!     name: "replicas".to_owned(),
//!     of: Some(Arc::new(Declared::integer())),
//!     is_required: true,
//!     has_default: false,
//! };
//! let environment = Environment::new(Arc::new(Declared::object(vec![replicas])));
//! let program = environment.compile("self.replicas < 5").unwrap();
//! let mut budget = Budget::new(10_000, 1_000);
//! let llama = json!({"replicas": 7});
//! let outcome = program.evaluate(&llama, None, &mut budget);
//! assert_eq!(outcome, Outcome::Bool(false));
//!
//! let why = environment.compile("self.count < 5").unwrap_err();
//! assert_eq!(
//!     why.to_string(),
//!     "ERROR: <input>:1:5: undefined field 'count'\n | self.count < 5\n | ....^"
//! );
//! ```

mod ast;
mod checker;
mod convert;
mod cost;
mod declared;
mod environment;
mod escape;
mod estimate;
mod evaluate;
mod functions;
mod go_text;
mod json;
mod lexer;
mod library;
mod literals;
mod macros;
mod moment;
mod operate;
mod parser;
mod pattern;
mod plan;
pub mod re2;
mod source;
mod types;
mod unescape;
mod value;

pub use cost::Budget;
pub use declared::{Declared, Field, ListKind};
pub use environment::{CompileError, Data, Environment, Outcome, Program, Unusable};
pub use escape::escape;
pub use library::check_url;

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
