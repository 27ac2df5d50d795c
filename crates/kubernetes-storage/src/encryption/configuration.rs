//! `EncryptionConfiguration`, in kube-apiserver's format. Error messages never repeat its contents, because it contains
//! keys.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::ciphers::Cipher;
use super::{Provider, Resources, Rule};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// The longest timeout of a plugin. A slower plugin is useless.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EncryptionConfiguration {
    api_version: String,
    kind: String,
    resources: Vec<ResourceConfiguration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceConfiguration {
    resources: Vec<String>,
    providers: Vec<ProviderConfiguration>,
}

/// Exactly one of the fields is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderConfiguration {
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<IgnoredAny>,
    aescbc: Option<IgnoredAny>,
    kms: Option<KmsConfiguration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KmsConfiguration {
    api_version: Option<String>,
    name: String,
    endpoint: String,
    timeout: Option<String>,
    cachesize: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    name: String,
    secret: String,
}

/// Parses the rules of a configuration in YAML or JSON.
///
/// # Errors
/// The problem in the configuration, and its position.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("it is not valid YAML{}", place_of(&error)))?;
    let configuration: EncryptionConfiguration =
        serde_path_to_error::deserialize(value).map_err(|error| {
            let (path, why) = (error.path().to_string(), error.inner().to_string());
            // The name of an unknown field may contain a secret, if a space is missing between the field and its value.
            // Other messages repeat values.
            match why.split_once("`, expected ") {
                Some((unknown, expected)) if unknown.starts_with("unknown field `") => {
                    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
                    let place = if parent.is_empty() { "" } else { " at " };
                    format!("unknown field{place}{parent}, expected {expected}")
                }
                _ if why.starts_with("missing field") => format!("{path}: {why}"),
                _ => format!("{path} has a value of the wrong type for an {KIND}"),
            }
        })?;
    let EncryptionConfiguration { api_version, kind, resources } = configuration;
    if (api_version.as_str(), kind.as_str()) != (API_VERSION, KIND) {
        return Err(format!("it must be an {KIND} of {API_VERSION}"));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (index, one) in resources.into_iter().enumerate() {
        let rule = rule(one, &format!("resources[{index}]"), &rules)?;
        rules.push(rule);
    }
    if rules.is_empty() {
        return Err("resources must not be empty".to_owned());
    }
    Ok(rules)
}

fn place_of(error: &serde_saphyr::Error) -> String {
    error.location().map_or(String::new(), |place| format!(", at line {}", place.line()))
}

fn rule(configuration: ResourceConfiguration, path: &str, others: &[Rule]) -> Result<Rule, String> {
    let ResourceConfiguration { resources, providers } = configuration;
    if resources.is_empty() || providers.is_empty() {
        return Err(format!("{path} must have resources and providers"));
    }
    let names = resources.iter().enumerate();
    let resources = names
        .map(|(index, name)| {
            resources_of(name).map_err(|why| format!("{path}.resources[{index}] {why}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    for (index, one) in resources.iter().enumerate() {
        if let Some(other) = resources[..index].iter().position(|other| one.overlaps(other)) {
            return Err(format!("{path}.resources[{index}] overlaps with resources[{other}]"));
        }
    }
    let mut all = Vec::new();
    for (index, provider) in providers.into_iter().enumerate() {
        add(provider, &format!("{path}.providers[{index}]"), others, &mut all)?;
    }
    Ok(Rule { resources, providers: all })
}

fn resources_of(name: &str) -> Result<Resources, &'static str> {
    match name.split_once('.') {
        _ if name != name.to_lowercase() => Err("must be in lower case"),
        None if name == "*" => {
            Err("must name a group: `*.` is the core group, and `*.*` is every resource")
        }
        Some(("*", "*")) => Ok(Resources::All),
        Some(("*", group)) => Ok(Resources::OfGroup(group.to_owned())),
        _ if name.contains('*') || name.contains('/') || name.is_empty() => Err(
            "must be a resource such as `llamas.farm.example.com`, or `*.` and a group, or `*.*`",
        ),
        // The name of the core group is empty.
        _ => Ok(Resources::One(name.trim_end_matches('.').to_owned())),
    }
}

/// Adds a provider: one entry for each of its keys.
fn add(
    given: ProviderConfiguration,
    path: &str,
    others: &[Rule],
    all: &mut Vec<Provider>,
) -> Result<(), String> {
    let ProviderConfiguration { aesgcm, secretbox, identity, aescbc, kms } = given;
    match (aesgcm, secretbox, identity, aescbc, kms) {
        (None, None, None, None, Some(kms)) => {
            let known = others.iter().flat_map(|rule| &rule.providers).chain(&*all);
            let known: Vec<&str> = known.filter_map(plugin_name).collect();
            let kms = kms_of(kms, &format!("{path}.kms"), &known)?;
            all.push(kms);
        }
        (None, None, Some(_), None, None) => all.push(Provider::Identity),
        (Some(keys), None, None, None, None) => {
            let path = format!("{path}.aesgcm");
            add_keys(keys, "aesgcm", &path, Cipher::aes_gcm, "16, 24 or 32", all)?;
        }
        (None, Some(keys), None, None, None) => {
            let path = format!("{path}.secretbox");
            add_keys(keys, "secretbox", &path, Cipher::secretbox, "32", all)?;
        }
        (None, None, None, _, _) => {
            return Err(format!(
                "{path} is none of the providers that are known here: aesgcm, secretbox, kms, identity"
            ));
        }
        _ => return Err(format!("{path} must be one provider")),
    }
    Ok(())
}

fn add_keys(
    Keys { keys }: Keys,
    provider: &str,
    path: &str,
    cipher: fn(&[u8]) -> Option<Cipher>,
    sizes: &str,
    all: &mut Vec<Provider>,
) -> Result<(), String> {
    if keys.is_empty() {
        return Err(format!("{path}.keys must not be empty"));
    }
    for (index, Key { name, secret }) in keys.into_iter().enumerate() {
        let path = format!("{path}.keys[{index}]");
        if name.is_empty() {
            return Err(format!("{path}.name must not be empty"));
        }
        let prefix = format!("k8s:enc:{provider}:v1:{name}:");
        let is_known =
            |one: &Provider| matches!(one, Provider::Key { prefix: known, .. } if *known == prefix);
        if all.iter().any(is_known) {
            return Err(format!("{path}.name must not be the name of another key"));
        }
        let secret = STANDARD.decode(secret.trim());
        let secret = secret.map_err(|_| format!("{path}.secret must be base64"))?;
        let cipher = cipher(&secret)
            .ok_or_else(|| format!("{path}.secret must be {sizes} bytes, in base64"))?;
        all.push(Provider::Key { prefix, cipher });
    }
    Ok(())
}

/// Creates the provider of a plugin. Its name must be unique.
fn kms_of(given: KmsConfiguration, path: &str, known: &[&str]) -> Result<Provider, String> {
    let KmsConfiguration { api_version, name, endpoint, timeout, cachesize } = given;
    if api_version.as_deref() != Some("v2") {
        return Err(format!("{path}.apiVersion must be v2"));
    }
    if cachesize.is_some() {
        return Err(format!("{path}.cachesize must not be set, because v2 does not have it"));
    }
    if name.is_empty() || name.contains(':') {
        return Err(format!("{path}.name must not be empty or contain a colon"));
    }
    if known.contains(&name.as_str()) {
        return Err(format!("{path}.name must not be the name of another plugin"));
    }
    let is_socket = endpoint.strip_prefix("unix://").is_some_and(|socket| !socket.is_empty());
    if !is_socket {
        return Err(format!("{path}.endpoint must be a Unix socket such as unix:///run/kms.sock"));
    }
    let timeout = timeout.as_deref().unwrap_or("3s").parse::<jiff::SignedDuration>().ok();
    let timeout = timeout.and_then(|timeout| Duration::try_from(timeout).ok());
    let timeout = timeout.filter(|timeout| !timeout.is_zero() && *timeout <= LONGEST_TIMEOUT);
    let timeout = timeout
        .ok_or_else(|| format!("{path}.timeout must be a duration such as 3s, at most 1m"))?;
    kms_provider(name, endpoint, timeout).map_err(|why| format!("{path}: {why}"))
}

fn plugin_name(provider: &Provider) -> Option<&str> {
    match provider {
        Provider::Identity | Provider::Key { .. } => None,
        #[cfg(feature = "kms")]
        Provider::Kms { kms, .. } => Some(kms.name()),
    }
}

#[cfg(feature = "kms")]
fn kms_provider(name: String, endpoint: String, timeout: Duration) -> Result<Provider, String> {
    let prefix = format!("k8s:enc:kms:v2:{name}:");
    let kms = super::Kms::begin(&super::kms::KmsOptions { name, endpoint, timeout })?;
    Ok(Provider::Kms { prefix, kms })
}

#[cfg(not(feature = "kms"))]
fn kms_provider(_: String, _: String, _: Duration) -> Result<Provider, String> {
    Err("this program was built without the feature kms".to_owned())
}
