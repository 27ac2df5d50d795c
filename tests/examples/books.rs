//! books: each added or deleted Book is reported once.

use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tokio::time::timeout;

use crate::library::{Book, BookSpec, Change, changes};
use crate::world::{Cluster, PATIENCE, Program, block_on_without_pauses, delete, eventually};

fn book(name: &str, title: &str) -> Book {
    Book::new(name, BookSpec { title: title.to_owned(), authors: Vec::new() })
}

async fn create(books: &Api<Book>, name: &str, title: &str) -> Result<()> {
    eventually(async || {
        // An established definition may not yet be served by this server.
        books.create(&PostParams::default(), &book(name, title)).await?;
        Ok(())
    })
    .await
}

/// Waits until a program has printed this number of changes. Returns all of them.
async fn told(program: &Program, count: usize) -> Result<Vec<String>> {
    eventually(async || {
        let added = program.lines("Added a book ").into_iter().map(|line| format!("+{line}"));
        let deleted = program.lines("Deleted a book ").into_iter().map(|line| format!("-{line}"));
        let told: Vec<String> = added.chain(deleted).collect();
        ensure!(told.len() >= count, "{told:?}");
        Ok(told)
    })
    .await
}

/// Two instances define the kind at the same time, and both report everything.
pub async fn come_and_go(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    if definitions.get_opt(Book::crd_name()).await?.is_some() {
        delete(&definitions, Book::crd_name()).await?;
    }
    let first = Program::example("books", &cluster.kubeconfig, &[])?;
    let second = Program::example("books", &cluster.kubeconfig, &[])?;
    eventually(async || Ok(definitions.get(Book::crd_name()).await.map(drop)?)).await?;
    let established = await_condition(definitions, Book::crd_name(), is_crd_established());
    timeout(PATIENCE, established).await??;

    let books: Api<Book> = Api::default_namespaced(cluster.client.clone());
    create(&books, "moby-dick", "Moby Dick").await?;
    told(&first, 1).await?;
    told(&second, 1).await?;
    // A change of the title is neither an addition nor a deletion.
    let title = Patch::Merge(json!({"spec": {"title": "The Whale"}}));
    books.patch("moby-dick", &PatchParams::default(), &title).await?;
    delete(&books, "moby-dick").await?;
    create(&books, "emma", "Emma").await?;
    for (program, signal) in [(first, "INT"), (second, "TERM")] {
        let told = told(&program, 3).await?;
        let expected =
            ["+moby-dick with title 'Moby Dick'", "+emma with title 'Emma'", "-moby-dick"];
        ensure!(told == expected, "{told:?}");
        program.end(signal).await?;
    }
    delete(&books, "emma").await
}

/// An existing definition gets the current schema, and its objects remain.
pub async fn had_another_definition(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    if definitions.get_opt(Book::crd_name()).await?.is_some() {
        delete(&definitions, Book::crd_name()).await?;
    }
    let mut older: Value = serde_json::to_value(Book::crd())?;
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    older["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything;
    definitions.create(&PostParams::default(), &serde_json::from_value(older)?).await?;
    let established = await_condition(definitions.clone(), Book::crd_name(), is_crd_established());
    timeout(PATIENCE, established).await??;
    let books: Api<Book> = Api::default_namespaced(cluster.client.clone());
    create(&books, "walden", "Walden").await?;

    let program = Program::example("books", &cluster.kubeconfig, &[])?;
    ensure!(told(&program, 1).await? == ["+walden with title 'Walden'"]);
    let definition = serde_json::to_value(definitions.get(Book::crd_name()).await?.spec)?;
    let schema = &definition["versions"][0]["schema"]["openAPIV3Schema"];
    ensure!(schema["properties"]["spec"]["required"] == json!(["title"]), "{schema}");
    program.end("TERM").await?;
    delete(&books, "walden").await
}

async fn next(changes: &mut (impl Stream<Item = Change> + Unpin)) -> Result<Change> {
    timeout(PATIENCE, changes.next()).await?.context("the changes have ended")
}

fn added(name: &str) -> Change {
    Change::Added { name: name.to_owned(), title: name.to_uppercase() }
}

fn deleted(name: &str) -> Change {
    Change::Deleted { name: name.to_owned() }
}

pub fn survive_faults() -> Result<()> {
    block_on_without_pauses(async {
        let server = TestServer::builder().crd(Book::crd());
        let server = server.objects([book("a", "A"), book("b", "B")]).start().await?;
        let books: Api<Book> = Api::default_namespaced(server.client());
        let mut changes = pin!(changes(books.clone()));
        let mut first = [next(&mut changes).await?, next(&mut changes).await?];
        first.sort_by_key(ToString::to_string);
        ensure!(first == [added("a"), added("b")], "{first:?}");

        // While the watch is interrupted, one book is deleted, one is added, and one is replaced by another of the same
        // name.
        for expires in [true, false] {
            match expires {
                true => server.faults().expire_watches(),
                false => server.faults().break_watches(),
            }
            let before = books.get("b").await?.uid();
            for name in ["a", "b"] {
                books.delete(name, &DeleteParams::default()).await?;
            }
            for name in ["b", "c"] {
                books.create(&PostParams::default(), &book(name, &name.to_uppercase())).await?;
            }
            ensure!(books.get("b").await?.uid() != before);
            let mut told = Vec::new();
            while told.len() < 4 {
                told.push(next(&mut changes).await?);
            }
            let position = |change: &Change| told.iter().position(|one| one == change);
            let all = [deleted("a"), deleted("b"), added("b"), added("c")];
            ensure!(all.iter().all(|change| position(change).is_some()), "{told:?}");
            ensure!(position(&deleted("b")) < position(&added("b")), "{told:?}");

            // No other change is reported: the next line is the next change.
            books.delete("c", &DeleteParams::default()).await?;
            ensure!(next(&mut changes).await? == deleted("c"));
            books.create(&PostParams::default(), &book("a", "A")).await?;
            ensure!(next(&mut changes).await? == added("a"));
        }
        // Failed requests are retried.
        server.faults().expire_watches();
        server.faults().refuse(3, http::StatusCode::INTERNAL_SERVER_ERROR);
        ensure!(timeout(PATIENCE / 2, changes.next()).await.is_err(), "nothing has changed");
        books.create(&PostParams::default(), &book("d", "D")).await?;
        ensure!(next(&mut changes).await? == added("d"));
        Ok(())
    })
}
