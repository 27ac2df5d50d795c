//! The stored objects that configure admission and cannot be decoded. Until such an object is replaced or deleted, the
//! plugin that it configures refuses writes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::AdmissionError;
use crate::cluster::{SourceType, resource_name};
use crate::object::Key;
use crate::storage::LogEntry;

/// The error of an object that the store cannot read.
const DAMAGED: &str = "the stored object is damaged";

/// The objects that cannot be decoded, by resource and key, each with its error.
#[derive(Default)]
pub(super) struct Undecoded(Mutex<BTreeMap<(String, Key), String>>);

impl Undecoded {
    /// Decodes the object of a log entry, and passes it to `apply`; `None` for a deletion. An object that does not match
    /// its type is recorded here, and `apply` is not called.
    pub fn decode<K: SourceType>(&self, entry: &LogEntry, apply: impl FnOnce(Option<K>)) {
        let object = entry.object.as_ref().map(|object| serde_json::from_slice(&object.json()));
        match object.transpose() {
            Ok(object) => {
                // The old object stays recorded until the new one applies.
                apply(object);
                self.lock().remove(&(resource_name::<K>(), entry.key.clone()));
            }
            Err(error) => self.record::<K>(entry.key.clone(), &error.to_string()),
        }
    }

    /// Records an object that the store cannot read.
    pub fn record_damaged<K: SourceType>(&self, key: Key) {
        self.record::<K>(key, DAMAGED);
    }

    fn record<K: SourceType>(&self, key: Key, error: &str) {
        let resource = resource_name::<K>();
        tracing::error!(
            resource,
            object = %key,
            error,
            "cannot decode an object that configures admission; writes are refused"
        );
        let error = format!("{resource} {:?} cannot be decoded: {error}", key.name());
        self.lock().insert((resource, key), error);
    }

    /// Checks that all objects of a namespace, or all cluster-scoped objects, have been decoded.
    ///
    /// # Errors
    /// 503 with the first object that cannot be decoded.
    pub fn check(&self, plugin: &str, namespace: Option<&str>) -> Result<(), AdmissionError> {
        let undecoded = self.lock();
        let first = undecoded.iter().find(|((_, key), _)| key.namespace() == namespace);
        match first {
            Some((_, error)) => Err(AdmissionError::unavailable(format!("{plugin}: {error}"))),
            None => Ok(()),
        }
    }

    /// Whether all objects have been decoded.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Key), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
