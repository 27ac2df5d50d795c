//! Metadata lookup: objects of any kind, found as references name them.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::availability::Availability;
use super::pool::{Asker, Asking, Opening, SourceNumber};
use super::questions::{About, QuestionId, Questions, Sources};
use super::{Due, Related, Tracked};
use crate::cluster::{KindName, KindSource, KindSources};
use crate::definition::kinds::SourceKind;
use crate::object::Key;
use crate::object::names::check_path_segment;
use crate::watch_cache::SourceState;

/// The longest name of an object.
const NAME_LIMIT: usize = 253;
/// What the names of these sources begin with: a type that is looked up otherwise may be the same resource.
const PREFIX: &str = "metadata-of-";

/// The metadata of objects of any kind, found as references name them: by apiVersion, kind, namespace and name.
///
/// `K` is what is read of the metadata of an object: a type with a member `metadata`, as
/// `PartialObjectMeta` has it, or with fewer fields, so that less is kept.
///
/// When a kind is asked for first, nothing is found. In the background the cluster is asked whether it
/// serves the kind, whether in namespaces or for the whole cluster, and whether it may be listed; then its metadata are
/// listed and watched, and whatever has asked is computed again. A kind that is not served or may not be read is asked for
/// again, later each time (ten seconds at first, ten minutes at last). No kind waits for that, and no client is warned: the log says it, and
/// `/readyz` does of those that the cluster serves.
///
/// References are texts of users. So 32 kinds are followed at most, of those that the cluster serves and shows; the
/// cluster is asked in rounds, ten seconds apart, of a bounded number of requests; and a kind that nothing refers to any more is forgotten. What is
/// kept counts as memory of sources. A text that is no apiVersion, kind or name finds nothing.
///
/// Which kinds these are is not known to [`Disclosures`](crate::definition::Disclosures): what a computation shows of them all its readers see,
/// so it should be no more than names and labels.
///
/// Manifests ask for no rights for it: `--owner-resources` of the command says which resources it may read.
///
/// ```
/// use aggregated_apiserver::MetadataLookup;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::PartialObjectMeta;
/// use serde_json::json;
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let owners: MetadataLookup<PartialObjectMeta<ConfigMap>> = MetadataLookup::from_objects([json!({
///     "apiVersion": "argoproj.io/v1alpha1",
///     "kind": "Rollout",
///     "metadata": {"namespace": "shop", "name": "web", "labels": {"team": "a"}},
/// })])?;
/// let found = owners.get("argoproj.io/v1alpha1", "Rollout", Some("shop"), "web");
/// assert!(found.is_some());
/// assert!(owners.get("argoproj.io/v1alpha1", "Rollout", Some("other"), "web").is_none());
/// # Ok(())
/// # }
/// ```
pub struct MetadataLookup<K> {
    shared: Arc<Shared<K>>,
    /// Which of those that share it this is.
    asker: Asker,
}

/// What can be read of the metadata of objects of any kind.
pub trait MetadataType: DeserializeOwned + Debug + Send + Sync + 'static {}

impl<K: DeserializeOwned + Debug + Send + Sync + 'static> MetadataType for K {}

struct Shared<K> {
    /// Where the objects come from; those of tests come from nowhere.
    followed: Option<KindSources<K>>,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// What computations see; it changes only between them.
    in_view: HashMap<KindName, InView<K>>,
    /// The objects of tests.
    given: HashMap<(KindName, Key), Arc<K>>,
    questions: Questions,
    /// How many bytes of the questions are counted.
    charged: usize,
    /// Which objects have to be computed again, for each asker that was not told yet.
    pending: HashMap<Asker, Due<SourceNumber>>,
}

struct InView<K> {
    source: Arc<KindSource<K>>,
    availability: Availability,
}

impl<K> InView<K> {
    fn is_available(&self) -> bool {
        self.availability == Availability::Available
    }
}

impl<K: MetadataType> MetadataLookup<K> {
    /// The object that a reference names. One of a kind that is in no namespace is found whatever the
    /// `namespace` is: objects in a namespace may belong to such.
    pub fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<K>> {
        let kind = KindName::new(api_version, kind)?;
        if name.is_empty() || name.len() > NAME_LIMIT || !check_path_segment(name).is_empty() {
            return None;
        }
        let mut state = self.state();
        let found = match state.in_view.get(&kind) {
            Some(of_kind) if of_kind.is_available() => {
                let namespace = namespace.filter(|_| of_kind.source.is_namespaced);
                of_kind.source.informer.get(&Key::new(namespace, name))
            }
            Some(_) => None,
            None => {
                let given = |namespace| {
                    state.given.get(&(kind.clone(), Key::new(namespace, name))).cloned()
                };
                given(namespace).or_else(|| given(None))
            }
        };
        if let Some(followed) = &self.shared.followed {
            followed.want(&kind);
        }
        let namespace = namespace.map(Box::from);
        state.questions.ask(About::Referred(kind, name.into(), namespace).into());
        self.charge(&mut state);
        found
    }

    /// A lookup in these objects, for tests of a computation.
    ///
    /// # Errors
    /// If one of them cannot be read as its type. One without apiVersion, kind or name is not found.
    pub fn from_objects(
        objects: impl IntoIterator<Item = Value>,
    ) -> Result<Self, serde_json::Error> {
        let mut given = HashMap::new();
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            let kind = KindName::new(
                text("/apiVersion").unwrap_or_default(),
                text("/kind").unwrap_or_default(),
            );
            let name = text("/metadata/name").unwrap_or_default();
            let key = Key::new(text("/metadata/namespace"), name);
            let Some(kind) = kind else { continue };
            given.insert((kind, key), Arc::new(serde_json::from_value(object)?));
        }
        Ok(Self::new(None, given))
    }

    fn new(followed: Option<KindSources<K>>, given: HashMap<(KindName, Key), Arc<K>>) -> Self {
        Self { shared: Arc::new(Shared::new(followed, given)), asker: Asker::default() }
    }

    /// Takes in what has changed, for all that share it. Answers when to do so again at the latest.
    fn take_in(&self, followed: &KindSources<K>, state: &mut State<K>) -> Option<Instant> {
        let State { in_view, questions, pending, .. } = &mut *state;
        let (mut due, mut times) = (Sources::new(), Vec::new());
        let mut before = std::mem::take(in_view);
        for (kind, source) in followed.followed() {
            let keys = source.changed.take();
            let standing = source.informer.standing();
            let (is, until) = Availability::at(Instant::now(), &standing, source.opened);
            times.extend(until);
            let known = before.remove(&kind);
            let is_same = known.is_some_and(|known| {
                Arc::ptr_eq(&known.source, &source) && known.availability == is
            });
            if !is_same {
                questions.find_of_kind(&kind, &mut due);
            } else if is == Availability::Available {
                for key in keys {
                    questions.find_referred(&kind, &key, source.is_namespaced, &mut due);
                }
            }
            in_view.insert(kind, InView { source, availability: is });
        }
        for kind in before.into_keys() {
            questions.find_of_kind(&kind, &mut due);
        }
        for asking in due {
            pending.entry(asking.asker()).or_default().changed.insert(asking.source());
        }
        self.charge(state);
        times.into_iter().min()
    }

    /// Lets go of kinds that nothing refers to any more.
    fn release(&self, state: &mut State<K>) {
        let released = state.questions.take_released();
        if let Some(followed) = &self.shared.followed {
            released.iter().for_each(|kind| followed.release(kind));
        }
        self.charge(state);
    }

    /// Has what the questions take counted.
    fn charge(&self, state: &mut State<K>) {
        let Some(followed) = &self.shared.followed else { return };
        let bytes = state.questions.bytes();
        followed.charge(state.charged, bytes);
        state.charged = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Shared<K> {
    fn new(followed: Option<KindSources<K>>, given: HashMap<(KindName, Key), Arc<K>>) -> Self {
        let state = State {
            in_view: HashMap::new(),
            given,
            questions: Questions::default(),
            charged: 0,
            pending: HashMap::new(),
        };
        Self { followed, state: Mutex::new(state) }
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = &self.followed {
            followed.charge(state.charged, 0);
        }
    }
}

impl<K: MetadataType> Related for MetadataLookup<K> {
    fn open(opening: &Opening<'_>) -> Self {
        let shared = opening.pool.shared(TypeId::of::<Self>(), || {
            Shared::new(Some(opening.sources.kinds(opening.notify)), HashMap::new())
        });
        Self { shared, asker: opening.asker }
    }

    fn lookups(&self) -> Vec<&dyn Tracked> {
        vec![self]
    }

    /// Which kinds these are is known only when something refers to them.
    fn kinds() -> Vec<SourceKind> {
        Vec::new()
    }
}

impl<K: MetadataType> Tracked for MetadataLookup<K> {
    fn type_of_objects(&self) -> TypeId {
        TypeId::of::<K>()
    }

    /// No declaration holds it to a namespace.
    fn has_looked_outside(&self, _namespace: Option<&str>) -> bool {
        false
    }

    fn leave_out(&self) {
        let mut state = self.state();
        state.in_view.clear();
        state.given.clear();
    }

    fn take_seen(&self) -> Vec<QuestionId> {
        self.state().questions.take_seen()
    }

    fn settle(&self, source: SourceNumber, before: &[QuestionId], now: &[QuestionId]) {
        let mut state = self.state();
        state.questions.settle(Asking::new(self.asker, source), before, now);
        self.release(&mut state);
    }

    fn drop_unsettled(&self, asked: &[QuestionId]) {
        let mut state = self.state();
        state.questions.drop_unsettled(asked);
        self.release(&mut state);
    }

    fn take_due(&self, due: &mut Due<SourceNumber>) -> Option<Instant> {
        let followed = self.shared.followed.as_ref()?;
        let mut state = self.state();
        let until = self.take_in(followed, &mut state);
        if let Some(pending) = state.pending.remove(&self.asker) {
            due.changed.extend(pending.changed);
        }
        until
    }

    /// What is not known yet is done without.
    fn is_settled(&self) -> bool {
        true
    }

    fn sources(&self) -> Vec<SourceState> {
        let Some(followed) = &self.shared.followed else { return Vec::new() };
        let in_view = followed.followed().into_iter().map(|(kind, source)| {
            let state = self.state();
            let is_available = state.in_view.get(&kind).is_some_and(InView::is_available);
            let standing = source.informer.standing();
            SourceState {
                resource: format!("{PREFIX}{}", source.resource),
                is_synced: standing.is_synced,
                // Clients are warned of none of it.
                is_rightly_absent: !is_available
                    || standing.away.is_some()
                    || standing.unreadable > 0,
                unseen_since: standing.away.as_ref().map(|away| away.since),
                watch_error: standing.away.map(|away| away.why),
                excess: standing.excess,
                unreadable: standing.unreadable,
                is_left_out: Some(!is_available),
            }
        });
        let unread = followed.unread().into_iter().map(|unread| SourceState {
            resource: format!("{PREFIX}{}", unread.resource),
            is_synced: false,
            watch_error: Some(unread.why),
            unseen_since: None,
            excess: None,
            unreadable: 0,
            is_left_out: Some(true),
            is_rightly_absent: true,
        });
        in_view.chain(unread).collect()
    }

    #[cfg(test)]
    fn questions(&self) -> usize {
        self.state().questions.len()
    }
}
