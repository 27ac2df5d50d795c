//! The user of a request.

use std::collections::BTreeMap;

/// The group of authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of users without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of users without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group that is allowed everything.
pub const MASTERS: &str = "system:masters";

/// The user name of a controller manager without service accounts.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The group of the service accounts in the namespace of the control plane.
const SYSTEM_ACCOUNTS: &str = "system:serviceaccounts:kube-system";

/// A user, with the attributes from authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name: `jane` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// The uid, if the authenticator knows one.
    pub uid: Option<String>,
    /// The groups, in the order of the authenticator.
    pub groups: Vec<String>,
    /// Further attributes, by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of requests without credentials.
    pub(crate) fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the user has no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Adds the group `system:authenticated`, unless the user is anonymous or a group states whether it is
    /// authenticated.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        let decided =
            self.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
        if !self.is_anonymous() && !decided {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The memory of the user, in bytes.
    pub(crate) fn size(&self) -> usize {
        const TEXT: usize = size_of::<String>();
        let of_text = |text: &String| TEXT + text.len();
        let of_list = |texts: &[String]| texts.iter().map(of_text).sum::<usize>();
        let extra = self.extra.iter().map(|(key, values)| of_text(key) + of_list(values));
        let uid = self.uid.as_ref().map_or(0, of_text);
        self.name.len() + uid + of_list(&self.groups) + extra.sum::<usize>()
    }

    /// Whether the user is part of the control plane: it collects garbage, empties namespaces, or counts usage. No
    /// object may be hidden from it, because it treats a missing object as deleted.
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
