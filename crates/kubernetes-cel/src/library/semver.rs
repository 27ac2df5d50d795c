//! Semantic versions, and the comparison of versions and quantities.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{Extension, Native};
use crate::value::{Failure, Outcome, Value};

/// `major.minor.patch-pre`. The build metadata after a plus is ignored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Version {
    numbers: [u64; 3],
    pre: Vec<Part>,
}

/// A part of the pre-release after the minus. Numbers sort before strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (at, part) in self.pre.iter().enumerate() {
            f.write_str(if at == 0 { "-" } else { "." })?;
            match part {
                Part::Number(number) => write!(f, "{number}")?,
                Part::Text(text) => f.write_str(text)?,
            }
        }
        Ok(())
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "semver" => |_, all| parse_all(all)?.map(value).map_err(Failure::new),
        "isSemver" => |_, all| Ok(Value::Bool(parse_all(all)?.is_ok())),
        "major" => |_, all| number(all, 0),
        "minor" => |_, all| number(all, 1),
        "patch" => |_, all| number(all, 2),
        "compareTo" => |_, all| compared(all, |order| Value::Int(order as i64)),
        "isLessThan" => |_, all| compared(all, |order| Value::Bool(order.is_lt())),
        "isGreaterThan" => |_, all| compared(all, |order| Value::Bool(order.is_gt())),
        _ => return None,
    })
}

fn value(version: Version) -> Value<'static> {
    Value::Extension(Arc::new(Extension::Semver(version)))
}

fn parse_all(all: &[Value<'_>]) -> Result<Result<Version, String>, Failure> {
    match all {
        [Value::String(text)] => Ok(parse(text.as_str())),
        [Value::String(text), Value::Bool(false)] => Ok(parse(text.as_str())),
        [Value::String(text), Value::Bool(true)] => {
            Ok(normalized(text.as_str()).and_then(|text| parse(&text)))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn number<'v>(all: &[Value<'v>], at: usize) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match &**value {
            Extension::Semver(version) => Ok(Value::Int(version.numbers[at] as i64)),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn compared<'v>(all: &[Value<'v>], of: fn(Ordering) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(one), Value::Extension(other)] => match (&**one, &**other) {
            (Extension::Semver(one), Extension::Semver(other)) => Ok(of(one.order(other))),
            (Extension::Quantity(one), Extension::Quantity(other)) => Ok(of(one.order(*other))),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

impl Version {
    fn order(&self, other: &Self) -> Ordering {
        let of_pre = match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        };
        self.numbers.cmp(&other.numbers).then(of_pre)
    }
}

fn is_part(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts[..] else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (rest, None),
    };
    let (patch, pre) = match rest.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (rest, None),
    };
    let numbers = [
        whole(major, "major", "Major")?,
        whole(minor, "minor", "Minor")?,
        whole(patch, "patch", "Patch")?,
    ];
    let mut parsed = Vec::new();
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".to_owned());
        }
        if !is_part(part) {
            return Err(format!("Invalid character(s) found in prerelease {part:?}"));
        }
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            parsed.push(Part::Text(part.to_owned()));
            continue;
        }
        if part.len() > 1 && part.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {part:?}"
            ));
        }
        parsed.push(Part::Number(part.parse().map_err(|_| "value out of range".to_owned())?));
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_part(part) {
            return Err(format!("Invalid character(s) found in build meta data {part:?}"));
        }
    }
    Ok(Version { numbers, pre: parsed })
}

fn whole(text: &str, name: &str, capital: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{capital} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| match text {
        "" => "strconv.ParseUint: parsing \"\": invalid syntax".to_owned(),
        _ => format!("strconv.ParseUint: parsing {text:?}: value out of range"),
    })
}

/// Normalizes a loosely written version: `v1`, `1.2`, `01.2.3`.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            let begins = trimmed.starts_with(|char: char| char.is_ascii_digit());
            *part = if begins { trimmed.to_owned() } else { format!("0{trimmed}") };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}
