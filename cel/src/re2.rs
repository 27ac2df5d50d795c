//! Patterns as RE2 reads them, written for a library that reads nearly the same language: classes of
//! Perl's are of ASCII, a class holds no classes, a brace that says no number is one. What is none is
//! told in Go's words.

/// The same pattern for the library `regex`.
///
/// # Errors
/// Why it is none, as Go says it.
pub(crate) fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader {
        whole: pattern,
        rest: pattern,
        out: String::new(),
        frames: vec![Frame::default()],
    };
    reader.read().map_err(|Fault(what, of)| format!("error parsing regexp: {what}: `{of}`"))?;
    Ok(reader.out)
}

/// What is wrong, and with what.
struct Fault(&'static str, String);

const INVALID_ESCAPE: &str = "invalid escape sequence";
const INVALID_RANGE: &str = "invalid character class range";
const INVALID_COUNT: &str = "invalid repeat count";
const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
/// How often something may be repeated, all repetitions around it together.
const MOST_REPEATED: u32 = 1_000;
/// The classes that `[:` begins.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// What has been read of a group.
#[derive(Default)]
struct Frame {
    /// Whether there is something that can be repeated.
    has_atom: bool,
    /// How often the last part repeats what is in it.
    last: u32,
    /// How often any part does.
    most: u32,
}

impl Frame {
    fn atom(&mut self, repeats: u32) {
        self.has_atom = true;
        self.last = repeats;
        self.most = self.most.max(repeats);
    }
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    frames: Vec<Frame>,
}

/// How often: at least, and at most; `None` for without end.
type Count = (u32, Option<u32>);

impl<'a> Reader<'a> {
    fn read(&mut self) -> Result<(), Fault> {
        // Where the last repetition began, if nothing has come since.
        let mut repeated: Option<&'a str> = None;
        while let Some(next) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeats = false;
            match next {
                '(' => self.group()?,
                ')' => self.end_group()?,
                '|' => {
                    self.take(1);
                    if let Some(frame) = self.frames.last_mut() {
                        frame.has_atom = false;
                    }
                }
                '[' => self.class()?,
                '\\' => self.escape()?,
                '*' | '+' | '?' => {
                    self.take(1);
                    self.repeat(None, before, repeated)?;
                    repeats = true;
                }
                '{' => match count(before) {
                    None => {
                        self.out.push_str("\\{");
                        self.rest = &before[1..];
                        self.atom();
                    }
                    Some((count, length)) => {
                        let is_good = |(least, most): Count| {
                            least <= MOST_REPEATED
                                && most.is_none_or(|most| most <= MOST_REPEATED && least <= most)
                        };
                        if !is_good(count) {
                            return Err(Fault(INVALID_COUNT, before[..length].to_owned()));
                        }
                        self.take(length);
                        self.repeat(Some(count), before, repeated)?;
                        repeats = true;
                    }
                },
                other => {
                    self.take(other.len_utf8());
                    self.atom();
                }
            }
            repeated = repeats.then_some(before);
        }
        match self.frames.len() {
            1 => Ok(()),
            _ => Err(Fault("missing closing )", self.whole.to_owned())),
        }
    }

    /// Goes on behind so many bytes, which are written as they are.
    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
    }

    fn atom(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.atom(1);
        }
    }

    /// Behind a sign that repeats; `before` begins with it.
    fn repeat(
        &mut self,
        count: Option<Count>,
        before: &'a str,
        repeated: Option<&'a str>,
    ) -> Result<(), Fault> {
        if self.rest.starts_with('?') {
            self.take(1);
        }
        let until_here = |from: &str| from[..from.len() - self.rest.len()].to_owned();
        if let Some(repeated) = repeated {
            return Err(Fault("invalid nested repetition operator", until_here(repeated)));
        }
        let text = until_here(before);
        let Some(frame) = self.frames.last_mut().filter(|frame| frame.has_atom) else {
            return Err(Fault(MISSING_ARGUMENT, text));
        };
        let times = count.map_or(1, |(least, most)| most.unwrap_or(least));
        let repeats = frame.last.max(1).saturating_mul(times.max(1));
        if times >= 2 && repeats > MOST_REPEATED {
            return Err(Fault(INVALID_COUNT, text));
        }
        frame.atom(repeats);
        Ok(())
    }

    /// A bracket that opens: a group, whose name does not matter, or flags.
    fn group(&mut self) -> Result<(), Fault> {
        let text = self.rest;
        let Some(inner) = text.strip_prefix("(?") else {
            self.open("(?:", 1);
            return Ok(());
        };
        let named = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let what = "invalid named capture";
            let Some(end) = named.find('>') else { return Err(Fault(what, text.to_owned())) };
            let length = text.len() - named.len() + end + 1;
            let name = &named[..end];
            let is_name = |char: char| char == '_' || char.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(Fault(what, text[..length].to_owned()));
            }
            self.open("(?:", length);
            return Ok(());
        }
        let (mut is_negated, mut has_flags) = (false, false);
        for (at, char) in inner.char_indices() {
            match char {
                'i' | 'm' | 's' | 'U' => has_flags = true,
                '-' if !is_negated => (is_negated, has_flags) = (true, false),
                ':' | ')' if has_flags || !is_negated => {
                    let length = "(?".len() + at + 1;
                    match char {
                        ':' => self.open(&text[..length], length),
                        // Flags of nothing are nothing.
                        _ if at == 0 => self.rest = &text[length..],
                        _ => self.take(length),
                    }
                    return Ok(());
                }
                _ => {
                    let until = "(?".len() + at + char.len_utf8();
                    return Err(Fault(
                        "invalid or unsupported Perl syntax",
                        text[..until].to_owned(),
                    ));
                }
            }
        }
        Err(Fault("invalid or unsupported Perl syntax", text.to_owned()))
    }

    fn open(&mut self, written: &str, length: usize) {
        self.out.push_str(written);
        self.rest = &self.rest[length..];
        self.frames.push(Frame::default());
    }

    fn end_group(&mut self) -> Result<(), Fault> {
        match self.frames.pop() {
            Some(inner) if !self.frames.is_empty() => {
                self.take(1);
                if let Some(frame) = self.frames.last_mut() {
                    frame.atom(inner.most.max(1));
                }
                Ok(())
            }
            _ => Err(Fault("unexpected )", self.whole.to_owned())),
        }
    }

    /// What a backslash begins, outside of classes.
    fn escape(&mut self) -> Result<(), Fault> {
        let text = self.rest;
        let written = match text[1..].chars().next() {
            Some('A' | 'z' | 'B') => text[..2].to_owned(),
            Some('b') => "(?-u:\\b)".to_owned(),
            Some('C') => return Err(Fault(INVALID_ESCAPE, text[..2].to_owned())),
            Some('Q') => {
                let (literal, rest) = text[2..].split_once("\\E").unwrap_or((&text[2..], ""));
                self.out.push_str(&regex::escape(literal));
                self.rest = rest;
                if !literal.is_empty() {
                    self.atom();
                }
                return Ok(());
            }
            _ => match self.set()? {
                Some(set) => {
                    self.out.push_str(&format!("[{set}]"));
                    self.atom();
                    return Ok(());
                }
                None => {
                    let char = self.escaped_char()?;
                    self.out.push_str(&literal(char));
                    self.atom();
                    return Ok(());
                }
            },
        };
        self.out.push_str(&written);
        self.rest = &text[2..];
        self.atom();
        Ok(())
    }

    /// A class of Perl's or of Unicode that begins here, as it is written in a class.
    fn set(&mut self) -> Result<Option<String>, Fault> {
        let text = self.rest;
        let ascii = match text.as_bytes().get(..2) {
            Some(b"\\d") => "0-9",
            Some(b"\\D") => "[^0-9]",
            Some(b"\\w") => "0-9A-Za-z_",
            Some(b"\\W") => "[^0-9A-Za-z_]",
            Some(b"\\s") => "\\t\\n\\f\\r ",
            Some(b"\\S") => "[^\\t\\n\\f\\r ]",
            Some(b"\\p" | b"\\P") => return self.unicode(text).map(Some),
            _ => return Ok(None),
        };
        self.rest = &text[2..];
        Ok(Some(ascii.to_owned()))
    }

    fn unicode(&mut self, text: &'a str) -> Result<String, Fault> {
        let invalid = |of: &str| Err(Fault(INVALID_RANGE, of.to_owned()));
        let Some(first) = text[2..].chars().next() else { return invalid(text) };
        let (name, length) = match first {
            '{' => match text.find('}') {
                Some(end) => (&text[3..end], end + 1),
                None => return invalid(text),
            },
            char => (&text[2..2 + char.len_utf8()], 2 + char.len_utf8()),
        };
        let (is_negated, name) = match name.strip_prefix('^') {
            Some(name) if first == '{' => (true, name),
            _ => (false, name),
        };
        let kind = if is_negated == text.starts_with("\\P") { 'p' } else { 'P' };
        let set = format!("\\{kind}{{{name}}}");
        let is_name = name.chars().all(|char| char == '_' || char.is_ascii_alphanumeric());
        if !is_name || regex::Regex::new(&set).is_err() {
            return invalid(&text[..length]);
        }
        self.rest = &text[length..];
        Ok(set)
    }

    fn class(&mut self) -> Result<(), Fault> {
        let whole = self.rest;
        self.take(1);
        if self.rest.starts_with('^') {
            self.take(1);
        }
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if let Some(named) = self.rest.strip_prefix("[:")
                && let Some(end) = named.find(":]")
            {
                let name = named[..end].trim_start_matches('^');
                if !NAMED.contains(&name) || end > name.len() + 1 {
                    return Err(Fault(INVALID_RANGE, self.rest[..end + 4].to_owned()));
                }
                self.take(end + 4);
                continue;
            }
            if let Some(set) = self.set()? {
                self.out.push_str(&set);
                continue;
            }
            let range = self.rest;
            let low = self.class_char(whole)?;
            self.out.push_str(&literal(low));
            let is_range = self.rest.starts_with('-') && self.rest.len() > 1;
            if is_range && !self.rest.starts_with("-]") {
                self.rest = &self.rest[1..];
                let high = self.class_char(whole)?;
                if high < low {
                    let range = &range[..range.len() - self.rest.len()];
                    return Err(Fault(INVALID_RANGE, range.to_owned()));
                }
                self.out.push_str(&format!("-{}", literal(high)));
            }
        }
        self.take(1);
        self.atom();
        Ok(())
    }

    /// A character of a class.
    fn class_char(&mut self, whole: &str) -> Result<char, Fault> {
        match self.rest.chars().next() {
            None => Err(Fault("missing closing ]", whole.to_owned())),
            Some('\\') => self.escaped_char(),
            Some(char) => {
                self.rest = &self.rest[char.len_utf8()..];
                Ok(char)
            }
        }
    }

    /// The character that a backslash and what is behind it stand for.
    fn escaped_char(&mut self) -> Result<char, Fault> {
        let text = self.rest;
        let mut chars = text[1..].chars();
        let Some(first) = chars.next() else {
            return Err(Fault("trailing backslash at end of expression", String::new()));
        };
        let found = match first {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '0'..='7' => {
                let digits = octal(&text[1..]);
                let is_octal = first == '0' || digits.len() > 1;
                chars = text[1 + if is_octal { digits.len() } else { 1 }..].chars();
                let code = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
                code.and_then(char::from_u32)
            }
            'x' => hexadecimal(&mut chars),
            char if char.is_ascii() && !char.is_ascii_alphanumeric() => Some(char),
            _ => None,
        };
        let rest = chars.as_str();
        let read = &text[..text.len() - rest.len()];
        self.rest = rest;
        found.ok_or_else(|| Fault(INVALID_ESCAPE, read.to_owned()))
    }
}

/// Up to three octal digits.
fn octal(text: &str) -> &str {
    let count = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    &text[..count]
}

/// The character of `{1F999}` or `1F`; what is read of it before it is none is taken.
fn hexadecimal(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let first = chars.next()?;
    if first != '{' {
        // The second is read whatever the first is.
        let second = chars.next()?;
        return char::from_u32(first.to_digit(16)? * 16 + second.to_digit(16)?);
    }
    let mut code = None;
    loop {
        match chars.next()? {
            '}' => return char::from_u32(code?),
            digit => {
                let next = code.unwrap_or(0_u32) * 16 + digit.to_digit(16)?;
                if next > u32::from(char::MAX) {
                    return None;
                }
                code = Some(next);
            }
        }
    }
}

/// A character that stands for itself, within classes and outside.
fn literal(char: char) -> String {
    match char {
        char if char.is_ascii_alphanumeric() || !char.is_ascii() => char.to_string(),
        char => format!("\\x{{{:x}}}", u32::from(char)),
    }
}

/// The count that a brace begins, and how long it is; `None` if it says none.
fn count(text: &str) -> Option<(Count, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let number = |text: &str| {
        let is_number = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text.len() == 1 || !text.starts_with('0'));
        // What is too large is too large whatever it is.
        is_number.then(|| text.parse().unwrap_or(u32::MAX))
    };
    let count = match inner.split_once(',') {
        None => number(inner).map(|least| (least, Some(least)))?,
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((count, end + 1))
}

#[cfg(test)]
mod tests {
    use super::translate;

    /// Patterns, texts that they match, and texts that they do not.
    const MATCHES: &[(&str, &[&str], &[&str])] = &[
        ("^\\d+$", &["12"], &["٣", "a"]),
        ("^\\w\\W\\s\\S$", &["a- b"], &["éé x"]),
        ("^[\\w-]+$", &["a-b"], &["é"]),
        ("^[^\\s]$", &["é"], &["\t"]),
        ("\\bcat\\b", &["a cat"], &["concat"]),
        ("^[[]$", &["["], &["]"]),
        ("^[]a]$", &["]", "a"], &["b"]),
        ("^[a&&b]$", &["&"], &["c"]),
        ("^[+--]$", &[","], &["."]),
        ("^[[:alpha:][:^alpha:]]$", &["a", "1"], &["ab"]),
        ("^a{,3}$", &["a{,3}"], &["aa"]),
        ("^{x}a{2}$", &["{x}aa"], &["aa"]),
        ("^\\Qa.b\\E+$", &["a.b"], &["axb"]),
        ("^(?P<n>a)(?<n>b)$", &["ab"], &["a"]),
        ("(?i)^ab$", &["AB"], &["a"]),
        ("^\\101\\x42\\x{43}\\.\\_$", &["ABC._"], &["ABCx_"]),
        ("^\\pL\\p{^Lu}\\P{Greek}$", &["aba"], &["aBa"]),
        ("^(?:)(?s).$", &["\n"], &["ab"]),
    ];

    /// Patterns that are none, and what Go says of them.
    const FAULTS: &[(&str, &str)] = &[
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:x:]]", "invalid character class range: `[:x:]`"),
        ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a|+?", "missing argument to repetition operator: `+?`"),
        ("x++", "invalid nested repetition operator: `++`"),
        ("x**?", "invalid nested repetition operator: `**?`"),
        ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("x{1001}", "invalid repeat count: `{1001}`"),
        ("x{3,2}", "invalid repeat count: `{3,2}`"),
        ("(x{100}){11}", "invalid repeat count: `{11}`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("\\q", "invalid escape sequence: `\\q`"),
        ("\\8", "invalid escape sequence: `\\8`"),
        ("\\1", "invalid escape sequence: `\\1`"),
        ("\\xg", "invalid escape sequence: `\\xg`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?P<>a)", "invalid named capture: `(?P<>`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
    ];

    #[test]
    fn patterns_are_read_as_re2_reads_them() {
        for (pattern, good, bad) in MATCHES {
            let translated = translate(pattern).unwrap();
            let compiled = regex::Regex::new(&translated).unwrap();
            good.iter().for_each(|text| assert!(compiled.is_match(text), "{pattern} {text}"));
            bad.iter().for_each(|text| assert!(!compiled.is_match(text), "{pattern} {text}"));
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_as_go_tells_it() {
        for (pattern, why) in FAULTS {
            let expected = format!("error parsing regexp: {why}");
            assert_eq!(translate(pattern), Err(expected), "{pattern}");
        }
    }
}
