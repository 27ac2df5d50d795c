//! Images of containers and volumes.

use std::sync::LazyLock;

use regex::Regex;

/// A reference with a domain: path, tag and digest.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let host = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = "[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}";
    let digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let whole = format!("^({host}/{part}(?:/{part})*)(?::({tag}))?(?:@({digest}))?$");
    Regex::new(&whole).ok()
});

/// The largest size of a name without tag and digest, in bytes.
const NAME_LIMIT: usize = 255;

/// The default pull policy of an image: `Always` for the tag `latest`, even if it is implied. An image that cannot be
/// parsed has no tag.
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    if tag(image).as_deref() == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// The tag of an image; `latest` if it has neither tag nor digest, `None` if it cannot be parsed.
fn tag(image: &str) -> Option<String> {
    let is_identifier = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if image.len() == 64 && image.bytes().all(is_identifier) {
        return None;
    }
    let (domain, rest) = split_domain(image);
    let path = rest.split(':').next().unwrap_or_default();
    if path.to_lowercase() != path {
        return None;
    }
    let whole = format!("{domain}/{rest}");
    let found = REFERENCE.as_ref()?.captures(&whole)?;
    let part = |number| found.get(number).map(|part| part.as_str());
    let name = part(1)?;
    let path = name.get(domain.len() + 1..)?;
    if path.len() > NAME_LIMIT || part(3).is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    match (part(2), part(3)) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, Some(_)) => None,
        (None, None) => Some("latest".to_owned()),
    }
}

/// The domain of an image, and the rest of its name. An image without a domain is in Docker's registry.
fn split_domain(image: &str) -> (String, String) {
    let hub = |path: String| ("docker.io".to_owned(), path);
    match image.split_once('/') {
        None => hub(format!("library/{image}")),
        Some(("docker.io" | "index.docker.io", path)) if !path.contains('/') => {
            hub(format!("library/{path}"))
        }
        Some(("index.docker.io", path)) => hub(path.to_owned()),
        Some((first, path)) => {
            let is_domain =
                first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first;
            if is_domain { (first.to_owned(), path.to_owned()) } else { hub(image.to_owned()) }
        }
    }
}

/// Whether a digest has a known algorithm and the correct length.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    hex.len() == length && hex.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let latest = format!("a:latest@{digest}");
        for image in ["a", "a:latest", "example.com:5000/a", "Example.com/a", "a/b/c", &latest] {
            assert_eq!(default_pull_policy(image), "Always", "{image}");
        }
        let fixed = format!("a@{digest}");
        let unreadable = "0".repeat(64);
        for image in [
            "a:1",
            "example.com:5000/a:1",
            &fixed,
            "",
            "a b",
            "A",
            "a/B",
            "a@sha256:0",
            "a..b",
            "-a",
            "a:latest@sha256:0",
            &unreadable,
        ] {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
