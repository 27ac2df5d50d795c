//! The objects of a kind that are visible to each reader. The types of the rules are erased: they receive objects as
//! JSON.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Kind;
use crate::object::{Key, Labels, Object};
use crate::user::User;

/// The namespace, name and labels of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectIdentity<'a> {
    key: &'a Key,
    labels: &'a Labels,
}

impl<'a> ObjectIdentity<'a> {
    /// The namespace, if the object has one.
    pub fn namespace(&self) -> Option<&'a str> {
        self.key.namespace()
    }

    /// The name.
    pub fn name(&self) -> &'a str {
        self.key.name()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels.get(key)
    }

    /// The labels, in the order of their keys.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.labels.iter()
    }
}

/// Returns whether the object with this identity is visible to a user.
pub type IdentityJudge = Box<dyn Fn(&User, &ObjectIdentity<'_>) -> bool + Send + Sync>;
/// Returns whether the object with this JSON is visible to a user.
pub type ContentJudge = Box<dyn Fn(&User, &[u8]) -> bool + Send + Sync>;

/// A rule that selects the objects that are visible to each reader.
pub enum ErasedVisibility {
    /// By namespace, name and labels.
    ByIdentity(IdentityJudge),
    /// By the content in the version with this name.
    ByContent(String, ContentJudge),
    /// By a rule whose state changes.
    Following(Box<dyn FollowingRule>),
}

/// A rule with a state that changes while the kind is served.
pub trait FollowingRule: Send + Sync {
    /// The rule with the newest state.
    fn newest(&self) -> NumberedRule;

    /// Whether the rule with this number has the newest state.
    fn is_newest(&self, number: u64) -> bool;

    /// Completes when the rule with this number does not have the newest state any more.
    fn changed(&self, number: u64) -> BoxFuture<'static, ()>;
}

/// A rule with one state. Rules with newer states have larger numbers.
#[derive(Clone, Debug)]
pub struct NumberedRule {
    pub number: u64,
    /// The rule. It follows no state.
    pub rule: Arc<ErasedVisibility>,
}

impl fmt::Debug for ErasedVisibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByIdentity(_) => "ByIdentity",
            Self::ByContent(..) => "ByContent",
            Self::Following(_) => "Following",
        })
    }
}

impl Kind {
    /// Whether some objects may be invisible to some users.
    pub fn hides(&self) -> bool {
        self.visibility.is_some()
    }

    /// Whether some objects may be invisible to a user.
    pub fn hides_from(&self, user: &User) -> bool {
        self.visibility.is_some() && !user.is_of_control_plane()
    }

    /// Whether a stored object is visible to a user. An object that cannot be converted to the version of the rule is
    /// invisible.
    pub fn is_visible_to(&self, user: &User, object: &Arc<Object>) -> bool {
        self.visibility.as_deref().is_none_or(|rule| self.is_visible_by(rule, user, object))
    }

    /// Whether a stored object is visible to a user by this rule.
    pub fn is_visible_by(
        &self,
        rule: &ErasedVisibility,
        user: &User,
        object: &Arc<Object>,
    ) -> bool {
        if user.is_of_control_plane() {
            return true;
        }
        match rule {
            ErasedVisibility::ByIdentity(judge) => {
                judge(user, &ObjectIdentity { key: object.key(), labels: object.labels() })
            }
            ErasedVisibility::ByContent(version, judge) => {
                let version = self.any_version(version);
                let shown = version.and_then(|one| self.in_version_shared(object, one).ok());
                shown.is_some_and(|shown| judge(user, &shown.json()))
            }
            ErasedVisibility::Following(rule) => {
                self.is_visible_by(&rule.newest().rule, user, object)
            }
        }
    }

    /// The visibility of the kind, if it has a state that changes.
    pub fn following_visibility(&self) -> Option<&Arc<ErasedVisibility>> {
        let is_following =
            |rule: &&Arc<ErasedVisibility>| matches!(***rule, ErasedVisibility::Following(_));
        self.visibility.as_ref().filter(is_following)
    }
}
