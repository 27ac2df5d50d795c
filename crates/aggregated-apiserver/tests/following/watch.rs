//! A client with a list and a watch of notes.

use std::collections::BTreeMap;
use std::time::Duration;

use aggregated_apiserver::InProcess;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::Value;
use test_server::{Events, ask_as, user};

use crate::NOTES;

/// A wait that only ends if a test fails.
const LONG: Duration = Duration::from_secs(30);

pub fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub fn revision_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// The notes that a list shows to a user, and its revision.
pub async fn list(
    server: &InProcess,
    name: &str,
    query: &str,
) -> (BTreeMap<String, Value>, String) {
    let path = format!("{NOTES}?{query}");
    let (status, list) = ask_as(server, user(name), Method::GET, &path, &Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    (items.map(|item| (name_of(item), item["spec"].clone())).collect(), revision_of(&list))
}

/// A watch of a user.
pub struct Watch {
    pub events: Events,
    /// The notes that the client has.
    pub known: BTreeMap<String, Value>,
    /// The last revision that the client has received.
    pub revision: String,
}

impl Watch {
    /// Lists, and watches from the revision of the list.
    pub async fn begin(server: &InProcess, name: &str, query: &str) -> Self {
        let (known, revision) = list(server, name, query).await;
        Self { known, ..Self::resume(server, name, query, &revision).await }
    }

    /// Watches from a revision.
    pub async fn resume(server: &InProcess, name: &str, query: &str, revision: &str) -> Self {
        let path =
            format!("{NOTES}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}&{query}");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = server.respond(user(name), request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let events = Events::of(response.into_body());
        Self { events, known: BTreeMap::new(), revision: revision.to_owned() }
    }

    /// The next event: its type and its object.
    pub async fn next(&mut self) -> (String, Value) {
        let event = tokio::time::timeout(LONG, self.events.next()).await;
        let mut event = event.expect("no event came").expect("the watch has ended");
        let event_type = event["type"].as_str().unwrap().to_owned();
        let object = event["object"].take();
        let (name, spec) = (name_of(&object), object["spec"].clone());
        match event_type.as_str() {
            "ERROR" => return (event_type, object),
            "DELETED" => drop(self.known.remove(&name)),
            "BOOKMARK" => {}
            _ => drop(self.known.insert(name, spec)),
        }
        self.revision = revision_of(&object);
        (event_type, object)
    }

    /// Expects an event of this type, of the note with this name.
    pub async fn expect(&mut self, event_type: &str, name: &str) -> Value {
        let (found, object) = self.next().await;
        assert_eq!((found.as_str(), name_of(&object).as_str()), (event_type, name), "{object}");
        object
    }

    /// Expects the end of the watch, because its revision is too old.
    pub async fn expect_expired(&mut self) {
        let (event_type, object) = self.next().await;
        assert_eq!((event_type.as_str(), &object["code"]), ("ERROR", &410.into()), "{object}");
    }
}
