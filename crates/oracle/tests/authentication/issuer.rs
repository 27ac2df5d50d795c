//! Issuers of tokens on one HTTPS server: discovery documents, keys, and signatures.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use axum::body::Body;
use axum::http::{Request, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use test_cluster::Authority;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The algorithm of a signature, or the error in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signing {
    Es256,
    Es384,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    /// ES256 without the name of the key.
    Unnamed,
    /// ES256 with a key that the issuer does not have, under the name of a key of the issuer.
    Forged,
    /// ES256 with a name of a key that the issuer does not have.
    UnknownKey,
    /// The claims were changed after the signature.
    Changed,
    None,
    Hs256,
    /// The name of another algorithm than that of the key.
    WrongAlgorithm,
}

/// The private keys of the issuers.
struct Keys {
    es256: EcdsaKeyPair,
    es384: EcdsaKeyPair,
    rsa: RsaKeyPair,
    /// A key that is published later.
    new: EcdsaKeyPair,
    /// A key that is never published.
    other: EcdsaKeyPair,
}

/// A server with several issuers. Each has its own path.
pub struct TestIssuer {
    url: String,
    keys: Arc<Keys>,
    has_new_key: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestIssuer {
    pub async fn start(authority: &Authority, folder: &Path) -> Result<Self> {
        let certificate = authority.server(folder, "issuer", &["localhost"])?;
        let chain = vec![CertificateDer::from_pem_file(&certificate.certificate)?];
        let key = PrivateKeyDer::from_pem_file(&certificate.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://localhost:{}", listener.local_addr()?.port());
        let keys = Arc::new(Keys::generate()?);
        let has_new_key = Arc::new(AtomicBool::new(false));
        let shared = (url.clone(), Arc::clone(&keys), Arc::clone(&has_new_key));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, shared) = (tls.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (url, keys, has_new) = &shared;
                        let has_new = has_new.load(Ordering::SeqCst);
                        let answer = answer(url, keys, has_new, request.uri().path());
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { url, keys, has_new_key, task })
    }

    /// The URL of an issuer.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// A token of an issuer. `iss` is added unless the claims have it.
    pub fn token(&self, issuer: &str, claims: &Value, signing: Signing) -> String {
        let mut claims = claims.clone();
        if claims.get("iss").is_none() {
            claims["iss"] = self.url(issuer).into();
        }
        let (alg, kid) = match signing {
            Signing::Es256 | Signing::Forged | Signing::Changed => ("ES256", "es256"),
            Signing::Unnamed => ("ES256", ""),
            Signing::UnknownKey => ("ES256", "unknown"),
            Signing::WrongAlgorithm => ("ES384", "es256"),
            Signing::Es384 => ("ES384", "es384"),
            Signing::Rs256 => ("RS256", "rsa"),
            Signing::Rs384 => ("RS384", "rsa"),
            Signing::Rs512 => ("RS512", "rsa"),
            Signing::Ps256 => ("PS256", "rsa"),
            Signing::Ps384 => ("PS384", "rsa"),
            Signing::Ps512 => ("PS512", "rsa"),
            Signing::None => ("none", "es256"),
            Signing::Hs256 => ("HS256", "es256"),
        };
        let mut header = json!({"alg": alg, "typ": "JWT"});
        if !kid.is_empty() {
            header["kid"] = kid.into();
        }
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let keys = &self.keys;
        let signature = match signing {
            Signing::Es384 => ecdsa(&keys.es384, &signed),
            Signing::Forged => ecdsa(&keys.other, &signed),
            Signing::Changed => ecdsa(&keys.es256, &format!("{signed}x")),
            Signing::Rs256 => rsa(&keys.rsa, &RSA_PKCS1_SHA256, &signed),
            Signing::Rs384 => rsa(&keys.rsa, &RSA_PKCS1_SHA384, &signed),
            Signing::Rs512 => rsa(&keys.rsa, &RSA_PKCS1_SHA512, &signed),
            Signing::Ps256 => rsa(&keys.rsa, &RSA_PSS_SHA256, &signed),
            Signing::Ps384 => rsa(&keys.rsa, &RSA_PSS_SHA384, &signed),
            Signing::Ps512 => rsa(&keys.rsa, &RSA_PSS_SHA512, &signed),
            Signing::None => Vec::new(),
            Signing::Hs256 => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret");
                ring::hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
            _ => ecdsa(&keys.es256, &signed),
        };
        format!("{signed}.{}", encode(signature))
    }

    /// A token of a key that the issuer publishes from now on.
    pub fn token_of_new_key(&self, claims: &Value) -> String {
        self.has_new_key.store(true, Ordering::SeqCst);
        let mut claims = claims.clone();
        claims["iss"] = self.url("plain").into();
        let header = json!({"alg": "ES256", "kid": "new"});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        format!("{signed}.{}", encode(ecdsa(&self.keys.new, &signed)))
    }
}

impl Keys {
    fn generate() -> Result<Self> {
        let pem = include_bytes!("issuer-rsa.pem");
        let rsa =
            RsaKeyPair::from_pkcs8(PrivatePkcs8KeyDer::from_pem_slice(pem)?.secret_pkcs8_der());
        let p256 = || new_key(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Ok(Self {
            es256: p256(),
            es384: new_key(&ECDSA_P384_SHA384_FIXED_SIGNING),
            rsa: rsa.unwrap(),
            new: p256(),
            other: p256(),
        })
    }

    fn to_jwks(&self, has_new_key: bool) -> Value {
        let point = |id: &str, curve: &str, key: &EcdsaKeyPair| {
            let (x, y) =
                key.public_key().as_ref()[1..].split_at(key.public_key().as_ref().len() / 2);
            json!({"kty": "EC", "crv": curve, "kid": id, "x": encode(x), "y": encode(y)})
        };
        let public = self.rsa.public();
        let components = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(public);
        let rsa = json!({
            "kty": "RSA", "kid": "rsa", "use": "sig",
            "n": encode(components.n), "e": encode(components.e),
        });
        let mut keys =
            vec![point("es256", "P-256", &self.es256), point("es384", "P-384", &self.es384), rsa];
        if has_new_key {
            keys.push(point("new", "P-256", &self.new));
        }
        json!({"keys": keys})
    }
}

fn answer(url: &str, keys: &Keys, has_new_key: bool, path: &str) -> Response<Body> {
    let discovery = |name: &str| {
        json!({
            "issuer": format!("{url}/{name}"), "jwks_uri": format!("{url}/keys"),
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        })
    };
    let document = match path.strip_suffix("/.well-known/openid-configuration") {
        Some(name) => discovery(name.trim_start_matches('/')),
        None if path == "/elsewhere" => discovery("discovered"),
        None => keys.to_jwks(has_new_key),
    };
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(document.to_string())).unwrap()
}

fn new_key(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn ecdsa(key: &EcdsaKeyPair, message: &str) -> Vec<u8> {
    key.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
}

fn rsa(key: &RsaKeyPair, encoding: &'static dyn RsaEncoding, message: &str) -> Vec<u8> {
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(encoding, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
    signature
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
