//! The running daemon with the breaker on, as the account that deploy/overlays/breaker makes, behind the fence.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster as Hooks, LabHook};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};
use http::Method;
use serde_json::{Value, json};

use super::between::{Between, Fate, Target, Write};
use super::outage::{self, Outage, Traps, all_is_well, assessed};
use super::privileges::audit::{Asked, asked_by};
use super::privileges::changes::ACCOUNT;
use super::privileges::cluster::{Answer, CONFIGURATIONS, Cluster, ask, play};
use super::{Named, named};

const OPA: LabHook = LabHook::Opa;

pub fn tests() -> Vec<Named> {
    vec![
        named("running_the_outage_is_shielded_as_the_shipped_account", || {
            play(the_outage(Rung::Shield))
        }),
        named("running_the_outage_is_skipped_as_the_shipped_account", || {
            play(the_outage(Rung::Skip))
        }),
        named("running_traps_for_canaries_hold_no_shield_back", || {
            play(trapped())
        }),
        named(
            "running_a_killed_process_leaves_what_the_next_one_brings_back",
            || play(killed()),
        ),
    ]
}

/// A control plane with everything of deploy/ that lets the daemon act, and the lab's hooks.
struct Stage {
    outage: Outage,
    hooks: Hooks,
    cluster: Cluster,
}

impl Stage {
    async fn set() -> Self {
        let cluster = Cluster::with("overlays/breaker").await;
        let hooks = Hooks::start(&cluster.kubeconfig_text(), BackendReach::Url)
            .await
            .unwrap();
        Self {
            outage: Outage::begin(hooks.client()).await,
            hooks,
            cluster,
        }
    }

    async fn behave(&self, behaviour: Behaviour) {
        self.hooks.behave(OPA, usize::MAX, &behaviour).await.unwrap();
    }

    /// Writes a ConfigMap as the administrator.
    async fn write(&self, namespace: &str, name: &str) -> Answer {
        let target = format!("/api/v1/namespaces/{namespace}/configmaps?timeout=20s");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        ask(&self.cluster.admin, Method::POST, &target, &object).await
    }

    /// Nothing that the daemon asked for was refused but what it has to be refused to prove the fence.
    fn assert_nothing_was_refused(&self) {
        let asked = asked_by(self.cluster.audit_log(), ACCOUNT);
        let refused: Vec<&Asked> = asked
            .iter()
            .filter(|asked| matches!(asked.code, 401 | 403 | 422) && !asked.dry_run)
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let done = |name: &str| {
            asked.iter().any(|asked| {
                asked.permission.verb == "patch"
                    && !asked.dry_run
                    && asked.code == 200
                    && asked.permission.name.as_deref() == Some(name)
            })
        };
        assert!(done(OPA.configuration()) && done("hookwatch-ledger"));
    }
}

/// Webhooks that only canaries meet fail first, where one shield is all that there may be.
async fn trapped() {
    let stage = Stage::set().await;
    let token = stage.cluster.token("hookwatch", None).await;
    let (kubeconfig, _) = stage.cluster.kubeconfig("hookwatch", &token);
    let mut config = outage::config(&kubeconfig, Rung::Shield);
    config.breaker.most_shielded = 1;
    let engine = Engine::start(&config).await.unwrap();
    assessed(&engine, "all is well, and the fence is proven", |it| {
        all_is_well(it) && it.breaker.effective == AutoBreak::On
    })
    .await;
    let traps = Traps::set(stage.hooks.client()).await;
    assessed(
        &engine,
        "the traps fail, and are left alone",
        Traps::are_left_alone,
    )
    .await;
    stage.behave(Behaviour::HangAfterTls).await;
    assessed(&engine, "the webhook that others meet is shielded", |it| {
        outage::told(it, OPA).is_some_and(|told| told.state == "bypassed" && told.effective)
            && Traps::are_left_alone(it)
    })
    .await;
    let answer = stage.write("kube-system", "of-the-control-plane").await;
    assert!(answer.is_success(), "{answer:?}");
    traps.take_away().await;
    stage.behave(Behaviour::Healthy).await;
    stage.outage.restored("it is well").await;
    engine.stop().await;
}

/// The outage that hookwatch was made after.
async fn the_outage(rung: Rung) {
    let stage = Stage::set().await;
    let token = stage.cluster.token("hookwatch", None).await;
    let (kubeconfig, _) = stage.cluster.kubeconfig("hookwatch", &token);
    let config = outage::config(&kubeconfig, rung);
    assert!(!config.without_fence && config.leadership.enabled);
    if rung == Rung::Skip {
        stage.cluster.let_skip(&[OPA.configuration()]).await;
    }
    let engine = Engine::start(&config).await.unwrap();
    assessed(&engine, "all is well, and the fence is proven", |it| {
        all_is_well(it) && it.breaker.effective == AutoBreak::On && it.breaker.why == "The fence is proven."
    })
    .await;
    let options = WorkloadOptions {
        clients: 1,
        pace: Duration::from_millis(200),
    };
    let users = LabWorkload::start(&stage.cluster.kubeconfig_text(), &options)
        .await
        .unwrap();
    users.await_success(&[OPA]);
    outage::until("users write", async || users.first_success().is_some()).await;
    users.forget_failures();

    stage.behave(Behaviour::HangAfterTls).await;
    assessed(&engine, "it is bypassed", |it| {
        outage::told(it, OPA)
            .is_some_and(|told| told.state == "bypassed" && told.effective && told.rung == Some(rung))
    })
    .await;
    outage::until("a user's write has failed", async || {
        users.first_failure().is_some()
    })
    .await;
    // The hook hangs still, and these flow.
    let answer = stage.write("kube-system", "of-the-control-plane").await;
    assert!(answer.is_success(), "{answer:?}");
    let answer = stage.write("team-a", "of-a-tenant").await;
    assert_eq!(answer.is_success(), rung == Rung::Skip, "{answer:?}");
    if rung == Rung::Skip {
        users.await_success(&[OPA]);
        outage::until("users write again", async || users.first_success().is_some()).await;
    }
    users.stop().await;

    stage.behave(Behaviour::Healthy).await;
    if rung == Rung::Skip {
        assessed(&engine, "it is on probation", |it| {
            outage::told(it, OPA).is_some_and(|told| told.state == "probation")
        })
        .await;
    }
    stage.outage.restored("it is well again").await;
    let answer = stage.write("team-a", "after-all").await;
    assert!(answer.is_success(), "{answer:?}");
    engine.stop().await;
    stage.assert_nothing_was_refused();
}

/// A daemon as a process of its own.
struct Daemon(Child);

impl Daemon {
    fn start(directory: &PrivateDirectory, name: &str, kubeconfig: &str) -> Self {
        let kubeconfig = directory.write(&format!("{name}.kubeconfig"), kubeconfig);
        let config = directory.write(&format!("{name}.yaml"), "leadership: {leaseDuration: 6s}\n");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0)).to_string();
        let mut command = crate::programs::hookwatch();
        command
            .args(["run", "--auto-break", "--listen", &listen])
            .args(["--log", "warn", "--config"])
            .arg(config.unwrap())
            .arg("--kubeconfig")
            .arg(kubeconfig.unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// After which write it is killed.
type Last = (&'static str, fn(&Write) -> bool);

fn in_the_ledger(write: &Write, place: &str) -> bool {
    write.target == Target::Ledger && write.text.contains(&format!("\\\"place\\\":\\\"{place}\\\""))
}

fn changes_the_object(write: &Write) -> bool {
    write.target != Target::Ledger
}

async fn killed() {
    let lasts: [Last; 3] = [
        ("the bypass is in the ledger", |write| {
            in_the_ledger(write, "held")
        }),
        ("the bypass is made", changes_the_object),
        ("the way back is in the ledger", |write| {
            in_the_ledger(write, "leaving")
        }),
    ];
    let stage = Stage::set().await;
    let directory = PrivateDirectory::create().unwrap();
    let token = stage.cluster.token("hookwatch", None).await;
    let kubeconfig = stage.cluster.kubeconfig_with(&token);
    for (number, (what, is_last)) in lasts.into_iter().enumerate() {
        println!("killed when {what}");
        let between = Between::start(
            &kubeconfig,
            move |write| if is_last(write) { Fate::Last } else { Fate::Pass },
        )
        .await;
        stage.behave(Behaviour::Refused).await;
        let name = format!("killed-{number}");
        let mut daemon = Daemon::start(&directory, &name, &between.kubeconfig);
        let on_the_way_back = what.contains("back");
        let is_bypassed = async || stage.outage.standing(OPA).await.is_some();
        if on_the_way_back {
            outage::until("it is bypassed", is_bypassed).await;
            stage.behave(Behaviour::Healthy).await;
        }
        let reached = between.until(|done| done.iter().any(|done| done.fate == Fate::Last));
        if tokio::time::timeout(outage::GUARD, reached).await.is_err() {
            panic!("{what}: it never came to that: {:?}", between.done());
        }
        daemon.kill();
        drop(between);
        stage.outage.assert_restorable(what).await;

        let name = format!("next-{number}");
        let mut next = Daemon::start(&directory, &name, &kubeconfig);
        if !on_the_way_back {
            outage::until("the next one has it bypassed", is_bypassed).await;
            stage.behave(Behaviour::Healthy).await;
        }
        stage.outage.restored(what).await;
        next.kill();
        // What is remembered of it would make the next one wait.
        let ledger = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/hookwatch-ledger");
        stage.cluster.admin(Method::DELETE, &ledger, &Value::Null).await;
    }
    stage.assert_nothing_was_refused();
}
