//! The Secret with a self-signed CA and a serving certificate. It is created once, and used by later processes and
//! other replicas.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use thiserror::Error;

use super::Cluster;

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// A CA and a serving certificate, all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptCertificates {
    /// The CAs that clients should trust: the current CA, and during a rotation the previous one.
    pub ca_bundle: String,
    /// The key of the first CA.
    pub ca_key: String,
    /// The serving certificate.
    pub certificate: String,
    /// The key of the serving certificate.
    pub key: String,
}

impl std::fmt::Debug for KeptCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptCertificates")
    }
}

/// A Secret as read from the cluster.
pub struct FoundSecret(Box<Secret>);

/// The reason why the Secret cannot be used now.
#[derive(Debug, Error)]
pub enum SecretError {
    /// Another replica has changed the Secret at the same time: read it again.
    #[error("another replica changed it at the same time")]
    Lost,
    /// The cluster refused the request or did not respond.
    #[error("{}", said(.0))]
    Cluster(#[from] kube::Error),
}

/// Formats an error for an operator: the message alone if the cluster refused the request.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => error.to_string(),
    }
}

impl Cluster {
    /// Reads the Secret, if it exists, and the certificates in it.
    ///
    /// # Errors
    /// If the cluster refuses the request or does not respond.
    pub async fn read_serving_secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(Option<FoundSecret>, Option<KeptCertificates>), SecretError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let Some(secret) = api.get_opt(name).await? else { return Ok((None, None)) };
        let data = secret.data.clone().unwrap_or_default();
        let pem = |key: &str| {
            let bytes = data.get(key)?;
            String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.is_empty())
        };
        let kept = || {
            Some(KeptCertificates {
                ca_bundle: pem(CA_CERTIFICATE)?,
                ca_key: pem(CA_KEY)?,
                certificate: pem(CERTIFICATE)?,
                key: pem(KEY)?,
            })
        };
        let kept = kept();
        Ok((Some(FoundSecret(Box::new(secret))), kept))
    }

    /// Writes the Secret: creates it, or replaces the version that was read.
    ///
    /// # Errors
    /// [`SecretError::Lost`] if another replica has changed the Secret since it was read.
    pub async fn write_serving_secret(
        &self,
        namespace: &str,
        name: &str,
        found: Option<FoundSecret>,
        certificates: &KeptCertificates,
    ) -> Result<(), SecretError> {
        let rows = [
            (CA_CERTIFICATE, &certificates.ca_bundle),
            (CA_KEY, &certificates.ca_key),
            (CERTIFICATE, &certificates.certificate),
            (KEY, &certificates.key),
        ];
        let data: BTreeMap<_, _> = rows
            .into_iter()
            .map(|(key, pem)| (key.to_owned(), ByteString(pem.clone().into_bytes())))
            .collect();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let written = match found {
            None => {
                let mut secret = Secret { data: Some(data), ..Secret::default() };
                secret.metadata.name = Some(name.to_owned());
                api.create(&params, &secret).await
            }
            Some(FoundSecret(mut secret)) => {
                secret.data.get_or_insert_default().extend(data);
                api.replace(name, &params, &secret).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(SecretError::Lost),
            Err(error) => Err(error.into()),
        }
    }
}
