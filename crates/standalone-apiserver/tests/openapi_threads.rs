//! Requests for OpenAPI documents that time out leave no threads behind that build the documents once more.

#![allow(clippy::unwrap_used)] // all of it is a test

use futures::future::join_all;
use http::Request;
use standalone_apiserver::TestServer;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_requests_that_time_out_do_not_start_more_threads() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let before = threads();
    for _ in 0..15 {
        let asked = (0..10).map(|_| {
            let request = Request::get("/openapi/v2?timeout=3ms").body(Vec::new()).unwrap();
            client.request_text(request)
        });
        join_all(asked).await;
        let now = threads();
        assert!(now < before + 10, "{now} threads, {before} before");
    }
}
