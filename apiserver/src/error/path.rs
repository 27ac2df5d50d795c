//! Paths of fields: `spec.parts[0].name`.
//!
//! Of names that nobody has given in earnest only the beginning is said: every
//! member below repeats it.

/// So much of a member's name is said, and of a path.
const NAME_LIMIT: usize = 256;
const PATH_LIMIT: usize = 4_096;

/// The path of a member: `spec.name`.
pub fn member_path(path: &str, name: &str) -> String {
    let name = beginning(name);
    match path {
        "" => name.to_owned(),
        path if path.len() > PATH_LIMIT => path.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// The path of the value of a key: `spec.map[key]`.
pub fn key_path(path: &str, key: &str) -> String {
    if path.len() > PATH_LIMIT { path.to_owned() } else { format!("{path}[{}]", beginning(key)) }
}

fn beginning(name: &str) -> &str {
    let mut end = name.len().min(NAME_LIMIT);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_never_long() {
        assert_eq!(key_path(&member_path("spec", "map"), "a"), "spec.map[a]");
        let long = "\u{e9}".repeat(1_000);
        let mut path = String::new();
        for _ in 0..100 {
            path = key_path(&member_path(&path, &long), &long);
        }
        assert!(path.len() < PATH_LIMIT + 2 * NAME_LIMIT + 3, "{}", path.len());
    }
}
