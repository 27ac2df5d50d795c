//! Visibility: the objects of a kind that each reader sees.

mod following;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use kube::api::{ObjectMeta, PartialObjectMeta};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::following::{ErasedFollowing, Following, State};
use super::qualified;
use crate::kind::{ErasedVisibility, IdentityJudge, ObjectIdentity};
use crate::log_throttle::LogThrottle;
use crate::user::User;

/// A rule that selects the objects that are visible to each reader, among those that the reader is allowed to read.
///
/// To a user, an invisible object does not exist. It is in no list, page or table and is not counted in them. A GET and
/// every write of it return 404, no watch reports it, and deleting a collection does not delete it. In a watch, an
/// object that becomes visible is `ADDED`, and one that becomes invisible is `DELETED`, as with selectors. Users can
/// learn that a name exists: creating an object with that name returns 409.
///
/// The control plane sees all objects, because it collects garbage, deletes namespaces and counts objects: members of
/// `system:masters`, the user `system:kube-controller-manager`, and the service accounts of the namespace
/// `kube-system`. If another program must see all objects, such as a backup, the rule must allow it.
///
/// A rule is a pure function of the object and of the user, as authenticated when the request began. The rule must not
/// depend on a clock or on anything else that changes, but on the state of [`following`](Self::following): watchers
/// would miss any other change of visibility. If a rule panics, or if the object cannot be deserialized as the type, the
/// object is visible only to the control plane, and the log names it.
///
/// Visibility hides objects, but not that objects exist: quotas, store sizes and resourceVersions count all of them. A
/// watch uses the user that was authenticated when it began until it ends, as long as that user is allowed to watch.
/// Objects that a program computes from these objects, and messages of its own admission plugins, follow their own
/// permissions. A [view](super::Kind::view) of a kind with a rule is rejected.
///
/// ```
/// use aggregated_apiserver::{Stored, Visibility};
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// A letter, which is seen by whom it is for.
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Letter", namespaced)]
/// pub struct LetterSpec {
///     pub to: String,
/// }
///
/// impl Stored for Letter {
///     fn visibility() -> Visibility<Self> {
///         Visibility::by_object(|user, letter: &Self| letter.spec.to == user.name)
///     }
/// }
/// ```
pub struct Visibility<K>(Rule<K>);

enum Rule<K> {
    AllObjects,
    ByIdentity(IdentityJudge),
    ByObject(ObjectJudge<K>),
    Following(Box<dyn State<K>>),
}

type ObjectJudge<K> = Box<dyn Fn(&User, &K) -> bool + Send + Sync>;

impl<K> Default for Visibility<K> {
    fn default() -> Self {
        Self::everything()
    }
}

impl<K> Visibility<K> {
    /// All objects are visible to every reader.
    pub fn everything() -> Self {
        Self(Rule::AllObjects)
    }

    /// An object is visible if this rule returns true for its namespace, name and labels. It costs about as much as a
    /// label selector.
    ///
    /// ```
    /// use aggregated_apiserver::Visibility;
    ///
    /// // Each team, which is a group of users, sees what has its label.
    /// # fn of<K>() -> Visibility<K> {
    /// Visibility::by_identity(|user, object| {
    ///     object.label("team").is_some_and(|team| user.groups.iter().any(|group| group == team))
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn by_identity(
        rule: impl Fn(&User, &ObjectIdentity<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Rule::ByIdentity(Box::new(rule)))
    }

    /// An object is visible if this rule returns true for it. The object is deserialized for every reader of it, which
    /// takes some microseconds each time. If labels suffice, prefer [`by_identity`](Self::by_identity). An object that
    /// cannot be deserialized as this type is hidden.
    #[must_use]
    pub fn by_object(rule: impl Fn(&User, &K) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::ByObject(Box::new(rule)))
    }

    /// An object is visible if this rule returns true for it and for the newest state of the channel. Use this for
    /// permissions that change. The state is cloned once for each change, so put large states into an [`Arc`].
    ///
    /// All reads use the newest state. If the state changes, each open watch sends the objects that became visible as
    /// `ADDED`, and those that became invisible as `DELETED`. Each watch calls the rule twice for each object then, and
    /// few watches do so at the same time. A client that resumes a watch from a resourceVersion that is older than the
    /// last change of the state receives 410 and lists again. So publish a state only if it differs from the last one
    /// ([`send_if_modified`](watch::Sender::send_if_modified)).
    ///
    /// The object is deserialized for every reader of it, as in [`by_object`](Self::by_object).
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use std::sync::Arc;
    ///
    /// use aggregated_apiserver::Visibility;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use tokio::sync::watch;
    ///
    /// // The users that see all objects. Others see the objects that are immutable.
    /// let (readers, state) = watch::channel(Arc::new(BTreeSet::<String>::new()));
    /// let visibility = Visibility::following(state, |readers, user, map: &ConfigMap| {
    ///     readers.contains(&user.name) || map.immutable == Some(true)
    /// });
    /// # drop(visibility);
    /// readers.send_modify(|readers| drop(Arc::make_mut(readers).insert("jane".to_owned())));
    /// ```
    #[must_use]
    pub fn following<S: Clone + Send + Sync + 'static>(
        state: watch::Receiver<S>,
        rule: impl Fn(&S, &User, &K) -> bool + Send + Sync + 'static,
    ) -> Self
    where
        K: 'static,
    {
        let rule = Arc::new(rule);
        let fixed = move |state: S| {
            let rule = Arc::clone(&rule);
            Rule::ByObject(Box::new(move |user, object| rule(&state, user, object)))
        };
        Self(Rule::Following(Box::new(Following::new(state, fixed))))
    }

    /// An object is visible if this rule returns true for its namespace, name and labels, and for the newest state of the
    /// channel. Changes of the state have the same effects as for [`following`](Self::following), and cost less.
    #[must_use]
    pub fn following_by_identity<S: Clone + Send + Sync + 'static>(
        state: watch::Receiver<S>,
        rule: impl Fn(&S, &User, &ObjectIdentity<'_>) -> bool + Send + Sync + 'static,
    ) -> Self
    where
        K: 'static,
    {
        let rule = Arc::new(rule);
        let fixed = move |state: S| {
            let rule = Arc::clone(&rule);
            Rule::ByIdentity(Box::new(move |user, object| rule(&state, user, object)))
        };
        Self(Rule::Following(Box::new(Following::new(state, fixed))))
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> Visibility<K> {
    /// The rule without its type, for stored objects; `None` if all objects are visible.
    pub(super) fn erased(self) -> Option<ErasedVisibility> {
        erased(self.0, &Arc::default())
    }
}

fn erased<K: Resource<DynamicType = ()> + DeserializeOwned + 'static>(
    rule: Rule<K>,
    failures: &Arc<LogThrottle>,
) -> Option<ErasedVisibility> {
    let log = Arc::clone(failures);
    match rule {
        Rule::AllObjects => None,
        Rule::ByIdentity(rule) => {
            let judge = move |user: &User, object: &ObjectIdentity<'_>| {
                guarded::<K>(&log, || Ok(rule(user, object)))
            };
            Some(ErasedVisibility::ByIdentity(Box::new(judge)))
        }
        Rule::ByObject(rule) => {
            let judge = move |user: &User, json: &[u8]| {
                guarded::<K>(&log, || {
                    let object = serde_json::from_slice::<K>(json);
                    let object = object
                        .map_err(|error| format!("{} is not of its type: {error}", named(json)))?;
                    Ok(rule(user, &object))
                })
            };
            Some(ErasedVisibility::ByContent(K::version(&()).into_owned(), Box::new(judge)))
        }
        Rule::Following(state) => {
            Some(ErasedVisibility::Following(Box::new(ErasedFollowing::new(state, log))))
        }
    }
}

/// Calls a rule. An error or a panic is logged, and hides the object.
fn guarded<K: Resource<DynamicType = ()>>(
    failures: &LogThrottle,
    judge: impl Fn() -> Result<bool, String>,
) -> bool {
    let judged = catch_unwind(AssertUnwindSafe(judge));
    judged.unwrap_or_else(|_| Err("its rule panicked".to_owned())).unwrap_or_else(|why| {
        failures.log(|suppressed| {
            let kind = qualified::<K>();
            tracing::error!(
                suppressed,
                %kind,
                error = %why,
                "cannot evaluate visibility; the object is hidden from users"
            );
        });
        false
    })
}

/// The namespace and name of an object, for the log.
fn named(json: &[u8]) -> String {
    let object = serde_json::from_slice::<PartialObjectMeta>(json);
    let ObjectMeta { namespace, name, .. } =
        object.map(|object| object.metadata).unwrap_or_default();
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn objects_are_hidden_if_the_visibility_check_fails_or_panics() {
        let visibility = Visibility::by_object(|user, map: &ConfigMap| {
            assert!(user.name != "nobody", "what the user wrote is wrong");
            map.immutable == Some(true)
        });
        let Some(ErasedVisibility::ByContent(version, judge)) = visibility.erased() else {
            panic!("it looks at objects")
        };
        assert_eq!(version, "v1");
        let sees = |name: &str, json: &[u8]| {
            judge(&User { name: name.to_owned(), ..User::default() }, json)
        };
        assert!(sees("jane", br#"{"immutable": true}"#));
        assert!(!sees("jane", br#"{"immutable": false}"#));
        assert!(!sees("jane", br#"{"immutable": 3}"#));
        assert!(!sees("nobody", br#"{"immutable": true}"#));
    }
}
