//! Two daemons at once against a real API server.

use std::path::PathBuf;

use hookwatch::app::engine::Engine;
use hookwatch::domain::leadership::{Place, Role};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;
use hookwatch::lab::control_plane::Kind;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::Value;

use super::{Named, Outcome, missing, named};

#[path = "../support/replicas.rs"]
mod played;

use played::Lab;

pub fn tests() -> Vec<Named> {
    vec![
        named("replicas_one_leads_and_who_stops_or_dies_is_followed", || {
            play(played::one_leads_and_is_followed(Kind::Envtest))
        }),
        named(
            "replicas_a_blocked_lease_leaves_the_decision_to_the_ledger",
            || {
                play(played::a_blocked_lease_leaves_the_decision_to_the_ledger(
                    Kind::Envtest,
                ))
            },
        ),
        named("replicas_a_failing_hook_is_said_once", || {
            play(played::a_failing_hook_is_said_once(Kind::Envtest))
        }),
        named("replicas_the_documented_permissions_are_enough", || {
            play(the_documented_permissions_are_enough())
        }),
        named("replicas_without_permissions_it_says_so_and_goes_on", || {
            play(without_permissions_it_says_so_and_goes_on())
        }),
    ]
}

fn play(test: impl Future<Output = ()>) -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(test);
    Outcome::Held
}

/// A kubeconfig of somebody else than the administrator.
fn kubeconfig_of(lab: &Lab, user: &str) -> PathBuf {
    let text = std::fs::read_to_string(&lab.kubeconfig).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"]["as"] = user.into();
    // Private like the one beside it, and gone with it.
    let path = lab.kubeconfig.with_file_name("other");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

async fn daemon_as(lab: &Lab, user: &str) -> Engine {
    Engine::start(&played::config(&kubeconfig_of(lab, user), 6))
        .await
        .unwrap()
}

/// Creates what the document says is to be created; some of it the lab has already.
async fn create_what_is_documented(lab: &Lab) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let document = std::fs::read_to_string(path).unwrap();
    let permissions = document.split("\n## Permissions\n").nth(1).unwrap();
    let manifests = permissions.split("```yaml\n").nth(1).unwrap();
    let manifests = manifests.split("```").next().unwrap();
    for manifest in manifests.split("---\n") {
        let object: DynamicObject = serde_saphyr::from_str(manifest).unwrap();
        let types = object.types.clone().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
        let client = lab.cluster.client().clone();
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{manifest}: {error}"),
        }
    }
}

async fn the_documented_permissions_are_enough() {
    let lab = Lab::start(Kind::Envtest).await;
    create_what_is_documented(&lab).await;
    let daemon = daemon_as(&lab, "system:serviceaccount:hookwatch:hookwatch").await;
    let leads_by =
        |place| played::view(&daemon).is_some_and(|view| view.role == Role::Leader && view.by == Some(place));
    played::until("it leads", &[&daemon], async || leads_by(Place::Lease)).await;
    assert_eq!(played::view(&daemon).and_then(|view| view.trouble), None);
    // Refuses Leases and lets Events pass.
    lab.behave(LabHook::Quota, Behaviour::Refused).await;
    played::until("the ledger decides", &[&daemon], async || leads_by(Place::Ledger)).await;
    let why = played::view(&daemon)
        .and_then(|view| view.trouble)
        .unwrap_or_default();
    assert!(why.contains(LabHook::Quota.webhook()), "{why}");
    assert!(lab.ledger_actor().await.is_some());
    played::until("it is said", &[&daemon], async || !lab.events().await.is_empty()).await;
    daemon.stop().await;
}

async fn without_permissions_it_says_so_and_goes_on() {
    let lab = Lab::start(Kind::Envtest).await;
    let daemon = daemon_as(&lab, "system:serviceaccount:default:nobody").await;
    let trouble = || {
        played::view(&daemon)
            .and_then(|view| view.trouble)
            .unwrap_or_default()
    };
    played::until("it says so", &[&daemon], async || {
        trouble().contains("may not be read; see Permissions")
    })
    .await;
    let before = daemon.assessment.borrow().clone().unwrap().at;
    played::until("it goes on", &[&daemon], async || {
        daemon.assessment.borrow().clone().unwrap().at > before
    })
    .await;
    assert_eq!(played::view(&daemon).unwrap().role, Role::Unknown);
    daemon.stop().await;
}
