//! Patterns of `matches`, `find` and `findAll`.

use std::fmt;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;

use crate::re2;

/// The largest size of a compiled pattern, in bytes.
const BYTES: usize = 2 << 20;
/// The largest depth of nested groups.
const NESTED: u32 = 200;

/// A compiled pattern. Its searches take linear time.
#[derive(Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles an RE2 pattern. Patterns that are too large for this server are rejected; Go's limits are higher.
    ///
    /// # Errors
    /// The error of Go's `regexp.Compile`.
    pub(crate) fn compile(pattern: &str) -> Result<Self, String> {
        // A match never begins or ends within a character: `utf8_empty` is on.
        let syntax = syntax::Config::new().utf8(false).nest_limit(NESTED);
        Regex::builder()
            .configure(Config::new().nfa_size_limit(Some(BYTES)).utf8_empty(true))
            .syntax(syntax)
            .build(&re2::translate(pattern)?)
            .map(Self)
            .map_err(|why| {
                // The syntax of a translated pattern has no other errors.
                let what = match why.syntax_error() {
                    Some(_) => "expression nests too deeply",
                    None => "expression too large",
                };
                format!("error parsing regexp: {what}: `{pattern}`")
            })
    }

    /// Whether a part of a string matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The first match in a string.
    pub(crate) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.find_iter(text).next()
    }

    /// The matches in a string, which do not overlap.
    pub(crate) fn find_iter<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.find_iter(text).filter_map(|found| text.get(found.range()))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").finish_non_exhaustive()
    }
}
