//! Label selectors: `app=web,tier in (front,back),!canary`.
//!
//! The grammar and the error messages are those of kube-apiserver.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use super::{TERM, check_count, check_written};
use crate::error::quote;
use crate::object::{Labels, names};

/// The comparison in a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key=a`, `key in (a,b)`
    In(BTreeSet<String>),
    /// `key!=a`, `key notin (a,b)`. Objects without the label match too.
    NotIn(BTreeSet<String>),
    /// `key>5`
    GreaterThan(i64),
    /// `key<5`
    LessThan(i64),
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The key of the label.
    pub key: String,
    /// The requirement on the label.
    pub operator: LabelOperator,
}

impl LabelRequirement {
    fn values(&self) -> impl Iterator<Item = &String> {
        let values = match &self.operator {
            LabelOperator::In(values) | LabelOperator::NotIn(values) => Some(values),
            _ => None,
        };
        values.into_iter().flatten()
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelOperator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelOperator::GreaterThan(limit) => number().is_some_and(|number| number > *limit),
            LabelOperator::LessThan(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let among = |values: &BTreeSet<String>| {
            values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
        };
        match &self.operator {
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::In(values) if values.len() == 1 => write!(f, "{key}={}", among(values)),
            LabelOperator::In(values) => write!(f, "{key} in ({})", among(values)),
            LabelOperator::NotIn(values) if values.len() == 1 => {
                write!(f, "{key}!={}", among(values))
            }
            LabelOperator::NotIn(values) => write!(f, "{key} notin ({})", among(values)),
            LabelOperator::GreaterThan(limit) => write!(f, "{key}>{limit}"),
            LabelOperator::LessThan(limit) => write!(f, "{key}<{limit}"),
        }
    }
}

/// Terms that must all hold. Equal terms are stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Arc<[LabelRequirement]>);

impl LabelSelector {
    /// Whether the selector has no terms.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses a label selector.
    ///
    /// # Errors
    /// If the selector is invalid, with kube-apiserver's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_written(text)?;
        let mut terms = Parser { tokens: scan(text).into_iter().peekable() }.selector()?;
        let mut known = HashSet::new();
        terms.retain(|term| known.insert(term.clone()));
        let count: usize = terms.iter().map(|term| 1 + term.values().count()).sum();
        check_count(count)?;
        Ok(Self(terms.into()))
    }

    /// The terms.
    pub fn terms(&self) -> &[LabelRequirement] {
        &self.0
    }

    /// The approximate memory of the selector, in bytes.
    pub fn size(&self) -> usize {
        let of_term = |term: &LabelRequirement| {
            let values = term.values().map(|value| TERM + value.len());
            TERM + term.key.len() + values.sum::<usize>()
        };
        self.0.iter().map(of_term).sum()
    }

    /// Whether the labels match every term.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|term| term.matches(labels.get(&term.key)))
    }

    /// Whether the labels in a map match every term.
    pub fn matches_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| term.matches(labels.get(&term.key).map(String::as_str)))
    }
}

/// The selector as it is written in a request, without blanks around its terms.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn scan(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        // Go's scanner represents the end of the text by NUL. A NUL directly behind a token is part of that token; any
        // other NUL is the end.
        if let Some(behind) = rest.strip_prefix('\0') {
            tokens.push(Token::End);
            rest = behind.trim_start_matches(is_blank);
            continue;
        }
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let length = match sign {
            Some(sign) => {
                tokens.push(Token::Sign(sign));
                sign.len()
            }
            None => {
                let ends = |c: char| is_blank(c) || "=!(),><\0".contains(c);
                let length = rest.find(ends).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..length].to_owned()));
                length
            }
        };
        let behind = &rest[length..];
        rest = behind.strip_prefix('\0').unwrap_or(behind).trim_start_matches(is_blank);
    }
    tokens
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
}

impl Parser {
    fn next(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn peek(&mut self) -> Token {
        self.tokens.peek().cloned().unwrap_or(Token::End)
    }

    fn selector(&mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Sign("!") => {
                    let requirement = self.requirement();
                    requirements.push(
                        requirement
                            .map_err(|error| format!("unable to parse requirement: {error}"))?,
                    );
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Sign(",") => {
                    let after = self.peek();
                    if !matches!(after, Token::Word(_) | Token::Sign("!")) {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            after.text()
                        ));
                    }
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut token = self.next();
        let absent = token == Token::Sign("!");
        if absent {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        check("<nil>", &key, names::check_label_key(&key))?;
        if absent {
            return Ok(LabelRequirement { key, operator: LabelOperator::DoesNotExist });
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok(LabelRequirement { key, operator: LabelOperator::Exists });
        }
        let sign = self.next();
        let operator = match sign.text() {
            "in" => LabelOperator::In(self.values(&key)?),
            "notin" => LabelOperator::NotIn(self.values(&key)?),
            "=" | "==" => LabelOperator::In(self.value(&key)?),
            "!=" => LabelOperator::NotIn(self.value(&key)?),
            ">" => LabelOperator::GreaterThan(self.number(&key)?),
            "<" => LabelOperator::LessThan(self.number(&key)?),
            other => {
                return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        Ok(LabelRequirement { key, operator })
    }

    fn word_or_empty(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            _ => match self.next() {
                Token::Word(word) => Ok(word),
                other => Err(format!("found '{}', expected: identifier", other.text())),
            },
        }
    }

    fn value(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        check_values(key, BTreeSet::from([self.word_or_empty()?]))
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let word = self.word_or_empty()?;
        let number = word.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                quote(&word)
            )
        })?;
        check_values(key, BTreeSet::from([word]))?;
        Ok(number)
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = BTreeSet::new();
        loop {
            match self.peek() {
                Token::Word(word) => {
                    self.next();
                    values.insert(word);
                }
                Token::Sign("," | ")") => {
                    values.insert(String::new());
                }
                other if values.is_empty() => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
                other => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
            }
            match self.next() {
                Token::Sign(")") => return check_values(key, values),
                Token::Sign(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

fn check_values(key: &str, values: BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    for (index, value) in values.iter().enumerate() {
        check(&format!("values[{index}][{key}]"), value, names::check_label_value(value))?;
    }
    Ok(values)
}

fn check(path: &str, value: &str, faults: Vec<String>) -> Result<(), String> {
    let texts: Vec<String> = faults
        .into_iter()
        .map(|fault| format!("{path}: Invalid value: {}: {fault}", quote(value)))
        .collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, expected: bool) {
        let labels = [("n", "7"), ("app", "web"), ("empty", "")].map(|(k, v)| (k.into(), v.into()));
        let parsed = LabelSelector::parse(selector).unwrap();
        assert_eq!(parsed.matches(&labels.into_iter().collect()), expected, "{selector}");
        let labels = [("n", "7"), ("app", "web"), ("empty", "")];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(parsed.matches_map(&labels), expected, "{selector}");
    }

    #[test]
    fn label_selectors_are_written_as_they_are_read() {
        for (text, expected) in [
            ("", ""),
            ("app == web , n", "app=web,n"),
            ("!n,tier in (b, a),tier notin (c,d)", "!n,tier in (a,b),tier notin (c,d)"),
            ("n>5,n<9,a!=b", "n>5,n<9,a!=b"),
            ("empty=", "empty="),
        ] {
            let parsed = LabelSelector::parse(text).unwrap();
            assert_eq!(parsed.to_string(), expected);
            assert_eq!(LabelSelector::parse(expected), Ok(parsed));
        }
    }

    #[test]
    fn label_selectors_match_labels() {
        let rows = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("none", false),
            ("!none", true),
            ("app=web", true),
            ("app == web", true),
            ("app=db", false),
            ("app!=db,n", true),
            ("none!=x", true),
            ("app in (web, db)", true),
            ("app notin (web)", false),
            ("none notin (web)", true),
            ("empty=", true),
            ("empty in ()", true),
            ("empty in (a,)", true),
            ("n>5", true),
            ("n<5", false),
            ("none>5", false),
            ("in in (in)", false),
        ];
        for (selector, expected) in rows {
            check(selector, expected);
        }
    }

    #[test]
    fn invalid_label_selectors_have_the_errors_of_kubernetes() {
        let rows = [
            (
                "k x",
                "unable to parse requirement: found 'x', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "k!",
                "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("k,,j", "found ',', expected: identifier after ','"),
            ("k,", "found '', expected: identifier after ','"),
            (",k", "found ',', expected: !, identifier, or 'end of string'"),
            ("k=v w", "found 'w', expected: ',' or 'end of string'"),
            ("k in v", "unable to parse requirement: found 'v' expected: '('"),
            ("k in (v", "unable to parse requirement: found '', expected: ',' or ')'"),
            (
                "k>abc",
                "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, expected) in rows {
            assert_eq!(LabelSelector::parse(selector).unwrap_err(), expected, "{selector}");
        }
        let key = LabelSelector::parse("-k").unwrap_err();
        assert!(
            key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-k\": name part")
        );
        let value = LabelSelector::parse("k=-v").unwrap_err();
        assert!(value.starts_with(
            "unable to parse requirement: values[0][k]: Invalid value: \"-v\": a valid label"
        ));
    }
}
