//! Functions of strings, which work on characters.

use super::{Invocation, Native, template};
use crate::pattern::Pattern;
use crate::value::{Failure, List, Outcome, Value, char_boundary, count_chars};

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "contains" => |_, all| two(all, |text, part| Ok(Value::Bool(text.contains(part)))),
        "startsWith" => |_, all| two(all, |text, part| Ok(Value::Bool(text.starts_with(part)))),
        "endsWith" => |_, all| two(all, |text, part| Ok(Value::Bool(text.ends_with(part)))),
        "matches" => matches,
        "find" => find,
        "findAll" => find_all,
        "charAt" => char_at,
        "indexOf" => |call, all| match all {
            [Value::List(list), value] => super::lists::index_of(call, list, value, false),
            _ => index_of(all, false),
        },
        "lastIndexOf" => |call, all| match all {
            [Value::List(list), value] => super::lists::index_of(call, list, value, true),
            _ => index_of(all, true),
        },
        "lowerAscii" => |_, all| one(all, |text| Value::text(text.to_ascii_lowercase())),
        "upperAscii" => |_, all| one(all, |text| Value::text(text.to_ascii_uppercase())),
        "trim" => |_, all| one(all, |text| Value::text(text.trim())),
        "strings.quote" => |_, all| one(all, |text| Value::text(quote(text))),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => template::format,
        _ => return None,
    })
}

fn one<'v>(all: &[Value<'v>], of: fn(&str) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::String(text)] => Ok(of(text.as_str())),
        _ => Err(Failure::no_such_overload()),
    }
}

fn two<'v>(all: &[Value<'v>], of: fn(&str, &str) -> Outcome<'static>) -> Outcome<'v> {
    match all {
        [Value::String(text), Value::String(other)] => of(text.as_str(), other.as_str()),
        _ => Err(Failure::no_such_overload()),
    }
}

fn matches<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::String(text), Value::String(pattern)] = all else {
        return Err(Failure::no_such_overload());
    };
    Ok(Value::Bool(match call.pattern {
        Some(pattern) => pattern.is_match(text.as_str()),
        None => {
            let made = call.meter.pattern(pattern.as_str(), Pattern::compile)?;
            made.map_err(Failure::new)?.is_match(text.as_str())
        }
    }))
}

fn compiled(call: &mut Invocation<'_>, pattern: &str) -> Result<Pattern, Failure> {
    match call.pattern {
        Some(pattern) => Ok(pattern.clone()),
        None => {
            let found = call.meter.pattern(pattern, Pattern::compile)?;
            found.map_err(|why| Failure::new(format!("Illegal regex: {why}")))
        }
    }
}

fn find<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::String(text), Value::String(pattern)] = all else {
        return Err(Failure::no_such_overload());
    };
    let pattern = compiled(call, pattern.as_str())?;
    let found = pattern.find(text.as_str()).unwrap_or_default();
    Ok(Value::text(found))
}

fn find_all<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (text, pattern, most) = match all {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        [Value::String(text), Value::String(pattern), Value::Int(most)] => {
            (text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(Failure::no_such_overload()),
    };
    let pattern = compiled(call, pattern.as_str())?;
    let mut all = Vec::new();
    for found in pattern.find_iter(text.as_str()).take(most) {
        // Each match is a separate string.
        call.meter.make_list(2)?;
        call.meter.make(found.len())?;
        all.push(Value::text(found));
    }
    Ok(Value::list(all))
}

fn out_of_range(index: i64) -> Failure {
    Failure::new(format!("index out of range: {index}"))
}

/// The byte offset of the character at an index. The end of the string is also valid.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(index)
}

fn char_at<'v>(_: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let [Value::String(text), Value::Int(index)] = all else {
        return Err(Failure::no_such_overload());
    };
    let text = text.as_str();
    let at = byte_of(text, *index).ok_or_else(|| out_of_range(*index))?;
    let found: String = text[at..].chars().take(1).collect();
    Ok(Value::text(found))
}

fn index_of<'v>(all: &[Value<'v>], is_last: bool) -> Outcome<'v> {
    let (text, part, offset) = match all {
        [Value::String(text), Value::String(part)] => (text.as_str(), part.as_str(), None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => {
            (text.as_str(), part.as_str(), Some(*offset))
        }
        _ => return Err(Failure::no_such_overload()),
    };
    let length = count_chars(text) as i64;
    if part.is_empty() {
        let of_all = if is_last { length } else { 0 };
        return Ok(Value::Int(offset.unwrap_or(of_all)));
    }
    if offset.is_some_and(|offset| offset < 0) {
        return Err(out_of_range(offset.unwrap_or_default()));
    }
    if offset.is_some_and(|offset| offset >= length) || part.len() > text.len() {
        return Ok(Value::Int(-1));
    }
    let found = if is_last {
        let last = offset.unwrap_or(length - 1).min(length - count_chars(part) as i64);
        // A match may start at the last character and ends at a character boundary.
        byte_of(text, last).and_then(|start| {
            let end = char_boundary(text, start + part.len());
            text[..end].rfind(part)
        })
    } else {
        let start = byte_of(text, offset.unwrap_or_default()).unwrap_or(text.len());
        text[start..].find(part).map(|found| start + found)
    };
    let found = found.map(|at| count_chars(&text[..at]) as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn replace<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (text, from, to, most) = match all {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(most)] => {
            (text, from, to, *most)
        }
        _ => return Err(Failure::no_such_overload()),
    };
    let (text, from, to) = (text.as_str(), from.as_str(), to.as_str());
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    // The result can be much longer than its cost suggests.
    let count = if from.is_empty() { text.len() + 1 } else { text.matches(from).count() };
    let added = count.min(most).saturating_mul(to.len());
    call.meter.make(added.saturating_add(text.len()).saturating_mul(2))?;
    Ok(Value::text(text.replacen(from, to, most)))
}

fn split<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (text, separator, most) = match all {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(most)] => {
            (text, separator, *most)
        }
        _ => return Err(Failure::no_such_overload()),
    };
    let (text, separator) = (text.as_str(), separator.as_str());
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    // Each part is a separate string.
    let count = if separator.is_empty() { text.len() } else { text.matches(separator).count() + 1 };
    call.meter.make_list(count.min(most).saturating_mul(2))?;
    call.meter.make(text.len())?;
    let parts: Vec<Value<'v>> = if separator.is_empty() {
        let ends = text.char_indices().map(|(at, char)| (at, at + char.len_utf8()));
        let numbered = ends.enumerate().take(most);
        // The last part contains the rest of the string.
        let part = |(number, (start, end)): (usize, (usize, usize))| {
            let end = if number + 1 == most { text.len() } else { end };
            Value::text(&text[start..end])
        };
        numbered.map(part).collect()
    } else {
        text.splitn(most, separator).map(Value::text).collect()
    };
    Ok(Value::list(parts))
}

fn substring<'v>(_: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (text, start, end) = match all {
        [Value::String(text), Value::Int(start)] => (text.as_str(), *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => {
            (text.as_str(), *start, Some(*end))
        }
        _ => return Err(Failure::no_such_overload()),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(Failure::new(message));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::text(&text[from..to]))
}

fn join<'v>(call: &mut Invocation<'_>, all: &[Value<'v>]) -> Outcome<'v> {
    let (list, separator): (&List<'v>, &str) = match all {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator.as_str()),
        _ => return Err(Failure::no_such_overload()),
    };
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        // The cost is computed after the call, so the size is limited here.
        if at > 0 {
            call.meter.make(separator.len())?;
            joined.push_str(separator);
        }
        match item? {
            Value::String(text) => {
                call.meter.make(text.as_str().len())?;
                joined.push_str(text.as_str());
            }
            other => return Err(Failure::new(format!("join: invalid input: {other}"))),
        }
    }
    Ok(Value::text(joined))
}

/// The string in double quotes, with escapes.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
