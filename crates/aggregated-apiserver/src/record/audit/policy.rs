//! `Policy` of `audit.k8s.io/v1`: selects the requests that have events, and the content of the events.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::auth::Attributes;
use crate::user::User;

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

/// The level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// No event.
    None,
    /// The user, the target and the status of a request.
    Metadata,
    /// The metadata, and the body of the request.
    Request,
    /// The metadata, and the bodies of the request and the response.
    RequestResponse,
}

impl Level {
    /// The name of the level in policies and events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// A stage of a request at which an event is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The request has arrived and is authenticated.
    RequestReceived,
    /// The response of a long-running request has started.
    ResponseStarted,
    /// The request has ended.
    ResponseComplete,
    /// A handler panicked.
    Panic,
}

impl Stage {
    /// The name of the stage in policies and events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// An audit policy: rules that select the level of requests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// A rule. A request must match all its fields; an empty field matches every request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The decision of a policy about a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict<'a> {
    /// The level of the events.
    pub level: Level,
    omit_stages: [&'a [Stage]; 2],
    /// Whether `metadata.managedFields` is omitted.
    pub omits_managed_fields: bool,
}

impl Verdict<'_> {
    /// The omitted stages, as a bit for each.
    pub(super) fn omitted(&self) -> u8 {
        let stages = self.omit_stages.iter().copied().flatten();
        stages.fold(0, |bits, stage| bits | 1 << *stage as u8)
    }
}

impl Policy {
    /// Parses a policy from YAML or JSON.
    /// # Errors
    /// Returns the problem and its location in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { with_snippet: false };
        let value: Value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| one_line(format!("it is not valid YAML: {error}")))?;
        if !value.is_object() {
            return Err(format!("it must be a {KIND} of {API_VERSION}, but it is not an object"));
        }
        let policy: Self = serde_path_to_error::deserialize(value)
            .map_err(|error| one_line(format!("{}: {}", error.path(), error.inner())))?;
        policy.validate()?;
        Ok(policy)
    }

    fn validate(&self) -> Result<(), String> {
        if (self.api_version.as_str(), self.kind.as_str()) != (API_VERSION, KIND) {
            let (version, kind) = (&self.api_version, &self.kind);
            return Err(format!(
                "it must be a {KIND} of {API_VERSION}, but it is a {kind} of {version}"
            ));
        }
        if self.rules.is_empty() {
            return Err("rules: must not be empty, because no event would be written".to_owned());
        }
        for (index, rule) in self.rules.iter().enumerate() {
            rule.validate().map_err(|why| format!("rules[{index}].{why}"))?;
        }
        Ok(())
    }

    /// Whether events of some requests contain bodies.
    pub(super) fn writes_bodies(&self) -> bool {
        self.rules.iter().any(|rule| rule.level >= Level::Request)
    }

    /// Returns the decision for a request, by the first rule that matches it.
    pub(super) fn judge(&self, user: Option<&User>, attributes: &Attributes) -> Verdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.matches(user, attributes));
        let of_rule = rule.map_or(&[][..], |rule| &rule.omit_stages);
        let omits = rule.and_then(|rule| rule.omit_managed_fields);
        Verdict {
            level: rule.map_or(Level::None, |rule| rule.level),
            omit_stages: [&self.omit_stages, of_rule],
            omits_managed_fields: omits.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn one_line(text: String) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

impl Rule {
    fn validate(&self) -> Result<(), String> {
        for (index, url) in self.non_resource_urls.iter().enumerate() {
            let wrong = |why: &str| Err(format!("nonResourceURLs[{index}]: {url:?} {why}"));
            if url != "*" && !url.starts_with('/') {
                return wrong("must begin with /");
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                return wrong("may contain one *, at its end");
            }
        }
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.non_resource_urls.is_empty() && is_of_resources {
            let why = "a rule must select resources or URLs, not both";
            return Err(format!("nonResourceURLs: {why}"));
        }
        for (index, one) in self.resources.iter().enumerate() {
            if one.group.contains('/') || one.group.chars().any(char::is_uppercase) {
                let group = &one.group;
                let why = "must be the name of a group, in lower case and without a version";
                return Err(format!("resources[{index}].group: {group:?} {why}"));
            }
            if !one.resource_names.is_empty() && one.resources.is_empty() {
                return Err(format!(
                    "resources[{index}].resourceNames: must not be set without resources"
                ));
            }
        }
        Ok(())
    }

    fn matches(&self, user: Option<&User>, attributes: &Attributes) -> bool {
        let is_among = |all: &[String], one: &str| all.iter().any(|other| other == one);
        let has_user = user.is_some_and(|user| is_among(&self.users, &user.name));
        let has_group =
            |user: &User| user.groups.iter().any(|one| is_among(&self.user_groups, one));
        if (!self.users.is_empty() && !has_user)
            || (!self.user_groups.is_empty() && !user.is_some_and(has_group))
        {
            return false;
        }
        let verb = match attributes {
            Attributes::Resource { verb, .. } => verb.as_ref(),
            Attributes::Path { verb, .. } => verb,
        };
        if !self.verbs.is_empty() && !is_among(&self.verbs, verb) {
            return false;
        }
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        match attributes {
            Attributes::Resource { group, resource, subresource, namespace, name, .. } => {
                if !is_of_resources {
                    return self.non_resource_urls.is_empty();
                }
                (self.namespaces.is_empty() || is_among(&self.namespaces, namespace))
                    && (self.resources.is_empty()
                        || self
                            .resources
                            .iter()
                            .any(|one| one.matches(group, (resource, subresource), name)))
            }
            Attributes::Path { path, .. } => {
                let is_meant = |url: &String| match url.strip_suffix('*') {
                    Some(beginning) => path.starts_with(beginning),
                    None => url == path,
                };
                !is_of_resources
                    && (self.non_resource_urls.is_empty()
                        || self.non_resource_urls.iter().any(is_meant))
            }
        }
    }
}

impl GroupResources {
    fn matches(&self, group: &str, (resource, subresource): (&str, &str), name: &str) -> bool {
        if self.group != "*" && self.group != group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.iter().any(|one| one == name) {
            return false;
        }
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            None => pattern == "*" || (subresource.is_empty() && pattern == resource),
            // The pattern matches the resource and all its subresources.
            Some((of, "*")) => of == resource,
            Some(("*", one)) => !subresource.is_empty() && one == subresource,
            Some((of, one)) => of == resource && one == subresource,
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = if self.rules.len() == 1 { "rule" } else { "rules" };
        write!(f, "{} {rules}", self.rules.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Policy {
        Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}"))
            .unwrap()
    }

    fn resource(verb: &'static str, path: &str) -> Attributes {
        let mut parts = path.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Attributes::Resource {
            verb: verb.into(),
            group: next(),
            version: "v1".to_owned(),
            namespace: next(),
            resource: next(),
            name: next(),
            subresource: next(),
        }
    }

    #[test]
    fn the_first_matching_audit_rule_sets_the_level() {
        let jane =
            User { name: "jane".to_owned(), groups: vec!["devs".to_owned()], ..User::default() };
        let level = |rules: &str, attributes: &Attributes| {
            policy(rules).judge(Some(&jane), attributes).level
        };
        let path = |path: &str| Attributes::Path { verb: "get".to_owned(), path: path.to_owned() };
        let get = resource("get", "example.com/a/foos/b");
        let status = resource("update", "example.com/a/foos/b/status");
        for (rule, attributes, is_meant) in [
            ("", &get, true),
            ("users: [jane]", &get, true),
            ("users: [joe]", &get, false),
            ("userGroups: [devs, x]", &get, true),
            ("userGroups: [x]", &get, false),
            ("verbs: [get]", &get, true),
            ("verbs: [list]", &get, false),
            ("namespaces: [a]", &get, true),
            ("namespaces: ['']", &get, false),
            ("namespaces: ['']", &path("/x"), false),
            ("resources: [{group: example.com}]", &status, true),
            ("resources: [{group: ''}]", &get, false),
            ("resources: [{group: '*', resources: [foos]}]", &get, true),
            ("resources: [{group: '*', resources: [foos]}]", &status, false),
            ("resources: [{group: '*', resources: ['*']}]", &status, true),
            ("resources: [{group: '*', resources: [foos/status]}]", &status, true),
            ("resources: [{group: '*', resources: ['*/status']}]", &status, true),
            ("resources: [{group: '*', resources: ['*/status']}]", &get, false),
            ("resources: [{group: '*', resources: [foos/*]}]", &get, true),
            ("resources: [{group: '*', resources: [foos/*]}]", &status, true),
            ("resources: [{group: '*', resources: [foos], resourceNames: [b]}]", &get, true),
            ("resources: [{group: '*', resources: [foos], resourceNames: [c]}]", &get, false),
            ("nonResourceURLs: ['*']", &get, false),
            ("nonResourceURLs: ['*']", &path("/x"), true),
            ("nonResourceURLs: [/healthz*]", &path("/healthz/a"), true),
            ("nonResourceURLs: [/healthz]", &path("/healthz/a"), false),
            ("", &path("/x"), true),
        ] {
            let rules = format!("- {{level: Metadata, {rule}}}\n- {{level: Request}}");
            let expected = if is_meant { Level::Metadata } else { Level::Request };
            assert_eq!(level(&rules, attributes), expected, "{rule} {attributes:?}");
        }
        assert_eq!(level("- {level: Request, verbs: [x]}", &get), Level::None);
    }

    #[test]
    fn audit_stages_are_omitted_by_the_policy_and_the_rule() {
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n- level: Metadata";
        let policy = Policy::parse(text).unwrap();
        let get = policy.judge(None, &resource("get", "/a/b/c")).omitted();
        assert_eq!(get, 1 << Stage::RequestReceived as u8 | 1 << Stage::Panic as u8);
        let list = policy.judge(None, &resource("list", "/a/b"));
        assert_eq!(list.omitted(), 1 << Stage::RequestReceived as u8);
        assert!(list.omits_managed_fields);
        assert!(!policy.judge(None, &resource("get", "/a/b/c")).omits_managed_fields);
    }

    #[test]
    fn audit_policy_errors_name_the_field_on_one_line() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, expected) in [
            ("- a", "is not an object"),
            (":\n :", "it is not valid YAML"),
            (
                "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]",
                "it must be a Policy of audit.k8s.io/v1",
            ),
            (&format!("{head}rules: []"), "rules: must not be empty"),
            (&format!("{head}rules: [{{level: All}}]"), "rules[0].level: unknown variant `All`"),
            (&format!("{head}rules: [{{verbs: [get]}}]"), "rules[0]: missing field `level`"),
            (&format!("{head}ruels: []"), "ruels: unknown field `ruels`"),
            (
                &format!("{head}omitStages: [End]\nrules: [{{level: None}}]"),
                "omitStages[0]: unknown variant `End`",
            ),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: [a]}}]"),
                "rules[0].nonResourceURLs[0]: \"a\" must begin with /",
            ),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"),
                "may contain one *",
            ),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: [/a], namespaces: [b]}}]"),
                "not both",
            ),
            (
                &format!("{head}rules: [{{level: None, resources: [{{group: a/v1}}]}}]"),
                "rules[0].resources[0].group",
            ),
            (
                &format!("{head}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]"),
                "must not be set without resources",
            ),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
