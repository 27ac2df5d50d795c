use serde_json::json;

use super::*;

const MANY: usize = 10_000;

fn object() -> Value {
    json!({
        "spec": {
            "a": [{"b": [1, 2, 3], "c": "x"}, {"b": [4]}, {"d": null}],
            "n": [10, 20, 30, 40], "empty": [], "text": "t\u{e9}", "null": null, "is": true,
            "floats": [{"v": 1.5}, {"v": 2.5}], "deep": {"deep": {"deep": {"z": 1}}},
            "conditions": [
                {"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "No", "n": 2},
            ],
            "a.b": "dotted", "x-y": {"q'r": "quote"},
        },
    })
}

fn find(path: &str) -> Option<Value> {
    let path = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} is none"));
    path.first(&object(), &mut MANY.clone()).map(Cow::into_owned)
}

#[test]
fn json_paths_find_the_same_values_as_kubernetes() {
    for (path, expected) in [
        (".spec.n[0]", json!(10)),
        (".spec.n[-1]", json!(40)),
        (".spec.n[1:3]", json!(20)),
        (".spec.n[-2:]", json!(30)),
        (".spec.n[:1]", json!(10)),
        (".spec.n[1::2]", json!(20)),
        (".spec.n[]", json!(10)),
        (".spec.n[*]", json!(10)),
        (".spec.n[2,0]", json!(30)),
        (".spec['is','null']", json!(true)),
        (".spec.a[*].b[0]", json!(1)),
        (".spec.a[0:2].b[0]", json!(1)),
        (".spec.a[*].c", json!("x")),
        (".spec['a\\.b']", json!("dotted")),
        (".spec.a\\.b", json!("dotted")),
        (".spec.x-y.q'r", json!("quote")),
        (".spec.is", json!(true)),
        (".spec.null", json!(null)),
        (".spec.text.*", json!(116)),
        (".spec.deep..z", json!(1)),
        ("..z", json!(1)),
        (".spec.conditions[?(@.type==\"Ready\")].status", json!("True")),
        (".spec.conditions[?(@.type=='Other')].status", json!("No")),
        (".spec.conditions[?(@.type!='Ready')].status", json!("No")),
        (".spec.conditions[?( @.n > 1 )].status", json!("No")),
        (".spec.conditions[?(@.n>=1)].n", json!(1)),
        (".spec.conditions[?(@.n<2)].n", json!(1)),
        (".spec.floats[?(@.v>2.0)].v", json!(2.5)),
        (".spec.a[?(@.c)].c", json!("x")),
        (".spec.a[?(@.b[0]==4)].b[0]", json!(4)),
        ("$.spec.is", json!(true)),
        (".spec@.is", json!(true)),
        (".spec .is", json!(true)),
        (".spec.is} and more", json!(true)),
        // An error on the left side of a filter counts as existing, if the step had values.
        (".spec.n[?(@[0])]", json!(10)),
    ] {
        assert_eq!(find(path), Some(expected), "{path}");
    }
}

#[test]
fn json_paths_find_no_value_where_kubernetes_finds_none() {
    for path in [
        ".",
        ".none",
        ".spec.none.more",
        ".spec.is.more",
        ".spec.list.[0]",
        ".spec.n[4]",
        ".spec.n[-5]",
        ".spec.n[1:9]",
        ".spec.n[3:1]",
        ".spec.n[1:1]",
        ".spec.n[0::0]",
        ".spec.n[0::-1]",
        ".spec.empty[0]",
        ".spec.empty[*]",
        ".spec.is[0]",
        ".spec.null[0]",
        // An error at one value leaves the whole cell empty.
        ".spec.a[*].b[1]",
        // Integers and floats are not comparable, and neither are strings and numbers.
        ".spec.floats[?(@.v>2)].v",
        ".spec.conditions[?(@.n=='1')].n",
        ".spec.conditions[?(@.none=='1')].n",
        ".spec.a[?(@.d==1)]",
        ".spec.deep[?(@.z)]",
        ".spec['a.b']",
        ".spec.range",
        ".spec range",
        ".spec.conditions[?(@.*=='Ready')].n",
    ] {
        assert_eq!(find(path), None, "{path}");
    }
}

#[test]
fn invalid_json_paths_are_rejected() {
    for path in [
        "[",
        ".a[",
        ".a]",
        ".a[?(@.b]",
        ".a[?(@.b)",
        ".a[\"b\"]",
        ".a[x]",
        ".a[1:2:3:4]",
        ".a[-]",
        "....a",
        "..*",
        ".a[?(@.b=~'R')]",
        "{.a}",
        ".a,b",
        ".a[?(@.b=)]",
        ".a[?(@.b==)]",
        ".a[?(==1)]",
        ".a['b'c']",
        "'open",
        ".a[?(match(@, 'a'))]",
        ".a[+1]",
    ] {
        assert!(JsonPath::parse(path).is_none(), "{path}");
    }
}

#[test]
fn steps_are_bounded() {
    let wide = json!({"a": (0..200).map(|_| json!({"b": (0..200).collect::<Vec<_>>()})).collect::<Vec<_>>()});
    for path in ["..b[*]", ".*.*..b", ".a[*].b[*]", ".a[?(@.b[199]==1)]", ".a[*,*,*].b[*]"] {
        let path = JsonPath::parse(path).unwrap();
        let mut left = 1_000;
        assert_eq!(path.first(&wide, &mut left), None);
        assert_eq!(left, 0);
    }
    let mut left = 1_000;
    let first = JsonPath::parse(".a[0].b[1]").unwrap();
    assert_eq!(first.first(&wide, &mut left).as_deref(), Some(&json!(1)));
    assert!(left > 900, "{left}");
    let long = "x".repeat(1 << 20);
    let texts = json!({"a": [{"t": long}, {"t": long}], "b": long});
    let equal = JsonPath::parse(&format!(".a[?(@.t=='{long}')].t")).unwrap();
    assert_eq!(equal.first(&texts, &mut 1_000), None);
}
