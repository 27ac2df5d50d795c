//! What this process takes, as the kernel says it.

use std::fs;

/// A number of `/proc/self/status`, in MiB.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024
}

/// What the process takes now; from now on the most that it takes is measured anew.
pub fn begin() -> usize {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    status("VmRSS")
}

/// The most that it took since.
pub fn most() -> usize {
    status("VmHWM")
}
