//! AdmissionConfiguration: the file with the configuration of admission plugins.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::built_in::PodSecurityConfiguration;

/// The largest size of a file, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

const API_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    plugins: Vec<Plugin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    /// The path of a file with the configuration, relative to the file that contains this path.
    #[serde(default)]
    path: String,
    #[serde(default)]
    configuration: Option<Value>,
}

/// Reads the configuration of PodSecurity from a file.
///
/// # Errors
/// The reason for which the file cannot be read, with the file, and the plugin or the field.
pub(crate) fn read(file: &Path) -> Result<PodSecurityConfiguration, String> {
    let at = |file: &Path, why: String| format!("{}: {why}", file.display());
    let document: Document = parse(file).map_err(|why| at(file, why))?;
    let Document { api_version, kind, plugins } = document;
    if !API_VERSIONS.contains(&api_version.as_str()) || kind != "AdmissionConfiguration" {
        let expected = format!("expected an AdmissionConfiguration of {}", API_VERSIONS[0]);
        return Err(at(file, format!("is {kind} {api_version:?}, {expected}")));
    }
    let mut found = None;
    for plugin in plugins {
        let name = &plugin.name;
        if name != "PodSecurity" {
            return Err(at(file, format!("plugin {name:?} has no configuration in this server")));
        }
        if found.is_some() {
            return Err(at(file, format!("plugin {name:?} is configured twice")));
        }
        let (source, configuration) = match (plugin.configuration, plugin.path.as_str()) {
            (Some(configuration), _) => (file.to_owned(), configuration),
            (None, "") => (file.to_owned(), Value::Null),
            (None, path) => {
                let path = file.parent().unwrap_or(Path::new("")).join(path);
                let configuration = parse(&path).map_err(|why| at(&path, why))?;
                (path, configuration)
            }
        };
        if configuration.is_null() {
            continue;
        }
        let configuration = PodSecurityConfiguration::parse(configuration)
            .map_err(|why| at(&source, format!("PodSecurity: {why}")))?;
        found = Some(configuration);
    }
    Ok(found.unwrap_or_default())
}

fn parse<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > FILE_LIMIT {
        return Err(format!("must not be larger than {FILE_LIMIT} bytes"));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";

    #[test]
    fn a_plugin_is_configured_in_place_or_in_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("admission.yaml");
        let inner = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\nexemptions: {usernames: [jane]}\n";
        fs::write(directory.path().join("pods.yaml"), inner).unwrap();
        let indented = inner.replace('\n', "\n    ");
        for plugin in [
            "- {name: PodSecurity, path: pods.yaml}\n".to_owned(),
            format!("- name: PodSecurity\n  configuration:\n    {indented}\n"),
        ] {
            fs::write(&file, format!("{HEAD}{plugin}")).unwrap();
            let shown = format!("{:?}", read(&file).unwrap());
            assert!(shown.contains("jane"), "{shown}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_plugin() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("admission.yaml");
        let error = |text: String| {
            fs::write(&file, text).unwrap();
            let why = read(&file).unwrap_err();
            why.strip_prefix(&format!("{}: ", directory.path().join("").display()))
                .unwrap_or(&why)
                .to_owned()
        };
        let other = error(format!("{HEAD}- {{name: EventRateLimit, path: x}}\n"));
        assert!(other.ends_with("plugin \"EventRateLimit\" has no configuration in this server"));
        let twice = error(format!(
            "{HEAD}- {{name: PodSecurity, configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration}}}}\n- {{name: PodSecurity}}\n"
        ));
        assert!(twice.ends_with("plugin \"PodSecurity\" is configured twice"), "{twice}");
        let kind = error("apiVersion: v1\nkind: Pod\n".to_owned());
        assert!(kind.contains("expected an AdmissionConfiguration"), "{kind}");
        let missing = error(format!("{HEAD}- {{name: PodSecurity, path: gone.yaml}}\n"));
        assert!(missing.contains("gone.yaml: "), "{missing}");
    }
}
