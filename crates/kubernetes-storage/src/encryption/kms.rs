//! Encryption with a KMS plugin (version 2), in kube-apiserver's format. The plugin encrypts only seeds. Each value is
//! encrypted in this process, with a key of its own that is derived from a seed.
//!
//! A value is stored together with its encrypted seed, so reading needs one call of the plugin for each seed. A server
//! creates one seed for each key of the plugin. Code that decrypts values must not wait for the plugin. So the seeds
//! are [decrypted](Unknown::learn) before.

mod messages;
mod plugin;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aes_gcm::aead::OsRng;
use aes_gcm::aead::rand_core::RngCore;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use hkdf::Hkdf;
use prost::Message;
use sha2::Sha256;

use super::ciphers::Cipher;
use messages::{EncryptedObject, SourceType};
use plugin::Plugin;

/// The time for which a seed encrypts values after the plugin has last confirmed its key.
const LIFETIME: Duration = Duration::from_secs(3 * 60);
/// The largest number of decrypted seeds of data keys in memory. Every server creates a seed when it starts, and when
/// the key of the KMS plugin changes.
const SEEDS_LIMIT: usize = 100_000;
/// The time for which a plugin that rejects a seed is called again, before the seed counts as lost. Some plugins reject
/// seeds while their KMS does not respond.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// The size of a seed in bytes. `INFO` is the size of the bytes in front of each value, from which its key is derived.
const SEED: usize = 32;
const INFO: usize = 32;
/// The limits of the data that a plugin may return, in bytes.
const NAME_LIMIT: usize = 1 << 10;
const SOURCE_LIMIT: usize = 1 << 10;
const ANNOTATIONS_LIMIT: usize = 32 << 10;

/// The options of a plugin.
#[derive(Clone, Debug)]
pub(super) struct KmsOptions {
    pub name: String,
    /// The URL of a Unix socket, such as `unix:///run/kms.sock`.
    pub endpoint: String,
    /// The timeout of a call.
    pub timeout: Duration,
}

/// A provider with keys in a KMS. A thread calls its plugin, and ends when the provider is dropped.
pub(super) struct Kms {
    name: String,
    known: Arc<Known>,
    plugin: Plugin,
}

/// The data that the plugin has returned so far.
#[derive(Default)]
struct Known {
    /// The seed that encrypts new values.
    current: ArcSwapOption<Current>,
    /// All seeds that the plugin was called for, by [`identity`].
    seeds: Mutex<HashMap<Vec<u8>, Seed>>,
    /// The reason why the key could not be confirmed.
    unconfirmed: Mutex<Option<String>>,
}

/// The result of decrypting a seed.
enum Seed {
    Known(Arc<Source>),
    /// The plugin rejects the seed, since this time and for this reason.
    Refused(Instant, String),
}

struct Current {
    source: Arc<Source>,
    /// The data that is stored with each value.
    beside: EncryptedObject,
    expires: Instant,
}

/// The source of the keys of values.
enum Source {
    Key(Cipher),
    Seed([u8; SEED]),
}

/// A seed that the plugin must decrypt.
pub(crate) struct Unknown {
    kms: Arc<Kms>,
    beside: EncryptedObject,
}

impl Kms {
    /// Calls the plugin, and returns after it has encrypted a seed.
    ///
    /// # Errors
    /// If the plugin fails or does not respond.
    pub fn begin(options: &KmsOptions) -> Result<Arc<Self>, String> {
        let known = Arc::new(Known::default());
        let plugin = Plugin::new(options, Arc::clone(&known))?;
        let kms = Self { name: options.name.clone(), known, plugin };
        kms.plugin.confirm().map_err(|why| format!("{kms}: {why}"))?;
        Ok(Arc::new(kms))
    }

    /// The name of the plugin in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Encrypts the value of a location.
    ///
    /// # Errors
    /// If the plugin has not confirmed its key for too long, or the system has no random bytes.
    pub fn encrypt(&self, plain: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        let current = self.writing()?;
        let data = current.source.encrypt(plain, place)?;
        Ok(EncryptedObject { data: data.into(), ..current.beside.clone() }.encode_to_vec())
    }

    /// Decrypts the value of a location. Also returns whether the value would be encrypted differently now.
    ///
    /// # Errors
    /// The reason why it cannot be decrypted.
    pub fn decrypt(&self, encrypted: &[u8], place: &[u8]) -> Result<(Vec<u8>, bool), String> {
        let mut object = read(encrypted)?;
        let data = std::mem::take(&mut object.data);
        let source = self.known.seed(&identity(&object));
        let source = source.map_err(|why| format!("its seed is not known: {why}"))?;
        let plain = source.decrypt(&data, place).ok_or("it is not what was encrypted")?;
        let current = self.known.current.load();
        let is_current = current.as_ref().is_some_and(|current| {
            current.beside.key_id == object.key_id && object.source_type == SourceType::Seed as i32
        });
        Ok((plain, !is_current))
    }

    /// Returns the seed that must be decrypted before a value can be decrypted, if this seed is not known yet.
    pub fn unknown(self: &Arc<Self>, encrypted: &[u8]) -> Option<Unknown> {
        let beside = EncryptedObject { data: Bytes::new(), ..read(encrypted).ok()? };
        let is_settled = self.known.is_settled(&identity(&beside));
        (!is_settled).then(|| Unknown { kms: Arc::clone(self), beside })
    }

    /// Checks that values can be encrypted at the moment.
    ///
    /// # Errors
    /// If the plugin has not confirmed its key for too long.
    pub fn ensure_writes(&self) -> Result<(), String> {
        self.writing().map(drop)
    }

    /// The seed that encrypts new values, if its key was confirmed within [`LIFETIME`].
    fn writing(&self) -> Result<Arc<Current>, String> {
        let current = self.known.current.load_full();
        let current = current.filter(|current| Instant::now() < current.expires);
        current.ok_or_else(|| format!("{self} has not answered for three minutes"))
    }

    /// The reason why the key could not be confirmed, if the last attempt failed.
    pub fn trouble(&self) -> Option<String> {
        let why = self.known.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        why.as_ref().map(|why| format!("{self}: {why}"))
    }

    /// Calls the plugin immediately to confirm that its key still encrypts new values.
    #[cfg(test)]
    pub fn confirm(&self) -> Result<(), String> {
        self.plugin.confirm()
    }
}

impl fmt::Display for Kms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the KMS plugin {:?}", self.name)
    }
}

impl Unknown {
    /// Has the plugin decrypt the seed. Blocks until the plugin responds.
    ///
    /// # Errors
    /// If the plugin does not respond, or rejects the seed.
    pub fn learn(self) -> Result<(), String> {
        let Self { kms, beside } = self;
        // Another value may have had the same seed.
        if kms.known.is_settled(&identity(&beside)) {
            return Ok(());
        }
        kms.plugin.decrypt(beside).map_err(|why| format!("{kms}: {why}"))
    }
}

impl Known {
    fn seed(&self, identity: &[u8]) -> Result<Arc<Source>, String> {
        match self.lock().get(identity) {
            Some(Seed::Known(source)) => Ok(Arc::clone(source)),
            Some(Seed::Refused(_, why)) => Err(why.clone()),
            None => Err("the plugin was not called".to_owned()),
        }
    }

    /// Whether the plugin need not be called for this seed.
    fn is_settled(&self, identity: &[u8]) -> bool {
        match self.lock().get(identity) {
            Some(Seed::Known(_)) => true,
            Some(Seed::Refused(since, _)) => since.elapsed() >= REFUSED_FOR,
            None => false,
        }
    }

    fn remember(&self, beside: &EncryptedObject, source: Arc<Source>) -> Result<(), String> {
        self.note(beside, |_| Seed::Known(source))
    }

    fn refuse(&self, beside: &EncryptedObject, why: String) -> Result<(), String> {
        self.note(beside, |before| match before {
            Some(Seed::Refused(since, _)) => Seed::Refused(*since, why),
            _ => Seed::Refused(Instant::now(), why),
        })
    }

    fn note(
        &self,
        beside: &EncryptedObject,
        seed: impl FnOnce(Option<&Seed>) -> Seed,
    ) -> Result<(), String> {
        let (identity, mut seeds) = (identity(beside), self.lock());
        if seeds.len() >= SEEDS_LIMIT && !seeds.contains_key(&identity) {
            return Err(format!("more than {SEEDS_LIMIT} seeds"));
        }
        let seed = seed(seeds.get(&identity));
        seeds.insert(identity, seed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Seed>> {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_unconfirmed(&self, why: Option<String>) {
        *self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

impl Source {
    /// Parses a source that the plugin has decrypted. `None` if no key can be created from it.
    fn of(source_type: i32, plain: &[u8]) -> Option<Self> {
        match SourceType::try_from(source_type).ok()? {
            SourceType::Key => Cipher::aes_gcm(plain).map(Self::Key),
            SourceType::Seed => plain.try_into().ok().map(Self::Seed),
        }
    }

    /// Generates a new seed.
    fn random() -> Result<[u8; SEED], String> {
        let mut seed = [0; SEED];
        fill_random(&mut seed)?;
        Ok(seed)
    }

    fn encrypt(&self, plain: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Key(cipher) => cipher.encrypt(plain, place),
            Self::Seed(seed) => {
                let mut info = [0; INFO];
                fill_random(&mut info)?;
                let cipher = derived(seed, &info).ok_or("no key can be derived")?;
                Ok([&info[..], &cipher.encrypt(plain, place)?].concat())
            }
        }
    }

    fn decrypt(&self, data: &[u8], place: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Key(cipher) => cipher.decrypt(data, place),
            Self::Seed(seed) => {
                let (info, data) = data.split_first_chunk::<INFO>()?;
                derived(seed, info)?.decrypt(data, place)
            }
        }
    }
}

fn fill_random(bytes: &mut [u8]) -> Result<(), String> {
    let random = OsRng.try_fill_bytes(bytes);
    random.map_err(|error| format!("no random bytes are available: {error}"))
}

/// Derives the key of one value.
fn derived(seed: &[u8; SEED], info: &[u8; INFO]) -> Option<Cipher> {
    let mut key = [0; 32];
    Hkdf::<Sha256>::from_prk(seed).ok()?.expand(info, &mut key).ok()?;
    Cipher::aes_gcm(&key)
}

/// Parses a stored value.
fn read(encrypted: &[u8]) -> Result<EncryptedObject, String> {
    let object = EncryptedObject::decode(encrypted);
    let object = object.map_err(|_| "it is not what a KMS provider writes")?;
    check(&object)?;
    Ok(object)
}

/// Rejects data beyond the limits of a plugin.
fn check(beside: &EncryptedObject) -> Result<(), String> {
    let EncryptedObject { key_id, source, annotations, .. } = beside;
    let said = |(name, value): (&String, &Bytes)| name.len() + value.len();
    let why = match () {
        () if key_id.is_empty() => "its key has no id",
        () if key_id.len() > NAME_LIMIT => "the id of its key is larger than 1 kB",
        () if source.is_empty() => "its encrypted seed is empty",
        () if source.len() > SOURCE_LIMIT => "its encrypted seed is larger than 1 kB",
        () if annotations.iter().map(said).sum::<usize>() > ANNOTATIONS_LIMIT => {
            "its annotations are larger than 32 kB"
        }
        () => return Ok(()),
    };
    Err(why.to_owned())
}

/// The identity of a seed: everything that is stored with a value, except the value.
fn identity(beside: &EncryptedObject) -> Vec<u8> {
    beside.encode_to_vec()
}

#[cfg(test)]
pub(crate) mod tests;
