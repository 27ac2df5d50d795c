//! Tokens of ServiceAccounts: `serviceaccounts/token` issues them. A token is valid while its account, and the object
//! that it is bound to, exist.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use aggregated_apiserver::encoding::truncate_to_seconds;
use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use aggregated_apiserver::strategy::{SubresourceError, SubresourceRequest};
use aggregated_apiserver::{FieldError, User};
use jiff::Timestamp;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::jwt::{self, Claims, SigningKey};

/// The issuer of tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// The path of the public keys.
pub(crate) const JWKS: &str = "/openid/v1/jwks";
/// The path of the OpenID configuration.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";

/// The default validity of a token, in seconds.
const SECONDS: i64 = 3_600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;
/// A token remains valid for this number of seconds after the deletionTimestamp of its object; same as kube-apiserver.
const LEEWAY: i64 = 60;

/// The group of all ServiceAccounts.
pub(crate) const ACCOUNTS: &str = "system:serviceaccounts";
const AUTHENTICATED: &str = "system:authenticated";
/// The claim with the account and the bound objects of a token.
const CLAIM: &str = "kubernetes.io";
const EXTRA: &str = "authentication.kubernetes.io";

/// Issues and verifies tokens.
pub(crate) struct ServiceAccountTokens {
    key: SigningKey,
    /// The served objects, once the server runs.
    objects: OnceLock<RuntimeKinds>,
}

/// The user and audiences of a valid token.
pub(crate) struct AuthenticatedToken {
    pub user: User,
    /// The requested audiences that the token is valid for; the server itself if none was requested.
    pub audiences: Vec<String>,
}

impl ServiceAccountTokens {
    /// Creates tokens that this key signs.
    ///
    /// # Errors
    /// The reason, if the key cannot sign tokens.
    pub(crate) fn new(key: &KeyPair) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { key: SigningKey::new(key)?, objects: OnceLock::new() }))
    }

    /// Sets the source of accounts, and of the objects that tokens are bound to.
    pub(crate) fn set_objects(&self, objects: RuntimeKinds) {
        // A server starts once.
        let _ = self.objects.set(objects);
    }

    /// The documents with the keys that verify tokens: path, content type, content.
    pub(crate) fn documents(&self) -> [(&'static str, &'static str, Value); 2] {
        let configuration = json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}{JWKS}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        [
            (JWKS, "application/jwk-set+json", json!({"keys": [self.key.to_jwk()]})),
            (CONFIGURATION, "application/json", configuration),
        ]
    }

    /// Answers a TokenRequest.
    pub(crate) fn issue(
        &self,
        posted: &SubresourceRequest<'_>,
    ) -> Result<serde_json::Map<String, Value>, SubresourceError> {
        let (name, namespace) = (posted.key.name(), posted.key.namespace().unwrap_or_default());
        let mut request = Value::Object(posted.body.clone());
        for (field, own) in [("name", name), ("namespace", namespace)] {
            let given = request["metadata"][field].as_str().unwrap_or_default();
            if !given.is_empty() && given != own {
                let why = format!("must match the service account {field} if specified");
                let at = format!("metadata.{field}");
                let errors = vec![FieldError::invalid(at, format!("{given:?}"), &why)];
                return Err(SubresourceError::Invalid(name.to_owned(), errors));
            }
            request["metadata"][field] = own.into();
        }
        let uid = posted.object["metadata"]["uid"].as_str().unwrap_or_default();
        let given = request["metadata"]["uid"].as_str().unwrap_or_default();
        if !given.is_empty() && given != uid {
            return Err(SubresourceError::ConflictOf {
                group: "authentication.k8s.io".to_owned(),
                resource: "TokenRequest".to_owned(),
                name: name.to_owned(),
                why: format!(
                    "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
                ),
            });
        }
        request["metadata"]["uid"] = uid.into();
        let now = posted.context.now;
        request["metadata"]["creationTimestamp"] = truncate_to_seconds(now).to_string().into();
        let spec = &mut request["spec"];
        if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
            spec["audiences"] = json!([ISSUER]);
        }
        let lasts = spec["expirationSeconds"].as_i64().unwrap_or(SECONDS);
        spec["expirationSeconds"] = lasts.into();
        let at = "spec.expirationSeconds";
        let why = match lasts {
            ..LEAST_SECONDS => Some("may not specify a duration less than 10 minutes"),
            LEAST_SECONDS..=MOST_SECONDS => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(why) = why {
            let errors = vec![FieldError::invalid(at, lasts, why)];
            return Err(SubresourceError::Invalid(String::new(), errors));
        }
        let bound = self.bound_object_claims(&spec["boundObjectRef"], namespace, name)?;
        let mut whose = json!({
            "namespace": namespace, "serviceaccount": {"name": name, "uid": uid},
        });
        for (kind, object) in bound {
            whose[kind] = object;
        }
        let start = now.as_second();
        let claims = json!({
            "iss": ISSUER, "sub": username(namespace, name), "aud": spec["audiences"],
            "iat": start, "nbf": start, "exp": start.saturating_add(lasts),
            "jti": uuid::Uuid::new_v4().to_string(), CLAIM: whose,
        });
        let token = self.key.sign(&claims).map_err(SubresourceError::BadRequest)?;
        if token.len() > jwt::LENGTH_LIMIT {
            let why = "spec.audiences: a token for so many would be too long";
            return Err(SubresourceError::BadRequest(why.to_owned()));
        }
        let ends = now.saturating_add(jiff::SignedDuration::from_secs(lasts)).unwrap_or(now);
        request["status"] =
            json!({"token": token, "expirationTimestamp": truncate_to_seconds(ends).to_string()});
        match request {
            Value::Object(request) => Ok(request),
            _ => Err(SubresourceError::BadRequest("no TokenRequest".to_owned())),
        }
    }

    /// The claims of a token about the object that the token is bound to.
    fn bound_object_claims(
        &self,
        reference: &Value,
        namespace: &str,
        account: &str,
    ) -> Result<Vec<(&'static str, Value)>, SubresourceError> {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        if reference.is_null() {
            return Ok(Vec::new());
        }
        let (name, kind) = (text("name"), text("kind"));
        let (claim, plural, namespace) = match (text("apiVersion"), kind) {
            ("v1", "Pod") => ("pod", "pods", Some(namespace)),
            ("v1", "Secret") => ("secret", "secrets", Some(namespace)),
            ("v1", "Node") => ("node", "nodes", None),
            (version, kind) => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                let what = format!("{group}/{version}, Kind={kind}");
                let why = format!("cannot bind token to object of type {what}");
                return Err(SubresourceError::BadRequest(why));
            }
        };
        let found = self.find(plural, namespace, name);
        let Some(found) = found else {
            let (group, plural) = (String::new(), plural.to_owned());
            return Err(SubresourceError::NotFound(group, plural, name.to_owned()));
        };
        let runs_as = found["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if kind == "Pod" && runs_as != account {
            return Err(SubresourceError::BadRequest(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let (uid, own) = (text("uid"), &found["metadata"]["uid"]);
        if !uid.is_empty() && own != uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(SubresourceError::ConflictOf {
                group: String::new(),
                resource: kind.to_owned(),
                name: name.to_owned(),
                why,
            });
        }
        let mut bound = vec![(claim, json!({"name": name, "uid": own}))];
        let node = found["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        if let Some(node) = node.filter(|_| kind == "Pod") {
            let mut on = json!({"name": node});
            if let Some(found) = self.find("nodes", None, node) {
                on["uid"] = found["metadata"]["uid"].clone();
            }
            bound.push(("node", on));
        }
        Ok(bound)
    }

    fn find(&self, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        self.objects.get()?.find("", "v1", plural, namespace, name)
    }

    /// The user of a token, and the requested audiences that it is valid for; `None` if the token is invalid now.
    pub(crate) fn review(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Option<AuthenticatedToken> {
        let claims = self.key.verify(token)?;
        let number = |claim: &str| claims.get(claim).and_then(Value::as_i64);
        let now = now.as_second();
        if claims.get("iss")? != ISSUER || number("nbf")? > now || number("exp")? <= now {
            return None;
        }
        let own = claims.get("aud")?.as_array()?;
        let is_own = |audience: &&String| own.iter().any(|one| one == audience.as_str());
        let itself = [ISSUER.to_owned()];
        let asked = if audiences.is_empty() { &itself[..] } else { audiences };
        let audiences: Vec<String> = asked.iter().filter(is_own).cloned().collect();
        if audiences.is_empty() {
            return None;
        }
        let user = self.user(&claims, now)?;
        Some(AuthenticatedToken { user, audiences })
    }

    /// The account of a token, if the account and the bound object still exist.
    fn user(&self, claims: &Claims, now: i64) -> Option<User> {
        let whose = claims.get(CLAIM)?;
        let namespace = whose["namespace"].as_str()?;
        let mut extra = BTreeMap::new();
        let id = claims.get("jti")?.as_str()?;
        extra.insert(format!("{EXTRA}/credential-id"), vec![format!("JTI={id}")]);
        let account =
            self.live_object("serviceaccounts", Some(namespace), &whose["serviceaccount"], now)?;
        for (claim, plural, is_namespaced) in
            [("pod", "pods", true), ("secret", "secrets", true), ("node", "nodes", false)]
        {
            let Some(object) = whose.get(claim) else { continue };
            // The node of a Pod may be deleted before the Pod.
            let is_of_pod = claim == "node" && whose.get("pod").is_some();
            let known = self.live_object(plural, is_namespaced.then_some(namespace), object, now);
            if known.is_none() && !is_of_pod {
                return None;
            }
            if claim != "secret" {
                for field in ["name", "uid"] {
                    if let Some(text) = object[field].as_str() {
                        extra.insert(format!("{EXTRA}/{claim}-{field}"), vec![text.to_owned()]);
                    }
                }
            }
        }
        let name = account["metadata"]["name"].as_str()?;
        Some(User {
            name: username(namespace, name),
            uid: account["metadata"]["uid"].as_str().map(str::to_owned),
            groups: vec![
                ACCOUNTS.to_owned(),
                format!("{ACCOUNTS}:{namespace}"),
                AUTHENTICATED.to_owned(),
            ],
            extra,
        })
    }

    /// The object of a claim, if its uid is the same, and it was not deleted more than [`LEEWAY`] seconds ago.
    fn live_object(
        &self,
        plural: &str,
        namespace: Option<&str>,
        claim: &Value,
        now: i64,
    ) -> Option<Value> {
        let found = self.find(plural, namespace, claim["name"].as_str()?)?;
        let deleted = found["metadata"]["deletionTimestamp"].as_str();
        let deleted = deleted.and_then(|time| time.parse::<Timestamp>().ok());
        let is_over = deleted.is_some_and(|time| time.as_second() + LEEWAY < now);
        (found["metadata"]["uid"] == claim["uid"] && !is_over).then_some(found)
    }
}

fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
