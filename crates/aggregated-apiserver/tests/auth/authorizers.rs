//! The chain of authorizers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::auth::{
    Attributes, AuthError, Authorizer, Authorizers, Decision, authorizer_fn,
};
use aggregated_apiserver::{InProcess, User};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::Value;
use test_server::{
    admin, api_server, ask_as, permissive_cluster, request, unreachable_cluster, user,
};
use tokio::time::Instant;

use super::{Calls, FOOS, kinds};

const SECRET: &str = "s3cret";

/// The behavior of an authorizer.
#[derive(Clone, Copy)]
enum Does {
    Allow,
    Deny,
    Pass,
    Fail,
    Hang,
    Panic,
    PanicAtOnce,
}

struct Own {
    name: &'static str,
    does: Does,
    cached: Option<Duration>,
    calls: Calls,
}

impl Authorizer for Own {
    fn name(&self) -> &str {
        self.name
    }

    fn cache_ttl(&self) -> Option<Duration> {
        self.cached
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthError>> {
        self.calls.add(format!("{} {} {}", self.name, user.name, attributes.verb()));
        assert!(!matches!(self.does, Does::PanicAtOnce), "{SECRET}");
        Box::pin(async move {
            match self.does {
                Does::Allow => Ok(Decision::allow("")),
                Does::Deny => Ok(Decision::deny(format!("{} denies", self.name))),
                Does::Pass => Ok(Decision::no_opinion(format!("{} passes", self.name))),
                Does::Fail => Err(AuthError::new(SECRET)),
                Does::Hang => std::future::pending().await,
                Does::Panic | Does::PanicAtOnce => panic!("{SECRET}"),
            }
        })
    }
}

fn own(calls: &Calls, name: &'static str, does: Does) -> Own {
    Own { name, does, cached: None, calls: calls.clone() }
}

#[tokio::test]
async fn decisions_about_long_requests_are_not_cached() {
    let calls = Calls::default();
    let one = Own { cached: Some(Duration::from_secs(60)), ..own(&calls, "one", Does::Allow) };
    let chain = Authorizers::new().with(one);
    let attributes = |verb: String| {
        Attributes::from(&ResourceAttributes { verb: Some(verb), ..ResourceAttributes::default() })
    };
    let get = attributes("get".to_owned());
    let jane = user("jane");
    let groups = User { groups: vec![String::new(); 1_000_000], ..jane.clone() };
    let uid = User { uid: Some("u".repeat(20_000)), ..jane.clone() };
    for (name, user, attributes, expected) in [
        ("short", &jane, &get, 1),
        ("verb", &jane, &attributes("v".repeat(3 << 20)), 2),
        ("empty groups", &groups, &get, 2),
        ("uid", &uid, &get, 2),
    ] {
        for _ in 0..2 {
            assert!(chain.authorize(user, attributes).await.unwrap().is_allowed());
        }
        assert_eq!(calls.take().len(), expected, "{name}");
    }
}

/// A server with this chain. Its cluster allows everything.
async fn server(chain: Authorizers) -> InProcess {
    let server = api_server(kinds()).with_authorizers(chain);
    server.in_process(permissive_cluster()).await.unwrap()
}

/// Lists objects as `jane`. Returns the status and the message.
async fn list(server: &InProcess) -> (u16, String) {
    let (status, answer) = ask_as(server, user("jane"), "GET", FOOS, &Value::Null).await;
    (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_first_opinion_of_the_chain_decides() {
    let calls = Calls::default();
    let own = |name, does| own(&calls, name, does);
    for (chain, status, called) in [
        (Authorizers::new().with(own("a", Does::Allow)).with(own("b", Does::Deny)), 200, "a"),
        (Authorizers::new().with(own("a", Does::Deny)).with(own("b", Does::Allow)), 403, "a"),
        (Authorizers::new().with(own("a", Does::Pass)).with(own("b", Does::Allow)), 200, "ab"),
        (Authorizers::new().with(own("a", Does::Pass)).with(own("b", Does::Pass)), 403, "ab"),
        (Authorizers::new().with(own("a", Does::Pass)).built_in(), 200, "a"),
        (Authorizers::new().with(own("a", Does::Deny)).built_in(), 403, "a"),
        (Authorizers::new().built_in().with(own("a", Does::Deny)), 200, ""),
        (Authorizers::new().with_built_in(own("a", Does::Deny)), 403, ""),
        (Authorizers::new().built_in().with_built_in(own("a", Does::Deny)), 403, "a"),
        (Authorizers::new(), 403, ""),
    ] {
        let (answered, message) = list(&server(chain.clone()).await).await;
        assert_eq!(answered, status, "{chain:?} {message}");
        let expected: Vec<String> =
            called.chars().map(|name| format!("{name} jane list")).collect();
        assert_eq!(calls.take(), expected, "{chain:?}");
    }
}

#[tokio::test]
async fn the_reasons_of_authorizers_are_in_the_message() {
    let calls = Calls::default();
    let chain = Authorizers::new().with(own(&calls, "a", Does::Deny));
    let denied = "foos.example.com is forbidden: User \"jane\" cannot list resource \"foos\" in API group \"example.com\" in the namespace \"default\": ";
    assert_eq!(list(&server(chain).await).await, (403, format!("{denied}a denies")));
    let chain = Authorizers::new().with(own(&calls, "a", Does::Pass));
    let chain = chain.with(own(&calls, "b", Does::Pass));
    assert_eq!(list(&server(chain).await).await, (403, format!("{denied}a passes\nb passes")));
}

#[tokio::test(start_paused = true)]
async fn errors_hangs_and_panics_reject_the_request_and_end_the_chain() {
    for does in [Does::Fail, Does::Hang, Does::Panic, Does::PanicAtOnce] {
        let calls = Calls::default();
        let chain = Authorizers::new().with(own(&calls, "a", does));
        let server = server(chain.with(own(&calls, "b", Does::Allow))).await;
        let began = Instant::now();
        let (status, message) = list(&server).await;
        assert_eq!(status, 500);
        let expected = "Internal error occurred: an authorizer failed; until it decides, User \"jane\" cannot list";
        assert!(message.starts_with(expected) && !message.contains(SECRET), "{message}");
        assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
        assert_eq!(calls.take(), ["a jane list"]);
    }
}

#[tokio::test]
async fn an_error_of_the_cluster_ends_the_chain() {
    let calls = Calls::default();
    let chain = Authorizers::new().built_in().with(own(&calls, "a", Does::Allow));
    let server = api_server(kinds()).with_authorizers(chain);
    let server = server.in_process(unreachable_cluster()).await.unwrap();
    assert_eq!(list(&server).await.0, 500);
    assert!(calls.take().is_empty());
}

#[tokio::test]
async fn decisions_are_cached_only_if_the_authorizer_requests_it() {
    for (cached, expected) in [(None, 3), (Some(Duration::from_secs(60)), 1)] {
        for does in [Does::Allow, Does::Deny, Does::Pass] {
            let calls = Calls::default();
            let chain = Authorizers::new().with(Own { cached, ..own(&calls, "a", does) });
            let server = server(chain).await;
            for _ in 0..3 {
                list(&server).await;
            }
            assert_eq!(calls.take().len(), expected);
            // Another verb and another user are other questions.
            ask_as(&server, user("jane"), "GET", &format!("{FOOS}/a"), &Value::Null).await;
            ask_as(&server, user("joe"), "GET", FOOS, &Value::Null).await;
            assert_eq!(calls.take(), ["a jane get", "a joe list"]);
        }
    }
    let (calls, cached) = (Calls::default(), Some(Duration::from_secs(60)));
    let chain = Authorizers::new().with(Own { cached, ..own(&calls, "a", Does::Fail) });
    let server = server(chain).await;
    for _ in 0..2 {
        assert_eq!(list(&server).await.0, 500);
    }
    assert_eq!(calls.take().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn decisions_of_chains_are_counted() {
    let calls = Calls::default();
    for (does, result) in [(Does::Allow, "allowed"), (Does::Deny, "denied"), (Does::Hang, "error")]
    {
        let server = server(Authorizers::new().with(own(&calls, "a", does))).await;
        list(&server).await;
        let metrics = request("GET", "/metrics", "", &Value::Null);
        let metrics = server.respond(admin(), metrics).await.into_body().collect().await.unwrap();
        let metrics = String::from_utf8(metrics.to_bytes().to_vec()).unwrap();
        let expected = format!("authorization_attempts_total{{result=\"{result}\"}} ");
        assert!(metrics.contains(&expected), "{result}");
    }
}

#[tokio::test]
async fn members_of_system_masters_are_not_authorized() {
    let calls = Calls::default();
    let server = server(Authorizers::new().with(own(&calls, "a", Does::Deny))).await;
    let (status, _) = ask_as(&server, admin(), "GET", FOOS, &Value::Null).await;
    assert_eq!(status, 200);
    assert!(calls.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_an_authorizer_changes_its_decision() {
    let denies = Arc::new(AtomicBool::new(false));
    let is_denied = Arc::clone(&denies);
    let own = authorizer_fn(move |_, _| match is_denied.load(Ordering::Relaxed) {
        true => Decision::deny(""),
        false => Decision::no_opinion(""),
    });
    let allow = authorizer_fn(|_, _| Decision::allow(""));
    let server = server(Authorizers::new().with(own).with(allow)).await;
    let watch = request("GET", &format!("{FOOS}?watch=true"), "", &Value::Null);
    let watch = server.respond(user("jane"), watch).await;
    assert_eq!(watch.status(), 200);
    denies.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let _ = watch.into_body().collect().await;
    let lasted = began.elapsed().as_secs();
    assert!((180..=360).contains(&lasted), "{lasted} s");
}
