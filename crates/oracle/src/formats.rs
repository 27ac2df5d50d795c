//! Generates strings from a seed for every `format` that a schema can require.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::row::{Request, Row};

/// The largest number of strings in a request; no server reports more errors.
const TEXTS: usize = 60;

/// The number of objects that are generated for a format.
const OBJECTS: usize = 4;

/// For each format: strings that are valid or nearly valid, and the parts that are inserted to change them.
const FORMATS: &[(&str, &[&str], &[&str])] = &[
    ("bsonobjectid", &["0123456789abcdefABCDEF01"], &["0", "f", "g", "-"]),
    ("byte", &["QQ==", "QUI=", "QUJD", ""], &["A", "=", "-", "_", " ", "\n"]),
    ("cidr", &["10.0.0.0/8", "::/0", "fe80::1/64"], &["/", "33", "129", ".", ":", "0", "%eth0"]),
    (
        "creditcard",
        &[
            "4111111111111111",
            "4222222222222",
            "5500-0000-0000-0004",
            "2223000048400011",
            "2720990000000007",
            "2721000000000004",
            "6011000000000004",
            "6500000000000002",
            "340000000000009",
            "30000000000004",
            "3530111333300000",
            "213100000000001",
            "6200000000000005",
            "6759649826438453",
        ],
        &["0", "4", "-", " ", "x"],
    ),
    ("date", &["2020-02-29", "2021-02-29", "0000-01-01"], &["1", "-", "0", " "]),
    (
        "date-time",
        &["2020-01-01T00:00:00Z", "2020-01-01t10:20:30.5+01:00", "2016-12-31T23:59:60Z"],
        &["z", "+24:00", ".", ":", " ", "9", "-00:00"],
    ),
    ("datetime", &["2020-01-01T00:00:00Z"], &["z", "T", ".", "60"]),
    (
        "duration",
        &["1h30m", "-1.5s", "+2ms", "0", "1 day", "3 weeks", "P1D", "5µs", "2 hrs", ".5h", "1.h"],
        &[
            "1",
            "h",
            "M",
            " ",
            "days",
            "wk",
            "nanos",
            "sec",
            "-",
            ".",
            "µ",
            "99999999999999999999",
            "mi",
        ],
    ),
    (
        "email",
        &[
            "a@b",
            "A <a@b.c>",
            "\"x y\"@b",
            "a@[1.2.3.4]",
            "a@[::1]",
            "all: a@b;",
            "a@b (c)",
            "\"A B\" <a.b+c@d-e.f>",
            "A. B <a@b>",
            "=?utf-8?q?A?= <a@b>",
            "(c) a@b",
            "ä@ö",
        ],
        &[
            "@", ".", " ", "\"", "<", ">", "(", ")", ",", ":", ";", "\\", "[", "]", "a", "\t",
            "\u{1}", "é",
        ],
    ),
    ("hexcolor", &["#0af", "00AAFF", "#00aaff"], &["#", "0", "g", " "]),
    (
        "hostname",
        &["localhost", "a.bc", "a-b.cd", "a-", "1.2.3.4", "ä.öü", "a+b", "x.y-z.com", "a.b1"],
        &["-", ".", "a", "1", "_", " ", "é", "€", "bc"],
    ),
    ("ipv4", &["1.2.3.4", "001.2.3.4", "255.255.255.255"], &[".", "256", "0", " ", ":", "/8"]),
    (
        "ipv6",
        &["::1", "fe80::1", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"],
        &[":", "::", "g", "0", ".", "%eth0", "00001"],
    ),
    ("isbn", &["0-306-40615-2", "978-0-306-40615-7", "080442957X"], &["0", "-", " ", "X", "x"]),
    ("isbn10", &["0-306-40615-2", "080442957X", "0 8044 2957 X"], &["0", "-", "X", "x", "1"]),
    ("isbn13", &["978-0-306-40615-7", "9780306406157"], &["0", "-", "X", "7"]),
    ("k8s-long-name", &["a-b.c", "a", "a.b.c"], &["-", ".", "A", "_", ""]),
    ("k8s-short-name", &["a-b", "a"], &["-", ".", "A", "_", "1"]),
    (
        "mac",
        &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab", "01:23:45:67:89:ab:cd:ef"],
        &[":", "-", ".", "0", "g", "00:00"],
    ),
    (
        "rgbcolor",
        &["rgb(0,170,255)", "rgb( 1 , 2 , 3 )", "rgb(00,0,0)"],
        &["0", "256", " ", ",", ")", "99", "%"],
    ),
    ("ssn", &["123-45-6789", "123456789", "123 45 6789", "123-456789"], &["-", " ", "0", "a"]),
    (
        "uri",
        &[
            "/a",
            "http://a.b:80/c?d=e#f",
            "mailto:x@y",
            "http://[::1]:80/",
            "//a b",
            "http://u:p@h/",
            "a:b c",
            "http://a%20b/",
            "http://%e4/",
            "http://[fe80::1%25en0]/",
            "a+b.c-d://e",
            "*",
            "http:///x",
        ],
        &[
            "/", ":", "?", "#", "%", "%41", "%zz", "@", "[", "]", " ", "\u{7f}", "é", "{", "\\",
            "http:", "::1", ":8080", "\"", "<",
        ],
    ),
    (
        "uuid",
        &["0a1b2c3d-0000-4000-8000-000000000000", "0A1B2C3D000040008000000000000000"],
        &["-", "0", "g"],
    ),
    (
        "uuid3",
        &["0a1b2c3d-0000-3000-8000-000000000000", "0a1b2c3d-0000-3000-0000-000000000000"],
        &["-", "0", "3"],
    ),
    (
        "uuid4",
        &["0a1b2c3d-0000-4000-8000-000000000000", "0a1b2c3d-0000-4000-C000-000000000000"],
        &["-", "8", "4"],
    ),
    (
        "uuid5",
        &["0a1b2c3d-0000-5000-8000-000000000000", "0a1b2c3d00005000B000000000000000"],
        &["-", "a", "5"],
    ),
];

/// Generates the rows of a seed: one for each format, with objects that contain such strings.
pub fn rows(seed: u64) -> Vec<Row> {
    let row = |(format, samples, parts): &(&str, &[&str], &[&str])| {
        let mut rng = Rng::with_seed(seed);
        let requests = (0..OBJECTS).map(|_| {
            let texts: Vec<Value> =
                (0..TEXTS).map(|_| text(&mut rng, samples, parts).into()).collect();
            let spec = json!({"texts": {*format: texts}});
            Request {
                method: "POST".to_owned(),
                path: "$gears?dryRun=All".to_owned(),
                body: Some(format!("{{$gear,\"metadata\":{{\"name\":\"a\"}},\"spec\":{spec}}}")),
                ..Request::default()
            }
        });
        Row {
            topic: "generated".to_owned(),
            title: format!("{format} from seed {seed}"),
            alone: false,
            aggregated: false,
            standalone: false,
            requests: requests.collect(),
        }
    };
    FORMATS.iter().map(row).collect()
}

/// Returns a sample, usually with parts inserted, removed or replaced.
fn text(rng: &mut Rng, samples: &[&str], parts: &[&str]) -> String {
    let sample = samples[rng.usize(..samples.len())];
    let mut characters: Vec<String> = sample.chars().map(String::from).collect();
    for _ in 0..rng.usize(..3) {
        let part = parts[rng.usize(..parts.len())].to_owned();
        let at = rng.usize(..=characters.len());
        match rng.u32(..3) {
            0 => characters.insert(at, part),
            1 if at < characters.len() => characters[at] = part,
            _ if at < characters.len() => {
                characters.remove(at);
            }
            _ => characters.push(part),
        }
    }
    characters.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::parse;

    #[test]
    fn format_rows_are_reproducible_from_a_seed_and_survive_encoding() {
        for seed in 0..20 {
            assert_eq!(rows(seed), rows(seed));
            for made in rows(seed) {
                assert_eq!(parse("generated", &made.to_text()).unwrap(), [made]);
            }
        }
    }
}
