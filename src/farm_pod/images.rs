//! The images of the containers of a Pod.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::view::{ContainerView, PodView};

/// The number of digits of a digest in tables.
const SHOWN_DIGITS: usize = 12;

/// The image of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The name of the container.
    pub container: String,
    /// The repository of the image, with the registry if the reference contains one.
    pub repository: String,
    /// The tag, if the reference contains one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The digest of the reference, or else of the running image, for example `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A parsed reference to an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference<'a> {
    /// The part before the tag and the digest.
    pub repository: &'a str,
    /// The tag.
    pub tag: Option<&'a str>,
    /// The digest, for example `sha256:…`.
    pub digest: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// Parses a reference.
    pub fn parse(text: &'a str) -> Self {
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest).filter(|digest| !digest.is_empty())),
            None => (text, None),
        };
        // A colon before the last slash belongs to the port of a registry.
        let name = named.rfind('/').map_or(0, |slash| slash + 1);
        match named[name..].rfind(':') {
            Some(colon) => {
                let (repository, tag) = named.split_at(name + colon);
                let tag = Some(&tag[1..]).filter(|tag| !tag.is_empty());
                Self { repository, tag, digest }
            }
            None => Self { repository: named, tag: None, digest },
        }
    }

    /// Whether the reference may resolve to another image later: it has no digest, and no tag or the tag `latest`.
    pub fn is_latest(&self) -> bool {
        self.digest.is_none() && self.tag.is_none_or(|tag| tag == "latest")
    }
}

/// Returns the images of all containers, init containers first.
pub fn images(pod: &PodView) -> Vec<Image> {
    let spec = &pod.spec;
    spec.init_containers.iter().chain(&spec.containers).map(|one| image(one, pod)).collect()
}

fn image(container: &ContainerView, pod: &PodView) -> Image {
    let asked = Reference::parse(&container.image);
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let mut of_container = statuses.filter(|status| status.name == container.name);
    let runs = of_container.next().and_then(|status| status.digest.as_deref());
    let digest = asked.digest.or(runs);
    Image {
        container: (*container.name).to_owned(),
        repository: asked.repository.to_owned(),
        tag: asked.tag.map(str::to_owned),
        digest: digest.map(str::to_owned),
    }
}

/// Formats the images without their registries, each once, for example `feeder:1.4,proxy@sha256:0123456789ab`.
pub fn cell(images: &[Image]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for image in images {
        let name = image.repository.rsplit('/').next().unwrap_or_default();
        let text = match (&image.tag, &image.digest) {
            (Some(tag), _) => format!("{name}:{tag}"),
            (None, Some(digest)) => format!("{name}@{}", shorten(digest)),
            (None, None) => name.to_owned(),
        };
        if !shown.contains(&text) {
            shown.push(text);
        }
    }
    shown.join(",")
}

fn shorten(digest: &str) -> &str {
    let digits = digest.find(':').map_or(0, |colon| colon + 1);
    digest.get(..digits + SHOWN_DIGITS).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_have_parts() {
        for (text, repository, tag, digest, is_latest) in [
            ("nginx", "nginx", None, None, true),
            ("nginx:latest", "nginx", Some("latest"), None, true),
            ("nginx:1.27", "nginx", Some("1.27"), None, false),
            ("localhost:5000/nginx", "localhost:5000/nginx", None, None, true),
            ("localhost:5000/a/b:1", "localhost:5000/a/b", Some("1"), None, false),
            ("a/b@sha256:1f", "a/b", None, Some("sha256:1f"), false),
            ("a/b:latest@sha256:1f", "a/b", Some("latest"), Some("sha256:1f"), false),
            ("", "", None, None, true),
            ("a:@", "a", None, None, true),
        ] {
            let reference = Reference::parse(text);
            assert_eq!(reference, Reference { repository, tag, digest }, "{text}");
            assert_eq!(reference.is_latest(), is_latest, "{text}");
        }
    }

    #[test]
    fn images_of_started_containers_have_a_digest() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let image_id = format!("registry.example.com/feeder@{digest}");
        let pod: PodView = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [
                    {"name": "feeder", "image": "registry.example.com/feeder:1.4"},
                    {"name": "proxy", "image": "proxy"},
                ],
                "initContainers": [{"name": "early", "image": "proxy"}],
            },
            "status": {"containerStatuses": [
                {"name": "proxy", "imageID": ""}, {"name": "feeder", "imageID": image_id},
            ]},
        }))
        .unwrap();
        let mut images = images(&pod);
        let names: Vec<&str> = images.iter().map(|image| image.container.as_str()).collect();
        assert_eq!(names, ["early", "feeder", "proxy"]);
        assert_eq!(images[1].digest.as_deref(), Some(digest));
        assert_eq!(images[2].digest, None);
        assert_eq!(cell(&images), "proxy,feeder:1.4");
        images[1].tag = None;
        assert_eq!(cell(&images[1..2]), "feeder@sha256:0123456789ab");
    }
}
