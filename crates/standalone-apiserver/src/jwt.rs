//! JSON web tokens, signed with ECDSA on P-256 (ES256): the subset of RFC 7515 to 7519 that tokens of ServiceAccounts
//! need. The cryptography is that of `ring`, which TLS requires already.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Map, Value, json};

/// The claims of a token.
pub(crate) type Claims = Map<String, Value>;

/// The largest size of a token, in bytes.
pub(crate) const LENGTH_LIMIT: usize = 16 << 10;

/// A key that signs tokens.
pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    /// The point of the public key: `04`, x and y.
    public: Vec<u8>,
    /// The name of the key: the hash of its public part, same as in kube-apiserver.
    id: String,
}

impl SigningKey {
    /// Creates the signing key of a key pair.
    ///
    /// # Errors
    /// The reason, if it is not a key on P-256.
    pub(crate) fn new(pair: &KeyPair) -> Result<Self, String> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let signing = EcdsaKeyPair::from_pkcs8(algorithm, pair.serialized_der(), &random);
        let signing =
            signing.map_err(|error| format!("is not a private key on the curve P-256: {error}"))?;
        let id = encode(digest(&SHA256, &pair.subject_public_key_info()).as_ref());
        Ok(Self { pair: signing, random, public: pair.public_key_raw().to_vec(), id })
    }

    /// Signs a token with these claims.
    ///
    /// # Errors
    /// The reason, if the system provides no random numbers.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String, String> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        let signature = signature.map_err(|error| format!("cannot sign: {error}"))?;
        Ok(format!("{signed}.{}", encode(signature)))
    }

    /// The claims of a token, if this key has signed it. The caller must check the times.
    pub(crate) fn verify(&self, token: &str) -> Option<Claims> {
        if token.len() > LENGTH_LIMIT {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != "ES256" || header["kid"] != self.id.as_str() {
            return None;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public);
        key.verify(signed.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// The public part, as a JSON web key.
    pub(crate) fn to_jwk(&self) -> Value {
        let point = self.public.get(1..).unwrap_or_default();
        let (x, y) = point.split_at_checked(32).unwrap_or_default();
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": encode(x), "y": encode(y),
        })
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_verifies_only_tokens_that_it_signed() {
        let key = || SigningKey::new(&KeyPair::generate().unwrap()).unwrap();
        let (ours, other) = (key(), key());
        let claims = json!({"sub": "jane", "exp": 5});
        let token = ours.sign(&claims).unwrap();
        assert_eq!(ours.verify(&token).map(Value::Object), Some(claims));
        assert_eq!(other.verify(&token), None);
        let (head, signature) = token.rsplit_once('.').unwrap();
        let header = head.split_once('.').unwrap().0;
        let joe = encode(json!({"sub": "joe", "exp": 5}).to_string());
        let forged = format!("{header}.{joe}.{signature}");
        let unsigned = {
            let header = encode(json!({"alg": "none", "kid": ours.id}).to_string());
            format!("{header}.{}.", head.split_once('.').unwrap().1)
        };
        for none in [forged.as_str(), &unsigned, "", "..", "a.b.c", head, &"x".repeat(1 << 20)] {
            assert_eq!(ours.verify(none), None, "{none:.80}");
        }
        let jwk = ours.to_jwk();
        assert_eq!(decode(jwk["x"].as_str().unwrap()).unwrap().len(), 32);
        assert_eq!(decode(jwk["y"].as_str().unwrap()).unwrap().len(), 32);
    }
}
