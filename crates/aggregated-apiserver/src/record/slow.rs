//! A log line for each slow request, with the durations of its steps, like the traces of kube-apiserver.

use std::time::Duration;

use super::Record;
use crate::log_throttle::{LogThrottle, shown};

/// The duration from which on a request is slow, same as in kube-apiserver.
const SLOW: Duration = Duration::from_millis(500);
/// The limit of lines per minute. Clients can make many requests slow, by the way they send and read.
static LINES: LogThrottle = LogThrottle::at_most(30);

/// Writes the line of a completed request if it was slow.
pub(super) fn write(record: &Record) {
    if is_slow(record, record.took) {
        LINES.log(|suppressed| tracing::info!(suppressed, "{}", line(record, record.took)));
    }
}

/// Whether a request was slow. Watches and other long requests never are, because the client decides how long they last.
fn is_slow(record: &Record, took: Duration) -> bool {
    took >= SLOW && !record.is_watch() && !record.is_long_running
}

fn line(record: &Record, took: Duration) -> String {
    format!(
        "slow request: {} {} took {}ms ({}), code {}, {} bytes, audit id {:?}",
        record.method,
        shown(&record.uri),
        took.as_millis(),
        record.steps.describe(took),
        record.code,
        record.bytes,
        record.audit_id,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderValue, Request};

    use super::super::Step;
    use super::*;
    use crate::auth::Attributes;

    fn record(verb: &'static str) -> Record {
        let request = Request::get("/apis/example.com/v1/foos?limit=5").body(()).unwrap();
        let mut record = Record::unread();
        record.uri = request.into_parts().0.uri;
        record.audit_id = HeaderValue::from_static("id");
        record.attributes = Some(Arc::new(Attributes::Resource {
            verb: verb.into(),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        }));
        record
    }

    #[test]
    fn a_slow_request_is_logged_with_its_steps() {
        let mut slow = record("list");
        slow.steps.reached(Step::Authenticated, Duration::from_millis(1));
        slow.steps.reached(Step::Authorized, Duration::from_millis(601));
        slow.code = 200;
        let expected = "slow request: GET \"/apis/example.com/v1/foos?limit=5\" took 700ms (authentication 1ms, authorization 600ms, sending 99ms), code 200, 0 bytes, audit id \"id\"";
        assert_eq!(line(&slow, Duration::from_millis(700)), expected);
        assert!(is_slow(&slow, Duration::from_millis(500)));
        assert!(!is_slow(&slow, Duration::from_millis(499)));
        assert!(!is_slow(&record("watch"), Duration::from_secs(60)));
    }
}
