//! JSON web signatures of tokens, and the public keys of an issuer: RFC 7515 and RFC 7517. The cryptography is that of
//! `ring`, which has no P-521, so tokens that are signed with ES512 are rejected.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::Value;

use super::claims::Claims;

/// The largest number of keys of an issuer.
const KEYS: usize = 256;

/// A token in parts. Its signature is not verified.
pub(super) struct ParsedToken<'t> {
    signed: &'t str,
    signature: Vec<u8>,
    algorithm: String,
    /// The name of the key; empty if the token does not name one.
    key_id: String,
    claims: Claims,
}

/// A public key of an issuer.
#[derive(Debug)]
pub(super) struct PublicKey {
    id: String,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// Returns the issuer that a token names, without verification; `None` if the token is not a JSON web token.
pub(super) fn untrusted_issuer(token: &str) -> Option<String> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
    match claims.as_object()?.get("iss") {
        // Google's former name.
        Some(Value::String(issuer)) if issuer == "accounts.google.com" => {
            Some("https://accounts.google.com".to_owned())
        }
        Some(Value::String(issuer)) => Some(issuer.clone()),
        _ => None,
    }
}

impl<'t> ParsedToken<'t> {
    /// Parses a token.
    ///
    /// # Errors
    /// The reason, if the token is malformed or its algorithm is not accepted.
    pub(super) fn new(token: &'t str) -> Result<Self, String> {
        const ACCEPTED: [&str; 9] =
            ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
        let malformed = || "malformed jwt".to_owned();
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let json = |part: &str| serde_json::from_slice::<Claims>(&decode(part)?).ok();
        let header = json(header).ok_or_else(malformed)?;
        let text = |name: &str| match header.get(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(malformed()),
        };
        let (algorithm, key_id) = (text("alg")?, text("kid")?);
        if !ACCEPTED.contains(&algorithm.as_str()) {
            return Err(format!(
                "id token signed with unsupported algorithm, expected {ACCEPTED:?} got {algorithm:?}"
            ));
        }
        if algorithm == "ES512" {
            return Err("this server cannot verify signatures with ES512".to_owned());
        }
        if header.contains_key("crit") {
            return Err("the token has critical headers, which are not supported".to_owned());
        }
        let signature = decode(signature).ok_or_else(malformed)?;
        let claims = json(claims).ok_or_else(malformed)?;
        Ok(Self { signed, signature, algorithm, key_id, claims })
    }

    /// Whether one of the keys has signed the token.
    pub(super) fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        let named = |key: &&PublicKey| self.key_id.is_empty() || key.id == self.key_id;
        keys.iter().filter(named).any(|key| self.has_signature_of(key))
    }

    fn has_signature_of(&self, key: &PublicKey) -> bool {
        let (message, signature) = (self.signed.as_bytes(), &self.signature);
        match (self.algorithm.as_str(), &key.material) {
            ("ES256", Material::P256(point)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            ("ES384", Material::P384(point)) => {
                let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            (algorithm, Material::Rsa { modulus, exponent }) => {
                let Some(parameters) = rsa_parameters(algorithm) else { return false };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).is_ok()
            }
            _ => false,
        }
    }

    /// The claims, once the signature is verified.
    pub(super) fn into_claims(self) -> Claims {
        self.claims
    }
}

fn rsa_parameters(algorithm: &str) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        "RS256" => &RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &RSA_PSS_2048_8192_SHA256,
        "PS384" => &RSA_PSS_2048_8192_SHA384,
        "PS512" => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// Reads the keys of a JSON web key set. Keys of other types, and further keys than 256, are omitted.
///
/// # Errors
/// The reason, if the document is not a key set.
pub(super) fn read_keys(document: &[u8]) -> Result<Vec<PublicKey>, String> {
    let document: Value = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    let Some(Value::Array(keys)) = document.get("keys") else {
        return Err("the document has no field \"keys\"".to_owned());
    };
    Ok(keys.iter().filter_map(PublicKey::read).take(KEYS).collect())
}

impl PublicKey {
    fn read(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk[name].as_str();
        let bytes = |name: &str| decode(text(name)?.trim_end_matches('='));
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            let has_size = x.len() == size && y.len() == size;
            has_size.then(|| [&[4], x.as_slice(), y.as_slice()].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                Material::Rsa { modulus: number(bytes("n")?), exponent: number(bytes("e")?) }
            }
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            _ => return None,
        };
        Some(Self { id: text("kid").unwrap_or_default().to_owned(), material })
    }
}

/// The bytes of a number without leading zeros.
fn number(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use serde_json::json;

    use super::*;
    use crate::jwt::SigningKey;

    fn encode(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    #[test]
    fn only_keys_of_the_issuer_verify_a_token() {
        let [ours, other] =
            [(); 2].map(|()| SigningKey::new(&KeyPair::generate().unwrap()).unwrap());
        let token = ours.sign(&json!({"iss": "https://a", "sub": "jane"})).unwrap();
        assert_eq!(untrusted_issuer(&token).as_deref(), Some("https://a"));
        let parsed = ParsedToken::new(&token).unwrap();
        let keys =
            |key: &SigningKey| read_keys(json!({"keys": [key.to_jwk()]}).to_string().as_bytes());
        assert!(parsed.is_signed_by(&keys(&ours).unwrap()));
        assert!(!parsed.is_signed_by(&keys(&other).unwrap()));
        assert_eq!(parsed.into_claims()["sub"], "jane");
        let mut jwk = other.to_jwk();
        jwk["kid"] = ours.to_jwk()["kid"].clone();
        let forged = read_keys(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
        assert!(!ParsedToken::new(&token).unwrap().is_signed_by(&forged));
    }

    #[test]
    fn tokens_without_an_accepted_signature_are_rejected() {
        let claims = encode(&json!({"iss": "https://a"}));
        for (header, expected) in [
            (json!({"alg": "none"}), "id token signed with unsupported algorithm"),
            (json!({"alg": "HS256"}), "id token signed with unsupported algorithm"),
            (json!({"alg": "EdDSA"}), "id token signed with unsupported algorithm"),
            (json!({"alg": "ES512"}), "this server cannot verify"),
            (json!({"alg": 5}), "malformed jwt"),
            (json!({"alg": "RS256", "crit": ["b64"]}), "the token has critical headers"),
        ] {
            let token = format!("{}.{claims}.", encode(&header));
            let why = ParsedToken::new(&token).err().unwrap_or_default();
            assert!(why.starts_with(expected), "{header}: {why}");
        }
        for token in ["", "a", "a.b", "a.b.c", "a.b.c.d", "..", "{}"] {
            assert_eq!(untrusted_issuer(token), None, "{token}");
        }
    }

    #[test]
    fn unusable_keys_are_omitted() {
        let keys = json!({"keys": [
            {"kty": "OKP", "crv": "Ed25519", "x": "AA"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "oct", "k": "AA"}, {"kty": "RSA", "n": "AAEB", "e": "AQAB"}, 5,
        ]});
        let keys = read_keys(keys.to_string().as_bytes()).unwrap();
        assert_eq!(keys.len(), 1);
        assert!(read_keys(b"{}").is_err());
    }
}
