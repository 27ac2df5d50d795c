//! Visibility that follows the state of a channel.

use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Rule, erased};
use crate::kind::{ErasedVisibility, FollowingRule, NumberedRule};
use crate::log_throttle::LogThrottle;

/// A state that a rule depends on, without its type.
pub(super) trait State<K>: Send + Sync {
    /// Whether [`newest`](Self::newest) has returned the rule with the newest state.
    fn is_newest(&self) -> bool;

    /// The rule with the newest state.
    fn newest(&mut self) -> Rule<K>;

    /// Completes when there is a state after the one that [`newest`](Self::newest) has used. Never completes if the sender
    /// is dropped.
    fn changed(&self) -> BoxFuture<'static, ()>;
}

/// A channel of states, and the function that makes the rule for a state.
pub(super) struct Following<S, F> {
    state: watch::Receiver<S>,
    fixed: F,
}

impl<S, F> Following<S, F> {
    pub(super) fn new(state: watch::Receiver<S>, fixed: F) -> Self {
        Self { state, fixed }
    }
}

impl<K, S, F> State<K> for Following<S, F>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S) -> Rule<K> + Send + Sync,
{
    fn is_newest(&self) -> bool {
        // Unlike `Receiver::has_changed`, this sees the last state of a sender that was dropped.
        !self.state.borrow().has_changed()
    }

    fn newest(&mut self) -> Rule<K> {
        let state = self.state.borrow_and_update().clone();
        (self.fixed)(state)
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        let mut state = self.state.clone();
        async move {
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

/// A rule that follows a state, without the type of its objects.
pub(super) struct ErasedFollowing<K> {
    current: RwLock<Current<K>>,
    failures: Arc<LogThrottle>,
}

struct Current<K> {
    state: Box<dyn State<K>>,
    rule: NumberedRule,
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> ErasedFollowing<K> {
    pub(super) fn new(mut state: Box<dyn State<K>>, failures: Arc<LogThrottle>) -> Self {
        let rule = NumberedRule { number: 0, rule: fixed(&mut *state, &failures) };
        Self { current: RwLock::new(Current { state, rule }), failures }
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> FollowingRule
    for ErasedFollowing<K>
{
    fn newest(&self) -> NumberedRule {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if current.state.is_newest() {
            return current.rule.clone();
        }
        drop(current);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !current.state.is_newest() {
            let number = current.rule.number + 1;
            let rule = fixed(&mut *current.state, &self.failures);
            current.rule = NumberedRule { number, rule };
        }
        current.rule.clone()
    }

    fn is_newest(&self, number: u64) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.rule.number == number && current.state.is_newest()
    }

    fn changed(&self, number: u64) -> BoxFuture<'static, ()> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        match current.rule.number == number {
            true => current.state.changed(),
            false => futures::future::ready(()).boxed(),
        }
    }
}

/// The rule with the newest state. A rule that hides nothing cannot follow a state.
fn fixed<K: Resource<DynamicType = ()> + DeserializeOwned + 'static>(
    state: &mut dyn State<K>,
    failures: &Arc<LogThrottle>,
) -> Arc<ErasedVisibility> {
    let rule = erased(state.newest(), failures);
    Arc::new(rule.unwrap_or_else(|| ErasedVisibility::ByIdentity(Box::new(|_, _| true))))
}
