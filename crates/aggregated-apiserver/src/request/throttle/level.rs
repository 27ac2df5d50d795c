//! Levels of clients. Each level has its own slots, so that no level waits for another.

use crate::user::User;

/// The level of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Controllers of the control plane and nodes.
    System,
    /// Users, and programs that act as a user.
    People,
    /// Programs in the cluster, each with its ServiceAccount.
    Workloads,
    /// Clients without credentials.
    Strangers,
}

impl Level {
    pub(super) const ALL: [Self; 4] =
        [Self::System, Self::People, Self::Workloads, Self::Strangers];

    /// The percentage of slots that belong to the level.
    pub(super) fn percent(self) -> usize {
        match self {
            Self::System | Self::People => 25,
            Self::Workloads => 45,
            Self::Strangers => 5,
        }
    }

    pub(super) fn of(user: &User) -> Self {
        const ACCOUNTS: &str = "system:serviceaccount:";
        if user.is_anonymous() {
            return Self::Strangers;
        }
        match user.name.strip_prefix(ACCOUNTS) {
            Some(account) if account.starts_with("kube-system:") => Self::System,
            Some(_) => Self::Workloads,
            None if user.name.starts_with("system:") => Self::System,
            None => Self::People,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_levels_are_assigned_by_user_name() {
        for (name, level) in [
            ("system:kube-controller-manager", Level::System),
            ("system:node:a", Level::System),
            ("system:serviceaccount:kube-system:namespace-controller", Level::System),
            ("system:serviceaccount:farm:collector", Level::Workloads),
            ("system:anonymous", Level::Strangers),
            ("jane", Level::People),
        ] {
            let user = User { name: name.to_owned(), ..User::default() };
            assert_eq!(Level::of(&user), level, "{name}");
        }
        assert_eq!(Level::ALL.map(Level::percent).iter().sum::<usize>(), 100);
    }
}
