//! Translation of RE2 patterns to the syntax of the crate `regex`, which is nearly the same.
//!
//! Perl classes are ASCII in RE2, a class cannot contain classes, and a brace without a number is a literal. Errors
//! have Go's messages.

mod class;
mod escape;
mod names;
#[cfg(test)]
mod tests;

/// Translates a pattern for the crates `regex` and `regex-automata`. The result may contain `(?-u:\B)`, which the
/// parser accepts only without its option `utf8`.
///
/// # Errors
/// The error of Go's `regexp.Compile`.
pub fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader {
        whole: pattern,
        rest: pattern,
        out: String::new(),
        flags: String::new(),
        frames: vec![Frame::default()],
    };
    reader.read().map_err(|Fault(what, of)| format!("error parsing regexp: {what}: `{of}`"))?;
    Ok(reader.out)
}

/// An error, and the part of the pattern that causes it.
struct Fault(&'static str, String);

const INVALID_ESCAPE: &str = "invalid escape sequence";
const INVALID_RANGE: &str = "invalid character class range";
const INVALID_COUNT: &str = "invalid repeat count";
const INVALID_PERL: &str = "invalid or unsupported Perl syntax";
const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
/// The largest product of all nested repetitions of a part.
const MOST_REPEATED: u32 = 1_000;

/// An open group.
#[derive(Default)]
struct Frame {
    /// Whether the last part can be repeated.
    has_atom: bool,
    /// The repetitions of the last part of the pattern, multiplied by the repetitions nested in it.
    last: u32,
    /// The largest product of any part.
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
    /// Flags that apply from the next part on. RE2 repeats the part before them: `a(?i)*`.
    flags: String,
    frames: Vec<Frame>,
}

/// The smallest and the largest number of repetitions; `None` for no limit.
type Count = (u32, Option<u32>);

impl<'a> Reader<'a> {
    fn read(&mut self) -> Result<(), Fault> {
        // The position of the last repetition, if it is the last part.
        let mut repeated: Option<&'a str> = None;
        while let Some(next) = self.rest.chars().next() {
            let before = self.rest;
            let counted = if next == '{' { count(before) } else { None };
            let repeats = matches!(next, '*' | '+' | '?') || counted.is_some();
            if !repeats {
                self.write_flags();
            }
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
                }
                '{' => match counted {
                    None => {
                        self.out.push_str("\\{");
                        self.rest = &before[1..];
                        self.atom();
                    }
                    Some(((least, most), length)) => {
                        let is_good = least <= MOST_REPEATED
                            && most.is_none_or(|most| most <= MOST_REPEATED && least <= most);
                        if !is_good {
                            return Err(Fault(INVALID_COUNT, before[..length].to_owned()));
                        }
                        self.take(length);
                        self.repeat(Some((least, most)), before, repeated)?;
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

    /// Copies bytes of the pattern to the result.
    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.out.push_str(taken);
        self.rest = rest;
    }

    fn write_flags(&mut self) {
        self.out.push_str(&self.flags);
        self.flags.clear();
    }

    fn atom(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.atom(1);
        }
    }

    /// Reads what follows a repetition operator; `before` begins with the operator.
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
        let times = count.map_or(1, |(least, most)| most.unwrap_or(least.max(1)));
        let repeats = frame.last.max(1).saturating_mul(times);
        if times >= 2 && repeats > MOST_REPEATED {
            return Err(Fault(INVALID_COUNT, text));
        }
        frame.atom(repeats);
        Ok(())
    }

    /// Reads an opening parenthesis: a group, whose name is ignored, or flags.
    fn group(&mut self) -> Result<(), Fault> {
        let text = self.rest;
        let Some(inner) = text.strip_prefix("(?") else {
            self.open("(", 1);
            return Ok(());
        };
        let named = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
        match named.filter(|named| !named.is_empty()) {
            Some(named) => self.named_group(named),
            None => self.flags(inner),
        }
    }

    fn named_group(&mut self, named: &str) -> Result<(), Fault> {
        const INVALID_NAME: &str = "invalid named capture";
        let text = self.rest;
        let Some(end) = named.find('>') else { return Err(Fault(INVALID_NAME, text.to_owned())) };
        let length = text.len() - named.len() + end + 1;
        let name = &named[..end];
        let is_name = |char: char| char == '_' || char.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(Fault(INVALID_NAME, text[..length].to_owned()));
        }
        self.open("(", length);
        Ok(())
    }

    /// Reads the flags at the beginning of `inner`.
    fn flags(&mut self, inner: &str) -> Result<(), Fault> {
        let text = self.rest;
        let (mut is_negated, mut has_flags) = (false, false);
        for (at, char) in inner.char_indices() {
            let length = "(?".len() + at + char.len_utf8();
            match char {
                'i' | 'm' | 's' | 'U' => has_flags = true,
                '-' if !is_negated => (is_negated, has_flags) = (true, false),
                ':' if has_flags || !is_negated => {
                    self.open(&text[..length], length);
                    return Ok(());
                }
                ')' if has_flags || !is_negated => {
                    // `(?)` sets nothing.
                    self.flags.push_str(if at == 0 { "" } else { &text[..length] });
                    self.rest = &text[length..];
                    return Ok(());
                }
                _ => return Err(Fault(INVALID_PERL, text[..length].to_owned())),
            }
        }
        Err(Fault(INVALID_PERL, text.to_owned()))
    }

    fn open(&mut self, written: &str, length: usize) {
        // Captures are not needed, so groups do not capture.
        self.out.push_str(if written == "(" { "(?:" } else { written });
        self.rest = &self.rest[length..];
        self.frames.push(Frame::default());
    }

    fn end_group(&mut self) -> Result<(), Fault> {
        match self.frames.pop() {
            Some(inner) if !self.frames.is_empty() => {
                self.take(1);
                if let Some(frame) = self.frames.last_mut() {
                    frame.atom(inner.most);
                }
                Ok(())
            }
            _ => Err(Fault("unexpected )", self.whole.to_owned())),
        }
    }
}

/// A literal character, inside and outside of classes.
fn literal(char: char) -> String {
    match char {
        char if char.is_ascii_alphanumeric() || !char.is_ascii() => char.to_string(),
        char => format!("\\x{{{:x}}}", u32::from(char)),
    }
}

/// The count after an opening brace, and its length; `None` if the brace is a literal.
fn count(text: &str) -> Option<(Count, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let number = |text: &str| {
        let is_number = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text.len() == 1 || !text.starts_with('0'));
        // A number beyond 32 bits is always too large.
        is_number.then(|| text.parse().unwrap_or(u32::MAX))
    };
    let count = match inner.split_once(',') {
        None => number(inner).map(|least| (least, Some(least)))?,
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((count, end + 1))
}
