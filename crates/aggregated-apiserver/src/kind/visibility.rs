//! Which objects of a kind its readers see. The types of the code that says so are erased: it is given
//! objects as JSON.

use std::fmt;
use std::sync::Arc;

use super::Kind;
use crate::object::{Key, Labels, Object};
use crate::user::User;

/// What an object is called, without a look at what it holds.
#[derive(Clone, Copy, Debug)]
pub struct ObjectIdentity<'a> {
    key: &'a Key,
    labels: &'a Labels,
}

impl<'a> ObjectIdentity<'a> {
    /// Its namespace, if it has one.
    pub fn namespace(&self) -> Option<&'a str> {
        self.key.namespace()
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        self.key.name()
    }

    /// The value of one of its labels.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels.get(key)
    }

    /// Its labels, in the order of their keys.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.labels.iter()
    }
}

/// Says whether a user sees the object of this identity.
pub type IdentityJudge = Box<dyn Fn(&User, &ObjectIdentity<'_>) -> bool + Send + Sync>;
/// Says whether a user sees the object whose JSON this is.
pub type ContentJudge = Box<dyn Fn(&User, &[u8]) -> bool + Send + Sync>;

/// Which objects of a kind each reader sees.
pub enum ErasedVisibility {
    /// By what they are called.
    ByIdentity(IdentityJudge),
    /// By what they hold in the version of this name.
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
    /// Whether some of its objects may be hidden from somebody.
    pub fn hides(&self) -> bool {
        self.visibility.is_some()
    }

    /// Whether some of its objects may be hidden from a user.
    pub fn hides_from(&self, user: &User) -> bool {
        self.visibility.is_some() && !user.is_of_control_plane()
    }

    /// Whether a user sees an object, as it is kept. What cannot be shown in the version that is
    /// judged is hidden.
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
