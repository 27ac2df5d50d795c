//! Bodies in YAML: a list of values and documents, and documents generated from a seed.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::row::{Request, Row};

/// Scalars and collections on one line: plain, quoted and with tags.
const VALUES: &[&str] = &[
    // Numbers.
    "0",
    "-0",
    "+0",
    "5",
    "-5",
    "+5",
    "007",
    "0644",
    "-0644",
    "+0644",
    "08",
    "09.5",
    "0o14",
    "0O17",
    "0o9",
    "0x1F",
    "0X1f",
    "-0x10",
    "0xG",
    "0b101",
    "0B11",
    "-0b101",
    "0b2",
    "0b-1",
    "1_000",
    "1_0.5",
    "_1",
    "0x_1",
    "0_7",
    "1e1",
    "1e+3",
    "1e-2",
    "1E5",
    "5.0",
    "5.",
    ".5",
    "-.5",
    "+.5",
    "1.5e3",
    "1e21",
    "1e22",
    "1e400",
    "1.",
    "0.0",
    "-0.0",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "+18446744073709551615",
    "123456789012345678901234567890",
    "1:30",
    "190:20:30",
    "1:2:3.4",
    "1.2.3",
    "1,000",
    "0.1.",
    "1e",
    "e1",
    "--1",
    "1-",
    "12e03",
    "0e0",
    ".e1",
    "._5",
    // Words.
    "y",
    "Y",
    "yes",
    "Yes",
    "YES",
    "yEs",
    "n",
    "N",
    "no",
    "No",
    "NO",
    "on",
    "On",
    "ON",
    "off",
    "Off",
    "OFF",
    "oFF",
    "true",
    "True",
    "TRUE",
    "tRUE",
    "false",
    "False",
    "FALSE",
    "null",
    "Null",
    "NULL",
    "nULL",
    "~",
    "",
    ".inf",
    ".Inf",
    ".INF",
    "+.inf",
    "-.inf",
    "-.INF",
    "inf",
    ".nan",
    ".NaN",
    ".NAN",
    "nan",
    ".",
    "..",
    "-",
    "+",
    "none",
    // Times and bytes.
    "2020-01-01",
    "2020-1-2",
    "2020-13-01",
    "2020-01-01T00:00:00Z",
    "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43.10 -5",
    "2001-12-14 21:59:43",
    "!!timestamp 2020-01-01",
    "!!timestamp 2020-02-30",
    "!!timestamp x",
    "!!binary aGVsbG8=",
    "!!binary 'aGVs bG8='",
    "!!binary '***'",
    "!!binary /w==",
    // Quotes.
    "'x'",
    "'it''s'",
    "\"x\"",
    "'5'",
    "\"5\"",
    "''",
    "\"\"",
    "'true'",
    "\"\\n\\t\\\\\"",
    "\"\\x41\\u00e9\\U0001F600\"",
    "\"\\q\"",
    "\"\\xZZ\"",
    "\"\\ud83d\"",
    "'a\\nb'",
    "\"a b",
    "'a b",
    "\"\\0\\a\\b\\e\\_\\N\\L\\P\"",
    // Tags.
    "!!str 5",
    "!!str true",
    "!!str",
    "!!int 5",
    "!!int \"5\"",
    "!!int 5.0",
    "!!int x",
    "!!int",
    "!!float 5",
    "!!float x",
    "!!bool yes",
    "!!bool 1",
    "!!null x",
    "!!null ~",
    "!!null",
    "!foo 5",
    "! 5",
    "! \"5\"",
    "!!set {x, y}",
    "!!omap [a: 1]",
    "!!map {a: 1}",
    "!!seq [a]",
    "!<tag:yaml.org,2002:int> 5",
    "!e!x y",
    // Characters with a meaning in YAML.
    "@x",
    "`x`",
    "%x",
    "&x",
    "&x 5",
    "*x",
    "!x",
    "|x",
    ">x",
    "#x",
    "x#y",
    "x #y",
    "a: b",
    "a:b",
    "a : b",
    "-x",
    "- x",
    "?x",
    "? x",
    ":x",
    ": x",
    "{x",
    "[x",
    "}",
    "]",
    ",",
    "x,y",
    "http://x.y:80/z?q=1#f",
    "a\tb",
    "x\t",
    "\tx",
    "é ü 字 😀",
    "\u{a0}x",
    "a\u{2028}b",
    "<<",
    "=",
    "a\u{7}b",
    // Collections.
    "[]",
    "{}",
    "[1, 0644, yes, ~, 'x']",
    "[a, b,]",
    "[a, , b]",
    "[a b, c]",
    "[a: b, c]",
    "[[1], [2, [3]]]",
    "{a: 1, b: 2}",
    "{a, b}",
    "{a: , b: }",
    "{1: a, 1.5: b, true: c}",
    "{yes: a, no: b}",
    "{0644: a}",
    "{~: a}",
    "{null: a}",
    "{[a]: b}",
    "{{a: 1}: b}",
    "{a: 1, a: 2}",
    "{1: a, 1: b}",
    "{1e3: a}",
    "{1234567.0: a}",
    "{.inf: a}",
    "{18446744073709551615: a}",
    "{2020-01-01: a}",
    "{\"a\": 1, \"b\": [true, null]}",
    "{a: {b: {c: d}}}",
    "{a: 1, , b: 2}",
    "{a: 1}}",
    "[a]]",
    "{a: 1} x",
    "{<<: {a: 1}, b: 2}",
    "{<<: [{a: 1}, {a: 2, b: 3}]}",
    "{<<: 5}",
    "{\"<<\": {a: 1}}",
    "{a: 1, <<: {a: 2}}",
    "{<<: {a: 2}, a: 1}",
    "{<<: ~}",
    "[&x 5, *x]",
    "[&x {a: 1}, {<<: *x}]",
    "&x [*x]",
    "[*y]",
    "{? a : b}",
    "{? a}",
    "{a: *x}",
    "[a, b",
    "{a: b",
];

/// Whole documents. `@` stands for the lines of `apiVersion`, `kind` and `metadata`.
const DOCUMENTS: &[&str] = &[
    "@spec: {any: 5}\n",
    "@spec: {any: 5}",
    "---\n@spec: {any: 5}\n",
    "---\n@spec: {any: 5}\n---\n",
    "---\n@spec: {any: 5}\n---\nmore: [\n",
    "@spec: {any: 5}\n...\n",
    "@spec: {any: 5}\n...\n}",
    "--- {}\n---\n@spec: {any: 5}\n",
    "---\n---\n@spec: {any: 5}\n",
    "# a comment\n\n@# another\nspec: {any: 5} # one more\n",
    "%YAML 1.1\n---\n@spec: {any: 5}\n",
    "%YAML 1.2\n---\n@spec: {any: 5}\n",
    "%YAML 2.0\n---\n@spec: {any: 5}\n",
    "%TAG !e! tag:example.com,2000:\n---\n@spec: {any: !e!x y}\n",
    "%TAG ! tag:yaml.org,2002:\n---\n@spec: {any: !int 5}\n",
    "%FOO bar\n---\n@spec: {any: 5}\n",
    "\u{feff}@spec: {any: 5}\n",
    "",
    "\n",
    "---\n",
    "---\n---\n",
    "...\n",
    "# nothing\n",
    "null",
    "~",
    "5",
    "x",
    "[]",
    "{}",
    "- a\n- b\n",
    "\"x\"",
    "@spec:\n  any: |\n    x\n      y\n\n    z\n",
    "@spec:\n  any: |-\n    x\n\n",
    "@spec:\n  any: |+\n    x\n\n",
    "@spec:\n  any: |\n    x",
    "@spec:\n  any: |+\n    x\n\n\n",
    "@spec:\n  any: >\n    x\n    y\n\n    z\n      w\n",
    "@spec:\n  any: >-\n    x\n    y\n",
    "@spec:\n  any: >+\n    x\n\n",
    "@spec:\n  any: |2\n     x\n",
    "@spec:\n  any: |0\n    x\n",
    "@spec:\n  any: |x\n    x\n",
    "@spec:\n  any: |\n  x\n",
    "@spec:\n  any: x\n    y\n\n    z\n",
    "@spec:\n  any: 'x\n    y\n\n    z'\n",
    "@spec:\n  any: \"x\\\n    y\n    z\"\n",
    "@spec:\n  any:\n  - a\n  - b\n",
    "@spec:\n  any:\n    - a\n    - - b\n      - c\n    -\n      - d\n    - e: f\n      g: h\n",
    "@spec:\n  any:\n    -a\n    -b\n",
    "@spec:\n  any:\n    a: 1\n   b: 2\n",
    "@spec:\n  any:\n    a: 1\n     b: 2\n",
    "@spec:\n\tany: 5\n",
    "@spec:\n  any:\t5\n",
    "@spec:\n  any: 5\t\n",
    "@spec:\n  any: [\n\t5\n  ]\n",
    "@spec:\n  any:\n  \t- 5\n",
    "@spec:\r\n  any: 5\r\n",
    "@spec:\n  any: {a: 1,\n    b: 2\n  }\n",
    "@spec:\n  any: {a: 1,\nb: 2}\n",
    "@spec:\n  any:\n    a: 1\n    a: 2\n    b:\n      c: 1\n      c:\n        d: 1\n        d: 2\n    b: 3\n",
    "@spec:\n  any:\n    ? a\n    : b\n    ? [x]\n    : y\n",
    "@spec:\n  any:\n    ? a\n    ? b\n",
    "@spec:\n  any:\n    ? |\n      x\n    : y\n",
    "@spec:\n  any:\n    a: &x {b: 1, c: 2}\n    d:\n      <<: *x\n      b: 3\n",
    "@spec:\n  any:\n    a: &x {b: 1, c: 2}\n    d:\n      b: 3\n      <<: *x\n",
    "@spec:\n  any:\n    a: &x {b: 1}\n    c: &y {b: 2, d: 3}\n    e:\n      <<: [*x, *y]\n      f: 4\n",
    "@spec:\n  any:\n    a: &x 5\n    b:\n      <<: *x\n",
    "@spec:\n  any:\n    a: &x 5\n    b: *x\n    c: &x 6\n    d: *x\n",
    "@spec:\n  any:\n    a: *x\n    b: &x 5\n",
    "@spec:\n  any:\n    &x a: 1\n    b: *x\n",
    "@spec:\n  any:\n    &x a: 1\n    *x : 2\n",
    "@spec:\n  any:\n    a: &x\n      b: *x\n",
    "@spec:\n  any:\n    !!str a: 1\n    !!int 5: 2\n",
    "@spec:\n  any:\n    a: !!map\n      b: 1\n    c: !!seq\n    - d\n",
    "@spec:\n  any:\n    \"a b\": 1\n    'c d': 2\n    e f: 3\n",
    "@spec:\n  any:\n    a\n",
    "@spec:\n  any:\n    a\n    b: 1\n",
    "@spec:\n  any: a: b\n",
    "@spec:\n  any: [a\n",
    "@spec:\n  any: 'a\n",
    "@spec:\n  any: \"a\n",
    "@spec:\n  any: {a: b\n",
    "@spec:\n  any: @a\n",
    "@spec:\n  any: a\nspec:\n  any: b\n",
    "@spec:\n  any: a\nunknown: 1\n",
    "@spec:\n  any: a\n  unknown:\n    a: 1\n    a: 2\n",
    "@kind: Other\nspec: {any: 5}\n",
    " @spec: {any: 5}\n",
    "@  spec: {any: 5}\n",
    "@- a\n",
    "@spec: {any: \u{0}}\n",
    "@spec:\n  any: \u{1}\n",
];

/// The number of values or documents in a row.
const OF_ROW: usize = 12;
/// The number of documents in a generated row.
const GENERATED: usize = 6;

const CUSTOM: &str = "apiVersion: $group/v1\nkind: Demo\nmetadata:\n  name: a\n";
const LEASE: &str = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: a\n";
const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases";

/// Returns the rows of the list.
pub fn rows() -> Vec<Row> {
    let values = VALUES.chunks(OF_ROW).map(|values| {
        values.iter().flat_map(|value| of_value(&value.replace('$', "$$"))).collect()
    });
    let documents = DOCUMENTS
        .chunks(OF_ROW)
        .map(|documents| documents.iter().flat_map(|document| of_document(document)).collect());
    let numbered = values.chain(documents).enumerate();
    numbered.map(|(number, requests)| row(&format!("bodies in YAML, {number}"), requests)).collect()
}

/// Generates the row of a seed.
pub fn generated(seed: u64) -> Row {
    let mut rng = Rng::with_seed(seed);
    let requests = (0..GENERATED).flat_map(|_| {
        let mut text = String::new();
        let mut anchors = 0;
        mapping(&mut rng, 2, 3, &mut anchors, &mut text);
        if rng.u32(..8) == 0 {
            let end = rng.usize(..=text.len());
            text.truncate((0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        }
        of_document(&format!("@spec:\n  any:\n{text}"))
    });
    row(&format!("YAML from seed {seed}"), requests.collect())
}

fn row(title: &str, requests: Vec<Request>) -> Row {
    Row {
        topic: "built_in yaml".to_owned(),
        title: title.to_owned(),
        alone: false,
        aggregated: false,
        standalone: true,
        requests,
    }
}

/// Returns the requests of a value: as a field of a custom resource, as a value in a map of strings, as a typed field,
/// and as a key.
fn of_value(value: &str) -> Vec<Request> {
    let custom = format!("{CUSTOM}spec:\n  any: {value}\n");
    let mut requests = vec![
        applied(&custom),
        created("$demos", &custom),
        created("$core/configmaps", &format!("{CONFIG_MAP}data:\n  a: {value}\n")),
        created(LEASES, &format!("{LEASE}spec:\n  leaseDurationSeconds: {value}\n")),
    ];
    // A collection is not a valid key, and Go prints it in an order of its own.
    if !value.contains(['{', '[', ']', '}']) {
        let key = format!("{CUSTOM}spec:\n  any:\n    {value}: 1\n");
        requests.push(created("$demos", &key));
    }
    requests
}

fn of_document(document: &str) -> Vec<Request> {
    let document = document.replace('$', "$$");
    let custom = document.replacen('@', CUSTOM, 1);
    let mut requests = vec![created("$demos", &custom), applied(&custom)];
    requests.push(created("$core/configmaps", &document.replacen('@', CONFIG_MAP, 1)));
    let warned = |request: &Request| {
        let path = request.path.replace("fieldValidation=Strict", "fieldValidation=Warn");
        Request { path, ..request.clone() }
    };
    let warned: Vec<Request> = requests.iter().map(warned).collect();
    requests.extend(warned);
    requests
}

fn created(collection: &str, body: &str) -> Request {
    Request {
        method: "POST".to_owned(),
        path: format!("{collection}?dryRun=All&fieldValidation=Strict"),
        headers: vec![("Content-Type".to_owned(), "application/yaml".to_owned())],
        body: Some(body.to_owned()),
        ..Request::default()
    }
}

fn applied(body: &str) -> Request {
    Request {
        method: "PATCH".to_owned(),
        path: "$demos/a?dryRun=All&fieldValidation=Strict&fieldManager=m".to_owned(),
        headers: vec![("Content-Type".to_owned(), "application/apply-patch+yaml".to_owned())],
        body: Some(body.to_owned()),
        ..Request::default()
    }
}

/// Values that are valid inside any collection.
const SAFE: &[&str] = &[
    "5",
    "0644",
    "0o14",
    "0b11",
    "0x1F",
    "1_000",
    "5.0",
    "1e1",
    "1e21",
    "yes",
    "No",
    "~",
    "null",
    "''",
    "\"a\\tb\"",
    "'it''s'",
    "1:30",
    "2020-01-01",
    "!!str 5",
    "!!int '7'",
    "!!float 3",
    "text",
    "a b c",
    "é",
    ".5",
    "[]",
    "{}",
    "[1, yes]",
    "{on: 1, 2: x}",
    "\"0644\"",
    "18446744073709551615",
    "-0x1",
];
const KEYS: &[&str] =
    &["a", "b", "c", "'d'", "\"e\"", "1", "0x2", "1.50", "yes", "off", "2020-01-01", "f g"];

fn mapping(rng: &mut Rng, indent: usize, depth: usize, anchors: &mut usize, text: &mut String) {
    let space = " ".repeat(2 * indent);
    for _ in 0..rng.usize(1..5) {
        if rng.u32(..12) == 0 {
            let _ = writeln!(text, "{space}# a comment");
        }
        if *anchors > 0 && rng.u32(..8) == 0 {
            let anchor = rng.usize(..*anchors);
            let _ = writeln!(text, "{space}<<: *m{anchor}");
            continue;
        }
        let key = KEYS[rng.usize(..KEYS.len())];
        let _ = write!(text, "{space}{key}:");
        value(rng, indent, depth, anchors, text);
    }
}

fn value(rng: &mut Rng, indent: usize, depth: usize, anchors: &mut usize, text: &mut String) {
    let space = " ".repeat(2 * indent + 2);
    match rng.u32(..10) {
        0..2 if depth > 0 => {
            // An anchor can be referenced once its mapping is complete.
            let anchor = (rng.u32(..3) == 0).then_some(*anchors);
            match anchor {
                Some(_) => text.push_str(" &mNEW\n"),
                None => text.push('\n'),
            }
            mapping(rng, indent + 1, depth - 1, anchors, text);
            if anchor.is_some() {
                if let Some(at) = text.rfind("&mNEW") {
                    text.replace_range(at..at + "&mNEW".len(), &format!("&m{anchors}"));
                }
                *anchors += 1;
            }
        }
        2..4 if depth > 0 => {
            text.push('\n');
            for _ in 0..rng.usize(1..4) {
                let item = SAFE[rng.usize(..SAFE.len())];
                let _ = writeln!(text, "{space}- {item}");
            }
        }
        4 => {
            let style = ["|", "|-", "|+", ">", ">-"][rng.usize(..5)];
            let _ = writeln!(text, " {style}\n{space}one\n{space}two\n");
        }
        _ => {
            let scalar = SAFE[rng.usize(..SAFE.len())];
            let comment = if rng.u32(..10) == 0 { " # why" } else { "" };
            let _ = writeln!(text, " {scalar}{comment}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_yaml_is_reproducible_from_a_seed() {
        assert_eq!(generated(3), generated(3));
        assert_ne!(generated(3), generated(4));
    }

    #[test]
    fn the_list_is_long() {
        assert!(VALUES.len() + DOCUMENTS.len() > 300);
    }
}
