//! Source objects from a stream that the user provides, instead of from the cluster.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::runtime::watcher::Event;
use serde::Serialize;

use super::SourceType;
use super::follower::Follower;
use super::list_watch::{Change, ChangeSink, Interruption, decode_into};
use crate::object::Key;

/// The functions that open a stream and serialize its objects.
struct Opened<K> {
    open: Box<dyn Fn() -> BoxStream<'static, Result<Event<K>, String>> + Send + Sync>,
    /// Serializes an object to JSON. The stored object is decoded from the JSON, in the same way as an object of the
    /// cluster.
    text_of: fn(&K) -> Result<String, serde_json::Error>,
}

/// The types whose objects come from streams, with their streams.
#[derive(Clone, Default)]
pub struct SourceStreams(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl SourceStreams {
    /// Reads the objects of a type from a stream. The stream is opened when the objects are first needed, and again
    /// whenever it has ended.
    pub fn add<K, S, E>(&mut self, open: impl Fn() -> S + Send + Sync + 'static)
    where
        K: Serialize + Send + 'static,
        S: Stream<Item = Result<Event<K>, E>> + Send + 'static,
        E: Display + 'static,
    {
        let open = Box::new(move || {
            let events = open().map(|event| event.map_err(|error| error.to_string()));
            events.boxed()
        });
        let text_of = |object: &K| serde_json::to_string(object);
        self.0.insert(TypeId::of::<K>(), Arc::new(Opened { open, text_of }));
    }

    /// Whether the objects of a type come from a stream.
    pub fn has(&self, type_id: TypeId) -> bool {
        self.0.contains_key(&type_id)
    }

    /// Adds other streams.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    fn of<K: 'static>(&self) -> Option<Arc<Opened<K>>> {
        Arc::clone(self.0.get(&TypeId::of::<K>())?).downcast().ok()
    }
}

impl<K: SourceType> Follower<K> {
    /// Updates the objects from the stream of this type forever. Returns at once if the type has no stream. A stream
    /// that ends is opened again, after delays that grow until an attempt succeeds.
    pub async fn stream(&mut self, streams: &SourceStreams) {
        let Some(opened) = streams.of::<K>() else { return };
        loop {
            self.present = None;
            let why = self.take_events((opened.open)(), opened.text_of).await;
            self.present = None;
            self.wait(why).await;
        }
    }

    /// Processes events until the stream ends or a size limit is exceeded.
    async fn take_events(
        &mut self,
        mut events: BoxStream<'static, Result<Event<K>, String>>,
        text_of: fn(&K) -> Result<String, serde_json::Error>,
    ) -> Interruption {
        loop {
            let Some(event) = events.next().await else {
                return Interruption::Failed("the stream has ended".to_owned());
            };
            let taken = match event {
                Ok(event) => {
                    self.informer.set_failure(None);
                    self.take_event(event, text_of)
                }
                // The stream continues by itself after an error, and may have retried without a delay.
                Err(error) => {
                    self.wait(Interruption::Failed(error)).await;
                    Ok(())
                }
            };
            if let Err(interruption) = taken {
                return interruption;
            }
            // A stream that is always ready yields to other tasks.
            tokio::task::consume_budget().await;
        }
    }

    fn take_event(
        &mut self,
        event: Event<K>,
        text_of: fn(&K) -> Result<String, serde_json::Error>,
    ) -> Result<(), Interruption> {
        let key = |object: &K| Some(Key::new(object.namespace(), object.name()?));
        match event {
            Event::Init => self.present = Some(HashSet::new()),
            Event::InitDone => {
                let present = self.present.take().unwrap_or_default();
                self.informer.complete(&present);
            }
            Event::Delete(object) => {
                if let Some(key) = key(&object) {
                    self.apply(Change::Deleted(key));
                }
            }
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(key) = key(&object) else { return Ok(()) };
                let unusable = |error: serde_json::Error| Interruption::Failed(error.to_string());
                let text = text_of(&object).map_err(unusable)?;
                decode_into(key, &text, self)?;
            }
        }
        Ok(())
    }
}
