//! Construction of admission requests.

use std::borrow::Cow;

use super::{AdmissionRequest, Form, OldObject};
use crate::admission::AuditAnnotations;
use crate::object::Tree;
use crate::quota::Account;

impl<'a> AdmissionRequest<'a> {
    /// Sets the representation of the objects.
    #[must_use]
    pub(crate) fn in_form(mut self, form: Option<&'a dyn Form>) -> Self {
        self.form = form;
        self
    }

    /// Sets the resourceVersions of the written object and of the stored one.
    #[must_use]
    pub(crate) fn at(mut self, new: Option<&'a str>, old: Option<Cow<'a, str>>) -> Self {
        self.versions = (new.filter(|new| !new.is_empty()), old);
        self
    }

    /// Sets whether the request deletes a whole collection.
    #[must_use]
    pub(crate) fn of_collection(mut self, is_of_collection: bool) -> Self {
        self.is_of_collection = is_of_collection;
        self
    }

    /// Sets the memory account, and the options of the client.
    #[must_use]
    pub(crate) fn with(mut self, account: &'a Account, options: Option<&'a Tree>) -> Self {
        self.account = Some(account);
        self.options = options.map(Cow::Borrowed);
        self
    }

    /// Sets the audit event, if the request has one.
    #[must_use]
    pub(crate) fn audited(mut self, audit: Option<&'a dyn AuditAnnotations>) -> Self {
        self.audit = audit;
        self
    }

    /// Sets the options.
    #[must_use]
    pub(crate) fn with_options(mut self, options: Tree) -> Self {
        self.options = Some(Cow::Owned(options));
        self
    }

    /// Sets the stored object.
    #[must_use]
    pub(crate) fn about(mut self, old: OldObject<'a>) -> Self {
        self.old = old;
        self
    }
}
