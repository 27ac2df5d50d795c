//! Serves the commands and ports of a "Pod" over HTTP.
//!
//! ```console
//! $ cargo run -p kubernetes-streams --example pod
//! listening on http://127.0.0.1:40123
//! $ websocat -b --protocol v5.channel.k8s.io 'ws://127.0.0.1:40123/exec?command=echo&command=hello&stdout=1'
//! ```

mod server;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let (listener, address) = server::listen().await?;
    println!("listening on http://{address}");
    server::run(listener).await
}
