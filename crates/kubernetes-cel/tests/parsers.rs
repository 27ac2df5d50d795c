//! Compares URLs, patterns and IP addresses, generated from seeds, with the results of Go's parsers.
//!
//! `PARSERS_SEED` is the first seed (0). `PARSERS_INPUTS` is the number of inputs of each kind (1,000).

#![allow(clippy::unwrap_used, clippy::panic)] // the whole file is a test

use std::env;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fastrand::Rng;
use kubernetes_cel::{Budget, Declared, Environment, Field, Outcome, Program};
use serde_json::{Value, json};
use test_cluster::{Programs, unless_missing};

const URL_PARTS: &[&str] = &[
    "http:",
    "https:",
    "HTTP:",
    "a+b.c-1:",
    "1a:",
    "mailto:",
    "postgres:",
    ":",
    "://",
    "//",
    "///",
    "/",
    "?",
    "??",
    "#",
    "@",
    "%",
    "%2",
    "%20",
    "%25",
    "%2F",
    "%ff",
    "%zz",
    "%e4%b8%96",
    "%41",
    "%00",
    "[",
    "]",
    "[::1]",
    "[fe80::1%25en0]",
    "[fe80::1%25%65n]",
    "[1.2.3.4]",
    "[::ffff:1.2.3.4]",
    "[::1",
    "::1",
    ":80",
    ":",
    ":8a",
    ":99999",
    "a",
    "b.c",
    "user",
    "user:pa",
    "u%40:p",
    "é",
    "世",
    " ",
    "\t",
    "\u{7f}",
    "\n",
    "\\",
    "\"",
    "<",
    ">",
    "^",
    "`",
    "{",
    "}",
    "|",
    "*",
    "+",
    "&",
    ";",
    "=",
    "a=b",
    "a=b&a=c",
    "x=%zz",
    "x=1+2",
    "!",
    "$",
    "'",
    "(",
    ")",
    ",",
    "~",
    "_",
    "-",
    ".",
    "..",
    "./",
    "a:b",
    "\u{200b}",
];

const PATTERN_PARTS: &[&str] = &[
    "a",
    "b",
    "é",
    "世",
    "K",
    "0",
    "_",
    " ",
    ".",
    "^",
    "$",
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "|",
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?i:",
    "(?s)",
    "(?m)",
    "(?U)",
    "(?-i)",
    "(?i-s:",
    "(?im-sU)",
    "(?)",
    "(?-",
    "(?i-)",
    "(?=",
    "(?!",
    "(?<=",
    "(?<n>",
    "(?P<n>",
    "(?P<é>",
    "(?P=n)",
    "(?P",
    "(?#",
    "(?x)",
    "{",
    "}",
    "{2}",
    "{2,}",
    "{,2}",
    "{0}",
    "{0,}",
    "{1,3}",
    "{3,1}",
    "{1000}",
    "{1001}",
    "{02}",
    "{2}?",
    "{a}",
    "{500}",
    "[",
    "]",
    "[a-c]",
    "[^a-c]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[a&&b]",
    "[a--]",
    "[a~~b]",
    "[[]",
    "[[:alpha:]]",
    "[[:^digit:]]",
    "[^[:word:]]",
    "[[:foo:]]",
    "[:alpha:]",
    "[[:alpha:]",
    "[\\d-z]",
    "[a-\\d]",
    "[z-a]",
    "[\\pL\\d]",
    "[\\Q]\\E]",
    "[\\n-\\r]",
    "[\\x{41}-\\x{43}]",
    "[\\x{d7ff}-\\x{e000}]",
    "[\\]\\-\\\\]",
    "[^\\x00-\\x{10FFFF}]",
    "[é-世]",
    "[K]",
    "[\\101]",
    "\\a",
    "\\b",
    "\\B",
    "\\C",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\A",
    "\\z",
    "\\Z",
    "\\f",
    "\\n",
    "\\t",
    "\\v",
    "\\1",
    "\\8",
    "\\0",
    "\\07",
    "\\12",
    "\\123",
    "\\777",
    "\\x",
    "\\x4",
    "\\x41",
    "\\x4g",
    "\\x{41}",
    "\\x{}",
    "\\x{110000}",
    "\\x{d800}",
    "\\Q",
    "\\E",
    "\\Qa.b\\E",
    "\\Q*\\E",
    "\\pL",
    "\\PL",
    "\\pN",
    "\\p{Greek}",
    "\\p{^Greek}",
    "\\P{Lu}",
    "\\p{lu}",
    "\\p{Any}",
    "\\p{ASCII}",
    "\\p{Assigned}",
    "\\p{Letter}",
    "\\p{Old_Italic}",
    "\\p{Cs}",
    "\\P{Cs}",
    "\\p{Foo}",
    "\\p{",
    "\\p",
    "\\p{L",
    "\\p{sc=Greek}",
    "\\p{uppercase_letter}",
    "\\p{C}",
    "\\pX",
    "\\p^",
    "\\.",
    "\\-",
    "\\_",
    "\\<",
    "\\>",
    "\\/",
    "\\é",
    "\\u0041",
    "\\h",
    "\\R",
    "\\X",
    "\\k<n>",
    "\\G",
];

const TEXT_PARTS: &[&str] = &[
    "",
    "a",
    "b",
    "c",
    "A",
    "K",
    "k",
    "\u{212a}",
    "ſ",
    "é",
    "世",
    "α",
    "Σ",
    "0",
    "7",
    "٣",
    "_",
    " ",
    "\n",
    "\t",
    "\u{b}",
    ".",
    "*",
    "-",
    "]",
    "[",
    "{",
    "}",
    "\\",
    "{,2}",
    "{02}",
    "{a}",
    "\0",
    "\u{7}",
    "a.b",
    "é é",
    "<",
    "/",
    "^",
    "&",
    "~",
    ":",
    "\u{1F600}",
];

const IP_PARTS: &[&str] = &[
    "1",
    "12",
    "255",
    "256",
    "0",
    "00",
    "01",
    ".",
    "..",
    ":",
    "::",
    ":::",
    "a",
    "ffff",
    "fffff",
    "g",
    "%",
    "%eth0",
    "1.2.3.4",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:",
    "::ffff:",
    " ",
    "é",
    "/",
    "-",
    "1:2:3",
    "",
];

fn inputs() -> (u64, usize) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("PARSERS_INPUTS").unwrap_or(1_000);
    (number("PARSERS_SEED").unwrap_or(0), usize::try_from(count).unwrap())
}

/// A string of a few parts.
fn generate(rng: &mut Rng, parts: &[&str], most: usize) -> String {
    (0..rng.usize(1..=most)).map(|_| parts[rng.usize(0..parts.len())]).collect()
}

/// Go's response to each question; `None` without Go.
fn ask_go(questions: &[Value]) -> Option<Vec<Value>> {
    let program = unless_missing(Programs::parsers()).unwrap()?;
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), questions.len());
    Some(answers)
}

/// The environment with an object that has the string fields `a` and `b`.
fn environment() -> Environment {
    let field = |name: &str| Field {
        name: name.to_owned(),
        of: Some(Arc::new(Declared::string("", None, &[]))),
        is_required: true,
        has_default: false,
    };
    Environment::new(Arc::new(Declared::object(vec![field("a"), field("b")])))
}

fn evaluate(program: &Program, object: &Value) -> Result<String, String> {
    let mut budget = Budget::new(u64::MAX, u64::MAX);
    match program.evaluate(object, None, &mut budget) {
        Outcome::String(text) | Outcome::Other(text) => Ok(text),
        Outcome::Bool(is) => Ok(is.to_string()),
        Outcome::Failed(why) => Err(why),
        other => panic!("{other:?} of {object}"),
    }
}

/// Compares each input's result in Go with the result of this crate, which `said` computes.
fn compare(
    questions: &[Value],
    said: impl Fn(&Value, &Value) -> Vec<(&'static str, String, String)>,
) {
    let Some(answers) = ask_go(questions) else { return };
    let mut different = Vec::new();
    for (question, answer) in questions.iter().zip(&answers) {
        for (what, ours, theirs) in said(question, answer) {
            if ours != theirs {
                different.push(format!("{question}\n  {what}: {ours:?}\n  Go: {theirs:?}"));
            }
        }
    }
    let shown = different.iter().take(30).cloned().collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{} of {} differ:\n{shown}", different.len(), questions.len());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn urls_are_parsed_as_in_go() {
    let (seed, count) = inputs();
    let mut rng = Rng::with_seed(seed);
    let mut urls = Vec::new();
    for _ in 0..count {
        let start = ["", "http://", "https://", "x://", "/", "http://h/", "http://h/p?"];
        let start = start[rng.usize(0..start.len())];
        urls.push(json!({"url": format!("{start}{}", generate(&mut rng, URL_PARTS, 6))}));
    }
    const QUERY: &str = "url(self.a).getQuery().map(k, k + '=' + url(self.a).getQuery()[k].join('\\u0002')).join('\\u0001')";
    let environment = environment();
    let program = |text: &str| environment.compile(text).unwrap();
    let parts = ["Scheme", "Host", "Hostname", "Port"];
    let mut programs: Vec<(&'static str, Program)> = Vec::new();
    for part in parts {
        programs.push((part, program(&format!("url(self.a).get{part}()"))));
    }
    programs.push(("Path", program("url(self.a).getEscapedPath()")));
    let (query, same) = (program(QUERY), program("url(self.a) == url(self.b)"));
    compare(&urls, |question, answer| {
        let object = json!({"a": question["url"], "b": answer["parts"]["Text"]});
        let Some(parts) = answer["parts"].as_object() else {
            let expected = format!(
                "URL parse error during conversion from string: {}",
                text(&answer["error"])
            );
            let said = evaluate(&programs[0].1, &object);
            return vec![("error", said.err().unwrap_or_default(), expected)];
        };
        let mut said: Vec<(&'static str, String, String)> = Vec::new();
        for (name, program) in &programs {
            let ours = evaluate(program, &object).unwrap_or_else(|why| why);
            said.push((name, ours, text(&parts[*name])));
        }
        let queries = parts["Query"].as_object().unwrap();
        let mut theirs: Vec<String> = Vec::new();
        for (name, values) in queries {
            let values: Vec<String> = values.as_array().unwrap().iter().map(text).collect();
            theirs.push(format!("{name}={}", values.join("\u{2}")));
        }
        let ours = evaluate(&query, &object).unwrap_or_else(|why| why);
        let mut ours: Vec<&str> = ours.split('\u{1}').filter(|pair| !pair.is_empty()).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        said.push(("query", ours.join("\u{1}"), theirs.join("\u{1}")));
        // The string that Go writes is not always a valid URL for Go. In this case there is no result to compare.
        if let Ok(is_same) = evaluate(&same, &object) {
            said.push(("equals what Go writes", is_same, "true".to_owned()));
        }
        said
    });
}

#[test]
fn patterns_match_as_in_go() {
    let (seed, count) = inputs();
    let mut rng = Rng::with_seed(seed);
    let mut patterns = Vec::new();
    for _ in 0..count {
        let pattern = generate(&mut rng, PATTERN_PARTS, 5);
        let texts: Vec<String> = (0..4).map(|_| generate(&mut rng, TEXT_PARTS, 4)).collect();
        patterns.push(json!({"pattern": pattern, "texts": texts}));
    }
    let environment = environment();
    let find = environment.compile("self.a.findAll(self.b).map(s, s + '|').join('')").unwrap();
    let matches = environment.compile("self.a.matches(self.b)").unwrap();
    compare(&patterns, |question, answer| {
        let of = |text: &Value| json!({"a": text, "b": question["pattern"]});
        let Some(found) = answer["found"].as_array() else {
            let said = evaluate(&matches, &of(&json!("a")));
            return vec![("error", said.err().unwrap_or_default(), text(&answer["error"]))];
        };
        let mut said = Vec::new();
        let texts = question["texts"].as_array().unwrap();
        assert_eq!(texts.len(), found.len(), "{question}");
        for (given, found) in texts.iter().zip(found) {
            let found = found.as_array().unwrap();
            let theirs: String = found.iter().map(|one| format!("{}|", text(one))).collect();
            let ours = |program| evaluate(program, &of(given)).unwrap_or_else(|why| why);
            let ours_found = ours(&find);
            if ours_found.contains("expression too large") {
                // A class with many ranges and many repetitions exceeds the size limit.
                break;
            }
            said.push(("findAll", ours_found, theirs));
            said.push(("matches", ours(&matches), (!found.is_empty()).to_string()));
        }
        said
    });
}

#[test]
fn addresses_are_parsed_as_in_go() {
    let (seed, count) = inputs();
    let mut rng = Rng::with_seed(seed);
    let ips: Vec<Value> =
        (0..count).map(|_| json!({"ip": generate(&mut rng, IP_PARTS, 7)})).collect();
    let program = environment().compile("ip(self.a)").unwrap();
    compare(&ips, |question, answer| {
        let said = evaluate(&program, &json!({"a": question["ip"], "b": ""})).err();
        // Kubernetes rejects some addresses that Go accepts.
        let said = said.filter(|why| !why.ends_with(" is not allowed")).unwrap_or_default();
        let ours = said.split_once("string: ").map_or(said.as_str(), |(_, why)| why).to_owned();
        vec![("error", ours, text(&answer["error"]))]
    });
}
