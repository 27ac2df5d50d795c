//! PodSecurityConfiguration: the levels of namespaces without labels, and the exemptions.

use serde::Deserialize;

use super::policy::{Level, LevelVersion, Policy, UNRESTRICTED, level, version};

/// The configuration of the plugin. By default every Pod is allowed, and there are no exemptions.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(super) defaults: Policy,
    pub(super) exemptions: Exemptions,
}

/// The exemptions from all levels.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exemptions {
    /// Users that may create any Pod.
    pub usernames: Vec<String>,
    /// Namespaces that may contain any Pod.
    pub namespaces: Vec<String>,
    /// RuntimeClasses whose Pods are not restricted.
    pub runtime_classes: Vec<String>,
}

/// The document of the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    exemptions: Exemptions,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Defaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

const API_VERSIONS: [&str; 3] = [
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];

impl Default for Configuration {
    fn default() -> Self {
        let (enforce, audit, warn) = (UNRESTRICTED, UNRESTRICTED, UNRESTRICTED);
        Self { defaults: Policy { enforce, audit, warn }, exemptions: Exemptions::default() }
    }
}

impl Configuration {
    /// Parses a configuration.
    ///
    /// # Errors
    /// The problem with the document, and the field.
    pub(crate) fn parse(document: serde_json::Value) -> Result<Self, String> {
        let document: Document =
            serde_json::from_value(document).map_err(|error| error.to_string())?;
        if !API_VERSIONS.contains(&document.api_version.as_str())
            || document.kind != "PodSecurityConfiguration"
        {
            let expected = format!("a PodSecurityConfiguration of {}", API_VERSIONS[0]);
            return Err(format!(
                "is {} {:?}, expected {expected}",
                document.kind, document.api_version
            ));
        }
        let Document { defaults, exemptions, .. } = document;
        let defaults = Policy {
            enforce: level_version("enforce", &defaults.enforce, &defaults.enforce_version)?,
            audit: level_version("audit", &defaults.audit, &defaults.audit_version)?,
            warn: level_version("warn", &defaults.warn, &defaults.warn_version)?,
        };
        Ok(Self { defaults, exemptions })
    }
}

/// The level of a mode; empty values have the defaults of kube-apiserver.
fn level_version(mode: &str, name: &str, of: &str) -> Result<LevelVersion, String> {
    let invalid = |field: String, value: &str, expected: &str| {
        format!("defaults.{field}: invalid value {value:?}: must be {expected}")
    };
    let level = match name {
        "" => Level::Privileged,
        name => level(name).ok_or_else(|| {
            invalid(mode.to_owned(), name, "one of privileged, baseline, restricted")
        })?,
    };
    let version = match of {
        "" => UNRESTRICTED.version,
        of => version(of)
            .ok_or_else(|| invalid(format!("{mode}-version"), of, "\"latest\" or \"v1.x\""))?,
    };
    Ok(LevelVersion { level, version })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(mut rest: Value) -> Result<Configuration, String> {
        rest["apiVersion"] = API_VERSIONS[0].into();
        rest["kind"] = "PodSecurityConfiguration".into();
        Configuration::parse(rest)
    }

    #[test]
    fn a_configuration_sets_default_levels_and_exemptions() {
        let configuration = parse(json!({
            "defaults": {"enforce": "baseline", "enforce-version": "v1.20", "warn": "restricted"},
            "exemptions": {"usernames": ["jane"], "runtimeClasses": ["vm"]},
        }));
        let Configuration { defaults, exemptions } = configuration.unwrap();
        let shown = [defaults.enforce, defaults.audit, defaults.warn].map(|one| one.to_string());
        assert_eq!(shown, ["baseline:v1.20", "privileged:latest", "restricted:latest"]);
        assert_eq!(exemptions.usernames, ["jane"]);
        assert_eq!(exemptions.runtime_classes, ["vm"]);
    }

    #[test]
    fn invalid_fields_are_named() {
        let error = |document| parse(document).unwrap_err();
        let level = error(json!({"defaults": {"audit": "loose"}}));
        assert!(level.starts_with("defaults.audit: invalid value \"loose\""), "{level}");
        let version = error(json!({"defaults": {"warn-version": "2"}}));
        assert!(version.starts_with("defaults.warn-version: invalid value \"2\""), "{version}");
        let unknown = error(json!({"exemptions": {"users": []}}));
        assert!(unknown.contains("unknown field `users`"), "{unknown}");
        let other = Configuration::parse(json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err();
        assert!(other.contains("expected a PodSecurityConfiguration"), "{other}");
    }
}
