//! `/healthz`, `/livez` and `/readyz`.
//!
//! Liveness depends on nothing, because a restart repairs no cluster. Readiness depends on everything that every
//! request needs. It does not depend on computed kinds, because an unready server blocks the deletion of namespaces for
//! all clients.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::hooks::UserCheck;
use crate::storage::Store;
use crate::watch_cache::SourceState;

/// The endpoints, without `/`.
pub(super) const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];
/// The names of the checks that every server has, besides those of sources, in their order.
pub(super) const OWN_CHECKS: [&str; 6] =
    ["ping", "authentication", "serving-certificate", "start", "store", "shutdown"];
/// The prefix of the names of the checks of sources.
pub(super) const SOURCE_CHECK: &str = "source-";

/// Whether a path is one of the endpoints.
pub(super) fn is_endpoint(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|name| ENDPOINTS.contains(&name))
}

/// The health of the server.
#[derive(Clone)]
pub(super) struct Health {
    trusted: watch::Receiver<bool>,
    certificate: watch::Receiver<bool>,
    /// Whether the code that starts the server has no more to do first.
    started: watch::Receiver<bool>,
    /// The store of objects.
    store: Arc<dyn Store>,
    closing: CancellationToken,
    shutting_down: Arc<AtomicBool>,
    /// The checks that the program has added.
    added: Arc<[UserCheck]>,
}

/// One check and its result.
struct Check {
    name: Cow<'static, str>,
    outcome: Result<(), Cow<'static, str>>,
    /// Whether the server is healthy even if this check fails.
    only_tells: bool,
}

impl Check {
    fn new(name: &'static str, is_well: bool, why: &'static str) -> Self {
        let outcome = if is_well { Ok(()) } else { Err(why.into()) };
        Self { name: name.into(), outcome, only_tells: false }
    }

    /// Whether objects can be read and written. Once the objects have been read, an unavailable store does not make the
    /// server unready: no other replica has another store, and discovery continues to work.
    fn of_store(store: &dyn Store) -> Self {
        let only_tells = store.failure().is_none() && store.is_known();
        let wrong = store.failure().or_else(|| store.trouble());
        Self {
            name: "store".into(),
            outcome: wrong.map_or(Ok(()), |why| Err(why.into())),
            only_tells,
        }
    }

    /// A check that the program has added.
    fn of_program(check: &UserCheck, is_called: bool) -> Self {
        let outcome = if is_called { check.outcome().map_err(Cow::Owned) } else { Ok(()) };
        Self { name: check.name.to_string().into(), outcome, only_tells: false }
    }

    /// Whether a source of computed kinds is synced. A source does not make the server unready, because an unready
    /// server blocks all clients.
    fn of_source(source: SourceState) -> Self {
        let SourceState {
            resource, is_synced, watch_error, excess, unreadable, is_left_out, ..
        } = source;
        let outcome = match watch_error {
            _ if let Some(excess) = excess => {
                Err(format!("{resource} are not kept: {excess}").into())
            }
            None if is_synced && unreadable > 0 => {
                Err(format!("{unreadable} of {resource} cannot be read: the log names them").into())
            }
            None if is_synced => Ok(()),
            None => Err(format!("{resource} have not been listed yet").into()),
            Some(why) if is_left_out == Some(true) => {
                Err(format!("{resource} are left out: {why}").into())
            }
            Some(why) if is_synced => {
                Err(format!("{resource} are shown as they were last seen: {why}").into())
            }
            Some(why) => Err(format!("{resource} cannot be listed: {why}").into()),
        };
        Self { name: format!("{SOURCE_CHECK}{resource}").into(), outcome, only_tells: true }
    }
}

impl Health {
    pub(super) fn new(
        (trusted, certificate): (watch::Receiver<bool>, watch::Receiver<bool>),
        started: watch::Receiver<bool>,
        store: Arc<dyn Store>,
        closing: CancellationToken,
    ) -> Self {
        let (shutting_down, added) = (Arc::default(), Arc::default());
        Self { trusted, certificate, started, store, closing, shutting_down, added }
    }

    /// Adds checks of the program.
    pub(super) fn with_checks(self, added: Vec<UserCheck>) -> Self {
        Self { added: added.into(), ..self }
    }

    /// Makes `/readyz` fail.
    pub(super) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    /// The checks of an endpoint. Only checks of the program with these names are called; the others succeed.
    fn checks(
        &self,
        endpoint: &str,
        sources: Vec<SourceState>,
        is_called: impl Fn(&str) -> bool,
    ) -> Vec<Check> {
        let mut checks = vec![Check::new("ping", true, "")];
        if endpoint == "readyz" {
            let is_open =
                !self.shutting_down.load(Ordering::Relaxed) && !self.closing.is_cancelled();
            let trusted = *self.trusted.borrow();
            let why = "the CAs of callers are not known yet";
            checks.push(Check::new("authentication", trusted, why));
            let certificate = *self.certificate.borrow();
            let why = "the Secret has not been read yet";
            checks.push(Check::new("serving-certificate", certificate, why));
            let why = "the server is still being filled";
            checks.push(Check::new("start", *self.started.borrow(), why));
            checks.push(Check::of_store(&*self.store));
            checks.extend(sources.into_iter().map(Check::of_source));
            checks.push(Check::new("shutdown", is_open, "process is shutting down"));
        }
        let added = self.added.iter().filter(|check| check.is_liveness || endpoint == "readyz");
        checks.extend(added.map(|check| Check::of_program(check, is_called(&check.name))));
        checks
    }

    /// The response of an endpoint. Checks of sources are listed and have no effect on its status.
    pub(super) fn answer<B: From<String>>(
        &self,
        endpoint: &str,
        query: &str,
        sources: Vec<SourceState>,
    ) -> Response<B> {
        let mut lines = String::new();
        let mut failed = false;
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let is_excluded = |name: &str| pairs.iter().any(|(k, v)| k == "exclude" && v == name);
        let checks = self.checks(endpoint, sources, |name| !is_excluded(name));
        for Check { name, outcome, only_tells } in checks {
            let _ = match outcome {
                _ if is_excluded(&name) => writeln!(lines, "[+]{name} excluded: ok"),
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(why) => {
                    failed |= !only_tells;
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

    /// The response of one check, with its error.
    pub(super) fn answer_one<B: From<String>>(
        &self,
        endpoint: &str,
        check: &str,
        sources: Vec<SourceState>,
    ) -> Response<B> {
        let checks = self.checks(endpoint, sources, |name| name == check).into_iter();
        match checks.map(|check| (check.name, check.outcome)).find(|(name, _)| *name == check) {
            Some((name, Ok(()))) if name == "store" => {
                text(StatusCode::OK, format!("ok: {}", self.store.describe()))
            }
            Some((_, Ok(()))) => text(StatusCode::OK, "ok".to_owned()),
            Some((_, Err(why))) => {
                let why = format!("internal server error: {why}");
                text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        }
    }
}

fn text<B: From<String>>(status: StatusCode, body: String) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::storage::{MEMORY_STORE_LIMIT, MemoryStore, NamespaceLimit, RevisionSequencer};

    fn answer(health: &Health, endpoint: &str, query: &str) -> (u16, String) {
        let response: Response<String> = health.answer(endpoint, query, Vec::new());
        (response.status().as_u16(), response.into_body())
    }

    #[test]
    fn health_endpoints_include_failure_reasons_only_for_single_checks() {
        let (trusted, is_trusted) = watch::channel(false);
        let is_well = watch::channel(true).1;
        let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::UNIX_EPOCH, 0));
        let store = MemoryStore::new(MEMORY_STORE_LIMIT, sequencer, NamespaceLimit::default());
        let health = Health::new(
            (is_trusted, is_well.clone()),
            is_well,
            Arc::new(store),
            CancellationToken::new(),
        );
        assert_eq!(answer(&health, "livez", ""), (200, "ok".into()));
        let failed = "[+]ping ok\n[-]authentication failed: reason withheld\n[+]serving-certificate ok\n[+]start ok\n[+]store ok\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(answer(&health, "readyz", ""), (500, failed.into()));
        let names: Vec<_> = health
            .checks("readyz", Vec::new(), |_| true)
            .into_iter()
            .map(|check| check.name)
            .collect();
        assert_eq!(names, OWN_CHECKS);
        let one: Response<String> = health.answer_one("readyz", "authentication", Vec::new());
        assert_eq!(one.into_body(), "internal server error: the CAs of callers are not known yet");
        assert_eq!(answer(&health, "readyz", "exclude=authentication"), (200, "ok".into()));
        trusted.send_replace(true);
        assert_eq!(answer(&health, "readyz", ""), (200, "ok".into()));
        let passed = "[+]ping ok\nlivez check passed\n";
        assert_eq!(answer(&health, "livez", "verbose"), (200, passed.into()));
        let source = |watch_error: Option<&str>| {
            let (resource, watch_error) = ("pods".to_owned(), watch_error.map(str::to_owned));
            vec![SourceState {
                resource,
                is_synced: false,
                watch_error,
                unseen_since: None,
                excess: None,
                unreadable: 0,
                is_left_out: None,
                is_rightly_absent: false,
            }]
        };
        let store: Response<String> = health.answer_one("readyz", "store", Vec::new());
        let state = store.body().strip_prefix("ok: memory, at revision ").unwrap();
        assert!(state.parse::<u64>().is_ok(), "{state}");
        let told: Response<String> = health.answer("readyz", "verbose", source(Some("no right")));
        assert_eq!(told.status(), StatusCode::OK, "it is not in the way of others");
        assert!(told.into_body().contains("[-]source-pods failed: reason withheld\n"));
        let one: Response<String> =
            health.answer_one("readyz", "source-pods", source(Some("no right")));
        let expected = "internal server error: pods cannot be listed: no right";
        assert_eq!((one.status().as_u16(), &**one.body()), (500, expected));
        let mut left_out = source(Some("no right"));
        left_out[0].is_left_out = Some(true);
        let one: Response<String> = health.answer_one("readyz", "source-pods", left_out);
        assert_eq!(one.into_body(), "internal server error: pods are left out: no right");
        health.shut_down();
        assert_eq!(answer(&health, "readyz", "").0, 500);
        assert_eq!(answer(&health, "healthz", "").0, 200);
    }
}
