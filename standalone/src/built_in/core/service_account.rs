//! ServiceAccounts.

use aggregated_apiserver::Strategy;
use k8s_openapi::api::core::v1::ServiceAccount;

use crate::built_in::row::Row;
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<ServiceAccount> {
    Row { short_names: &["sa"], ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..without_generation() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::cells;
    use serde_json::json;

    #[test]
    fn its_table_shows_its_age() {
        let account = json!({"metadata": {"creationTimestamp": "2024-05-01T11:55:00Z"}});
        assert_eq!(cells(row().columns, account), json!({"Age": "5m"}));
        assert_eq!(cells(row().columns, json!({})), json!({"Age": "<unknown>"}));
    }

    #[test]
    fn an_update_needs_no_version_and_a_deletion_answers_with_the_object() {
        let strategy = strategy();
        assert!(strategy.allows_unconditional_update && strategy.returns_deleted_object);
        assert!(!strategy.has_generation);
    }
}
