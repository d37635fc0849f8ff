//! The clients whose writes keep a control plane and its nodes alive, with the timers of the real ones: leaders and kubelets.
//! They show what an outage of a webhook costs.

mod kubelet;
mod leader_election;
mod lease;
mod ledger;
mod node_lifecycle;
mod passage;
mod real;
mod requests;
mod startup;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::kubelet::Kubelet;
use self::leader_election::{ATTEMPT_LIMIT, hold_and_work};
use self::lease::RemoteLease;
pub use self::ledger::Casualties;
use self::ledger::LossLedger;
use self::node_lifecycle::NodeLifecycle;
pub use self::passage::{PassageWatch, Passages};
use self::real::{READ_LIMIT, RealLeader, watch_nodes};
use self::requests::ClientIdentity;
use self::startup::StartingServer;
use super::cluster::client_for;
use super::control_plane::{BackendReach, LabControlPlane};
use super::envtest::{Controller, SecondApiServer};
use super::workload::{LabWorkload, WorkloadRecord};

/// The identity that kube-controller-manager authenticates as.
const CONTROLLER_MANAGER: ClientIdentity = ClientIdentity {
    user: "system:kube-controller-manager",
    groups: &["system:authenticated"],
};
/// The identity that kube-scheduler authenticates as.
const SCHEDULER: ClientIdentity = ClientIdentity {
    user: "system:kube-scheduler",
    groups: &["system:authenticated"],
};
/// The account of the node-lifecycle controller, with `--use-service-account-credentials`.
const NODE_CONTROLLER: ClientIdentity = ClientIdentity {
    user: "system:serviceaccount:kube-system:node-controller",
    groups: &[
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ],
};
/// The identity that an API server has in requests to its own loopback address.
const API_SERVER: ClientIdentity = ClientIdentity {
    user: "system:apiserver",
    groups: &["system:masters", "system:authenticated"],
};
/// The groups of a kubelet.
const NODE_GROUPS: &[&str] = &["system:nodes", "system:authenticated"];

/// What holds the Leases of kube-controller-manager and kube-scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaders {
    /// Tasks with the timers of the real ones.
    #[default]
    Simulated,
    /// The real processes; casualties are read from their Leases and from the Nodes.
    Real,
}

/// Two leaders, the nodes' kubelets, a node-lifecycle controller, and an API server that can be started. Dropping it
/// ends them all.
pub struct ControlPlaneClients {
    leaders: Leaders,
    ledger: Arc<LossLedger>,
    start_api_server: Arc<Notify>,
    kubeconfigs: Vec<String>,
    tasks: JoinSet<()>,
}

impl ControlPlaneClients {
    /// Starts all but the API server that a scenario can start. If a second one serves, a real kube-scheduler and every other
    /// node write to it. The outcomes of their writes are in the workload's record as well; of a real leader only
    /// the renewals that succeed.
    ///
    /// # Errors
    /// When a client cannot be made, a real control plane refuses the nodes their rights, or a real leader does not lead.
    pub async fn start(
        control_plane: &LabControlPlane,
        second: Option<&SecondApiServer>,
        nodes: &[String],
        workload: &LabWorkload,
    ) -> anyhow::Result<Self> {
        let kubeconfig = control_plane.kubeconfig();
        if control_plane.reach() != BackendReach::Loopback {
            permit_nodes(&client_for(&kubeconfig).await?).await?;
        }
        let ledger = Arc::new(LossLedger::new(workload.record()));
        let mut tasks = JoinSet::new();
        let books = (workload.record(), Arc::clone(&ledger));
        let leaders = if let Some(controllers) = control_plane.controllers(second)? {
            let client = client_for(&kubeconfig).await?;
            follow(controllers, &client, books, &mut tasks).await?;
            Leaders::Real
        } else {
            simulate(&kubeconfig, nodes, books, &mut tasks).await?;
            Leaders::Simulated
        };

        for (place, node) in nodes.iter().enumerate() {
            let user = format!("system:node:{node}");
            let identity = ClientIdentity {
                user: &user,
                groups: NODE_GROUPS,
            };
            let at_second = second.filter(|_| place % 2 == 1).map(SecondApiServer::kubeconfig);
            let client = identity.client(at_second.as_ref().unwrap_or(&kubeconfig)).await?;
            let kubelet = Kubelet::new(client, node, workload.record(), Arc::clone(&ledger));
            // Nodes of a real cluster were not started in the same second.
            let share = (place + 1) as f64 / nodes.len() as f64;
            tasks.spawn(kubelet.run(kubelet::RENEW_INTERVAL.mul_f64(share)));
        }

        let start_api_server = Arc::new(Notify::new());
        let started = Arc::clone(&start_api_server);
        let server = match control_plane.second_launch()?.filter(|_| second.is_none()) {
            Some(launch) => StartingServer::real(launch, client_for(&kubeconfig).await?).await?,
            None => StartingServer::Simulated(API_SERVER.client(&kubeconfig).await?),
        };
        let noted = Arc::clone(&ledger);
        tasks.spawn(async move {
            started.notified().await;
            server.run(&noted).await;
        });
        Ok(Self {
            leaders,
            ledger,
            start_api_server,
            kubeconfigs: std::iter::once(kubeconfig)
                .chain(second.map(SecondApiServer::kubeconfig))
                .collect(),
            tasks,
        })
    }

    /// Whether the leaders are simulated or real.
    pub const fn leaders(&self) -> Leaders {
        self.leaders
    }

    /// Starts another API server. Once; a second call does nothing.
    pub fn start_api_server(&self) {
        self.start_api_server.notify_one();
    }

    /// When that API server became ready; `None` before.
    pub fn api_server_started_at(&self) -> Option<Instant> {
        self.ledger
            .server_started_at()
            .map(tokio::time::Instant::into_std)
    }

    /// Prepares to find out when the control plane's writes pass under a bypass, at each API server.
    ///
    /// # Errors
    /// When an API server refuses the Lease that is written for it.
    pub async fn passages(&self) -> anyhow::Result<Passages> {
        Passages::prepare(&self.kubeconfigs).await
    }

    /// Counts casualties from now on, for instance when a fault is injected.
    pub fn count_casualties(&self) {
        self.ledger.reset_counts();
    }

    /// What was lost since the last [`Self::count_casualties`].
    pub fn casualties(&self) -> Casualties {
        self.ledger.casualties()
    }

    /// The leaders lost since then, by the names of their Leases, one entry for each loss.
    pub fn lost_leaders(&self) -> Vec<String> {
        self.ledger.lost_leaders()
    }

    /// Stops all of them and waits until none is left.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The record of how writes go, and the ledger of what is lost.
type RecordAndLedger = (Arc<WorkloadRecord>, Arc<LossLedger>);

/// Starts the real leaders, waits until they lead, and tracks them and the nodes.
async fn follow(
    controllers: [Controller; 2],
    client: &kube::Client,
    (record, ledger): RecordAndLedger,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    for controller in controllers {
        let place = ("kube-system", controller.name());
        let agent = real::AGENT.to_owned();
        let lease = RemoteLease::new(client.clone(), place, READ_LIMIT, agent, Arc::clone(&record));
        let books = (Arc::clone(&record), Arc::clone(&ledger));
        tasks.spawn(RealLeader::start(controller, lease, books).await?.run());
    }
    tasks.spawn(watch_nodes(client.clone(), ledger));
    Ok(())
}

/// Starts leaders that behave as the real ones do, and the node-lifecycle controller of the first.
async fn simulate(
    kubeconfig: &str,
    nodes: &[String],
    (record, ledger): RecordAndLedger,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let lifecycle = NodeLifecycle::new(
        NODE_CONTROLLER.client(kubeconfig).await?,
        nodes.to_vec(),
        Arc::clone(&ledger),
    );
    let lifecycle = Arc::new(lifecycle);
    let leader = async |identity: &ClientIdentity, name: &'static str| {
        let client = identity.client(kubeconfig).await?;
        let agent = format!("{name}/v1.36.2 (linux/amd64) leader-election");
        anyhow::Ok(RemoteLease::new(
            client,
            ("kube-system", name),
            ATTEMPT_LIMIT,
            agent,
            Arc::clone(&record),
        ))
    };
    let manager = leader(&CONTROLLER_MANAGER, "kube-controller-manager").await?;
    let controllers = move || {
        let lifecycle = Arc::clone(&lifecycle);
        async move { lifecycle.run().await }
    };
    tasks.spawn(hold_and_work(manager, Arc::clone(&ledger), controllers));
    let scheduler = leader(&SCHEDULER, "kube-scheduler").await?;
    tasks.spawn(hold_and_work(scheduler, ledger, std::future::pending));
    Ok(())
}

/// Grants nodes their rights by RBAC, because a control plane of the lab has no Node authorizer.
async fn permit_nodes(client: &kube::Client) -> anyhow::Result<()> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    let group = "rbac.authorization.k8s.io";
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "lab-nodes"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
    }))
    .context("a manifest of the lab does not fit its type")?;
    match api.create(&PostParams::default(), &binding).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created
            .map(drop)
            .context("permitting the nodes of the lab to write"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::rbac::v1::ClusterRole;

    use super::*;
    use crate::lab::api::{ApiServer, ApiServerOptions};
    use crate::lab::cluster::Cluster;
    use crate::lab::workload::WorkloadOptions;

    /// A guard against a test that hangs, not a measurement.
    const GUARD: Duration = Duration::from_secs(30);

    async fn until(condition: impl AsyncFn() -> bool) {
        let wait = async {
            while !condition().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(GUARD, wait).await.expect("the test hangs");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn on_a_healthy_control_plane_every_client_has_a_lease_a_server_starts_and_nothing_is_lost() {
        // The lab's clients take the process's provider; a second test installing it is no error.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let api = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let control_plane = LabControlPlane::Embedded(api);
        let kubeconfig = control_plane.kubeconfig();
        let cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
        let no_tenants = WorkloadOptions {
            clients: 0,
            ..WorkloadOptions::default()
        };
        let workload = LabWorkload::start(&kubeconfig, &no_tenants).await.unwrap();
        let nodes = cluster.nodes();
        let clients = ControlPlaneClients::start(&control_plane, None, &nodes, &workload)
            .await
            .unwrap();
        let held = async |namespace: &str, name: &str| {
            let leases: Api<Lease> = Api::namespaced(cluster.client().clone(), namespace);
            let lease = leases.get_opt(name).await.unwrap();
            lease.is_some_and(|lease| lease.spec.and_then(|spec| spec.renew_time).is_some())
        };
        for leader in ["kube-controller-manager", "kube-scheduler"] {
            until(async || held("kube-system", leader).await).await;
        }
        for node in &nodes {
            until(async || held("kube-node-lease", node).await).await;
        }
        clients.start_api_server();
        let roles: Api<ClusterRole> = Api::all(cluster.client().clone());
        for role in startup::ROLES {
            until(async || roles.get_opt(role).await.unwrap().is_some()).await;
        }
        assert_eq!(clients.casualties(), Casualties::default());
        assert_eq!(clients.leaders(), Leaders::Simulated);
        assert_eq!(workload.totals().failed, 0);
        clients.stop().await;
    }
}
