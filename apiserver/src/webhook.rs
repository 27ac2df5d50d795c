//! Calls of webhooks: HTTPS, with bounds for what they send, how long they take, and how many there are at once.

mod call;
mod certificates;
mod lookup;
mod turns;
mod vouched_certificate;

pub use certificates::certificates;
pub use turns::Turn;

use std::time::Duration;

use http::Uri;
use tokio::time::timeout;
use turns::Turns;

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
    /// So many calls at once, of which so many are of one webhook, and so many answers that are read at once: each may take
    /// as much memory as one object.
    pub const fn new(calls: usize, of_one: usize, answers_read: usize) -> Self {
        // Of the answers of one webhook a part is read at once, whatever the number of its calls.
        let reading = answers_read / 4;
        Self { turns: Turns::new(calls, of_one), reading: Turns::new(answers_read, reading) }
    }

    /// Waits for a turn of the program at this address. Waiting is no fault of the webhook, whose time begins when it is
    /// called.
    ///
    /// # Errors
    /// When there is none within this time: why, in words.
    pub async fn turn<'a>(&'a self, address: &'a str, time: Duration) -> Result<Turn<'a>, String> {
        timeout(time, self.turns.take(address)).await.map_err(|_| {
            let seconds = time.as_secs();
            format!("no turn within {seconds} seconds: other calls of {address} take long")
        })
    }

    /// Sends a body to a webhook whose turn it is, and reads what it answers.
    ///
    /// # Errors
    /// When it does not answer in this time, or with an error: why, in Go's words where they are known.
    pub async fn post(
        &self,
        webhook: Webhook<'_>,
        body: String,
        time: Duration,
        turn: &Turn<'_>,
    ) -> Result<Vec<u8>, String> {
        let asked = call::call(webhook, body, time, (&self.reading, turn.address()));
        timeout(time, asked).await.unwrap_or_else(|_| {
            let url = webhook.asked_url(time);
            Err(format!("Post \"{url}\": context deadline exceeded"))
        })
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
