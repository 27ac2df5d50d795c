//! The handlers of a subresource, by method.

use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;

/// A handler without its type.
pub(super) type BoxedHandler = Arc<dyn Fn(Request) -> BoxFuture<'static, Response> + Send + Sync>;

/// The handlers of a subresource, by method.
#[derive(Default)]
pub(super) struct Handlers(Vec<(Method, BoxedHandler)>);

impl Handlers {
    /// Sets the handler of these methods.
    pub fn add<H: Handler<T, ()>, T: 'static>(&mut self, methods: &[Method], handler: H) {
        let handler: BoxedHandler =
            Arc::new(move |request| handler.clone().call(request, ()).boxed());
        for method in methods {
            self.0.retain(|(other, _)| other != method);
            self.0.push((method.clone(), Arc::clone(&handler)));
        }
    }

    /// The methods that have handlers.
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.0.iter().map(|(method, _)| method)
    }

    /// The handler of a method. HEAD has the handler of GET.
    pub fn find(&self, method: &Method) -> Option<&BoxedHandler> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().find(|(one, _)| one == method).map(|(_, handler)| handler)
    }
}
