//! CEL, the Common Expression Language, in the dialect of Kubernetes.
//!
//! An [`Environment`] has a [`Declared`] type, which is built from a schema. It compiles expressions: it parses them,
//! checks their types and estimates their cost, with the same error messages and the same costs as kube-apiserver. A
//! [`Program`] is evaluated on JSON values without copying them, and stops when its cost budget is spent.
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
mod composition;
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
mod uses;
mod value;

pub use composition::Activation;
pub use cost::Budget;
pub use declared::{Declared, Field, ListKind};
pub use environment::{CompileError, Data, Environment, Outcome, Output, Program, Unusable};
pub use escape::escape;
pub use library::{UrlParts, check_url, url_parts};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
