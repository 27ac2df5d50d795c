//! May the caller do that?
//!
//! The cluster is asked, with what the caller wants. A computed kind is no way
//! around the rights on what it shows: there the caller needs the same verb on
//! the source too, and on what is looked up besides, unless the kind says that it may be shown to all
//! who read the source. If the cluster does not answer, the request is refused.

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

/// How often it is asked again whether a watch may go on, and up to as long again.
const ASK_AGAIN: Duration = Duration::from_secs(3 * 60);
/// How long a watch goes on while the cluster does not answer.
const UNANSWERED: Duration = Duration::from_secs(60 * 60);

/// What a caller was allowed to do, for as long as it is done.
pub(super) struct Permission {
    cluster: Cluster,
    user: Arc<User>,
    demands: Vec<Arc<Attributes>>,
    /// What fields are asked about, by the bits of [`MissingRights`].
    protected: Vec<Attributes>,
}

/// Why a watch does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revoked {
    /// Its caller may not watch any more.
    All,
    /// What is left out of objects for the caller would be something else now.
    Fields,
}

impl Permission {
    /// What this request was allowed to do.
    pub(super) fn of(cluster: &Cluster, user: &Arc<User>, route: &Route) -> Self {
        let mut demands = vec![Arc::clone(&route.attributes)];
        demands.extend(on_sources(route).map(Arc::new));
        demands.extend(on_lookups(route, |from| &from.demanded).map(Arc::new));
        let protected = on_lookups(route, |from| &from.protected).collect();
        Self { cluster: cluster.clone(), user: Arc::clone(user), demands, protected }
    }

    /// Returns when the caller may not do it any more, when that has not been known for long, or when other fields
    /// would be left out than those of these rights.
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

/// The rights that a caller lacks to see all of what is computed.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// As bits.
    pub rights: MissingRights,
    /// Which they are, in the order of bits.
    pub left_out: Vec<LeftOut>,
}

/// What is not shown to a caller.
#[derive(Debug)]
pub(super) struct LeftOut {
    /// What comes of this resource, as `services`.
    pub resource: String,
    /// What the caller cannot do.
    pub why: String,
}

/// Asks for each of the rights, at the same time.
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

/// Why what a right protects is left out; `None` if it is shown. Clients go on with a watch from what they have got, and
/// one that could show less than that was, or more, would send them back for ever. So a watch shows what may be listed as
/// well, and one object what may be listed, which shows as much of it as the right to get it.
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

/// The right to do something else with the same resource.
fn with_verb(attributes: &Attributes, other: Verb) -> Attributes {
    let mut attributes = attributes.clone();
    if let Attributes::Resource { verb, .. } = &mut attributes {
        *verb = other.name();
    }
    attributes
}

/// What a caller may see of what it may read.
#[derive(Debug, Default)]
pub(super) struct Authorized {
    /// What is left out of objects.
    pub missing: Missing,
    /// What is left out of a list instead whose selector looks at what is protected: what a watch would leave out, because a
    /// client that goes on with one has to be told when an object is not selected any more.
    pub missing_to_select: Option<Missing>,
}

/// What the kind of a target is computed from, if it is.
fn computed_from(route: &Route) -> Option<&ComputedFrom> {
    match &route.destination {
        Destination::Target(target) => target.served.computed_from(),
        _ => None,
    }
}

/// The same verb on what is looked up, whatever it is called: that is found by computing. What is not read shows
/// nothing.
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

/// The same verb on what is looked up.
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

/// The same verb on what the objects that are asked for are computed from. What one name leads to is asked of
/// its own type alone.
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

/// Refuses what the caller may not do, and says what it may not see. `reason` gains what the authorizer said of it.
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
    // Boxed: most requests need no room for it.
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
