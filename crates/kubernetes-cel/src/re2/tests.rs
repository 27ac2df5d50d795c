use super::translate;
use crate::pattern::Pattern;

/// Patterns, strings that they match, and strings that they do not match.
const MATCHES: &[(&str, &[&str], &[&str])] = &[
    ("^\\d+$", &["12"], &["٣", "a"]),
    ("^\\w\\W\\s\\S$", &["a- b"], &["éé x"]),
    ("^[\\w-]+$", &["a-b"], &["é"]),
    ("^[^\\s]$", &["é"], &["\t"]),
    ("\\bcat\\b", &["a cat"], &["concat"]),
    ("^[[]$", &["["], &["]"]),
    ("^[]a]$", &["]", "a"], &["b"]),
    ("^[a&&b]$", &["&"], &["c"]),
    ("^[+--]$", &[","], &["."]),
    ("^[[:alpha:][:^alpha:]]$", &["a", "1"], &["ab"]),
    ("^a{,3}$", &["a{,3}"], &["aa"]),
    ("^{x}a{2}$", &["{x}aa"], &["aa"]),
    ("^\\Qa.b\\E+$", &["a.b"], &["axb"]),
    ("^(?P<n>a)(?<n>b)$", &["ab"], &["a"]),
    ("(?i)^ab$", &["AB"], &["a"]),
    ("^\\101\\x42\\x{43}\\.\\_$", &["ABC._"], &["ABCx_"]),
    ("^\\pL\\p{^Lu}\\P{Greek}$", &["aba"], &["aBa"]),
    ("^(?:)(?s).$", &["\n"], &["ab"]),
];

/// Invalid patterns, and Go's errors.
const FAULTS: &[(&str, &str)] = &[
    ("(", "missing closing ): `(`"),
    ("a)", "unexpected ): `a)`"),
    ("[a", "missing closing ]: `[a`"),
    ("[z-a]", "invalid character class range: `z-a`"),
    ("[[:x:]]", "invalid character class range: `[:x:]`"),
    ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
    ("*", "missing argument to repetition operator: `*`"),
    ("a|+?", "missing argument to repetition operator: `+?`"),
    ("x++", "invalid nested repetition operator: `++`"),
    ("x**?", "invalid nested repetition operator: `**?`"),
    ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
    ("x{1001}", "invalid repeat count: `{1001}`"),
    ("x{3,2}", "invalid repeat count: `{3,2}`"),
    ("(x{100}){11}", "invalid repeat count: `{11}`"),
    ("\\", "trailing backslash at end of expression: ``"),
    ("\\q", "invalid escape sequence: `\\q`"),
    ("\\8", "invalid escape sequence: `\\8`"),
    ("\\1", "invalid escape sequence: `\\1`"),
    ("\\xg", "invalid escape sequence: `\\xg`"),
    ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
    ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
    ("(?P<>a)", "invalid named capture: `(?P<>`"),
    ("(?P<a", "invalid named capture: `(?P<a`"),
];

#[test]
fn patterns_are_read_as_re2_reads_them() {
    for (pattern, good, bad) in MATCHES {
        let compiled = Pattern::compile(pattern).unwrap();
        good.iter().for_each(|text| assert!(compiled.is_match(text), "{pattern} {text}"));
        bad.iter().for_each(|text| assert!(!compiled.is_match(text), "{pattern} {text}"));
    }
}

#[test]
fn invalid_patterns_have_the_error_messages_of_go() {
    for (pattern, why) in FAULTS {
        let expected = format!("error parsing regexp: {why}");
        assert_eq!(translate(pattern), Err(expected), "{pattern}");
    }
}
