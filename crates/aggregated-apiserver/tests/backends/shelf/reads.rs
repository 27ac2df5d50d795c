//! The reads of a direct kind.

use aggregated_apiserver::backend::{BackendError, Item, Poll, Read, ReadContext, Watch};
use kube::ResourceExt;

use super::{Book, Shelf};

impl Read for Shelf {
    async fn get(
        &self,
        context: &ReadContext,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Book>, BackendError> {
        self.note_read("get", context);
        let fault = self.state.lock().unwrap().faults_of_reads.pop();
        self.act(fault).await?;
        Ok(Watch::get(self, namespace, name).await?.map(|item| self.shown(item)))
    }

    async fn list(
        &self,
        context: &ReadContext,
        namespace: Option<&str>,
    ) -> Result<Vec<Book>, BackendError> {
        self.note_read("list", context);
        let listing = Poll::list(self).await?;
        let books = listing.items.into_iter().map(|item| self.shown(item));
        Ok(books
            .filter(|book| namespace.is_none_or(|one| book.namespace().as_deref() == Some(one)))
            .collect())
    }
}

impl Shelf {
    fn shown(&self, Item { mut object, etag, .. }: Item<Book>) -> Book {
        object.metadata.resource_version = etag.filter(|_| self.state.lock().unwrap().shows_etags);
        object
    }

    fn note_read(&self, verb: &str, context: &ReadContext) {
        self.state.lock().unwrap().calls.push(format!("{verb} as {}", context.user.name));
    }
}
