//! The tokens that both servers get.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::issuer::{Signing, TestIssuer};

/// A token and whether kube-apiserver accepts it.
pub struct Row {
    pub title: String,
    pub token: String,
    pub is_accepted: bool,
}

/// Paths of requests without credentials, and the status of the response.
pub const ANONYMOUS: &[(&str, u16)] =
    &[("/livez", 200), ("/version", 200), ("/metrics", 403), ("/api", 401), ("/version/", 401)];

/// Claims that all issuers accept.
pub fn valid_claims() -> Value {
    let now = Timestamp::now().as_second();
    json!({
        "aud": "oracle", "sub": "jane", "exp": now + 3_600, "iat": now,
        "email": "jane@example.com", "hd": "example.com", "groups": ["a"],
    })
}

pub fn rows(issuer: &TestIssuer) -> Vec<Row> {
    let now = Timestamp::now().as_second();
    let mut rows: Vec<Row> = claims(now)
        .into_iter()
        .map(|(title, name, changes, is_accepted)| {
            let mut claims = valid_claims();
            for (claim, value) in changes.as_object().unwrap() {
                match value == "(none)" {
                    true => drop(claims.as_object_mut().unwrap().remove(claim)),
                    false => claims[claim] = value.clone(),
                }
            }
            let token = issuer.token(name, &claims, Signing::Es256);
            let title = format!("{name}: {title}");
            Row { title, token, is_accepted }
        })
        .collect();
    for (signing, is_accepted) in [
        (Signing::Es384, true),
        (Signing::Rs256, true),
        (Signing::Rs384, true),
        (Signing::Rs512, true),
        (Signing::Ps256, true),
        (Signing::Ps384, true),
        (Signing::Ps512, true),
        (Signing::Unnamed, true),
        (Signing::Forged, false),
        (Signing::Changed, false),
        (Signing::UnknownKey, false),
        (Signing::None, false),
        (Signing::Hs256, false),
        (Signing::WrongAlgorithm, false),
    ] {
        let token = issuer.token("plain", &valid_claims(), signing);
        let title = format!("signature: {signing:?}");
        rows.push(Row { title, token, is_accepted });
    }
    let valid = issuer.token("plain", &valid_claims(), Signing::Es256);
    for (title, token) in [
        ("no token", "abc".to_owned()),
        ("without a signature", valid.rsplit_once('.').unwrap().0.to_owned()),
        ("a fourth part", format!("{valid}.x")),
        ("an empty signature", format!("{}.", valid.rsplit_once('.').unwrap().0)),
        ("another header", format!("e30.{}", valid.split_once('.').unwrap().1)),
    ] {
        let title = format!("form: {title}");
        rows.push(Row { title, token, is_accepted: false });
    }
    rows
}

/// The title, the issuer, the changed claims, and whether the token is valid.
fn claims(now: i64) -> Vec<(&'static str, &'static str, Value, bool)> {
    vec![
        ("valid", "plain", json!({}), true),
        ("expired", "plain", json!({"exp": now - 5}), false),
        ("without exp", "plain", json!({"exp": "(none)"}), false),
        ("exp is null", "plain", json!({"exp": null}), false),
        ("exp is a string", "plain", json!({"exp": format!("{}", now + 600)}), true),
        ("exp is a fraction", "plain", json!({"exp": 4_000_000_000.5}), true),
        ("exp is no number", "plain", json!({"exp": "soon"}), false),
        ("not yet valid", "plain", json!({"nbf": now + 600}), false),
        ("valid within a minute", "plain", json!({"nbf": now + 40}), true),
        ("nbf is null", "plain", json!({"nbf": null}), true),
        ("iat is null", "plain", json!({"iat": null}), false),
        ("iat is in the future", "plain", json!({"iat": now + 600}), true),
        ("wrong audience", "plain", json!({"aud": "other"}), false),
        ("no audience", "plain", json!({"aud": "(none)"}), false),
        ("one of the audiences", "plain", json!({"aud": ["x", "oracle"]}), true),
        ("audience is a number", "plain", json!({"aud": 5}), false),
        ("wrong issuer", "plain", json!({"iss": "https://other.example.com"}), false),
        ("issuer with a slash", "plain", json!({"iss": "https://localhost/"}), false),
        ("without sub", "plain", json!({"sub": "(none)"}), false),
        ("sub is a number", "plain", json!({"sub": 5}), false),
        ("sub is null", "plain", json!({"sub": null}), true),
        ("sub is empty", "plain", json!({"sub": ""}), true),
        ("sub is null", "expressions", json!({"sub": null}), false),
        ("nonce is a number", "plain", json!({"nonce": 5}), false),
        ("groups as a string", "plain", json!({"groups": "b"}), true),
        ("several groups", "plain", json!({"groups": ["b", "", "c"]}), true),
        ("no groups", "plain", json!({"groups": "(none)"}), true),
        ("groups are null", "plain", json!({"groups": null}), true),
        ("groups are numbers", "plain", json!({"groups": [1]}), false),
        ("groups are an object", "plain", json!({"groups": {}}), false),
        ("a group is null", "plain", json!({"groups": ["b", null]}), true),
        ("a token ID", "plain", json!({"jti": "id-7"}), true),
        ("a token ID that is a number", "plain", json!({"jti": 7}), true),
        ("system:masters", "plain", json!({"groups": ["system:masters"]}), true),
        ("a verified email", "email", json!({"email_verified": true}), true),
        ("an email without verification", "email", json!({}), true),
        ("an email that is not verified", "email", json!({"email_verified": false}), false),
        ("the verification is a string", "email", json!({"email_verified": "true"}), false),
        ("the verification is null", "email", json!({"email_verified": null}), false),
        ("without an email", "email", json!({"email": "(none)"}), false),
        ("without a uid", "email", json!({"sub": "(none)"}), false),
        ("defaults", "expressions", json!({}), true),
        (
            "nested claims",
            "expressions",
            json!({"org": {"name": "farm", "a-b": "c"}, "roles": ["x", "", "y"], "id": "u-1", "level": 2}),
            true,
        ),
        ("an escaped claim", "expressions", json!({"example.com/tags": ["t", "u"]}), true),
        ("a group as a string", "expressions", json!({"org": {}, "example.com/tags": "t"}), true),
        ("a fraction", "expressions", json!({"level": 2.5}), true),
        ("a name of another type", "expressions", json!({"org": {"name": 5}}), false),
        ("roles of another type", "expressions", json!({"roles": [1]}), false),
        ("a uid of another type", "expressions", json!({"id": 1}), false),
        ("a tag of another type", "expressions", json!({"example.com/tags": {"a": 1}}), false),
        ("without sub", "expressions", json!({"sub": "(none)"}), false),
        ("all rules are met", "rules", json!({"level": 4}), true),
        ("without the required claim", "rules", json!({"hd": "(none)"}), false),
        ("another value of the required claim", "rules", json!({"hd": "example.org"}), false),
        ("the required claim is a list", "rules", json!({"hd": ["example.com"]}), false),
        ("a rule about claims is not met", "rules", json!({"level": 2}), false),
        ("a rule about claims fails", "rules", json!({"level": "high"}), false),
        ("a system: user", "rules", json!({"sub": "system:admin"}), false),
        ("a system: group", "rules", json!({"groups": ["a", "system:masters"]}), false),
        ("the first audience", "audiences", json!({}), true),
        ("the second audience", "audiences", json!({"aud": ["x", "other"]}), true),
        ("neither audience", "audiences", json!({"aud": ["x"]}), false),
        ("a discovery URL", "discovered", json!({}), true),
        ("the prefix -", "dash", json!({}), true),
    ]
}
