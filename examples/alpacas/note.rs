//! Notes are files, which other programs change, too.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Delete, Item, Listing, Poll, VirtualKind, WriteContext,
};
use kube::{CustomResource, CustomResourceExt, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

/// A note: the file `NAME.txt`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(group = "farm.example.com", version = "v1", kind = "Note")]
#[kube(printcolumn(name = "Text", type_ = "string", json_path = ".spec.text"))]
pub struct NoteSpec {
    /// The content of the file.
    pub text: String,
}

/// The kind whose objects are the files of this directory.
pub fn kind(directory: PathBuf) -> VirtualKind<Notes> {
    let notes = Arc::new(Notes(directory));
    VirtualKind::polled(Note::crd(), notes, Duration::from_millis(500)).create().delete()
}

/// The directory.
pub struct Notes(PathBuf);

impl Notes {
    /// The path of a note. The server has checked that the name contains no `/`.
    fn path(&self, note: &Note) -> PathBuf {
        self.0.join(note.name_any() + ".txt")
    }
}

impl Backend for Notes {
    type Object = Note;
}

impl Poll for Notes {
    async fn list(&self) -> Result<Listing<Note>, BackendError> {
        let mut notes = Vec::new();
        let mut files = fs::read_dir(&self.0).await.map_err(BackendError::internal_from)?;
        while let Some(file) = files.next_entry().await.map_err(BackendError::internal_from)? {
            let file_name = file.file_name();
            if let Some(name) = file_name.to_str().and_then(|name| name.strip_suffix(".txt")) {
                let text = match fs::read(file.path()).await {
                    Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    // Another program has just deleted the file.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(BackendError::internal_from(error)),
                };
                notes.push(Item::new(Note::new(name, NoteSpec { text })));
            }
        }
        Ok(Listing::complete(notes))
    }
}

impl Create for Notes {
    async fn create(&self, _: &WriteContext, note: Note) -> Result<Item<Note>, BackendError> {
        let mut file = File::create_new(self.path(&note)).await.map_err(error)?;
        file.write_all(note.spec.text.as_bytes()).await.map_err(error)?;
        file.flush().await.map_err(error)?;
        Ok(Item::new(note))
    }
}

impl Delete for Notes {
    async fn delete(&self, _: &WriteContext, note: Item<Note>) -> Result<(), BackendError> {
        fs::remove_file(self.path(&note.object)).await.map_err(error)
    }
}

/// The error that clients receive: 409, 404, or 500 without the message, which is logged.
fn error(error: io::Error) -> BackendError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => BackendError::AlreadyExists,
        io::ErrorKind::NotFound => BackendError::NotFound,
        _ => BackendError::internal_from(error),
    }
}
