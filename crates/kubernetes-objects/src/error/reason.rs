//! Reason: the word that clients branch on.

use http::StatusCode;

/// The machine-readable word of a refusal: `reason` of a Kubernetes `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request makes no sense, whatever the state of the server.
    BadRequest,
    /// Nobody knows who is asking.
    Unauthorized,
    /// The caller is known and may not.
    Forbidden,
    /// No such object, kind or path.
    NotFound,
    /// The path is served, the method is not.
    MethodNotAllowed,
    /// Nothing that the client accepts can be sent.
    NotAcceptable,
    /// An object of this name is there.
    AlreadyExists,
    /// The object is not in the state that the request assumes.
    Conflict,
    /// The requested revision has left the history.
    Expired,
    /// The body is larger than the limit.
    RequestEntityTooLarge,
    /// The path is longer than any that is served.
    UriTooLong,
    /// The body is in a format that is not read here.
    UnsupportedMediaType,
    /// The object is understood and breaks a rule.
    Invalid,
    /// Come back later: `details.retryAfterSeconds` says when.
    TooManyRequests,
    /// A fault of the server.
    InternalError,
    /// The answer did not arrive in time.
    Timeout,
    /// It cannot be answered here now.
    ServiceUnavailable,
    /// There is no room for what would be kept.
    InsufficientStorage,
    /// A failure that kube-apiserver gives no reason.
    Unknown,
}

impl Reason {
    /// The HTTP status that carries this reason.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::AlreadyExists | Self::Conflict => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalError | Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    /// The reason that is nearest to an HTTP status.
    pub fn of_status(status: StatusCode) -> Self {
        let all = [
            Self::BadRequest,
            Self::Unauthorized,
            Self::Forbidden,
            Self::NotFound,
            Self::MethodNotAllowed,
            Self::NotAcceptable,
            Self::Conflict,
            Self::Expired,
            Self::RequestEntityTooLarge,
            Self::UnsupportedMediaType,
            Self::Invalid,
            Self::TooManyRequests,
            Self::ServiceUnavailable,
            Self::Timeout,
        ];
        all.into_iter().find(|reason| reason.status() == status).unwrap_or(Self::Unknown)
    }

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UriTooLong => "RequestURITooLong",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::Timeout => "Timeout",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::InsufficientStorage => "InsufficientStorage",
            Self::Unknown => "",
        }
    }
}
