//! Conversion of the objects of a request to other versions during admission.

use std::borrow::Cow;

use super::AdmissionRequest;
use crate::admission::AdmissionError;
use crate::conversion::known;
use crate::object::{Tree, metadata};
use crate::quota::Account;

impl AdmissionRequest<'_> {
    /// The served versions of the kind, except that of the request.
    pub fn other_versions(&self) -> impl Iterator<Item = &str> {
        let names = self.served.kind.versions.iter().map(|version| version.name.as_str());
        names.filter(|name| *name != self.version)
    }

    /// Converts an object of the request to another served version; this may call a conversion webhook.
    ///
    /// # Errors
    /// 500 if the object cannot be converted, 413 and 429 if it exceeds a memory limit.
    pub async fn in_version(&self, tree: &Tree, version: &str) -> Result<Tree, AdmissionError> {
        let kind = &self.served.kind;
        let wanted = kind.api_version(version);
        let own = Account::own();
        let account = self.account.unwrap_or(&own);
        let convert = || kind.convert_tree(tree, &wanted).map(Cow::into_owned);
        let converted = known(kind, account, convert).await.map_err(AdmissionError::answer)?;
        let mut converted = converted.map_err(|why| {
            let why = why.to_string();
            AdmissionError::answer(kind.unconvertible(metadata::name(tree), version, why).into())
        })?;
        // Without a conversion, versions differ only in their names.
        converted.insert("apiVersion".to_owned(), wanted.into());
        Ok(converted)
    }

    /// The representation of an object that clients read, in this version.
    ///
    /// # Errors
    /// Same as [`in_version`](Self::in_version).
    pub(in crate::admission) async fn shown_in_version<'t>(
        &self,
        object: Option<&'t Tree>,
        version: &str,
    ) -> Result<Option<Cow<'t, Tree>>, AdmissionError> {
        match object {
            Some(object) if self.is_converted(version) => {
                self.in_version(object, version).await.map(|made| Some(Cow::Owned(made)))
            }
            Some(object) => self.shown(object).map(Some),
            None => Ok(None),
        }
    }

    /// Whether objects in this version are converted from that of the request. The form of a subresource has one
    /// version.
    pub(in crate::admission) fn is_converted(&self, version: &str) -> bool {
        version != self.version && self.shown_kind().2 == self.kind
    }

    /// Whether code converts objects of the kind to other versions.
    pub(in crate::admission) fn converts_by_code(&self) -> bool {
        self.served.kind.is_converted_by_code()
    }

    /// Converts an object of the request to another version; without a conversion by code it is unchanged.
    ///
    /// # Errors
    /// The conversion error: 422 if a field of the object causes it, 500 otherwise.
    pub(in crate::admission) fn convert<'t>(
        &self,
        tree: &'t Tree,
        version: &str,
    ) -> Result<Cow<'t, Tree>, AdmissionError> {
        let kind = &self.served.kind;
        kind.convert_tree(tree, &kind.api_version(version)).map_err(|why| {
            AdmissionError::answer(kind.refuse_sent(metadata::name(tree), version, why))
        })
    }

    /// Converts the stored object to another version.
    ///
    /// # Errors
    /// 500 if the object cannot be converted, because the request has not sent it.
    pub(in crate::admission) fn convert_old<'t>(
        &self,
        tree: &'t Tree,
        version: &str,
    ) -> Result<Cow<'t, Tree>, AdmissionError> {
        let kind = &self.served.kind;
        kind.convert_tree(tree, &kind.api_version(version)).map_err(|why| {
            let why = why.to_string();
            AdmissionError::answer(kind.unconvertible(metadata::name(tree), version, why).into())
        })
    }
}
