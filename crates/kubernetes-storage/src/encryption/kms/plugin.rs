//! The thread that calls a plugin: it asks for seeds that have come up, and again and again which key
//! writes.

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

/// How often the key is confirmed, and how often that is tried if it failed.
const CONFIRM: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(10);
/// How often it is said that the plugin cannot be asked.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Questions that wait. Each caller waits for its answer, so there are few.
const WAITING: usize = 64;

type Answer = SyncSender<Result<(), String>>;

enum Ask {
    /// Whether the key is still the one that writes.
    Confirm(Answer),
    /// What this seed is.
    Decrypt(Box<EncryptedObject>, Answer),
}

/// Leads to the thread, which ends when this is dropped.
pub(super) struct Plugin {
    asks: mpsc::Sender<Ask>,
    patience: Duration,
}

impl Plugin {
    /// Begins a thread, which notes what it is told.
    ///
    /// # Errors
    /// When the plugin cannot be called so.
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
        // The thread may be busy with calls for other questions, three for each.
        Ok(Self { asks, patience: options.timeout * 6 })
    }

    /// Has the key confirmed that writes, or a seed made for another one.
    ///
    /// # Errors
    /// What is wrong with the plugin.
    pub fn confirm(&self) -> Result<(), String> {
        self.ask(Ask::Confirm)
    }

    /// Has a seed decrypted.
    ///
    /// # Errors
    /// What is wrong with it, or with the plugin.
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

/// What the thread has.
struct Calls {
    name: String,
    channel: Channel,
    time: Duration,
    known: Weak<Known>,
    /// When it was said last that something is wrong.
    said: Option<Instant>,
}

impl Calls {
    /// Answers questions until the provider is dropped.
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        let mut next = Instant::now() + RETRY;
        loop {
            let answer = tokio::select! {
                // However many questions come, the key is confirmed in time.
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

    /// Notes whether the key was confirmed, and says it now and then.
    fn note(&mut self, known: &Known, why: Option<&String>) {
        let name = &self.name;
        match why {
            Some(why) if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) => {
                tracing::warn!("the KMS plugin {name:?}: {why}");
                self.said = Some(Instant::now());
            }
            None if self.said.take().is_some() => {
                tracing::info!("the KMS plugin {name:?} answers again");
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
                // A connection that breaks is an error of these codes, too.
                let is_away = std::error::Error::source(&status).is_some()
                    || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
                Err(if is_away { Fault::Away(why) } else { Fault::Refused(why) })
            }
            Err(_) => Err(Fault::Away(format!("{method}: it does not answer"))),
        }
    }
}

/// Why the plugin has not done what it was asked for.
enum Fault {
    /// It was not asked, or does not answer.
    Away(String),
    /// It does not do it.
    Refused(String),
}

impl Fault {
    fn text(self) -> String {
        match self {
            Self::Away(why) | Self::Refused(why) => why,
        }
    }
}
