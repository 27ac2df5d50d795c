//! Requests that bypass kube-apiserver.

use anyhow::Result;
use http_body_util::BodyExt;
use kube::Config;
use test_cluster::Certificate;

use crate::world::{LLAMAS, World};

/// Sends a request directly to the server, with these headers and this certificate.
pub fn ask(
    world: &World,
    headers: &[(&str, &str)],
    certificate: Option<&Certificate>,
) -> Result<(u16, String)> {
    let path = |path: &std::path::Path| path.display().to_string();
    let mut config = Config::new(format!("https://localhost:{}", world.port).parse()?);
    config.accept_invalid_certs = true;
    if let Some(certificate) = certificate {
        config.auth_info.client_certificate = Some(path(&certificate.certificate));
        config.auth_info.client_key = Some(path(&certificate.key));
    }
    let mut request = http::Request::get(LLAMAS);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::empty())?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let response = kube::Client::try_from(config)?.send(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec())?))
    })
}
