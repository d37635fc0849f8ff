//! Draws incidents.

use hookwatch::domain::cluster::hook::{FailurePolicy, HookKind};
use proptest::prelude::*;

use super::{Fault, Incident, Planned};

/// Incidents with one to three hooks beside one that is always well, whose name is `well`. Half of the traffic is still
/// enough that the writes of a moment meet what the judge asks for at least.
pub fn incidents() -> impl Strategy<Value = Incident> {
    let hooks = prop::collection::vec(hook(), 1..=3);
    let pace = (
        prop::sample::select(vec![2_000_u64, 3_000, 5_000]),
        prop::sample::select(vec![2_000_u64, 3_000, 5_000]),
        prop::sample::select(vec![2_000_u64, 5_000]),
    );
    let times = (30_u64..45, 20_u64..45);
    (hooks, 1_usize..=3, 60.0..300.0_f64, pace, times).prop_map(
        |(mut hooks, servers, writes, (scrape_every, probe_every, canary_every), (calm, broken))| {
            for (number, hook) in hooks.iter_mut().enumerate() {
                hook.name = format!("hook-{number}.example.com");
            }
            hooks.push(planned("well", Fault::Nothing));
            let fault_at = calm * 1_000 + 50;
            let clear_at = fault_at + broken * 1_000;
            Incident {
                hooks,
                servers,
                writes,
                scrape_every,
                probe_every,
                canary_every,
                fault_at,
                clear_at,
                end: clear_at + 100_000,
                restart: None,
            }
        },
    )
}

/// The incident of one fault, beside a hook that is well.
pub fn of(fault: Fault) -> Incident {
    Incident {
        hooks: vec![
            planned("hook-0.example.com", fault),
            planned("well", Fault::Nothing),
        ],
        servers: 2,
        writes: 100.0,
        scrape_every: 2_000,
        probe_every: 2_000,
        canary_every: 2_000,
        fault_at: 30_050,
        clear_at: 60_050,
        end: 160_050,
        restart: None,
    }
}

fn planned(name: &str, fault: Fault) -> Planned {
    Planned {
        name: name.into(),
        kind: HookKind::Validating,
        policy: FailurePolicy::Fail,
        timeout: 10,
        endpoints: 3,
        fault,
        every: None,
    }
}

fn hook() -> impl Strategy<Value = Planned> {
    let fault = prop_oneof![
        2 => Just(Fault::Nothing),
        2 => Just(Fault::Hang),
        2 => Just(Fault::Refuse),
        1 => Just(Fault::ServerError),
        2 => (300_u64..3_000).prop_map(Fault::Slow),
        1 => Just(Fault::Deny),
        1 => any::<bool>().prop_map(|met| Fault::OneBad { met }),
        1 => Just(Fault::Certificate),
        1 => Just(Fault::Rollout),
    ];
    let kind = prop_oneof![Just(HookKind::Validating), Just(HookKind::Mutating)];
    let policy = prop_oneof![3 => Just(FailurePolicy::Fail), 1 => Just(FailurePolicy::Ignore)];
    (fault, kind, policy, 1_u64..=10, 2_u8..=3).prop_map(|(fault, kind, policy, timeout, endpoints)| {
        Planned {
            name: String::new(),
            kind,
            policy,
            timeout,
            endpoints,
            fault,
            every: None,
        }
    })
}
