//! The authentication settings of kube-apiserver: the watched ConfigMap
//! `kube-system/extension-apiserver-authentication`.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::Cluster;
use crate::log_throttle::LogThrottle;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The headers with which a front proxy passes the user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The CAs that sign the client certificate of the front proxy, in PEM.
    pub ca: String,
    /// The allowed common names of the certificate. An empty list allows every name.
    pub allowed_names: Vec<String>,
    /// The headers that may contain the user name. The first header with a value is used.
    pub username_headers: Vec<String>,
    /// The headers that may contain the uid.
    pub uid_headers: Vec<String>,
    /// The headers that contain groups.
    pub group_headers: Vec<String>,
    /// The prefixes of headers that contain extra attributes.
    pub extra_header_prefixes: Vec<String>,
}

/// The authentication settings of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegatedAuthentication {
    /// The CAs that sign the client certificates of users, in PEM.
    pub client_ca: Option<String>,
    /// The settings of the front proxy, if there is one.
    pub request_header: Option<RequestHeader>,
}

impl DelegatedAuthentication {
    fn parse(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let list = |key: &str| match data.get(key).filter(|text| !text.is_empty()) {
            Some(text) => serde_json::from_str::<Vec<String>>(text)
                .map_err(|error| format!("{key}: is not a JSON list of strings: {error}")),
            None => Ok(Vec::new()),
        };
        let filled = |key: &str| data.get(key).filter(|text| !text.trim().is_empty()).cloned();
        let request_header = match filled("requestheader-client-ca-file") {
            Some(ca) => Some(RequestHeader {
                ca,
                allowed_names: list("requestheader-allowed-names")?,
                username_headers: list("requestheader-username-headers")?,
                uid_headers: list("requestheader-uid-headers")?,
                group_headers: list("requestheader-group-headers")?,
                extra_header_prefixes: list("requestheader-extra-headers-prefix")?,
            }),
            None => None,
        };
        Ok(Self { client_ca: filled("client-ca-file"), request_header })
    }
}

impl Cluster {
    /// The settings in the ConfigMap, now and after each change. An invalid ConfigMap is logged and skipped, so the
    /// last valid settings stay in use.
    pub fn delegated_authentication(
        &self,
    ) -> impl Stream<Item = DelegatedAuthentication> + Send + use<> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let events = watcher(api, only).default_backoff();
        let mut is_there = false;
        let refused = LogThrottle::default();
        events.filter_map(move |event| {
            let said = match event {
                Ok(watcher::Event::Init) => {
                    is_there = false;
                    None
                }
                Ok(watcher::Event::Apply(config_map) | watcher::Event::InitApply(config_map)) => {
                    is_there = true;
                    read(config_map)
                }
                Ok(watcher::Event::InitDone) if !is_there => {
                    tracing::warn!(
                        config_map = %format_args!("{NAMESPACE}/{NAME}"),
                        "ConfigMap not found; no other front proxy is trusted until it exists"
                    );
                    None
                }
                Ok(watcher::Event::InitDone) => None,
                Ok(watcher::Event::Delete(_)) => {
                    tracing::warn!(
                        config_map = %format_args!("{NAMESPACE}/{NAME}"),
                        "ConfigMap deleted; its last value stays in use"
                    );
                    None
                }
                Err(error) => {
                    refused.log(|suppressed| {
                        tracing::warn!(
                            suppressed,
                            config_map = %format_args!("{NAMESPACE}/{NAME}"),
                            %error,
                            "cannot watch ConfigMap; a RoleBinding to the Role \
                             extension-apiserver-authentication-reader in its namespace permits it"
                        );
                    });
                    None
                }
            };
            std::future::ready(said)
        })
    }
}

fn read(config_map: ConfigMap) -> Option<DelegatedAuthentication> {
    match DelegatedAuthentication::parse(&config_map.data.unwrap_or_default()) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            tracing::error!(
                config_map = %format_args!("{NAMESPACE}/{NAME}"),
                %error,
                "invalid ConfigMap; its last valid value stays in use"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &[(&str, &str)]) -> Result<DelegatedAuthentication, String> {
        let data = rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        DelegatedAuthentication::parse(&data.collect())
    }

    #[test]
    fn keys_may_be_absent() {
        assert_eq!(parse(&[]).unwrap(), DelegatedAuthentication::default());
        let parsed = parse(&[
            ("requestheader-client-ca-file", "PEM"),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-allowed-names", "[]"),
        ]);
        let header = parsed.unwrap().request_header.unwrap();
        assert_eq!(header.username_headers, ["X-Remote-User"]);
        assert!(header.uid_headers.is_empty());
    }

    #[test]
    fn an_unreadable_front_proxy_setting_is_reported_with_its_key() {
        let error = parse(&[
            ("requestheader-client-ca-file", "PEM"),
            ("requestheader-group-headers", "X-Remote-Group"),
        ]);
        assert!(error.unwrap_err().starts_with("requestheader-group-headers: is not a JSON list"));
    }
}
