//! The user of a request.

use std::collections::BTreeMap;

/// The group of every caller that was recognised.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of callers that gave no credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of callers that gave no credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";

/// The name of a controller manager that does not use service accounts.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The group of the service accounts of the namespace that holds the control plane.
const SYSTEM_ACCOUNTS: &str = "system:serviceaccounts:kube-system";

/// A caller, as authentication found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name, as `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// The uid, where the authenticator knows one.
    pub uid: Option<String>,
    /// The groups, in the order in which they were given.
    pub groups: Vec<String>,
    /// Further attributes, by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The caller without credentials.
    pub(crate) fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the caller has no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// The same user as a member of `system:authenticated`, unless it is known
    /// to be authenticated or not.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        let decided =
            self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if !self.is_anonymous() && !decided {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// What it takes, in bytes of memory.
    pub(crate) fn size(&self) -> usize {
        const TEXT: usize = size_of::<String>();
        let of_text = |text: &String| TEXT + text.len();
        let of_list = |texts: &[String]| texts.iter().map(of_text).sum::<usize>();
        let extra = self.extra.iter().map(|(key, values)| of_text(key) + of_list(values));
        self.name.len() + of_list(&self.groups) + extra.sum::<usize>()
    }

    /// Whether the user keeps the cluster in order: collects garbage, empties namespaces, counts. Nothing may
    /// be hidden from it, because what it does not find it takes for gone.
    pub(crate) fn is_of_control_plane(&self) -> bool {
        let is_in = |wanted: &str| self.groups.iter().any(|group| group == wanted);
        self.is_master() || self.name == CONTROLLER_MANAGER || is_in(SYSTEM_ACCOUNTS)
    }

    /// Whether the user is exempt from authorization.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_groups_is_authenticated() {
        let user = User { name: "system:aggregator".to_owned(), ..User::default() };
        assert_eq!(user.authenticated().groups, [AUTHENTICATED]);
        assert_eq!(User::anonymous().authenticated().groups, [UNAUTHENTICATED]);
    }
}
