//! Ciphers: the providers of kube-apiserver that need only a key.

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::rand_core::RngCore;
use aes_gcm::aead::{Aead, AeadCore, KeyInit, Nonce, OsRng, Payload};
use aes_gcm::aes::Aes192;
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use crypto_secretbox::XSalsa20Poly1305;

/// A cipher with its key. Encrypted values begin with a random nonce.
pub(super) enum Cipher {
    Aes128(Box<Aes128Gcm>),
    Aes192(Box<AesGcm<Aes192, U12>>),
    Aes256(Box<Aes256Gcm>),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl Cipher {
    /// AES in Galois/Counter Mode. `None` if the key does not have 16, 24 or 32 bytes.
    pub fn aes_gcm(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Some(Self::Aes128(Box::new(Aes128Gcm::new_from_slice(key).ok()?))),
            24 => Some(Self::Aes192(Box::new(AesGcm::new_from_slice(key).ok()?))),
            32 => Some(Self::Aes256(Box::new(Aes256Gcm::new_from_slice(key).ok()?))),
            _ => None,
        }
    }

    /// XSalsa20 and Poly1305. `None` if the key does not have 32 bytes.
    pub fn secretbox(key: &[u8]) -> Option<Self> {
        Some(Self::Secretbox(Box::new(XSalsa20Poly1305::new_from_slice(key).ok()?)))
    }

    /// Encrypts the value of a location.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn encrypt(&self, plain: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Aes128(cipher) => encrypt(&**cipher, plain, place),
            Self::Aes192(cipher) => encrypt(&**cipher, plain, place),
            Self::Aes256(cipher) => encrypt(&**cipher, plain, place),
            Self::Secretbox(cipher) => encrypt(&**cipher, plain, NO_PLACE),
        }
    }

    /// Decrypts the value of a location. `None` if it was not encrypted with this key, or not for this location.
    pub fn decrypt(&self, encrypted: &[u8], place: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Aes128(cipher) => decrypt(&**cipher, encrypted, place),
            Self::Aes192(cipher) => decrypt(&**cipher, encrypted, place),
            Self::Aes256(cipher) => decrypt(&**cipher, encrypted, place),
            Self::Secretbox(cipher) => decrypt(&**cipher, encrypted, NO_PLACE),
        }
    }
}

/// The location that secretbox uses for all values, because it does not bind a value to its location.
const NO_PLACE: &[u8] = b"";

fn encrypt<C: Aead>(cipher: &C, plain: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
    let mut nonce = Nonce::<C>::default();
    let random = OsRng.try_fill_bytes(&mut nonce);
    random.map_err(|error| format!("no random bytes are available: {error}"))?;
    let encrypted = cipher.encrypt(&nonce, Payload { msg: plain, aad: place });
    let encrypted = encrypted.map_err(|_| "it is too large to be encrypted".to_owned())?;
    Ok([&nonce[..], &encrypted].concat())
}

fn decrypt<C: Aead>(cipher: &C, encrypted: &[u8], place: &[u8]) -> Option<Vec<u8>> {
    let (nonce, encrypted) = encrypted.split_at_checked(nonce_size::<C>())?;
    let payload = Payload { msg: encrypted, aad: place };
    cipher.decrypt(Nonce::<C>::from_slice(nonce), payload).ok()
}

fn nonce_size<C: AeadCore>() -> usize {
    Nonce::<C>::default().len()
}
