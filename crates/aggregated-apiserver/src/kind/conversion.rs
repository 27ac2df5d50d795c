//! Conversion between the storage version and other versions. If the kind has conversion code, the code creates the
//! object of the other version. Otherwise only `apiVersion` changes, as with the strategy `None` of a definition.
//! Fields that a version does not have are dropped.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::null_fields::drop_null_fields;
use super::{ErasedConversion, Kind, Unconvertible, Version, WebhookConversion};
use crate::error::{ApiError, Reason, quote};
use crate::object::extent::{DEPTH_LIMIT, Extent};
use crate::object::{Object, ObjectError, Shape, Tree};
use crate::schema::{coerce, fill_defaults, normalize_without_defaults, prune};

/// A stored object that cannot be converted to a version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UnconvertibleError(String);

/// The converter of a kind.
#[derive(Clone, Debug)]
pub(super) enum Converter {
    /// Code in this process.
    Code(Arc<ErasedConversion>),
    /// A webhook, which must have been called before.
    Webhook(Arc<WebhookConversion>),
}

impl Converter {
    /// Converts an object between two versions, named like `v1alpha`. The result has this `api_version`.
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

/// 500 without a reason, same as kube-apiserver if a webhook fails.
impl From<UnconvertibleError> for ApiError {
    fn from(error: UnconvertibleError) -> Self {
        Self::new(Reason::Unknown, error.to_string())
    }
}

impl Kind {
    /// Whether the definition can be replaced.
    pub fn may_change(&self) -> bool {
        self.shape != Shape::default()
    }

    /// Whether an object was written under the current definition of the kind.
    pub fn is_current(&self, object: &Object) -> bool {
        object.shape() == self.shape
    }

    /// Whether an object needs no conversion in this version.
    pub fn is_shown_as_kept(&self, object: &Object, version: &Version) -> bool {
        self.view.is_none() && version.name == self.storage.name && self.is_current(object)
    }

    /// Returns a stored object in this version. In the storage version the conversion runs once, if the definition has
    /// changed since the object was written. In any other version it runs for each call: see
    /// [`in_version_shared`](Self::in_version_shared).
    ///
    /// # Errors
    /// If the result of the conversion is not a valid object.
    pub fn in_version(
        &self,
        object: &Arc<Object>,
        version: &Version,
    ) -> Result<Arc<Object>, UnconvertibleError> {
        if self.is_shown_as_kept(object, version) {
            return Ok(Arc::clone(object));
        }
        let fault = |why| self.cannot_convert(object, &version.name, why);
        if let Some(view) = &self.view {
            let seen = self.seen(object, view.from_stored, &self.group, &version.name);
            let seen = seen.and_then(|seen| seen.still_is(object));
            return seen.map(Arc::new).map_err(fault);
        }
        // A webhook may return another result the next time.
        let asks = self.is_converted_by_webhook()
            && object.api_version() != self.api_version(&self.storage.name);
        match version.name == self.storage.name && !asks {
            true => object.shown(self.shape, || self.converted(object, version)).map_err(fault),
            false => self.converted(object, version).map(Arc::new).map_err(fault),
        }
    }

    /// Whether code or a webhook converts objects between versions.
    pub fn is_converted_by_code(&self) -> bool {
        self.conversion.is_some()
    }

    /// Whether a webhook converts objects. Steps that convert are then attempted until the webhook has answered all
    /// their questions.
    pub fn is_converted_by_webhook(&self) -> bool {
        matches!(self.conversion, Some(Converter::Webhook(_)))
    }

    /// Returns an object of which only metadata is used, with the metadata of this version. If the object cannot be
    /// converted, it is returned as stored.
    pub fn with_metadata_in_version(
        &self,
        object: &Arc<Object>,
        version: &Arc<Version>,
    ) -> Arc<Object> {
        match self.is_converted_by_code() {
            true => self.in_version_shared(object, version).unwrap_or_else(|_| Arc::clone(object)),
            // No other conversion changes metadata.
            false => Arc::clone(object),
        }
    }

    /// Converts an object to another version, such as `example.com/v1`, during a write. Without conversion code the
    /// object is returned unchanged.
    ///
    /// # Errors
    /// The reason why the object cannot be converted.
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
            // An object without any content is not converted, same as in kube-apiserver.
            let mut tree = tree.clone();
            tree.insert("apiVersion".to_owned(), api_version.into());
            return Ok(Cow::Owned(tree));
        }
        let versions = (version_name(said), version_name(api_version));
        let mut converted = conversion.convert(tree.clone(), versions, api_version.to_owned())?;
        if let Some(version) = self.version_of(&converted)
            && matches!(conversion, Converter::Code(_))
        {
            drop_null_fields(version.schema.root(), &mut converted);
        }
        Ok(Cow::Owned(converted))
    }

    /// Whether the version of a stored object is one of the kind's versions, served or not. True for an object without
    /// version.
    pub fn knows_version_of(&self, object: &Object) -> bool {
        let version = object.api_version();
        let mut known = self.all_versions().chain([&self.storage]);
        version.is_empty() || known.any(|known| self.is_api_version(&version, &known.name))
    }

    /// Returns an object as it would be stored if it were written now. If it cannot be converted, it is returned
    /// unchanged. Use this if only the metadata matters: a deletion must not depend on a conversion.
    pub fn in_storage_version(&self, object: &Arc<Object>) -> Arc<Object> {
        self.to_storage_version(object).unwrap_or_else(|_| Arc::clone(object))
    }

    /// Returns an object as it would be stored if it were written now.
    ///
    /// # Errors
    /// The reason why the object cannot be converted.
    pub fn to_storage_version(
        &self,
        object: &Arc<Object>,
    ) -> Result<Arc<Object>, UnconvertibleError> {
        match self.view {
            Some(_) => Ok(Arc::clone(object)),
            None => self.in_version(object, &self.storage),
        }
    }

    /// Returns an object in this version. If it cannot be converted, it is returned as stored with the `apiVersion` of
    /// this version, for readers of its metadata. The result has no `managedFields`.
    pub fn in_version_or_as_kept(&self, object: &Arc<Object>, version: &Version) -> Tree {
        if let Ok(shown) = self.in_version(object, version) {
            return shown.to_parts().0;
        }
        let (mut tree, _) = object.to_parts();
        tree.insert("apiVersion".to_owned(), self.api_version(&version.name).into());
        tree
    }

    fn cannot_convert(
        &self,
        object: &Object,
        version: &str,
        why: ObjectError,
    ) -> UnconvertibleError {
        self.unconvertible(object.key().name(), version, why.to_string())
    }

    /// The response for a sent object that cannot be converted to a version: 422 if one of its fields is invalid, 500
    /// otherwise.
    pub fn refuse_sent(&self, name: &str, version: &str, why: Unconvertible) -> ApiError {
        match why.into_fault() {
            Ok(fault) => ApiError::invalid(&self.group, &self.names.kind, name, vec![fault]),
            Err(why) => self.unconvertible(name, version, why).into(),
        }
    }

    /// The error for an object with this name that cannot be converted to a version.
    pub fn unconvertible(&self, name: &str, version: &str, why: String) -> UnconvertibleError {
        if self.is_converted_by_webhook() && why.starts_with("conversion webhook for ") {
            return UnconvertibleError(why);
        }
        let (resource, version) = (self.qualified(), self.api_version(version));
        let name = quote(name);
        UnconvertibleError(format!("{resource} {name} cannot be converted to {version}: {why}"))
    }

    fn converted(&self, object: &Object, version: &Version) -> Result<Object, ObjectError> {
        match self.converted_directly(object, version) {
            Some(converted) => Ok(converted),
            None => self.converted_by_tree(object, version),
        }
    }

    /// Converts an object in the same way as kube-apiserver reads one. The defaults of the version in which it is
    /// stored are set, and fields that the requested version does not have are dropped. The defaults of the requested
    /// version are set when an object is written.
    pub(crate) fn converted_by_tree(
        &self,
        object: &Object,
        version: &Version,
    ) -> Result<Object, ObjectError> {
        let (mut tree, managed_fields) = object.to_parts();
        let kept_in = self.version_of(&tree);
        if kept_in.is_none() && !self.knows_version_of(object) {
            let version = object.api_version();
            // A guessed version would be served, and the next write would store it.
            return Err(ObjectError::new(format!(
                "request to convert CR from an invalid group/version: {version}"
            )));
        }
        let of = version.schema.root();
        if of.go.is_some() {
            self.convert(&mut tree, version).map_err(of_object)?;
            // The object fits its types, so this cannot fail.
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

    /// Converts an object of any version to the storage version.
    ///
    /// # Errors
    /// If code cannot convert the object.
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

    /// Converts the tree of an object of any version to the storage version, regardless of its size. Also returns the
    /// shape that is stored with it. Same as in kube-apiserver, defaults of the storage version are set when the object
    /// is read. An object without them therefore does not get the current shape of the kind.
    ///
    /// # Errors
    /// If code cannot convert the object.
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
            // The object fits its types, so this cannot fail.
            let _ = coerce(of, &mut tree);
            return Ok((Cow::Owned(tree), self.shape));
        }
        // Nothing is rejected, because the object was valid in the other version.
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

    /// Returns an object in the form of another kind with the same name.
    ///
    /// # Errors
    /// If the form does not fit the types of the other kind.
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
            coerce(types.get(id), &mut tree).map_err(ObjectError::new)?;
        }
        Object::from_parts(&tree, &managed_fields)
    }

    /// Converts an object of any version to this version. With the strategy `None` only `apiVersion` changes. An object
    /// without a version counts as one of the storage version.
    fn convert(&self, tree: &mut Tree, version: &Version) -> Result<(), Unconvertible> {
        let from = self.version_of(tree).unwrap_or(&self.storage);
        let api_version = self.api_version(&version.name);
        match &self.conversion {
            Some(conversion) if from.name != version.name => {
                let versions = (from.name.as_str(), version.name.as_str());
                let converted = conversion.convert(std::mem::take(tree), versions, api_version);
                *tree = converted?;
                // A null in the response of a webhook stays null.
                if matches!(conversion, Converter::Code(_)) {
                    drop_null_fields(version.schema.root(), tree);
                }
            }
            _ => drop(tree.insert("apiVersion".to_owned(), api_version.into())),
        }
        Ok(())
    }

    /// The version of an object, if the kind has it.
    pub fn version_of(&self, tree: &Tree) -> Option<&Arc<Version>> {
        let said = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let name = version_name(said);
        self.all_versions().chain([&self.storage]).find(|version| version.name == name)
    }
}

/// The error for a stored object, which is not caused by a field that the client has sent.
fn of_object(why: Unconvertible) -> ObjectError {
    ObjectError::new(why.to_string())
}

/// Rejects an object that could be written but not read again.
fn check_depth(tree: &Tree) -> Result<(), ObjectError> {
    match Extent::is_too_deep(tree) {
        true => Err(ObjectError::new(format!("an object nests at most {DEPTH_LIMIT} levels deep"))),
        false => Ok(()),
    }
}

/// The version of an `apiVersion`: `v1` for `example.com/v1`.
fn version_name(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
