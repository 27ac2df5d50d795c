//! Generates rows from a seed, and shrinks rows whose responses differ.
//!
//! The generated requests only use implemented features: rows with known differences are written by hand.

use fastrand::Rng;

use crate::row::{Request, Row};

/// The largest number of runs for shrinking a row.
const ATTEMPTS: usize = 100;

/// Generates the row of a seed. The row begins with a list request; its last request watches from the version of that
/// list.
pub fn row(seed: u64) -> Row {
    let mut rng = Rng::with_seed(seed);
    let mut requests = vec![get("$widgets")];
    for _ in 0..rng.usize(3..14) {
        let request = match rng.u32(0..16) {
            0..4 => create(&mut rng),
            4 => delete(&mut rng),
            5 => get(&format!("$widgets/{}{}", name(&mut rng), query(&mut rng, GET, &[]))),
            6 => delete_with(&mut rng),
            7..10 => merge_patch(&mut rng),
            10 => json_patch(&mut rng),
            11 => replace(&mut rng),
            _ => get(&format!("$widgets{}", query(&mut rng, LIST, SELECTORS))),
        };
        requests.push(in_some_form(&mut rng, request));
    }
    let selector = pick(&mut rng, SELECTORS);
    let from = pick(
        &mut rng,
        &[
            "resourceVersion=$1.metadata.resourceVersion",
            "resourceVersion=$1.metadata.resourceVersion",
            "resourceVersion=0",
            "$WATCHLIST",
            "$WATCHLIST&resourceVersion=$1.metadata.resourceVersion",
            "resourceVersion=$last.metadata.resourceVersion",
        ],
    );
    let watch = get(&format!("$widgets?watch=true&timeoutSeconds=1&{from}&{selector}"));
    requests.push(in_some_form(&mut rng, watch));
    Row {
        topic: "generated".to_owned(),
        title: format!("from seed {seed}"),
        alone: false,
        aggregated: false,
        standalone: false,
        requests,
    }
}

const NAMES: &[&str] = &["a", "b", "c", "a-1", "a.b", "B", "none"];
const SELECTORS: &[&str] = &[
    "",
    "labelSelector=app",
    "labelSelector=!app",
    "labelSelector=app%3Dx",
    "labelSelector=app!%3Dx,n",
    "labelSelector=app+in+(x,y)",
    "labelSelector=n+notin+(1)",
    "labelSelector=n%3E1",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name!%3Da",
    "fieldSelector=metadata.name%3Da&labelSelector=app",
    "labelSelector=app%3D",
    "labelSelector=a+b",
    "fieldSelector=spec.size%3D1",
];
const GET: &[&str] =
    &["", "resourceVersion=0", "resourceVersion=$1.metadata.resourceVersion", "timeout=5s"];
const LIST: &[&str] = &[
    "limit=1",
    "limit=2",
    "limit=1&continue=$last.metadata.continue",
    "continue=$last.metadata.continue",
    "limit=1&resourceVersion=$1.metadata.resourceVersion",
    "resourceVersion=$1.metadata.resourceVersion&resourceVersionMatch=Exact",
    "resourceVersion=$last.metadata.resourceVersion&resourceVersionMatch=Exact",
    "pretty=1",
    "limit=500",
    "limit=500&resourceVersion=0",
    "resourceVersion=0",
    "resourceVersion=$1.metadata.resourceVersion",
    "resourceVersion=$1.metadata.resourceVersion&resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=NotOlderThan",
    "limit=x",
    "includeObject=None",
    "includeObject=Object",
];
const FORMS: &[&str] = &[
    "$TABLE",
    "$ANY",
    "$PB",
    "application/json",
    "application/*;q=0.5",
    "$METALIST",
    "$META",
    "application/yaml",
    "application/yaml;q=0.5,*/*",
];
/// Fields of a spec, with valid and invalid values. The first value is valid.
const MEMBERS: &[(&str, &[&str])] = &[
    ("size", &["0", "1", "50", "100", "1.0", "101", "-1", "1.5", "\"1\"", "null", "1e1"]),
    ("ratio", &["0.5", "1", "0", "-1", "1e-7", "\"x\"", "2.50"]),
    ("colour", &["\"red\"", "\"pink\"", "5", "null"]),
    ("text", &["\"abc\"", "\"a\"", "\"abcdefghi\"", "true"]),
    ("flag", &["true", "false", "\"true\"", "null"]),
    ("count", &["5", "-5", "9223372036854775807", "5.5"]),
    ("maybe", &["null", "\"x\"", "1"]),
    ("tags", &["[\"a\"]", "[]", "[\"a\",\"b\",\"c\",\"d\"]", "[1]", "{}"]),
    ("parts", &["[{\"name\":\"p\",\"count\":2}]", "[{}]", "[{\"name\":\"p\",\"more\":1}]", "[]"]),
    ("amounts", &["{\"a\":1}", "{\"a\":\"b\"}", "{}", "{\"a\":null}"]),
    ("free", &["{\"x\":[1,2.50,null]}", "{}", "5"]),
    ("any", &["5", "null", "{\"a\":{}}", "[[]]"]),
    ("since", &["\"2020-01-01T00:00:00Z\"", "\"soon\""]),
    ("unknown", &["1", "{}"]),
];
const LABELS: &[&str] = &[
    "{}",
    "{\"app\":\"x\"}",
    "{\"app\":\"y\",\"n\":\"1\"}",
    "{\"n\":\"2\"}",
    "{\"app\":\"\"}",
    "null",
    "{\"-\":\"x\"}",
    "{\"app\":5}",
];

fn pick(rng: &mut Rng, from: &[&'static str]) -> &'static str {
    from[rng.usize(..from.len())]
}

/// Returns a name, mostly one of the first three.
fn name(rng: &mut Rng) -> &'static str {
    if rng.u32(..4) > 0 { NAMES[rng.usize(..3)] } else { pick(rng, NAMES) }
}

fn query(rng: &mut Rng, options: &[&'static str], selectors: &[&'static str]) -> String {
    let mut parts = Vec::new();
    if rng.bool() {
        parts.push(pick(rng, options));
    }
    if !selectors.is_empty() && rng.bool() {
        parts.push(pick(rng, selectors));
    }
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

fn get(path: &str) -> Request {
    Request { method: "GET".to_owned(), path: path.to_owned(), ..Request::default() }
}

fn create(rng: &mut Rng) -> Request {
    // Most objects are valid; in others one or two fields are invalid.
    let mut members = vec![format!("\"size\":{}", rng.u32(0..100))];
    if rng.u32(..5) == 0 {
        members.clear();
    }
    for _ in 0..rng.usize(..4) {
        let (member, values) = MEMBERS[rng.usize(..MEMBERS.len())];
        let good = rng.u32(..3) > 0;
        let value = if good { values[0] } else { values[rng.usize(..values.len())] };
        if !members.iter().any(|known| known.starts_with(&format!("\"{member}\""))) {
            members.push(format!("\"{member}\":{value}"));
        }
    }
    let labels = if rng.u32(..4) > 0 { LABELS[rng.usize(..4)] } else { pick(rng, LABELS) };
    let name = name(rng);
    let body = format!(
        "{{$widget,\"metadata\":{{\"name\":\"{name}\",\"labels\":{labels}}},\"spec\":{{{}}}}}",
        members.join(",")
    );
    let validation = pick(
        rng,
        &["", "", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?fieldValidation=Warn"],
    );
    Request {
        method: "POST".to_owned(),
        path: format!("$widgets{validation}"),
        body: Some(body),
        ..Request::default()
    }
}

const METADATA: &[&str] = &[
    "{}",
    "{\"labels\":{\"app\":\"x\"}}",
    "{\"labels\":{\"app\":null,\"n\":\"2\"}}",
    "{\"labels\":null}",
    "{\"annotations\":{\"a\":\"b\"}}",
    "{\"finalizers\":[\"x/hold\"]}",
    "{\"finalizers\":null}",
    "{\"finalizers\":[\"hold\",\"x/hold\"]}",
    "{\"resourceVersion\":\"1\"}",
    "{\"resourceVersion\":\"\"}",
    "{\"name\":\"b\"}",
    "{\"labels\":{\"-\":\"x\"}}",
    "{\"uid\":\"x\"}",
];
const OPERATIONS: &[&str] = &[
    "{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":7}",
    "{\"op\":\"test\",\"path\":\"/spec/size\",\"value\":7}",
    "{\"op\":\"remove\",\"path\":\"/spec/colour\"}",
    "{\"op\":\"add\",\"path\":\"/spec/tags/-\",\"value\":\"z\"}",
    "{\"op\":\"add\",\"path\":\"/spec/tags\",\"value\":[\"a\"]}",
    "{\"op\":\"copy\",\"from\":\"/spec/size\",\"path\":\"/spec/count\"}",
    "{\"op\":\"move\",\"from\":\"/spec/count\",\"path\":\"/spec/size\"}",
    "{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"app\":\"y\"}}",
    "{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}",
    "{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":-7}",
    "{\"op\":\"poem\",\"path\":\"/spec\"}",
];

fn patch(rng: &mut Rng, language: &str, body: String) -> Request {
    let path = format!("$widgets/{}{}", name(rng), pick(rng, &["", "", "?dryRun=All"]));
    let content_type = format!("application/{language}+json");
    Request {
        method: "PATCH".to_owned(),
        path,
        headers: vec![("Content-Type".to_owned(), content_type)],
        body: Some(body),
        ..Request::default()
    }
}

fn merge_patch(rng: &mut Rng) -> Request {
    let metadata = if rng.bool() { METADATA[rng.usize(..7)] } else { pick(rng, METADATA) };
    let mut spec = Vec::new();
    for _ in 0..rng.usize(..3) {
        let (member, values) = MEMBERS[rng.usize(..MEMBERS.len())];
        let value = if rng.bool() { values[0] } else { values[rng.usize(..values.len())] };
        if !spec.iter().any(|known: &String| known.starts_with(&format!("\"{member}\""))) {
            spec.push(format!("\"{member}\":{value}"));
        }
    }
    let body = format!("{{\"metadata\":{metadata},\"spec\":{{{}}}}}", spec.join(","));
    patch(rng, "merge-patch", body)
}

fn json_patch(rng: &mut Rng) -> Request {
    let operations: Vec<&str> = (0..rng.usize(1..4)).map(|_| pick(rng, OPERATIONS)).collect();
    patch(rng, "json-patch", format!("[{}]", operations.join(",")))
}

/// Replaces an object with the version of the last response and another size.
fn replace(rng: &mut Rng) -> Request {
    let name = name(rng);
    let version =
        pick(rng, &["$last.metadata.resourceVersion", "$last.metadata.resourceVersion", "1", ""]);
    let labels = LABELS[rng.usize(..3)];
    let size = rng.u32(0..100);
    let body = format!(
        "{{$widget,\"metadata\":{{\"name\":\"{name}\",\"labels\":{labels},\"resourceVersion\":\"{version}\"}},\"spec\":{{\"size\":{size}}}}}"
    );
    Request {
        method: "PUT".to_owned(),
        path: format!("$widgets/{name}"),
        body: Some(body),
        ..Request::default()
    }
}

fn delete(rng: &mut Rng) -> Request {
    let path = format!("$widgets/{}", name(rng));
    Request { method: "DELETE".to_owned(), path, ..Request::default() }
}

fn delete_with(rng: &mut Rng) -> Request {
    const BODIES: &[&str] = &[
        "{}",
        "{\"propagationPolicy\":\"Background\"}",
        "{\"preconditions\":{\"uid\":\"0a1b2c3d-0000-4000-8000-000000000000\"}}",
        "{\"preconditions\":{\"resourceVersion\":\"1\"}}",
        "{\"gracePeriodSeconds\":0}",
        "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\"}",
    ];
    Request { body: Some(pick(rng, BODIES).to_owned()), ..delete(rng) }
}

/// Adds a random `Accept` header if the request supports it.
fn in_some_form(rng: &mut Rng, mut request: Request) -> Request {
    let is_one = request.method != "GET" || request.path.starts_with("$widgets/");
    let is_watch = request.path.contains("watch=true");
    if rng.bool() {
        let form = pick(rng, FORMS);
        let fits = match form {
            "$METALIST" => !is_one && !is_watch,
            "$META" => is_one || is_watch,
            _ => true,
        };
        if fits {
            request.headers.push(("Accept".to_owned(), form.to_owned()));
        }
    }
    request
}

/// Removes requests as long as the responses of the row still differ. The first and the last request stay, because
/// other requests depend on them.
pub fn shrink(row: &Row, mut differs: impl FnMut(&Row) -> bool) -> Row {
    let mut shortest = row.clone();
    let mut left = ATTEMPTS;
    let mut index = shortest.requests.len();
    while index > 1 && left > 0 {
        index -= 1;
        let mut shorter = shortest.clone();
        shorter.requests.remove(index);
        left -= 1;
        if differs(&shorter) {
            shortest = shorter;
            index = index.min(shortest.requests.len());
        }
    }
    let needs_first = shortest.requests[1..].iter().any(|request| request.path.contains("$1"));
    if !needs_first && shortest.requests.len() > 1 {
        let mut shorter = shortest.clone();
        shorter.requests.remove(0);
        if differs(&shorter) {
            shortest = shorter;
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::parse;

    #[test]
    fn generated_rows_are_reproducible_from_a_seed_and_survive_encoding() {
        for seed in 0..200 {
            let made = row(seed);
            assert_eq!(made, row(seed));
            let read = parse("generated", &made.to_text()).unwrap();
            assert_eq!(read, [made]);
        }
    }

    #[test]
    fn shrinking_a_row_removes_irrelevant_requests() {
        let long = row(7);
        let creates = |row: &Row| row.requests.iter().filter(|r| r.method == "POST").count();
        assert!(creates(&long) > 0);
        let short = shrink(&long, |row| creates(row) > 0);
        assert_eq!((short.requests.len(), creates(&short)), (1, 1));
    }
}
