//! Parsing of query strings.

use std::borrow::Cow;

/// Returns the decoded key-value pairs of a query. A pair with invalid escapes or a semicolon is ignored, same as in
/// Go.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let is_good = |pair: &&str| !pair.contains(';') && is_well_escaped(pair);
    let pairs = query.split('&').filter(is_good);
    pairs.flat_map(|pair| form_urlencoded::parse(pair.as_bytes()))
}

/// Whether two hexadecimal digits follow each percent sign.
fn is_well_escaped(pair: &str) -> bool {
    pair.split('%').skip(1).all(|behind| {
        let digits = behind.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_query_parameters_are_ignored() {
        let read = |query| pairs(query).map(|(key, value)| format!("{key}={value}")).collect();
        let rows: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("a", &["a="]),
            ("a=b&&c=d", &["a=b", "c=d"]),
            ("a=%zz&b=%2&c=%&d=%41", &["d=A"]),
            ("a=1;b=2&c=3", &["c=3"]),
            ("a+b=c+d", &["a b=c d"]),
            ("a=b=c", &["a=b=c"]),
        ];
        for (query, expected) in rows {
            let pairs: Vec<String> = read(query);
            assert_eq!(pairs, expected, "{query}");
        }
    }
}
