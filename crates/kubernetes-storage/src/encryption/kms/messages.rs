//! The messages of KMS plugins (`v2.KeyManagementService`), and the format in which kube-apiserver stores values that
//! are encrypted with a plugin.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or the problem of the plugin.
    #[prost(string, tag = "2")]
    pub healthz: String,
    /// The identifier of the key that encrypts new values.
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub plaintext: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub plaintext: Bytes,
    #[prost(string, tag = "2")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Bytes>,
}

/// A stored value. It contains data that is encrypted with a key from a source, and the source, encrypted by the
/// plugin.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Bytes>,
    #[prost(enumeration = "SourceType", tag = "5")]
    pub source_type: i32,
}

/// The type of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SourceType {
    /// The encrypted data is the AES-GCM key itself. Kubernetes wrote this type until version 1.28.
    Key = 0,
    /// The source is a seed, from which HKDF derives a key for each value.
    Seed = 1,
}
