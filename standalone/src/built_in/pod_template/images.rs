//! Images of containers and volumes.

/// The default pull policy of an image: always, if its name may lead to another image by
/// now.
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    // kube-apiserver cannot parse such a name, and its default is this one then.
    let repository = image.split(['@', ':']).next().unwrap_or_default();
    let has_capitals = repository.rsplit_once('/').map_or(repository, |(_, last)| last);
    let has_capitals = has_capitals.contains(|c: char| c.is_ascii_uppercase());
    if image.is_empty() || image.contains(char::is_whitespace) || has_capitals {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    let (name, digest) =
        name.split_once('@').map_or((name, None), |(name, digest)| (name, Some(digest)));
    // A tag counts more than a digest.
    let is_fixed = match name.split_once(':') {
        Some((_, tag)) => tag != "latest",
        None => digest.is_some(),
    };
    if is_fixed { "IfNotPresent" } else { "Always" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_another_image_by_now_is_always_pulled() {
        for image in ["a", "a:latest", "example.com:5000/a", "a:latest@sha256:0"] {
            assert_eq!(default_pull_policy(image), "Always", "{image}");
        }
        for image in ["a:1", "example.com:5000/a:1", "a@sha256:0", "", "a b", "A"] {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
        assert_eq!(default_pull_policy("Example.com/a"), "Always");
    }
}
