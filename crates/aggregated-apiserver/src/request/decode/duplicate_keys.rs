//! Duplicate keys of objects in JSON, in the format of kube-apiserver's YAML parser: with the line of the value.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::quote;

/// The maximum number of reported duplicates, and of their bytes.
const TOLD: usize = 1_000;
const BYTES: usize = 64 << 10;

/// Returns `line 3: key "a" already set in map` for each duplicate key. The line is that of the key's value, and
/// duplicates inside of the value come first. `json` must be valid JSON.
pub fn told_by_lines(json: &[u8]) -> Vec<String> {
    let mut scanner = Scanner { json, at: 0, line: 1, told: Vec::new(), bytes: 0 };
    let _ = scanner.value();
    scanner.told
}

struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
    /// The line of `at`.
    line: usize,
    told: Vec<String>,
    bytes: usize,
}

impl<'a> Scanner<'a> {
    /// Skips whitespace and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.json.get(self.at) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
        self.json.get(self.at).copied()
    }

    /// Skips a value. Returns `None` if the document ends too early.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(),
            b'[' => self.list(),
            b'"' => self.text().map(drop),
            _ => {
                let is_end = |byte: &u8| b",]} \t\r\n".contains(byte);
                let length = self.json[self.at..].iter().position(is_end);
                self.at = length.map_or(self.json.len(), |length| self.at + length);
                (length != Some(0)).then_some(())
            }
        }
    }

    fn object(&mut self) -> Option<()> {
        let mut keys = HashSet::new();
        self.at += 1;
        loop {
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {
                    let key = self.text()?;
                    self.peek()?;
                    self.at += 1;
                    self.peek()?;
                    let line = self.line;
                    self.value()?;
                    if let Some(again) = keys.replace(key) {
                        self.tell(line, &again);
                    }
                }
            }
        }
        self.at += 1;
        Some(())
    }

    fn list(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b']' => break,
                b',' => self.at += 1,
                _ => self.value()?,
            }
        }
        self.at += 1;
        Some(())
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.json.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        let text = self.json.get(start..self.at)?;
        let inner = std::str::from_utf8(text.get(1..text.len() - 1)?).ok()?;
        match inner.contains('\\') {
            true => serde_json::from_slice::<String>(text).ok().map(Cow::Owned),
            false => Some(Cow::Borrowed(inner)),
        }
    }

    fn tell(&mut self, line: usize, key: &str) {
        if self.told.len() < TOLD && self.bytes < BYTES {
            let told = format!("line {line}: key {} already set in map", quote(key));
            self.bytes += told.len();
            self.told.push(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_json_keys_are_reported_with_the_line_of_their_value() {
        let json = "\n{\n\t\"a\": 1, \"b\": {\"x\": [\n1, {\"y\": \"}\\\"\", \"y\":\n2}], \"x\": null},\n\"a\":\n true, \"\\u0061\": []}";
        let expected = [
            r#"line 5: key "y" already set in map"#,
            r#"line 5: key "x" already set in map"#,
            r#"line 7: key "a" already set in map"#,
            r#"line 7: key "a" already set in map"#,
        ];
        assert_eq!(told_by_lines(json.as_bytes()), expected);
        assert!(told_by_lines(br#"{"a": {"b": 1}, "c": {"b": 1}, "d": [{}, {}]}"#).is_empty());
        let many = format!("{{{}\"a\":1}}", r#""a":1,"#.repeat(5_000));
        assert_eq!(told_by_lines(many.as_bytes()).len(), TOLD);
    }

    #[test]
    fn the_search_for_duplicate_keys_terminates_on_invalid_json() {
        let json = r#"{"a": [1, {"b": "c\"d"}], "a": 2}"#;
        let told = told_by_lines(json.as_bytes());
        assert_eq!(told, [r#"line 1: key "a" already set in map"#]);
        // The duplicate is known as soon as its value has ended.
        let known_from = json.find('2').unwrap();
        for length in 0..json.len() {
            let expected = if length > known_from { &told[..] } else { &[] };
            assert_eq!(told_by_lines(&json.as_bytes()[..length]), expected, "{length} bytes");
        }
        for text in ["", "{", "[", "[}", "[:", "\"", "{\"a\"", "{:", "{]", "\\", "}", "{\"\\"] {
            assert!(told_by_lines(text.as_bytes()).is_empty(), "{text}");
        }
    }
}
