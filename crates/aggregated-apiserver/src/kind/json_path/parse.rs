//! Parses paths by the rules of Kubernetes' library.

use serde_json::Value;

use super::{Filter, Slice, Step};

/// Parses a path.
pub(super) fn path(text: &str) -> Option<Vec<Step>> {
    let mut parser = Parser { rest: text };
    let mut steps = Vec::new();
    while !parser.rest.is_empty() {
        parser.step(&mut steps)?;
    }
    Some(steps)
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Parses the next step.
    fn step(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            self.rest = rest;
            steps.push(self.filter()?);
            return Some(());
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return None;
            }
            steps.push(Step::Recursive);
            self.rest = rest;
            if rest.starts_with(is_alphanumeric) {
                self.field(steps);
            }
            return Some(());
        }
        let first = self.rest.chars().next()?;
        match first {
            // Spaces are skipped. `@` and `$` are skipped everywhere too, because they name the value at which a path
            // starts.
            ' ' | '@' | '$' => self.skip(first),
            '[' => {
                let end = self
                    .rest
                    .find([']', '\n'])
                    .filter(|end| !self.rest[*end..].starts_with('\n'))?;
                let inside = &self.rest[1..end];
                self.rest = &self.rest[end + 1..];
                brackets(inside, steps)?;
            }
            '"' | '\'' => {
                let end = closing_quote(&self.rest[1..], first)? + 1;
                let quoted = &self.rest[1..end];
                self.rest = &self.rest[end + 1..];
                steps.push(Step::Literal(Value::String(unquoted(quoted, first)?)));
            }
            '.' => {
                self.skip('.');
                self.field(steps);
            }
            '+' | '-' => steps.push(self.number()?),
            digit if digit.is_numeric() => steps.push(self.number()?),
            letter if is_alphanumeric(letter) => {
                let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                steps.push(match word {
                    "true" => Step::Literal(true.into()),
                    "false" => Step::Literal(false.into()),
                    _ => Step::Keyword,
                });
            }
            // Text after the closing brace is not part of the cell. A template with a second path is not
            // supported.
            '}' if !self.rest.contains('{') => self.rest = "",
            _ => return None,
        }
        Some(())
    }

    fn skip(&mut self, character: char) {
        self.rest = &self.rest[character.len_utf8()..];
    }

    /// Parses a name, up to a terminator that is not escaped.
    fn field(&mut self, steps: &mut Vec<Step>) {
        let (mut name, mut characters) = (String::new(), self.rest.char_indices());
        let mut end = self.rest.len();
        while let Some((place, character)) = characters.next() {
            if character == '\\' {
                name.extend(
                    characters.next().map(|(_, escaped)| escaped).filter(|one| *one != '\\'),
                );
            } else if is_terminator(character) {
                end = place;
                break;
            } else {
                name.push(character);
            }
        }
        let is_wildcard = &self.rest[..end] == "*";
        self.rest = &self.rest[end..];
        steps.push(if is_wildcard { Step::Wildcard } else { Step::Field(name) });
    }

    fn number(&mut self) -> Option<Step> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let is_of_number = |character: char| character == '.' || character.is_ascii_digit();
        let digits = self.rest[sign..].find(|character| !is_of_number(character));
        let (number, rest) = self.rest.split_at(digits.map_or(self.rest.len(), |end| sign + end));
        self.rest = rest;
        let whole = number.parse::<i64>().ok().map(Value::from);
        let value = whole.or_else(|| number.parse::<f64>().ok().map(Value::from))?;
        Some(Step::Literal(value))
    }

    /// Parses a filter after its `[?(`.
    fn filter(&mut self) -> Option<Step> {
        let (mut quote, mut is_closed, mut before) = (None, false, '(');
        let mut end = None;
        for (place, character) in self.rest.char_indices() {
            match character {
                '\n' => return None,
                '"' | '\'' => match quote {
                    None => quote = Some(character),
                    Some(open) => is_closed |= before != '\\' && character == open,
                },
                ')' if quote.is_some() == is_closed => {
                    end = Some(place);
                    break;
                }
                _ => {}
            }
            before = character;
        }
        let (inside, behind) = self.rest.split_at(end?);
        self.rest = behind.strip_prefix(")]")?;
        let is_operator = |character: char| ['!', '<', '>', '='].contains(&character);
        let operator = inside.find(is_operator).filter(|place| *place > 0);
        let Some(operator) = operator else {
            return Some(Step::Filter(Filter { left: path(inside)?, right: None }));
        };
        let (left, rest) = inside.split_at(operator);
        let right = rest.trim_start_matches(is_operator);
        // If nothing follows the operator, its last character becomes the right side.
        let length = (rest.len() - right.len()).min(rest.len().saturating_sub(1));
        let (operator, right) = rest.split_at(length);
        let (left, right) = (path(left)?, path(right)?);
        if operator.is_empty() {
            return Some(Step::Filter(Filter { left: path(inside)?, right: None }));
        }
        Some(Step::Filter(Filter { left, right: Some((operator.to_owned(), right)) }))
    }
}

/// Parses the content of brackets: a list of parts, a name in single quotes, or elements of a list.
fn brackets(inside: &str, steps: &mut Vec<Step>) -> Option<()> {
    let inside = if inside == "*" { ":" } else { inside };
    if inside.contains(',') {
        let one = |part: &str| path(&format!("[{}]", part.trim_matches(' ')));
        steps.push(Step::Union(inside.split(',').map(one).collect::<Option<_>>()?));
        return Some(());
    }
    let quoted = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\''));
    if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
        // Dots in the name separate steps too, unless they are escaped.
        steps.extend(path(&format!(".{name}"))?);
        return Some(());
    }
    let mut parts = inside.split(':');
    let number = |part: Option<&str>| -> Option<Option<i64>> {
        match part.filter(|part| !part.is_empty()) {
            Some(part) if part.starts_with('+') => None,
            Some(part) => part.parse().ok().map(Some),
            None => Some(None),
        }
    };
    let (from, until, step) = (parts.next(), parts.next(), parts.next());
    if parts.next().is_some() {
        return None;
    }
    let is_one = until.is_none();
    let (from, until, step) = (number(from)?, number(until)?, number(step)?);
    steps.push(Step::Slice(Slice { from, until, is_one, step }));
    Some(())
}

/// The position of the closing quote that is not escaped.
fn closing_quote(text: &str, quote: char) -> Option<usize> {
    let mut before = quote;
    for (place, character) in text.char_indices() {
        match character {
            '\n' => return None,
            character if character == quote && before != '\\' => return Some(place),
            _ => before = character,
        }
    }
    None
}

/// Resolves the escapes of a quoted string in Go's syntax.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let (mut plain, mut characters) = (Vec::new(), text.chars());
    let push = |plain: &mut Vec<u8>, character: char| {
        plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    };
    while let Some(character) = characters.next() {
        if character != '\\' {
            push(&mut plain, character);
            continue;
        }
        let escape = characters.next()?;
        let mut number = |first: Option<char>, more: usize, radix: u32| -> Option<u32> {
            let digits = first.into_iter().chain(characters.by_ref().take(more));
            let digits: String = digits.collect();
            let length = more + usize::from(first.is_some());
            (digits.len() == length && !digits.starts_with('+'))
                .then(|| u32::from_str_radix(&digits, radix).ok())
                .flatten()
        };
        match escape {
            'a' => plain.push(7),
            'b' => plain.push(8),
            'f' => plain.push(12),
            'n' => plain.push(b'\n'),
            'r' => plain.push(b'\r'),
            't' => plain.push(b'\t'),
            'v' => plain.push(11),
            'x' => plain.push(u8::try_from(number(None, 2, 16)?).ok()?),
            'u' => push(&mut plain, char::from_u32(number(None, 4, 16)?)?),
            'U' => push(&mut plain, char::from_u32(number(None, 8, 16)?)?),
            '0'..='7' => plain.push(u8::try_from(number(Some(escape), 2, 8)?).ok()?),
            '\\' => plain.push(b'\\'),
            same if same == quote => push(&mut plain, same),
            _ => return None,
        }
    }
    // Invalid UTF-8 equals no string, so it can be replaced.
    Some(String::from_utf8_lossy(&plain).into_owned())
}

fn is_alphanumeric(character: char) -> bool {
    character == '_' || character.is_alphabetic() || character.is_numeric()
}

fn is_terminator(character: char) -> bool {
    [' ', '\t', '\r', '\n', '.', ',', '[', ']', '$', '@', '{', '}'].contains(&character)
}
