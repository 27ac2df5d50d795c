//! The spec of ResourceClaims, which their templates have, too.

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::resource::v1::{
    DeviceConstraint, DeviceRequest, DeviceSelector, DeviceToleration, ResourceClaimSpec,
};

use super::checks::{
    check_each, check_fully_qualified_name, check_label, check_set, check_toleration,
};
use super::configuration::{CONFIGURATIONS, check_opaque, check_selectors};
use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::defaulting::set_default;

/// The largest numbers of requests, of their alternatives, and of constraints.
const REQUESTS: usize = 32;
const ALTERNATIVES: usize = 8;
const CONSTRAINTS: usize = 32;

const REFERENCE: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Sets the defaults of a spec.
pub(super) fn set_defaults(spec: &mut ResourceClaimSpec) {
    let devices = spec.devices.get_or_insert_default();
    for request in devices.requests.iter_mut().flatten() {
        if let Some(exactly) = &mut request.exactly {
            set_default(&mut exactly.allocation_mode, "ExactCount");
            set_count(exactly.allocation_mode.as_deref(), &mut exactly.count);
            set_operators(exactly.tolerations.as_mut());
        }
        for one in request.first_available.iter_mut().flatten() {
            set_default(&mut one.allocation_mode, "ExactCount");
            set_count(one.allocation_mode.as_deref(), &mut one.count);
            set_operators(one.tolerations.as_mut());
        }
    }
}

fn set_count(mode: Option<&str>, count: &mut Option<i64>) {
    if mode == Some("ExactCount") && count.unwrap_or_default() == 0 {
        *count = Some(1);
    }
}

/// Sets the default operator of tolerations.
pub(super) fn set_operators(tolerations: Option<&mut Vec<DeviceToleration>>) {
    for one in tolerations.into_iter().flatten() {
        set_default(&mut one.operator, "Equal");
    }
}

/// The names of the requests of a claim, each with those of its alternatives.
pub(super) struct RequestNames<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn of(spec: &'a ResourceClaimSpec) -> Self {
        let requests = spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
        Self(
            requests
                .map(|request| {
                    let alternatives = request.first_available.iter().flatten();
                    let names = alternatives.map(|one| one.name.as_str()).collect();
                    (request.name.as_str(), names)
                })
                .collect(),
        )
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            None => self.0.contains_key(name),
            Some((request, one)) => self.0.get(request).is_some_and(|all| all.contains(&one)),
        }
    }

    /// Checks a reference to a request.
    pub(super) fn check(&self, name: &str, at: &str, faults: &mut FieldErrors) {
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() > 2 {
            return faults.push(FieldError::invalid(at, quote(name), REFERENCE));
        }
        for part in parts {
            check_label(part, at, faults);
        }
        if !self.has(name) {
            faults.push(FieldError::invalid(at, quote(name), REFERENCE));
        }
    }

    /// Checks references to requests.
    pub(super) fn check_all(
        &self,
        references: Option<&Vec<String>>,
        at: &str,
        faults: &mut FieldErrors,
    ) {
        let check = |name: &String, at: &str, faults: &mut FieldErrors| {
            self.check(name, at, faults);
        };
        check_set(references, REQUESTS, at, faults, |name| quote(name), check);
    }
}

/// Validates the spec at `at`.
pub(super) fn validate(spec: &ResourceClaimSpec, at: &str, faults: &mut FieldErrors) {
    let Some(devices) = &spec.devices else { return };
    let request_names = RequestNames::of(spec);
    let at = format!("{at}.devices");
    let name = |request: &DeviceRequest| quote(&request.name);
    let requests = devices.requests.as_ref();
    check_set(requests, REQUESTS, &format!("{at}.requests"), faults, name, check_request);
    let constraints = devices.constraints.as_ref();
    let at_constraints = format!("{at}.constraints");
    check_each(constraints, CONSTRAINTS, &at_constraints, faults, |one, at, faults| {
        check_constraint(one, &request_names, at, faults);
    });
    let configurations = devices.config.as_ref();
    check_each(
        configurations,
        CONFIGURATIONS,
        &format!("{at}.config"),
        faults,
        |one, at, faults| {
            request_names.check_all(one.requests.as_ref(), &format!("{at}.requests"), faults);
            check_opaque(one.opaque.as_ref(), false, at, faults);
        },
    );
}

fn check_request(request: &DeviceRequest, at: &str, faults: &mut FieldErrors) {
    check_label(&request.name, &format!("{at}.name"), faults);
    let alternatives = request.first_available.as_ref().filter(|all| !all.is_empty());
    match (&request.exactly, alternatives) {
        (None, None) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            faults.push(FieldError::required(at, why));
        }
        (Some(_), Some(_)) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            faults.push(FieldError::invalid(at, "null", why));
        }
        (Some(exactly), None) => {
            let asked = Asked {
                class: &exactly.device_class_name,
                selectors: exactly.selectors.as_ref(),
                mode: exactly.allocation_mode.as_deref().unwrap_or_default(),
                count: exactly.count.unwrap_or_default(),
                tolerations: exactly.tolerations.as_ref(),
            };
            asked.check(&format!("{at}.exactly"), faults);
        }
        (None, Some(_)) => {
            let at = format!("{at}.firstAvailable");
            let name = |one: &k8s_openapi::api::resource::v1::DeviceSubRequest| quote(&one.name);
            check_set(alternatives, ALTERNATIVES, &at, faults, name, |one, at, faults| {
                check_label(&one.name, &format!("{at}.name"), faults);
                let asked = Asked {
                    class: &one.device_class_name,
                    selectors: one.selectors.as_ref(),
                    mode: one.allocation_mode.as_deref().unwrap_or_default(),
                    count: one.count.unwrap_or_default(),
                    tolerations: one.tolerations.as_ref(),
                };
                asked.check(at, faults);
            });
        }
    }
}

/// The devices that a request or one of its alternatives asks for.
struct Asked<'a> {
    class: &'a str,
    selectors: Option<&'a Vec<DeviceSelector>>,
    mode: &'a str,
    count: i64,
    tolerations: Option<&'a Vec<DeviceToleration>>,
}

impl Asked<'_> {
    fn check(&self, at: &str, faults: &mut FieldErrors) {
        let at_class = format!("{at}.deviceClassName");
        match self.class {
            "" => faults.push(FieldError::required(at_class, "")),
            class => check_with(&at_class, class, names::check_dns_1123_subdomain, faults),
        }
        check_selectors(self.selectors, &format!("{at}.selectors"), faults);
        let at_count = format!("{at}.count");
        match self.mode {
            "All" if self.count != 0 => {
                let why = "must not be specified when allocationMode is 'All'";
                faults.push(FieldError::invalid(at_count, self.count, why));
            }
            "ExactCount" if self.count <= 0 => {
                faults.push(FieldError::invalid(at_count, self.count, "must be greater than zero"));
            }
            "All" | "ExactCount" => {}
            other => {
                let at = format!("{at}.allocationMode");
                faults.push(FieldError::not_supported(at, quote(other), &["All", "ExactCount"]));
            }
        }
        for (index, one) in self.tolerations.into_iter().flatten().enumerate() {
            check_toleration(one, &format!("{at}.tolerations[{index}]"), faults);
        }
    }
}

fn check_constraint(
    constraint: &DeviceConstraint,
    request_names: &RequestNames<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    request_names.check_all(constraint.requests.as_ref(), &format!("{at}.requests"), faults);
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => {
            check_fully_qualified_name(name, &format!("{at}.matchAttribute"), faults);
        }
        (None, Some(name)) => {
            check_fully_qualified_name(name, &format!("{at}.distinctAttribute"), faults);
        }
        (None, None) => {
            let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
            faults.push(FieldError::required(at, why));
        }
    }
}
