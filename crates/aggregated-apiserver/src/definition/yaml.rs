//! CustomResourceDefinitions in YAML.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use thiserror::Error;

use crate::codec::yaml_documents;

/// An error in a YAML string of CustomResourceDefinitions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The string is not valid YAML.
    #[error("{0}")]
    Yaml(String),
    /// A document is not a valid CustomResourceDefinition.
    #[error("document {document}: {message}")]
    Document {
        /// The number of the document, from 1.
        document: usize,
        /// The error.
        message: String,
    },
    /// The string contains no document.
    #[error("contains no CustomResourceDefinition")]
    Empty,
}

/// The definitions in a text, one per document that is not empty.
pub(super) fn definitions(yaml: &str) -> Result<Vec<CustomResourceDefinition>, DefinitionError> {
    let documents = yaml_documents(yaml).map_err(DefinitionError::Yaml)?;
    let mut definitions = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        if document.is_null() {
            continue;
        }
        let fault = |message| DefinitionError::Document { document: index + 1, message };
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if (api_version, kind) != ("apiextensions.k8s.io/v1", "CustomResourceDefinition") {
            return Err(fault(format!(
                "must be a CustomResourceDefinition of apiextensions.k8s.io/v1, is {kind:?} of {api_version:?}"
            )));
        }
        definitions
            .push(serde_json::from_value(document).map_err(|error| fault(error.to_string()))?);
    }
    if definitions.is_empty() { Err(DefinitionError::Empty) } else { Ok(definitions) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOO: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

    #[test]
    fn several_documents_and_empty_ones() {
        let bar = FOO.replace("foos", "bars").replace("Foo", "Bar");
        let text = format!("# nothing\n---\n{FOO}---\n---\n{bar}");
        let found = definitions(&text).unwrap();
        let names: Vec<&str> = found.iter().map(|one| one.spec.names.plural.as_str()).collect();
        assert_eq!(names, ["foos", "bars"]);
    }

    #[test]
    fn yaml_documents_that_are_no_definitions_are_rejected() {
        let check = |text: &str, expected: &str| {
            let error = definitions(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("", "contains no CustomResourceDefinition");
        check("a: [", "1");
        check(
            &format!("{FOO}---\napiVersion: v1\nkind: Pod\n"),
            "document 2: must be a CustomResourceDefinition of apiextensions.k8s.io/v1, is \"Pod\" of \"v1\"",
        );
        check(&FOO.replace("Namespaced", "[]"), "document 1: invalid type");
        check("- a", "document 1: must be a CustomResourceDefinition");
    }
}
