//! The query of LIST and WATCH.
//!
//! Checks are in the order of kube-apiserver, because the first error is reported: numbers, selectors, rules among
//! options, fields that the kind cannot be selected by, and finally versions and tokens.

use std::time::Duration;

use super::super::route::Target;
use super::parameters::Parameters;
use crate::error::{ApiError, FieldError, quote};
use crate::object::Key;
use crate::object::selector::{FieldSelector, LabelSelector, Selector};
use crate::storage::Revision;
use crate::verb::{
    ContinueToken, Freshness, ListOptions, Moment, Selection, WatchOptions, WatchStart,
};
use crate::watch_cache::Scope;

const MATCH: &str = "resourceVersionMatch";
const NOT_OLDER_THAN: &str = "NotOlderThan";

impl Parameters {
    /// Returns the scope and the options of a list.
    pub(super) fn list(&self, target: &Target) -> Result<(Scope, ListOptions), ApiError> {
        let query = self.query(target)?;
        let limit = query.limit.filter(|_| self.filled("resourceVersion") != Some("0"));
        let scope = narrow_scope(target, &query.selection);
        // A single object has no pages.
        let has_pages = limit.is_some() && !matches!(scope, Scope::Object(_));
        let moment = self.moment(target, has_pages)?;
        let collection = self::scope(target);
        Ok((scope, ListOptions { selection: query.selection, collection, limit, moment }))
    }

    /// Returns the scope and the options of a watch, and its duration if the client sets one.
    pub(super) fn watch(
        &self,
        target: &Target,
    ) -> Result<(Scope, WatchOptions, Option<Duration>), ApiError> {
        let mut query = self.query(target)?;
        if let Some(name) = &target.name {
            name_in_path(&mut query.selection.selector, name)?;
        }
        let bookmarks = self.flag("allowWatchBookmarks") == Some(true);
        let freshness = self.freshness("")?;
        let start = match (query.send_initial_events, freshness) {
            (Some(true), at_least) => WatchStart::State { at_least, marks_end: bookmarks },
            (_, Freshness::NotOlderThan(revision)) => WatchStart::After(revision),
            (Some(false), _) => WatchStart::Now,
            (None, at_least) => WatchStart::State { at_least, marks_end: false },
        };
        let lasts = match query.timeout_seconds {
            None | Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())),
        };
        let scope = narrow_scope(target, &query.selection);
        Ok((scope, WatchOptions { selection: query.selection, start, bookmarks }, lasts))
    }

    fn query(&self, target: &Target) -> Result<Query<'_>, ApiError> {
        let timeout_seconds = self.integer("timeoutSeconds")?;
        let limit = self.integer("limit")?;
        let text = |key: &str| self.filled(key).unwrap_or_default();
        let labels = LabelSelector::parse(text("labelSelector")).map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(text("fieldSelector")).map_err(ApiError::bad_request)?;
        let kind = &target.served.kind;
        let mut query = Query {
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).filter(|&limit| limit > 0),
            timeout_seconds,
            resource_version: text("resourceVersion"),
            matching: text(MATCH),
            is_continued: self.filled("continue").is_some(),
            send_initial_events: self.flag("sendInitialEvents"),
            selection: Selection {
                kind: kind.clone(),
                version: target.version.clone(),
                selector: Selector { labels, fields },
                viewer: None,
                rule: None,
                redaction: None,
            },
        };
        let is_any = ["", "0"].contains(&query.resource_version);
        let is_plain = query.send_initial_events.is_none() && query.matching.is_empty();
        // The deprecated watch paths have no parameter `watch`, and kube-apiserver checks their options like those of a
        // list.
        let says_watch = self.flag("watch") == Some(true);
        if says_watch && is_any && is_plain {
            query.send_initial_events = Some(true);
            query.matching = NOT_OLDER_THAN;
        }
        let faults = if says_watch { query.watch_faults() } else { query.list_faults() };
        if !faults.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", faults));
        }
        let fields = &query.selection.selector.fields;
        let checked = fields.check(kind.is_namespaced(), kind.selectable(&target.version));
        checked.map_err(ApiError::bad_request)?;
        Ok(query)
    }

    /// Returns the revision that a list shows.
    fn moment(&self, target: &Target, is_limited: bool) -> Result<Moment, ApiError> {
        if let Some(token) = self.filled("continue") {
            let next = ContinueToken::parse(token, &scope(target))
                .map_err(|why| ApiError::bad_request(format!("invalid continue token: {why}")))?;
            if self.filled("resourceVersion").is_some_and(|version| version != "0") {
                let message = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(message));
            }
            return Ok(Moment::Continued(next));
        }
        let revision = match self.freshness("invalid resource version: ")? {
            Freshness::Latest => return Ok(Moment::Latest),
            Freshness::Any => return Ok(Moment::Any),
            Freshness::NotOlderThan(revision) => revision,
        };
        Ok(match self.filled(MATCH) {
            Some("Exact") => Moment::Exactly(revision),
            // A revision with a limit and without `resourceVersionMatch` means exactly this revision, for
            // compatibility.
            None if is_limited => Moment::Exactly(revision),
            _ => Moment::NotOlderThan(revision),
        })
    }

    /// Returns the freshness that `resourceVersion` requires: any for `0`, the latest if it is missing. `start` is the
    /// beginning of the error message, which differs between lists and other reads.
    pub(super) fn freshness(&self, start: &str) -> Result<Freshness, ApiError> {
        let Some(text) = self.filled("resourceVersion") else { return Ok(Freshness::Latest) };
        let invalid = |why: &str| {
            let text = quote(text);
            ApiError::bad_request(format!(
                "{start}resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: {why}"
            ))
        };
        // Go does not accept a sign here.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| is_number);
        let out_of_range = "value out of range";
        let why = if is_number { out_of_range } else { "invalid syntax" };
        let number = number.ok_or_else(|| invalid(why))?;
        Ok(match number {
            0 => Freshness::Any,
            number => Freshness::NotOlderThan(Revision::new(number)),
        })
    }
}

/// The query of a list or a watch before its versions are parsed.
struct Query<'a> {
    selection: Selection,
    limit: Option<usize>,
    timeout_seconds: Option<i64>,
    resource_version: &'a str,
    matching: &'a str,
    is_continued: bool,
    send_initial_events: Option<bool>,
}

impl Query<'_> {
    fn list_faults(&self) -> Vec<FieldError> {
        let mut faults = Vec::new();
        if !self.matching.is_empty() {
            if self.resource_version.is_empty() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                faults.push(FieldError::forbidden(MATCH, detail));
            }
            faults.extend(self.continue_fault());
            match self.matching {
                NOT_OLDER_THAN => {}
                "Exact" if self.resource_version == "0" => {
                    let detail =
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    faults.push(FieldError::forbidden(MATCH, detail));
                }
                "Exact" => {}
                other => {
                    let supported = ["Exact", NOT_OLDER_THAN, ""];
                    faults.push(FieldError::not_supported(MATCH, quote(other), &supported));
                }
            }
        }
        if self.send_initial_events.is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            faults.push(FieldError::forbidden("sendInitialEvents", detail));
        }
        faults
    }

    fn watch_faults(&self) -> Vec<FieldError> {
        let mut faults = Vec::new();
        let is_asked = self.send_initial_events.is_some();
        if is_asked && self.matching != NOT_OLDER_THAN {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            faults.push(FieldError::forbidden(MATCH, detail));
        }
        if !self.matching.is_empty() {
            if !is_asked {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                faults.push(FieldError::forbidden(MATCH, detail));
            }
            if self.matching != NOT_OLDER_THAN {
                let given = quote(self.matching);
                faults.push(FieldError::not_supported(MATCH, given, &[NOT_OLDER_THAN]));
            }
            faults.extend(self.continue_fault());
        }
        faults
    }

    fn continue_fault(&self) -> Option<FieldError> {
        let detail = "resourceVersionMatch is forbidden when continue is provided";
        self.is_continued.then(|| FieldError::forbidden(MATCH, detail))
    }
}

/// The scope of the path.
fn scope(target: &Target) -> Scope {
    match &target.namespace {
        Some(namespace) => Scope::Namespace(namespace.as_str().into()),
        None => Scope::All,
    }
}

/// The narrowest scope that contains all selected objects.
fn narrow_scope(target: &Target, selection: &Selection) -> Scope {
    let fields = &selection.selector.fields;
    let is_namespaced = selection.kind.is_namespaced();
    let namespace = target.namespace.as_deref().or(fields.namespace());
    match (fields.name(), namespace) {
        (Some(name), namespace) if namespace.is_some() || !is_namespaced => {
            Scope::Object(Key::new(namespace, name))
        }
        (_, Some(namespace)) => Scope::Namespace(namespace.into()),
        (_, None) => Scope::All,
    }
}

/// Adds the name in the path of a deprecated single-object watch to the selector. A field selector must select the same
/// name.
fn name_in_path(selector: &mut Selector, name: &str) -> Result<(), ApiError> {
    if selector.fields.is_empty() {
        selector.fields.require_name(name);
        return Ok(());
    }
    if selector.fields.name() == Some(name) {
        return Ok(());
    }
    Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"))
}
