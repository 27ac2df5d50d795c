//! Encryption by a KMS plugin (version 2), as kube-apiserver does it: the plugin encrypts nothing but seeds,
//! and each value is encrypted here, by a key of its own that is derived from a seed.
//!
//! Beside a value stands its seed as the plugin has encrypted it, so reading needs one call for each seed,
//! and a server makes one seed for each key of the plugin. Code that opens values must not wait for the
//! plugin, so their seeds are [learned](Unknown::learn) first.

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

/// How long a seed is written with after its key was confirmed last.
const LIFETIME: Duration = Duration::from_secs(3 * 60);
/// Seeds that are remembered. Every server makes one when it starts, and when the key changes.
const SEEDS_LIMIT: usize = 100_000;
/// How long a plugin that refuses a seed is asked again, while it is not said to be lost: some refuse where
/// the KMS behind them does not answer.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Bytes of a seed, and in front of each value the bytes from which its key is derived.
const SEED: usize = 32;
const INFO: usize = 32;
/// What a plugin may say, in bytes.
const NAME_LIMIT: usize = 1 << 10;
const SOURCE_LIMIT: usize = 1 << 10;
const ANNOTATIONS_LIMIT: usize = 32 << 10;

/// How a plugin is reached.
#[derive(Clone, Debug)]
pub(super) struct KmsOptions {
    pub name: String,
    /// A Unix socket, as `unix:///run/kms.sock`.
    pub endpoint: String,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// A provider whose keys are in a KMS. Its plugin is asked by a thread, which ends with it.
pub(super) struct Kms {
    name: String,
    known: Arc<Known>,
    plugin: Plugin,
}

/// What the plugin has said so far.
#[derive(Default)]
struct Known {
    /// The seed that writes.
    current: ArcSwapOption<Current>,
    /// All seeds that were asked for, by [`identity`].
    seeds: Mutex<HashMap<Vec<u8>, Seed>>,
    /// Why the key could not be confirmed.
    unconfirmed: Mutex<Option<String>>,
}

/// What came of asking for a seed.
enum Seed {
    Known(Arc<Source>),
    /// The plugin does not decrypt it; since when, and why.
    Refused(Instant, String),
}

struct Current {
    source: Arc<Source>,
    /// What is written beside each value.
    beside: EncryptedObject,
    expires: Instant,
}

/// What keys come from.
enum Source {
    Key(Cipher),
    Seed([u8; SEED]),
}

/// A seed that has to be asked for.
pub(crate) struct Unknown {
    kms: Arc<Kms>,
    beside: EncryptedObject,
}

impl Kms {
    /// Calls the plugin, and returns when it has encrypted a seed.
    ///
    /// # Errors
    /// When it does not.
    pub fn begin(options: &KmsOptions) -> Result<Arc<Self>, String> {
        let known = Arc::new(Known::default());
        let plugin = Plugin::new(options, Arc::clone(&known))?;
        let kms = Self { name: options.name.clone(), known, plugin };
        kms.plugin.confirm().map_err(|why| format!("{kms}: {why}"))?;
        Ok(Arc::new(kms))
    }

    /// What the configuration calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Encrypts what is in a place.
    ///
    /// # Errors
    /// When the plugin has not confirmed its key for long, or nothing random can be had.
    pub fn encrypt(&self, plain: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        let current = self.writing()?;
        let data = current.source.encrypt(plain, place)?;
        Ok(EncryptedObject { data: data.into(), ..current.beside.clone() }.encode_to_vec())
    }

    /// Decrypts what is in a place, and says whether it would be written in another way now.
    ///
    /// # Errors
    /// When it cannot be decrypted; why.
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

    /// What has to be learned before a value can be decrypted.
    pub fn unknown(self: &Arc<Self>, encrypted: &[u8]) -> Option<Unknown> {
        let beside = EncryptedObject { data: Bytes::new(), ..read(encrypted).ok()? };
        let is_settled = self.known.is_settled(&identity(&beside));
        (!is_settled).then(|| Unknown { kms: Arc::clone(self), beside })
    }

    /// Refuses if nothing can be encrypted at the moment.
    ///
    /// # Errors
    /// When the plugin has not confirmed its key for long.
    pub fn ensure_writes(&self) -> Result<(), String> {
        self.writing().map(drop)
    }

    /// The seed that writes, while its key was confirmed lately.
    fn writing(&self) -> Result<Arc<Current>, String> {
        let current = self.known.current.load_full();
        let current = current.filter(|current| Instant::now() < current.expires);
        current.ok_or_else(|| format!("{self} has not answered for three minutes"))
    }

    /// Why the key could not be confirmed lately.
    pub fn trouble(&self) -> Option<String> {
        let why = self.known.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        why.as_ref().map(|why| format!("{self}: {why}"))
    }

    /// Asks the plugin at once whether its key is still the one that writes.
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
    /// Asks the plugin. It waits for the answer.
    ///
    /// # Errors
    /// When there is none, or the plugin refuses.
    pub fn learn(self) -> Result<(), String> {
        let Self { kms, beside } = self;
        // Another value may have had the same one.
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
            None => Err("the plugin was not asked".to_owned()),
        }
    }

    /// Whether nothing is left to ask for.
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
    /// Reads what the plugin has decrypted; `None` if no key can be made of it.
    fn of(source_type: i32, plain: &[u8]) -> Option<Self> {
        match SourceType::try_from(source_type).ok()? {
            SourceType::Key => Cipher::aes_gcm(plain).map(Self::Key),
            SourceType::Seed => plain.try_into().ok().map(Self::Seed),
        }
    }

    /// A new seed.
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
    random.map_err(|error| format!("nothing random can be had: {error}"))
}

/// The key of one value.
fn derived(seed: &[u8; SEED], info: &[u8; INFO]) -> Option<Cipher> {
    let mut key = [0; 32];
    Hkdf::<Sha256>::from_prk(seed).ok()?.expand(info, &mut key).ok()?;
    Cipher::aes_gcm(&key)
}

/// A value as it is kept.
fn read(encrypted: &[u8]) -> Result<EncryptedObject, String> {
    let object = EncryptedObject::decode(encrypted);
    let object = object.map_err(|_| "it is not what a KMS provider writes")?;
    check(&object)?;
    Ok(object)
}

/// Refuses what no plugin may say.
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

/// What tells seeds apart: all that stands beside a value.
fn identity(beside: &EncryptedObject) -> Vec<u8> {
    beside.encode_to_vec()
}

#[cfg(test)]
pub(crate) mod tests;
