//! Calls to etcd. A call goes to one member, and to another member if the first one does not respond.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::channel::mpsc;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, StatusRequest,
    StatusResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::EtcdOptions;

/// The longest time until a connection to a member is established.
const CONNECT: Duration = Duration::from_secs(1);
/// The interval of keep-alive pings on a connection with pending calls. etcd closes connections that are pinged more
/// often than every five seconds. `PONG` is the longest time until a ping is acknowledged.
const PING: Duration = Duration::from_secs(6);
const PONG: Duration = Duration::from_secs(2);
/// The longest time until a member responds to a read. After it, the read is sent to another member.
const READ: Duration = Duration::from_secs(1);
/// The longest time of a read, over all members. Reads wait equally long for a revision.
const READ_ALL: Duration = Duration::from_secs(3);
/// The longest time until a member responds with a page of objects. `PAGE_ALL` is the limit over all members.
const PAGE: Duration = Duration::from_secs(5);
const PAGE_ALL: Duration = Duration::from_secs(11);
/// The pause after all members have failed, before the first one is called again.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time until a member responds to a write. A write that was forwarded to a leader that has just failed
/// never gets a response.
const WRITE: Duration = Duration::from_secs(3);
/// The largest response of a watch, in bytes. etcd splits changes into fragments that are at most as large as a
/// request. Other servers that implement etcd's protocol may send several hundred changes at once.
const CHANGES: usize = 64 << 20;
/// The largest response of any other call, in bytes. Pages of objects are requested with a smaller size.
const ANSWER: usize = crate::READING / 2;

/// The reason why etcd has not done what a call requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call had no effect.
    Unavailable(String),
    /// The call may have had an effect.
    Unknown(String),
    /// The revision has been compacted.
    Compacted,
    /// etcd has no space for the value.
    Full,
    /// The request is larger than etcd accepts.
    TooLarge,
    /// The response would be larger than its limit.
    AnswerTooLarge,
}

impl Fault {
    /// Classifies the error of a member.
    fn of(status: &Status) -> Self {
        let message = status.message();
        let is_of_connecting = std::iter::successors(std::error::Error::source(status), |error| {
            std::error::Error::source(*error)
        })
        .any(|error| error.is::<ConnectError>());
        match status.code() {
            Code::OutOfRange if message.contains("compacted") => Self::Compacted,
            Code::OutOfRange if message.contains("decoded message length") => Self::AnswerTooLarge,
            Code::ResourceExhausted if message.contains("space exceeded") => Self::Full,
            Code::ResourceExhausted if message.contains("larger than max") => Self::TooLarge,
            Code::InvalidArgument if message.contains("request is too large") => Self::TooLarge,
            // Broken connections have these codes, too, but their messages do not begin like this.
            Code::ResourceExhausted
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
                if message.starts_with("etcdserver: ") =>
            {
                Self::Unavailable(message.to_owned())
            }
            _ if is_of_connecting => Self::Unavailable(reason(status)),
            _ => Self::Unknown(reason(status)),
        }
    }

    /// Whether another member may succeed.
    fn is_of_member(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unknown(_))
    }

    /// The error as a message for operators.
    pub fn text(&self) -> String {
        match self {
            Self::Unavailable(why) | Self::Unknown(why) => why.clone(),
            Self::Compacted => "the revision has been compacted".to_owned(),
            Self::Full => "its space is exceeded".to_owned(),
            Self::TooLarge => "the request is too large".to_owned(),
            Self::AnswerTooLarge => "the answer is too large".to_owned(),
        }
    }
}

/// The message of a status with the messages of its sources, except those that it already contains.
fn reason(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        source = error.source();
    }
    reason
}

struct Member {
    name: String,
    calls: Channel,
    /// Watches have a connection of their own, so that a watch that is not read does not block other calls.
    watches: Channel,
}

/// A client of all members of etcd.
pub(super) struct Client {
    members: Vec<Member>,
    /// The index of the member that is called first.
    preferred: AtomicUsize,
}

/// An open watch, with the channel for further requests on it.
pub(super) struct Watch {
    pub member: usize,
    pub requests: mpsc::Sender<WatchRequest>,
    pub responses: Streaming<WatchResponse>,
}

impl Client {
    /// Creates a client for the members in the options. No member is called yet.
    ///
    /// # Errors
    /// If the URL of a member is invalid or the TLS files cannot be used.
    pub fn new(options: &EtcdOptions) -> Result<Self, String> {
        let tls = tls(options)?;
        let member = |name: &String| -> Result<Member, String> {
            let unusable = |why: &str| format!("--etcd-servers: {name:?} {why}");
            let endpoint = Endpoint::from_shared(name.clone())
                .map_err(|_| unusable("must be a URL such as https://10.0.0.1:2379"))?
                .connect_timeout(CONNECT)
                .tcp_nodelay(true)
                // A machine that fails does not close its connections. Pings detect that.
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PONG);
            let uri = endpoint.uri().clone();
            let endpoint = match (uri.scheme_str(), &tls) {
                _ if uri.host().is_none() => return Err(unusable("must contain a host")),
                (Some("http"), _) => endpoint,
                (Some("https"), Some(tls)) => endpoint
                    .tls_config(tls.clone())
                    .map_err(|error| format!("--etcd-cafile, --etcd-certfile: {error}"))?,
                (Some("https"), None) => {
                    return Err(unusable("needs --etcd-cafile, the CA of its certificate"));
                }
                _ => return Err(unusable("must begin with https:// or http://")),
            };
            let (calls, watches) = (endpoint.connect_lazy(), endpoint.connect_lazy());
            Ok(Member { name: name.clone(), calls, watches })
        };
        let members = options.servers.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err("--etcd-servers contains no URL".to_owned());
        }
        Ok(Self { members, preferred: AtomicUsize::new(0) })
    }

    /// The index of the member that is called first.
    pub fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.members.len()
    }

    /// The URL of a member.
    pub fn name(&self, member: usize) -> &str {
        &self.members[member].name
    }

    /// Prefers the next member over this one in later calls.
    pub fn turn_away_from(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // This has no effect if another call has already changed the preferred member.
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Reads a single key.
    pub async fn key(&self, request: RangeRequest) -> Result<RangeResponse, Fault> {
        self.read("/etcdserverpb.KV/Range", &request, (READ, READ_ALL)).await
    }

    /// Reads a page of a range of keys. It has longer timeouts than [`key`](Self::key).
    pub async fn page(&self, request: RangeRequest) -> Result<RangeResponse, Fault> {
        self.read("/etcdserverpb.KV/Range", &request, (PAGE, PAGE_ALL)).await
    }

    /// Reads the status of a member.
    pub async fn status(&self, member: usize) -> Result<StatusResponse, Fault> {
        let calls = self.members[member].calls.clone();
        call(calls, "/etcdserverpb.Maintenance/Status", StatusRequest {}, READ).await
    }

    /// Compacts etcd: it deletes values that were replaced before a revision.
    pub async fn compact(&self, revision: i64) -> Result<(), Fault> {
        let request = CompactionRequest { revision };
        let done: Result<CompactionResponse, Fault> =
            self.write("/etcdserverpb.KV/Compact", &request).await;
        done.map(drop)
    }

    /// Runs a transaction.
    pub async fn transaction(&self, request: TxnRequest) -> Result<TxnResponse, Fault> {
        self.write("/etcdserverpb.KV/Txn", &request).await
    }

    /// Calls the members sequentially until one responds.
    async fn read<M, R>(
        &self,
        path: &'static str,
        request: &M,
        (each, all): (Duration, Duration),
    ) -> Result<R, Fault>
    where
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let deadline = Instant::now() + all;
        let mut asked = 0;
        loop {
            let member = self.preferred();
            let calls = self.members[member].calls.clone();
            let answer = call(calls, path, request.clone(), each).await;
            let fault = match answer {
                Err(fault) if fault.is_of_member() => fault,
                answer => return answer,
            };
            self.turn_away_from(member);
            asked += 1;
            if Instant::now() + PAUSE >= deadline {
                return Err(Fault::Unavailable(fault.text()));
            }
            if asked % self.members.len() == 0 {
                // The members may be electing a leader.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Calls one member. Other members are called only if the call certainly had no effect.
    async fn write<M, R>(&self, path: &'static str, request: &M) -> Result<R, Fault>
    where
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let mut asked = 0;
        loop {
            let member = self.preferred();
            let calls = self.members[member].calls.clone();
            let answer = call(calls, path, request.clone(), WRITE).await;
            asked += 1;
            match &answer {
                Err(Fault::Unavailable(_)) if asked < self.members.len() => {
                    self.turn_away_from(member);
                }
                Err(fault) if fault.is_of_member() => {
                    self.turn_away_from(member);
                    return answer;
                }
                _ => return answer,
            }
        }
    }

    /// Opens a watch at a member. The watch ends when etcd has no leader.
    pub async fn watch(&self, member: usize, first: WatchRequest) -> Result<Watch, Fault> {
        const WAITING: usize = 8;
        let (mut requests, received) = mpsc::channel(WAITING);
        // The channel is empty, so it has capacity for this request.
        let _ = requests.try_send(first);
        let mut request = Request::new(received);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc =
            Grpc::new(self.members[member].watches.clone()).max_decoding_message_size(CHANGES);
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let streaming = async {
            grpc.ready().await.map_err(|error| Fault::Unavailable(error.to_string()))?;
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            grpc.streaming(request, path, codec).await.map_err(|status| Fault::of(&status))
        };
        let responses = match tokio::time::timeout(READ_ALL, streaming).await {
            Ok(responses) => responses?.into_inner(),
            Err(_) => return Err(Fault::Unavailable("it does not answer".to_owned())),
        };
        Ok(Watch { member, requests, responses })
    }
}

/// Classifies the error that ended a watch.
pub(super) fn broken(status: &Status) -> Fault {
    Fault::of(status)
}

async fn call<M, R>(
    channel: Channel,
    path: &'static str,
    request: M,
    limit: Duration,
) -> Result<R, Fault>
where
    M: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER);
    let path = PathAndQuery::from_static(path);
    let calling = async {
        grpc.ready().await.map_err(|error| Fault::Unavailable(error.to_string()))?;
        let codec = ProstCodec::<M, R>::default();
        let answer = grpc.unary(Request::new(request), path, codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| Fault::of(&status))
    };
    let in_time = tokio::time::timeout(limit, calling).await;
    in_time.unwrap_or_else(|_| Err(Fault::Unknown("it does not answer".to_owned())))
}

/// The label of a certificate in PEM.
const CERTIFICATE: &str = "CERTIFICATE";

/// The TLS configuration: the CA certificates, and the client certificate.
fn tls(options: &EtcdOptions) -> Result<Option<ClientTlsConfig>, String> {
    let read = |flag: &str, path: &Path, what: &str| {
        let unusable = |why: &str| format!("{flag} {}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|error| unusable(&error.to_string()))?;
        // Invalid contents would be detected only when a connection is opened.
        match text.contains("-----BEGIN ") && text.contains(&format!("{what}-----")) {
            true => Ok(text),
            false => Err(unusable(&format!("contains no {what} in PEM"))),
        }
    };
    let Some(ca) = &options.ca else {
        return match &options.certificate {
            Some(_) => Err("--etcd-certfile needs --etcd-cafile".to_owned()),
            None => Ok(None),
        };
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(
        "--etcd-cafile",
        ca,
        CERTIFICATE,
    )?));
    if let Some((certificate, key)) = &options.certificate {
        let certificate = read("--etcd-certfile", certificate, CERTIFICATE)?;
        tls = tls
            .identity(Identity::from_pem(certificate, read("--etcd-keyfile", key, "PRIVATE KEY")?));
    }
    Ok(Some(tls))
}
