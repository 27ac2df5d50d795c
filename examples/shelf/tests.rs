use std::process::{Command, Output};
use std::sync::Arc;

use aggregated_apiserver::backend::suite;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use rusqlite::Connection;
use standalone_apiserver::TestServer;

use super::kinds;
use super::table::{Book, BookSpec, Table};

/// A server of the books in a database, and a connection of another program to the same database.
struct Library {
    server: TestServer,
    other_program: Connection,
    _directory: tempfile::TempDir,
}

impl Library {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shelf.sqlite");
        let kinds = kinds(&file).unwrap();
        let other_program = Connection::open(&file).unwrap();
        let server = TestServer::builder().kinds(kinds).listen().start().await.unwrap();
        Self { server, other_program, _directory: directory }
    }

    fn books(&self, client: Client) -> Api<Book> {
        Api::default_namespaced(client)
    }

    fn sql(&self, statement: &str) {
        self.other_program.execute_batch(statement).unwrap();
    }

    fn titles(&self) -> Vec<String> {
        let mut query =
            self.other_program.prepare("SELECT title FROM books ORDER BY name").unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// Runs kubectl; `None` if there is no kubectl.
    fn kubectl(&self, arguments: &[&str]) -> Option<Output> {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(arguments).env("KUBECONFIG", self.server.kubeconfig().unwrap());
        match kubectl.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            output => Some(output.unwrap()),
        }
    }
}

/// The tests that every backend must pass.
#[tokio::test]
async fn the_table_is_a_correct_backend() {
    let directory = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicUsize::new(0);
    let open = async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(Table::open(&directory.path().join(number.to_string())).unwrap())
    };
    let book = |name: &str| {
        let mut book = Book::new(name, BookSpec { title: "Emma".to_owned(), copies: 1 });
        book.metadata.namespace = Some("default".to_owned());
        book
    };
    suite::run(open, book, |book| book.spec.copies += 1).await;
}

#[tokio::test]
async fn rows_and_objects_are_the_same() {
    let library = Library::open().await;
    let books = library.books(library.server.client());
    let spec = BookSpec { title: "Emma".to_owned(), copies: 2 };
    books.create(&PostParams::default(), &Book::new("emma", spec)).await.unwrap();
    assert_eq!(library.titles(), ["Emma"]);
    library.sql("INSERT INTO books (namespace, name, title, copies) VALUES ('default', 'ulysses', 'Ulysses', 1)");
    let is_there = |book: Option<&Book>| book.is_some();
    await_condition(books.clone(), "ulysses", is_there).await.unwrap();
    library.sql("UPDATE books SET copies = 0 WHERE name = 'emma'");
    let is_out = |book: Option<&Book>| book.is_some_and(|book| book.spec.copies == 0);
    await_condition(books.clone(), "emma", is_out).await.unwrap();
    // The old state of a row that another program has changed does not overwrite the change.
    let mut emma = books.get("emma").await.unwrap();
    library.sql("UPDATE books SET title = 'Emma, second edition' WHERE name = 'emma'");
    emma.spec.copies = 9;
    let stale = books.replace("emma", &PostParams::default(), &emma).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.code == 409));
    assert_eq!(library.titles(), ["Emma, second edition", "Ulysses"]);
    library.sql("DELETE FROM books");
    await_condition(books.clone(), "emma", |book: Option<&Book>| book.is_none()).await.unwrap();
    await_condition(books.clone(), "ulysses", |book: Option<&Book>| book.is_none()).await.unwrap();
    assert!(books.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_rows() {
    let library = Library::open().await;
    let file = library._directory.path().join("book.yaml");
    let manifest = |copies: u32| {
        let book = format!(
            "apiVersion: library.example.com/v1\nkind: Book\nmetadata: {{name: emma, labels: {{a: b}}}}\nspec: {{title: Emma, copies: {copies}}}\n"
        );
        std::fs::write(&file, book).unwrap();
    };
    manifest(1);
    let path = file.to_str().unwrap();
    // Without kubectl there is nothing to test, unless the test run requires it.
    let Some(created) = library.kubectl(&["apply", "-f", path]) else {
        assert!(std::env::var_os("REQUIRE_CONTROL_PLANE").is_none(), "there is no kubectl");
        return;
    };
    let text = |output: &[u8]| String::from_utf8(output.to_vec()).unwrap();
    let error = text(&created.stderr);
    assert_eq!(text(&created.stdout), "book.library.example.com/emma created\n", "{error}");
    let run = |arguments: &[&str]| {
        let output = library.kubectl(arguments).unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(run(&["apply", "-f", path]).0, "book.library.example.com/emma unchanged\n");
    manifest(2);
    let (diff, _) = run(&["diff", "-f", path]);
    assert!(diff.contains("+  copies: 2"), "{diff}");
    assert_eq!(run(&["apply", "-f", path]).0, "book.library.example.com/emma configured\n");
    let (applied, error) = run(&["apply", "--server-side", "--force-conflicts", "-f", path]);
    assert_eq!(applied, "book.library.example.com/emma serverside-applied\n", "{error}");
    assert_eq!(run(&["get", "books", "-l", "a=b"]).0, "NAME   TITLE   COPIES\nemma   Emma    2\n");
    assert_eq!(run(&["label", "book", "emma", "c=d"]).0, "book.library.example.com/emma labeled\n");
    let wait = run(&["wait", "book/emma", "--for=jsonpath={.spec.copies}=2", "--timeout=10s"]);
    assert_eq!(wait.0, "book.library.example.com/emma condition met\n", "{}", wait.1);
    let (deleted, _) = run(&["delete", "book", "emma"]);
    assert!(deleted.starts_with("book.library.example.com \"emma\" deleted"), "{deleted}");
    assert!(library.titles().is_empty());
    assert!(library.books(library.server.client()).get_opt("emma").await.unwrap().is_none());
}
