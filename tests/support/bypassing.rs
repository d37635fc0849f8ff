//! The required results of a bypass and its restore on any API server, whatever happens to the requests.

use hookwatch::app::engine::clock;
use hookwatch::domain::act::bypass::edit::{Author, Desired, Why};
use hookwatch::domain::act::bypass::{BypassStanding, OPT_OUT_ANNOTATION, Rung, standing, touched};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::io::act::breaker::{ApiServerClient, ConfigWriter, PatchOutcome, PatchStep};
use kube::Client;
use serde_json::Value;

use super::cutting::{Cutting, Fate, author, writer};
pub use crate::engines::spec;

fn why() -> Why {
    Why {
        reason: "it hangs".to_owned(),
        evidence: vec!["every probe timed out".to_owned()],
        expires: Some(clock()() + std::time::Duration::from_secs(1_800)),
    }
}

pub fn desired(rung: Rung) -> Desired {
    Desired::Bypass { rung, why: why() }
}

/// The desired state for API servers without match conditions, which only a person can request.
pub fn ignore() -> Desired {
    Desired::Ignore { why: why() }
}

/// The author for a desired state: `Ignore` is for API servers without match conditions.
pub fn author_of(desired: &Desired) -> Author {
    Author {
        match_conditions: !matches!(desired, Desired::Ignore { .. }),
        ..author()
    }
}

pub async fn read(writer: &ConfigWriter, hook: &HookId) -> Value {
    writer
        .read(hook.kind, &hook.configuration)
        .await
        .unwrap()
        .unwrap()
}

/// Asserts that the object equals the original byte for byte and hookwatch owns nothing in it.
pub fn assert_restored(object: &Value, original: &Value, what: &str) {
    let text = |object: &Value| serde_json::to_string_pretty(&spec(object)).unwrap();
    assert_eq!(text(object), text(original), "{what}");
    let owned = &object["metadata"]["managedFields"];
    assert!(!names_hookwatch(owned), "{what}: {owned}");
}

/// Whether the value names hookwatch, except in the owner's opt-out annotation.
pub fn names_hookwatch(value: &Value) -> bool {
    let text = value.to_string();
    text.replace(OPT_OUT_ANNOTATION, "").contains("hookwatch")
}

pub async fn applied(writer: &ConfigWriter, hook: &HookId, desired: &Desired) {
    let report = writer.carry_out(hook, desired, &author_of(desired)).await;
    assert_eq!(
        report.outcome,
        PatchOutcome::Applied,
        "{desired:?}: {:?}",
        report.steps
    );
}

/// Plays every rung with probation, relapse and restore.
pub async fn every_rung_comes_and_goes(writer: &ConfigWriter, hooks: &[HookId]) {
    for hook in hooks {
        let original = read(writer, hook).await;
        for &rung in Rung::ALL {
            let bypass = desired(rung);
            applied(writer, hook, &bypass).await;
            let shown = writer.propagation(hook, &bypass, &author()).await;
            assert!(
                !shown.is_empty() && shown.iter().all(|shown| shown.propagated.is_ok()),
                "{shown:?}"
            );
            let again = writer.carry_out(hook, &bypass, &author()).await;
            assert_eq!(
                (again.outcome, again.steps),
                (PatchOutcome::AlreadySo, Vec::new())
            );
            let bypassed = read(writer, hook).await;
            match standing(&bypassed, &hook.webhook) {
                BypassStanding::Bypassed { rung: Some(is), .. } if is == rung => {}
                other => panic!("{rung}: {other:?}"),
            }
            applied(writer, hook, &Desired::Probation).await;
            applied(writer, hook, &desired(rung)).await;
            applied(writer, hook, &Desired::Probation).await;
            applied(writer, hook, &Desired::Restore).await;
            assert_restored(&read(writer, hook).await, &original, rung.as_str());
            applied(writer, hook, &desired(rung)).await;
            applied(writer, hook, &Desired::Restore).await;
            let shown = writer.propagation(hook, &Desired::Restore, &author()).await;
            assert!(shown.iter().all(|shown| shown.propagated.is_ok()), "{shown:?}");
            assert_restored(&read(writer, hook).await, &original, rung.as_str());
        }
    }
}

/// A writer that does not go through the proxy.
pub fn straight(client: &Client) -> ConfigWriter {
    writer(vec![ApiServerClient::new("straight", client.clone(), true)])
}

/// Kills the process at each request, before and after it arrives, and lets another process restore. Returns the number of
/// places.
pub async fn killed_anywhere_is_brought_back(client: &Client, hook: &HookId, bypasses: &[Desired]) -> usize {
    let straight = straight(client);
    let original = read(&straight, hook).await;
    let mut places = 0;
    for bypass in bypasses {
        for probation in [false, true] {
            let mut desired_states = vec![bypass.clone(), Desired::Restore];
            if probation {
                desired_states.insert(1, Desired::Probation);
            }
            for arrives in [false, true] {
                let mut last = 1;
                while last < 40 {
                    let fate = move |number: usize| match number.cmp(&last) {
                        std::cmp::Ordering::Less => Fate::Pass,
                        std::cmp::Ordering::Equal if arrives => Fate::AnswerLost,
                        _ => Fate::Lost,
                    };
                    let cutting = Cutting::start(client.clone(), fate).await;
                    let (process, reached) = (cutting.writer().await, async {
                        // Wait for the API server's answer, because the end of the process could stop the request.
                        let so_far = || {
                            if arrives {
                                cutting.carried_out()
                            } else {
                                cutting.count()
                            }
                        };
                        while so_far() < last {
                            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                        }
                    });
                    let all_of_it = async {
                        for desired in &desired_states {
                            process.carry_out(hook, desired, &author_of(desired)).await;
                        }
                    };
                    // Dropping the future at this moment is like kill -9.
                    let through = tokio::select! {
                        () = all_of_it => cutting.count() < last,
                        () = reached => false,
                    };
                    drop(process);
                    let what =
                        format!("{bypass:?}, probation {probation}, request {last}, arrives {arrives}");
                    assert!(through || !arrives || cutting.carried_out() == last, "{what}");
                    let left = read(&straight, hook).await;
                    for (webhook, standing) in touched(&left) {
                        assert_eq!(webhook, &*hook.webhook, "{what}");
                        assert!(
                            matches!(
                                standing,
                                BypassStanding::Bypassed { .. } | BypassStanding::Ignored { .. }
                            ),
                            "{what}: {standing:?}"
                        );
                    }
                    let report = straight.carry_out(hook, &Desired::Restore, &author()).await;
                    assert!(
                        matches!(report.outcome, PatchOutcome::Applied | PatchOutcome::AlreadySo),
                        "{what}: {report:?}"
                    );
                    assert_restored(&read(&straight, hook).await, &original, &what);
                    if through {
                        break;
                    }
                    places += 1;
                    last += 1;
                }
            }
        }
    }
    places
}

/// Loses one request or its answer, or answers it wrongly, at every place. The desired state must still be reached.
pub async fn one_that_is_lost_is_made_good(client: &Client, hook: &HookId) -> usize {
    let straight = straight(client);
    let original = read(&straight, hook).await;
    let mut places = 0;
    let fates = [
        Fate::Lost,
        Fate::AnswerLost,
        Fate::Answered(429, Some(0)),
        Fate::Answered(503, None),
        Fate::Misreported(500),
        Fate::Misreported(504),
    ];
    for &rung in Rung::ALL {
        for bad in fates {
            let mut place = 1;
            loop {
                let cutting = Cutting::start(
                    client.clone(),
                    move |number| if number == place { bad } else { Fate::Pass },
                )
                .await;
                let writer = cutting.writer().await;
                let what = format!("{rung}, {bad:?} at {place}");
                let report = writer.carry_out(hook, &desired(rung), &author()).await;
                assert_eq!(
                    report.outcome,
                    PatchOutcome::Applied,
                    "{what}: {:?}",
                    report.steps
                );
                let restored = writer.carry_out(hook, &Desired::Restore, &author()).await;
                assert_eq!(
                    restored.outcome,
                    PatchOutcome::Applied,
                    "{what}: {:?}",
                    restored.steps
                );
                assert_restored(&read(&straight, hook).await, &original, &what);
                if cutting.count() < place {
                    break;
                }
                if cutting.writes().contains(&place) && bad == Fate::AnswerLost {
                    let steps = report.steps.iter().chain(&restored.steps);
                    assert!(
                        steps
                            .into_iter()
                            .any(|step| matches!(step, PatchStep::Ambiguous { .. })),
                        "{what}"
                    );
                }
                places += 1;
                place += 1;
            }
        }
    }
    places
}

pub fn validating(configuration: &str, webhook: &str) -> HookId {
    HookId::new(HookKind::Validating, configuration, webhook)
}
