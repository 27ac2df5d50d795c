//! Probes, and the handlers of a container's lifecycle.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, Lifecycle, Probe, SleepAction,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::ports::{check_port_number, faults_of_port_name};
use super::scope::Scope;
use crate::built_in::checks::{
    FieldErrors, check_given, check_not_negative, check_one_of, check_with, quote,
};
use crate::built_in::defaulting::set_default;

/// Sets the defaults of a probe.
pub(crate) fn set_defaults(probe: &mut Probe) {
    for (field, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if field.is_none_or(|seconds| seconds == 0) {
            *field = Some(default);
        }
    }
    if let Some(get) = &mut probe.http_get {
        set_http_get_defaults(get);
    }
    if let Some(call) = &mut probe.grpc {
        call.service.get_or_insert_default();
    }
}

/// Sets the defaults of an HTTP request.
pub(crate) fn set_http_get_defaults(get: &mut HTTPGetAction) {
    set_default(&mut get.path, "/");
    set_default(&mut get.scheme, "HTTP");
}

/// The purpose of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Liveness,
    Readiness,
    Startup,
}

/// Validates the probes and the lifecycle of a container.
pub(crate) fn validate(
    container: &Container,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    if let Some(lifecycle) = &container.lifecycle {
        check_lifecycle(lifecycle, scope, &format!("{at}.lifecycle"), faults);
    }
    for (field, probe, purpose) in [
        ("livenessProbe", &container.liveness_probe, Purpose::Liveness),
        ("readinessProbe", &container.readiness_probe, Purpose::Readiness),
        ("startupProbe", &container.startup_probe, Purpose::Startup),
    ] {
        if let Some(probe) = probe {
            check_probe(probe, purpose, &format!("{at}.{field}"), faults);
        }
    }
}

fn check_probe(probe: &Probe, purpose: Purpose, at: &str, faults: &mut FieldErrors) {
    let handlers = [
        ("exec", probe.exec.as_ref().map(Handler::Exec)),
        ("httpGet", probe.http_get.as_ref().map(Handler::Http)),
        ("tcpSocket", probe.tcp_socket.as_ref().map(Handler::Socket)),
        ("grpc", probe.grpc.as_ref().map(Handler::Grpc)),
    ];
    check_handlers(handlers, None, at, faults);
    for (field, seconds) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        check_not_negative(format!("{at}.{field}"), seconds, faults);
    }
    let grace_at = format!("{at}.terminationGracePeriodSeconds");
    let grace = probe.termination_grace_period_seconds;
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        faults.push(FieldError::invalid(&*grace_at, seconds, "must be greater than 0"));
    }
    if purpose == Purpose::Readiness {
        if let Some(seconds) = grace {
            let why = "must not be set for readinessProbes";
            faults.push(FieldError::invalid(grace_at, seconds, why));
        }
    } else if let Some(threshold) = probe.success_threshold.filter(|threshold| *threshold != 1) {
        let at = format!("{at}.successThreshold");
        faults.push(FieldError::invalid(at, threshold, "must be 1"));
    }
}

fn check_lifecycle(lifecycle: &Lifecycle, scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let grace = scope.spec.termination_grace_period_seconds;
    for (field, handler) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)]
    {
        let Some(handler) = handler else { continue };
        let handlers = [
            ("exec", handler.exec.as_ref().map(Handler::Exec)),
            ("httpGet", handler.http_get.as_ref().map(Handler::Http)),
            ("tcpSocket", handler.tcp_socket.as_ref().map(Handler::Socket)),
            ("sleep", handler.sleep.as_ref().map(Handler::Sleep)),
        ];
        check_handlers(handlers, grace, &format!("{at}.{field}"), faults);
    }
}

/// The action of a probe or of a lifecycle hook.
#[derive(Clone, Copy)]
enum Handler<'a> {
    Exec(&'a ExecAction),
    Http(&'a HTTPGetAction),
    Socket(&'a TCPSocketAction),
    Grpc(&'a GRPCAction),
    Sleep(&'a SleepAction),
}

/// Checks that there is exactly one handler, and validates the first. Further handlers are rejected.
fn check_handlers(
    handlers: [(&str, Option<Handler<'_>>); 4],
    grace: Option<i64>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let mut given = handlers.into_iter().filter_map(|(name, handler)| Some((name, handler?)));
    let Some((name, first)) = given.next() else {
        return faults.push(FieldError::required(at, "must specify a handler type"));
    };
    check_handler(first, grace, &format!("{at}.{name}"), faults);
    for (name, _) in given {
        let why = "may not specify more than 1 handler type";
        faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
    }
}

fn check_handler(handler: Handler<'_>, grace: Option<i64>, at: &str, faults: &mut FieldErrors) {
    match handler {
        Handler::Exec(exec) => {
            if exec.command.as_ref().is_none_or(Vec::is_empty) {
                faults.push(FieldError::required(format!("{at}.command"), ""));
            }
        }
        Handler::Http(get) => check_http_get(get, at, faults),
        Handler::Socket(socket) => check_target(&format!("{at}.port"), &socket.port, faults),
        Handler::Grpc(call) => {
            check_port_number(&format!("{at}.port"), i64::from(call.port), faults);
        }
        Handler::Sleep(sleep) => {
            let Some(grace) = grace else { return };
            if sleep.seconds < 0 || sleep.seconds > grace {
                let why = format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                );
                faults.push(FieldError::invalid(at, sleep.seconds, &why));
            }
        }
    }
}

fn check_http_get(get: &HTTPGetAction, at: &str, faults: &mut FieldErrors) {
    const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
    check_given(&format!("{at}.path"), get.path.as_deref().unwrap_or_default(), faults);
    check_target(&format!("{at}.port"), &get.port, faults);
    check_one_of(format!("{at}.scheme"), get.scheme.as_ref(), &["HTTP", "HTTPS"], faults);
    for header in get.http_headers.iter().flatten() {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if header.name.is_empty() || !header.name.bytes().all(is_good) {
            let at = format!("{at}.httpHeaders");
            faults.push(FieldError::invalid(at, quote(&header.name), HEADER));
        }
    }
}

fn check_target(at: &str, port: &IntOrString, faults: &mut FieldErrors) {
    match port {
        IntOrString::Int(number) => check_port_number(at, i64::from(*number), faults),
        IntOrString::String(name) => check_with(at, name, faults_of_port_name, faults),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
    use serde_json::json;

    #[test]
    fn defaults() {
        let filled = prepared(
            set_defaults,
            json!({"httpGet": {"port": 80}, "periodSeconds": 0, "timeoutSeconds": 5, "grpc": {"port": 1}}),
        );
        assert_eq!(
            filled,
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "grpc": {"port": 1, "service": ""},
                "timeoutSeconds": 5, "periodSeconds": 10, "successThreshold": 1,
                "failureThreshold": 3,
            })
        );
    }

    #[test]
    fn invalid_probes_are_rejected() {
        let get = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        for (probe, purpose, expected) in [
            (json!({"httpGet": get}), Purpose::Liveness, vec![]),
            (json!({}), Purpose::Liveness, vec!["p: Required value: must specify a handler type"]),
            (
                json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": 0}}),
                Purpose::Startup,
                vec!["p.tcpSocket: Forbidden: may not specify more than 1 handler type"],
            ),
            (json!({"exec": {}}), Purpose::Liveness, vec!["p.exec.command: Required value"]),
            (
                json!({"httpGet": {"port": 0, "scheme": "X"}}),
                Purpose::Startup,
                vec![
                    "p.httpGet.path: Required value",
                    "p.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "p.httpGet.scheme: Unsupported value: \"X\": supported values: \"HTTP\", \"HTTPS\"",
                ],
            ),
            (json!({"httpGet": get, "successThreshold": 2}), Purpose::Readiness, vec![]),
            (
                json!({"httpGet": get, "successThreshold": 2, "periodSeconds": -1}),
                Purpose::Startup,
                vec![
                    "p.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "p.successThreshold: Invalid value: 2: must be 1",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check_probe(&object(probe.clone()), purpose, "p", &mut faults);
            assert_eq!(texts(&faults), expected, "{probe}");
        }
    }
}
