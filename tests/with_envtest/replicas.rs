//! Two daemons at once against a real API server.

use std::path::PathBuf;

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::leadership::{LeadershipObject, ReplicaRole};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;
use hookwatch::lab::control_plane::ControlPlaneKind;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use super::privileges::cluster::{apply, manifests, play};
use super::{Named, named};

#[path = "../support/replicas.rs"]
mod played;

use played::Lab;

pub fn tests() -> Vec<Named> {
    vec![
        named("replicas_one_leads_and_who_stops_or_dies_is_followed", || {
            play(played::one_leads_and_is_followed(ControlPlaneKind::Envtest))
        }),
        named(
            "replicas_a_blocked_lease_leaves_the_decision_to_the_ledger",
            || {
                play(played::a_blocked_lease_leaves_the_decision_to_the_ledger(
                    ControlPlaneKind::Envtest,
                ))
            },
        ),
        named("replicas_an_outage_is_said_once_it_is_over", || {
            play(played::an_outage_is_said_once_it_is_over(
                ControlPlaneKind::Envtest,
            ))
        }),
        named("replicas_a_failing_hook_is_said_once", || {
            play(played::a_failing_hook_is_said_once(ControlPlaneKind::Envtest))
        }),
        named("replicas_the_shipped_permissions_are_enough", || {
            play(the_shipped_permissions_are_enough())
        }),
        named("replicas_without_permissions_it_says_so_and_goes_on", || {
            play(without_permissions_it_says_so_and_goes_on())
        }),
    ]
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

async fn deploy(lab: &Lab, folder: &str) {
    for object in manifests(folder) {
        apply(lab.cluster.client(), &object).await;
    }
}

/// Who only observes leads by the Lease alone, and says what keeps it from that; who may act goes on by the ledger.
async fn the_shipped_permissions_are_enough() {
    let lab = Lab::start(ControlPlaneKind::Envtest).await;
    deploy(&lab, "base").await;
    let daemon = daemon_as(&lab, "system:serviceaccount:hookwatch:hookwatch").await;
    let leads_by = |place| {
        played::view(&daemon).is_some_and(|view| view.role == ReplicaRole::Leader && view.by == Some(place))
    };
    let trouble = || {
        played::view(&daemon)
            .and_then(|view| view.trouble)
            .unwrap_or_default()
    };
    let leads_in_order = async || leads_by(LeadershipObject::Lease) && trouble().is_empty();
    played::until("it leads", &[&daemon], leads_in_order).await;
    // Refuses Leases and lets Events pass.
    lab.behave(LabHook::Quota, Behaviour::Refused).await;
    let without =
        "ValidatingWebhookConfiguration \"hookwatch-ledger\" may not be written; see deploy/README.md";
    let has_no_leader = || {
        played::view(&daemon).is_some_and(|view| view.role == ReplicaRole::Unknown)
            && trouble().contains(LabHook::Quota.webhook())
            && trouble().contains(without)
    };
    played::until("nobody leads, and it says why", &[&daemon], async || {
        has_no_leader()
    })
    .await;
    let view = played::view(&daemon).unwrap();
    let before = daemon.shown.assessment.borrow().clone().unwrap().at;
    played::until("it goes on", &[&daemon], async || {
        daemon.shown.assessment.borrow().clone().unwrap().at > before
    })
    .await;
    assert!(has_no_leader(), "{:?}", played::view(&daemon));
    assert_eq!(
        played::view(&daemon).unwrap().since,
        view.since,
        "it stays as it was"
    );
    assert_eq!(lab.ledger_actor().await, None);
    lab.behave(LabHook::Quota, Behaviour::Healthy).await;
    played::until("it leads again", &[&daemon], leads_in_order).await;

    deploy(&lab, "overlays/breaker").await;
    lab.behave(LabHook::Quota, Behaviour::Refused).await;
    played::until("the ledger decides", &[&daemon], async || {
        leads_by(LeadershipObject::Ledger)
    })
    .await;
    assert!(trouble().contains(LabHook::Quota.webhook()), "{}", trouble());
    assert!(lab.ledger_actor().await.is_some());
    played::until("it is said", &[&daemon], async || !lab.events().await.is_empty()).await;

    // As Argo CD leaves a cluster: it applies no Leases.
    lab.behave(LabHook::Quota, Behaviour::Healthy).await;
    played::until("the Lease decides again", &[&daemon], leads_in_order).await;
    let leases: Api<Lease> = Api::namespaced(lab.cluster.client().clone(), "hookwatch");
    leases
        .delete("hookwatch", &DeleteParams::default())
        .await
        .unwrap();
    played::until("it leads without a Lease", &[&daemon], async || {
        leads_by(LeadershipObject::Ledger)
            && trouble().contains("Lease \"hookwatch\" in namespace \"hookwatch\" does not exist")
    })
    .await;
    daemon.stop().await;
    assert_eq!(lab.ledger_actor().await, None, "it lets go");
}

async fn without_permissions_it_says_so_and_goes_on() {
    let lab = Lab::start(ControlPlaneKind::Envtest).await;
    let daemon = daemon_as(&lab, "system:serviceaccount:default:nobody").await;
    let trouble = || {
        played::view(&daemon)
            .and_then(|view| view.trouble)
            .unwrap_or_default()
    };
    played::until("it says so", &[&daemon], async || {
        trouble().contains("may not be read; see deploy/README.md")
    })
    .await;
    let before = daemon.shown.assessment.borrow().clone().unwrap().at;
    played::until("it goes on", &[&daemon], async || {
        daemon.shown.assessment.borrow().clone().unwrap().at > before
    })
    .await;
    assert_eq!(played::view(&daemon).unwrap().role, ReplicaRole::Unknown);
    daemon.stop().await;
}
