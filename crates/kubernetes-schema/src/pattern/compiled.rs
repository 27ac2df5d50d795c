//! A compiled pattern, and the cost of its searches.
//!
//! Nearly every search uses a lazy automaton that reads each byte once. If the automaton would use too much memory, the
//! search follows each state of the pattern, and the cost of each byte is the number of states.

use std::sync::{Mutex, PoisonError};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Config, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchErrorKind};

use super::{NO_BOUNDARY, SIZE_LIMIT};

/// The memory for the cache of a search in bytes, in addition to twice the size of the pattern. A smaller cache needs
/// more steps.
const SEARCH_BYTES: usize = 256 << 10;
/// The number of times that a search may clear its cache, if it has not made enough progress since.
const FORGOTTEN: usize = 3;
/// The progress that is not enough, in bytes of text for each cached state.
const NOT_FAR: usize = 10;
/// The cost of a step through one state, in bytes of text that are read once.
const STATE: usize = 4;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Compiled {
    automaton: DFA,
    /// The cache of the last search.
    remembered: Mutex<Option<Cache>>,
}

/// Returns the largest memory of a compiled pattern of this size with its search, in bytes.
pub(super) fn bytes(size: usize) -> usize {
    size + search_bytes(size)
}

fn search_bytes(size: usize) -> usize {
    SEARCH_BYTES + 2 * size
}

impl Compiled {
    /// Compiles a pattern of this size in bytes; `None` if the pattern is invalid.
    pub(super) fn new(translated: &str, size: usize) -> Option<Self> {
        let search = DFA::config()
            .cache_capacity(search_bytes(size))
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(FORGOTTEN))
            .minimum_bytes_per_state(Some(NOT_FAR));
        let states =
            Config::new().nfa_size_limit(Some(SIZE_LIMIT)).which_captures(WhichCaptures::None);
        let syntax = syntax::Config::new().utf8(!translated.contains(NO_BOUNDARY));
        let mut builder = DFA::builder();
        let builder = builder.configure(search).syntax(syntax).thompson(states);
        let automaton = builder.build(translated).ok()?;
        Some(Self { automaton, remembered: Mutex::default() })
    }

    /// Whether a text matches somewhere; `None` if the search costs more than `left`.
    pub(super) fn is_match(&self, text: &str, left: &mut usize) -> Option<bool> {
        pay(left, text.len())?;
        let input = Input::new(text).earliest(true);
        // Concurrent searches have caches of their own.
        let remembered = self.lock().take();
        let mut remembered = remembered.unwrap_or_else(|| self.automaton.create_cache());
        let known = remembered.memory_usage();
        let found = self.automaton.try_search_fwd(&mut remembered, &input);
        let learned = remembered.memory_usage().saturating_sub(known);
        let forgotten = remembered.clear_count() * bytes(0);
        *self.lock() = Some(remembered);
        pay(left, learned + forgotten)?;
        match found {
            Ok(found) => Some(found.is_some()),
            Err(error) if matches!(error.kind(), MatchErrorKind::GaveUp { .. }) => {
                let states = self.automaton.get_nfa().states().len();
                pay(left, text.len().saturating_mul(states).saturating_mul(STATE))?;
                self.follow(input)
            }
            // Other errors cannot occur, because no byte stops the search and a match can begin anywhere.
            Err(_) => Some(false),
        }
    }

    /// Searches by following each state of the pattern.
    fn follow(&self, input: Input<'_>) -> Option<bool> {
        let states = PikeVM::new_from_nfa(self.automaton.get_nfa().clone()).ok()?;
        Some(states.is_match(&mut states.create_cache(), input))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Cache>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pay(left: &mut usize, cost: usize) -> Option<()> {
    let rest = left.checked_sub(cost);
    *left = rest.unwrap_or_default();
    rest.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an `a`, this pattern has too many states for the cache of a search.
    const HARD: &str = "^[ab]*a[ab]{500}c$";

    fn compiled(pattern: &str) -> Compiled {
        Compiled::new(pattern, 0).unwrap()
    }

    #[test]
    fn a_typical_pattern_search_reads_each_byte_once() {
        let (pattern, text) = (compiled("^[a-z]{1,1000}$"), "a".repeat(1_000));
        let mut left = 1 << 30;
        assert_eq!(pattern.is_match(&text, &mut left), Some(true));
        let before = left;
        assert_eq!(pattern.is_match(&text, &mut left), Some(true));
        assert_eq!(before - left, text.len());
    }

    #[test]
    fn a_pattern_search_stops_at_the_cost_limit() {
        let mut random = 1_u32;
        let mut next = || {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            if random & 1 << 20 == 0 { 'a' } else { 'b' }
        };
        let text: String = std::iter::repeat_with(&mut next).take(8_000).collect();
        let pattern = compiled(HARD);
        let mut left = 1 << 40;
        assert_eq!(pattern.is_match(&text, &mut left), Some(false));
        let cost = (1 << 40) - left;
        assert!(cost > 500 * text.len(), "all states were followed: {cost}");
        let mut left = 1 << 20;
        assert_eq!((pattern.is_match(&text, &mut left), left), (None, 0));
        let mut left = 1;
        assert_eq!(pattern.is_match("ab", &mut left), None);
    }
}
