//! The limit of open files. Every connection is an open file, and a system allows a process a thousand of them by
//! default.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The smallest limit that is enough for all connections, for the cluster and for files.
const ENOUGH: u64 = 4_096;

/// Raises the limit of open files to the largest value that the system allows, same as Go. Logs a warning if this value
/// is too small: then connections wait, including those of the front proxy.
pub(super) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return warn_of_few(limit.current);
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    warn_of_few(getrlimit(Resource::Nofile).current);
}

fn warn_of_few(limit: Option<u64>) {
    if let Some(limit) = limit.filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            limit,
            needed = ENOUGH,
            "the limit of open files is less than the connections need; raise it (ulimit -n)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_allowed_may_be_open() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
