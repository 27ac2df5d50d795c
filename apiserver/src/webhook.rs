//! Calls of webhooks: HTTPS, with bounds for what they send, how long they take, and how many there are at once.

mod call;
mod certificates;
mod lookup;
mod turns;
mod vouched_certificate;

pub use certificates::certificates;
pub use turns::Turn;
use turns::{Caller, Full, Turns};

use std::fmt;
use std::time::Duration;

use http::Uri;
use tokio::time::{Instant, timeout, timeout_at};

const PORT: u16 = 443;

/// Where a webhook is asked.
#[derive(Clone, Copy, Debug)]
pub struct Webhook<'a> {
    /// The address: `https://host:port/path`.
    pub url: &'a str,
    /// Who vouches for it, as PEM; those whom the system trusts, if nothing is said.
    pub ca_bundle: Option<&'a [u8]>,
}

impl Webhook<'_> {
    /// The program that is asked, whatever its path: `host:port`.
    pub fn address(&self) -> String {
        let uri = self.url.parse::<Uri>().unwrap_or_default();
        let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16());
        format!("{}:{}", host.to_ascii_lowercase(), port.unwrap_or(PORT))
    }

    /// Where it is asked, with the time that it has. Its path is cleaned as kube-apiserver's client does: envtest
    /// names `https://host:port//path`, which servers in Go would redirect.
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

/// The calls of webhooks that ask the same sort of question. They are bounded together, so that a silent webhook leaves
/// turns to others.
#[derive(Debug)]
pub struct Calls {
    turns: Turns,
    reading: Turns,
}

impl Calls {
    /// The limits of concurrent calls, of those of one webhook, and of large responses that are read at a time: each may use
    /// as much memory as one object.
    pub const fn new(calls: usize, of_one: usize, answers_read: usize) -> Self {
        // Of the answers of one webhook a part is read at once, whatever the number of its calls.
        let reading = answers_read / 4;
        Self { turns: Turns::new(calls, of_one), reading: Turns::new(answers_read, reading) }
    }

    /// Waits for a turn of the program at this address, for this user. Waiting is no failure of the webhook, whose time
    /// begins when it is called.
    ///
    /// # Errors
    /// When there is none within this time: the webhook was not called.
    pub async fn turn<'a>(
        &'a self,
        address: &'a str,
        user: &'a str,
        time: Duration,
    ) -> Result<Turn<'a>, Busy> {
        let caller = Caller { webhook: address, user };
        match timeout(time, self.turns.take(caller)).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(Full)) => Err(Busy(format!("too many calls of {address} wait for a turn"))),
            Err(_) => {
                let seconds = time.as_secs();
                Err(Busy(format!("other calls of {address} take long: no turn within {seconds}s")))
            }
        }
    }

    /// Sends a body to a webhook whose turn it is, and reads the response. The time of the webhook does not include
    /// the wait for the turn to read a large response.
    ///
    /// # Errors
    /// When the webhook fails, or this server cannot call it.
    pub async fn post(
        &self,
        webhook: Webhook<'_>,
        body: String,
        time: Duration,
        turn: &Turn<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let late = || {
            let url = webhook.asked_url(time);
            CallError::Failed(format!("Post \"{url}\": context deadline exceeded"))
        };
        let mut deadline = Instant::now() + time;
        let called = timeout_at(deadline, call::call(webhook, body, time)).await;
        let mut response = called.unwrap_or_else(|_| Err(late()))?;
        if timeout_at(deadline, response.read_small()).await.unwrap_or_else(|_| Err(late()))? {
            return response.finish();
        }
        let (caller, waits) = (turn.caller(), Instant::now());
        let busy = || Busy(format!("other responses of {} are read", caller.webhook));
        let reading = timeout(time, self.reading.take(caller)).await;
        let _reading = reading.map_err(|_| busy())?.map_err(|Full| busy())?;
        deadline += waits.elapsed();
        timeout_at(deadline, response.read_rest()).await.unwrap_or_else(|_| Err(late()))?;
        response.finish()
    }
}

/// This server has no capacity to call a webhook: why, in words. The webhook was not called, or its response was not
/// read, so this is no failure of the webhook.
#[derive(Debug)]
pub struct Busy(String);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub enum CallError {
    /// The webhook cannot be reached, does not respond in time, or responds with an error: why, in Go's words where they
    /// are known.
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
    use super::*;

    #[test]
    fn a_program_is_known_by_host_and_port_whatever_its_path() {
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
}
