//! Writes that end after their requests, in the audit log and in traces.
//!
//! A request may end before its write does, or before the outcome of the write is known. The event and the spans of the
//! request stay true: the server answered 504, or the client disconnected. When the write ends, the audit log gets another
//! event of the same request, with the status that the server would have answered, and the trace gets another span.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, Uri};

use super::audit::{Recorded, Trail};
use super::traces::{Remains, Trace};
use super::{Metrics, Record, UNKNOWN, apart};
use crate::auth::Attributes;
use crate::error::{ApiError, Reason};

/// The longest URI that an event contains with its query. Names in the paths of objects are short.
const LONGEST_URI: usize = 2 << 10;

/// The end of a write after its request.
#[derive(Debug)]
pub enum Ending {
    /// The write was committed. The server would have answered this HTTP status.
    Committed(u16),
    /// The write was rejected or rolled back.
    Refused(ApiError),
    /// A handler panicked.
    Panicked,
    /// It is not known whether the write was committed.
    Unknown,
}

impl Ending {
    /// The name of this outcome in the audit log, in traces and in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Committed(_) => "committed",
            Self::Refused(_) => "refused",
            Self::Panicked => "panicked",
            Self::Unknown => "unknown",
        }
    }

    /// The HTTP status that the server would have answered.
    pub fn code(&self) -> u16 {
        match self {
            Self::Committed(code) => *code,
            Self::Refused(error) => error.code(),
            Self::Panicked => Reason::InternalError.code(),
            Self::Unknown => Reason::Timeout.code(),
        }
    }

    /// The value of the label `status` of metrics, same as in kube-apiserver.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Committed(_) => "ok",
            Self::Refused(_) | Self::Unknown => "error",
            Self::Panicked => "panic",
        }
    }
}

/// The reason why a write ended after its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// The request timed out, or its client disconnected.
    RequestEnded,
    /// The store did not report whether it had committed.
    OutcomeUnknown,
}

impl Parted {
    /// The value of the label `source` of metrics. kube-apiserver has only the first.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::RequestEnded => "rest-handler",
            Self::OutcomeUnknown => "store",
        }
    }
}

/// The meeting point of a write that outlives its request, and the record of the request. The write provides its
/// outcome, and the record provides the data for an event and a span. Copies share it.
#[derive(Clone, Debug)]
pub struct Aftermath {
    /// `None` if only metrics count the end.
    meeting: Option<Arc<Mutex<Meeting>>>,
    metrics: Option<Arc<Metrics>>,
}

#[derive(Debug)]
enum Meeting {
    /// The write has not outlived its request.
    Together,
    /// The write goes on, and the record is not read yet.
    Apart,
    /// The record has been read, and the write goes on.
    Left(Box<Left>),
    /// The write has ended, and the record is not read yet.
    Ended(Ending),
}

/// The data of a record that the event and the span of a write need.
#[derive(Debug)]
struct Left {
    audit_id: HeaderValue,
    uri: Uri,
    attributes: Arc<Attributes>,
    trail: Option<Box<Trail>>,
    trace: Option<Remains>,
}

impl Aftermath {
    /// Creates the meeting point of a request. If `is_told` is false, only metrics count the outcome; otherwise the
    /// audit log or traces record it too.
    pub(super) fn new(metrics: Option<Arc<Metrics>>, is_told: bool) -> Self {
        let meeting = is_told.then(|| Arc::new(Mutex::new(Meeting::Together)));
        Self { meeting, metrics }
    }

    /// Records that the write goes on while its request ends.
    pub fn outlives(&self) {
        if let Some(meeting) = &self.meeting {
            *meeting.lock().unwrap_or_else(PoisonError::into_inner) = Meeting::Apart;
        }
    }

    /// Records the outcome of a write that has outlived its request.
    pub fn ended(&self, ending: Ending, parted: Parted) {
        if let Some(metrics) = &self.metrics {
            metrics.ended_after_answer(ending.status(), parted.source());
        }
        let Some(meeting) = &self.meeting else { return };
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *meeting, Meeting::Together) {
            Meeting::Left(left) => {
                drop(meeting);
                left.tell(&ending);
            }
            _ => *meeting = Meeting::Ended(ending),
        }
    }

    /// Whether the write has outlived its request.
    pub(super) fn is_apart(&self) -> bool {
        let Some(meeting) = &self.meeting else { return false };
        let meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(*meeting, Meeting::Together)
    }

    /// Stores the data of a record for the event and the span of the write.
    pub(super) fn leave(
        &self,
        record: &Record,
        (trail, trace): (Option<Box<Trail>>, Option<Box<Trace>>),
    ) {
        let (Some(attributes), Some(meeting)) = (&record.attributes, &self.meeting) else { return };
        let attributes = Arc::clone(attributes);
        let audit_id = apart(&record.audit_id).unwrap_or(UNKNOWN);
        let (trail, trace) = (trail.map(Trail::remains), trace.map(|one| one.remains(record.took)));
        let left = Left { audit_id, uri: bounded(&record.uri), attributes, trail, trace };
        let mut meeting = meeting.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *meeting, Meeting::Together) {
            Meeting::Ended(ending) => {
                drop(meeting);
                left.tell(&ending);
            }
            _ => *meeting = Meeting::Left(Box::new(left)),
        }
    }
}

impl Left {
    fn tell(self, ending: &Ending) {
        let Self { audit_id, uri, attributes, trail, trace } = self;
        if let Some(mut trail) = trail {
            let recorded = Recorded { audit_id: &audit_id, uri: &uri, attributes: &attributes };
            trail.ended(ending, recorded);
        }
        if let Some(trace) = trace {
            trace.end(ending, &audit_id);
        }
    }
}

/// Returns a copy of a URI in memory of its own, because the original references the whole buffer of the request. If
/// the URI is longer than [`LONGEST_URI`], the query is omitted.
fn bounded(uri: &Uri) -> Uri {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    let kept = if whole.len() <= LONGEST_URI { whole } else { uri.path() };
    Uri::try_from(kept.to_owned()).unwrap_or_default()
}
