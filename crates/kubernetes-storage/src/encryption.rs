//! Encryption at rest: what is done to the bytes of an object before they are written down, as
//! kube-apiserver does it.
//!
//! A value that was encrypted begins with `k8s:enc:`, how, and the name of the key:
//! `k8s:enc:aesgcm:v1:key1:`. Of the ways that a configuration has for a collection the first one
//! writes, and all of them read.

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

/// What all begins with that was encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// How objects are encrypted where they are kept. By default they are not.
#[derive(Default)]
pub struct Encryption {
    rules: Vec<Rule>,
}

/// Says nothing of keys.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encryption of {} rules", self.rules.len())
    }
}

/// What is done to the objects of some collections.
struct Rule {
    resources: Vec<Resources>,
    /// The first one writes.
    providers: Vec<Provider>,
}

/// Which collections a rule is for.
enum Resources {
    All,
    OfGroup(String),
    One(String),
}

/// One way to keep bytes.
enum Provider {
    /// As they are.
    Identity,
    /// Encrypted.
    Key {
        /// What they begin with.
        prefix: String,
        cipher: Cipher,
    },
    /// Encrypted, by keys that a plugin has.
    #[cfg(feature = "kms")]
    Kms {
        /// What they begin with.
        prefix: String,
        kms: Arc<Kms>,
    },
}

/// What has to be asked of others before a value can be opened: nothing, where no provider asks.
#[cfg(not(feature = "kms"))]
pub(super) enum Unknown {}

#[cfg(not(feature = "kms"))]
impl Unknown {
    pub fn learn(self) -> Result<(), String> {
        match self {}
    }
}

/// Bytes as they were before they were written down.
pub(super) struct Opened<'a> {
    pub plain: Cow<'a, [u8]>,
    /// Whether they would be written in another way now.
    pub is_stale: bool,
}

impl Encryption {
    /// Reads an `EncryptionConfiguration`, YAML or JSON, and calls the plugins that it names.
    ///
    /// # Errors
    /// What is wrong with the file, or with a plugin. The file holds keys, so nothing that is in it is
    /// repeated.
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

    /// Whether everything is kept as it is.
    pub(super) fn is_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// The bytes to write down for what is in a place.
    ///
    /// # Errors
    /// When nothing random can be had, or a plugin has not answered for long.
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

    /// Refuses if objects of a collection cannot be encrypted at the moment.
    ///
    /// # Errors
    /// When a plugin has not answered for long.
    pub(super) fn ensure_writes(&self, collection: &str) -> Result<(), String> {
        match self.providers(collection).first() {
            None | Some(Provider::Identity | Provider::Key { .. }) => Ok(()),
            #[cfg(feature = "kms")]
            Some(Provider::Kms { kms, .. }) => kms.ensure_writes(),
        }
    }

    /// What has to be asked of a plugin before these bytes can be opened, if anything has.
    #[cfg(feature = "kms")]
    pub(super) fn unknown(&self, collection: &str, bytes: &[u8]) -> Option<Unknown> {
        self.providers(collection).iter().find_map(|provider| match provider {
            Provider::Kms { prefix, kms } => kms.unknown(bytes.strip_prefix(prefix.as_bytes())?),
            Provider::Identity | Provider::Key { .. } => None,
        })
    }

    /// What has to be asked of a plugin before these bytes can be opened, if anything has.
    #[cfg(not(feature = "kms"))]
    #[allow(clippy::unused_self)]
    pub(super) fn unknown(&self, _: &str, _: &[u8]) -> Option<Unknown> {
        None
    }

    /// Why a plugin could not be asked lately, if one could not.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut providers = self.rules.iter().flat_map(|rule| &rule.providers);
        providers.find_map(|provider| match provider {
            Provider::Identity | Provider::Key { .. } => None,
            #[cfg(feature = "kms")]
            Provider::Kms { kms, .. } => kms.trouble(),
        })
    }

    /// What was written down for what is in a place.
    ///
    /// # Errors
    /// When no key fits it; says which one would.
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
                    Err("it is not encrypted, and its providers have no identity".to_owned())
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
            true => format!("it is encrypted with {said}, which has another secret here"),
            false => format!("it is encrypted with {said}, which is not configured for it"),
        })
    }
}

/// What encrypted bytes say of how they were encrypted: the provider, and the name of the key.
fn said(bytes: &[u8]) -> String {
    let mut parts = bytes.splitn(6, |byte| *byte == b':').skip(2);
    let mut next = || {
        let part = parts.next().unwrap_or_default();
        String::from_utf8_lossy(&part[..part.len().min(100)]).into_owned()
    };
    let (provider, _version, key) = (next(), next(), next());
    format!("the key {key:?} of {provider}")
}

/// The group of a collection, as `example.com` of `foos.example.com`; the core group has no name.
fn group_of(collection: &str) -> &str {
    collection.split_once('.').map_or("", |(_, group)| group)
}

impl Resources {
    /// Whether there are collections that both are for.
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
