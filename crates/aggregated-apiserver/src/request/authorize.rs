//! Authorization of requests.
//!
//! The chain of authorizers decides whether the caller is allowed to make the request; by default, a SubjectAccessReview
//! asks the cluster. A computed kind must not bypass the permissions on its sources and lookups. A request for a
//! computed kind therefore also needs the same verb on the source and on the lookups, unless the kind declares that a
//! lookup is visible to all readers of the source. If an authorizer fails, the request is rejected.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::route::{Destination, Route};
use crate::auth::{Attributes, Decision};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::kind::MissingRights;
use crate::served_kind::{ComputedFrom, LookupRight, SourceResource};
use crate::user::User;
use crate::verb::Verb;

/// The interval between the checks of a watch's permissions; a random time of up to the same length is added.
const ASK_AGAIN: Duration = Duration::from_secs(3 * 60);
/// The longest time that a watch continues while authorizers fail, for example because the cluster does not answer.
const UNANSWERED: Duration = Duration::from_secs(60 * 60);

/// The permission of a long request, which is checked again while the request is in progress.
pub(super) struct Permission {
    cluster: Arc<Cluster>,
    user: Arc<User>,
    demands: Vec<Arc<Attributes>>,
    /// The permissions that protect fields, in the order of the bits of [`MissingRights`].
    protected: Vec<Attributes>,
}

/// The reason why a watch must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revoked {
    /// The caller is not allowed to watch any more.
    All,
    /// Other fields would be omitted from objects for the caller now.
    Fields,
}

impl Permission {
    /// Returns the permissions that this request depends on.
    pub(super) fn of(
        cluster: &Arc<Cluster>,
        user: &Arc<User>,
        route: &Route,
        is_upgrade: bool,
    ) -> Self {
        let mut demands = vec![Arc::clone(&route.attributes)];
        demands.extend(on_sources(route).map(Arc::new));
        demands.extend(on_lookups(route, |from| &from.demanded).map(Arc::new));
        demands.extend(on_upgrade(route, is_upgrade).map(Arc::new));
        let protected = on_lookups(route, |from| &from.protected).collect();
        Self { cluster: Arc::clone(cluster), user: Arc::clone(user), demands, protected }
    }

    /// Returns when the caller has lost the permission, when the cluster has not confirmed it for too long, or when
    /// other fields than those of `missing` would be omitted.
    pub(super) async fn ended(self, clock: Clock, missing: MissingRights) -> Revoked {
        if self.user.is_master() {
            return std::future::pending().await;
        }
        let mut known = Instant::now();
        let seconds = ASK_AGAIN.as_secs();
        loop {
            sleep(Duration::from_secs(seconds + clock.random() % seconds)).await;
            // Boxed, because a watch does not need the memory of this future while it sleeps.
            match Box::pin(self.revoked(missing)).await {
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

/// The permissions that a caller lacks to see all fields of computed objects.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The missing permissions, as bits.
    pub rights: MissingRights,
    /// The resources of the missing permissions, in the order of the bits.
    pub left_out: Vec<LeftOut>,
}

/// A resource whose data is not visible to a caller.
#[derive(Debug)]
pub(super) struct LeftOut {
    /// The qualified name of the resource, as `services`.
    pub resource: String,
    /// The reason: the permission that the caller lacks.
    pub why: String,
}

/// Checks each of these permissions, all at the same time.
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

/// Returns why the fields of a permission are omitted, or `None` if they are visible.
///
/// Lists and watches must show the same fields, because a client resumes a watch from objects that it has listed. A
/// watch that showed fewer or more fields would send the client back to a list forever. A watch therefore also requires
/// the permission to list, and the permission to list is sufficient to get an object.
async fn why_left_out(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<Option<String>, ApiError> {
    let why = ask(cluster, user, attributes).await?;
    let Attributes::Resource { verb, .. } = attributes else { return Ok(why) };
    let list = || with_verb(attributes, Verb::List);
    match why {
        None if verb == Verb::Watch.name() => ask(cluster, user, &list()).await,
        Some(why) if verb == Verb::Get.name() => {
            Ok(ask(cluster, user, &list()).await?.map(|_| why))
        }
        why => Ok(why),
    }
}

/// Returns the permission for another verb on the same resource.
fn with_verb(attributes: &Attributes, other: Verb) -> Attributes {
    let mut attributes = attributes.clone();
    if let Attributes::Resource { verb, .. } = &mut attributes {
        *verb = other.name().into();
    }
    attributes
}

/// The restrictions on the objects that a caller is allowed to read.
#[derive(Debug, Default)]
pub(super) struct Authorized {
    /// The permissions whose absence hides fields of objects.
    pub missing: Missing,
    /// For a list with a selector: the permissions that a watch would lack. They replace `missing` if the selector
    /// reads a protected field, because a client that continues with a watch must be notified when an object is not
    /// selected any more.
    pub missing_to_select: Option<Missing>,
}

/// The sources and lookups of the requested kind, if it is computed.
fn computed_from(route: &Route) -> Option<&ComputedFrom> {
    match &route.destination {
        Destination::Target(target) => target.served.computed_from(),
        _ => None,
    }
}

/// Returns the permissions for lookups: the verb of the request, on each resource that is looked up. They name no
/// object, because the names of looked-up objects are known only after the computation. Requests that are not reads
/// show nothing and need none.
fn on_lookups<'a>(
    route: &'a Route,
    which: fn(&ComputedFrom) -> &Vec<LookupRight>,
) -> impl Iterator<Item = Attributes> + 'a {
    let reads = |route: &Route| match &route.destination {
        Destination::Target(target) => {
            matches!(target.verb, Verb::Get | Verb::List | Verb::Watch) || target.custom().is_some()
        }
        _ => false,
    };
    let from = computed_from(route).filter(|_| reads(route));
    let rights = from.into_iter().flat_map(which);
    rights.filter_map(|right| on_lookup(&reading(route), right))
}

/// Returns the permission for one lookup: the verb of the request on the looked-up resource.
fn on_lookup(attributes: &Attributes, right: &LookupRight) -> Option<Attributes> {
    let Attributes::Resource { verb, namespace, .. } = attributes else { return None };
    Some(Attributes::Resource {
        verb: verb.clone(),
        group: right.group.clone(),
        version: right.version.clone(),
        resource: right.resource.clone(),
        subresource: String::new(),
        namespace: if right.in_namespace { namespace.clone() } else { String::new() },
        name: String::new(),
    })
}

/// Returns the permissions for sources: the verb of the request, on the sources of the requested objects. If the name
/// of an object belongs to one of several sources, only the permission on this source is needed.
fn on_sources(route: &Route) -> impl Iterator<Item = Attributes> {
    let sources = computed_from(route).map_or(&[][..], |from| &from.sources);
    let name = match &*route.attributes {
        Attributes::Resource { name, .. } => name.as_str(),
        Attributes::Path { .. } => "",
    };
    let is_behind = |source: &SourceResource| !name.is_empty() && (source.name_of)(name).is_some();
    let has_source = sources.iter().any(is_behind);
    let asked = sources.iter().filter(move |source| !has_source || is_behind(source));
    asked.map(|source| on_source(&reading(route), source))
}

/// The attributes of a request as those of a read. A subresource of the user shows the object to its handler, so
/// requests of all methods need the permission to read the sources of the object.
fn reading(route: &Route) -> Cow<'_, Attributes> {
    match route.custom() {
        Some(_) => Cow::Owned(with_verb(&route.attributes, Verb::Get)),
        None => Cow::Borrowed(&route.attributes),
    }
}

/// Returns the further permission for a request that upgrades its connection. An upgrade is a GET, and a role that may
/// `get` all resources must not be able to execute commands.
fn on_upgrade(route: &Route, is_upgrade: bool) -> Option<Attributes> {
    let custom = route.custom().filter(|_| is_upgrade)?;
    custom.upgrades_need_create().then(|| with_verb(&route.attributes, Verb::Create))
}

/// Rejects a request that the caller is not allowed to make. Otherwise returns which fields are hidden from the caller.
/// `given` receives the decision about the request itself. The flag says whether the request upgrades its connection.
pub(super) async fn authorize(
    cluster: &Cluster,
    user: &User,
    (route, is_upgrade): (&Route, bool),
    given: &mut Decision,
) -> Result<Authorized, ApiError> {
    if user.is_master() {
        return Ok(Authorized::default());
    }
    if let Some(why) = ask_why(cluster, user, &route.attributes, given).await? {
        return Err(route.attributes.forbidden(&why));
    }
    if let Some(attributes) = on_upgrade(route, is_upgrade) {
        demand(cluster, user, &attributes).await?;
    }
    for attributes in on_sources(route).chain(on_lookups(route, |from| &from.demanded)) {
        if let Some(why) = ask(cluster, user, &attributes).await? {
            return Err(route.attributes.forbidden(&why));
        }
    }
    let protected: Vec<Attributes> = on_lookups(route, |from| &from.protected).collect();
    if protected.is_empty() {
        return Ok(Authorized::default());
    }
    // Boxed, because most requests do not need the memory of this future.
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

/// Rejects a request if the user lacks this permission.
pub(super) async fn demand(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    match ask(cluster, user, attributes).await? {
        Some(why) => Err(attributes.forbidden(&why)),
        None => Ok(()),
    }
}

/// Returns `None` if the user has the permission, and the reason of the denial otherwise.
async fn ask(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
) -> Result<Option<String>, ApiError> {
    ask_why(cluster, user, attributes, &mut Decision::no_opinion("")).await
}

/// Returns `None` if the user has the permission, and the reason of the denial otherwise. `given` receives the
/// decision.
async fn ask_why(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
    given: &mut Decision,
) -> Result<Option<String>, ApiError> {
    // Boxed, because requests and watches without a review in flight do not need the memory of this future.
    let decision = Box::pin(cluster.authorize(user, attributes)).await.map_err(|error| {
        if error.is_busy() {
            return ApiError::too_many_requests().bounded_by("reviews");
        }
        let what = attributes.denied_to(user);
        let until = error.until();
        ApiError::internal(format!("{error}; {until}, {what}")).caused_by(error.why())
    })?;
    *given = decision;
    if given.is_allowed() {
        return Ok(None);
    }
    let why = attributes.denied_to(user);
    match given.reason.as_str() {
        "" => Ok(Some(why)),
        reason => Ok(Some(format!("{why}: {reason}"))),
    }
}

/// Returns the permission for one source: the verb of the request on the source.
fn on_source(attributes: &Attributes, source: &SourceResource) -> Attributes {
    let Attributes::Resource { verb, namespace, name, .. } = attributes else {
        return attributes.clone();
    };
    Attributes::Resource {
        verb: verb.clone(),
        group: source.group.clone(),
        version: source.version.clone(),
        resource: source.resource.clone(),
        subresource: String::new(),
        namespace: source.namespace_of(namespace).to_owned(),
        // If no source can have this name, the name is omitted. The permission on all objects is then needed.
        name: Some(name)
            .filter(|name| !name.is_empty())
            .and_then(|name| (source.name_of)(name))
            .unwrap_or_default(),
    }
}
