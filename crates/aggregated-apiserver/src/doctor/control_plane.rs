//! Checks of the control plane itself: whether kube-apiserver responds, its version, and its clock.

use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::finding::{Check, Finding};
use super::{Installation, text};

/// The Kubernetes release that the program is tested with, and the oldest release whose kube-apiserver has all features
/// that the program needs. Both are minor versions of 1.x.
const TESTED: u32 = 36;
const OLDEST: u32 = 30;
/// The tolerated difference between clocks, in seconds. The `Date` header has a resolution of one second, and a
/// response takes time.
const SKEW: i64 = 10;

/// Checks that kube-apiserver responds and has the aggregation layer.
pub(super) async fn is_there(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("control-plane");
    let version = match installation.cluster.look("/version").await {
        Ok(look) if look.status.is_success() => look.json,
        Ok(look) => {
            let message =
                format!("kube-apiserver refuses to report its version: {}", look.message());
            check.fault(message, "kubectl auth whoami: check which credentials are used");
            return check.done("");
        }
        Err(why) => {
            let message = format!("kube-apiserver does not respond: {why}");
            check.fault(
                message,
                "kubectl get --raw /readyz: no other check is possible until this works",
            );
            return check.done("");
        }
    };
    let release = text(&version["gitVersion"]);
    if let Some(why) = unusual(text(&version["major"]), text(&version["minor"])) {
        check.warn(
            format!("kube-apiserver is {release}: {why}"),
            format!("test with this release first, or use 1.{OLDEST} to 1.{TESTED}"),
        );
    }
    if let Ok(look) = installation.cluster.look("/apis/apiregistration.k8s.io/v1").await
        && !look.status.is_success()
    {
        check.fault(
            format!("kube-apiserver has no aggregation layer: {}", look.message()),
            "kube-apiserver must serve apiregistration.k8s.io/v1: remove it from --runtime-config",
        );
    }
    check.done(format!("kube-apiserver {release} responds"))
}

/// The reason why a release is not known to work with the program, if it is not.
fn unusual(major: &str, minor: &str) -> Option<String> {
    let digits = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>();
    match (digits(major), digits(minor)) {
        (Ok(1), Ok(minor)) if minor < OLDEST => Some(format!("it is older than 1.{OLDEST}")),
        (Ok(1), Ok(minor)) if minor > TESTED => Some(format!("1.{TESTED} is the tested release")),
        (Ok(1), Ok(_)) => None,
        _ => Some("its release is not known".to_owned()),
    }
}

/// Compares the local clock with that of kube-apiserver, because the validity of certificates is checked against the
/// local clock.
pub(super) async fn clock(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("clock");
    match installation.cluster.look("/version").await {
        Ok(look) => match skew(look.date.as_deref(), installation.clock.now()) {
            Some(seconds) if seconds.abs() > SKEW => check.warn(
                format!("this machine's clock is {} that of kube-apiserver", direction(seconds)),
                "run doctor in the Pod too (kubectl exec); synchronize the clocks of the nodes: timedatectl set-ntp true",
            ),
            Some(_) => {}
            None => check.unseen(
                "the time",
                "kube-apiserver, or a proxy in front of it, sends no Date header",
                "compare the clocks: date -u, here and on a node of the control plane",
            ),
        },
        Err(why) => check.unknown("the time", &why),
    }
    check.done(format!("differs by less than {SKEW} s from the clock of kube-apiserver"))
}

/// The number of seconds by which `now` is later than the time of a `Date` header.
pub(super) fn skew(date: Option<&str>, now: Timestamp) -> Option<i64> {
    let date = rfc2822::DateTimeParser::new().parse_timestamp(date?).ok()?;
    Some(now.as_second() - date.as_second())
}

/// Describes the difference between two clocks. Returns `None` if the difference is tolerated.
pub(super) fn difference(seconds: i64) -> Option<String> {
    (seconds.abs() > SKEW).then(|| direction(seconds))
}

fn direction(seconds: i64) -> String {
    let (seconds, direction) = (seconds.abs(), if seconds > 0 { "ahead of" } else { "behind" });
    format!("{seconds} s {direction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_known_or_not() {
        assert_eq!(unusual("1", "36"), None);
        assert_eq!(unusual("1", "30+"), None);
        assert_eq!(unusual("1", "29").unwrap(), "it is older than 1.30");
        assert_eq!(unusual("1", "37").unwrap(), "1.36 is the tested release");
        assert_eq!(unusual("2", "0").unwrap(), "its release is not known");
        assert_eq!(unusual("", "").unwrap(), "its release is not known");
    }

    #[test]
    fn clock_skew_is_measured_against_the_date_header() {
        let now: Timestamp = "2026-01-01T12:00:30Z".parse().unwrap();
        assert_eq!(skew(Some("Thu, 01 Jan 2026 12:00:00 GMT"), now), Some(30));
        assert_eq!(skew(Some("yesterday"), now), None);
        assert_eq!(difference(30).unwrap(), "30 s ahead of");
        assert_eq!(difference(-11).unwrap(), "11 s behind");
        assert_eq!(difference(10), None);
    }
}
