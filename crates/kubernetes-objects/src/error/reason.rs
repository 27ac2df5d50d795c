//! `Reason`: the machine-readable reason of an error, which clients branch on.

/// The machine-readable reason of an error: `reason` of a Kubernetes `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request is invalid in any state of the server.
    BadRequest,
    /// The request is not authenticated.
    Unauthorized,
    /// The request is authenticated and not permitted.
    Forbidden,
    /// The object, kind or path does not exist.
    NotFound,
    /// The path is served, but not with this method.
    MethodNotAllowed,
    /// The response has no media type that the client accepts.
    NotAcceptable,
    /// An object with this name exists.
    AlreadyExists,
    /// The object is not in the state that the request assumes.
    Conflict,
    /// The requested revision is no longer in the history.
    Expired,
    /// The body is larger than the limit.
    RequestEntityTooLarge,
    /// The path is longer than any path that is served.
    UriTooLong,
    /// The body has an unsupported media type.
    UnsupportedMediaType,
    /// The object breaks a validation rule.
    Invalid,
    /// The client must retry later, after `details.retryAfterSeconds`.
    TooManyRequests,
    /// An error of the server.
    InternalError,
    /// The response did not arrive in time.
    Timeout,
    /// The server cannot answer the request at present.
    ServiceUnavailable,
    /// The store has no space for the object.
    InsufficientStorage,
    /// A failure for which kube-apiserver has no reason.
    Unknown,
}

impl Reason {
    /// All reasons, in the order of their HTTP status.
    pub const ALL: [Self; 19] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::AlreadyExists,
        Self::Conflict,
        Self::Expired,
        Self::RequestEntityTooLarge,
        Self::UriTooLong,
        Self::UnsupportedMediaType,
        Self::Invalid,
        Self::TooManyRequests,
        Self::InternalError,
        Self::Unknown,
        Self::ServiceUnavailable,
        Self::Timeout,
        Self::InsufficientStorage,
    ];

    /// The HTTP status code of responses with this reason.
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::ServiceUnavailable => 503,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UriTooLong => 414,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::Timeout => 504,
            Self::InsufficientStorage => 507,
        }
    }

    /// The reason of an HTTP status code; `Unknown` if Kubernetes has none for it.
    pub fn of_code(code: u16) -> Self {
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
        all.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::Unknown)
    }

    /// The reason in a `Status`.
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
