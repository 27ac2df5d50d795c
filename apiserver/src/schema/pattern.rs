//! Patterns of texts: written for RE2, matched by a library that speaks nearly
//! the same language.

mod compiled;
mod size;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use compiled::Compiled;

/// How large a pattern may become when it is compiled, in bytes: `^.{1,1000}$` takes half of it.
const SIZE_LIMIT: usize = 2 << 20;
/// What all patterns that are compiled may take, with their searches. The one that was compiled
/// first gives way, and is compiled again when it is needed: 250 small ones stay.
const COMPILED_BYTES: usize = 64 << 20;
/// From so many on it is looked which of the known patterns are still in use.
const LOOK_AT: usize = 1_024;

/// A pattern that a text must match somewhere. Equal ones are one, and it is compiled when a text
/// is first held against it.
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

/// The patterns of a server: equal ones are one, and so many bytes of them stay compiled.
#[derive(Clone, Debug, Default)]
pub struct PatternCache(Arc<Mutex<Patterns>>);

thread_local! {
    /// The cache of the patterns that this thread reads.
    static CURRENT: RefCell<Option<PatternCache>> = const { RefCell::new(None) };
}

/// The cache of patterns that no server uses: of definitions that are only checked.
static UNSERVED: LazyLock<PatternCache> = LazyLock::new(PatternCache::default);

/// Puts the cache back that was the thread's before, also after a panic.
struct Restore(Option<PatternCache>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl PatternCache {
    /// Reads patterns, which belong to this cache.
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

#[derive(Debug, Default)]
struct Patterns {
    known: HashMap<String, Weak<Inner>>,
    /// How many were in use when it was looked last.
    in_use: usize,
    /// Those that are compiled, in the order in which they were, and what they take.
    compiled: VecDeque<(Weak<Inner>, usize)>,
    compiled_bytes: usize,
}

/// Where no word of ASCII begins or ends. It may stand between the bytes of a letter too, where
/// nothing is told to be found.
const NO_BOUNDARY: &str = "(?-u:\\B)";

impl Pattern {
    /// Reads a pattern; nothing if it says what is not understood here, or is too large.
    pub fn parse(text: &str) -> Option<Self> {
        let cache = PatternCache::current();
        let known = cache.with(|patterns| patterns.known.get(text).and_then(Weak::upgrade));
        if let Some(known) = known {
            return Some(Self(known));
        }
        let translated = translate(text)?;
        let size = size::size(&translated).filter(|size| *size <= SIZE_LIMIT)?;
        let (text, compiled) = (text.to_owned(), Mutex::default());
        let inner = Arc::new(Inner { text, translated, size, compiled, cache: cache.clone() });
        cache.with(|patterns| patterns.learn(&inner));
        Some(Self(inner))
    }

    /// How many bytes it takes when it is compiled, at most.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether a text matches somewhere. Takes what finding out costs from what is left, in bytes of
    /// text that are looked at once; nothing if that is too little.
    pub fn is_match(&self, text: &str, left: &mut usize) -> Option<bool> {
        // There is always one: the size was found to be small enough.
        self.0.compiled().map_or(Some(false), |compiled| compiled.is_match(text, left))
    }
}

impl Inner {
    fn compiled(self: &Arc<Self>) -> Option<Arc<Compiled>> {
        // Whoever needs it at the same time waits, and compiles nothing.
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*kept {
            return Some(Arc::clone(compiled));
        }
        let compiled = Arc::new(Compiled::new(&self.translated, self.size)?);
        *kept = Some(Arc::clone(&compiled));
        drop(kept);
        for gone in self.cache.with(|patterns| patterns.note_compiled(self)) {
            *gone.compiled.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Some(compiled)
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

    /// Notes that a pattern is compiled; answers with those that give way to it.
    fn note_compiled(&mut self, inner: &Arc<Inner>) -> Vec<Arc<Inner>> {
        let bytes = compiled::bytes(inner.size);
        self.compiled.push_back((Arc::downgrade(inner), bytes));
        self.compiled_bytes += bytes;
        let mut gone = Vec::new();
        while self.compiled_bytes > COMPILED_BYTES
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

/// The same pattern for this library: the classes of RE2 are of ASCII, and a
/// class in it holds no classes and no operators.
fn translate(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(escaped) = rest.strip_prefix('\\') {
            let (escape, behind) = split_escape(escaped)?;
            match of_ascii(escape) {
                Some(ascii) => out.extend(["[", ascii, "]"]),
                None if escape == "b" => out.push_str("(?-u:\\b)"),
                None if escape == "B" => out.push_str(NO_BOUNDARY),
                // Here these are the ends of words.
                None if ["<", ">"].contains(&escape) => out.push_str(escape),
                None => out.extend(["\\", escape]),
            }
            rest = behind;
        } else if character == '{' && !is_repetition(rest) {
            out.push_str("\\{");
            rest = &rest[1..];
        } else if let Some(class) = rest.strip_prefix('[') {
            rest = translate_class(class, &mut out)?;
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    Some(out)
}

/// Whether a brace says how often: `{2}`, `{2,}`, `{2,5}`.
fn is_repetition(text: &str) -> bool {
    let inner = text.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let Some((inner, _)) = inner else { return false };
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && is_number(least) && is_number(most)
}

/// Translates what is behind the `[` of a class; answers with what is behind
/// its end.
fn translate_class<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    out.push('[');
    let mut rest = text;
    if let Some(behind) = rest.strip_prefix('^') {
        out.push('^');
        rest = behind;
    }
    let mut is_first = true;
    loop {
        if let Some(behind) = rest.strip_prefix(']').filter(|_| !is_first) {
            out.push(']');
            return Some(behind);
        }
        is_first = false;
        if let Some(end) = rest.strip_prefix("[:").and_then(|rest| rest.find(":]")) {
            out.push_str(&rest[..end + 4]);
            rest = &rest[end + 4..];
            continue;
        }
        let (is_set, behind) = translate_member(rest, out)?;
        rest = behind;
        let last = rest.strip_prefix('-').filter(|last| !is_set && !last.starts_with(']'));
        if let Some(last) = last {
            out.push('-');
            let (is_set, behind) = translate_member(last, out)?;
            if is_set {
                return None;
            }
            rest = behind;
        }
    }
}

/// Translates one member of a class; answers whether it stands for several,
/// and with what is behind it.
fn translate_member<'a>(text: &'a str, out: &mut String) -> Option<(bool, &'a str)> {
    if let Some(escaped) = text.strip_prefix('\\') {
        let (escape, behind) = split_escape(escaped)?;
        let ascii = of_ascii(escape);
        match ascii {
            Some(ascii) => match ascii.strip_prefix('^') {
                Some(_) => out.extend(["[", ascii, "]"]),
                None => out.push_str(ascii),
            },
            None if ["<", ">"].contains(&escape) => out.push_str(escape),
            None => out.extend(["\\", escape]),
        }
        return Some((ascii.is_some() || escape.starts_with(['p', 'P']), behind));
    }
    let character = text.chars().next()?;
    if character.is_ascii_punctuation() && !['<', '>'].contains(&character) {
        out.push('\\');
    }
    out.push(character);
    Some((false, &text[character.len_utf8()..]))
}

/// An escape without its backslash, and what is behind it.
fn split_escape(text: &str) -> Option<(&str, &str)> {
    let name = text.chars().next()?;
    let argument = &text[name.len_utf8()..];
    let length = match name {
        'x' | 'p' | 'P' if argument.starts_with('{') => argument.find('}')? + 1,
        'x' => 2,
        'p' | 'P' => 1,
        _ => 0,
    };
    text.split_at_checked(name.len_utf8() + length)
}

/// What a class of Perl's holds in RE2.
fn of_ascii(escape: &str) -> Option<&'static str> {
    match escape {
        "d" => Some("0-9"),
        "D" => Some("^0-9"),
        "w" => Some("0-9A-Za-z_"),
        "W" => Some("^0-9A-Za-z_"),
        "s" => Some("\\t\\n\\f\\r "),
        "S" => Some("^\\t\\n\\f\\r "),
        _ => None,
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
        for other in ["(?=a)", "[a--b]", "[a-\\d]", "[a", "(", "\\", "\\x"] {
            assert!(Pattern::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn equal_patterns_are_one() {
        let one = Pattern::parse("^equal[0-9]$").unwrap();
        let other = Pattern::parse("^equal[0-9]$").unwrap();
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(one.0.compiled.lock().unwrap().is_none(), "nobody has held a text against it");
        assert!(is_match(&one, "equal1") && other.0.compiled.lock().unwrap().is_some());
    }

    #[test]
    fn what_is_too_large_is_no_pattern() {
        assert!(Pattern::parse("^[a-z]{1,1000}$").is_some());
        assert!(Pattern::parse("(([a-z]{100}){100}){100}").is_none());
    }

    #[test]
    fn servers_do_not_share_what_stays_compiled() {
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
