//! Tests of two daemons on one control plane of any kind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::config::Config;
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::leadership::{LeadershipObject, ReplicaRole, ReplicaView};
use hookwatch::domain::act::ledger;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Health;
use hookwatch::io::report::metrics::Metrics;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::{ControlPlaneKind, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

/// Timeout against a test that hangs.
const GUARD: Duration = Duration::from_secs(90);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// A control plane with hooks, and a kubeconfig for it.
pub struct Lab {
    // Dropped in this order.
    pub cluster: Cluster,
    _control_plane: LabControlPlane,
    pub kubeconfig: std::path::PathBuf,
    _directory: PrivateDirectory,
}

impl Lab {
    pub async fn start(kind: ControlPlaneKind) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = PrivateDirectory::create().expect("a directory");
        let control_plane = LabControlPlane::start(kind, directory.path())
            .await
            .expect("a control plane");
        let kubeconfig = directory
            .write("kubeconfig", &control_plane.kubeconfig())
            .expect("a kubeconfig");
        let cluster = Cluster::start(&control_plane.kubeconfig(), control_plane.reach())
            .await
            .expect("hooks");
        Self {
            cluster,
            _control_plane: control_plane,
            kubeconfig,
            _directory: directory,
        }
    }

    /// Starts a daemon with a lease duration of this many seconds.
    async fn daemon(&self, term: u64) -> Engine {
        Engine::start(&config(&self.kubeconfig, term))
            .await
            .expect("a daemon")
    }

    pub async fn behave(&self, hook: LabHook, behaviour: Behaviour) {
        self.cluster
            .behave(hook, usize::MAX, &behaviour)
            .await
            .expect("a backend");
    }

    async fn lease_holder(&self) -> Option<String> {
        let api: Api<Lease> = Api::namespaced(self.cluster.client().clone(), "hookwatch");
        let lease = api.get_opt("hookwatch").await.expect("an answer");
        lease?.spec?.holder_identity
    }

    pub async fn ledger_actor(&self) -> Option<String> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.client().clone());
        let object = api.get_opt(ledger::OBJECT).await.expect("an answer")?;
        assert_eq!(
            object.webhooks.unwrap_or_default().len(),
            0,
            "the ledger holds no hooks"
        );
        let annotation = object.metadata.annotations?.remove(ledger::ANNOTATION)?;
        ledger::LedgerReading::of(Some(&annotation))
            .record("u", "1")
            .holder
            .map(|holder| holder.to_string())
    }

    pub async fn events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.cluster.client().clone(), "default");
        let all = api.list(&ListParams::default()).await.expect("an answer");
        let ours = |event: &Event| event.reporting_component.as_deref() == Some("hookwatch");
        all.items.into_iter().filter(ours).collect()
    }
}

pub fn config(kubeconfig: &Path, term: u64) -> Config {
    let mut config = crate::engines::config(kubeconfig, "");
    config.leadership.term = Duration::from_secs(term);
    config.probes.rates.interval = config.probes.rates.alert_interval;
    config.canaries.interval = config.canaries.alert_interval;
    config.scrapes.interval = config.scrapes.alert_interval;
    config
}

fn assessment(daemon: &Engine) -> Option<Arc<Assessment>> {
    daemon.shown.assessment.borrow().clone()
}

/// A daemon's view of leadership.
pub fn view(daemon: &Engine) -> Option<ReplicaView> {
    assessment(daemon)?.replica.clone()
}

fn role(daemon: &Engine) -> Option<ReplicaRole> {
    view(daemon).map(|view| view.role)
}

fn health(daemon: &Engine, hook: LabHook) -> Option<Health> {
    let assessment = assessment(daemon)?;
    let verdict = assessment
        .hooks
        .iter()
        .find(|verdict| &*verdict.webhook == hook.webhook())?;
    Some(verdict.health)
}

/// Polls until `so` holds, and asserts meanwhile that the daemons never both lead.
pub async fn until(what: &str, daemons: &[&Engine], mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            let leaders = daemons
                .iter()
                .filter(|daemon| role(daemon) == Some(ReplicaRole::Leader))
                .count();
            assert!(leaders <= 1, "two say that they lead");
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(GUARD, waiting).await.is_err() {
        let views: Vec<_> = daemons.iter().map(|daemon| view(daemon)).collect();
        panic!("waited in vain until {what}: {views:#?}");
    }
}

/// Waits until one daemon leads by `place` and the other follows; returns the leader first.
async fn settled<'a>(
    place: LeadershipObject,
    one: &'a Engine,
    other: &'a Engine,
) -> (&'a Engine, &'a Engine) {
    let leads_over = |leader: &Engine, follower: &Engine| match (view(leader), view(follower)) {
        (Some(leader), Some(follower)) => {
            leader.role == ReplicaRole::Leader
                && leader.by == Some(place)
                && follower.role == ReplicaRole::Follower
                && follower.by == Some(place)
                && follower.holder.as_deref() == Some(&*leader.identity)
        }
        _ => false,
    };
    until(&format!("one leads by the {place}"), &[one, other], async || {
        leads_over(one, other) || leads_over(other, one)
    })
    .await;
    if leads_over(one, other) {
        (one, other)
    } else {
        (other, one)
    }
}

fn identity(daemon: &Engine) -> String {
    view(daemon).expect("it takes part").identity.to_string()
}

fn metric(daemon: &Engine, line: &str) -> bool {
    let assessment = assessment(daemon);
    let metrics = &daemon.shown.metrics;
    let text = Metrics::text(&metrics.families(assessment.as_deref(), &[])).expect("metrics");
    String::from_utf8(text)
        .expect("text")
        .lines()
        .any(|shown| shown == line)
}

/// One leads and both judge. A leader that stops hands over at once; after a killed one, the other leads once its term ends.
pub async fn one_leads_and_is_followed(kind: ControlPlaneKind) {
    let lab = Lab::start(kind).await;
    let (a, b) = (lab.daemon(6).await, lab.daemon(6).await);
    let leads = {
        let (leader, follower) = settled(LeadershipObject::Lease, &a, &b).await;
        for daemon in [leader, follower] {
            until("both have judged every hook", &[&a, &b], async || {
                LabHook::ALL
                    .iter()
                    .copied()
                    .all(|hook| health(daemon, hook) == Some(Health::Healthy))
            })
            .await;
        }
        assert!(metric(leader, "hookwatch_leader{by=\"lease\"} 1"));
        assert!(metric(
            leader,
            "hookwatch_leader_transitions_total{role=\"leader\"} 1"
        ));
        assert!(metric(follower, "hookwatch_leader{by=\"lease\"} 0"));
        for daemon in [leader, follower] {
            assert!(metric(daemon, "hookwatch_leader_known 1"));
        }
        assert_eq!(lab.lease_holder().await, Some(identity(leader)));
        assert_eq!(
            lab.ledger_actor().await,
            None,
            "the ledger is not needed while the Lease can be written"
        );
        identity(leader)
    };
    let (leader, follower) = if identity(&a) == leads { (a, b) } else { (b, a) };

    leader.stop().await;
    assert_ne!(lab.lease_holder().await, Some(leads), "it lets go before it ends");
    until("the other leads", &[&follower], async || {
        role(&follower) == Some(ReplicaRole::Leader)
    })
    .await;
    let held = lab.lease_holder().await;
    assert_eq!(held, Some(identity(&follower)));

    let third = lab.daemon(6).await;
    until("the third follows", &[&third, &follower], async || {
        role(&third) == Some(ReplicaRole::Follower)
    })
    .await;
    drop(follower);
    assert_eq!(lab.lease_holder().await, held, "who is killed lets go of nothing");
    until("the third leads", &[&third], async || {
        role(&third) == Some(ReplicaRole::Leader)
    })
    .await;
    third.stop().await;
}

/// While a catch-all hook hangs, the Lease cannot be written, and one replica still acts.
pub async fn a_blocked_lease_leaves_the_decision_to_the_ledger(kind: ControlPlaneKind) {
    let lab = Lab::start(kind).await;
    let (a, b) = (lab.daemon(6).await, lab.daemon(6).await);
    let before = identity(settled(LeadershipObject::Lease, &a, &b).await.0);
    lab.behave(LabHook::Opa, Behaviour::HangAfterTls).await;
    let (leader, follower) = settled(LeadershipObject::Ledger, &a, &b).await;
    assert_eq!(identity(leader), before, "nobody else had a chance");
    assert_eq!(lab.ledger_actor().await, Some(identity(leader)));
    until(
        "the hook is named as what blocks the Lease",
        &[&a, &b],
        async || {
            view(leader)
                .and_then(|view| view.trouble)
                .is_some_and(|why| why.contains(LabHook::Opa.webhook()))
        },
    )
    .await;
    until("both know the culprit", &[&a, &b], async || {
        [&a, &b]
            .into_iter()
            .all(|daemon| health(daemon, LabHook::Opa) == Some(Health::Failing))
    })
    .await;
    for daemon in [leader, follower] {
        let problems = assessment(daemon).expect("assessed").problems.clone();
        let about_it = problems
            .iter()
            .find(|problem| problem.object.contains(ledger::OBJECT));
        assert_eq!(about_it, None, "the ledger is no problem");
    }
    // Events are blocked, too, and nothing waits for them.
    assert_eq!(lab.events().await, []);

    // The leader dies, and the other can only learn that from the ledger.
    let (leader, follower) = if identity(&a) == before { (a, b) } else { (b, a) };
    drop(leader);
    until("the other acts", &[&follower], async || {
        view(&follower)
            .is_some_and(|view| view.role == ReplicaRole::Leader && view.by == Some(LeadershipObject::Ledger))
    })
    .await;
    assert_eq!(lab.ledger_actor().await, Some(identity(&follower)));

    lab.behave(LabHook::Opa, Behaviour::Healthy).await;
    until("the Lease decides again", &[&follower], async || {
        view(&follower).is_some_and(|view| {
            view.role == ReplicaRole::Leader
                && view.by == Some(LeadershipObject::Lease)
                && view.trouble.is_none()
        }) && lab.ledger_actor().await.is_none()
    })
    .await;
    until(
        "it is said that the hook is well again",
        &[&follower],
        async || {
            let said = lab.events().await;
            said.iter()
                .any(|event| event.reason.as_deref() == Some("Recovered"))
        },
    )
    .await;
    follower.stop().await;
    assert_eq!(lab.lease_holder().await, None);
}

/// Events that cannot be written while a catch-all hook hangs are written afterwards.
pub async fn an_outage_is_said_once_it_is_over(kind: ControlPlaneKind) {
    let lab = Lab::start(kind).await;
    let daemon = lab.daemon(6).await;
    let leads =
        |by| view(&daemon).is_some_and(|view| view.role == ReplicaRole::Leader && view.by == Some(by));
    until("it leads", &[&daemon], async || leads(LeadershipObject::Lease)).await;
    lab.behave(LabHook::Opa, Behaviour::HangAfterTls).await;
    until(
        "it knows the culprit, and leads by the ledger",
        &[&daemon],
        async || health(&daemon, LabHook::Opa) == Some(Health::Failing) && leads(LeadershipObject::Ledger),
    )
    .await;
    assert_eq!(lab.events().await, [], "Events meet the hook as well");
    lab.behave(LabHook::Opa, Behaviour::Healthy).await;
    until("the outage and its end are said", &[&daemon], async || {
        let said = lab.events().await;
        let mut reasons: Vec<&str> = said.iter().filter_map(|event| event.reason.as_deref()).collect();
        // Before 1.28 there is also an Event that no bypass is possible.
        reasons.retain(|reason| *reason != "HeldBack");
        reasons.sort_unstable();
        reasons == ["Hanging", "Recovered"]
    })
    .await;
    daemon.stop().await;
}

/// Without the Events that a hook would be bypassed, which appear if it fails for long enough.
fn of_health(mut said: Vec<Event>) -> Vec<Event> {
    said.retain(|event| event.reason.as_deref() != Some("WouldBypass"));
    said
}

/// Only the leader writes an Event about a failing hook and about its recovery, each once.
pub async fn a_failing_hook_is_said_once(kind: ControlPlaneKind) {
    let lab = Lab::start(kind).await;
    let (a, b) = (lab.daemon(15).await, lab.daemon(15).await);
    let leader = identity(settled(LeadershipObject::Lease, &a, &b).await.0);
    let daemons = [&a, &b];
    until("all is well", &daemons, async || {
        daemons
            .iter()
            .all(|daemon| health(daemon, LabHook::Quota) == Some(Health::Healthy))
    })
    .await;
    assert_eq!(lab.events().await, []);

    // It matches Leases and Services: Events pass.
    lab.behave(LabHook::Quota, Behaviour::Refused).await;
    until("both know the culprit", &daemons, async || {
        daemons
            .iter()
            .all(|daemon| health(daemon, LabHook::Quota) == Some(Health::Failing))
    })
    .await;
    until("it is said", &daemons, async || {
        !of_health(lab.events().await).is_empty()
    })
    .await;
    let said = of_health(lab.events().await);
    let [event] = &said[..] else {
        panic!("{said:#?}");
    };
    assert_eq!(event.reason.as_deref(), Some("Refused"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.count, Some(1));
    assert_eq!(event.reporting_instance.as_deref(), Some(&*leader));
    let about = &event.involved_object;
    assert_eq!(about.kind.as_deref(), Some("ValidatingWebhookConfiguration"));
    assert_eq!(about.name.as_deref(), Some(LabHook::Quota.configuration()));
    let api: Api<ValidatingWebhookConfiguration> = Api::all(lab.cluster.client().clone());
    let object = api
        .get(LabHook::Quota.configuration())
        .await
        .expect("it is there");
    assert_eq!(about.uid, object.metadata.uid);

    lab.behave(LabHook::Quota, Behaviour::Healthy).await;
    until("its end is said", &daemons, async || {
        lab.events()
            .await
            .iter()
            .any(|event| event.reason.as_deref() == Some("Recovered"))
    })
    .await;
    a.stop().await;
    b.stop().await;
    let said = of_health(lab.events().await);
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said.iter().all(|event| event.count == Some(1)), "{said:#?}");
}
