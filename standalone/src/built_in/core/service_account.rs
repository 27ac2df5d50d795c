//! ServiceAccounts.

use aggregated_apiserver::Strategy;
use k8s_openapi::api::core::v1::ServiceAccount;

use crate::built_in::row::Row;
use crate::built_in::strategy::plain;

pub(crate) fn row() -> Row<ServiceAccount> {
    Row { short_names: &["sa"], ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..plain() }
}
