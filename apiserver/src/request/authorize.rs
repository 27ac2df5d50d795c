//! May the caller do that?
//!
//! The cluster is asked, with what the caller wants. A computed kind is no way
//! around the rights on what it shows: there the caller needs the same verb on
//! the source too. If the cluster does not answer, the request is refused.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::route::{Destination, Route};
use crate::clock::Clock;
use crate::cluster::{Attributes, Cluster};
use crate::error::ApiError;
use crate::served_kind::{Backing, SourceResource};
use crate::user::User;

/// How often it is asked again whether a watch may go on, and up to as long again.
const ASK_AGAIN: Duration = Duration::from_secs(3 * 60);
/// How long a watch goes on while the cluster does not answer.
const UNANSWERED: Duration = Duration::from_secs(60 * 60);

/// What a caller was allowed to do, for as long as it is done.
pub(super) struct Permission {
    cluster: Cluster,
    user: Arc<User>,
    demands: Vec<Arc<Attributes>>,
}

impl Permission {
    /// What this request was allowed to do.
    pub(super) fn of(cluster: &Cluster, user: &Arc<User>, route: &Route) -> Self {
        let mut demands = vec![Arc::clone(&route.attributes)];
        demands.extend(on_sources(route).map(Arc::new));
        Self { cluster: cluster.clone(), user: Arc::clone(user), demands }
    }

    /// Returns when the caller may not do it any more, or when nobody has known for long.
    pub(super) async fn ended(self, clock: Clock) {
        if self.user.is_master() {
            return std::future::pending().await;
        }
        let mut known = Instant::now();
        let seconds = ASK_AGAIN.as_secs();
        loop {
            sleep(Duration::from_secs(seconds + clock.random() % seconds)).await;
            match self.holds().await {
                Ok(true) => known = Instant::now(),
                Ok(false) => return,
                Err(_) if known.elapsed() > UNANSWERED => return,
                Err(error) => tracing::debug!("a watch goes on meanwhile: {error}"),
            }
        }
    }

    async fn holds(&self) -> Result<bool, ApiError> {
        for demand in &self.demands {
            if ask(&self.cluster, &self.user, demand).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The same verb on what the objects that are asked for are computed from. What one name leads to is asked of
/// its own type alone.
fn on_sources(route: &Route) -> impl Iterator<Item = Attributes> {
    let sources: &[SourceResource] = match &route.destination {
        Destination::Target(target) => match &target.served.backing {
            Backing::Computed(sources) => sources,
            _ => &[],
        },
        _ => &[],
    };
    let name = match &*route.attributes {
        Attributes::Resource { name, .. } => name.as_str(),
        Attributes::Path { .. } => "",
    };
    let is_behind = |source: &SourceResource| !name.is_empty() && (source.name_of)(name).is_some();
    let has_source = sources.iter().any(is_behind);
    let asked = sources.iter().filter(move |source| !has_source || is_behind(source));
    asked.map(|source| on_source(&route.attributes, source))
}

/// Refuses what the caller may not do. `reason` gains what the authorizer said of it.
pub(super) async fn authorize(
    cluster: &Cluster,
    user: &User,
    route: &Route,
    reason: &mut String,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    if let Some(why) = ask_why(cluster, user, &route.attributes, reason).await? {
        return Err(forbidden(&route.attributes, &why));
    }
    for attributes in on_sources(route) {
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
    ask_why(cluster, user, attributes, &mut String::new()).await
}

/// The same; `reason` gains what the authorizer said.
async fn ask_why(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
    reason: &mut String,
) -> Result<Option<String>, ApiError> {
    // Boxed: requests and watches that do not ask now need no room for it.
    let decision = Box::pin(cluster.authorize(user, attributes)).await.map_err(|error| {
        if error.is_busy() {
            return ApiError::too_many_requests().bounded_by("reviews");
        }
        let what = cannot(user, attributes);
        ApiError::internal(format!("{error}; until it does, {what}")).caused_by(error.why())
    })?;
    if decision.allowed {
        *reason = decision.reason;
        return Ok(None);
    }
    let mut why = cannot(user, attributes);
    if !decision.reason.is_empty() {
        why = format!("{why}: {}", decision.reason);
    }
    *reason = decision.reason;
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
