//! Invalid configurations: the messages of a real kube-apiserver and of our server are equal.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use standalone_apiserver::TestServer;
use test_cluster::{Programs, unless_missing};

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

/// Invalid fields below the head of a document.
const FIELDS: &[&str] = &[
    "jwt: 5",
    "jwt: [5]",
    "jwt: [null]",
    "jwt: [{issuer: []}]",
    "jwt: [{issuer: {url: 5}}]",
    "jwt: [{issuer: {audiences: a}}]",
    "jwt: [{issuer: {audiences: [1]}}]",
    "jwt: [{claimMappings: {username: {prefix: 5}}}]",
    "anonymous: {enabled: 'yes'}",
    "JWT: []",
    "jwt: [{foo: 1}]\nbar: {b: 1}\nanonymous: {enabled: true, x: 1, conditions: [{path: /, y: 1}]}",
    "jwt: []\njwt: []",
    "anonymous: {enabled: false, conditions: [{path: /a}, {path: /b}]}",
    "jwt: [{issuer: {url: 'https://a b', audiences: [a, a, '']}}]",
    "jwt: [{issuer: {url: ':', discoveryURL: ':', audiences: [a], audienceMatchPolicy: All}}]",
    "jwt: [{issuer: {url: 'http://u:p@a?b=c#d', discoveryURL: 'http://u:p@a?b=c#d/', audiences: [a, b]}}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a], certificateAuthority: foo, egressSelectorType: foo}}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a], certificateAuthority: \"-----BEGIN CERTIFICATE-----\\nYQ==\\n-----END CERTIFICATE-----\\n\"}}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a], discoveryURL: 'https://b'}}, {issuer: {url: 'https://a', audiences: [a], discoveryURL: 'https://b'}}]",
    "jwt: [{claimValidationRules: [{}, {claim: a, expression: b}, {claim: a, message: b}, {claim: a}]}]",
    "jwt: [{claimValidationRules: [{expression: claims.a, requiredValue: x}, {expression: claims.a}, {expression: 'claims.a == 1 && foo'}]}]",
    "jwt: [{claimMappings: {username: {claim: a, expression: b}, uid: {claim: a, expression: b}, groups: {claim: g}}}]",
    "jwt: [{claimMappings: {username: {expression: 'claims.sub +', prefix: x}, groups: {expression: \"1 + 'a'\"}, uid: {expression: \"claims.sub.matches('[')\"}}}]",
    "jwt: [{claimMappings: {username: {claim: a}, extra: [{key: A, valueExpression: a}, {key: x.kubernetes.io/Foo, valueExpression: claims.a}, {key: k8s.io/a, valueExpression: claims.a}, {key: notk8s.io/a, valueExpression: claims.a}]}}]",
    "jwt: [{claimMappings: {extra: [{key: 'a.b/c d', valueExpression: ''}, {key: 'a.b/c d', valueExpression: claims.a}, {key: A_/b}, {key: ''}, {key: a/}]}}]",
    "jwt: [{claimValidationRules: [{expression: 'claims.a.all(b, true)'}, {expression: 'claims.a.b.all(b, true)'}, {expression: '[claims.a, 1].all(b, true) && {1: claims.a, 2: 3}.all(b, true)'}]}]",
    "jwt: [{userValidationRules: [{}, {expression: 'user.foo == 1'}, {expression: 'user.foo == 1'}, {expression: user == 5}, {expression: claims.a}, {expression: user.extra}]}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a]}, claimMappings: {username: {expression: claims.email}}}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a]}, claimMappings: {username: {expression: 'claims[\"email\"] + claims.?email.orValue(\"\")'}}}]",
    "jwt: [{issuer: {url: 'https://kubernetes.default.svc', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]",
    "jwt: [{issuer: {url: 'https://a', audiences: [a], egressSelectorType: cluster}, claimMappings: {username: {claim: sub, prefix: ''}}}]",
];

/// Invalid documents.
const DOCUMENTS: &[&str] = &[
    "",
    "\n",
    "apiVersion: apiserver.config.k8s.io/v1\n",
    "kind: AuthenticationConfiguration\n",
    "apiVersion: apiserver.config.k8s.io/v1\nkind: Foo\n",
    "apiVersion: apiserver.config.k8s.io/v7\nkind: AuthenticationConfiguration\n",
    "apiVersion: v1\nkind: Pod\n",
    "a: [\n",
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: {}\n",
    "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: AuthenticationConfiguration\njwt: [{}]\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_invalid_configurations_equal_those_of_kube_apiserver() -> Result<()> {
    let Some(programs) = unless_missing(Programs::find())? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(folder.path().join("key"), key.serialize_pem())?;
    std::fs::write(folder.path().join("key.pub"), key.public_key_pem())?;
    let authenticators: String = (0..65)
        .map(|index| format!("- issuer: {{url: https://a{index}, audiences: [a]}}\n"))
        .collect();
    let fields = FIELDS.iter().map(|fields| format!("{HEAD}{fields}\n"));
    let documents = fields.chain(DOCUMENTS.iter().map(ToString::to_string));
    let mut differences = Vec::new();
    for document in documents.chain([format!("{HEAD}jwt:\n{authenticators}")]) {
        let expected = message_of_kube_apiserver(&programs, folder.path(), &document)
            .with_context(|| document.clone())?;
        let server = TestServer::builder().authentication_config(document.as_str());
        let found = match Box::pin(server.start()).await {
            Ok(_) => "it starts".to_owned(),
            Err(error) => error.to_string(),
        };
        if expected != found {
            differences.push(format!("{document}\n  kube-apiserver: {expected}\n  ours: {found}"));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
    Ok(())
}

/// Starts kube-apiserver, which checks its configuration before it uses etcd, and returns its error.
fn message_of_kube_apiserver(
    programs: &Programs,
    folder: &std::path::Path,
    document: &str,
) -> Result<String> {
    let file = folder.join("authentication.yaml");
    std::fs::write(&file, document)?;
    let key = folder.join("key");
    let output = Command::new(programs.path("kube-apiserver"))
        .args(["--etcd-servers=http://127.0.0.1:1", "--service-cluster-ip-range=10.0.0.0/16"])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}.pub", key.display()))
        .arg(format!("--service-account-signing-key-file={}", key.display()))
        .arg(format!("--cert-dir={}", folder.display()))
        .arg(format!("--authentication-config={}", file.display()))
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let (_, message) =
        printed.split_once("\"command failed\" err=").context(printed.to_string())?;
    // Messages with several lines are indented, others are quoted.
    let message = match message.strip_prefix("<\n") {
        Some(message) => {
            let message = message.split_once("\n >").map_or(message, |(message, _)| message);
            let lines = message.lines().map(|line| line.strip_prefix('\t').unwrap_or(line));
            lines.collect::<Vec<_>>().join("\n")
        }
        None => serde_json::from_str(message.lines().next().unwrap_or_default())?,
    };
    let load = format!("failed to load authentication configuration from file {file:?}: ");
    Ok(message.strip_prefix(&load).unwrap_or(&message).to_owned())
}
