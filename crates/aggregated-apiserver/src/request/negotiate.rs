//! Negotiation of the format of responses.
//!
//! The first supported clause of the Accept header is selected. JSON and YAML are supported for whole objects, tables
//! and metadata. Protobuf is supported for kinds with message types, but not for tables.

use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::request::Parts;

use crate::error::{ApiError, Details, Reason};
use crate::verb::Verb;

/// The maximum number of clauses of an Accept header that are read.
const CLAUSES_LIMIT: usize = 1_024;

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Format {
    /// The form of the objects.
    pub form: Form,
    /// The part of the object that each row of a table contains.
    pub include: Include,
    /// The encoding of the response.
    pub presentation: Presentation,
}

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Whole objects.
    Object,
    /// The rows of a table.
    Table(MetaVersion),
    /// Only the metadata of objects.
    PartialMetadata(MetaVersion),
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// `meta.k8s.io/v1`
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The part of its object that a row of a table contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Include {
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
    None,
}

/// The encoding and the compression of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Presentation {
    /// The encoding.
    pub media: Media,
    /// Whether the response may be compressed.
    pub gzip: bool,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Media {
    /// JSON on one line.
    Json,
    /// Indented JSON, for human readers.
    Indented,
    /// YAML.
    Yaml,
    /// Protobuf, for types with protobuf messages.
    Protobuf,
}

/// The responses that are available in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InProtobuf {
    /// No response.
    Nothing,
    /// Metadata, and the types that every server has: a custom resource has no message types.
    Metadata,
    /// All responses except tables.
    Objects,
}

impl Media {
    /// The value of `Content-Type`.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Indented => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// The format of a response, and an error if the object cannot be sent in this format. The error is returned after the
/// request has been executed, same as in kube-apiserver.
#[derive(Debug)]
pub(super) struct Negotiated {
    pub format: Format,
    pub objection: Option<ApiError>,
}

/// Determines the format of the response to a verb.
pub(super) fn negotiate(
    head: &Parts,
    verb: Verb,
    in_protobuf: InProtobuf,
) -> Result<Negotiated, ApiError> {
    let is_list = matches!(verb, Verb::List | Verb::DeleteCollection);
    let clauses = clauses(head);
    let chosen = clauses.iter().find_map(|clause| Some((clause, clause.conversion(in_protobuf)?)));
    let Some((clause, conversion)) = chosen else {
        // kube-apiserver's routes of built-in kinds check the media types first.
        let is_route = in_protobuf == InProtobuf::Objects;
        return Err(match clauses.iter().any(Clause::is_known) || !is_route {
            true => not_acceptable(),
            false => not_routed(),
        });
    };
    let mut objection = None;
    let mut include = Include::Metadata;
    let form = match (conversion, verb) {
        (Conversion::None, _) => Form::Object,
        (Conversion::Table(version), _) => {
            match asked_to_include(head) {
                Ok(asked) => include = asked,
                Err(error) => objection = Some(error),
            }
            Form::Table(version)
        }
        (Conversion::PartialMetadata(version), _) => {
            objection = is_list.then(|| mismatch(
                "PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)",
            ));
            Form::PartialMetadata(version)
        }
        (Conversion::PartialMetadataList(version), _) => {
            objection = (!is_list).then(|| mismatch(
                "PartialObjectMetadataList, but the requested object is not a list (*unstructured.Unstructured)",
            ));
            Form::PartialMetadata(version)
        }
    };
    let presentation = if verb == Verb::Watch {
        if clause.is_yaml() {
            let message = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
            objection = Some(ApiError::new(Reason::NotAcceptable, message));
        }
        let media = if clause.is_protobuf() { Media::Protobuf } else { Media::Json };
        Presentation { media, gzip: false }
    } else {
        clause.presentation(head)
    };
    Ok(Negotiated { format: Format { form, include, presentation }, objection })
}

/// Returns whether the client requests aggregated discovery, and the encoding of the response.
pub(super) fn discovery(head: &Parts) -> Result<(bool, Presentation), ApiError> {
    let clauses = clauses(head);
    match clauses.iter().find(|clause| clause.is_aggregated_discovery()) {
        Some(clause) => Ok((true, clause.presentation(head))),
        None => Ok((false, plain(head)?)),
    }
}

/// Determines the encoding of a response that has only one form and no protobuf messages.
pub(super) fn plain(head: &Parts) -> Result<Presentation, ApiError> {
    plain_or(head, InProtobuf::Nothing)
}

fn plain_or(head: &Parts, in_protobuf: InProtobuf) -> Result<Presentation, ApiError> {
    let is_plain =
        |clause: &&Clause| matches!(clause.conversion(in_protobuf), Some(Conversion::None));
    let clauses = clauses(head);
    let clause = clauses.iter().find(is_plain).ok_or_else(not_acceptable)?;
    Ok(clause.presentation(head))
}

/// Whether the client accepts JSON of any form: OpenAPI documents are not available in another form.
pub(super) fn takes_json(head: &Parts) -> bool {
    clauses(head).iter().any(Clause::is_json)
}

/// Whether the client prefers the OpenAPI v2 document in protobuf; kubectl accepts nothing else.
pub(super) fn prefers_openapi_in_protobuf(head: &Parts) -> bool {
    const PROTOBUF: [&str; 2] = [
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ];
    let is_protobuf = |clause: &Clause<'_>| PROTOBUF.contains(&clause.media_type);
    let clauses = clauses(head);
    let first = clauses.iter().find(|clause| clause.is_json() || is_protobuf(clause));
    first.is_some_and(is_protobuf)
}

/// Determines the encoding of an error response. A client that accepts no supported encoding receives indented JSON,
/// same as from kube-apiserver.
pub(super) fn refusal(head: &Parts) -> Presentation {
    let indented = Presentation { media: Media::Indented, gzip: false };
    plain_or(head, InProtobuf::Objects).unwrap_or(indented)
}

/// Whether the query or the user agent indicates that a person reads the JSON.
fn is_for_people(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    let given = super::query::pairs(query).find(|(key, _)| key == "pretty");
    match given.as_ref().map(|(_, value)| value.as_ref()).filter(|value| !value.is_empty()) {
        Some(value) => ["1", "t", "T", "true", "True", "TRUE"].contains(&value),
        None => {
            let agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
            let agent = agent.unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
        }
    }
}

/// Whether the client accepts gzip. The value `gzip` must have no parameters, same as in kube-apiserver.
fn takes_gzip(head: &Parts) -> bool {
    let values = head.headers.get_all(ACCEPT_ENCODING).into_iter();
    let mut tokens =
        values.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    tokens.any(|token| token.trim() == "gzip")
}

fn asked_to_include(head: &Parts) -> Result<Include, ApiError> {
    let query = head.uri.query().unwrap_or_default();
    let given = super::query::pairs(query).find(|(key, _)| key == "includeObject");
    match given.as_ref().map(|(_, value)| value.as_ref()) {
        None | Some("" | "Metadata") => Ok(Include::Metadata),
        Some("Object") => Ok(Include::Object),
        Some("None") => Ok(Include::None),
        Some(other) => Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
            crate::error::quote(other)
        ))),
    }
}

fn not_acceptable() -> ApiError {
    let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    ApiError::new(Reason::NotAcceptable, message)
}

fn not_routed() -> ApiError {
    let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    ApiError::new(Reason::NotAcceptable, message).with_details(Details::default())
}

fn mismatch(what: &str) -> ApiError {
    ApiError::new(Reason::NotAcceptable, format!("you requested {what}"))
}

#[derive(Clone, Copy)]
enum Conversion {
    None,
    Table(MetaVersion),
    PartialMetadata(MetaVersion),
    PartialMetadataList(MetaVersion),
}

/// One clause of the Accept header.
#[derive(Debug)]
struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// The quality value, in thousandths.
    quality: i64,
}

impl<'a> Clause<'a> {
    /// Parses the text between two commas.
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameter = |part: &'a str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.trim(), value.trim().trim_matches('"'))
        };
        let parameters: Vec<_> = parts.map(parameter).collect();
        let quality = quality(&parameters);
        Self { media_type, parameters, quality }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(key, value)| *key == name && !value.is_empty());
        found.map(|(_, value)| *value)
    }

    fn is_json(&self) -> bool {
        ["application/json", "application/*", "*/*"].contains(&self.media_type)
    }

    fn is_yaml(&self) -> bool {
        self.media_type == "application/yaml"
    }

    fn is_protobuf(&self) -> bool {
        self.media_type == "application/vnd.kubernetes.protobuf"
    }

    fn is_known(&self) -> bool {
        self.is_json() || self.is_yaml() || self.is_protobuf()
    }

    fn presentation(&self, head: &Parts) -> Presentation {
        let media = if self.is_yaml() {
            Media::Yaml
        } else if self.is_protobuf() {
            Media::Protobuf
        } else if self.parameter("pretty") == Some("1") || is_for_people(head) {
            Media::Indented
        } else {
            Media::Json
        };
        Presentation { media, gzip: takes_gzip(head) }
    }

    /// Returns the conversion that the clause requests, if it is supported.
    fn conversion(&self, in_protobuf: InProtobuf) -> Option<Conversion> {
        let conversion = self.conversion_of_any()?;
        let is_had = match (conversion, in_protobuf) {
            _ if !self.is_protobuf() => true,
            (Conversion::Table(_), _) | (_, InProtobuf::Nothing) => false,
            (Conversion::None, InProtobuf::Metadata) => false,
            _ => true,
        };
        is_had.then_some(conversion)
    }

    fn conversion_of_any(&self) -> Option<Conversion> {
        let streams = |stream| stream == "watch" && (self.is_json() || self.is_protobuf());
        if !self.is_known()
            || !self.parameter("stream").is_none_or(streams)
            || self.parameter("sv").is_some()
        {
            return None;
        }
        let group = self.parameter("g");
        let version = self.parameter("v");
        let Some(kind) = self.parameter("as") else {
            return (group.is_none() && version.is_none()).then_some(Conversion::None);
        };
        let version = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            _ => return None,
        };
        match kind {
            "Table" => Some(Conversion::Table(version)),
            "PartialObjectMetadata" => Some(Conversion::PartialMetadata(version)),
            "PartialObjectMetadataList" => Some(Conversion::PartialMetadataList(version)),
            _ => None,
        }
    }

    fn is_aggregated_discovery(&self) -> bool {
        (self.is_json() || self.is_yaml())
            && self.parameter("g") == Some("apidiscovery.k8s.io")
            && self.parameter("v") == Some("v2")
            && self.parameter("as") == Some("APIGroupDiscoveryList")
    }

    /// Whether this clause is tried before another clause that precedes it: its quality is higher, or its media type is
    /// more specific.
    fn overtakes(&self, other: &Self) -> bool {
        let open = |clause: &Self| {
            (clause.media_type.starts_with("*/"), clause.media_type.ends_with("/*"))
        };
        let (own, others) = (open(self), open(other));
        self.quality > other.quality || (!own.0 && others.0) || (!own.1 && others.1)
    }
}

/// Unreadable quality values count as 0, same as in Go.
fn quality(parameters: &[(&str, &str)]) -> i64 {
    #[allow(clippy::cast_possible_truncation)] // thousandths of a number up to 1
    let thousandths = |quality: f64| (quality.clamp(0.0, 1.0) * 1000.0) as i64;
    match parameters.iter().find(|(key, _)| *key == "q") {
        Some((_, quality)) => quality.parse().map_or(0, thousandths),
        None => 1000,
    }
}

/// Returns the clauses of the Accept header, best first. Without the header, any format is accepted.
fn clauses(head: &Parts) -> Vec<Clause<'_>> {
    let values = head.headers.get_all(ACCEPT).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut clauses: Vec<Clause<'_>> =
        texts.flat_map(|text| text.split(',')).take(CLAUSES_LIMIT).map(Clause::parse).collect();
    if clauses.iter().all(|clause| clause.media_type.is_empty()) {
        clauses = vec![Clause::parse("*/*")];
    }
    sort(&mut clauses);
    clauses
}

/// Sorts the clauses, best first, with the algorithm of kube-apiserver. The comparison is not a strict order, so the
/// result depends on the steps of the algorithm. Their number is at most the square of the number of clauses.
fn sort(clauses: &mut [Clause<'_>]) {
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].overtakes(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(accept: &str, query: &str) -> Parts {
        let request = Request::builder().uri(format!("/x?{query}"));
        let request = if accept.is_empty() { request } else { request.header(ACCEPT, accept) };
        request.body(()).unwrap().into_parts().0
    }

    fn check(accept: &str, verb: Verb, expected: Result<Form, Reason>) {
        let found = negotiate(&head(accept, ""), verb, InProtobuf::Metadata);
        let found = match found {
            Ok(Negotiated { objection: Some(error), .. }) | Err(error) => Err(error.reason()),
            Ok(Negotiated { format, .. }) => Ok(format.form),
        };
        assert_eq!(found, expected, "{accept}");
    }

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    const META: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

    #[test]
    fn accept_headers_of_common_clients_are_negotiated() {
        check("", Verb::List, Ok(Form::Object));
        check("*/*", Verb::List, Ok(Form::Object));
        check("application/json, */*", Verb::Get, Ok(Form::Object));
        check(TABLE, Verb::List, Ok(Form::Table(MetaVersion::V1)));
        check(META, Verb::Watch, Ok(Form::PartialMetadata(MetaVersion::V1)));
        let list = META.replace("Metadata;", "MetadataList;");
        check(&list, Verb::List, Ok(Form::PartialMetadata(MetaVersion::V1)));
        check("application/vnd.kubernetes.protobuf,application/json", Verb::Get, Ok(Form::Object));
        check("application/json;stream=watch", Verb::Watch, Ok(Form::Object));
        check(
            "application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io",
            Verb::Get,
            Ok(Form::Table(MetaVersion::V1)),
        );
    }

    #[test]
    fn unsupported_accept_headers_are_rejected() {
        check("application/vnd.kubernetes.protobuf", Verb::Get, Err(Reason::NotAcceptable));
        check("text/html", Verb::Get, Err(Reason::NotAcceptable));
        check("application/json;as=Poem;v=v1;g=meta.k8s.io", Verb::Get, Err(Reason::NotAcceptable));
        check(META, Verb::List, Err(Reason::NotAcceptable));
    }

    #[test]
    fn protobuf_is_negotiated_only_where_the_kind_supports_it() {
        const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
        let media = |accept, verb, in_protobuf| {
            let negotiated = negotiate(&head(accept, ""), verb, in_protobuf).unwrap();
            negotiated.format.presentation.media
        };
        assert_eq!(media(BOTH, Verb::Get, InProtobuf::Objects), Media::Protobuf);
        assert_eq!(media(BOTH, Verb::Watch, InProtobuf::Objects), Media::Protobuf);
        assert_eq!(media(BOTH, Verb::Get, InProtobuf::Metadata), Media::Json);
        assert_eq!(media(META, Verb::Get, InProtobuf::Metadata), Media::Protobuf);
        assert_eq!(media(META, Verb::Watch, InProtobuf::Nothing), Media::Json);
        let table = TABLE.replace("application/json;as", "application/vnd.kubernetes.protobuf;as");
        assert_eq!(media(&table, Verb::List, InProtobuf::Objects), Media::Json);
    }

    #[test]
    fn include_object_sets_the_content_of_table_rows() {
        let include = |accept, query| {
            let negotiated =
                negotiate(&head(accept, query), Verb::List, InProtobuf::Metadata).unwrap();
            (negotiated.format.include, negotiated.objection.map(|error| error.reason()))
        };
        assert_eq!(include(TABLE, "includeObject=Object"), (Include::Object, None));
        assert_eq!(include(TABLE, "includeObject="), (Include::Metadata, None));
        assert_eq!(include(TABLE, "includeObject=x").1, Some(Reason::BadRequest));
        assert_eq!(include("", "includeObject=x"), (Include::Metadata, None));
    }

    #[test]
    fn aggregated_discovery() {
        let rows = [
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                Some(true),
            ),
            (
                "application/json,application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
                Some(true),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                Some(false),
            ),
            ("", Some(false)),
            ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", None),
        ];
        for (accept, expected) in rows {
            assert_eq!(
                discovery(&head(accept, "")).ok().map(|(aggregated, _)| aggregated),
                expected,
                "{accept}"
            );
        }
    }

    #[test]
    fn only_the_plain_word_counts() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, gzip", true),
            ("gzip;q=1.0", false),
            ("GZIP", false),
            ("", false),
        ] {
            let head = Request::builder().header(ACCEPT_ENCODING, value).body(()).unwrap();
            assert_eq!(takes_gzip(&head.into_parts().0), expected, "{value}");
        }
    }
}
