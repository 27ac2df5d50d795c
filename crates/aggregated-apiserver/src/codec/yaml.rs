//! YAML as a JSON tree, with the rules of kube-apiserver: YAML 1.1, as implemented by go-yaml v2 and sigs.k8s.io/yaml.
//!
//! The grammar is that of libyaml, of which go-yaml is a port (`nodes`). `scalar` resolves scalars; `tree` follows
//! anchors and merge keys. Only the first document counts.

mod go_text;
mod nodes;
mod scalar;
mod tree;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::Either;
use serde::de::value::Error;
use serde_json::Value;
use tokio::sync::Semaphore;

use self::nodes::{Document, Documents, Limits};
use self::tree::{Meter, Tree, decode};
use super::text::{DEPTH_LIMIT, ParseError, Parsed, Seen, VALUES_LIMIT};
use crate::queue;
use crate::quota::{self, Account, Limiter, MemoryScale, Share};

/// The largest number of threads that parse at a time; one in a small container.
const THREADS: usize = 3;
/// The largest memory of a parser besides the tree, in bytes.
const PARSER: usize = 30 << 20;
/// The largest number of waiting documents of one user; each holds its body.
const WAITING: usize = 50;

/// The prefixes of messages that are not from go-yaml.
const IS_OF_JSON: [&str; 2] = ["json: ", "unsupported map key"];
/// The prefix of go-yaml's message about repeated keys.
pub const REPEATED_KEYS: &str = "yaml: unmarshal errors:\n  ";

/// Returns the number of concurrent YAML parsers.
pub fn yaml_parsers(portion: MemoryScale) -> usize {
    portion.between(1, THREADS)
}

/// Returns the memory limit of this number of YAML parsers, in bytes, with one more for members of `system:masters`.
pub fn yaml_memory(parsers: usize) -> usize {
    (parsers + 1) * PARSER
}

/// The YAML parsers of a server.
#[derive(Clone, Debug)]
pub struct YamlParsers {
    /// The queue of the parsers, with one thread for each user at a time.
    threads: Limiter,
    /// The parser of members of `system:masters`, who are not queued.
    of_masters: Arc<Semaphore>,
}

impl YamlParsers {
    /// Creates this number of parsers, and one for members of `system:masters`.
    pub fn new(parsers: usize) -> Self {
        let threads = Limiter::new(parsers, Share::Part(4)).with_waiting_of_user(WAITING);
        Self { threads, of_masters: Arc::new(Semaphore::new(1)) }
    }

    /// Parses the first document.
    ///
    /// # Errors
    /// The message of go-yaml if the document is malformed; 413 and 429 if there is no memory for the tree.
    pub async fn parse(&self, bytes: Bytes, account: &Account) -> Result<Parsed, ParseError> {
        // The thread holds its slot even if the request is cancelled.
        let place = match account.user() {
            Some(user) => {
                let place = queue::acquire(&self.threads, user, "yaml").await;
                Either::Left(place.map_err(ParseError::Refused)?)
            }
            None => {
                let place = Arc::clone(&self.of_masters).acquire_owned().await;
                Either::Right(place.map_err(|error| error.to_string())?)
            }
        };
        let account = account.clone();
        let parse = move || {
            let _place = place;
            read(&bytes, account)
        };
        let parsed = tokio::task::spawn_blocking(parse).await;
        parsed.unwrap_or_else(|_| Err("yaml: the parser failed".to_owned().into()))
    }
}

/// The largest number of keys and values in a document of a file.
const OF_FILE: usize = 1_000_000;

/// Parses the documents of a YAML file with the rules of kubectl and kube-apiserver.
///
/// # Errors
/// The problem, with its line.
pub fn yaml_documents(text: &str) -> Result<Vec<Value>, String> {
    let limits = Limits { depth: DEPTH_LIMIT, nodes: OF_FILE };
    let mut documents = Documents::of(text.as_bytes(), limits)?;
    let mut found = Vec::new();
    while let Some(document) = documents.next()? {
        let mut left = Left { nodes: OF_FILE };
        let Tree { value, duplicate, .. } = decode(&document, DEPTH_LIMIT, &mut left)?;
        if let Some(duplicate) = duplicate {
            return Err(duplicate);
        }
        found.push(value);
    }
    Ok(found)
}

/// The number of values that may still be read from a file, including the values that aliases repeat.
struct Left {
    nodes: usize,
}

impl Meter for Left {
    fn value(&mut self) -> Result<(), String> {
        self.nodes = self.nodes.checked_sub(1).ok_or_else(|| "too many values".to_owned())?;
        Ok(())
    }

    fn text(&mut self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn item(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn member(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }
}

fn read(bytes: &[u8], account: Account) -> Result<Parsed, ParseError> {
    let of_yaml = |why: String| format!("yaml: {why}");
    let limits = Limits { depth: DEPTH_LIMIT, nodes: 2 * VALUES_LIMIT };
    let document = Document::first(bytes, limits).map_err(of_yaml)?;
    let mut seen = Seen::new(account);
    let tree = decode(&document, DEPTH_LIMIT, &mut seen);
    seen.settle()?;
    let Tree { value, repeated, .. } =
        tree.map_err(|why| match IS_OF_JSON.iter().any(|prefix| why.starts_with(prefix)) {
            true => why,
            false => of_yaml(why),
        })?;
    let duplicates = match repeated.is_empty() {
        true => Vec::new(),
        false => vec![format!("{REPEATED_KEYS}{}", repeated.join("\n  "))],
    };
    Ok(Parsed { value, duplicates, managed_fields: None })
}

impl Meter for Seen {
    fn value(&mut self) -> Result<(), String> {
        Self::value(self).map_err(|error: Error| error.to_string())
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        Self::text(self, text).map_err(|error: Error| error.to_string())
    }

    fn item(&mut self, items: usize) -> Result<(), String> {
        self.grow(quota::of_item(items)).map_err(|error: Error| error.to_string())
    }

    fn member(&mut self, members: usize) -> Result<(), String> {
        self.grow(quota::of_member(members)).map_err(|error: Error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn parsed(text: impl Into<Bytes>) -> Result<Parsed, String> {
        let parsed = YamlParsers::new(1).parse(text.into(), &Account::own()).await;
        parsed.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn documents() {
        for (text, expected) in [
            ("", json!(null)),
            ("# nothing", json!(null)),
            (
                "a: {b: [1, 2.5, x, null, true]}\nc: 'y'",
                json!({"a": {"b": [1, 2.5, "x", null, true]}, "c": "y"}),
            ),
            ("---\na: 1\n---\nb: [", json!({"a": 1})),
            (
                "yes: no\n1: 1e1\n1.50: 5.0\n0x10: 1e21",
                json!({"true": false, "1": 10, "1.5": 5, "16": 1e21}),
            ),
            (
                "a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne: {<<: [*x], d: 4}",
                json!({
                    "a": {"b": 1}, "c": {"b": 2, "d": 3}, "e": {"b": 1, "d": 4},
                }),
            ),
            ("a: |\n  x", json!({"a": "x"})),
            ("a: |+\n  x\n\n", json!({"a": "x\n\n"})),
            ("\u{feff}a: >\n  x\n  y", json!({"a": "x y"})),
            ("a: !!binary aGk=\nb: ! \"5\"\nc: !!str 5", json!({"a": "hi", "b": "5", "c": "5"})),
        ] {
            let parsed = parsed(text).await.unwrap();
            assert_eq!((parsed.value, parsed.duplicates.len()), (expected, 0), "{text}");
        }
    }

    #[test]
    fn files() {
        let text = "# nothing\n---\nmode: 0644\na: &x 1\n---\n---\nb: yes\n";
        let expected = [json!({"mode": 420, "a": 1}), json!(null), json!({"b": true})];
        assert_eq!(yaml_documents(text).unwrap(), expected);
        assert_eq!(yaml_documents("").unwrap(), [json!(null); 0]);
        for (text, expected) in [
            ("a: 1\na: 2", "line 2: key \"a\" already set in map"),
            ("a: 1\n---\nb: [", "line 3: did not find expected node content"),
            ("a: &x 1\n---\nb: *x", "unknown anchor 'x' referenced"),
        ] {
            assert_eq!(yaml_documents(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn spaces_after_the_last_line_belong_to_no_block_scalar() {
        for text in ["a: |\n  one\n   ", "a: |\n  one\n", "a: >\n  one\n "] {
            assert_eq!(yaml_documents(text).unwrap()[0]["a"], "one\n", "{text:?}");
        }
        assert_eq!(yaml_documents("a: |\n  one").unwrap()[0]["a"], "one");
    }

    #[test]
    fn yaml_files_can_override_merged_keys_but_not_repeat_keys() {
        let merged = "a: &a {x: 1, z: 2}\nb: {<<: *a, x: 3}";
        let documents = yaml_documents(merged).unwrap();
        assert_eq!(documents[0]["b"], serde_json::json!({"x": 3, "z": 2}));
        let repeated = yaml_documents("a: {x: 1, x: 2}").unwrap_err();
        assert_eq!(repeated, "line 1: key \"x\" already set in map");
    }

    #[tokio::test]
    async fn repeated_keys() {
        let parsed = parsed("a: 1\nb:\n  c: 1\n  c: 2\n1: 2\n1: 3\na: {\n}").await.unwrap();
        assert_eq!(parsed.value, json!({"a": {}, "b": {"c": 2}, "1": 3}));
        let expected = "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 6: key 1 already set in map\n  line 7: key \"a\" already set in map";
        assert_eq!(parsed.duplicates, [expected]);
    }

    #[tokio::test]
    async fn malformed_documents() {
        for (text, expected) in [
            ("a: [", "yaml: line 1: did not find expected node content"),
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
            ("a: 'x", "yaml: found unexpected end of stream"),
            ("a: \0", "yaml: control characters are not allowed"),
            ("a: *b", "yaml: unknown anchor 'b' referenced"),
            ("a: &b [*b]", "yaml: anchor 'b' value contains itself"),
            ("a: .inf", "json: unsupported value: +Inf"),
            ("<<: 5", "yaml: map merge requires map or sequence of maps as the value"),
            ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
            ("~: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
            ("[!!str, x]", "yaml: did not find expected whitespace or line break"),
            ("? [a]\n: b", "yaml: invalid map key: []interface {}{\"a\"}"),
        ] {
            assert_eq!(parsed(text).await.unwrap_err(), expected, "{text}");
        }
        assert!(parsed(&b"a: \xff"[..]).await.unwrap_err().contains("UTF-8"));
    }

    #[tokio::test]
    async fn documents_do_not_multiply() {
        let mut laughs = format!("a0: &a0 [{}]\n", "x,".repeat(10));
        for level in 1..10 {
            let below = format!("*a{},", level - 1).repeat(10);
            laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1_000));
        let levels = |depth: usize| {
            (0..depth).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>()
        };
        for bad in [laughs, long, "[".repeat(100_000), levels(1_000)] {
            assert!(parsed(bad).await.is_err());
        }
        assert!(parsed(levels(DEPTH_LIMIT - 2)).await.is_ok());
    }
}
