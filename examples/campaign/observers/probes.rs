//! Probes: hookwatch's requests to each backend, over its own network path.

use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::cluster::hook::{Backend, BackendAddress, BackendPath, Hook, HookId, ProbeLevel};
use hookwatch::domain::cluster::inventory::Inventory;
use hookwatch::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase,
    ProbeReport, TlsFault,
};
use hookwatch::domain::watchdog::{Attention, Event};

use super::{Coming, Pace};
use crate::model::cluster::Cluster;
use crate::model::inventory::time;
use crate::model::manner::{Attempt, End, Manner, Met, Stage, meet, was_gone};
use crate::model::timeline::Timeline;
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

/// Most probes on new connections to one backend at once.
const FRESH_AT_ONCE: usize = 2;
/// The daemon keeps a connection for this long after its backend has left the endpoints.
const WATCHED: At = 90 * SECOND;
/// The connect time in reports of probes that dialled. Only its presence matters.
const DIALLED: Duration = Duration::from_millis(1);

/// The probes of one backend for one webhook on one kind of connection.
#[derive(Debug)]
struct Row {
    hook: Arc<Hook>,
    backend: Backend,
    connection: ConnectionKind,
    /// Index of the Service in the model.
    service: usize,
    last: Option<At>,
    first: At,
    /// Share of the interval by which the next probe comes early, 0.0 to 0.1.
    early: f64,
    /// When the probes under way end.
    under_way: Vec<At>,
    /// When the kept connection was opened, if it is open.
    opened: Option<At>,
    /// When the backend left the endpoints; `None` while it is one.
    left: Option<At>,
}

#[derive(Debug)]
pub(super) struct Probes {
    cluster: Arc<Cluster>,
    rows: Vec<Row>,
}

impl Probes {
    pub(super) fn new(cluster: &Arc<Cluster>, _begin: At) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            rows: Vec::new(),
        }
    }

    /// Takes a new inventory: adds new backends, and drops those that have left.
    pub(super) fn know(&mut self, inventory: &Inventory, cluster: &Cluster, now: At, random: &mut Random) {
        let mut known = std::mem::take(&mut self.rows);
        for hook in &inventory.hooks {
            let spec = cluster.hooks.iter().find(|spec| spec.id == hook.id);
            let Some(service) = spec.map(|spec| spec.service) else {
                continue;
            };
            for backend in hook.backends() {
                for connection in [ConnectionKind::Fresh, ConnectionKind::Kept] {
                    let same = |row: &Row| {
                        row.hook.id == hook.id && row.backend == backend && row.connection == connection
                    };
                    let row = match known.iter().position(same) {
                        Some(index) => Row {
                            hook: Arc::clone(hook),
                            left: None,
                            ..known.swap_remove(index)
                        },
                        None => Row {
                            hook: Arc::clone(hook),
                            backend: backend.clone(),
                            connection,
                            service,
                            last: None,
                            first: now + seconds(random.between(0.0, 0.5)),
                            early: 0.0,
                            under_way: Vec::new(),
                            opened: None,
                            left: None,
                        },
                    };
                    self.rows.push(row);
                }
            }
        }
        // An open connection is kept for a while after its backend has left.
        let there = |row: &Row| inventory.hooks.iter().any(|hook| hook.id == row.hook.id);
        let open = |row: &Row| row.opened.is_some() || !row.under_way.is_empty();
        for mut row in known {
            if row.connection == ConnectionKind::Kept && there(&row) && open(&row) {
                row.left = row.left.or(Some(now));
                self.rows.push(row);
            }
        }
    }

    pub(super) fn look(
        &mut self,
        now: At,
        pace: Pace,
        (attention, look_since): (&Attention, Option<At>),
        random: &mut Random,
        coming: &mut Coming,
    ) {
        let cluster = Arc::clone(&self.cluster);
        self.rows.retain(|row| match row.left {
            Some(left) => now < left + WATCHED && (row.opened.is_some() || !row.under_way.is_empty()),
            None => true,
        });
        for row in &mut self.rows {
            row.under_way.retain(|ends| *ends > now);
            let at_once = match row.connection {
                ConnectionKind::Fresh => FRESH_AT_ONCE,
                ConnectionKind::Kept => 1,
            };
            if row.under_way.len() >= at_once {
                continue;
            }
            let interval = pace.now(attention.hooks.contains(&row.hook.id));
            let due = match row.last {
                Some(last) => last + interval - (interval as f64 * row.early) as At,
                None => row.first,
            };
            let seen = row.connection == ConnectionKind::Kept || row.last >= look_since;
            // A backend that has left is not dialled.
            if now < due && seen || row.left.is_some() && row.opened.is_none() {
                continue;
            }
            (row.last, row.early) = (Some(now), random.between(0.0, 0.1));
            let (met, reuse) = attempt(&cluster, row, now, random);
            let ended = met.ended;
            row.under_way.push(ended);
            row.opened = match (row.connection, met.keeps) {
                (ConnectionKind::Kept, true) => Some(row.opened.filter(|_| reuse).unwrap_or(now)),
                _ => None,
            };
            announce(row, now, (met, reuse), coming);
        }
    }
}

/// Simulates a probe. Returns its result and whether it used the kept connection.
fn attempt(cluster: &Cluster, row: &Row, now: At, random: &mut Random) -> (Met, bool) {
    let service = &cluster.services[row.service];
    let limit = now + row.hook.timeout.as_micros() as At;
    let backend = match row.backend.path {
        BackendPath::ClusterIp => random.pick(&service.listed(now)),
        BackendPath::Url => Some(0),
        BackendPath::Endpoint => {
            let is =
                |at: &usize| BackendAddress::Socket(service.backends[*at].address) == row.backend.address;
            (0..service.backends.len()).find(is)
        }
    };
    let mut latency = random.log_normal(service.probe_latency, 0.4);
    // A retransmission after a lost packet takes a second.
    if random.chance(0.001) {
        latency += 1.0;
    }
    let attempt = |open| Attempt {
        at: now,
        limit,
        latency: seconds(latency),
        open,
    };
    if !cluster.our_way.at(now) {
        // While the path is broken nothing answers. Once it works again, the request meets the backend as it then behaves.
        let mut dark = Timeline::always(Manner::Vanished);
        let mut from = cluster.our_way.next_change(now).unwrap_or(limit);
        let backend = backend.map(|backend| &service.backends[backend].to_us);
        loop {
            let manner = backend.map_or(Manner::Well, |backend| *backend.at(from));
            dark.set(from, manner);
            match backend.and_then(|backend| backend.next_change(from)) {
                Some(next) if next < limit => from = next,
                _ => break,
            }
        }
        let open = row.opened.is_some();
        return (meet(&dark, attempt(open)), open);
    }
    if row.backend.path == BackendPath::ClusterIp && !service.cluster_ip_reached {
        return (meet(&Timeline::always(Manner::Vanished), attempt(false)), false);
    }
    let Some(backend) = backend else {
        return (meet(&Timeline::always(Manner::Refusing), attempt(false)), false);
    };
    let manner = &service.backends[backend].to_us;
    let open = row.opened.is_some_and(|opened| !was_gone(manner, opened, now));
    if !open && !service.trusted.at(now) {
        return (
            meet(&Timeline::always(Manner::BadCertificate), attempt(false)),
            false,
        );
    }
    (meet(manner, attempt(open)), open)
}

fn phase(stage: Stage) -> ProbePhase {
    match stage {
        Stage::Connect => ProbePhase::Connect,
        Stage::Tls => ProbePhase::Tls,
        Stage::Answer => ProbePhase::FirstByte,
    }
}

/// Plans the report of the probe, and before it the reports that it is overdue.
fn announce(row: &Row, now: At, (met, reuse): (Met, bool), coming: &mut Coming) {
    let id: &HookId = &row.hook.id;
    for mark in [SECOND, 2 * SECOND] {
        if met.ended > now + mark {
            let overdue = ProbeOverdue {
                hook: id.clone(),
                backend: row.backend.clone(),
                connection: row.connection,
                started: time(now),
                waiting: Duration::from_micros(mark),
                phase: match met.end {
                    End::TimedOut(stage) => phase(stage),
                    _ => ProbePhase::FirstByte,
                },
            };
            coming.tell(now + mark, Event::ProbeOverdue(Box::new(overdue)));
        }
    }
    let report = ProbeReport {
        hook: id.clone(),
        backend: row.backend.clone(),
        level: ProbeLevel::Http,
        connection: row.connection,
        started: time(now),
        took: Duration::from_micros(met.ended - now),
        phases: PhaseDurations {
            connect: (!reuse).then_some(DIALLED),
            ..PhaseDurations::default()
        },
        outcome: outcome(met.end),
        certificates: CertificateFacts::default(),
        shared: false,
    };
    coming.tell(met.ended, Event::Probed(Box::new(report)));
}

/// The outcome of a probe. A probe is not a review, so any HTTP answer shows that the server is alive.
fn outcome(end: End) -> ProbeOutcome {
    match end {
        End::Answered | End::Nonsense => ProbeOutcome::Answered(ProbeAnswer::Http { status: 404 }),
        End::Status(status) => ProbeOutcome::Answered(ProbeAnswer::Http { status }),
        End::TimedOut(stage) => ProbeOutcome::TimedOut { phase: phase(stage) },
        End::Refused | End::NoEndpoints | End::NoService => ProbeOutcome::Refused,
        End::Unroutable => ProbeOutcome::Unreachable {
            why: "no route to host".to_owned(),
        },
        End::Tls => ProbeOutcome::TlsRejected {
            fault: TlsFault::Expired,
            why: "the certificate has expired".to_owned(),
        },
        End::Cut => ProbeOutcome::Lost {
            phase: ProbePhase::FirstByte,
            why: "connection reset by peer".to_owned(),
        },
    }
}
