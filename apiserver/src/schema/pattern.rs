//! Patterns of texts: written for RE2, matched by a library that speaks nearly
//! the same language.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// How large a pattern may become when it is compiled, in bytes.
const SIZE_LIMIT: usize = 1 << 20;

/// A pattern that a text must match somewhere.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; nothing if it says what is not understood here.
    pub fn parse(text: &str) -> Option<Self> {
        let translated = translate(text)?;
        let regex = RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).build().ok()?;
        Some(Self { text: text.to_owned(), regex })
    }

    /// Whether a text matches somewhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
                // That of ASCII may stand between the bytes of a letter.
                None if escape == "B" => return None,
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
        ];
        for (text, good, bad) in rows {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), *text);
            good.iter().for_each(|good| assert!(pattern.is_match(good), "{text} {good}"));
            bad.iter().for_each(|bad| assert!(!pattern.is_match(bad), "{text} {bad}"));
        }
        for other in ["(?=a)", "[a--b]", "[a-\\d]", "[a", "(", "\\", "\\x", "a\\Bb"] {
            assert!(Pattern::parse(other).is_none(), "{other}");
        }
    }
}
