//! ServiceAccounts.

use std::sync::Arc;

use aggregated_apiserver::strategy::{SubresourceOutcome, SubresourceRequest};
use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ObjectReference, ServiceAccount};

use crate::built_in::row::{PostedSubresource, Row};
use crate::built_in::strategy::without_generation;
use crate::service_account_tokens::ServiceAccountTokens;

pub(crate) fn row(tokens: Arc<ServiceAccountTokens>) -> Row<ServiceAccount> {
    let issue = move |request: &SubresourceRequest<'_>| {
        tokens.issue(request).map(SubresourceOutcome::Answer)
    };
    Row {
        short_names: &["sa"],
        posted: vec![PostedSubresource::new::<TokenRequest>("token", issue)],
        rules: Validation::new().prepare(|account, _| prepare(account)),
        ..Row::new(strategy())
    }
}

/// Keeps only the names of Secrets, because they are in the same namespace.
fn prepare(account: &mut ServiceAccount) {
    for secret in account.secrets.iter_mut().flatten() {
        *secret = ObjectReference { name: secret.name.take(), ..ObjectReference::default() };
    }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..without_generation() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, prepared};
    use serde_json::json;

    fn tokens() -> Arc<ServiceAccountTokens> {
        ServiceAccountTokens::new(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn service_account_table_row_contains_the_age() {
        let account = json!({"metadata": {"creationTimestamp": "2024-05-01T11:55:00Z"}});
        assert_eq!(cells(row(tokens()).columns, account), json!({"Age": "5m"}));
        assert_eq!(cells(row(tokens()).columns, json!({})), json!({"Age": "<unknown>"}));
    }

    #[test]
    fn service_account_secret_references_are_reduced_to_names() {
        let account = json!({"secrets": [{"name": "s", "namespace": "n", "uid": "u"}, {}]});
        let kept = prepared(prepare, account);
        assert_eq!(kept["secrets"], json!([{"name": "s"}, {}]));
    }

    #[test]
    fn an_update_needs_no_version_and_a_deletion_answers_with_the_object() {
        let strategy = strategy();
        assert!(strategy.allows_unconditional_update && strategy.returns_deleted_object);
        assert!(!strategy.has_generation);
    }
}
