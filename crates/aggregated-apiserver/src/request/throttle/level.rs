//! Priority levels: each class of clients has its own slots, so that it does not wait for another class.

use crate::user::User;

/// A class of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Components that the cluster depends on: controllers of the control plane, nodes.
    System,
    /// Human users, and programs with the credentials of one.
    People,
    /// Programs in the cluster, each with its service account.
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
