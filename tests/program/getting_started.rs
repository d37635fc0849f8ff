//! docs/getting-started.md as a new user follows it: what needs no cluster is typed as it stands there, and the webhook that
//! is broken on purpose is broken in a cluster of the lab.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::held::HeldDemo;

const HOOKWATCH: &str = env!("CARGO_BIN_EXE_hookwatch");
const MANIFEST: &str = "examples/getting-started/broken-webhook.yaml";
/// A write that it is asked about.
const WRITE: &str = "examples/getting-started/configmap.yaml";
const WEBHOOK: &str = "broken.hookwatch-try.example.com";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    std::fs::read_to_string(root().join("docs/getting-started.md")).unwrap()
}

/// The lines between the marks, in their order.
fn without_a_cluster(document: &str) -> Vec<String> {
    let blocks = document.split("<!-- run:begin -->\n```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```\n<!-- run:end -->").next().unwrap());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

#[test]
fn what_needs_no_cluster_works_as_it_is_written() {
    let document = document();
    for file in [MANIFEST, WRITE] {
        assert!(document.contains(&format!("-f {file}\n")), "{file} is not used");
    }
    let commands = without_a_cluster(&document);
    assert!(commands.len() >= 3, "{commands:?}");
    // As after `cargo install`: the binary is in the path, and no kubeconfig is there.
    let bin = Path::new(HOOKWATCH).parent().unwrap().display().to_string();
    let home = tempfile::tempdir().unwrap();
    for command in commands {
        let output = Command::new("sh")
            .args(["-ec", &command])
            .current_dir(root())
            .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()))
            .env("HOME", home.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{command}: {said}{complained}");
        let expected = match command.split(' ').nth(1).unwrap() {
            "demo" => "verdict right",
            "replay" => "Hanging",
            "check-config" => "the configuration is valid",
            other => panic!("what {other} prints is not known here"),
        };
        assert!(said.contains(expected), "{command}: {said}{complained}");
    }
}

/// A cluster in which nothing is broken.
struct Lab(HeldDemo);

impl Lab {
    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.0.text("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// Waits until the verdict on a webhook is as wanted; `None` is one that is not there.
    async fn until(&self, webhook: &str, wanted: impl Fn(Option<&Value>) -> bool) {
        let wanted = |assessment: &Value| {
            let mut hooks = assessment["hooks"].as_array().into_iter().flatten();
            assessment.is_object() && wanted(hooks.find(|hook| hook["webhook"] == webhook))
        };
        self.0.assessment(wanted).await;
    }

    fn diagnose(&self) -> (Option<i32>, String) {
        let output = Command::new(HOOKWATCH)
            .args(["diagnose", "--kubeconfig"])
            .arg(self.0.text("kubeconfig"))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

/// The objects of the manifest.
fn objects() -> Vec<DynamicObject> {
    let text = std::fs::read_to_string(root().join(MANIFEST)).unwrap();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

fn api(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_that_is_broken_on_purpose_is_named_and_harms_no_other() {
    let lab = Lab(HeldDemo::start(&[]));
    let client = lab.client().await;
    for object in objects() {
        let name = object.metadata.name.clone().unwrap();
        let patch = PatchParams::apply("a-new-user");
        api(&client, &object)
            .patch(&name, &patch, &Patch::Apply(&object))
            .await
            .unwrap();
    }
    // In the namespace that is made for it, and in another one.
    let tried = |namespace: &str| {
        let text = std::fs::read_to_string(root().join(WRITE)).unwrap();
        let mut map: ConfigMap = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(map.metadata.namespace.as_deref(), Some("hookwatch-try"));
        map.metadata.namespace = None;
        let maps = Api::namespaced(client.clone(), namespace);
        async move { maps.create(&PostParams::default(), &map).await }
    };
    let refused = tried("hookwatch-try").await.unwrap_err().to_string();
    let message = format!("failed calling webhook \"{WEBHOOK}\"");
    assert!(refused.contains(&message), "{refused}");
    assert!(
        document().contains(&message),
        "the document shows another message"
    );
    tried("default").await.unwrap();

    lab.until(WEBHOOK, |verdict| {
        verdict.is_some_and(|verdict| {
            verdict["health"] == "Failing"
                && verdict["cause"] == "NoEndpoints"
                && verdict["effect"] == "Blocking"
        })
    })
    .await;
    let (code, report) = tokio::task::block_in_place(|| lab.diagnose());
    assert_eq!(code, Some(1), "{report}");
    assert!(
        report.contains(WEBHOOK) && report.contains("NoEndpoints"),
        "{report}"
    );

    for object in objects().into_iter().rev() {
        let name = object.metadata.name.clone().unwrap();
        api(&client, &object)
            .delete(&name, &Default::default())
            .await
            .unwrap();
    }
    lab.until(WEBHOOK, |verdict| verdict.is_none()).await;
}
