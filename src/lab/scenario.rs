//! The scenarios: their faults and the expected verdicts.

mod shapes;
mod table;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use strum::IntoStaticStr;

use super::backend::Behaviour;
use super::cluster::{Cluster, HookShape, LabHook};
use super::control_plane::{BackendReach, ControlPlaneFault, LabControlPlane};
use super::script::Script;

pub use self::shapes::SHAPES;
pub use self::table::SCENARIOS;

/// One way of breaking the lab cluster, or of leaving it alone.
#[derive(Debug)]
pub struct Scenario {
    /// Its fixed name.
    pub name: &'static str,
    /// What is done, in one sentence.
    pub summary: &'static str,
    /// What a person at the cluster would notice.
    pub symptom: &'static str,
    /// The expected verdicts by hook; no other hook may be `Failing`.
    pub expected: &'static [Expected],
    /// What the audit must find about the hooks before the first verdict; `None` for nothing in particular.
    pub foreseen: Option<&'static str>,
    /// The trouble other than a hook that hookwatch must name.
    pub not_a_hook: Option<&'static str>,
    /// Shortest time that the fault lasts, so that its cost shows.
    pub lasts_at_least: Duration,
    /// What a second API server does.
    pub second_api_server: SecondApiServerRole,
    /// Whether there are two replicas of hookwatch, of which the one that leads is killed with the fault.
    pub loses_leader: bool,
    /// Whether there are hardly any writes besides the control plane's.
    pub hardly_any_users: bool,
    /// Hooks that are configured before the fault otherwise than in most scenarios.
    arranged: &'static [Arranged],
    faults: &'static [Fault],
}

/// What a second API server does in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecondApiServerRole {
    /// There is none.
    None,
    /// It starts together with the fault, and must write before it serves.
    StartsWithFault,
    /// It serves before the fault already, and a real kube-scheduler and every other node write to it.
    Serves,
}

/// A hook that is configured otherwise than in most scenarios.
#[derive(Debug)]
struct Arranged {
    hook: LabHook,
    shape: HookShape,
}

/// The verdict that a scenario calls for on one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The hook.
    pub hook: LabHook,
    /// The cause, as the assessment spells it.
    pub cause: &'static str,
    /// Whether the hook counts as failing or only as suspect.
    pub health: ExpectedHealth,
    /// The effect; `None` where more than one is right.
    pub effect: Option<&'static str>,
}

/// The expected health of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
pub enum ExpectedHealth {
    /// `Failing`: it does not do its work.
    Failing,
    /// `Suspect`, and never `Failing`: something is wrong, but writes do not suffer from it.
    Suspect,
}

impl ExpectedHealth {
    /// As the assessment spells it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One thing that is broken.
#[derive(Debug)]
enum Fault {
    /// The first `backends` backends of the hook behave like this.
    Behave {
        hook: LabHook,
        backends: usize,
        behaviour: Behaviour,
    },
    /// The configuration's `caBundle` belongs to an authority that signed nothing here.
    WrongCaBundle(LabHook),
    /// All backends serve an expired certificate.
    ExpiredCertificates(LabHook),
    /// The Service's EndpointSlice is empty.
    NoEndpoints(LabHook),
    /// The `backends` backends of the hook that were called most vanish as with their node, behind open connections.
    Vanish { hook: LabHook, backends: usize },
    /// The hook's Deployment is restarted again and again, and leaves a gap each time.
    RestartWithoutEnd(LabHook),
    /// The hook is registered as the first one of the cluster, and answers no call.
    FirstHook(LabHook),
    /// All Pods of the hook are gone; its backends serve again once the controller's new Pod is admitted.
    PodsGone(LabHook),
    /// All endpoints of the hook are on one node, which becomes NotReady and is lost a little later.
    OnlyNodeLost(LabHook),
    /// No packet passes between the API server and the hook's backends; all others reach them.
    Firewall(LabHook),
    /// Every storage operation of the API server takes this long.
    SlowStorage(Duration),
    /// The API server has this much CPU, and readers LIST without end.
    ReadOverload { readers: usize, millicores: u32 },
}

/// What a scenario is carried out on.
pub struct ScenarioTarget<'a> {
    /// The lab cluster.
    pub cluster: &'a Arc<Cluster>,
    /// The control plane that it runs on.
    pub control_plane: &'a LabControlPlane,
}

/// A fault that is in force. [`Injected::clear`] ends it.
pub struct Injected {
    scenario: &'static Scenario,
    troubles: Vec<ControlPlaneFault>,
}

/// The scenario of that name.
///
/// # Errors
/// When there is none; the message lists the names.
pub fn by_name(name: &str) -> anyhow::Result<&'static Scenario> {
    let all = || SCENARIOS.iter().chain(&SHAPES);
    all().find(|scenario| scenario.name == name).with_context(|| {
        let names: Vec<_> = all().map(|scenario| scenario.name).collect();
        format!(
            "there is no scenario {name:?}; the scenarios are {}",
            names.join(", ")
        )
    })
}

impl Scenario {
    /// Whether nothing is broken.
    pub const fn is_quiet(&self) -> bool {
        self.faults.is_empty()
    }

    /// The hooks that are registered before the fault.
    pub fn hooks_before(&self) -> &'static [LabHook] {
        match self.first_hook() {
            Some(_) => &[],
            None => LabHook::ALL,
        }
    }

    /// The hooks that are registered from the fault on.
    pub fn hooks_after(&self) -> &'static [LabHook] {
        self.first_hook().map_or(LabHook::ALL, std::slice::from_ref)
    }

    fn first_hook(&self) -> Option<&'static LabHook> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::FirstHook(hook) => Some(hook),
            _ => None,
        })
    }

    /// Whether the fault ends once writes get through.
    pub fn mends_itself(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| matches!(fault, Fault::PodsGone(_)))
    }

    /// Why it cannot be played where backends are reached like this; `None` when it can.
    pub fn unplayable(&self, reach: BackendReach) -> Option<&'static str> {
        const WITHOUT: &str = "backends can be reached by url only here, which leaves one backend per hook and no \
                               EndpointSlices; a network namespace (Linux, with unshare and ip, as root or with \
                               user namespaces allowed) gives both";
        const EMBEDDED: &str = "between a real API server and a hook nothing can drop packets here that would not \
                                drop them between hookwatch and the hook as well";
        const ONE: &str = "the embedded control plane has one API server; two need --control-plane envtest and a \
                           network namespace";
        if self.second_api_server == SecondApiServerRole::Serves && reach != BackendReach::Namespace {
            return Some(ONE);
        }
        let needs_wall = self
            .faults
            .iter()
            .any(|fault| matches!(fault, Fault::Firewall(_)));
        if needs_wall && reach != BackendReach::Loopback {
            return Some(EMBEDDED);
        }
        let needs_services = self.faults.iter().any(|fault| match fault {
            Fault::NoEndpoints(_)
            | Fault::Vanish { .. }
            | Fault::RestartWithoutEnd(_)
            | Fault::PodsGone(_)
            | Fault::OnlyNodeLost(_) => true,
            Fault::Behave { hook, backends, .. } => *backends < hook.backends(),
            _ => false,
        });
        (needs_services && reach == BackendReach::Url).then_some(WITHOUT)
    }

    /// Configures the hooks as the scenario needs them. They are healthy until the fault.
    ///
    /// # Errors
    /// When a configuration cannot be changed.
    pub async fn arrange(&self, target: &ScenarioTarget<'_>) -> anyhow::Result<()> {
        if self.first_hook().is_some() {
            for &hook in LabHook::ALL {
                target.cluster.unregister(hook).await?;
            }
        }
        for Arranged { hook, shape } in self.arranged {
            target.cluster.arrange(*hook, shape).await?;
        }
        Ok(())
    }

    /// Breaks what the scenario breaks; returns when everything is in force.
    ///
    /// # Errors
    /// When a fault cannot be injected.
    pub async fn inject(&'static self, target: &ScenarioTarget<'_>) -> anyhow::Result<Injected> {
        let mut troubles = Vec::new();
        for fault in self.faults {
            let trouble = fault
                .inject(target)
                .await
                .with_context(|| format!("injecting {}", self.name))?;
            troubles.extend(trouble);
        }
        Ok(Injected {
            scenario: self,
            troubles,
        })
    }
}

impl Injected {
    /// Repairs what the scenario broke; returns when everything is as it was.
    ///
    /// # Errors
    /// When something cannot be restored; the rest is restored all the same.
    pub async fn clear(self, target: &ScenarioTarget<'_>) -> anyhow::Result<()> {
        target.control_plane.mend(self.troubles);
        let mut first_error = Ok(());
        // In reverse order, so that every state in between also occurred during the injection.
        for fault in self.scenario.faults.iter().rev() {
            let cleared = fault.clear(target).await;
            first_error = first_error.and(cleared);
        }
        first_error.with_context(|| format!("clearing {}", self.scenario.name))
    }
}

impl Fault {
    async fn inject(&self, target: &ScenarioTarget<'_>) -> anyhow::Result<Option<ControlPlaneFault>> {
        let cluster = target.cluster;
        match self {
            Self::Behave {
                hook,
                backends,
                behaviour,
            } => cluster.behave(*hook, *backends, behaviour).await?,
            Self::WrongCaBundle(hook) => cluster.set_ca_bundle(*hook, false).await?,
            Self::ExpiredCertificates(hook) => cluster.renew_certificates(*hook, true).await?,
            Self::NoEndpoints(hook) => cluster.set_endpoints(*hook, false).await?,
            Self::Vanish { hook, backends } => cluster.vanish(*hook, *backends).await?,
            Self::RestartWithoutEnd(hook) => {
                let (cluster, hook) = (Arc::clone(cluster), *hook);
                let restarts = async move { cluster.restart_without_end(hook).await };
                return Ok(Some(ControlPlaneFault::Script(Script::start(restarts))));
            }
            Self::FirstHook(hook) => {
                cluster
                    .behave(*hook, hook.backends(), &Behaviour::HangAfterTls)
                    .await?;
                cluster.register(*hook).await?;
            }
            Self::PodsGone(hook) => {
                cluster
                    .behave(*hook, hook.backends(), &Behaviour::Refused)
                    .await?;
                let (cluster, hook) = (Arc::clone(cluster), *hook);
                let controller = async move { cluster.recreate_pods(hook).await };
                return Ok(Some(ControlPlaneFault::Script(Script::start(controller))));
            }
            Self::OnlyNodeLost(hook) => {
                let (cluster, hook) = (Arc::clone(cluster), *hook);
                let loss = async move { cluster.lose_the_only_node(hook).await };
                return Ok(Some(ControlPlaneFault::Script(Script::start(loss))));
            }
            Self::Firewall(hook) => return target.control_plane.firewall(&hook.server_name()).map(Some),
            Self::SlowStorage(delay) => return Ok(Some(target.control_plane.slow_storage(*delay))),
            Self::ReadOverload { readers, millicores } => {
                return target.control_plane.flood(*readers, *millicores).await.map(Some);
            }
        }
        Ok(None)
    }

    async fn clear(&self, target: &ScenarioTarget<'_>) -> anyhow::Result<()> {
        let cluster = target.cluster;
        match self {
            Self::Behave { hook, backends, .. } => {
                cluster.behave(*hook, *backends, &Behaviour::Healthy).await
            }
            Self::PodsGone(hook) | Self::FirstHook(hook) => {
                let all = hook.backends();
                cluster.behave(*hook, all, &Behaviour::Healthy).await
            }
            Self::WrongCaBundle(hook) => cluster.set_ca_bundle(*hook, true).await,
            Self::ExpiredCertificates(hook) => cluster.renew_certificates(*hook, false).await,
            Self::NoEndpoints(hook) => cluster.set_endpoints(*hook, true).await,
            Self::Vanish { hook, .. } | Self::RestartWithoutEnd(hook) => {
                let all = hook.backends();
                cluster.behave(*hook, all, &Behaviour::Healthy).await?;
                cluster.set_endpoints(*hook, true).await
            }
            Self::OnlyNodeLost(hook) => cluster.spread_again(*hook).await,
            // These ended in `Injected::clear`, with the fault of the control plane.
            Self::Firewall(_) | Self::SlowStorage(_) | Self::ReadOverload { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};

    use super::*;
    use crate::lab::api::{ApiServer, ApiServerOptions};

    struct Lab {
        control_plane: LabControlPlane,
        cluster: Arc<Cluster>,
    }

    impl Lab {
        async fn start() -> Self {
            // The lab's clients take the process's provider; a second test installing it is no error.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let api = ApiServer::start(ApiServerOptions::default()).await.unwrap();
            let control_plane = LabControlPlane::Embedded(api);
            let cluster = Cluster::start(&control_plane.kubeconfig(), control_plane.reach())
                .await
                .unwrap();
            Self {
                control_plane,
                cluster: Arc::new(cluster),
            }
        }

        fn target(&self) -> ScenarioTarget<'_> {
            ScenarioTarget {
                cluster: &self.cluster,
                control_plane: &self.control_plane,
            }
        }

        /// Creates a ConfigMap in team-a, as a user would; once more where a fault had closed the connection to the hook and
        /// the API server had not noticed yet.
        async fn write(&self) -> Result<ConfigMap, String> {
            match self.try_to_write().await {
                Err(error) if error.ends_with(": EOF") => self.try_to_write().await,
                written => written,
            }
        }

        async fn try_to_write(&self) -> Result<ConfigMap, String> {
            let api: Api<ConfigMap> = Api::namespaced(self.cluster.client().clone(), "team-a");
            let mut object = ConfigMap::default();
            object.metadata.generate_name = Some("test-".into());
            match api.create(&PostParams::default(), &object).await {
                Ok(object) => Ok(object),
                Err(kube::Error::Api(status)) => Err(status.message.clone()),
                Err(error) => panic!("no answer from the API server: {error}"),
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_scenario_can_be_injected_and_leaves_nothing_behind() {
        let lab = Lab::start().await;
        for scenario in SCENARIOS.iter().filter(|scenario| scenario.arranged.is_empty()) {
            let injected = scenario.inject(&lab.target()).await.unwrap();
            injected.clear(&lab.target()).await.unwrap();
            let written = lab.write().await;
            let written = written.unwrap_or_else(|error| panic!("after {}: {error}", scenario.name));
            let annotations = written.metadata.annotations.unwrap_or_default();
            assert!(
                annotations.contains_key("policy.example.com/seen"),
                "{}: the mutating hook was passed over",
                scenario.name
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broken_hook_is_named_by_the_write_it_refuses() {
        let lab = Lab::start().await;
        for (name, why) in [
            ("validating-refused", "connection refused"),
            ("validating-http-500", "boom"),
            ("not-an-admission-review", "invalid webhook response"),
            ("ca-mismatch", "x509"),
            ("certificate-expired", "x509"),
            ("no-endpoints", "no endpoints available"),
            ("deny-storm", "denied by the lab's policy"),
        ] {
            let injected = by_name(name).unwrap().inject(&lab.target()).await.unwrap();
            let refused = lab.write().await.expect_err(name);
            injected.clear(&lab.target()).await.unwrap();
            assert!(refused.contains(LabHook::Opa.webhook()), "{name}: {refused}");
            assert!(refused.contains(why), "{name}: {refused}");
        }
    }

    #[test]
    fn without_services_exactly_what_needs_them_is_not_played() {
        let unplayable: Vec<_> = SCENARIOS
            .iter()
            .filter(|scenario| scenario.unplayable(BackendReach::Url).is_some())
            .map(|scenario| scenario.name)
            .collect();
        assert_eq!(
            unplayable,
            [
                "one-of-three-refused",
                "no-endpoints",
                "stale-connections",
                "rollout-gap",
                "all-on-one-node",
                "firewalled",
                "self-blocked"
            ]
        );
        let needs_the_embedded_one: Vec<_> = SCENARIOS
            .iter()
            .filter(|scenario| scenario.unplayable(BackendReach::Namespace).is_some())
            .map(|scenario| scenario.name)
            .collect();
        assert_eq!(needs_the_embedded_one, ["firewalled"]);
    }
}
