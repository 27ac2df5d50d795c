//! What strategic merge patches know of the types of a kind: which lists are
//! merged, and by what.

use std::collections::HashMap;

/// How the members of types are merged.
#[derive(Debug, Default)]
pub struct MergeKeys {
    types: HashMap<String, HashMap<String, MergeField>>,
}

/// How one member is merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeField {
    /// The type of what is in it, or of its items, if anything is known of it.
    pub of: Option<String>,
    /// How a list is merged.
    pub list: ListMerge,
    /// Whether a patch says which members of it stay.
    pub retain_keys: bool,
}

/// How a list is merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListMerge {
    /// It is replaced.
    #[default]
    Replace,
    /// Items that are not in it are added.
    Union,
    /// Items in which this member is equal are merged, others added.
    By(String),
}

impl MergeKeys {
    /// Reads a table: a line is a type, a field, `of` the type that is in it,
    /// `by` the key of its items or `union`, and `retainKeys`.
    ///
    /// # Errors
    /// The line that says something else.
    pub fn parse(table: &str) -> Result<Self, String> {
        let mut types: HashMap<String, HashMap<String, MergeField>> = HashMap::new();
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fault = || format!("no line of merge keys: {line:?}");
            let mut words = line.split(' ');
            let name = words.next().ok_or_else(fault)?;
            let field = words.next().ok_or_else(fault)?;
            let mut how = MergeField::default();
            while let Some(word) = words.next() {
                match word {
                    "of" => how.of = Some(words.next().ok_or_else(fault)?.to_owned()),
                    "by" => how.list = ListMerge::By(words.next().ok_or_else(fault)?.to_owned()),
                    "union" => how.list = ListMerge::Union,
                    "retainKeys" => how.retain_keys = true,
                    _ => return Err(fault()),
                }
            }
            types.entry(name.to_owned()).or_default().insert(field.to_owned(), how);
        }
        Ok(Self { types })
    }

    /// How a member of a type is merged.
    pub fn field(&self, of: Option<&str>, name: &str) -> Option<&MergeField> {
        self.types.get(of?)?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let keys = MergeKeys::parse("# words\nPod spec of PodSpec\nPodSpec volumes of Volume by name retainKeys\nPodSpec names union\n").unwrap();
        assert_eq!(keys.field(Some("Pod"), "spec").unwrap().of.as_deref(), Some("PodSpec"));
        let volumes = keys.field(Some("PodSpec"), "volumes").unwrap();
        assert_eq!((&volumes.list, volumes.retain_keys), (&ListMerge::By("name".to_owned()), true));
        assert_eq!(keys.field(Some("PodSpec"), "names").unwrap().list, ListMerge::Union);
        assert!(keys.field(None, "x").is_none() && keys.field(Some("Pod"), "x").is_none());
        assert_eq!(
            MergeKeys::parse("Pod spec as PodSpec").unwrap_err(),
            "no line of merge keys: \"Pod spec as PodSpec\""
        );
    }
}
