//! Probes, and the handlers of a container's lifecycle.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::ports::{check_port_number, faults_of_port_name};
use crate::built_in::checks::{FieldErrors, check_not_negative, check_one_of, check_with};
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

/// Validates a probe.
pub(crate) fn check_probe(
    probe: &Probe,
    is_of_readiness: bool,
    at: &str,
    faults: &mut FieldErrors,
) {
    let handlers = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    check_handlers(&handlers, at, faults);
    if let Some(exec) = &probe.exec
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        faults.push(FieldError::required(format!("{at}.exec.command"), ""));
    }
    check_actions(probe.http_get.as_ref(), probe.tcp_socket.as_ref(), &handlers, at, faults);
    for (field, seconds) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        check_not_negative(format!("{at}.{field}"), seconds, faults);
    }
    if let Some(threshold) = probe.success_threshold.filter(|one| !is_of_readiness && *one != 1) {
        let at = format!("{at}.successThreshold");
        faults.push(FieldError::invalid(at, threshold, "must be 1"));
    }
}

/// Validates a handler of the lifecycle.
pub(crate) fn check_handler(handler: &LifecycleHandler, at: &str, faults: &mut FieldErrors) {
    let handlers = [
        ("exec", handler.exec.is_some()),
        ("httpGet", handler.http_get.is_some()),
        ("tcpSocket", handler.tcp_socket.is_some()),
        ("sleep", handler.sleep.is_some()),
    ];
    check_handlers(&handlers, at, faults);
    check_actions(handler.http_get.as_ref(), handler.tcp_socket.as_ref(), &handlers, at, faults);
}

/// Checks that there is one handler.
fn check_handlers(handlers: &[(&str, bool)], at: &str, faults: &mut FieldErrors) {
    let mut given = handlers.iter().filter(|(_, is_given)| *is_given);
    if given.next().is_none() {
        faults.push(FieldError::required(at, "must specify a handler type"));
    }
    for (name, _) in given {
        let why = "may not specify more than 1 handler type";
        faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
    }
}

/// Validates the first handler. Others are refused already.
fn check_actions(
    get: Option<&HTTPGetAction>,
    socket: Option<&TCPSocketAction>,
    handlers: &[(&str, bool)],
    at: &str,
    faults: &mut FieldErrors,
) {
    let first = handlers.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name);
    if let Some(get) = get.filter(|_| first == Some("httpGet")) {
        let at = format!("{at}.httpGet");
        if get.path.as_ref().is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("{at}.path"), ""));
        }
        check_target(&format!("{at}.port"), &get.port, faults);
        check_one_of(format!("{at}.scheme"), get.scheme.as_ref(), &["HTTP", "HTTPS"], faults);
    }
    if let Some(socket) = socket.filter(|_| first == Some("tcpSocket")) {
        check_target(&format!("{at}.tcpSocket.port"), &socket.port, faults);
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
    fn faults() {
        let get = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        for (probe, of_readiness, expected) in [
            (json!({"httpGet": get}), false, vec![]),
            (json!({}), false, vec!["p: Required value: must specify a handler type"]),
            (
                json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": 0}}),
                false,
                vec!["p.tcpSocket: Forbidden: may not specify more than 1 handler type"],
            ),
            (json!({"exec": {}}), false, vec!["p.exec.command: Required value"]),
            (
                json!({"httpGet": {"port": 0, "scheme": "X"}}),
                false,
                vec![
                    "p.httpGet.path: Required value",
                    "p.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "p.httpGet.scheme: Unsupported value: \"X\": supported values: \"HTTP\", \"HTTPS\"",
                ],
            ),
            (json!({"httpGet": get, "successThreshold": 2}), true, vec![]),
            (
                json!({"httpGet": get, "successThreshold": 2, "periodSeconds": -1}),
                false,
                vec![
                    "p.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "p.successThreshold: Invalid value: 2: must be 1",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            check_probe(&object(probe.clone()), of_readiness, "p", &mut faults);
            assert_eq!(texts(&faults), expected, "{probe}");
        }
    }
}
