//! What is kept of a request that is traced: the least that its spans can be made of later, by the thread that
//! sends them, so that the request itself pays for a copy and no more.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::context::Remote;
use crate::cluster::Attributes;
use crate::record::Record;
use crate::record::steps::Steps;
use crate::user::User;

/// What a request says of itself when it comes.
#[derive(Debug)]
pub(super) struct Begun {
    pub trace: u128,
    pub span: u64,
    /// The span of the client that it is a part of; 0 if there is none.
    pub parent: u64,
    /// A span of another trace, which its client named and may not be believed.
    pub link: Option<Remote>,
    /// When it came, in nanoseconds since 1970.
    pub started: u64,
    pub address: Option<IpAddr>,
    pub user: Arc<User>,
    pub texts: Texts,
}

/// Texts of a request, one behind the other: the id in logs, what is asked for, and the user agent.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: String,
    audit_id: usize,
    target: usize,
}

impl Texts {
    pub(super) fn of(audit_id: &str, target: &str, user_agent: &str) -> Self {
        let mut all = String::with_capacity(audit_id.len() + target.len() + user_agent.len());
        all.push_str(audit_id);
        let audit_id = all.len();
        all.push_str(target);
        let target = all.len();
        all.push_str(user_agent);
        Self { all, audit_id, target }
    }

    pub(super) fn audit_id(&self) -> &str {
        self.all.get(..self.audit_id).unwrap_or_default()
    }

    pub(super) fn target(&self) -> &str {
        self.all.get(self.audit_id..self.target).unwrap_or_default()
    }

    pub(super) fn user_agent(&self) -> &str {
        self.all.get(self.target..).unwrap_or_default()
    }
}

/// A request that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub begun: Begun,
    pub method: Method,
    pub attributes: Option<Arc<Attributes>>,
    pub is_served: bool,
    pub code: u16,
    /// Of the answer.
    pub bytes: u64,
    pub steps: Steps,
    pub took: Duration,
}

impl Ended {
    pub(super) fn of(begun: Begun, record: &Record) -> Self {
        Self {
            begun,
            method: record.method.clone(),
            attributes: record.attributes.clone(),
            is_served: record.is_served,
            code: record.code,
            bytes: record.bytes,
            steps: record.steps,
            took: record.took,
        }
    }

    /// How many spans it is: one for all of it, one for each step, and one for sending.
    pub(super) fn spans(&self) -> u64 {
        2 + self.steps.named().count() as u64
    }

    /// What it takes, in bytes of memory, at most.
    pub(super) fn size(&self) -> usize {
        let attributes = match self.attributes.as_deref() {
            Some(Attributes::Resource {
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
                ..
            }) => {
                let parts = [group, version, resource, subresource, namespace, name];
                parts.iter().map(|part| part.capacity()).sum()
            }
            Some(Attributes::Path { verb, path }) => verb.capacity() + path.capacity(),
            None => 0,
        };
        let of_method = self.method.as_str().len();
        size_of::<Self>()
            + size_of::<Attributes>()
            + self.begun.texts.all.capacity()
            + self.begun.user.size()
            + attributes
            + of_method
    }
}
