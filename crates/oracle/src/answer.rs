//! What a server answered, and what of it can be compared.
//!
//! Two servers never give the same uid, version or time. Such values become
//! placeholders in the order in which they appear in a row, so that it can
//! still be seen whether two of them are the same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::row::GROUP;
use crate::server::Sent;

/// A time so close to now was made by a server and not by a row.
const NOW: SignedDuration = SignedDuration::from_hours(1);

/// The longest prefix that a name is generated from.
const PREFIX_LIMIT: usize = 58;

/// What a server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub warnings: Vec<String>,
    pub retry_after: Option<String>,
    /// How the body was compressed.
    pub encoding: Option<String>,
    /// Other headers that clients and caches look at.
    pub headers: BTreeMap<String, String>,
    /// How the body is written down.
    pub layout: String,
    /// A document, the events of a watch, or a text.
    pub body: Value,
}

/// Placeholders of one server during one row.
#[derive(Clone, Debug, Default)]
pub struct Placeholders {
    namespace: String,
    uids: Vec<String>,
    versions: Vec<String>,
    /// What names were generated from.
    prefixes: Vec<String>,
    /// Versions of lists.
    lists: Vec<String>,
}

impl Placeholders {
    /// For a row in this namespace.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Takes note of what a request asks to generate a name from.
    fn note_request(&mut self, body: Option<&str>) {
        let body: Value = body.and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
        if let Some(prefix) = body["metadata"]["generateName"].as_str()
            && !prefix.is_empty()
        {
            let prefix = &prefix[..prefix.len().min(PREFIX_LIMIT)];
            // Namespaces are replaced first.
            note(&mut self.prefixes, &prefix.replace(&self.namespace, "<namespace>"));
        }
    }

    /// What of an answer can be compared.
    pub fn normalize(&mut self, sent: &Sent, answer: &Answer) -> Value {
        self.note_request(sent.body.as_deref());
        let mut body = answer.body.clone();
        if let Value::Array(events) = &mut body {
            drop_later_bookmarks(events);
            for event in events {
                let is_bookmark = event["type"] == "BOOKMARK";
                let object = &mut event["object"];
                if is_bookmark {
                    hide_version(object, "/metadata/resourceVersion");
                    // In a table it stands in the row.
                    hide_version(object, "/rows/0/object/metadata/resourceVersion");
                }
                self.document(object);
            }
        } else {
            if is_list(&body) || body["kind"] == "PartialObjectMetadataList" {
                self.list_version(sent, &mut body);
            }
            only_ours(&mut body);
            sort_resources(&mut body);
            if body["kind"] == "PartialObjectMetadataList" && body["items"].is_null() {
                body["items"] = json!([]);
            }
            if !sent.path.contains(GROUP) {
                without_descriptions(&mut body);
            }
            self.document(&mut body);
        }
        let mut warnings = answer.warnings.clone();
        if !sent.path.contains(GROUP) {
            // Go reads built-in kinds in the order in which they are written down.
            warnings.sort();
            sort_unknown(&mut body);
        }
        // Go judges members in an order of chance.
        if warnings.iter().all(|warning| warning.contains(" value: ")) {
            warnings.sort();
        }
        let mut warnings: Value = warnings.into();
        self.texts(&mut warnings, "");
        json!({
            "status": answer.status,
            "contentType": answer.content_type,
            "warnings": warnings,
            "retryAfter": answer.retry_after,
            "encoding": answer.encoding,
            "layout": answer.layout,
            "headers": answer.headers,
            "body": body,
        })
    }

    /// The version of a list depends on what else is written to the same store;
    /// but a later page has that of the first one, and who asks for exactly a
    /// moment gets it.
    fn list_version(&mut self, sent: &Sent, list: &mut Value) {
        let Some(version) = list.pointer_mut("/metadata/resourceVersion") else { return };
        let text = version.as_str().unwrap_or_default().to_owned();
        let has = |parameter: &str| {
            let query = sent.path.split_once('?').map_or("", |(_, query)| query);
            query.split('&').any(|pair| pair == parameter)
        };
        let is_asked = has(&format!("resourceVersion={text}"))
            && (has("resourceVersionMatch=Exact") || sent.path.contains("limit="));
        let is_page = sent.path.contains("continue=ey");
        *version = if is_asked {
            "<as asked>".into()
        } else if is_page && self.lists.contains(&text) {
            "<as the page before>".into()
        } else {
            "<of a list>".into()
        };
        note(&mut self.lists, &text);
    }

    fn document(&mut self, document: &mut Value) {
        sort_causes(document);
        self.collect(document);
        self.texts(document, "");
    }

    /// Takes note of uids, versions and generated names.
    fn collect(&mut self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
                    self.collect_metadata(metadata);
                }
                members.values_mut().for_each(|member| self.collect(member));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.collect(item)),
            Value::String(text) if is_uid(text) => note(&mut self.uids, text),
            _ => {}
        }
    }

    fn collect_metadata(&mut self, metadata: &mut Map<String, Value>) {
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            collect_managers(entries);
        }
        if let Some(token) = metadata.get_mut("continue").filter(|token| *token != "") {
            *token = "<continue>".into();
        }
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion")
            && version.parse::<u64>().is_ok()
        {
            note(&mut self.versions, version);
            let number = self.versions.iter().position(|known| known == version);
            *version = format!("<version {}>", number.unwrap_or_default() + 1);
        }
    }

    /// Replaces what was noted wherever it stands in a text.
    fn texts(&self, value: &mut Value, key: &str) {
        match value {
            Value::Object(members) => {
                for (key, member) in members.iter_mut() {
                    self.texts(member, key);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.texts(item, key)),
            Value::String(text) => *text = self.text(text, key),
            _ => {}
        }
    }

    fn text(&self, text: &str, key: &str) -> String {
        if key == "expirationTimestamp"
            && let Some(minutes) = minutes_from_now(text)
        {
            return format!("<in {minutes} minutes>");
        }
        if key == "cells" && is_young(text) {
            return "<young>".to_owned();
        }
        let mut text = without_times(text).replace(&self.namespace, "<namespace>");
        for (index, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("<uid {}>", index + 1));
        }
        for prefix in &self.prefixes {
            text = without_suffixes(&text, prefix);
        }
        text = without_managed_fields(&text);
        text = without_expected_uid(text);
        let lower = text.to_lowercase();
        if lower.contains("resource version") || lower.contains("resourceversion") {
            text = without_numbers(&text);
        }
        text
    }
}

/// Entries of managers are ordered by their times, of which both servers have their own.
fn collect_managers(entries: &mut [Value]) {
    for entry in entries.iter_mut() {
        if let Some(time) = entry.get_mut("time") {
            *time = "<time>".into();
        }
        if let Some(owners) = entry
            .pointer_mut("/fieldsV1/f:metadata/f:ownerReferences")
            .and_then(Value::as_object_mut)
        {
            // Each server has uids of its own.
            let uids: Vec<Value> =
                std::mem::take(owners).into_iter().map(|(_, below)| below).collect();
            let named = uids.into_iter().enumerate();
            owners.extend(named.map(|(index, below)| (format!("<owner {index}>"), below)));
        }
    }
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries.sort_by_key(|entry| {
        ["operation", "manager", "apiVersion", "subresource", "time"]
            .map(|field| text(entry, field))
    });
}

/// An object that is shown in a text, without who changed what last.
fn without_managed_fields(text: &str) -> String {
    let Some(found) = text.find("managedFields") else { return text.to_owned() };
    let Some(open) = text[found..].find('[').map(|at| found + at) else { return text.to_owned() };
    let mut depth = 0;
    let close = text[open..].find(|character| {
        depth += i32::from(character == '[') - i32::from(character == ']');
        depth == 0
    });
    let Some(close) = close.map(|at| open + at + 1) else { return text.to_owned() };
    let before = text[..found].trim_end_matches(['"', '\\']);
    let behind = text[close..].trim_start_matches(',');
    format!("{before}{}", without_managed_fields(behind))
}

fn note(known: &mut Vec<String>, value: &str) {
    if !known.iter().any(|one| one == value) {
        known.push(value.to_owned());
    }
}

/// How often a bookmark comes while nothing happens is left to the server.
fn drop_later_bookmarks(events: &mut Vec<Value>) {
    let mut position = 0;
    events.retain(|event| {
        position += 1;
        let ends_initial = event.to_string().contains("k8s.io/initial-events-end");
        position == 1 || event["type"] != "BOOKMARK" || ends_initial
    });
}

/// The version of a bookmark depends on what else is written to the same store.
fn hide_version(object: &mut Value, pointer: &str) {
    if let Some(version) = object.pointer_mut(pointer) {
        *version = "<of a list>".into();
    }
}

/// What columns of built-in kinds are said to be about: docs/reference/differences.md.
fn without_descriptions(body: &mut Value) {
    let columns = body.get_mut("columnDefinitions").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        column.remove("description");
    }
}

/// The members that nobody knows, or that are there twice, in one order.
fn sort_unknown(status: &mut Value) {
    const BEFORE: &str = "strict decoding error: ";
    let Some(message) = status["message"].as_str() else { return };
    let Some((before, list)) = message.split_once(BEFORE) else { return };
    let mut parts: Vec<&str> = list.split(", ").collect();
    parts.sort_unstable();
    status["message"] = format!("{before}{BEFORE}{}", parts.join(", ")).into();
}

fn is_list(body: &Value) -> bool {
    body["items"].is_array() || body["kind"] == "Table"
}

/// A real kube-apiserver serves many groups.
fn only_ours(body: &mut Value) {
    let keep = |group: &Value| group["name"] == GROUP || group["metadata"]["name"] == GROUP;
    let (kind, list) = match body["kind"].as_str() {
        Some("APIGroupList") => ("APIGroupList", "groups"),
        Some("APIGroupDiscoveryList") => ("APIGroupDiscoveryList", "items"),
        _ => return,
    };
    if body["kind"] == kind
        && let Some(groups) = body[list].as_array_mut()
    {
        groups.retain(keep);
    }
}

/// kube-apiserver lists resources in the order of a Go map.
fn sort_resources(body: &mut Value) {
    if body["kind"] == "APIResourceList"
        && let Some(resources) = body["resources"].as_array_mut()
    {
        resources.sort_by_key(|resource| resource["name"].to_string());
    }
}

/// kube-apiserver finds the faults of an object in the order of a Go map,
/// which is another one each time.
fn sort_causes(status: &mut Value) {
    if status["kind"] != "Status" {
        return;
    }
    let Some(Value::Array(causes)) = status.pointer("/details/causes").cloned() else { return };
    if causes.len() < 2 {
        return;
    }
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let mut sorted = causes.clone();
    sorted.sort_by_key(|cause| (text(cause), cause["reason"].to_string()));
    status["details"]["causes"] = sorted.into();
    // The message names each once, in the same order as the causes.
    let texts: BTreeSet<String> = causes.iter().map(text).collect();
    let joined: Vec<&str> = texts.iter().map(String::as_str).collect();
    let joined = format!("[{}]", joined.join(", "));
    let message = status["message"].as_str().unwrap_or_default();
    if let Some((start, list)) = message.split_once(" is invalid: ")
        && list.len() == joined.len()
        && texts.iter().all(|text| list.contains(text.as_str()))
    {
        status["message"] = format!("{start} is invalid: {joined}").into();
    }
}

fn is_uid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match dashes.contains(&index) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        })
}

/// How far ahead a time is, in tens of minutes: the two servers answer minutes apart on a busy machine.
fn minutes_from_now(text: &str) -> Option<i64> {
    let time: Timestamp = text.parse().ok()?;
    let seconds = time.as_second() - Timestamp::now().as_second();
    Some((seconds + 300).div_euclid(600) * 10)
}

fn is_now(text: &str) -> bool {
    let time = text.parse::<Timestamp>();
    time.is_ok_and(|time| time.duration_since(Timestamp::now()).abs() < NOW)
}

/// Hides times of now, also where a message shows an object.
fn without_times(text: &str) -> String {
    const LENGTH: usize = "2026-01-02T03:04:05".len();
    let mut hidden = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(separator) = rest.find('T') {
        let start = separator.checked_sub("2026-01-02".len());
        let found = start.and_then(|start| {
            let behind = rest.get(start + LENGTH..)?;
            let fraction = behind.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
            let zone = if fraction.starts_with('Z') { 1 } else { "+00:00".len() };
            let end = rest.len() - fraction.len() + zone;
            is_now(rest.get(start..end)?).then_some((start, end))
        });
        let (shown, next) = found.unwrap_or((separator + 1, separator + 1));
        hidden.push_str(&rest[..shown]);
        if found.is_some() {
            hidden.push_str("<now>");
        }
        rest = &rest[next..];
    }
    hidden.push_str(rest);
    hidden
}

/// The age of something that was made during the row.
fn is_young(text: &str) -> bool {
    let parts = text.trim_end_matches('s').split('m').collect::<Vec<_>>();
    let numbers = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(['s', 'm'])
        && parts.len() <= 2
        && numbers
}

/// Hides the five random characters behind a prefix that names are made from.
fn without_suffixes(text: &str, prefix: &str) -> String {
    let is_random =
        |suffix: &str| suffix.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    let mut hidden = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(prefix) {
        let (before, behind) = rest.split_at(start + prefix.len());
        hidden.push_str(before);
        rest = behind;
        if let Some(suffix) = behind.get(..5).filter(|suffix| is_random(suffix)) {
            hidden.push_str("<generated>");
            rest = &behind[suffix.len()..];
        }
    }
    hidden.push_str(rest);
    hidden
}

fn without_numbers(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut in_number = false;
    for character in text.chars() {
        if character.is_ascii_digit() {
            if !in_number {
                masked.push_str("<number>");
            }
            in_number = true;
        } else {
            in_number = false;
            masked.push(character);
        }
    }
    masked
}

/// The uid of a question that a webhook was asked is in no object.
fn without_expected_uid(text: String) -> String {
    const BEFORE: &str = "expected response.uid=\"";
    let Some((before, rest)) = text.split_once(BEFORE) else { return text };
    let Some((_, after)) = rest.split_once('"') else { return text };
    format!("{before}{BEFORE}<uid>\"{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(body: Value) -> Value {
        let mut placeholders = Placeholders::new("row-1");
        let request = r#"{"metadata":{"generateName":"a-"}}"#.to_owned();
        let sent = Sent { body: Some(request), ..Sent::default() };
        let answer = Answer { status: 200, body, ..Answer::default() };
        placeholders.normalize(&sent, &answer)["body"].clone()
    }

    #[test]
    fn generated_values_are_masked_and_fixed_values_remain() {
        let uid = "0a1b2c3d-0000-4000-8000-000000000000";
        let now = Timestamp::now().to_string();
        let object = |version: &str| {
            json!({"kind": "Foo", "metadata": {
                "name": "a-bcdfg", "generateName": "a-", "namespace": "row-1", "uid": uid,
                "resourceVersion": version, "creationTimestamp": now, "managedFields": [
                    {"operation": "Update", "manager": "b", "time": now},
                    {"operation": "Apply", "manager": "c"},
                ],
            }, "spec": {"since": "2020-01-01T00:00:00Z", "n": "7"}})
        };
        let list = json!({
            "kind": "FooList", "items": [object("7"), object("8"), object("7")],
            "metadata": {"resourceVersion": "9", "continue": "x"},
        });
        let normal = normalized(list);
        let versions: Vec<&str> = (0..3)
            .filter_map(|index| normal["items"][index]["metadata"]["resourceVersion"].as_str())
            .collect();
        assert_eq!(versions, ["<version 1>", "<version 2>", "<version 1>"]);
        assert_eq!(
            normal["items"][0]["metadata"],
            json!({
                "name": "a-<generated>", "generateName": "a-", "namespace": "<namespace>",
                "uid": "<uid 1>", "resourceVersion": "<version 1>", "creationTimestamp": "<now>",
                "managedFields": [
                    {"operation": "Apply", "manager": "c"},
                    {"operation": "Update", "manager": "b", "time": "<time>"},
                ],
            })
        );
        assert_eq!(normal["items"][0]["spec"], json!({"since": "2020-01-01T00:00:00Z", "n": "7"}));
        assert_eq!(
            normal["metadata"],
            json!({"resourceVersion": "<of a list>", "continue": "<continue>"})
        );
    }

    #[test]
    fn current_times_are_masked_anywhere_in_a_string() {
        let now = Timestamp::now();
        let micros = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
        let zone = now.strftime("%Y-%m-%dT%H:%M:%S+00:00");
        let text =
            format!("T\u{e9}T {micros},\\\"a\\\":\\\"{zone}\\\" 2020-01-01T00:00:00Z {now}T");
        assert_eq!(
            without_times(&text),
            "T\u{e9}T <now>,\\\"a\\\":\\\"<now>\\\" 2020-01-01T00:00:00Z <now>T"
        );
    }

    #[test]
    fn causes_are_sorted() {
        let cause =
            |field: &str| json!({"field": field, "message": "Required value", "reason": "R"});
        let status = |fields: [&str; 3], list: &str| {
            json!({
                "kind": "Status", "message": format!("Foo \"a\" is invalid: {list}"),
                "details": {"causes": fields.map(cause)},
            })
        };
        let one = status(["b", "a", "a"], "[b: Required value, a: Required value]");
        let other = status(["a", "b", "a"], "[a: Required value, b: Required value]");
        assert_eq!(normalized(one), normalized(other.clone()));
        let missing = status(["a", "b", "a"], "[a: Required value, c: Required value]");
        assert_ne!(normalized(missing), normalized(other));
    }

    #[test]
    fn ages_and_numbers() {
        for text in ["0s", "59s", "2m", "2m3s"] {
            assert!(is_young(text), "{text}");
        }
        for text in ["5h", "3d", "s", "x5s", "1", "1m2m3s"] {
            assert!(!is_young(text), "{text}");
        }
        assert_eq!(without_numbers("old: 12 (345)"), "old: <number> (<number>)");
    }
}
