//! Encryption at rest: objects are encrypted before they are stored, in kube-apiserver's format.
//!
//! An encrypted value begins with `k8s:enc:`, the provider, its version and the name of the key:
//! `k8s:enc:aesgcm:v1:key1:`. A configuration lists providers for a collection. The first provider encrypts, and all of
//! them decrypt.

mod ciphers;
mod configuration;
#[cfg(feature = "kms")]
pub(super) mod kms;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
#[cfg(feature = "kms")]
use std::sync::Arc;

use ciphers::Cipher;
#[cfg(feature = "kms")]
use kms::Kms;
#[cfg(feature = "kms")]
pub(super) use kms::Unknown;

/// The prefix of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The configuration of encryption at rest. By default, objects are not encrypted.
#[derive(Default)]
pub struct Encryption {
    rules: Vec<Rule>,
}

/// Prints the number of rules. Keys are not printed.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encryption of {} rules", self.rules.len())
    }
}

/// The providers of some collections.
struct Rule {
    resources: Vec<Resources>,
    /// The first provider encrypts.
    providers: Vec<Provider>,
}

/// The collections that a rule applies to.
enum Resources {
    All,
    OfGroup(String),
    One(String),
}

/// One way to encode a value.
enum Provider {
    /// The value is not encrypted.
    Identity,
    /// The value is encrypted with a key.
    Key {
        /// The prefix of encrypted values.
        prefix: String,
        cipher: Cipher,
    },
    /// The value is encrypted with a key of a KMS plugin.
    #[cfg(feature = "kms")]
    Kms {
        /// The prefix of encrypted values.
        prefix: String,
        kms: Arc<Kms>,
    },
}

/// The seed that must be decrypted before a value can be decrypted. Without the feature `kms` no provider has seeds.
#[cfg(not(feature = "kms"))]
pub(super) enum Unknown {}

#[cfg(not(feature = "kms"))]
impl Unknown {
    pub fn learn(self) -> Result<(), String> {
        match self {}
    }
}

/// A decrypted value.
pub(super) struct Opened<'a> {
    pub plain: Cow<'a, [u8]>,
    /// Whether the value would be encrypted differently now.
    pub is_stale: bool,
}

impl Encryption {
    /// Reads an `EncryptionConfiguration` in YAML or JSON, and calls the plugins in it.
    ///
    /// # Errors
    /// The problem of the file or of a plugin. The message repeats nothing of the file, because the file contains keys.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        Ok(Self { rules: configuration::rules(&text)? })
    }

    fn providers(&self, collection: &str) -> &[Provider] {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.resources.iter().any(|resources| resources.has(collection)));
        rule.map_or(&[], |rule| &rule.providers)
    }

    /// Whether no rules are configured, so that nothing is encrypted.
    pub(super) fn is_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// Encrypts the value of a location.
    ///
    /// # Errors
    /// If the system has no random bytes, or a plugin has not responded for too long.
    pub(super) fn seal(
        &self,
        collection: &str,
        place: &str,
        plain: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        match self.providers(collection).first() {
            None | Some(Provider::Identity) => Ok(plain),
            Some(Provider::Key { prefix, cipher }) => {
                let encrypted = cipher.encrypt(&plain, place.as_bytes())?;
                Ok([prefix.as_bytes(), &encrypted].concat())
            }
            #[cfg(feature = "kms")]
            Some(Provider::Kms { prefix, kms }) => {
                let encrypted = kms.encrypt(&plain, place.as_bytes())?;
                Ok([prefix.as_bytes(), &encrypted].concat())
            }
        }
    }

    /// Checks that objects of a collection can be encrypted at the moment.
    ///
    /// # Errors
    /// If a plugin has not responded for too long.
    pub(super) fn ensure_writes(&self, collection: &str) -> Result<(), String> {
        match self.providers(collection).first() {
            None | Some(Provider::Identity | Provider::Key { .. }) => Ok(()),
            #[cfg(feature = "kms")]
            Some(Provider::Kms { kms, .. }) => kms.ensure_writes(),
        }
    }

    /// Returns the seed that a plugin must decrypt before these bytes can be decrypted, if this seed is not known yet.
    #[cfg(feature = "kms")]
    pub(super) fn unknown(&self, collection: &str, bytes: &[u8]) -> Option<Unknown> {
        self.providers(collection).iter().find_map(|provider| match provider {
            Provider::Kms { prefix, kms } => kms.unknown(bytes.strip_prefix(prefix.as_bytes())?),
            Provider::Identity | Provider::Key { .. } => None,
        })
    }

    /// Returns the seed that a plugin must decrypt before these bytes can be decrypted. Always `None` without the
    /// feature `kms`.
    #[cfg(not(feature = "kms"))]
    #[allow(clippy::unused_self)]
    pub(super) fn unknown(&self, _: &str, _: &[u8]) -> Option<Unknown> {
        None
    }

    /// The reason why the last call of a plugin failed, if one did.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut providers = self.rules.iter().flat_map(|rule| &rule.providers);
        providers.find_map(|provider| match provider {
            Provider::Identity | Provider::Key { .. } => None,
            #[cfg(feature = "kms")]
            Provider::Kms { kms, .. } => kms.trouble(),
        })
    }

    /// Decrypts the value of a location.
    ///
    /// # Errors
    /// If no configured key fits the value. The message names the key that is needed.
    pub(super) fn open<'a>(
        &self,
        collection: &str,
        place: &str,
        bytes: &'a [u8],
    ) -> Result<Opened<'a>, String> {
        let providers = self.providers(collection);
        if !bytes.starts_with(ENCRYPTED) {
            let identity = providers.iter().position(|one| matches!(one, Provider::Identity));
            return match identity {
                None if !providers.is_empty() => {
                    Err("it is not encrypted, and identity is not among its providers".to_owned())
                }
                place => {
                    let is_stale = place.is_some_and(|place| place > 0);
                    Ok(Opened { plain: Cow::Borrowed(bytes), is_stale })
                }
            };
        }
        let mut has_key = false;
        for (index, provider) in providers.iter().enumerate() {
            match provider {
                Provider::Identity => {}
                Provider::Key { prefix, cipher } => {
                    let Some(encrypted) = bytes.strip_prefix(prefix.as_bytes()) else { continue };
                    has_key = true;
                    if let Some(plain) = cipher.decrypt(encrypted, place.as_bytes()) {
                        return Ok(Opened { plain: Cow::Owned(plain), is_stale: index > 0 });
                    }
                }
                #[cfg(feature = "kms")]
                Provider::Kms { prefix, kms } => {
                    let Some(encrypted) = bytes.strip_prefix(prefix.as_bytes()) else { continue };
                    let decrypted = kms.decrypt(encrypted, place.as_bytes());
                    let (plain, is_old) =
                        decrypted.map_err(|why| format!("it is encrypted by {kms}, and {why}"))?;
                    return Ok(Opened { plain: Cow::Owned(plain), is_stale: is_old || index > 0 });
                }
            }
        }
        let said = said(bytes);
        Err(match has_key {
            true => {
                format!("it is encrypted with {said}, but the key of this name has another secret")
            }
            false => format!("it is encrypted with {said}, which is not configured for it"),
        })
    }
}

/// The provider and the name of the key in the prefix of an encrypted value.
fn said(bytes: &[u8]) -> String {
    let mut parts = bytes.splitn(6, |byte| *byte == b':').skip(2);
    let mut next = || {
        let part = parts.next().unwrap_or_default();
        String::from_utf8_lossy(&part[..part.len().min(100)]).into_owned()
    };
    let (provider, _version, key) = (next(), next(), next());
    format!("the key {key:?} of {provider}")
}

/// The group of a collection, such as `example.com` of `foos.example.com`. The name of the core group is empty.
fn group_of(collection: &str) -> &str {
    collection.split_once('.').map_or("", |(_, group)| group)
}

impl Resources {
    /// Whether a collection can match both.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::OfGroup(one), Self::OfGroup(other)) | (Self::One(one), Self::One(other)) => {
                one == other
            }
            (Self::OfGroup(of), Self::One(one)) | (Self::One(one), Self::OfGroup(of)) => {
                group_of(one) == of
            }
        }
    }

    fn has(&self, collection: &str) -> bool {
        match self {
            Self::All => true,
            Self::OfGroup(group) => group_of(collection) == group,
            Self::One(name) => name == collection,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
