//! The lexer, which splits an expression into tokens.

use std::sync::Arc;

use crate::source::{Faults, Source};

/// A token with its start and its end.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub kind: Word,
    pub start: usize,
    pub end: usize,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    End,
    Ident(Arc<str>),
    /// `` `name` ``
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    /// An operator, a bracket, or one of `in`, `true`, `false` and `null`.
    Sign(&'static str),
}

/// Operators and brackets, longest first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "<", ">",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits an expression into tokens. Invalid characters are reported as errors and omitted.
pub(crate) fn tokens(source: &Source, faults: &mut Faults) -> Vec<Token> {
    let chars = &source.chars;
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if let Some(end) = blank(chars, at) {
            at = end;
            continue;
        }
        match word(chars, at) {
            Ok((kind, end)) => {
                found.push(Token { kind, start: at, end });
                at = end;
            }
            Err(end) => {
                let end = end.min(chars.len());
                let text: String = chars[at..end].iter().collect();
                let text = text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
                let message = format!("Syntax error: token recognition error at: '{text}'");
                faults.push(source.place(at), message);
                at = end;
            }
        }
    }
    found.push(Token { kind: Word::End, start: chars.len(), end: chars.len() });
    found
}

/// The end of the blanks or the comment at this position.
fn blank(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let blanks = rest.iter().take_while(|char| "\t \r\n\u{c}".contains(**char)).count();
    if blanks > 0 {
        return Some(at + blanks);
    }
    let is_comment = rest.starts_with(&['/', '/']);
    is_comment.then(|| at + rest.iter().take_while(|char| **char != '\n').count())
}

/// The token at this position and its end. The error is the end of the invalid characters.
fn word(chars: &[char], at: usize) -> Result<(Word, usize), usize> {
    let first = chars[at];
    if let Some((prefix, kind, is_raw)) = quote_prefix(&chars[at..]) {
        let end = string_end(chars, at + prefix, is_raw)?;
        return Ok((kind, end));
    }
    let is_number = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    if is_number(at) || (first == '.' && is_number(at + 1)) {
        return Ok(number(chars, at));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let is_part = |char: &&char| char.is_ascii_alphanumeric() || **char == '_';
        let end = at + chars[at..].iter().take_while(is_part).count();
        let text: String = chars[at..end].iter().collect();
        let kind = WORDS.into_iter().find(|word| *word == text);
        return Ok((kind.map_or_else(|| Word::Ident(text.into()), Word::Sign), end));
    }
    if first == '`' {
        let is_part = |char: &&char| char.is_ascii_alphanumeric() || "_.-/ ".contains(**char);
        let end = at + 1 + chars[at + 1..].iter().take_while(is_part).count();
        return match chars.get(end) {
            Some('`') if end > at + 1 => Ok((Word::EscapedIdent, end + 1)),
            _ => Err(end + 1),
        };
    }
    let begins = |sign: &&&str| sign.chars().zip(&chars[at..]).all(|(a, b)| a == *b);
    let fits = |sign: &&&str| chars.len() - at >= sign.len();
    match SIGNS.iter().filter(fits).find(begins) {
        Some(sign) => Ok((Word::Sign(sign), at + sign.len())),
        // An incomplete operator includes the character at the position of its second half.
        None => Err(if "&|=".contains(first) { at + 2 } else { at + 1 }),
    }
}

/// The length of the prefix of a string literal, the kind of the literal, and whether it is raw.
fn quote_prefix(rest: &[char]) -> Option<(usize, Word, bool)> {
    let letters = rest.iter().take(2).take_while(|char| "rRbB".contains(**char)).count();
    if !matches!(rest.get(letters), Some('"' | '\'')) {
        return None;
    }
    let prefix: String = rest[..letters].iter().collect::<String>().to_lowercase();
    match prefix.as_str() {
        "" => Some((0, Word::String, false)),
        "r" => Some((1, Word::String, true)),
        "b" => Some((1, Word::Bytes, false)),
        "br" => Some((2, Word::Bytes, true)),
        // `rb"` is an identifier followed by a string.
        _ => None,
    }
}

/// The end of the string literal that starts at this quotation mark.
fn string_end(chars: &[char], at: usize, is_raw: bool) -> Result<usize, usize> {
    let quote = chars[at];
    let is_triple = chars[at..].starts_with(&[quote; 3]);
    let marks = if is_triple { 3 } else { 1 };
    let mut end = at + marks;
    while let Some(char) = chars.get(end) {
        match char {
            '\\' if !is_raw => {
                let length = escape_length(&chars[end..]);
                if length == 0 {
                    return Err(end + 2);
                }
                end += length;
            }
            '\n' | '\r' if !is_triple => return Err(end + 1),
            char if *char == quote && (!is_triple || chars[end..].starts_with(&[quote; 3])) => {
                return Ok(end + marks);
            }
            _ => end += 1,
        }
    }
    Err(end)
}

/// The length of the escape sequence at this position; 0 if it is invalid.
fn escape_length(rest: &[char]) -> usize {
    let hex = |count: usize| {
        let digits = rest.get(2..2 + count);
        let are_hex = digits.is_some_and(|all| all.iter().all(char::is_ascii_hexdigit));
        if are_hex { 2 + count } else { 0 }
    };
    match rest.get(1) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => 2,
        Some('x' | 'X') => hex(2),
        Some('u') => hex(4),
        Some('U') => hex(8),
        Some('0'..='3') => {
            let octal = |char: &char| ('0'..='7').contains(char);
            let digits = rest.get(2..4);
            if digits.is_some_and(|digits| digits.iter().all(octal)) { 4 } else { 0 }
        }
        _ => 0,
    }
}

fn number(chars: &[char], at: usize) -> (Word, usize) {
    let digits = |at: usize| chars[at..].iter().take_while(|char| char.is_ascii_digit()).count();
    let is = |at: usize, among: &str| chars.get(at).is_some_and(|char| among.contains(*char));
    if chars[at] == '0' && is(at + 1, "x") && chars.get(at + 2).is_some_and(char::is_ascii_hexdigit)
    {
        let hex = chars[at + 2..].iter().take_while(|char| char.is_ascii_hexdigit()).count();
        let end = at + 2 + hex;
        return if is(end, "uU") { (Word::Uint, end + 1) } else { (Word::Int, end) };
    }
    let mut end = at + digits(at);
    let mut kind = Word::Int;
    if is(end, ".") && chars.get(end + 1).is_some_and(char::is_ascii_digit) {
        kind = Word::Float;
        end += 1 + digits(end + 1);
    }
    if is(end, "eE") {
        let sign = usize::from(is(end + 1, "+-"));
        if chars.get(end + 1 + sign).is_some_and(char::is_ascii_digit) {
            kind = Word::Float;
            end += 1 + sign + digits(end + 1 + sign);
        }
    }
    if kind == Word::Int && is(end, "uU") {
        return (Word::Uint, end + 1);
    }
    (kind, end)
}
