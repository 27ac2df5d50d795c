//! ConversionReviews: the requests to conversion webhooks, and their responses.

use serde_json::{Value, json};

use crate::codec;
use crate::quota::Account;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// The largest part of a webhook's message that clients get, in characters.
const MESSAGE_LIMIT: usize = 4096;

/// A ConversionReview that requests these objects, given as JSON, in another version.
pub(super) fn request(version: &str, uid: &str, to: &str, objects: &[String]) -> String {
    let length: usize = objects.iter().map(|object| object.len() + 1).sum();
    let mut body = String::with_capacity(length + 256);
    let (uid, to) = (json!(uid), json!(to));
    body += &format!(
        "{{\"kind\":\"{KIND}\",\"apiVersion\":\"{GROUP}/{version}\",\"request\":{{\"uid\":{uid},\"desiredAPIVersion\":{to},\"objects\":["
    );
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body += object;
    }
    body + "]}}"
}

/// The objects of a response.
///
/// # Errors
/// The reason, if the response reports a failure, or does not match this request.
pub(super) fn converted(answer: &[u8], version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let read = codec::from_json(answer, &Account::own());
    let Value::Object(mut review) = read.map_err(|why| why.to_string())?.value else {
        return Err("couldn't get version/kind; it is no JSON object".to_owned());
    };
    let text = |review: &Value, path: &str| {
        review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut response = review.remove("response").filter(|response| !response.is_null());
    let review = Value::Object(review);
    let (api_version, kind) = (text(&review, "/apiVersion"), text(&review, "/kind"));
    if version == "v1" && (api_version != format!("{GROUP}/{version}") || kind != KIND) {
        let got = match api_version.split_once('/') {
            Some((group, version)) => format!("{group}/{version}"),
            None => format!("/{api_version}"),
        };
        return Err(format!(
            "expected webhook response of {GROUP}/{version}, Kind={KIND}, got {got}, Kind={kind}"
        ));
    }
    let response = response.as_mut().ok_or("no response provided")?;
    let answered = text(response, "/uid");
    if version == "v1" && answered != uid {
        return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
    }
    let status = text(response, "/result/status");
    if status != "Success" {
        return Err(match text(response, "/result/message") {
            message if message.is_empty() => {
                format!("response.result.status was '{status}', not 'Success'")
            }
            message => message.chars().take(MESSAGE_LIMIT).collect(),
        });
    }
    match response.get_mut("convertedObjects").map(Value::take) {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_json() {
        let objects = ["{\"a\":1}".to_owned(), "{\"b\":2}".to_owned()];
        let request: Value =
            serde_json::from_str(&request("v1", "u", "example.com/v2", &objects)).unwrap();
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {
                "uid": "u", "desiredAPIVersion": "example.com/v2", "objects": [{"a": 1}, {"b": 2}],
            },
        });
        assert_eq!(request, expected);
    }

    #[test]
    fn invalid_conversion_responses_are_rejected_with_the_reason() {
        let review = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let rows = [
            (
                json!({"apiVersion": "v1", "kind": "Foo"}),
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Foo",
            ),
            (review(Value::Null), "no response provided"),
            (review(json!({"uid": "v"})), "expected response.uid=\"u\", got \"v\""),
            (review(json!({"uid": "u"})), "response.result.status was '', not 'Success'"),
            (
                review(json!({"uid": "u", "result": {"status": "Failure"}})),
                "response.result.status was 'Failure', not 'Success'",
            ),
            (review(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}})), "no"),
        ];
        for (answer, why) in rows {
            let answer = answer.to_string();
            assert_eq!(converted(answer.as_bytes(), "v1", "u"), Err(why.to_owned()));
        }
        let response =
            json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [1]});
        let answer = review(response).to_string();
        assert_eq!(converted(answer.as_bytes(), "v1", "u"), Ok(vec![json!(1)]));
    }
}
