//! Patterns of strings. They are written for RE2, and matched by a library with nearly the same syntax.

mod compiled;
mod size;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use compiled::Compiled;
use kubernetes_cel::re2;

use crate::quota::MemoryScale;

/// The largest size of a compiled pattern, in bytes. `^.{1,1000}$` uses half of it.
const SIZE_LIMIT: usize = 2 << 20;
/// The limit of all compiled patterns of a server with their searches, in bytes, and the limit in a small container. If
/// it is exceeded, the pattern that was compiled first is discarded, and is compiled again on its next use. The limit
/// allows 125 small patterns.
const COMPILED_BYTES: usize = 32 << 20;
const LEAST_COMPILED_BYTES: usize = COMPILED_BYTES / 16;
/// The smallest number of patterns at which unused patterns are removed from the cache.
const LOOK_AT: usize = 1_024;

/// A pattern that a text must match somewhere. Equal patterns are shared, and a pattern is compiled when a text is
/// first matched against it.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: String,
    translated: String,
    size: usize,
    compiled: Mutex<Option<Arc<Compiled>>>,
    cache: PatternCache,
}

/// The patterns of a server. Equal patterns are shared, and the total size of compiled patterns is limited.
#[derive(Clone, Debug, Default)]
pub struct PatternCache(Arc<Mutex<Patterns>>);

thread_local! {
    /// The cache of the patterns that this thread parses.
    static CURRENT: RefCell<Option<PatternCache>> = const { RefCell::new(None) };
}

/// The cache of patterns that no server uses, such as those of definitions that are only checked.
static UNSERVED: LazyLock<PatternCache> = LazyLock::new(PatternCache::default);

/// Restores the previous cache of the thread, even after a panic.
struct Restore(Option<PatternCache>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Returns the limit of the compiled patterns of a server, in bytes.
pub fn patterns_limit(portion: MemoryScale) -> usize {
    portion.between(LEAST_COMPILED_BYTES, COMPILED_BYTES)
}

impl PatternCache {
    /// Limits the compiled patterns to this many bytes.
    pub fn set_limit(&self, bytes: usize) {
        let gone = self.with(|patterns| {
            patterns.limit = bytes;
            patterns.give_way()
        });
        gone.iter().for_each(|inner| inner.discard());
    }

    /// Calls a function whose parsed patterns belong to this cache.
    pub fn scope<T>(&self, read: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        read()
    }

    fn current() -> Self {
        CURRENT.with_borrow(|current| current.as_ref().unwrap_or(&UNSERVED).clone())
    }

    fn with<T>(&self, use_them: impl FnOnce(&mut Patterns) -> T) -> T {
        use_them(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Patterns {
    /// The limit of `compiled_bytes`.
    limit: usize,
    known: HashMap<String, Weak<Inner>>,
    /// The number of patterns that were in use when unused patterns were last removed.
    in_use: usize,
    /// The compiled patterns with their sizes in bytes, in the order in which they were compiled.
    compiled: VecDeque<(Weak<Inner>, usize)>,
    compiled_bytes: usize,
}

/// Matches where no ASCII word begins or ends. This can be between the bytes of a character too, but no match is
/// reported there.
const NO_BOUNDARY: &str = "(?-u:\\B)";

impl Pattern {
    /// Parses a pattern of RE2. Returns `None` for an invalid pattern (see [`Pattern::check`]), and for one that is too
    /// large for this server.
    pub fn parse(text: &str) -> Option<Self> {
        let cache = PatternCache::current();
        let known = cache.with(|patterns| patterns.known.get(text).and_then(Weak::upgrade));
        if let Some(known) = known {
            return Some(Self(known));
        }
        let translated = re2::translate(text).ok()?;
        let size = size::size(&translated).filter(|size| *size <= SIZE_LIMIT)?;
        let (text, compiled) = (text.to_owned(), Mutex::default());
        let inner = Arc::new(Inner { text, translated, size, compiled, cache: cache.clone() });
        cache.with(|patterns| patterns.learn(&inner));
        Some(Self(inner))
    }

    /// Checks that RE2 accepts a pattern.
    ///
    /// # Errors
    /// The error of Go's `regexp.Compile`.
    pub fn check(text: &str) -> Result<(), String> {
        re2::translate(text).map(drop)
    }

    /// Returns the largest size of the compiled pattern, in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether a text matches somewhere. Subtracts the cost of the search from `left`, in bytes of text that are read
    /// once. Returns `None` if `left` is too small.
    pub fn is_match(&self, text: &str, left: &mut usize) -> Option<bool> {
        // The pattern can be compiled, because its size was checked.
        self.0.compiled().map_or(Some(false), |compiled| compiled.is_match(text, left))
    }
}

impl Inner {
    fn compiled(self: &Arc<Self>) -> Option<Arc<Compiled>> {
        // Concurrent searches wait for this lock, so that the pattern is compiled only once.
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*kept {
            return Some(Arc::clone(compiled));
        }
        let compiled = Arc::new(Compiled::new(&self.translated, self.size)?);
        *kept = Some(Arc::clone(&compiled));
        drop(kept);
        let gone = self.cache.with(|patterns| patterns.note_compiled(self));
        gone.iter().for_each(|inner| inner.discard());
        Some(compiled)
    }

    fn discard(&self) {
        *self.compiled.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            limit: COMPILED_BYTES,
            known: HashMap::new(),
            in_use: 0,
            compiled: VecDeque::new(),
            compiled_bytes: 0,
        }
    }
}

impl Patterns {
    fn learn(&mut self, inner: &Arc<Inner>) {
        if self.known.len() >= (2 * self.in_use).max(LOOK_AT) {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.in_use = self.known.len();
        }
        self.known.insert(inner.text.clone(), Arc::downgrade(inner));
    }

    /// Records that a pattern is compiled. Returns the patterns to discard.
    fn note_compiled(&mut self, inner: &Arc<Inner>) -> Vec<Arc<Inner>> {
        let bytes = compiled::bytes(inner.size);
        self.compiled.push_back((Arc::downgrade(inner), bytes));
        self.compiled_bytes += bytes;
        self.give_way()
    }

    /// Removes the patterns that were compiled first, until the rest is within the limit. Returns the removed patterns.
    fn give_way(&mut self) -> Vec<Arc<Inner>> {
        let mut gone = Vec::new();
        while self.compiled_bytes > self.limit
            && let Some((first, bytes)) = self.compiled.pop_front()
        {
            self.compiled_bytes -= bytes;
            gone.extend(first.upgrade());
        }
        gone
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &Pattern, text: &str) -> bool {
        pattern.is_match(text, &mut (1 << 20)).unwrap()
    }

    #[test]
    fn as_re2_reads_them() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            ("^[a-z]+$", &["abc"], &["Abc", ""]),
            ("^\\d+$", &["123"], &["٣", "a"]),
            ("^[\\d-]+$", &["1-2"], &["٣"]),
            ("^\\w\\W\\s\\S$", &["a- b"], &["a-bb", "éé x"]),
            ("^[^\\s]+$", &["a"], &["a b"]),
            ("^[[]$", &["["], &["]"]),
            ("^[]a]+$", &["]a"], &["b"]),
            ("^[^]a]+$", &["b"], &["]"]),
            ("^[[:alpha:]_]+$", &["a_"], &["1"]),
            ("\\bcat\\b", &["a cat sat"], &["concat"]),
            ("^a\\.b\\[c\\]$", &["a.b[c]"], &["axb[c]"]),
            ("^[+--&&~~]+$", &["+,-&~"], &["a", "."]),
            ("^[a&&b]$", &["a", "&", "b"], &["c"]),
            ("^[\\x41-\\x{43}-]+$", &["ABC-"], &["D"]),
            ("^[\\W\\d]+$", &["-1"], &["a"]),
            ("^\\pL[\\p{Greek}_-]+$", &["aλ_-"], &["1λ", "aa"]),
            ("^[---]$", &["-"], &["a"]),
            ("^[+--b]$", &["+", "-", "b"], &["a"]),
            ("^\\Qa.b\\E\\101\\_\\z", &["a.bA_"], &["axbA_"]),
            ("(?i)^(?P<n>a)(?<m>\\p{lu})$", &["aB", "Ab"], &["a1"]),
            ("^[^<>]\\<a\\>$", &["x<a>"], &["<<a>", "xa"]),
            ("^{x}a{2}b{,3}$", &["{x}aab{,3}"], &["xaab"]),
            ("a\\Bb", &["ab", "xaby"], &["a b", "a"]),
            ("\\Bcat\\B", &["concats", "_cat_"], &["cat", "cats", "écat"]),
            ("\\B", &["", "é", "ab", "aé"], &["a", "aéb"]),
            ("é\\B", &["é", "é ", "éé"], &["éa"]),
        ];
        for (text, good, bad) in rows {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), *text);
            good.iter().for_each(|good| assert!(is_match(&pattern, good), "{text} {good}"));
            bad.iter().for_each(|bad| assert!(!is_match(&pattern, bad), "{text} {bad}"));
        }
        for other in ["(?=a)", "[a-\\d]", "[a", "(", "\\", "\\x", "a**", "(a)\\1"] {
            assert!(Pattern::parse(other).is_none() && Pattern::check(other).is_err(), "{other}");
        }
    }

    #[test]
    fn equal_patterns_are_compiled_once() {
        let one = Pattern::parse("^equal[0-9]$").unwrap();
        let other = Pattern::parse("^equal[0-9]$").unwrap();
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(one.0.compiled.lock().unwrap().is_none(), "nobody has held a text against it");
        assert!(is_match(&one, "equal1") && other.0.compiled.lock().unwrap().is_some());
    }

    #[test]
    fn too_large_patterns_are_rejected() {
        assert!(Pattern::parse("^[a-z]{1,1000}$").is_some());
        assert!(Pattern::parse("(([a-z]{100}){100}){100}").is_none());
    }

    #[test]
    fn pattern_caches_of_servers_are_independent() {
        let read = |text: &str| Pattern::parse(text).unwrap();
        let (one, other) = (PatternCache::default(), PatternCache::default());
        let (mine, again) = one.scope(|| (read("^server$"), read("^server$")));
        let others = other.scope(|| read("^server$"));
        assert!(Arc::ptr_eq(&mine.0, &again.0) && !Arc::ptr_eq(&mine.0, &others.0));
        assert!(is_match(&mine, "server") && is_match(&others, "server"));
        let count = 2 * COMPILED_BYTES / compiled::bytes(0);
        for number in 0..count {
            let many = one.scope(|| read(&format!("^many{number}$")));
            assert!(is_match(&many, &format!("many{number}")));
        }
        let is_compiled = |pattern: &Pattern| pattern.0.compiled.lock().unwrap().is_some();
        assert!(!is_compiled(&mine) && is_compiled(&others));
    }

    #[test]
    fn few_stay_compiled() {
        let count = 2 * COMPILED_BYTES / compiled::bytes(0);
        let patterns = (0..count).map(|number| Pattern::parse(&format!("^few{number}$")).unwrap());
        let patterns: Vec<Pattern> = PatternCache::default().scope(|| patterns.collect());
        for (number, pattern) in patterns.iter().enumerate() {
            assert!(is_match(pattern, &format!("few{number}")));
        }
        let is_compiled = |pattern: &&Pattern| pattern.0.compiled.lock().unwrap().is_some();
        assert!(patterns.iter().filter(is_compiled).count() <= count / 2);
        assert!(is_match(&patterns[0], "few0") && !is_match(&patterns[0], "few1"));
    }
}
