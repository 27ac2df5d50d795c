//! Authorization without roles: members of `system:masters` and ServiceAccounts of `kube-system`
//! may do everything; other authenticated users may do what the default roles of a cluster allow;
//! nobody else may do anything.

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, NonResourceRule, ResourceAttributes, ResourceRule,
    SubjectRulesReviewStatus,
};

use crate::service_account_tokens::{ACCOUNTS, CONFIGURATION, JWKS};

const MASTERS: &str = "system:masters";
/// The ServiceAccounts of Kubernetes' controllers. They may do everything, because roles are not
/// served.
const CONTROLLERS: &str = "system:serviceaccounts:kube-system";
const AUTHENTICATED: &str = "system:authenticated";
/// Questions about oneself.
const ABOUT_ONESELF: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];
/// Where it stands what a server can do, and whether it is well.
const DESCRIPTIONS: [&str; 3] = ["/api", "/apis", "/openapi"];
/// The same, and not what is below.
const ALONE: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];
/// What every ServiceAccount may read: by which keys tokens are verified.
const OF_ACCOUNTS: [&str; 2] = [JWKS, CONFIGURATION];

/// Whether a member of these groups is allowed to do this.
pub(crate) fn is_allowed(
    groups: &[String],
    resource: Option<&ResourceAttributes>,
    path: Option<&NonResourceAttributes>,
) -> bool {
    let is_in = |group: &str| groups.iter().any(|one| one == group);
    if is_in(MASTERS) || is_in(CONTROLLERS) {
        return true;
    }
    let is_about_oneself = resource.is_some_and(|asked| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (group, resource) = (text(&asked.group), text(&asked.resource));
        text(&asked.verb) == "create"
            && text(&asked.subresource).is_empty()
            && ABOUT_ONESELF.contains(&(group.as_str(), resource.as_str()))
    });
    let is_description = path.is_some_and(|asked| {
        let (verb, path) = (asked.verb.as_deref(), asked.path.as_deref().unwrap_or_default());
        let below = |root: &str| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        verb == Some("get") && (DESCRIPTIONS.into_iter().any(below) || ALONE.contains(&path))
    });
    let is_of_accounts = path.is_some_and(|asked| {
        let path = asked.path.as_deref().unwrap_or_default();
        asked.verb.as_deref() == Some("get") && OF_ACCOUNTS.contains(&path)
    });
    is_in(AUTHENTICATED) && (is_about_oneself || is_description)
        || is_in(ACCOUNTS) && is_of_accounts
}

/// Everything that a member of these groups may do.
pub(crate) fn rules(groups: &[String]) -> SubjectRulesReviewStatus {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let is_in = |group: &str| groups.iter().any(|one| one == group);
    let mut resource_rules = Vec::new();
    let mut non_resource_rules = Vec::new();
    if is_in(MASTERS) || is_in(CONTROLLERS) {
        resource_rules.push(ResourceRule {
            verbs: texts(&["*"]),
            api_groups: Some(texts(&["*"])),
            resources: Some(texts(&["*"])),
            resource_names: None,
        });
        let all = Some(texts(&["*"]));
        non_resource_rules.push(NonResourceRule { verbs: texts(&["*"]), non_resource_urls: all });
    }
    if is_in(AUTHENTICATED) {
        resource_rules.extend(ABOUT_ONESELF.iter().map(|(group, resource)| ResourceRule {
            verbs: texts(&["create"]),
            api_groups: Some(texts(&[group])),
            resources: Some(texts(&[resource])),
            resource_names: None,
        }));
        let paths = DESCRIPTIONS.iter().flat_map(|root| [(*root).to_owned(), format!("{root}/*")]);
        let paths = paths.chain(ALONE.map(str::to_owned));
        let paths = Some(paths.collect());
        non_resource_rules
            .push(NonResourceRule { verbs: texts(&["get"]), non_resource_urls: paths });
    }
    if is_in(ACCOUNTS) {
        let paths = Some(texts(&OF_ACCOUNTS));
        non_resource_rules
            .push(NonResourceRule { verbs: texts(&["get"]), non_resource_urls: paths });
    }
    SubjectRulesReviewStatus {
        incomplete: false,
        evaluation_error: None,
        resource_rules,
        non_resource_rules,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_what() {
        let of = |group: &str| vec![group.to_owned()];
        let asks = |verb: &str, group: &str, resource: &str| ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let reads = |path: &str| NonResourceAttributes {
            verb: Some("get".to_owned()),
            path: Some(path.to_owned()),
        };
        let pods = asks("get", "", "pods");
        assert!(is_allowed(&of(MASTERS), Some(&pods), None));
        assert!(is_allowed(&of(CONTROLLERS), Some(&pods), None));
        assert!(!is_allowed(&of("system:serviceaccounts:default"), Some(&pods), None));
        assert!(!is_allowed(&of(AUTHENTICATED), Some(&pods), None));
        let own = asks("create", "authentication.k8s.io", "selfsubjectreviews");
        assert!(is_allowed(&of(AUTHENTICATED), Some(&own), None));
        assert!(!is_allowed(&of("system:unauthenticated"), Some(&own), None));
        assert!(is_allowed(&of(AUTHENTICATED), None, Some(&reads("/apis/apps/v1"))));
        assert!(!is_allowed(&of(AUTHENTICATED), None, Some(&reads("/apisx"))));
        assert!(is_allowed(&of(AUTHENTICATED), None, Some(&reads("/healthz"))));
        assert!(!is_allowed(&of(AUTHENTICATED), None, Some(&reads("/healthz/ping"))));
        assert!(!is_allowed(&of(AUTHENTICATED), None, None));
        assert!(is_allowed(&of(ACCOUNTS), None, Some(&reads(JWKS))));
        assert!(!is_allowed(&of(AUTHENTICATED), None, Some(&reads(JWKS))));
    }
}
