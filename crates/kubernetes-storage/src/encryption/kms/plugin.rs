//! The thread that calls a plugin. It has seeds decrypted, and regularly confirms the key that encrypts new values.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use super::messages::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, SourceType,
    StatusRequest, StatusResponse,
};
use super::{Current, KmsOptions, Known, LIFETIME, Source, check};

/// The interval between confirmations of the key. `RETRY` is the interval after a failed confirmation.
const CONFIRM: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);
/// The shortest interval between log messages that the plugin fails.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// The capacity of the queue of requests. Each caller waits for its response, so there are few.
const WAITING: usize = 64;

type Answer = SyncSender<Result<(), String>>;

enum Ask {
    /// Confirm that the key still encrypts new values.
    Confirm(Answer),
    /// Decrypt this seed.
    Decrypt(Box<EncryptedObject>, Answer),
}

/// The handle of the thread, which ends when the handle is dropped.
pub(super) struct Plugin {
    asks: mpsc::Sender<Ask>,
    patience: Duration,
}

impl Plugin {
    /// Starts a thread that calls the plugin and stores the results in `known`.
    ///
    /// # Errors
    /// If the endpoint is invalid or the thread cannot be started.
    pub fn new(options: &KmsOptions, known: Arc<Known>) -> Result<Self, String> {
        let unusable = |error: &dyn fmt::Display| format!("{}: {error}", options.endpoint);
        let endpoint = Endpoint::from_shared(options.endpoint.clone());
        let endpoint = endpoint.map_err(|error| unusable(&error))?;
        let (asks, received) = mpsc::channel(WAITING);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unusable(&error))?;
        let name = options.name.clone();
        let time = options.timeout;
        let calls = async move {
            let channel = endpoint.connect_lazy();
            let known = Arc::downgrade(&known);
            Calls { name, channel, time, known, said: None }.run(received).await;
        };
        let thread = thread::Builder::new().name("kms".to_owned());
        thread.spawn(move || runtime.block_on(calls)).map_err(|error| unusable(&error))?;
        // The thread may be busy with other requests. Each of them makes up to three calls.
        Ok(Self { asks, patience: options.timeout * 6 })
    }

    /// Confirms the key that encrypts new values. If the key has changed, a new seed is created for it.
    ///
    /// # Errors
    /// The problem of the plugin.
    pub fn confirm(&self) -> Result<(), String> {
        self.ask(Ask::Confirm)
    }

    /// Has the plugin decrypt a seed.
    ///
    /// # Errors
    /// The problem of the seed or of the plugin.
    pub fn decrypt(&self, beside: EncryptedObject) -> Result<(), String> {
        self.ask(|answer| Ask::Decrypt(Box::new(beside), answer))
    }

    fn ask(&self, ask: impl FnOnce(Answer) -> Ask) -> Result<(), String> {
        let (answer, answered) = sync_channel(1);
        self.asks.try_send(ask(answer)).map_err(|_| "too many questions wait")?;
        match answered.recv_timeout(self.patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err("it does not answer".to_owned()),
            Err(RecvTimeoutError::Disconnected) => Err("it cannot be asked any more".to_owned()),
        }
    }
}

/// The state of the thread.
struct Calls {
    name: String,
    channel: Channel,
    time: Duration,
    known: Weak<Known>,
    /// The time of the last log message about a problem.
    said: Option<Instant>,
}

impl Calls {
    /// Serves requests until the provider is dropped.
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        let mut next = Instant::now() + RETRY;
        loop {
            let answer = tokio::select! {
                // The key is confirmed in time, regardless of the number of requests.
                biased;
                () = sleep_until(next.into()) => None,
                ask = asks.recv() => match ask {
                    None => return,
                    Some(Ask::Decrypt(beside, answer)) => {
                        let done = self.decrypt(*beside).await;
                        // The caller may have stopped waiting.
                        let _ = answer.send(done);
                        continue;
                    }
                    Some(Ask::Confirm(answer)) => Some(answer),
                },
            };
            let done = self.confirm().await;
            next = Instant::now() + if done.is_ok() { CONFIRM } else { RETRY };
            if let Some(answer) = answer {
                let _ = answer.send(done);
            }
        }
    }

    fn known(&self) -> Result<Arc<Known>, String> {
        self.known.upgrade().ok_or_else(|| "nobody wants to know".to_owned())
    }

    async fn decrypt(&mut self, beside: EncryptedObject) -> Result<(), String> {
        let known = self.known()?;
        let request = DecryptRequest {
            ciphertext: beside.source.clone(),
            uid: Uuid::new_v4().to_string(),
            key_id: beside.key_id.clone(),
            annotations: beside.annotations.clone(),
        };
        let answer: Result<DecryptResponse, Fault> = self.call("Decrypt", request).await;
        let source = answer.and_then(|answer| {
            let source = Source::of(beside.source_type, &answer.plaintext);
            source.ok_or_else(|| Fault::Refused("what it has decrypted is no seed".to_owned()))
        });
        match source {
            Ok(source) => known.remember(&beside, Arc::new(source)),
            Err(Fault::Away(why)) => Err(why),
            Err(Fault::Refused(why)) => known.refuse(&beside, why.clone()).and(Err(why)),
        }
    }

    async fn confirm(&mut self) -> Result<(), String> {
        let known = self.known()?;
        let confirmed = self.confirmed(&known).await;
        self.note(&known, confirmed.as_ref().err());
        confirmed
    }

    async fn confirmed(&self, known: &Known) -> Result<(), String> {
        let expires = Instant::now() + LIFETIME;
        let status: StatusResponse =
            self.call("Status", StatusRequest {}).await.map_err(Fault::text)?;
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            return Err(format!("it speaks version {:?}, and only v2 is known", status.version));
        }
        if status.healthz != "ok" {
            return Err(format!("it is not well: {}", status.healthz));
        }
        let current = known.current.load_full();
        if let Some(current) = current.filter(|current| current.beside.key_id == status.key_id) {
            let (source, beside) = (Arc::clone(&current.source), current.beside.clone());
            known.current.store(Some(Arc::new(Current { source, beside, expires })));
            return Ok(());
        }
        let seed = Source::random()?;
        let plaintext = seed.to_vec().into();
        let request = EncryptRequest { plaintext, uid: Uuid::new_v4().to_string() };
        let answer: EncryptResponse = self.call("Encrypt", request).await.map_err(Fault::text)?;
        let EncryptResponse { ciphertext: source, key_id, annotations } = answer;
        if key_id != status.key_id {
            return Err("its key has just changed".to_owned());
        }
        let beside = EncryptedObject {
            source,
            key_id,
            annotations,
            source_type: SourceType::Seed as i32,
            ..EncryptedObject::default()
        };
        check(&beside)?;
        let source = Arc::new(Source::Seed(seed));
        known.remember(&beside, Arc::clone(&source))?;
        known.current.store(Some(Arc::new(Current { source, beside, expires })));
        Ok(())
    }

    /// Stores the result of a confirmation, and logs a failure at most once per [`SAY_EVERY`].
    fn note(&mut self, known: &Known, why: Option<&String>) {
        let name = &self.name;
        match why {
            Some(why) if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) => {
                tracing::warn!(plugin = name, error = %why, "KMS plugin failed");
                self.said = Some(Instant::now());
            }
            None if self.said.take().is_some() => {
                tracing::info!(plugin = name, "KMS plugin responds again");
            }
            _ => {}
        }
        known.set_unconfirmed(why.cloned());
    }

    async fn call<M, R>(&self, method: &str, request: M) -> Result<R, Fault>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/v2.KeyManagementService/{method}"));
        let path = path.map_err(|error| Fault::Away(error.to_string()))?;
        let mut grpc = Grpc::new(self.channel.clone());
        let calling = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<M, R>::default();
            grpc.unary(Request::new(request), path, codec).await
        };
        match timeout(self.time, calling).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let why = format!("{method}: {}", status.message());
                // Errors with a source, and these codes, mean that the connection failed.
                let is_away = std::error::Error::source(&status).is_some()
                    || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
                Err(if is_away { Fault::Away(why) } else { Fault::Refused(why) })
            }
            Err(_) => Err(Fault::Away(format!("{method}: it does not answer"))),
        }
    }
}

/// The reason why the plugin has not fulfilled a request.
enum Fault {
    /// The plugin was not reached, or does not respond.
    Away(String),
    /// The plugin has rejected the request.
    Refused(String),
}

impl Fault {
    fn text(self) -> String {
        match self {
            Self::Away(why) | Self::Refused(why) => why,
        }
    }
}
