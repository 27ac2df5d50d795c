//! Reads the file of an AuthenticationConfiguration again when it has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{AuthenticationConfig, JwtAuthenticators, read};

/// The interval at which the file is read.
const REREAD_EVERY: Duration = Duration::from_secs(10);
/// The longest time until the discovery documents of all new issuers are known, same as in kube-apiserver.
const INITIALIZED_WITHIN: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_millis(200);

/// The reason for which a changed file is not used.
#[derive(Debug)]
enum Unusable {
    /// The content is invalid, so it is not read again until it changes.
    Invalid(String),
    /// The problem may be temporary.
    Retry(String),
}

impl JwtAuthenticators {
    /// Reads the file every ten seconds, and replaces the issuers when it has changed. An invalid file is logged, and the
    /// previous configuration stays.
    pub(crate) async fn follow(self: Arc<Self>, file: PathBuf, mut text: String) {
        loop {
            sleep(REREAD_EVERY).await;
            let path = file.clone();
            let read = tokio::task::spawn_blocking(move || read(&path)).await;
            let found = read.unwrap_or_else(|error| Err(error.to_string()));
            let file = file.display();
            match found {
                Ok(found) if found == text => {}
                Ok(found) => match self.reload(&found).await {
                    Ok(()) => {
                        text = found;
                        tracing::info!(%file, "reloaded the authentication configuration");
                    }
                    Err(Unusable::Invalid(error)) => {
                        text = found;
                        tracing::error!(%file, error, "the previous authentication configuration stays");
                    }
                    Err(Unusable::Retry(error)) => {
                        tracing::error!(%file, error, "the previous authentication configuration stays");
                    }
                },
                Err(error) => {
                    tracing::error!(%file, error, "cannot read the authentication configuration");
                }
            }
        }
    }

    async fn reload(&self, text: &str) -> Result<(), Unusable> {
        let config = AuthenticationConfig::parse(text).map_err(Unusable::Invalid)?;
        if config.anonymous != self.anonymous {
            let why = "anonymous: Forbidden: changed from initial configuration file";
            return Err(Unusable::Invalid(why.to_owned()));
        }
        let issuers = self.start(config);
        let deadline = Instant::now() + INITIALIZED_WITHIN;
        while let Some(issuer) = issuers.iter().find(|issuer| !issuer.is_initialized()) {
            if Instant::now() > deadline {
                let url = issuer.url();
                return Err(Unusable::Retry(format!("the issuer {url:?} is not initialized")));
            }
            sleep(ASK).await;
        }
        self.set_issuers(issuers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aggregated_apiserver::auth::Authenticators;
    use jiff::Timestamp;

    use super::*;
    use crate::controllers::definitions::Now;

    const HEAD: &str =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    /// An issuer that does not respond.
    const ISSUER: &str = "jwt: [{issuer: {url: 'https://127.0.0.1:1', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n";

    fn started(fields: &str) -> Arc<JwtAuthenticators> {
        let now: Now = Arc::new(Timestamp::now);
        let config = AuthenticationConfig::parse(&format!("{HEAD}{fields}")).unwrap();
        config.add_to(Authenticators::new(), &now).1
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_usable_document_replaces_the_issuers() {
        let jwt = started(ISSUER);
        let reload = async |fields: &str| jwt.reload(&format!("{HEAD}{fields}")).await;
        let unusable = [
            ("jwt: 5", false),
            ("anonymous: {enabled: true}", false),
            (&*ISSUER.replace(":1'", ":2'"), true),
        ];
        for (fields, is_temporary) in unusable {
            let error = reload(fields).await.unwrap_err();
            assert_eq!(matches!(error, Unusable::Retry(_)), is_temporary, "{fields}: {error:?}");
            assert_eq!(jwt.issuers()[0].url(), "https://127.0.0.1:1");
        }
        reload("jwt: []").await.unwrap();
        assert!(jwt.issuers().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("authentication.yaml");
        let text = format!("{HEAD}{ISSUER}");
        std::fs::write(&file, &text).unwrap();
        let jwt = started(ISSUER);
        let following = tokio::spawn(Arc::clone(&jwt).follow(file.clone(), text));
        for content in ["invalid", HEAD] {
            std::fs::write(&file, content).unwrap();
            sleep(2 * REREAD_EVERY).await;
            assert_eq!(jwt.issuers().is_empty(), content == HEAD);
        }
        following.abort();
    }
}
