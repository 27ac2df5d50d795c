//! Generates rows from a seed: a few managers write the same object with all kinds of requests.

use fastrand::Rng;

use crate::row::{Request, Row};

/// The field managers.
const MANAGERS: &[&str] = &["a", "b", "c", "kubectl"];
/// The number of writes in a row.
const WRITES: std::ops::Range<usize> = 5..20;

/// Generates the row of a seed.
pub fn row(seed: u64) -> Row {
    let mut rng = Rng::with_seed(seed);
    let mut requests = Vec::new();
    for _ in 0..rng.usize(WRITES) {
        requests.push(write(&mut rng));
    }
    requests.push(Request {
        method: "GET".to_owned(),
        path: "$demos/a".to_owned(),
        ..Request::default()
    });
    Row {
        topic: "generated applies".to_owned(),
        title: format!("from seed {seed}"),
        alone: false,
        aggregated: false,
        standalone: false,
        requests,
    }
}

fn write(rng: &mut Rng) -> Request {
    let manager = pick(rng, MANAGERS);
    let is_old = rng.u32(0..6) == 0;
    let (base, kind) = match is_old {
        true => ("$v1beta1/namespaces/$ns/demos", r#""apiVersion":"$group/v1beta1","kind":"Demo""#),
        false => ("$demos", "$demo"),
    };
    let dry = if rng.u32(0..12) == 0 { "&dryRun=All" } else { "" };
    let query = format!("fieldManager={manager}{dry}");
    let metadata = metadata(rng);
    match rng.u32(0..12) {
        0..6 => {
            let force = ["", "", "&force=true"][rng.usize(0..3)];
            let body = format!("{{{kind},\"metadata\":{metadata},\"spec\":{}}}", spec(rng));
            let path = format!("{base}/a?{query}{force}");
            request("PATCH", path, Some("application/apply-patch+yaml"), body)
        }
        6 => {
            let body = format!("{{{kind},\"metadata\":{metadata},\"spec\":{}}}", spec(rng));
            request("POST", format!("{base}?{query}"), None, body)
        }
        7 => {
            let body = format!("{{\"metadata\":{metadata},\"spec\":{}}}", spec(rng));
            let path = format!("{base}/a?{query}");
            request("PATCH", path, Some("application/merge-patch+json"), body)
        }
        8 => {
            let status = status(rng);
            let body = format!("{{{kind},\"metadata\":{{\"name\":\"a\"}},\"status\":{status}}}");
            let force = ["", "&force=true"][rng.usize(0..2)];
            let path = format!("{base}/a/status?{query}{force}");
            request("PATCH", path, Some("application/apply-patch+yaml"), body)
        }
        9 => {
            let body = format!("{{\"status\":{}}}", status(rng));
            let path = format!("{base}/a/status?{query}");
            request("PATCH", path, Some("application/merge-patch+json"), body)
        }
        10 => {
            let path = format!("{base}/a?{query}");
            let name = pick(rng, &["s", "set", "lm", "m", "o", "free", "pl"]);
            let operation = match rng.u32(0..2) {
                0 => format!("[{{\"op\":\"remove\",\"path\":\"/spec/{name}\"}}]"),
                _ => format!(
                    "[{{\"op\":\"add\",\"path\":\"/spec/s\",\"value\":\"{}\"}}]",
                    number(rng)
                ),
            };
            request("PATCH", path, Some("application/json-patch+json"), operation)
        }
        _ => {
            let body = format!("{{\"spec\":{{\"replicas\":{}}}}}", rng.u32(0..3));
            let path = format!("{base}/a/scale?{query}");
            request("PATCH", path, Some("application/merge-patch+json"), body)
        }
    }
}

fn request(method: &str, path: String, content_type: Option<&str>, body: String) -> Request {
    let headers = content_type.into_iter();
    Request {
        method: method.to_owned(),
        path,
        headers: headers.map(|text| ("Content-Type".to_owned(), text.to_owned())).collect(),
        body: Some(body),
        ..Request::default()
    }
}

fn metadata(rng: &mut Rng) -> String {
    // No field is empty: kube-apiserver stores an empty field of an apply request, and drops it with the next write,
    // which then changes the object.
    let (key, number) = (pick(rng, &["k1", "k2"]), number(rng));
    let more = match rng.u32(0..6) {
        0 => format!(",\"labels\":{{\"{key}\":\"{number}\"}}"),
        1 => format!(",\"annotations\":{{\"{key}\":\"{number}\"}}"),
        2 => format!(",\"finalizers\":[\"x.io/{key}\"]"),
        _ => String::new(),
    };
    format!("{{\"name\":\"a\"{more}}}")
}

/// Generates a spec with valid values.
fn spec(rng: &mut Rng) -> String {
    let names = [
        "s", "t", "i", "b", "n", "ios", "any", "free", "m", "am", "o", "ao", "set", "al", "lm",
        "pl", "ns", "no", "nset", "dd", "emb", "mol",
    ];
    let mut members = Vec::new();
    for name in names {
        if rng.u32(0..3) != 0 {
            continue;
        }
        members.push(format!("\"{name}\":{}", member(rng, name)));
    }
    format!("{{{}}}", members.join(","))
}

fn member(rng: &mut Rng, name: &str) -> String {
    let texts = &["p", "q", "r", "s"];
    match name {
        "i" => number(rng),
        "b" => pick(rng, &["true", "false"]).to_owned(),
        "n" => pick(rng, &["1", "1.5", "2.0", "1e3"]).to_owned(),
        "ios" => pick(rng, &["1", "\"1\"", "\"50%\""]).to_owned(),
        "any" | "free" => {
            let free = ["{}", "{\"a\":1}", "{\"a\":{\"b\":1,\"c\":[1]}}", "{\"a\":{\"b\":2}}", "{\"d\":[{\"e\":1}]}"];
            let any = ["1", "\"x\"", "[1,2]", "{\"a\":1}", "{\"a\":{\"b\":[]}}"];
            pick(rng, if name == "any" { &any } else { &free }).to_owned()
        }
        "m" | "am" => map(rng),
        "ao" => pick(rng, &["{}", "{\"x\":\"1\"}", "{\"x\":\"1\",\"y\":\"2\"}"]).to_owned(),
        "o" => pick(
            rng,
            &["{}", "{\"x\":\"1\"}", "{\"x\":\"2\",\"y\":\"2\"}", "{\"z\":{}}", "{\"z\":{\"p\":\"1\"}}", "{\"z\":{\"p\":\"2\",\"q\":\"1\"}}"],
        )
        .to_owned(),
        "set" | "al" => set(rng, texts),
        "lm" => {
            let mut items = Vec::new();
            for name in shuffled(rng, &["x", "y", "z"]) {
                let more = match rng.u32(0..4) {
                    0 => String::new(),
                    1 => format!(",\"v\":\"{}\"", number(rng)),
                    2 => format!(",\"w\":\"{}\"", number(rng)),
                    _ => format!(",\"sub\":{}", set(rng, texts)),
                };
                items.push(format!("{{\"name\":\"{name}\"{more}}}"));
            }
            format!("[{}]", items.join(","))
        }
        "pl" => {
            let ports = ["{\"port\":80}", "{\"port\":80,\"proto\":\"UDP\"}", "{\"port\":81,\"v\":\"1\"}", "{\"port\":81.0,\"proto\":\"UDP\",\"v\":\"2\"}"];
            format!("[{}]", shuffled(rng, &ports).join(","))
        }
        "ns" => pick(rng, &["null", "\"1\"", "\"2\""]).to_owned(),
        "no" => pick(rng, &["null", "{}", "{\"x\":\"1\"}", "{\"y\":\"1\"}"]).to_owned(),
        "nset" => match rng.u32(0..3) {
            0 => "null".to_owned(),
            _ => set(rng, texts),
        },
        "dd" => pick(rng, &["{}", "{\"e\":\"1\"}", "{\"d\":\"D\"}", "{\"d\":\"E\",\"e\":\"2\"}"]).to_owned(),
        "emb" => pick(
            rng,
            &[
                r#"{"apiVersion":"v1","kind":"Pod"}"#,
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"1"}},"spec":{"x":1}}"#,
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","finalizers":["y.io/a"]},"spec":{"y":[1]}}"#,
            ],
        )
        .to_owned(),
        "mol" => {
            let lists = shuffled(rng, &["k", "l"]);
            let lists = lists.iter().map(|key| format!("\"{key}\":{}", set(rng, texts)));
            format!("{{{}}}", lists.collect::<Vec<_>>().join(","))
        }
        _ => format!("\"{}\"", number(rng)),
    }
}

fn status(rng: &mut Rng) -> String {
    let conditions = shuffled(rng, &["Ready", "Sound"]);
    let conditions = conditions.iter().map(|condition| {
        let is = pick(rng, &["True", "False"]);
        format!("{{\"type\":\"{condition}\",\"status\":\"{is}\"}}")
    });
    let conditions = conditions.collect::<Vec<_>>().join(",");
    format!("{{\"phase\":\"{}\",\"conditions\":[{conditions}]}}", number(rng))
}

fn map(rng: &mut Rng) -> String {
    let members = shuffled(rng, &["k1", "k2", "k3"]);
    let members = members.iter().map(|key| format!("\"{key}\":\"{}\"", number(rng)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn set(rng: &mut Rng, texts: &[&str]) -> String {
    let items = shuffled(rng, texts);
    let items: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(","))
}

/// Returns a random part of `all` in random order.
fn shuffled<'a>(rng: &mut Rng, all: &[&'a str]) -> Vec<&'a str> {
    let mut some: Vec<&str> = all.iter().copied().filter(|_| rng.bool()).collect();
    rng.shuffle(&mut some);
    some
}

fn number(rng: &mut Rng) -> String {
    rng.u32(0..4).to_string()
}

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(0..all.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_generates_the_same_apply_requests_each_time() {
        assert_eq!(row(7), row(7));
        assert_ne!(row(7).requests, row(8).requests);
    }
}
