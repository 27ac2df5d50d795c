//! Authorization: asks the cluster whether the user is allowed to make the request.
//!
//! A reader of a computed kind also needs the same verb on the source, so that the kind does not bypass the permissions
//! on the objects that it shows. The reader needs the verb on the lookups too, unless the kind declares their fields
//! visible to every reader of the source. If the cluster does not respond, the request is rejected.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::route::{Destination, Route};
use crate::clock::Clock;
use crate::cluster::{Attributes, Cluster};
use crate::error::ApiError;
use crate::kind::MissingRights;
use crate::served_kind::{ComputedFrom, LookupRight, SourceResource};
use crate::user::User;
use crate::verb::Verb;

/// The shortest interval after which the permission of an open watch is checked again. The interval is random, up to
/// twice as long.
const ASK_AGAIN: Duration = Duration::from_secs(3 * 60);
/// How long a watch continues while the cluster does not respond.
const UNANSWERED: Duration = Duration::from_secs(60 * 60);

/// The permissions of an open watch, which are checked again while it is open.
pub(super) struct Permission {
    cluster: Cluster,
    user: Arc<User>,
    demands: Vec<Arc<Attributes>>,
    /// The permissions that protect fields, in the order of the bits of [`MissingRights`].
    protected: Vec<Attributes>,
}

/// The reason why a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revoked {
    /// The user is not allowed to watch any more.
    All,
    /// The set of fields that are hidden from the user has changed.
    Fields,
}

impl Permission {
    /// The permissions that this request needs.
    pub(super) fn of(cluster: &Cluster, user: &Arc<User>, route: &Route) -> Self {
        let mut demands = vec![Arc::clone(&route.attributes)];
        demands.extend(on_sources(route).map(Arc::new));
        demands.extend(on_lookups(route, |from| &from.demanded).map(Arc::new));
        let protected = on_lookups(route, |from| &from.protected).collect();
        Self { cluster: cluster.clone(), user: Arc::clone(user), demands, protected }
    }

    /// Returns when the user loses the permission, when it could not be checked for too long, or when the set of hidden
    /// fields differs from `missing`.
    pub(super) async fn ended(self, clock: Clock, missing: MissingRights) -> Revoked {
        if self.user.is_master() {
            return std::future::pending().await;
        }
        let mut known = Instant::now();
        let seconds = ASK_AGAIN.as_secs();
        loop {
            sleep(Duration::from_secs(seconds + clock.random() % seconds)).await;
            match self.revoked(missing).await {
                Ok(None) => known = Instant::now(),
                Ok(Some(revoked)) => return revoked,
                Err(_) if known.elapsed() > UNANSWERED => return Revoked::All,
                Err(error) => {
                    tracing::debug!(
                        %error,
                        "cannot review the permission of a watch; the watch continues"
                    );
                }
            }
        }
    }

    async fn revoked(&self, missing: MissingRights) -> Result<Option<Revoked>, ApiError> {
        for demand in &self.demands {
            if ask(&self.cluster, &self.user, demand).await?.is_some() {
                return Ok(Some(Revoked::All));
            }
        }
        let now = self::missing(&self.cluster, &self.user, &self.protected).await?;
        Ok((now.rights != missing).then_some(Revoked::Fields))
    }
}

/// The permissions that a user lacks for fields of a computed kind.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The missing permissions as bits.
    pub rights: MissingRights,
    /// The fields that are omitted, in the order of the bits.
    pub left_out: Vec<LeftOut>,
}

/// Fields that are omitted for a user.
#[derive(Debug)]
pub(super) struct LeftOut {
    /// The resource that the fields are computed from, for example `services`.
    pub resource: String,
    /// The missing permission, as a message.
    pub why: String,
}

/// Checks all of these permissions concurrently.
async fn missing(
    cluster: &Cluster,
    user: &User,
    protected: &[Attributes],
) -> Result<Missing, ApiError> {
    let asked = protected.iter().map(|attributes| why_left_out(cluster, user, attributes));
    let answers = futures::future::try_join_all(asked).await?;
    let mut missing = Missing::default();
    for (place, why) in answers.into_iter().enumerate() {
        let Some(why) = why else { continue };
        missing.rights |= 1 << place;
        if let Some(Attributes::Resource { group, resource, .. }) = protected.get(place) {
            let resource = crate::error::qualified(group, resource);
            missing.left_out.push(LeftOut { resource, why });
        }
    }
    Ok(missing)
}

/// Returns why protected fields are omitted; `None` if they are visible. A client continues a watch from the objects
/// that it has listed. If the watch showed other fields than the list, the client would list again for ever. So a watch
/// also needs the permission to list, and a get also accepts the permission to list, which shows at least as much.
async fn why_left_out(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<Option<String>, ApiError> {
    let why = ask(cluster, user, attributes).await?;
    let Attributes::Resource { verb, .. } = attributes else { return Ok(why) };
    let list = || with_verb(attributes, Verb::List);
    match why {
        None if *verb == Verb::Watch.name() => ask(cluster, user, &list()).await,
        Some(why) if *verb == Verb::Get.name() => {
            Ok(ask(cluster, user, &list()).await?.map(|_| why))
        }
        why => Ok(why),
    }
}

/// The attributes of the same resource with another verb.
fn with_verb(attributes: &Attributes, other: Verb) -> Attributes {
    let mut attributes = attributes.clone();
    if let Attributes::Resource { verb, .. } = &mut attributes {
        *verb = other.name();
    }
    attributes
}

/// The result of the authorization of a read.
#[derive(Debug, Default)]
pub(super) struct Authorized {
    /// The fields that are omitted from objects.
    pub missing: Missing,
    /// The fields that are omitted from a list instead, if its selector uses protected fields: the same fields that a
    /// watch would omit. A client that continues with a watch must be notified when an object stops matching the
    /// selector.
    pub missing_to_select: Option<Missing>,
}

/// The sources of a computed kind; `None` for other kinds.
fn computed_from(route: &Route) -> Option<&ComputedFrom> {
    match &route.destination {
        Destination::Target(target) => target.served.computed_from(),
        _ => None,
    }
}

/// The attributes of the same verb on the lookups, for all names, because lookups are only known after the computation.
/// Lookups that are not read need no permission.
fn on_lookups<'a>(
    route: &'a Route,
    which: fn(&ComputedFrom) -> &Vec<LookupRight>,
) -> impl Iterator<Item = Attributes> + 'a {
    let reads = |route: &Route| match &route.destination {
        Destination::Target(target) => {
            matches!(target.verb, Verb::Get | Verb::List | Verb::Watch)
        }
        _ => false,
    };
    let from = computed_from(route).filter(|_| reads(route));
    let rights = from.into_iter().flat_map(which);
    rights.filter_map(|right| on_lookup(&route.attributes, right))
}

/// The attributes of the same verb on a lookup.
fn on_lookup(attributes: &Attributes, right: &LookupRight) -> Option<Attributes> {
    let Attributes::Resource { verb, namespace, .. } = attributes else { return None };
    Some(Attributes::Resource {
        verb,
        group: right.group.clone(),
        version: right.version.clone(),
        resource: right.resource.clone(),
        subresource: String::new(),
        namespace: if right.in_namespace { namespace.clone() } else { String::new() },
        name: String::new(),
    })
}

/// The attributes of the same verb on the sources of the requested objects. A name belongs to one source type, and only
/// the permission on that type is checked.
fn on_sources(route: &Route) -> impl Iterator<Item = Attributes> {
    let sources = computed_from(route).map_or(&[][..], |from| &from.sources);
    let name = match &*route.attributes {
        Attributes::Resource { name, .. } => name.as_str(),
        Attributes::Path { .. } => "",
    };
    let is_behind = |source: &SourceResource| !name.is_empty() && (source.name_of)(name).is_some();
    let has_source = sources.iter().any(is_behind);
    let asked = sources.iter().filter(move |source| !has_source || is_behind(source));
    asked.map(|source| on_source(&route.attributes, source))
}

/// Rejects the request unless the user is allowed to make it, and returns which fields the user may not see. The
/// reasons of the authorizer are added to `reason`.
pub(super) async fn authorize(
    cluster: &Cluster,
    user: &User,
    route: &Route,
    reason: &mut String,
) -> Result<Authorized, ApiError> {
    if user.is_master() {
        return Ok(Authorized::default());
    }
    if let Some(why) = ask_why(cluster, user, &route.attributes, reason).await? {
        return Err(forbidden(&route.attributes, &why));
    }
    for attributes in on_sources(route).chain(on_lookups(route, |from| &from.demanded)) {
        if let Some(why) = ask(cluster, user, &attributes).await? {
            return Err(forbidden(&route.attributes, &why));
        }
    }
    let protected: Vec<Attributes> = on_lookups(route, |from| &from.protected).collect();
    if protected.is_empty() {
        return Ok(Authorized::default());
    }
    // Boxed: most requests need no memory for this future.
    let missing_of = |protected| async move { Box::pin(missing(cluster, user, protected)).await };
    let missing = missing_of(&protected).await?;
    let missing_to_select = match route.selects && !route.is_watch() {
        true => {
            let watched: Vec<Attributes> =
                protected.iter().map(|right| with_verb(right, Verb::Watch)).collect();
            Some(missing_of(&watched).await?)
        }
        false => None,
    };
    Ok(Authorized { missing, missing_to_select })
}

/// Rejects the request unless the user has this permission.
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

/// Returns `None` if the user has this permission, and otherwise the reason of the denial.
async fn ask(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<Option<String>, ApiError> {
    ask_why(cluster, user, attributes, &mut String::new()).await
}

/// Same as [`ask`]; the reason of the authorizer is added to `reason`.
async fn ask_why(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
    reason: &mut String,
) -> Result<Option<String>, ApiError> {
    // Boxed: requests and watches that are not being authorized need no memory for this future.
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

/// The attributes of the same verb on the source of an object.
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
        // A name that no source can have counts as no name, so the permission on all objects is needed.
        name: Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| (source.name_of)(name))
            .unwrap_or_default(),
    }
}

/// The message for a missing permission, same as in kube-apiserver.
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
