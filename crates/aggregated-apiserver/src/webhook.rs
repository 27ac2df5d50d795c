//! Calls of webhooks over HTTPS, with limits on the size of responses, the duration, and the number of concurrent
//! calls.

mod call;
mod call_limiter;
mod call_time;
mod certificates;
mod lookup;
mod webhook_verifier;

use call::Call;
use call_limiter::{CallLimiter, Caller, Full};
use call_time::{CallTime, Over};
pub use certificates::certificates;

use std::fmt;
use std::time::Duration;

use http::Uri;

const PORT: u16 = 443;

/// The endpoint of a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Webhook<'a> {
    /// The URL: `https://host:port/path`.
    pub url: &'a str,
    /// The CA bundle as PEM; the system's trust store if it is missing.
    pub ca_bundle: Option<&'a [u8]>,
}

impl Webhook<'_> {
    /// The address of the program, without the path: `host:port`.
    pub fn address(&self) -> String {
        let uri = self.url.parse::<Uri>().unwrap_or_default();
        let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16());
        format!("{}:{}", host.to_ascii_lowercase(), port.unwrap_or(PORT))
    }

    /// The URL of a call, with the timeout of the call. The path is cleaned, same as in kube-apiserver's client,
    /// because servers in Go would redirect paths such as envtest's `https://host:port//path`.
    fn asked_url(&self, time: Duration) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("https", self.url));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut segments = Vec::new();
        for segment in path.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                segment => segments.push(segment),
            }
        }
        let (path, seconds) = (segments.join("/"), time.as_secs());
        format!("{scheme}://{authority}/{path}?timeout={seconds}s")
    }
}

/// The calls of webhooks for one purpose. They share limits, so that a slow webhook leaves permits to other webhooks.
#[derive(Debug)]
pub struct Calls {
    turns: CallLimiter,
    reading: CallLimiter,
}

impl Calls {
    /// Creates limits for concurrent calls, for concurrent calls of one webhook, and for large responses that are read
    /// concurrently. Each large response may use as much memory as one object.
    pub fn new(calls: usize, of_one: usize, answers_read: usize) -> Self {
        // The responses of one webhook that are read concurrently are limited, too, regardless of the number of its
        // calls.
        let reading = answers_read / 4;
        Self {
            turns: CallLimiter::new(calls, of_one),
            reading: CallLimiter::new(answers_read, reading),
        }
    }

    /// Waits for a turn, the permit for a call of the webhook at this address by this user. The time limit of the call
    /// starts now and includes the wait.
    ///
    /// # Errors
    /// The reason, if there is no turn within the time. The webhook was not called.
    pub async fn turn<'a>(
        &'a self,
        address: &'a str,
        user: &'a str,
        time: Duration,
    ) -> Result<Turn<'a>, Busy> {
        let time = CallTime::starting(time);
        let caller = Caller { webhook: address, user };
        match time.queue(self.turns.take(caller)).await {
            Ok(Ok(turn)) => Ok(Turn { turn, time }),
            Ok(Err(Full)) => Err(Busy(format!("too many calls of {address} wait for a turn"))),
            Err(Over) => {
                let seconds = time.total().as_secs();
                Err(Busy(format!("other calls of {address} take long: no turn within {seconds}s")))
            }
        }
    }

    /// Sends a body to a webhook that has a turn, and reads the response, within the time of the turn.
    ///
    /// # Errors
    /// The reason, if the webhook fails or this server cannot call it. If queues of this server have used the time of
    /// the call, the webhook has not failed.
    pub async fn post(
        &self,
        webhook: Webhook<'_>,
        body: String,
        turn: &Turn<'_>,
    ) -> Result<Vec<u8>, CallError> {
        self.send(&Call::post(webhook, turn.time.total())?, Some(body), turn).await
    }

    /// Gets the document at exactly the URL, with a turn and within its time. Redirects are not followed.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use aggregated_apiserver::webhooks::{Webhook, WebhookCallError, WebhookCalls};
    ///
    /// # async fn get() -> Result<Vec<u8>, WebhookCallError> {
    /// let calls = WebhookCalls::new(8, 2, 4);
    /// let webhook = Webhook { url: "https://issuer.example.com/keys", ca_bundle: None };
    /// let address = webhook.address();
    /// let turn = calls.turn(&address, "system:apiserver", Duration::from_secs(10)).await?;
    /// calls.get(webhook, &turn).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`post`](Self::post).
    pub async fn get(&self, webhook: Webhook<'_>, turn: &Turn<'_>) -> Result<Vec<u8>, CallError> {
        self.send(&Call::get(webhook)?, None, turn).await
    }

    async fn send(
        &self,
        call: &Call,
        body: Option<String>,
        Turn { turn, time }: &Turn<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let late = |Over| call.late(time);
        let addresses = call.addresses(time).await?;
        let mut response = time.limit(call.send(&addresses, body)).await.map_err(late)??;
        if time.limit(response.read_small()).await.map_err(late)?? {
            return response.finish();
        }
        let caller = turn.caller();
        let reading = time.queue(self.reading.take(caller)).await.map_err(|Over| Full).flatten();
        let busy = |Full| Busy(format!("other responses of {} are read", caller.webhook));
        let _reading = reading.map_err(busy)?;
        time.limit(response.read_rest()).await.map_err(late)??;
        response.finish()
    }
}

/// A turn: the permit for one call, with the time limit of the call. Dropping the turn releases the permit for another
/// call.
#[derive(Debug)]
pub struct Turn<'a> {
    turn: call_limiter::Turn<'a>,
    time: CallTime,
}

/// The reason for which this server has no capacity to call a webhook. The webhook was not called, or its response was
/// not read, so the webhook has not failed.
#[derive(Clone, Debug)]
pub struct Busy(String);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason for which a call has no result.
#[derive(Debug)]
pub enum CallError {
    /// The webhook cannot be reached, does not respond in time, or responds with an error. The message is that of Go,
    /// where Go has one.
    Failed(String),
    /// This server has no capacity for the call.
    Busy(Busy),
}

impl From<Busy> for CallError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_webhook_address_is_the_host_and_port_of_its_url() {
        for (url, address) in [
            ("https://Hooks.example.com/a", "hooks.example.com:443"),
            ("https://hooks.example.com:443/b?c=d", "hooks.example.com:443"),
            ("https://hooks.example.com:8443", "hooks.example.com:8443"),
            ("https://[::1]:8443/x", "[::1]:8443"),
        ] {
            assert_eq!(Webhook { url, ca_bundle: None }.address(), address, "{url}");
        }
    }
    #[test]
    fn paths_are_cleaned() {
        for (url, asked) in [
            ("https://a:1//failing", "https://a:1/failing?timeout=3s"),
            ("https://a", "https://a/?timeout=3s"),
            ("https://a/", "https://a/?timeout=3s"),
            ("https://[::1]:1/./x/../../y//z/", "https://[::1]:1/y/z?timeout=3s"),
        ] {
            let webhook = Webhook { url, ca_bundle: None };
            assert_eq!(webhook.asked_url(Duration::from_secs(3)), asked);
        }
    }

    /// Calls a program that accepts connections but never responds. Returns the result and the duration of the call.
    async fn call_of_a_silent_webhook(
        calls: &Calls,
        user: &str,
    ) -> (Result<Vec<u8>, CallError>, Duration) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let began = Instant::now();
        let turn = calls.turn("a", user, Duration::from_secs(2)).await.unwrap();
        let webhook = Webhook { url: &url, ca_bundle: None };
        (calls.post(webhook, String::new(), &turn).await, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_call_fails_at_its_timeout() {
        let calls = Calls::new(8, 4, 4);
        let (answered, took) = call_of_a_silent_webhook(&calls, "jane").await;
        assert_eq!(took.as_secs(), 2);
        let Err(CallError::Failed(why)) = answered else { panic!("{answered:?}") };
        assert!(why.ends_with("context deadline exceeded"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_call_delayed_by_the_queue_is_reported_as_busy() {
        let calls = Calls::new(8, 1, 4);
        let held = calls.turn("a", "eve", Duration::from_secs(2)).await.unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        };
        let jane = call_of_a_silent_webhook(&calls, "jane");
        let ((answered, took), ()) = futures::future::join(jane, release).await;
        assert_eq!(took.as_secs(), 2, "the wait is a part of the time of the call");
        let Err(CallError::Busy(why)) = answered else { panic!("{answered:?}") };
        assert!(why.to_string().contains(" of its 2000 ms in a queue"), "{why}");
    }
}
