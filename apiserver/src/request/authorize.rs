//! May the caller do that?
//!
//! The cluster is asked, with what the caller wants. A computed kind is no way
//! around the rights on what it shows: there the caller needs the same verb on
//! the source too. If the cluster does not answer, the request is refused.

use super::route::{Destination, Route};
use crate::cluster::{Attributes, Cluster};
use crate::error::ApiError;
use crate::served_kind::{Backing, SourceResource};
use crate::user::User;

/// Refuses what the caller may not do.
pub(super) async fn authorize(
    cluster: &Cluster,
    user: &User,
    route: &Route,
) -> Result<(), ApiError> {
    demand(cluster, user, &route.attributes).await?;
    if user.is_master() {
        return Ok(());
    }
    if let Destination::Target(target) = &route.destination
        && let Backing::Computed(source) = &target.served.backing
    {
        let attributes = on_source(&route.attributes, source);
        if let Some(why) = ask(cluster, user, &attributes).await? {
            return Err(forbidden(&route.attributes, &why));
        }
    }
    Ok(())
}

/// Refuses this, unless the user may do it.
pub(super) async fn demand(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    match ask(cluster, user, attributes).await? {
        Some(why) => Err(forbidden(attributes, &why)),
        None => Ok(()),
    }
}

/// `None` if the user may, otherwise why not.
async fn ask(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<Option<String>, ApiError> {
    let decision = cluster.authorize(user, attributes).await.map_err(|error| {
        if error.is_busy() {
            return ApiError::too_many_requests();
        }
        let what = cannot(user, attributes);
        ApiError::internal(format!("{error}; until it does, {what}")).caused_by(error.why())
    })?;
    if decision.allowed {
        return Ok(None);
    }
    let mut why = cannot(user, attributes);
    if !decision.reason.is_empty() {
        why = format!("{why}: {}", decision.reason);
    }
    Ok(Some(why))
}

/// The same verb on what an object is computed from.
fn on_source(attributes: &Attributes, source: &SourceResource) -> Attributes {
    let Attributes::Resource { verb, namespace, name, .. } = attributes else {
        return attributes.clone();
    };
    Attributes::Resource {
        verb,
        group: source.group.clone(),
        version: source.version.clone(),
        resource: source.resource.clone(),
        subresource: String::new(),
        namespace: if source.namespaced { namespace.clone() } else { String::new() },
        // A name that no source can have is none: then the right to all is needed.
        name: Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| (source.name_of)(name))
            .unwrap_or_default(),
    }
}

/// What a user cannot do, in kube-apiserver's words.
fn cannot(user: &User, attributes: &Attributes) -> String {
    let user = crate::error::quote(&user.name);
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
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
        Attributes::Path { verb, path } => format!("User {user} cannot {verb} path \"{path}\""),
    }
}

fn forbidden(attributes: &Attributes, why: &str) -> ApiError {
    match attributes {
        Attributes::Resource { group, resource, name, .. } => {
            ApiError::forbidden(group, resource, name, why).of_authorization()
        }
        Attributes::Path { .. } => ApiError::forbidden_path(why).of_authorization(),
    }
}
