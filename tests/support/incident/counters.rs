//! The counters of an incident's API servers: an open loop of writes, each sent to every hook.

use std::collections::BTreeMap;

use hookwatch::domain::cluster::hook::{FailurePolicy, HookKind};
use hookwatch::domain::observe::snapshot::{ByRequestKind, Cumulative, Snapshot, WriteKey, WriteOperation};

use super::{Fault, Incident, Planned};

/// Interval between batches of writes, in milliseconds.
const BATCH: u64 = 200;
/// Milliseconds of a write without hooks.
const OWN: u64 = 3;
/// Milliseconds of a healthy hook's answer: much more than a refused connection takes.
const ANSWER: u64 = 4;

/// How one write went.
pub struct Walk<'a> {
    pub ends: u64,
    pub refused_by: Option<&'a Planned>,
    calls: Vec<Call<'a>>,
}

struct Call<'a> {
    hook: &'a Planned,
    ends: u64,
    took: u64,
    result: Answered,
}

#[derive(Clone, Copy, PartialEq)]
enum Answered {
    Allowed,
    Denied,
    /// The call failed, with the code that the API server counts.
    Failed(u16),
}

/// Sends one write to the hooks: the mutating ones in turn, the validating ones in parallel. `number` is `None` for a
/// canary.
pub fn walk(incident: &Incident, started: u64, number: Option<u64>) -> Walk<'_> {
    let mut walk = Walk {
        ends: started + OWN,
        refused_by: None,
        calls: Vec::new(),
    };
    for kind in [HookKind::Mutating, HookKind::Validating] {
        let began = walk.ends;
        for hook in incident.hooks.iter().filter(|hook| hook.kind == kind) {
            let met = match (hook.every, number) {
                (None, _) => true,
                (Some(every), Some(number)) => number.is_multiple_of(every),
                (Some(_), None) => false,
            };
            let over = kind == HookKind::Mutating && walk.refused_by.is_some();
            if !met || over {
                continue;
            }
            let (took, result) = answer(hook, incident.fault(hook, started), number.unwrap_or(1));
            let ends = if kind == HookKind::Mutating {
                walk.ends + took
            } else {
                began + took
            };
            let refuses = match result {
                Answered::Allowed => false,
                Answered::Denied => true,
                Answered::Failed(_) => hook.policy == FailurePolicy::Fail,
            };
            if refuses && walk.refused_by.is_none() {
                walk.refused_by = Some(hook);
            }
            walk.ends = walk.ends.max(ends);
            walk.calls.push(Call {
                hook,
                ends,
                took,
                result,
            });
        }
        if walk.refused_by.is_some() {
            break;
        }
    }
    walk
}

/// How long one call takes, and how it ends.
fn answer(hook: &Planned, fault: Fault, number: u64) -> (u64, Answered) {
    match fault {
        Fault::Hang => (hook.timeout * 1_000, Answered::Failed(503)),
        Fault::Slow(ms) if ms >= hook.timeout * 1_000 => (hook.timeout * 1_000, Answered::Failed(503)),
        Fault::Slow(ms) => (ms, Answered::Allowed),
        Fault::Refuse => (1, Answered::Failed(503)),
        Fault::Certificate => (ANSWER, Answered::Failed(503)),
        Fault::ServerError => (ANSWER, Answered::Failed(500)),
        Fault::OneBad { met: true } if number.is_multiple_of(u64::from(hook.endpoints)) => {
            (1, Answered::Failed(503))
        }
        Fault::Deny => (ANSWER, Answered::Denied),
        Fault::Nothing | Fault::OneBad { .. } | Fault::Rollout => (ANSWER, Answered::Allowed),
    }
}

/// Something that is counted.
enum Counted<'a> {
    Began,
    Call(Call<'a>),
    Ended { took: u64, ok: bool, denied: bool },
    DryRun { took: u64 },
}

/// Every reading of every API server.
pub fn readings(incident: &Incident) -> Vec<Vec<(u64, Snapshot)>> {
    (0..incident.servers).map(|server| of(incident, server)).collect()
}

fn of(incident: &Incident, server: usize) -> Vec<(u64, Snapshot)> {
    let restart = incident
        .restart
        .filter(|(which, _)| *which == server)
        .map(|(_, at)| at);
    let counted = counted(incident, server);
    let mut counted = counted.iter().peekable();
    let mut snapshot = fresh(None);
    let mut readings = Vec::new();
    let mut restarted = false;
    let offset = 90 * server as u64;
    for ms in (500 + offset..=incident.end).step_by(incident.scrape_every as usize) {
        while let Some((at, began, count, what)) = counted.next_if(|(at, ..)| *at <= ms) {
            if let Some(restart) = restart.filter(|restart| at >= restart) {
                if !restarted {
                    (snapshot, restarted) = (fresh(Some(restart)), true);
                }
                // Requests under way ended with the process.
                if *began < restart {
                    continue;
                }
            }
            take(&mut snapshot, *count, what);
        }
        if let Some(restart) = restart.filter(|restart| ms >= *restart && !restarted) {
            (snapshot, restarted) = (fresh(Some(restart)), true);
        }
        // Reads and etcd requests have a constant rate from the start of the process.
        let since = restart.filter(|restart| ms >= *restart).unwrap_or(0);
        let seconds = (ms - since) as f64 / 1_000.0;
        let mut reading = snapshot.clone();
        reading.reads = even(20.0 * incident.writes * seconds, 0.002);
        reading.etcd = even(5.0 * incident.writes * seconds, 0.002);
        readings.push((ms, reading));
    }
    readings
}

fn even(count: f64, seconds_each: f64) -> Cumulative {
    Cumulative {
        sum: count * seconds_each,
        count,
    }
}

/// Everything that one API server counts, in order: instant, start of the request, how many times, what.
fn counted(incident: &Incident, server: usize) -> Vec<(u64, u64, f64, Counted<'_>)> {
    let mut all = Vec::new();
    let count = incident.writes * BATCH as f64 / 1_000.0;
    for (number, started) in (0..incident.end).step_by(BATCH as usize).enumerate() {
        let walk = walk(incident, started, Some(number as u64));
        all.push((started, started, count, Counted::Began));
        let by = walk.refused_by.map(|hook| incident.fault(hook, started));
        let ended = Counted::Ended {
            took: walk.ends - started,
            ok: by.is_none(),
            denied: by == Some(Fault::Deny),
        };
        all.push((walk.ends, started, count, ended));
        for call in walk.calls {
            all.push((call.ends, started, count, Counted::Call(call)));
        }
    }
    // Canaries are counted one by one; the API servers get them in turn.
    for (number, started) in (200..incident.end)
        .step_by(incident.canary_every as usize)
        .enumerate()
    {
        if number % incident.servers != server {
            continue;
        }
        let walk = walk(incident, started, None);
        let took = walk.ends - started;
        all.push((walk.ends, started, 2.0, Counted::DryRun { took }));
        for call in walk.calls {
            all.push((call.ends, started, 2.0, Counted::Call(call)));
        }
    }
    all.sort_by_key(|(at, ..)| *at);
    all
}

fn fresh(restart: Option<u64>) -> Snapshot {
    let began =
        super::at(restart.unwrap_or(0)).unix_seconds() - if restart.is_none() { 86_400.0 } else { 0.0 };
    Snapshot {
        process_start: Some(began),
        in_flight: Some(ByRequestKind::default()),
        has_sli: true,
        is_api_server: true,
        hooks: BTreeMap::new(),
        ..Snapshot::default()
    }
}

fn take(snapshot: &mut Snapshot, count: f64, what: &Counted<'_>) {
    let add = |cumulative: &mut Cumulative, took: u64| {
        cumulative.count += count;
        cumulative.sum += count * took as f64 / 1_000.0;
    };
    let in_flight = snapshot.in_flight.get_or_insert_default();
    match what {
        Counted::Began => in_flight.mutating += count,
        Counted::DryRun { took } => add(&mut snapshot.dry_runs, *took),
        Counted::Ended { took, ok, denied } => {
            in_flight.mutating -= count;
            let key = WriteKey {
                operation: WriteOperation::Create,
                group: String::new(),
                resource: "configmaps".into(),
                subresource: String::new(),
            };
            let series = snapshot.writes.entry(key).or_default();
            add(&mut series.duration, *took);
            add(&mut series.sli, OWN);
            let results = &mut snapshot.write_results;
            match (ok, denied) {
                (true, _) => results.ok += count,
                (_, true) => results.refused += count,
                _ => results.failed += count,
            }
        }
        Counted::Call(call) => {
            let key = (call.hook.kind, call.hook.name.clone());
            let series = snapshot.hooks.entry(key).or_default();
            add(&mut series.calls, call.took);
            add(&mut series.writes, call.took);
            let code = match call.result {
                Answered::Failed(code) => code,
                _ => 200,
            };
            *series.codes.entry(code).or_default() += count;
            match (call.result, call.hook.policy) {
                (Answered::Allowed, _) => {}
                (Answered::Denied, _) => {
                    series.rejections.denied += count;
                    add(&mut series.rejected, call.took);
                }
                (Answered::Failed(_), FailurePolicy::Fail) => {
                    series.rejections.calling += count;
                    add(&mut series.rejected, call.took);
                }
                (Answered::Failed(_), FailurePolicy::Ignore) => series.fail_open += count,
            }
        }
    }
}
