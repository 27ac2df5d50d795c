use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::{TempDir, tempdir};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};

use super::messages::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusResponse,
};
use super::*;
use crate::Encryption;
use crate::encryption::Provider;

/// A plugin that encrypts by inverting bits, and recognizes keys by their names.
pub(crate) struct TestPlugin {
    folder: TempDir,
    state: Arc<State>,
    /// `None` once the plugin is dropped.
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct State {
    /// The key that encrypts new values.
    key: Mutex<String>,
    /// The problem of the plugin, or `ok`.
    healthz: Mutex<String>,
    decrypted: AtomicUsize,
    encrypted: AtomicUsize,
}

impl TestPlugin {
    pub fn start() -> Self {
        let folder = tempdir().unwrap();
        let state = Arc::new(State::default());
        *state.key.lock().unwrap() = "first".to_owned();
        *state.healthz.lock().unwrap() = "ok".to_owned();
        let socket = folder.path().join("kms.sock");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).unwrap()
        };
        runtime.spawn(serve(listener, Arc::clone(&state)));
        Self { folder, state, runtime: Some(runtime) }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("kms.sock")
    }

    pub fn set_key(&self, key: &str) {
        *self.state.key.lock().unwrap() = key.to_owned();
    }

    pub fn set_healthz(&self, healthz: &str) {
        *self.state.healthz.lock().unwrap() = healthz.to_owned();
    }

    /// The numbers of seeds that the plugin has encrypted and decrypted.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.state.encrypted), count(&self.state.decrypted))
    }

    fn options(&self) -> KmsOptions {
        let endpoint = format!("unix://{}", self.socket().display());
        KmsOptions { name: "test".to_owned(), endpoint, timeout: Duration::from_secs(5) }
    }

    /// A configuration that encrypts everything with this plugin.
    pub fn encryption(&self, reads_plain: bool) -> Arc<Encryption> {
        Arc::new(encryption(&self.socket(), reads_plain).unwrap())
    }
}

impl Kms {
    fn expire(&self) {
        let current = self.known.current.load_full().unwrap();
        let (source, beside) = (Arc::clone(&current.source), current.beside.clone());
        let expired = Current { source, beside, expires: Instant::now() };
        self.known.current.store(Some(Arc::new(expired)));
    }
}

/// The plugins of a configuration.
fn plugins(encryption: &Encryption) -> impl Iterator<Item = &Arc<Kms>> {
    let providers = encryption.rules.iter().flat_map(|rule| &rule.providers);
    providers.filter_map(|provider| match provider {
        Provider::Kms { kms, .. } => Some(kms),
        _ => None,
    })
}

/// Simulates three minutes in which no plugin responds.
pub(crate) fn expire(encryption: &Encryption) {
    plugins(encryption).for_each(|kms| kms.expire());
}

/// Simulates one minute in which plugins reject seeds.
pub(crate) fn settle(encryption: &Encryption) {
    let long_ago = Instant::now().checked_sub(REFUSED_FOR).unwrap();
    for kms in plugins(encryption) {
        for seed in kms.known.lock().values_mut() {
            if let Seed::Refused(since, _) = seed {
                *since = long_ago;
            }
        }
    }
}

/// Has all plugins confirm their keys.
pub(crate) fn confirm(encryption: &Encryption) {
    plugins(encryption).for_each(|kms| kms.confirm().unwrap());
}

impl Drop for TestPlugin {
    fn drop(&mut self) {
        // The plugin may be dropped in an async context, where blocking is forbidden.
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn encryption(socket: &Path, reads_plain: bool) -> Result<Encryption, String> {
    let folder = tempdir().unwrap();
    let file = folder.path().join("encryption.yaml");
    let socket = socket.display();
    let mut text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  providers:\n  - kms: {{apiVersion: v2, name: test, endpoint: 'unix://{socket}', timeout: 5s}}\n"
    );
    if reads_plain {
        text += "  - identity: {}\n";
    }
    std::fs::write(&file, text).unwrap();
    Encryption::read(&file)
}

async fn serve(listener: UnixListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| answer(request, Arc::clone(&state)));
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}

type Frames = futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>;

/// Serves a gRPC call: the message follows a prefix of five bytes, and trailers contain the status.
async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<StreamBody<Frames>>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (message, status) = match called(&method, body.slice(5..), &state) {
        Ok(message) => (message, "0"),
        Err(why) => (why.into_bytes(), "3"),
    };
    let mut frames = Vec::new();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    if status == "0" {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        frames.push(Ok(Frame::data(Bytes::from([&[0], &length[..], &message].concat()))));
    } else {
        trailers.insert("grpc-message", String::from_utf8(message).unwrap().parse().unwrap());
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let body = StreamBody::new(futures::stream::iter(frames));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

fn called(method: &str, message: Bytes, state: &State) -> Result<Vec<u8>, String> {
    let key = state.key.lock().unwrap().clone();
    let turned = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<u8>>();
    match method {
        "Status" => {
            let healthz = state.healthz.lock().unwrap().clone();
            let status = StatusResponse { version: "v2".to_owned(), healthz, key_id: key };
            Ok(status.encode_to_vec())
        }
        "Encrypt" => {
            state.encrypted.fetch_add(1, Ordering::Relaxed);
            let EncryptRequest { plaintext, .. } = EncryptRequest::decode(message).unwrap();
            let annotations =
                BTreeMap::from([("test.example.com".to_owned(), Bytes::from_static(b"x"))]);
            let ciphertext = turned(&plaintext).into();
            Ok(EncryptResponse { ciphertext, key_id: key, annotations }.encode_to_vec())
        }
        "Decrypt" => {
            state.decrypted.fetch_add(1, Ordering::Relaxed);
            let request = DecryptRequest::decode(message).unwrap();
            assert_eq!(request.annotations.len(), 1);
            let healthz = state.healthz.lock().unwrap().clone();
            if healthz != "ok" {
                return Err(healthz);
            }
            Ok(DecryptResponse { plaintext: turned(&request.ciphertext).into() }.encode_to_vec())
        }
        other => panic!("{other}"),
    }
}

const FOOS: &str = "foos.example.com";
const PLACE: &str = "foos.example.com/a";

fn seal(by: &Encryption) -> Result<Vec<u8>, String> {
    by.seal(FOOS, PLACE, b"text".to_vec())
}

fn open(by: &Encryption, value: &[u8]) -> Result<bool, String> {
    if let Some(unknown) = by.unknown(FOOS, value) {
        unknown.learn()?;
    }
    let opened = by.open(FOOS, PLACE, value)?;
    assert_eq!(&*opened.plain, b"text");
    Ok(opened.is_stale)
}

#[test]
fn a_kms_seed_is_requested_once_per_process() {
    let plugin = TestPlugin::start();
    let one = plugin.encryption(false);
    let values: Vec<_> = (0..20).map(|_| seal(&one).unwrap()).collect();
    assert!(values[0].starts_with(b"k8s:enc:kms:v2:test:"));
    assert_ne!(values[0], values[1]);
    for value in &values {
        assert_eq!(open(&one, value), Ok(false));
        assert!(one.open(FOOS, "foos.example.com/b", value).is_err(), "it is of its place");
    }
    assert_eq!(plugin.counts(), (1, 0));
    // The next process creates a seed of its own, and has the plugin decrypt the seed of this one.
    let next = plugin.encryption(false);
    for value in &values {
        assert_eq!(open(&next, value), Ok(false));
    }
    assert_eq!(open(&next, &seal(&next).unwrap()), Ok(false));
    assert_eq!(plugin.counts(), (2, 1));
}

#[test]
fn values_encrypted_with_a_previous_kms_key_are_stale() {
    let plugin = TestPlugin::start();
    let kms = Kms::begin(&plugin.options()).unwrap();
    let old = kms.encrypt(b"text", b"a").unwrap();
    plugin.set_key("second");
    assert_eq!(kms.decrypt(&old, b"a"), Ok((b"text".to_vec(), false)));
    kms.confirm().unwrap();
    assert_eq!(kms.decrypt(&old, b"a"), Ok((b"text".to_vec(), true)));
    let new = kms.encrypt(b"text", b"a").unwrap();
    assert_eq!(kms.decrypt(&new, b"a"), Ok((b"text".to_vec(), false)));
    kms.confirm().unwrap();
    assert_eq!(plugin.counts(), (2, 0), "the same key needs no other seed");
}

#[test]
fn an_unhealthy_kms_plugin_is_reported_and_blocks_encryption_after_three_minutes() {
    let nowhere = tempdir().unwrap().path().join("kms.sock");
    let refused = encryption(&nowhere, true).unwrap_err();
    let expected = "resources[0].providers[0].kms: the KMS plugin \"test\": Status: ";
    assert!(refused.starts_with(expected), "{refused}");
    let plugin = TestPlugin::start();
    plugin.set_healthz("locked");
    let refused = Kms::begin(&plugin.options()).err().unwrap();
    assert_eq!(refused, "the KMS plugin \"test\": it is not well: locked");
    plugin.set_healthz("ok");
    let kms = Kms::begin(&plugin.options()).unwrap();
    let value = kms.encrypt(b"text", b"a").unwrap();
    // While the plugin fails, values are decrypted, and for three minutes also encrypted.
    plugin.set_healthz("locked");
    assert!(kms.confirm().is_err());
    assert_eq!(kms.trouble().unwrap(), refused);
    assert_eq!(kms.decrypt(&value, b"a"), Ok((b"text".to_vec(), false)));
    kms.encrypt(b"text", b"a").unwrap();
    kms.expire();
    let expired = kms.encrypt(b"text", b"a").unwrap_err();
    assert_eq!(expired, "the KMS plugin \"test\" has not answered for three minutes");
    assert_eq!(kms.decrypt(&value, b"a"), Ok((b"text".to_vec(), false)));
    plugin.set_healthz("ok");
    kms.confirm().unwrap();
    assert_eq!(kms.trouble(), None);
    kms.encrypt(b"text", b"a").unwrap();
}

#[test]
fn kms_decrypt_errors_are_reported_and_retried_for_a_minute() {
    let plugin = TestPlugin::start();
    let value = seal(&plugin.encryption(false)).unwrap();
    let next = plugin.encryption(false);
    plugin.set_healthz("no such key");
    let refused = next.unknown(FOOS, &value).unwrap().learn().unwrap_err();
    assert_eq!(refused, "the KMS plugin \"test\": Decrypt: no such key");
    let why = next.open(FOOS, PLACE, &value).err().unwrap();
    let expected = "it is encrypted by the KMS plugin \"test\", and its seed is not known: Decrypt: no such key";
    assert_eq!(why, expected);
    // The KMS of the plugin may be unavailable, so the plugin is called again for a minute.
    assert!(next.unknown(FOOS, &value).is_some());
    settle(&next);
    assert!(next.unknown(FOOS, &value).is_none());
    assert_eq!(next.open(FOOS, PLACE, &value).err().unwrap(), why);
    plugin.set_healthz("ok");
    let last = plugin.encryption(false);
    assert_eq!(open(&last, &value), Ok(false));
}

/// Kubernetes up to version 1.28 has written such values.
#[test]
fn kms_values_with_a_key_instead_of_a_seed_are_stale() {
    let plugin = TestPlugin::start();
    let encryption = plugin.encryption(false);
    let key = [7_u8; 32];
    let data = Cipher::aes_gcm(&key).unwrap().encrypt(b"text", PLACE.as_bytes()).unwrap();
    let annotations = BTreeMap::from([("test.example.com".to_owned(), Bytes::from_static(b"x"))]);
    let source = key.iter().map(|byte| !byte).collect::<Vec<u8>>().into();
    let source_type = SourceType::Key as i32;
    let (key_id, data) = ("first".to_owned(), data.into());
    let object = EncryptedObject { data, key_id, source, annotations, source_type };
    let value = [b"k8s:enc:kms:v2:test:", &object.encode_to_vec()[..]].concat();
    assert_eq!(open(&encryption, &value), Ok(true));
}

#[test]
fn damaged_kms_values_are_rejected() {
    let plugin = TestPlugin::start();
    let encryption = plugin.encryption(false);
    let value = seal(&encryption).unwrap();
    for length in 0..value.len() {
        assert!(encryption.open(FOOS, PLACE, &value[..length]).is_err(), "{length} bytes");
    }
    for place in "k8s:enc:kms:v2:test:".len()..value.len() {
        let mut changed = value.clone();
        changed[place] ^= 1;
        // The changed byte may belong to the identity of the seed. That seed is unknown.
        assert!(encryption.open(FOOS, PLACE, &changed).is_err(), "byte {place}");
    }
}

/// A value that kube-apiserver 1.36 has written to etcd, with a plugin like the one of this test.
#[test]
fn kms_values_encrypted_by_kube_apiserver_are_decrypted() {
    const VALUE: &str = "azhzOmVuYzprbXM6djI6dGVzdDoK8gF1k+mhDLXYbHIA7JI1qXbIZfYh6MwB/8nWUoMnUg795DbXqYBpe6ovyaA+/24N9WG2krX28v4N75qSOhsR9DGUMsa5mETMfj+Gi5fMljT9tUUliT+pT9sIneoUj4l2AXN7ekwPWSc+UIVn6UnMnLflP6WHE1jUe/5/Vt7/6y/Q4dftIUGQvkyuH3euehl83WIFchGLpcS4L6I2JhQrCBbdDxb2SE1+AHFucZhWawwhv77q8veWsveUy9SeGoUmcr2WUv/RXlQeYNqhBz8MaP96r+oOen3GV2+TYLYeEkQx42icdm7bXTPQZVk/NcAMgXV0hRIFZmlyc3QaIGOn9AhGdZBiLi31/QYTI5Xvny3kHR/HpQxREthfh0gfIhUKEHRlc3QuZXhhbXBsZS5jb20SAXgoAQ==";
    let plugin = TestPlugin::start();
    let encryption = plugin.encryption(false);
    let value = STANDARD.decode(VALUE).unwrap();
    encryption.unknown("configmaps", &value).unwrap().learn().unwrap();
    let opened = encryption.open("configmaps", "/registry/configmaps/default/a", &value).unwrap();
    assert!(opened.plain.starts_with(b"k8s\0"));
    assert!(opened.plain.windows(9).any(|part| part == b"ConfigMap"));
    assert!(!opened.is_stale);
    assert!(encryption.open("configmaps", "/registry/configmaps/default/b", &value).is_err());
}
