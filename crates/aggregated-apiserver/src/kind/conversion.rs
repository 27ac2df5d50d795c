//! Between what is kept and what is shown. Where code converts, it makes the object of the other
//! version; otherwise that is another `apiVersion`, the strategy `None` of a definition. What a version
//! does not know is dropped.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::null_members::drop_null_members;
use super::{ErasedConversion, Kind, Unconvertible, Version, WebhookConversion};
use crate::error::{ApiError, Reason, quote};
use crate::object::extent::{DEPTH_LIMIT, Extent};
use crate::object::{Object, ObjectError, Shape, Tree};
use crate::schema::{coerce, fill_defaults, normalize_without_defaults, prune};

/// An object that is kept, but cannot be shown in a version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ConversionError(String);

/// What converts objects.
#[derive(Clone, Debug)]
pub(super) enum Converter {
    /// Code of this process.
    Code(Arc<ErasedConversion>),
    /// A webhook, which was asked before.
    Webhook(Arc<WebhookConversion>),
}

impl Converter {
    /// Makes of an object of one version one of another; both are named as `v1alpha`, and `api_version` is what
    /// the object says then.
    fn convert(
        &self,
        tree: Tree,
        versions: (&str, &str),
        api_version: String,
    ) -> Result<Tree, Unconvertible> {
        match self {
            Self::Code(code) => code.convert(tree, versions, api_version),
            Self::Webhook(webhook) => Ok(webhook.convert(tree, api_version)?),
        }
    }
}

/// 500 without a reason, as kube-apiserver answers where a webhook fails.
impl From<ConversionError> for ApiError {
    fn from(error: ConversionError) -> Self {
        Self::new(Reason::Unknown, error.to_string())
    }
}

impl Kind {
    /// Whether its definition may be followed by another one.
    pub fn may_change(&self) -> bool {
        self.shape != Shape::default()
    }

    /// Whether an object was written when the kind was as it is now.
    pub fn is_current(&self, object: &Object) -> bool {
        object.shape() == self.shape
    }

    /// Whether an object is shown in this version as it is kept.
    pub fn is_shown_as_kept(&self, object: &Object, version: &Version) -> bool {
        self.view.is_none() && version.name == self.storage.name && self.is_current(object)
    }

    /// An object that is kept, in this version. In the stored version it is made once, if
    /// the definition has changed since it was written; in another one it is made anew: see
    /// [`in_version_shared`](Self::in_version_shared).
    ///
    /// # Errors
    /// When what the conversion makes of it is no object.
    pub fn in_version(
        &self,
        object: &Arc<Object>,
        version: &Version,
    ) -> Result<Arc<Object>, ConversionError> {
        if self.is_shown_as_kept(object, version) {
            return Ok(Arc::clone(object));
        }
        let fault = |why| self.cannot_convert(object, &version.name, why);
        if let Some(view) = &self.view {
            let seen = self.seen(object, view.from_stored, &self.group, &version.name);
            let seen = seen.and_then(|seen| seen.still_is(object));
            return seen.map(Arc::new).map_err(fault);
        }
        // A webhook may convert otherwise the next time.
        let asks = self.is_converted_by_webhook()
            && object.api_version() != self.api_version(&self.storage.name);
        match version.name == self.storage.name && !asks {
            true => object.shown(self.shape, || self.converted(object, version)).map_err(fault),
            false => self.converted(object, version).map(Arc::new).map_err(fault),
        }
    }

    /// Whether code, of this process or of a webhook, makes objects of one version those of another.
    pub fn is_converted_by_code(&self) -> bool {
        self.conversion.is_some()
    }

    /// Whether a webhook does: then steps that convert are attempted, until it has answered all they ask.
    pub fn is_converted_by_webhook(&self) -> bool {
        matches!(self.conversion, Some(Converter::Webhook(_)))
    }

    /// An object for those who look at its metadata alone, as this version shows them; as it is kept, if it
    /// cannot be converted.
    pub fn with_metadata_in_version(
        &self,
        object: &Arc<Object>,
        version: &Arc<Version>,
    ) -> Arc<Object> {
        match self.is_converted_by_code() {
            true => self.in_version_shared(object, version).unwrap_or_else(|_| Arc::clone(object)),
            // Nothing else changes metadata.
            false => Arc::clone(object),
        }
    }

    /// An object of one version as one of another, as `example.com/v1`, on its way through a write: as it
    /// is, if no code converts.
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub fn convert_tree<'a>(
        &self,
        tree: &'a Tree,
        api_version: &str,
    ) -> Result<Cow<'a, Tree>, Unconvertible> {
        let said = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(conversion) = &self.conversion else { return Ok(Cow::Borrowed(tree)) };
        if said == api_version {
            return Ok(Cow::Borrowed(tree));
        }
        let is_type = |name: &String| matches!(name.as_str(), "apiVersion" | "kind");
        if tree.keys().all(is_type) {
            // Of nothing becomes nothing, as in kube-apiserver.
            let mut tree = tree.clone();
            tree.insert("apiVersion".to_owned(), api_version.into());
            return Ok(Cow::Owned(tree));
        }
        let versions = (version_name(said), version_name(api_version));
        let mut converted = conversion.convert(tree.clone(), versions, api_version.to_owned())?;
        if let Some(version) = self.version_of(&converted)
            && matches!(conversion, Converter::Code(_))
        {
            drop_null_members(version.schema.root(), &mut converted);
        }
        Ok(Cow::Owned(converted))
    }

    /// Whether an object is kept in a version that its kind has, served or not; or says of none.
    pub fn knows_version_of(&self, object: &Object) -> bool {
        let version = object.api_version();
        let mut known = self.all_versions().chain([&self.storage]);
        version.is_empty() || known.any(|known| self.is_api_version(&version, &known.name))
    }

    /// An object as it would be kept if it was written now; as it is, if it cannot be
    /// converted. For what only concerns its metadata: a deletion must not depend on a
    /// conversion.
    pub fn in_storage_version(&self, object: &Arc<Object>) -> Arc<Object> {
        self.to_storage_version(object).unwrap_or_else(|_| Arc::clone(object))
    }

    /// The same.
    ///
    /// # Errors
    /// Why it cannot be converted.
    pub fn to_storage_version(&self, object: &Arc<Object>) -> Result<Arc<Object>, ConversionError> {
        match self.view {
            Some(_) => Ok(Arc::clone(object)),
            None => self.in_version(object, &self.storage),
        }
    }

    /// An object in this version; one that cannot be converted as it is kept, under the version's
    /// name, for those who look at its metadata; without what is said of its managers.
    pub fn in_version_or_as_kept(&self, object: &Arc<Object>, version: &Version) -> Tree {
        if let Ok(shown) = self.in_version(object, version) {
            return shown.to_parts().0;
        }
        let (mut tree, _) = object.to_parts();
        tree.insert("apiVersion".to_owned(), self.api_version(&version.name).into());
        tree
    }

    fn cannot_convert(&self, object: &Object, version: &str, why: ObjectError) -> ConversionError {
        self.unconvertible(object.key().name(), version, why.to_string())
    }

    /// What is answered for an object that was sent and cannot be converted to a version: 422 if the fault
    /// is one of its fields, 500 otherwise.
    pub fn refuse_sent(&self, name: &str, version: &str, why: Unconvertible) -> ApiError {
        match why.into_fault() {
            Ok(fault) => ApiError::invalid(&self.group, &self.names.kind, name, vec![fault]),
            Err(why) => self.unconvertible(name, version, why).into(),
        }
    }

    /// What is said of an object of this name that cannot be converted to a version.
    pub fn unconvertible(&self, name: &str, version: &str, why: String) -> ConversionError {
        if self.is_converted_by_webhook() && why.starts_with("conversion webhook for ") {
            return ConversionError(why);
        }
        let (resource, version) = (self.qualified(), self.api_version(version));
        let name = quote(name);
        ConversionError(format!("{resource} {name} cannot be converted to {version}: {why}"))
    }

    fn converted(&self, object: &Object, version: &Version) -> Result<Object, ObjectError> {
        match self.converted_directly(object, version) {
            Some(converted) => Ok(converted),
            None => self.converted_by_tree(object, version),
        }
    }

    /// As kube-apiserver reads an object: what the version in which it is kept has defaults
    /// for is filled in, and what the version that is read does not know is dropped. What
    /// that one has defaults for is filled in when it is written.
    pub(crate) fn converted_by_tree(
        &self,
        object: &Object,
        version: &Version,
    ) -> Result<Object, ObjectError> {
        let (mut tree, managed_fields) = object.to_parts();
        let kept_in = self.version_of(&tree);
        if kept_in.is_none() && !self.knows_version_of(object) {
            let version = object.api_version();
            // A guess would be shown, and be kept by the next write.
            return Err(ObjectError::new(format!(
                "request to convert CR from an invalid group/version: {version}"
            )));
        }
        let of = version.schema.root();
        if of.go.is_some() {
            self.convert(&mut tree, version).map_err(of_object)?;
            // It was of its types before.
            let _ = coerce(of, &mut tree);
            return Object::from_parts(&tree, &managed_fields);
        }
        if !self.is_current(object) {
            let kept_in = kept_in.unwrap_or(&self.storage).schema.root();
            if self.is_converted_by_code() {
                prune(kept_in, &mut tree);
            }
            fill_defaults(kept_in, &mut tree);
        }
        self.convert(&mut tree, version).map_err(of_object)?;
        prune(of, &mut tree);
        if self.is_converted_by_code() {
            check_depth(&tree)?;
        }
        Object::from_parts(&tree, &managed_fields)
    }

    /// An object of any version as it is kept.
    ///
    /// # Errors
    /// When code cannot convert it.
    pub fn to_storage(&self, object: Object, version: &Version) -> Result<Object, ObjectError> {
        if let Some(view) = &self.view {
            return self.seen(&object, view.to_stored, view.group, view.version);
        }
        if version.name == self.storage.name {
            return Ok(object.of_shape(self.shape));
        }
        let (tree, managed_fields) = object.to_parts();
        let (tree, shape) = self.tree_to_storage(&tree, version).map_err(of_object)?;
        check_depth(&tree)?;
        Ok(Object::from_parts(&tree, &managed_fields)?.of_shape(shape))
    }

    /// The tree of an object of any version as it is kept, whatever its extent, and what is remembered with it. As in
    /// kube-apiserver, the defaults of the kept version are those that it has when the object is read: an object
    /// without them is none of the shape that the kind has now.
    ///
    /// # Errors
    /// When code cannot convert it.
    pub fn tree_to_storage<'a>(
        &self,
        tree: &'a Tree,
        version: &Version,
    ) -> Result<(Cow<'a, Tree>, Shape), Unconvertible> {
        if version.name == self.storage.name {
            return Ok((Cow::Borrowed(tree), self.shape));
        }
        let mut tree = tree.clone();
        self.convert(&mut tree, &self.storage)?;
        let of = self.storage.schema.root();
        if of.go.is_some() {
            // It was of its types before.
            let _ = coerce(of, &mut tree);
            return Ok((Cow::Owned(tree), self.shape));
        }
        // Nothing is refused: the other version did not ask for more.
        normalize_without_defaults(of, &mut tree);
        if !of.subtree.defaults {
            return Ok((Cow::Owned(tree), self.shape));
        }
        let mut whole = tree.clone();
        fill_defaults(of, &mut whole);
        Ok(match self.may_change() {
            true if whole != tree => (Cow::Owned(tree), Shape::of_another_server()),
            _ => (Cow::Owned(whole), self.shape),
        })
    }

    /// An object in the form of another kind of the same name.
    fn seen(
        &self,
        object: &Object,
        form: fn(Tree) -> Tree,
        group: &str,
        version: &str,
    ) -> Result<Object, ObjectError> {
        let (tree, managed_fields) = object.to_parts();
        let mut tree = form(tree);
        tree.insert("apiVersion".to_owned(), super::api_version(group, version).into());
        let types = self.storage.schema.types();
        if let Some(id) = types.kind(group, version, &self.names.kind) {
            // It was of its types before.
            let _ = coerce(types.get(id), &mut tree);
        }
        Object::from_parts(&tree, &managed_fields)
    }

    /// Makes an object of any version one of this version. By the strategy `None` nothing but its
    /// `apiVersion` changes. An object that says of no version is one of the kept version.
    fn convert(&self, tree: &mut Tree, version: &Version) -> Result<(), Unconvertible> {
        let from = self.version_of(tree).unwrap_or(&self.storage);
        let api_version = self.api_version(&version.name);
        match &self.conversion {
            Some(conversion) if from.name != version.name => {
                let versions = (from.name.as_str(), version.name.as_str());
                let converted = conversion.convert(std::mem::take(tree), versions, api_version);
                *tree = converted?;
                // What a webhook answers as null is one.
                if matches!(conversion, Converter::Code(_)) {
                    drop_null_members(version.schema.root(), tree);
                }
            }
            _ => drop(tree.insert("apiVersion".to_owned(), api_version.into())),
        }
        Ok(())
    }

    /// The version that an object is of, if it is known.
    pub fn version_of(&self, tree: &Tree) -> Option<&Arc<Version>> {
        let said = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let name = version_name(said);
        self.all_versions().chain([&self.storage]).find(|version| version.name == name)
    }
}

/// The same fault of an object that is kept: nothing that the client has sent.
fn of_object(why: Unconvertible) -> ObjectError {
    ObjectError::new(why.to_string())
}

/// Refuses what could be written, and not be read again.
fn check_depth(tree: &Tree) -> Result<(), ObjectError> {
    match Extent::is_too_deep(tree) {
        true => Err(ObjectError::new(format!("an object nests at most {DEPTH_LIMIT} levels deep"))),
        false => Ok(()),
    }
}

/// The `v1` of `example.com/v1`.
fn version_name(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
