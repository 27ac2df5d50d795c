//! Maps the claims of a verified token to a user, and applies the rules about both.

use std::collections::BTreeMap;

use aggregated_apiserver::User;
use kubernetes_cel::Output;
use serde_json::{Map, Value, json};

use super::expression::Expression;

/// The claims of a token.
pub(super) type Claims = Map<String, Value>;

/// The extra attribute with the ID of a token.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const NO_STRINGS: &str = "expression must return a string or a list of strings";

/// The source of an attribute of a user.
#[derive(Debug)]
pub(super) enum ClaimSource {
    /// A claim and the prefix of its value.
    Claim(String, String),
    Expression(Expression),
}

/// The mappings and rules of an issuer. Each rule has its message.
#[derive(Debug, Default)]
pub(super) struct ClaimsMapper {
    pub username: Option<ClaimSource>,
    pub groups: Option<ClaimSource>,
    pub uid: Option<ClaimSource>,
    pub extra: Vec<(String, Expression)>,
    pub required_claims: Vec<(String, String)>,
    pub claim_rules: Vec<(Expression, String)>,
    pub user_rules: Vec<(Expression, String)>,
}

impl ClaimsMapper {
    /// Returns the user of a token.
    ///
    /// # Errors
    /// The reason, if a claim is missing or has another type, an expression fails, or a rule rejects the token.
    pub(super) fn user_of(&self, claims: Claims) -> Result<User, String> {
        self.check_distributed_groups(&claims)?;
        let user = User {
            name: self.username_of(&claims)?,
            groups: self.groups_of(&claims)?,
            uid: Some(self.uid_of(&claims)?).filter(|uid| !uid.is_empty()),
            extra: self.extra_of(&claims)?,
        };
        for (claim, required) in &self.required_claims {
            let value = claims.get(claim);
            let value =
                value.ok_or_else(|| format!("required claim {claim} not present in ID token"))?;
            let value = text(value).map_err(|why| format!("parse claim {claim}: {why}"))?;
            if value != required {
                return Err(format!(
                    "required claim {claim} value does not match. Got = {value}, want = {required}"
                ));
            }
        }
        check_rules(&self.claim_rules, &Value::Object(claims))
            .map_err(|why| format!("error evaluating claim validation expression: {why}"))?;
        let object = json!({
            "username": user.name, "uid": user.uid.as_deref().unwrap_or_default(),
            "groups": user.groups, "extra": user.extra,
        });
        check_rules(&self.user_rules, &object)
            .map_err(|why| format!("error evaluating user info validation rule: {why}"))?;
        Ok(user)
    }

    /// Rejects a token whose groups are at another endpoint, because this server does not request them.
    fn check_distributed_groups(&self, claims: &Claims) -> Result<(), String> {
        let Some(ClaimSource::Claim(groups, _)) = &self.groups else { return Ok(()) };
        let names = claims.get("_claim_names");
        if !claims.contains_key(groups) && names.is_some_and(|names| names.get(groups).is_some()) {
            return Err(format!("distributed claim {groups:?} is not supported"));
        }
        Ok(())
    }

    fn username_of(&self, claims: &Claims) -> Result<String, String> {
        match &self.username {
            Some(ClaimSource::Claim(claim, prefix)) => {
                let value = claims.get(claim).ok_or_else(|| "claim not present".to_owned());
                let value = value.and_then(text);
                let value =
                    value.map_err(|why| format!("parse username claims {claim:?}: {why}"))?;
                if let ("email", Some(verified)) = (claim.as_str(), claims.get("email_verified"))
                    && *verified != Value::Bool(true)
                {
                    return Err("email not verified".to_owned());
                }
                Ok(format!("{prefix}{value}"))
            }
            Some(ClaimSource::Expression(expression)) => {
                let failed =
                    |why: String| format!("error evaluating username claim expression: {why}");
                match expression.of(claims).map_err(failed)? {
                    Output::String(name) if name.is_empty() => {
                        Err("empty username via CEL expression is not allowed".to_owned())
                    }
                    Output::String(name) => Ok(name),
                    _ => Err(failed("username claim expression must return a string".to_owned())),
                }
            }
            None => Err("no username is configured".to_owned()),
        }
    }

    fn groups_of(&self, claims: &Claims) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(ClaimSource::Claim(claim, prefix)) => {
                let groups = match claims.get(claim) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(groups)) => groups.iter().map(text).collect(),
                    Some(group) => text(group).map(|group| vec![group]),
                };
                let groups =
                    groups.map_err(|why| format!("parse groups claim {claim:?}: {why}"))?;
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
            Some(ClaimSource::Expression(expression)) => {
                let groups = expression.of(claims).and_then(strings);
                groups.map_err(|why| format!("error evaluating group claim expression: {why}"))
            }
        }
    }

    fn uid_of(&self, claims: &Claims) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(ClaimSource::Claim(claim, _)) => {
                let uid = claims.get(claim).ok_or_else(|| "claim not present".to_owned());
                let uid = uid.and_then(text).map(str::to_owned);
                uid.map_err(|why| format!("parse uid claim {claim:?}: {why}"))
            }
            Some(ClaimSource::Expression(expression)) => {
                let failed = |why: String| format!("error evaluating uid claim expression: {why}");
                match expression.of(claims).map_err(failed)? {
                    Output::String(uid) => Ok(uid),
                    _ => Err(failed("uid claim expression must return a string".to_owned())),
                }
            }
        }
    }

    fn extra_of(&self, claims: &Claims) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let values = expression.of(claims).and_then(strings);
            let values =
                values.map_err(|why| format!("error evaluating extra claim expression: {why}"))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }
}

fn check_rules(rules: &[(Expression, String)], object: &Value) -> Result<(), String> {
    rules.iter().try_for_each(|(rule, message)| rule.check(object, message))
}

/// The value of a string claim. Go's decoder reads null as an empty string.
fn text(claim: &Value) -> Result<&str, String> {
    match claim {
        Value::String(text) => Ok(text),
        Value::Null => Ok(""),
        _ => Err("the claim is not a string".to_owned()),
    }
}

/// The strings of a result that are not empty.
fn strings(output: Output) -> Result<Vec<String>, String> {
    let strings = match output {
        Output::Null => Vec::new(),
        Output::String(one) => vec![one],
        Output::List(all) => {
            all.into_iter().collect::<Option<_>>().ok_or_else(|| NO_STRINGS.to_owned())?
        }
        _ => return Err(NO_STRINGS.to_owned()),
    };
    Ok(strings.into_iter().filter(|one| !one.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapper() -> ClaimsMapper {
        let claim = |name: &str| Some(ClaimSource::Claim(name.to_owned(), "p:".to_owned()));
        let rule =
            |rule: Result<Expression, _>, message: &str| vec![(rule.unwrap(), message.to_owned())];
        ClaimsMapper {
            username: claim("sub"),
            groups: claim("groups"),
            claim_rules: rule(
                Expression::rule_of_claims("claims.?level.orValue(5) > 3", ""),
                "low",
            ),
            user_rules: rule(
                Expression::rule_of_user("!user.username.startsWith('p:system:')", ""),
                "reserved",
            ),
            ..ClaimsMapper::default()
        }
    }

    fn user_of(claims: Value) -> Result<User, String> {
        let Value::Object(claims) = claims else { panic!("{claims}") };
        mapper().user_of(claims)
    }

    #[test]
    fn claims_become_a_user() {
        let user = user_of(json!({"sub": "jane", "groups": ["a", "b"], "jti": "7"})).unwrap();
        assert_eq!((user.name.as_str(), user.uid), ("p:jane", None));
        assert_eq!(user.groups, ["p:a", "p:b"]);
        assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=7"]);
        assert_eq!(user_of(json!({"sub": "joe", "groups": "a"})).unwrap().groups, ["p:a"]);
    }

    #[test]
    fn unsuitable_tokens_are_rejected() {
        for (claims, expected) in [
            (json!({}), "parse username claims \"sub\": claim not present"),
            (json!({"sub": 5}), "parse username claims \"sub\": the claim is not a string"),
            (
                json!({"sub": "a", "groups": [5]}),
                "parse groups claim \"groups\": the claim is not a string",
            ),
            (
                json!({"sub": "a", "level": 2}),
                "error evaluating claim validation expression: validation expression 'claims.?level.orValue(5) > 3' failed: low",
            ),
            (
                json!({"sub": "system:a"}),
                "error evaluating user info validation rule: validation expression '!user.username.startsWith('p:system:')' failed: reserved",
            ),
            (
                json!({"sub": "a", "_claim_names": {"groups": "x"}, "_claim_sources": {"x": {}}}),
                "distributed claim \"groups\" is not supported",
            ),
        ] {
            assert_eq!(user_of(claims).unwrap_err(), expected);
        }
    }
}
