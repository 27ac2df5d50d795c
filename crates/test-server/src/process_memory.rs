//! The memory of this process, as reported by the kernel.

use std::fs;

/// A value of `/proc/self/status`, in MiB.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024
}

/// Returns the current memory of the process, and resets its peak.
pub fn begin() -> usize {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    status("VmRSS")
}

/// The peak since the last call of `begin`.
pub fn most() -> usize {
    status("VmHWM")
}
