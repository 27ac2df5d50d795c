//! `/healthz`, `/livez`, `/readyz` and `/version`.
//!
//! Liveness depends on nothing: a restart mends no cluster. Readiness depends
//! on what no request can be answered without. It does not depend on what is
//! computed: an unready server blocks the deletion of namespaces for everybody.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How the server is.
#[derive(Clone)]
pub(super) struct Health {
    trusted: watch::Receiver<bool>,
    certificate: watch::Receiver<bool>,
    /// Whether who has started the server has no more to do first.
    started: watch::Receiver<bool>,
    closing: CancellationToken,
    shutting_down: Arc<AtomicBool>,
}

/// One check: what is wrong, if anything.
type Check = (&'static str, Result<(), &'static str>);

impl Health {
    pub(super) fn new(
        trusted: watch::Receiver<bool>,
        certificate: watch::Receiver<bool>,
        started: watch::Receiver<bool>,
        closing: CancellationToken,
    ) -> Self {
        Self { trusted, certificate, started, closing, shutting_down: Arc::default() }
    }

    /// Turns `/readyz` red.
    pub(super) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    fn checks(&self, endpoint: &str) -> Vec<Check> {
        let mut checks: Vec<Check> = vec![("ping", Ok(()))];
        if endpoint == "readyz" {
            let unless = |is_well: bool, why| if is_well { Ok(()) } else { Err(why) };
            let is_open =
                !self.shutting_down.load(Ordering::Relaxed) && !self.closing.is_cancelled();
            checks.push((
                "authentication",
                unless(*self.trusted.borrow(), "the CAs of callers are not known yet"),
            ));
            checks.push((
                "serving-certificate",
                unless(*self.certificate.borrow(), "the Secret has not been read yet"),
            ));
            checks.push((
                "start",
                unless(*self.started.borrow(), "the server is still being filled"),
            ));
            checks.push(("shutdown", unless(is_open, "process is shutting down")));
        }
        checks
    }

    /// The answer of an endpoint.
    pub(super) fn answer<B: From<String>>(&self, endpoint: &str, query: &str) -> Response<B> {
        let mut lines = String::new();
        let mut failed = false;
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let is_excluded = |name: &str| pairs.iter().any(|(k, v)| k == "exclude" && v == name);
        for (name, check) in self.checks(endpoint) {
            let _ = match check {
                _ if is_excluded(name) => writeln!(lines, "[+]{name} excluded: ok"),
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(why) => {
                    failed = true;
                    tracing::debug!("{endpoint}: {name}: {why}");
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        if failed {
            let _ = writeln!(lines, "{endpoint} check failed");
            return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if pairs.iter().any(|(key, _)| key == "verbose") {
            let _ = writeln!(lines, "{endpoint} check passed");
            return text(StatusCode::OK, lines);
        }
        text(StatusCode::OK, "ok".to_owned())
    }

    /// The answer of one check, which says what is wrong.
    pub(super) fn answer_one<B: From<String>>(&self, endpoint: &str, check: &str) -> Response<B> {
        match self.checks(endpoint).into_iter().find(|(name, _)| *name == check) {
            Some((_, Ok(()))) => text(StatusCode::OK, "ok".to_owned()),
            Some((_, Err(why))) => {
                let why = format!("internal server error: {why}");
                text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        }
    }
}

/// `/version`
pub(super) fn version<B: From<String>>() -> Response<B> {
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let version = json!({
        "major": env!("CARGO_PKG_VERSION_MAJOR"),
        "minor": env!("CARGO_PKG_VERSION_MINOR"),
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": platform,
    });
    let mut response = text(StatusCode::OK, format!("{version}\n"));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn text<B: From<String>>(status: StatusCode, body: String) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(health: &Health, endpoint: &str, query: &str) -> (u16, String) {
        let response: Response<String> = health.answer(endpoint, query);
        (response.status().as_u16(), response.into_body())
    }

    #[test]
    fn says_what_is_wrong_to_whom_it_may() {
        let (trusted, is_trusted) = watch::channel(false);
        let health = Health::new(
            is_trusted,
            watch::channel(true).1,
            watch::channel(true).1,
            CancellationToken::new(),
        );
        assert_eq!(answer(&health, "livez", ""), (200, "ok".into()));
        let failed = "[+]ping ok\n[-]authentication failed: reason withheld\n[+]serving-certificate ok\n[+]start ok\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(answer(&health, "readyz", ""), (500, failed.into()));
        let one: Response<String> = health.answer_one("readyz", "authentication");
        assert_eq!(one.into_body(), "internal server error: the CAs of callers are not known yet");
        assert_eq!(answer(&health, "readyz", "exclude=authentication"), (200, "ok".into()));
        trusted.send_replace(true);
        assert_eq!(answer(&health, "readyz", ""), (200, "ok".into()));
        let passed = "[+]ping ok\nlivez check passed\n";
        assert_eq!(answer(&health, "livez", "verbose"), (200, passed.into()));
        health.shut_down();
        assert_eq!(answer(&health, "readyz", "").0, 500);
        assert_eq!(answer(&health, "healthz", "").0, 200);
    }
}
