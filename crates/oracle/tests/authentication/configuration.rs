//! The AuthenticationConfiguration that both servers get.

use anyhow::Result;
use serde_json::{Value, json};
use test_cluster::Authority;

use crate::issuer::TestIssuer;

/// The names of the issuers, which are also their paths.
pub const ISSUERS: [&str; 7] =
    ["plain", "email", "expressions", "rules", "audiences", "discovered", "dash"];

pub fn document(issuer: &TestIssuer, authority: &Authority) -> Result<String> {
    let certificates = std::fs::read_to_string(&authority.file)?;
    let authenticators = ISSUERS.map(|name| {
        let mut authenticator = authenticator(name);
        let settings = &mut authenticator["issuer"];
        settings["url"] = issuer.url(name).into();
        settings["certificateAuthority"] = certificates.as_str().into();
        if settings["audiences"].is_null() {
            settings["audiences"] = json!(["oracle"]);
        }
        if name == "discovered" {
            settings["discoveryURL"] = issuer.url("elsewhere").into();
        }
        authenticator
    });
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": authenticators,
        "anonymous": {"enabled": true, "conditions": [
            {"path": "/livez"}, {"path": "/version"}, {"path": "/metrics"},
        ]},
    });
    Ok(document.to_string())
}

fn authenticator(name: &str) -> Value {
    match name {
        "plain" => json!({"claimMappings": {
            "username": {"claim": "sub", "prefix": ""},
            "groups": {"claim": "groups", "prefix": "group:"},
        }}),
        "email" => json!({"claimMappings": {
            "username": {"claim": "email", "prefix": "oidc:"},
            "uid": {"claim": "sub"},
        }}),
        "expressions" => json!({"claimMappings": {
            "username": {"expression": "claims.sub + '@' + claims.?org.name.orValue('none')"},
            "groups": {"expression": "claims.?roles.orValue([])"},
            "uid": {"expression": "claims.?id.orValue('')"},
            "extra": [
                {"key": "example.com/level", "valueExpression": "string(claims.?level.orValue(0))"},
                {"key": "example.com/tags", "valueExpression": "claims.?example__dot__com__slash__tags.orValue(null)"},
                {"key": "example.com/nested", "valueExpression": "claims.?org.a__dash__b.orValue('')"},
                {"key": "example.com/mapped", "valueExpression": "dyn(claims.?roles.orValue([])).filter(r, r != '').map(r, 'role-' + r)"},
            ],
        }}),
        "rules" => json!({
            "claimValidationRules": [
                {"claim": "hd", "requiredValue": "example.com"},
                {"expression": "claims.?level.orValue(5) > 3", "message": "the level is too low"},
            ],
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
            },
            "userValidationRules": [
                {"expression": "!user.username.startsWith('system:')", "message": "reserved"},
                {"expression": "user.groups.all(group, !group.startsWith('system:'))", "message": "reserved"},
                {"expression": "!has(user.extra.example__dot__com) && user.uid == ''"},
            ],
        }),
        "audiences" => json!({
            "issuer": {"audiences": ["oracle", "other"], "audienceMatchPolicy": "MatchAny"},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }),
        "dash" => json!({"claimMappings": {
            "username": {"claim": "sub", "prefix": "-"},
            "groups": {"claim": "groups", "prefix": "-"},
        }}),
        _ => json!({"claimMappings": {"username": {"claim": "sub", "prefix": "found:"}}}),
    }
}
