//! Messages of KMS plugins (`v2.KeyManagementService`), and the form in which kube-apiserver keeps what it
//! has encrypted by one.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or what is wrong.
    #[prost(string, tag = "2")]
    pub healthz: String,
    /// The key that encrypts now.
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

/// A value as it is kept: encrypted by a key that comes from a source, and that source, encrypted by the
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

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SourceType {
    /// The key of AES-GCM itself, which was written until Kubernetes 1.28.
    Key = 0,
    /// A seed, of which HKDF makes a key for each value.
    Seed = 1,
}
