//! Attributes: the action that a user requests.

use std::borrow::Cow;

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};

use crate::error::{ApiError, quote};
use crate::user::User;

/// The action to authorize. Its selectors are not a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// A request for a resource.
    #[non_exhaustive]
    Resource {
        /// The verb: `get`, `list`, …
        verb: Cow<'static, str>,
        /// The API group; empty for the core group.
        group: String,
        /// The version.
        version: String,
        /// The plural of the resource.
        resource: String,
        /// The subresource, or an empty string.
        subresource: String,
        /// The namespace, or an empty string for requests across all namespaces and for cluster-scoped kinds.
        namespace: String,
        /// The name of the object, or an empty string.
        name: String,
    },
    /// A request for a path outside of the resources.
    #[non_exhaustive]
    Path {
        /// The HTTP method, in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

impl Attributes {
    /// The verb: `get`, `list`, …; for a path the HTTP method in lower case.
    pub fn verb(&self) -> &str {
        match self {
            Self::Resource { verb, .. } => verb,
            Self::Path { verb, .. } => verb,
        }
    }

    /// The size of all strings of the action and its user, in bytes. Each group of the user has a size, also an empty
    /// one.
    pub(crate) fn size(&self, user: &User) -> usize {
        user.size()
            + self.verb().len()
            + match self {
                Self::Resource {
                    group, version, resource, subresource, namespace, name, ..
                } => {
                    let texts = [group, version, resource, subresource, namespace, name];
                    texts.map(String::len).iter().sum()
                }
                Self::Path { path, .. } => path.len(),
            }
    }

    /// The message of a denial, in kube-apiserver's format.
    pub(crate) fn denied_to(&self, user: &User) -> String {
        let user = quote(&user.name);
        match self {
            Self::Resource { verb, group, resource, subresource, namespace, .. } => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let place = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                format!(
                    "User {user} cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
                )
            }
            Self::Path { verb, path } => format!("User {user} cannot {verb} path \"{path}\""),
        }
    }

    /// The error of a request without this permission.
    pub(crate) fn forbidden(&self, why: &str) -> ApiError {
        match self {
            Self::Resource { group, resource, name, .. } => {
                ApiError::forbidden(group, resource, name, why).of_authorization()
            }
            Self::Path { .. } => ApiError::forbidden_path(why).of_authorization(),
        }
    }
}

impl From<&ResourceAttributes> for Attributes {
    fn from(asked: &ResourceAttributes) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self::Resource {
            verb: text(&asked.verb).into(),
            group: text(&asked.group),
            version: text(&asked.version),
            resource: text(&asked.resource),
            subresource: text(&asked.subresource),
            namespace: text(&asked.namespace),
            name: text(&asked.name),
        }
    }
}

impl From<&NonResourceAttributes> for Attributes {
    fn from(asked: &NonResourceAttributes) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self::Path { verb: text(&asked.verb), path: text(&asked.path) }
    }
}
