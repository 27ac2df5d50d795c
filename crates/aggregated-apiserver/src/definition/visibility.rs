//! Visibility: which of a kind's objects each reader sees.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::Resource;
use kube::api::{ObjectMeta, PartialObjectMeta};
use serde::de::DeserializeOwned;

use super::qualified;
use crate::kind::{ErasedVisibility, IdentityJudge, ObjectIdentity};
use crate::occasionally::Occasionally;
use crate::user::User;

/// Which objects of a kind each reader sees, among those that rights let it read.
///
/// What a user does not see is not there for it: it is in no list, page or table and not counted in
/// any, a GET of it and every write to it answer 404, no watch tells of it, and no deletion of a collection
/// takes it along. In a watch an object that comes into sight is `ADDED`, and one that goes out of sight
/// `DELETED`, as with selectors. That a name is taken can be learned: whoever may create objects gets 409.
///
/// The control plane sees everything, because it collects garbage, empties namespaces and counts:
/// members of `system:masters`, `system:kube-controller-manager`, and the service accounts of the namespace
/// `kube-system`. Whatever else has to see all objects, as a backup, the rule has to let see them.
///
/// A rule is a pure function: of the user, as it was authenticated when its request began, and of the
/// object. It must not look at a clock or at anything else that changes: who watches is told of changes
/// of objects only, and would not learn that one came or went for another reason. A rule that
/// panics shows nothing, nor what cannot be read as the type: such an object is there for the control plane alone, and
/// a line of the log names it.
///
/// It hides objects, and not that there are some: quotas, sizes of stores and revisions count all of them. A watch shows what
/// its user saw when the watch began until it ends, as long as the user may watch at all. What a program computes from
/// objects, and answers of its own admission plugins, are shown to whoever may see those. A [view](super::Kinds::with_view) of such a kind is refused.
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
    Everything,
    ByIdentity(IdentityJudge),
    ByObject(ObjectJudge<K>),
}

type ObjectJudge<K> = Box<dyn Fn(&User, &K) -> bool + Send + Sync>;

impl<K> Default for Visibility<K> {
    fn default() -> Self {
        Self::everything()
    }
}

impl<K> Visibility<K> {
    /// Everybody who may read objects sees all of them.
    pub fn everything() -> Self {
        Self(Rule::Everything)
    }

    /// Users see an object if this rule says so of its namespace, name and labels. It costs readers
    /// about as much as a label selector.
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

    /// Users see an object if this rule says so of it. The object is read for every reader that it
    /// might be shown to, some microseconds each time: where labels can say the same, prefer
    /// [`by_identity`](Self::by_identity). What cannot be read as this type is hidden.
    #[must_use]
    pub fn by_object(rule: impl Fn(&User, &K) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::ByObject(Box::new(rule)))
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> Visibility<K> {
    /// The same without the type, for objects as they are kept; `None` if all are seen.
    pub(super) fn erased(self) -> Option<ErasedVisibility> {
        let failures = Occasionally::default();
        let guarded = move |judge: &dyn Fn() -> Result<bool, String>| {
            let judged = catch_unwind(AssertUnwindSafe(judge));
            judged.unwrap_or_else(|_| Err("its rule panicked".to_owned())).unwrap_or_else(|why| {
                failures.log(|suppressed| {
                    let kind = qualified::<K>();
                    tracing::error!(suppressed, "an object of {kind} is hidden from users: {why}");
                });
                false
            })
        };
        match self.0 {
            Rule::Everything => None,
            Rule::ByIdentity(rule) => {
                let judge = move |user: &User, object: &ObjectIdentity<'_>| {
                    guarded(&|| Ok(rule(user, object)))
                };
                Some(ErasedVisibility::ByIdentity(Box::new(judge)))
            }
            Rule::ByObject(rule) => {
                let judge = move |user: &User, json: &[u8]| {
                    guarded(&|| {
                        let object = serde_json::from_slice::<K>(json);
                        let object = object.map_err(|error| {
                            format!("{} is not of its type: {error}", named(json))
                        })?;
                        Ok(rule(user, &object))
                    })
                };
                Some(ErasedVisibility::ByContent(K::version(&()).into_owned(), Box::new(judge)))
            }
        }
    }
}

/// What an object is called, for the log.
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
    fn what_cannot_be_judged_is_hidden() {
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
