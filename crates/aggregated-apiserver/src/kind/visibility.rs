//! The objects of a kind that are visible to each reader. The types of the rules are erased: they receive objects as
//! JSON.

use std::fmt;
use std::sync::Arc;

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
}

impl fmt::Debug for ErasedVisibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByIdentity(_) => "ByIdentity",
            Self::ByContent(..) => "ByContent",
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
        match self.visibility.as_deref() {
            None => true,
            Some(_) if user.is_of_control_plane() => true,
            Some(ErasedVisibility::ByIdentity(judge)) => {
                judge(user, &ObjectIdentity { key: object.key(), labels: object.labels() })
            }
            Some(ErasedVisibility::ByContent(version, judge)) => {
                let version = self.any_version(version);
                let shown = version.and_then(|one| self.in_version_shared(object, one).ok());
                shown.is_some_and(|shown| judge(user, &shown.json()))
            }
        }
    }
}
