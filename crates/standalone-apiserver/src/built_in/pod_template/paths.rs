//! Paths of files and directories.

use aggregated_apiserver::FieldError;

use crate::built_in::checks::{FieldErrors, quote};

/// Checks that a path has no element `..`.
pub(crate) fn check_backsteps(at: &str, path: &str, faults: &mut FieldErrors) {
    if path.split('/').any(|element| element == "..") {
        faults.push(FieldError::invalid(at, quote(path), "must not contain '..'"));
    }
}

/// Checks that a path is relative and has no element `..`.
pub(crate) fn check_descending(at: &str, path: &str, faults: &mut FieldErrors) {
    if path.starts_with('/') {
        faults.push(FieldError::invalid(at, quote(path), "must be a relative path"));
    }
    check_backsteps(at, path, faults);
}

/// Checks the path of a file in a volume: it must be relative, without `..`, and must not have the prefix of files that
/// a kubelet creates there.
pub(crate) fn check_local(at: &str, path: &str, faults: &mut FieldErrors) {
    check_descending(at, path, faults);
    if path.starts_with("..") && path != ".." && !path.starts_with("../") {
        faults.push(FieldError::invalid(at, quote(path), "must not start with '..'"));
    }
}

/// Checks the mode of a file.
pub(crate) fn check_mode(at: &str, mode: Option<i32>, faults: &mut FieldErrors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        faults.push(FieldError::invalid(at, mode, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths() {
        for (path, count) in
            [("a/b", 0), ("", 0), ("/a", 1), ("a/../b", 1), ("../a", 1), ("..a", 1), ("/..", 2)]
        {
            let mut faults = Vec::new();
            check_local("f", path, &mut faults);
            assert_eq!(faults.len(), count, "{path}");
        }
    }

    #[test]
    fn modes() {
        for (mode, count) in
            [(None, 0), (Some(0), 0), (Some(0o777), 0), (Some(512), 1), (Some(-1), 1)]
        {
            let mut faults = Vec::new();
            check_mode("f", mode, &mut faults);
            assert_eq!(faults.len(), count, "{mode:?}");
        }
    }
}
