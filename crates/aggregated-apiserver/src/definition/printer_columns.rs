//! Table cells that are computed by code, because no JSONPath can express them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::qualified;
use crate::kind::{ErasedColumns, go_reader};

type Compute<K> = Box<dyn Fn(&K, Timestamp) -> Value + Send + Sync>;

/// Table cells that are computed by code. Each replaces the JSONPath of one column. The heading, type and position of
/// the column stay as the definition declares them.
///
/// ```
/// use aggregated_apiserver::{PrinterColumns, Stored};
/// use aggregated_apiserver::strategy::age;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(
///     group = "example.com", version = "v1", kind = "Herd", namespaced,
///     printcolumn(name = "Awake", type_ = "string", json_path = ".spec.awake"),
/// )]
/// pub struct HerdSpec {
///     pub awake: u32,
///     pub heads: u32,
/// }
///
/// impl Stored for Herd {
///     fn printer_columns() -> PrinterColumns<Self> {
///         PrinterColumns::new().cell("Awake", |herd: &Self, _| {
///             format!("{}/{}", herd.spec.awake, herd.spec.heads)
///         })
///     }
/// }
/// ```
pub struct PrinterColumns<K>(Vec<(&'static str, Compute<K>)>);

impl<K> Default for PrinterColumns<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> PrinterColumns<K> {
    /// No computed cells: every column contains the result of its JSONPath.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Sets the cells of a column to the result of `compute`, which receives an object and the current time. The result
    /// is a string, a number or a boolean, according to the type of the column. In a `date` column an RFC 3339 string
    /// is displayed as an age. `None` leaves the cell empty. The cell is also empty if the object cannot be read as
    /// this type, or if `compute` panics; the first panic is logged. The definition must contain the column and the
    /// version of this type.
    #[must_use]
    pub fn cell<V: Into<Value>>(
        mut self,
        column: &'static str,
        compute: impl Fn(&K, Timestamp) -> V + Send + Sync + 'static,
    ) -> Self {
        self.0.push((column, Box::new(move |object, now| compute(object, now).into())));
        self
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> PrinterColumns<K> {
    /// The cells without their type, for stored objects; `None` if there are no cells.
    pub(super) fn erased(self) -> Option<ErasedColumns> {
        if self.0.is_empty() {
            return None;
        }
        let columns = self.0.iter().map(|(column, _)| *column).collect();
        let told = AtomicBool::new(false);
        // The user's code may panic; all other cells are still computed.
        let panicked = move || {
            if !told.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    kind = %qualified::<K>(),
                    "panic in a printer column; its cells are empty"
                );
            }
        };
        let compute = move |object: &Value, now: Timestamp| {
            let object = match catch_unwind(|| go_reader::read::<K>(object)) {
                Ok(Ok(object)) => object,
                Ok(Err(_)) => return Vec::new(),
                Err(_) => {
                    panicked();
                    return Vec::new();
                }
            };
            let cell = |(_, compute): &(&str, Compute<K>)| {
                catch_unwind(AssertUnwindSafe(|| compute(&object, now))).unwrap_or_else(|_| {
                    panicked();
                    Value::Null
                })
            };
            self.0.iter().map(cell).collect()
        };
        Some(ErasedColumns::new(&K::version(&()), columns, Box::new(compute)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn cells(object: &Value) -> Vec<Value> {
        let cells = PrinterColumns::<ConfigMap>::new()
            .cell("Keys", |map, _| map.data.as_ref().map(std::collections::BTreeMap::len))
            .cell("Second", |map, now| {
                assert!(map.immutable != Some(true), "what the user wrote is wrong");
                now.as_second()
            });
        cells.erased().unwrap().compute(object, Timestamp::from_second(7).unwrap())
    }

    #[test]
    fn cells_are_computed_only_for_objects_that_fit_their_type() {
        assert_eq!(cells(&json!({"data": {"a": "b"}})), [json!(1), json!(7)]);
        assert_eq!(cells(&json!({})), [json!(null), json!(7)]);
        assert_eq!(cells(&json!({"data": 3})), [] as [Value; 0]);
        assert_eq!(cells(&json!({"immutable": true})), [json!(null), json!(null)]);
    }
}
