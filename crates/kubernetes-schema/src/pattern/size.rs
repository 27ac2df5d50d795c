//! The size of a compiled pattern, computed without compiling it.

use regex_syntax::hir::{Class, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

use super::NO_BOUNDARY;

/// The size of a state of the automaton with its transition to the next state, in bytes. Several transitions and shared
/// states make the real size smaller, never larger.
const STATE: usize = 40;
/// The size of an empty pattern, in bytes.
const LEAST: usize = 1_024;

/// Returns the largest size of a compiled pattern in bytes; `None` if the pattern is invalid.
pub(super) fn size(translated: &str) -> Option<usize> {
    let mut parser = regex_syntax::ParserBuilder::new();
    let parser = parser.utf8(!translated.contains(NO_BOUNDARY));
    let parsed = parser.build().parse(translated).ok()?;
    Some(states(&parsed).saturating_mul(STATE).saturating_add(LEAST))
}

/// Returns the largest number of states. The parser limits the depth of its result.
fn states(of: &Hir) -> usize {
    match of.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges().iter();
            let sequences = ranges.flat_map(|range| Utf8Sequences::new(range.start(), range.end()));
            sequences.map(|sequence| sequence.len()).sum::<usize>() + 1
        }
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() + 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            let one = states(&repetition.sub).saturating_add(1);
            one.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(1, |sum, part| sum.saturating_add(states(part)).saturating_add(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::RegexBuilder;

    /// A pattern compiles within the computed size.
    #[test]
    fn pattern_size_estimates_are_at_least_the_compiled_size() {
        for pattern in [
            "",
            "a",
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$",
            "^[^/]{1,200}$",
            "^\\p{L}{1,5}$",
            "\\pN|\\pL",
            "(?i)^straße{2,20}$",
            "^.{0,100}$",
            "((a{3}){4}){5}",
            "(a|b|cd|ef)*",
            "^\\pL{1,10}$",
            "^\\pL{1,60}$",
            "^[^,]{1,255}$",
            "^.{1,1024}$",
            "^[a-z]{1,1000}$",
            "[a-z]",
            "^(([^:/?#]+):(//([^/?#]*))([^?#]*)(\\?([^#]*))?(#(.*))?)$",
            "(?-u:\\b)a(?-u:\\b)",
            "^(?:[01]?){30}$",
        ] {
            let size = size(pattern).unwrap();
            let built = RegexBuilder::new(pattern).size_limit(size).build();
            assert!(built.is_ok(), "{pattern} {size}");
        }
        assert!(size("(").is_none());
    }

    #[test]
    fn pattern_size_estimates_multiply_repetitions() {
        let once = size("\\pL").unwrap();
        assert!(size("\\pL{50}").unwrap() > 40 * once);
        assert_eq!(
            size("((((((a{1000}){1000}){1000}){1000}){1000}){1000}){1000}"),
            Some(usize::MAX)
        );
    }
}
