//! Objects that are damaged on the disk.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use serde_json::json;

use crate::installation::Installation;
use crate::llama;

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_object_is_reported_and_other_objects_stay_usable() -> Result<()> {
    let installation = Installation::new()?;
    let mut program = installation.start().await?;
    let others = program.in_namespace("others");
    others.create(&PostParams::default(), &llama("sound", 1.0)).await?;
    let mut hurt = llama("hurt", 1.0);
    hurt.annotations_mut().insert("text".to_owned(), "what is to be damaged".to_owned());
    program.llamas.create(&PostParams::default(), &hurt).await?;
    program.process.terminate()?;
    ensure!(program.process.wait()?.success());
    installation.damage("what is to be damaged")?;

    let program = installation.start().await?;
    let others = program.in_namespace("others");
    ensure!(others.list(&ListParams::default()).await?.items.len() == 1);
    ensure!(program.llamas.get("dolly").await?.name_any() == "dolly");
    program.llamas.create(&PostParams::default(), &llama("new", 1.0)).await?;
    let damaged = |error: &kube::Error| {
        let expected = r#"llamas.farm.example.com "default/hurt": it cannot be read from the store: it is damaged"#;
        matches!(error, kube::Error::Api(status) if status.code == 500 && status.message.contains(expected))
    };
    let merge = Patch::Merge(json!({"spec": {"weight": 2}}));
    let refusals = [
        program.llamas.get("hurt").await.err(),
        program.llamas.list(&ListParams::default()).await.err(),
        program.llamas.watch(&WatchParams::default(), "0").await.err(),
        program.llamas.create(&PostParams::default(), &llama("hurt", 2.0)).await.err(),
        program.llamas.patch("hurt", &PatchParams::default(), &merge).await.err(),
        program.llamas.delete("hurt", &DeleteParams::default()).await.err(),
    ];
    for (index, refused) in refusals.iter().enumerate() {
        ensure!(refused.as_ref().is_some_and(damaged), "{index}: {refused:?}");
    }
    Ok(())
}
