//! `Event` of `audit.k8s.io/v1`: a line of JSON in kube-apiserver's format, with the fields in kube-apiserver's order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderValue;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::callers::Caller;
use super::policy::{Level, Stage};
use super::text::Json;
use crate::auth::Attributes;
use crate::user::User;

/// The event of a request at one of its stages.
pub(super) struct Event<'a> {
    pub level: Level,
    pub audit_id: &'a HeaderValue,
    pub stage: Stage,
    pub request_uri: &'a str,
    pub attributes: &'a Attributes,
    /// The metadata of the object in the request body.
    pub named: Option<&'a Named>,
    pub caller: Caller<'a>,
    pub response_status: Status<'a>,
    pub request_object: Option<&'a RawValue>,
    pub response_object: Option<&'a RawValue>,
    pub received: Timestamp,
    pub time: Timestamp,
    pub annotations: Annotations<'a>,
}

/// The addresses that a request comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The addresses in headers of proxies, in the order of the headers.
    pub forwarded: Vec<IpAddr>,
    /// The remote address of the connection, unless it is the last one of `forwarded`.
    pub peer: Option<IpAddr>,
}

/// The response status of a request.
#[derive(Clone, Copy)]
pub(super) enum Status<'a> {
    /// The status is not known yet.
    Unknown,
    /// Only the status code is known.
    Code(u16),
    /// The fields of a `Status` object.
    Said(&'a RawValue),
}

/// The metadata of the object in a request body. Missing fields are empty.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// The annotations of an event.
#[derive(Clone, Copy, Default)]
pub(super) struct Annotations<'a> {
    /// The outcome of the write, if the write ended after the request.
    pub ended: Option<&'a str>,
    /// Whether bodies or annotations were omitted.
    pub is_truncated: bool,
    /// The decision of the authorizer: `allow` or `forbid`.
    pub decision: Option<&'a str>,
    /// The reason of the decision.
    pub reason: Option<&'a str>,
    /// Whether a deprecated version of an API was requested.
    pub is_deprecated: bool,
    /// The annotations that admission adds.
    pub added: Option<&'a BTreeMap<Box<str>, Box<str>>>,
}

impl Event<'_> {
    /// Appends the line, with its line break.
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        line.raw(r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":""#);
        line.raw(self.level.name());
        line.raw(r#"","auditID":"#);
        line.header(self.audit_id);
        line.raw(r#","stage":""#);
        line.raw(self.stage.name());
        line.raw(r#"","requestURI":"#);
        line.text(self.request_uri);
        line.raw(r#","verb":"#);
        line.text(verb(self.attributes));
        self.caller.write(line);
        write_reference(line, self.attributes, self.named);
        match self.response_status {
            Status::Unknown => {}
            Status::Code(code) => {
                line.raw(r#","responseStatus":{"metadata":{},"code":"#);
                line.number(code);
                line.push(b'}');
            }
            Status::Said(status) => {
                line.raw(r#","responseStatus":"#);
                line.raw(status.get());
            }
        }
        if let Some(object) = self.request_object {
            line.raw(r#","requestObject":"#);
            line.raw(object.get());
        }
        if let Some(object) = self.response_object {
            line.raw(r#","responseObject":"#);
            line.raw(object.get());
        }
        line.raw(r#","requestReceivedTimestamp":"#);
        line.micro_time(self.received);
        line.raw(r#","stageTimestamp":"#);
        line.micro_time(self.time);
        self.annotations.write(line);
        line.raw("}\n");
    }
}

impl Addresses {
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        let mut before = r#","sourceIPs":["#;
        for address in self.forwarded.iter().chain(&self.peer) {
            line.raw(before);
            line.quoted(address);
            before = ",";
        }
        if before == "," {
            line.push(b']');
        }
    }
}

impl Annotations<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        let mut before = r#","annotations":{"#;
        let mut write = |key: &str, value: &str| {
            line.raw(before);
            line.text(key);
            line.push(b':');
            line.text(value);
            before = ",";
        };
        let mut added = self.added.into_iter().flatten().peekable();
        // The annotations are sorted by key, because Go serializes a map that way.
        for (key, value) in [
            ("aggregated-apiserver/ended-after-request", self.ended),
            ("audit.k8s.io/truncated", self.is_truncated.then_some("true")),
            ("authorization.k8s.io/decision", self.decision),
            ("authorization.k8s.io/reason", self.reason),
            ("k8s.io/deprecated", self.is_deprecated.then_some("true")),
        ] {
            let Some(value) = value else { continue };
            while let Some((key, value)) = added.next_if(|(added, _)| ***added < *key) {
                write(key, value);
            }
            // The first value of a key takes precedence, and annotations of admission are added later.
            added.next_if(|(added, _)| ***added == *key);
            write(key, value);
        }
        added.for_each(|(key, value)| write(key, value));
        if before == "," {
            line.push(b'}');
        }
    }
}

/// The verb of a request.
pub(super) fn verb(attributes: &Attributes) -> &str {
    match attributes {
        Attributes::Resource { verb, .. } => verb,
        Attributes::Path { verb, .. } => verb,
    }
}

pub(super) fn write_user(line: &mut Vec<u8>, user: &User) {
    let mut members = Members::begin(line);
    members.text(r#""username":"#, &user.name);
    if let Some(uid) = &user.uid {
        members.name(r#""uid":"#).text(uid);
    }
    if !user.groups.is_empty() {
        members.name(r#""groups":"#).texts(&user.groups);
    }
    if !user.extra.is_empty() {
        let line = members.name(r#""extra":"#);
        let mut extra = Members::begin(line);
        for (name, values) in &user.extra {
            extra.of_client(name).texts(values);
        }
        extra.end();
    }
    members.end();
}

/// Writes the reference to the object of a request. Fields that the path lacks come from the object in the request
/// body.
fn write_reference(line: &mut Vec<u8>, attributes: &Attributes, named: Option<&Named>) {
    let Attributes::Resource { group, version, resource, subresource, namespace, name, .. } =
        attributes
    else {
        return;
    };
    let unnamed = Named::default();
    let named = named.unwrap_or(&unnamed);
    line.raw(r#","objectRef":"#);
    let mut members = Members::begin(line);
    members.text(r#""resource":"#, resource);
    members
        .text(r#""namespace":"#, if namespace.is_empty() { &named.namespace } else { namespace });
    members.text(r#""name":"#, if name.is_empty() { &named.name } else { name });
    members.text(r#""uid":"#, &named.uid);
    members.text(r#""apiGroup":"#, group);
    members.text(r#""apiVersion":"#, version);
    members.text(r#""resourceVersion":"#, &named.resource_version);
    members.text(r#""subresource":"#, subresource);
    members.end();
}

/// Writes a JSON object, and omits empty values.
struct Members<'a> {
    line: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Members<'a> {
    fn begin(line: &'a mut Vec<u8>) -> Self {
        line.push(b'{');
        Self { line, is_first: true }
    }

    fn next(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.line.push(b',');
        }
    }

    /// Begins a field, whose value the caller appends. The name is a JSON string with the colon.
    fn name(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.next();
        self.line.raw(name);
        self.line
    }

    /// Begins a field with a name that a client has chosen.
    fn of_client(&mut self, name: &str) -> &mut Vec<u8> {
        self.next();
        self.line.text(name);
        self.line.push(b':');
        self.line
    }

    fn text(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.name(name).text(value);
        }
    }

    fn end(self) {
        self.line.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;

    fn resource(namespace: &str, name: &str) -> Attributes {
        Attributes::Resource {
            verb: "get".into(),
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            resource: "foos".to_owned(),
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn event<'a>(attributes: &'a Attributes, addresses: &'a Addresses) -> Event<'a> {
        static ID: HeaderValue = HeaderValue::from_static("my-id");
        Event {
            level: Level::Metadata,
            audit_id: &ID,
            stage: Stage::ResponseComplete,
            request_uri: "/x?a=\"",
            attributes,
            named: None,
            caller: Caller {
                user: None,
                impersonated: None,
                source_ips: addresses,
                user_agent: None,
            },
            response_status: Status::Unknown,
            request_object: None,
            response_object: None,
            received: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
            time: "2026-01-02T03:04:06Z".parse().unwrap(),
            annotations: Annotations::default(),
        }
    }

    fn line(event: &Event<'_>) -> String {
        let mut line = Vec::new();
        event.write(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn audit_event_fields_have_a_fixed_order() {
        let attributes = resource("ns", "a");
        let user = Arc::new(User {
            name: "jane".to_owned(),
            uid: Some("u".to_owned()),
            groups: vec!["g".to_owned(), "\"".to_owned()],
            extra: BTreeMap::from([("k\"".to_owned(), vec!["v".to_owned()])]),
        });
        let addresses = Addresses {
            forwarded: vec!["10.0.0.1".parse().unwrap()],
            peer: Some("::1".parse().unwrap()),
        };
        let object = to_raw_value(&json!({"x": 1})).unwrap();
        let agent = HeaderValue::from_static("curl");
        let added = [("a.b/c", "\""), ("authorization.k8s.io/reason", "other"), ("x.y/z", "1")];
        let added = added.map(|(key, value)| (key.into(), value.into())).into();
        let whole = Event {
            caller: Caller {
                user: Some(&user),
                impersonated: Some(&user),
                source_ips: &addresses,
                user_agent: Some(&agent),
            },
            response_status: Status::Code(200),
            request_object: Some(&object),
            response_object: Some(&object),
            annotations: Annotations {
                ended: Some("committed"),
                is_truncated: true,
                decision: Some("allow"),
                reason: Some(""),
                is_deprecated: true,
                added: Some(&added),
            },
            ..event(&attributes, &addresses)
        };
        let person = r#"{"username":"jane","uid":"u","groups":["g","\""],"extra":{"k\"":["v"]}}"#;
        let expected = [
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"my-id","#,
            r#""stage":"ResponseComplete","requestURI":"/x?a=\"","verb":"get","user":"#,
            person,
            r#","impersonatedUser":"#,
            person,
            r#","sourceIPs":["10.0.0.1","::1"],"userAgent":"curl","#,
            r#""objectRef":{"resource":"foos","namespace":"ns","name":"a","apiGroup":"example.com","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":200},"requestObject":{"x":1},"responseObject":{"x":1},"#,
            r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:06.000000Z","#,
            r#""annotations":{"a.b/c":"\"","aggregated-apiserver/ended-after-request":"committed","#,
            r#""audit.k8s.io/truncated":"true","authorization.k8s.io/decision":"allow","#,
            r#""authorization.k8s.io/reason":"","k8s.io/deprecated":"true","x.y/z":"1"}}"#,
            "\n",
        ];
        assert_eq!(line(&whole), expected.concat());
    }

    #[test]
    fn unset_audit_event_fields_are_omitted() {
        let path = Attributes::Path { verb: "get".to_owned(), path: "/x".to_owned() };
        let expected = [
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"my-id","#,
            r#""stage":"ResponseComplete","requestURI":"/x?a=\"","verb":"get","user":{},"#,
            r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:06.000000Z"}"#,
            "\n",
        ];
        assert_eq!(line(&event(&path, &Addresses::default())), expected.concat());
    }

    #[test]
    fn audit_object_references_are_completed_from_the_object() {
        let named = Named {
            namespace: "other".to_owned(),
            name: "b".to_owned(),
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
        };
        let addresses = Addresses::default();
        let reference = |attributes: &Attributes| {
            let event = Event { named: Some(&named), ..event(attributes, &addresses) };
            serde_json::from_str::<Value>(&line(&event)).unwrap()["objectRef"].clone()
        };
        let created = reference(&resource("ns", ""));
        let expected = json!({
            "resource": "foos", "namespace": "ns", "name": "b", "uid": "u",
            "apiGroup": "example.com", "apiVersion": "v1", "resourceVersion": "7",
        });
        assert_eq!(created, expected);
        let replaced = reference(&resource("", "a"));
        assert_eq!((&replaced["namespace"], &replaced["name"]), (&json!("other"), &json!("a")));
    }
}
