//! Reads objects from files: YAML or JSON, with several documents per file.

use std::fs;
use std::path::{Path, PathBuf};

use aggregated_apiserver::encoding::yaml_documents;
use serde_json::Value;

/// The largest size of a file, in bytes.
const FILE_LIMIT: u64 = 64 << 20;
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// An object, and its position in a file.
#[derive(Clone, Debug)]
pub(crate) struct LoadedObject {
    /// The position for messages: `farm.yaml, document 2`.
    pub place: String,
    /// The object.
    pub object: Value,
}

/// Reads the objects in a file, or in the YAML and JSON files directly in a directory, in the order of the file names.
///
/// # Errors
/// The reason for which a file cannot be read, with the file, and the line or the document.
pub(crate) fn read(path: &Path) -> Result<Vec<LoadedObject>, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    if !fs::metadata(path).map_err(fault)?.is_dir() {
        return read_file(path);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(fault)? {
        let file = entry.map_err(fault)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            files.push(file);
        }
    }
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

fn read_file(file: &Path) -> Result<Vec<LoadedObject>, String> {
    let fault = |error: String| format!("{}: {error}", file.display());
    let size = fs::metadata(file).map_err(|error| fault(error.to_string()))?.len();
    if size > FILE_LIMIT {
        return Err(fault(format!("must not be larger than {FILE_LIMIT} bytes")));
    }
    let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
    let documents = yaml_documents(&text).map_err(fault)?;
    let mut found = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let place = format!("{}, document {}", file.display(), index + 1);
        match document {
            Value::Null => {}
            Value::Object(list) if list.get("kind").is_some_and(|kind| kind == "List") => {
                let items = list.get("items").and_then(Value::as_array).cloned();
                for (at, object) in items.unwrap_or_default().into_iter().enumerate() {
                    found.push(LoadedObject { place: format!("{place}, item {at}"), object });
                }
            }
            object @ Value::Object(_) => found.push(LoadedObject { place, object }),
            _ => return Err(format!("{place}: must be an object")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_files_are_read_in_name_order_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        file("b.yaml", "# nothing\n---\nkind: A\n---\n---\nkind: B\n");
        file("a.json", "{\"kind\": \"List\", \"items\": [{\"kind\": \"C\"}]}");
        file("c.txt", "not read");
        let found = read(folder.path()).unwrap();
        let kinds: Vec<&str> = found.iter().filter_map(|one| one.object["kind"].as_str()).collect();
        assert_eq!(kinds, ["C", "A", "B"]);
        assert!(found[2].place.ends_with("b.yaml, document 3"), "{}", found[2].place);
        let error = read(&file("bad.yaml", "a: [\n")).unwrap_err();
        assert!(error.contains("bad.yaml: ") && error.contains("line"), "{error}");
        let error = read(&file("list.yaml", "- a\n")).unwrap_err();
        assert!(error.ends_with("list.yaml, document 1: must be an object"), "{error}");
        assert!(read(&folder.path().join("none")).unwrap_err().contains("none: "));
    }
}
