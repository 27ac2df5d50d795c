//! Open files: every connection is one, and a system gives a process a thousand unless it asks
//! for more.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Fewer than this many are less than all connections, the cluster's and files need.
const ENOUGH: u64 = 4_096;

/// Lets this process open as many files as the system allows it to, as Go does. Says so if
/// these are few: then connections wait, the front proxy's too.
pub(super) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return warn_of_few(limit.current);
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files cannot be raised: {error}");
    }
    warn_of_few(getrlimit(Resource::Nofile).current);
}

fn warn_of_few(limit: Option<u64>) {
    if let Some(limit) = limit.filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            "{limit} files may be open: that is less than the connections which are served need; raise the limit (ulimit -n) to {ENOUGH}"
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
