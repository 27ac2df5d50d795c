//! Validates an AuthenticationConfiguration and compiles its expressions, with kube-apiserver's messages.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubernetes_cel::url_parts;
use serde_json::json;

use super::claims::{ClaimSource, ClaimsMapper};
use super::document::{
    Anonymous, ClaimMapping, ClaimMappings, ClaimValidationRule, Document, ExtraMapping, Issuer,
    JwtAuthenticator, UserValidationRule,
};
use super::expression::Expression;

/// The largest number of authenticators.
const AUTHENTICATORS: u64 = 64;
const BOTH: &str = "claim and expression can't both be set";
const NEITHER: &str = "claim or expression is required";
const NOT_WITH_CLAIM: &str = "may not be specified when claim is set";
const NOT_WITH_EXPRESSION: &str = "may not be specified when expression is set";

/// Validates a document. Returns an issuer and the mapper of its claims for each authenticator.
///
/// # Errors
/// All errors of the document.
pub(super) fn compile(document: &Document) -> Result<Vec<(Issuer, ClaimsMapper)>, Vec<FieldError>> {
    let count = document.jwt.len();
    if count as u64 > AUTHENTICATORS {
        return Err(vec![FieldError::too_many("jwt", count, AUTHENTICATORS)]);
    }
    let mut errors = Vec::new();
    let (mut issuers, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    let mut compiled = Vec::new();
    for (index, authenticator) in document.jwt.iter().enumerate() {
        let at = format!("jwt[{index}]");
        compiled.push(compile_authenticator(authenticator, &at, &mut errors));
        let Issuer { url, discovery_url, .. } = &authenticator.issuer;
        let mut unique = |seen: &mut BTreeSet<_>, url, field: &str| {
            if !seen.insert(url) {
                let at = format!("{at}.issuer.{field}");
                errors.push(FieldError::duplicate(at, format!("{url:?}")));
            }
        };
        unique(&mut issuers, url, "url");
        if !discovery_url.is_empty() {
            unique(&mut discovery_urls, discovery_url, "discoveryURL");
        }
    }
    if let Some(Anonymous { enabled: false, conditions }) = &document.anonymous
        && !conditions.is_empty()
    {
        let given: Vec<_> = conditions.iter().map(|one| json!({"Path": one.path})).collect();
        let why = "enabled should be set to true when conditions are defined";
        errors.push(FieldError::invalid("anonymous.conditions", json!(given), why));
    }
    if errors.is_empty() { Ok(compiled) } else { Err(errors) }
}

fn compile_authenticator(
    authenticator: &JwtAuthenticator,
    at: &str,
    errors: &mut Vec<FieldError>,
) -> (Issuer, ClaimsMapper) {
    let JwtAuthenticator { issuer, claim_validation_rules, claim_mappings, user_validation_rules } =
        authenticator;
    check_issuer(issuer, &format!("{at}.issuer"), errors);
    let mut mapper = ClaimsMapper::default();
    add_claim_rules(&mut mapper, claim_validation_rules, at, errors);
    add_mappings(&mut mapper, claim_mappings, &format!("{at}.claimMappings"), errors);
    add_user_rules(&mut mapper, user_validation_rules, at, errors);
    (issuer.clone(), mapper)
}

fn check_issuer(issuer: &Issuer, at: &str, errors: &mut Vec<FieldError>) {
    let Issuer { url, discovery_url, audiences, audience_match_policy: policy, .. } = issuer;
    match url.as_str() {
        "" => errors.push(FieldError::required(format!("{at}.url"), "")),
        url => check_url(url, &format!("{at}.url"), errors),
    }
    if !discovery_url.is_empty() {
        let at = format!("{at}.discoveryURL");
        if !url.is_empty() && url.trim_end_matches('/') == discovery_url.trim_end_matches('/') {
            errors.push(invalid(&at, discovery_url, "discoveryURL must be different from URL"));
        }
        check_url(discovery_url, &at, errors);
    }
    check_audiences(audiences, policy, at, errors);
    if let Some(why) = certificate_fault(&issuer.certificate_authority) {
        let at = format!("{at}.certificateAuthority");
        errors.push(invalid(&at, "<omitted>", why));
    }
    let selector = issuer.egress_selector_type.as_str();
    if !["", "controlplane", "cluster"].contains(&selector) {
        let at = format!("{at}.egressSelectorType");
        errors.push(invalid(
            &at,
            selector,
            "egress selector must be either controlplane or cluster",
        ));
    }
}

fn check_url(url: &str, at: &str, errors: &mut Vec<FieldError>) {
    let parts = match url_parts(url) {
        Ok(parts) => parts,
        Err(why) => return errors.push(invalid(at, url, &why)),
    };
    for (is_wrong, why) in [
        (parts.scheme != "https", "URL scheme must be https"),
        (parts.has_user, "URL must not contain a username or password"),
        (parts.has_query, "URL must not contain a query"),
        (parts.has_fragment, "URL must not contain a fragment"),
    ] {
        if is_wrong {
            errors.push(invalid(at, url, why));
        }
    }
}

fn check_audiences(audiences: &[String], policy: &str, at: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{at}.audiences");
    if audiences.is_empty() {
        let why = format!("at least one {field} is required");
        return errors.push(FieldError::required(field, &why));
    }
    let mut seen = BTreeSet::new();
    for (index, audience) in audiences.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if audience.is_empty() {
            errors.push(FieldError::required(field.as_str(), ""));
        }
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(field, format!("{audience:?}")));
        }
    }
    let why = match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(invalid(&format!("{at}.audienceMatchPolicy"), policy, why));
}

/// The error in the certificates of a CA.
fn certificate_fault(bundle: &str) -> Option<&'static str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    if bundle.is_empty() {
        return None;
    }
    let bodies = bundle.split(BEGIN).skip(1).filter_map(|rest| Some(rest.split_once(END)?.0));
    let decode = |body: &str| {
        let body: String = body.chars().filter(|char| !char.is_ascii_whitespace()).collect();
        STANDARD.decode(body).ok()
    };
    let mut certificates = bodies.filter_map(decode).peekable();
    if certificates.peek().is_none() {
        return Some("data does not contain any valid RSA or ECDSA certificates");
    }
    // A certificate is a SEQUENCE of the form `30 82 LENGTH`, because it has at least 256 bytes.
    let is_certificate = |der: Vec<u8>| match der.as_slice() {
        [0x30, 0x82, high, low, rest @ ..] => {
            rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    };
    if certificates.all(is_certificate) { None } else { Some("x509: malformed certificate") }
}

fn add_claim_rules(
    mapper: &mut ClaimsMapper,
    rules: &[ClaimValidationRule],
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("{at}.claimValidationRules[{index}]");
        let ClaimValidationRule { claim, required_value, expression, message } = rule;
        match (claim.as_str(), expression.as_str()) {
            ("", "") => errors.push(FieldError::required(at, NEITHER)),
            (claim, "") => {
                if !message.is_empty() {
                    errors.push(invalid(&format!("{at}.message"), message, NOT_WITH_CLAIM));
                }
                if !claims.insert(claim) {
                    errors.push(duplicate(&format!("{at}.claim"), claim));
                }
                mapper.required_claims.push((claim.to_owned(), required_value.clone()));
            }
            ("", expression) => {
                if !required_value.is_empty() {
                    let at = format!("{at}.requiredValue");
                    errors.push(invalid(&at, required_value, NOT_WITH_EXPRESSION));
                }
                let at = format!("{at}.expression");
                if !expressions.insert(expression) {
                    errors.push(duplicate(&at, expression));
                    continue;
                }
                let rule = compiled(Expression::rule_of_claims(expression, &at), errors);
                mapper.claim_rules.extend(rule.map(|rule| (rule, message.clone())));
            }
            (claim, _) => errors.push(invalid(&at, claim, BOTH)),
        }
    }
}

fn add_mappings(
    mapper: &mut ClaimsMapper,
    mappings: &ClaimMappings,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let ClaimMappings { username, groups, uid, extra } = mappings;
    mapper.username = source(username, &format!("{at}.username"), errors);
    if username.claim.is_empty() && username.expression.is_empty() {
        errors.push(FieldError::required(format!("{at}.username"), NEITHER));
    }
    mapper.groups = source(groups, &format!("{at}.groups"), errors);
    // The uid has no prefix.
    let uid = ClaimMapping { prefix: None, ..uid.clone() };
    let uid = match uid.claim.is_empty() {
        true => uid,
        false if uid.expression.is_empty() => ClaimMapping { prefix: Some(String::new()), ..uid },
        false => uid,
    };
    mapper.uid = source(&uid, &format!("{at}.uid"), errors);
    add_extra(mapper, extra, at, errors);
    let expressions = || {
        let extra = mapper.extra.iter().map(|(_, expression)| expression);
        extra.chain(mapper.claim_rules.iter().map(|(rule, _)| rule))
    };
    if let Some(ClaimSource::Expression(expression)) = &mapper.username
        && expression.uses_claim("email")
        && !expression.uses_claim("email_verified")
        && !expressions().any(|one| one.uses_claim("email_verified"))
    {
        let at = format!("{at}.username.expression");
        let why = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
        errors.push(invalid(&at, &username.expression, why));
    }
}

/// The source of a value; `None` if neither a claim nor an expression is configured, or if the mapping is invalid.
fn source(mapping: &ClaimMapping, at: &str, errors: &mut Vec<FieldError>) -> Option<ClaimSource> {
    match (mapping.claim.as_str(), mapping.expression.as_str(), &mapping.prefix) {
        ("", "", _) => None,
        (claim, "", Some(prefix)) => Some(ClaimSource::Claim(claim.to_owned(), prefix.clone())),
        (_, "", None) => {
            let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            errors.push(FieldError::required(format!("{at}.prefix"), why));
            None
        }
        ("", expression, prefix) => {
            if let Some(prefix) = prefix {
                errors.push(invalid(&format!("{at}.prefix"), prefix, NOT_WITH_EXPRESSION));
            }
            let expression = Expression::of_claims(expression, &format!("{at}.expression"));
            let expression = compiled(expression, errors).filter(|_| prefix.is_none());
            expression.map(ClaimSource::Expression)
        }
        _ => {
            errors.push(invalid(at, "", BOTH));
            None
        }
    }
}

fn add_extra(
    mapper: &mut ClaimsMapper,
    extra: &[ExtraMapping],
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut keys = BTreeSet::new();
    for (index, ExtraMapping { key, value_expression }) in extra.iter().enumerate() {
        let at = format!("{at}.extra[{index}]");
        let field = format!("{at}.key");
        check_extra_key(key, &field, errors);
        if !keys.insert(key) {
            errors.push(duplicate(&field, key));
            continue;
        }
        let field = format!("{at}.valueExpression");
        if value_expression.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let expression = compiled(Expression::of_claims(value_expression, &field), errors);
        mapper.extra.extend(expression.map(|expression| (key.clone(), expression)));
    }
}

fn check_extra_key(key: &str, at: &str, errors: &mut Vec<FieldError>) {
    const PATH: &str =
        "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    let is_in_path =
        |char: char| char.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(char);
    match key.split_once('/') {
        _ if key.is_empty() => errors.push(FieldError::required(at, "")),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            for why in names::check_dns_1123_subdomain(host) {
                errors.push(invalid(at, host, &why));
            }
            if !path.chars().all(is_in_path) {
                errors.push(invalid(at, path, PATH));
            }
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(invalid(at, key, why));
        }
    }
    if key.to_lowercase() != key {
        errors.push(invalid(at, key, "must be lowercase"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |owner: &str| {
        domain.strip_suffix(owner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if is_of("kubernetes.io") || is_of("k8s.io") {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.push(invalid(at, key, why));
    }
}

fn add_user_rules(
    mapper: &mut ClaimsMapper,
    rules: &[UserValidationRule],
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let mut expressions = BTreeSet::new();
    for (index, UserValidationRule { expression, message }) in rules.iter().enumerate() {
        let at = format!("{at}.userValidationRules[{index}].expression");
        if expression.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if !expressions.insert(expression) {
            errors.push(duplicate(&at, expression));
        } else {
            let rule = compiled(Expression::rule_of_user(expression, &at), errors);
            mapper.user_rules.extend(rule.map(|rule| (rule, message.clone())));
        }
    }
}

fn compiled(
    expression: Result<Expression, FieldError>,
    errors: &mut Vec<FieldError>,
) -> Option<Expression> {
    expression.map_err(|error| errors.push(error)).ok()
}

fn invalid(at: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(at, format!("{value:?}"), why)
}

fn duplicate(at: &str, value: &str) -> FieldError {
    FieldError::duplicate(at, format!("{value:?}"))
}
