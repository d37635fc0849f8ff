//! What a bypass and its end have to come to on any API server, whatever happens to the requests.

use hookwatch::domain::act::bypass::edit::{Author, Why, Wish};
use hookwatch::domain::act::bypass::{OPT_OUT_ANNOTATION, Rung, Standing, standing, touched};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::io::act::breaker::{Hand, Outcome, Server, Step};
use kube::Client;
use serde_json::Value;

use super::cutting::{Cutting, Fate, author, clock, hand};

fn why() -> Why {
    Why {
        reason: "it hangs".to_owned(),
        evidence: vec!["every probe timed out".to_owned()],
        expires: Some(clock()() + std::time::Duration::from_secs(1_800)),
    }
}

pub fn wish(rung: Rung) -> Wish {
    Wish::Bypass { rung, why: why() }
}

/// What only a person wishes for, on an API server that knows no match conditions.
pub fn ignore() -> Wish {
    Wish::Ignore { why: why() }
}

/// Whoever has that wish.
pub fn author_of(wish: &Wish) -> Author {
    Author {
        match_conditions: !matches!(wish, Wish::Ignore { .. }),
        ..author()
    }
}

/// All that is not the API server's own account of writes.
pub fn spec(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(key);
    }
    object
}

pub async fn read(hand: &Hand, hook: &HookId) -> Value {
    hand.read(hook.kind, &hook.configuration).await.unwrap().unwrap()
}

/// As it was before: byte by byte, and nothing of hookwatch's.
pub fn assert_restored(object: &Value, original: &Value, what: &str) {
    let text = |object: &Value| serde_json::to_string_pretty(&spec(object)).unwrap();
    assert_eq!(text(object), text(original), "{what}");
    let owned = &object["metadata"]["managedFields"];
    assert!(!names_hookwatch(owned), "{what}: {owned}");
}

/// Whether anything of hookwatch's is in there; its owner's word to it is the owner's.
pub fn names_hookwatch(value: &Value) -> bool {
    let text = value.to_string();
    text.replace(OPT_OUT_ANNOTATION, "").contains("hookwatch")
}

pub async fn applied(hand: &Hand, hook: &HookId, wish: &Wish) {
    let report = hand.carry_out(hook, wish, &author_of(wish)).await;
    assert_eq!(report.outcome, Outcome::Applied, "{wish:?}: {:?}", report.steps);
}

/// Every rung, its probation, relapse and end.
pub async fn every_rung_comes_and_goes(hand: &Hand, hooks: &[HookId]) {
    for hook in hooks {
        let original = read(hand, hook).await;
        for &rung in Rung::ALL {
            let bypass = wish(rung);
            applied(hand, hook, &bypass).await;
            let shown = hand.shown(hook, &bypass, &author()).await;
            assert!(
                !shown.is_empty() && shown.iter().all(|shown| shown.heard.is_ok()),
                "{shown:?}"
            );
            let again = hand.carry_out(hook, &bypass, &author()).await;
            assert_eq!((again.outcome, again.steps), (Outcome::AlreadySo, Vec::new()));
            let bypassed = read(hand, hook).await;
            match standing(&bypassed, &hook.webhook) {
                Standing::Bypassed { rung: Some(is), .. } if is == rung => {}
                other => panic!("{rung}: {other:?}"),
            }
            applied(hand, hook, &Wish::Probation).await;
            applied(hand, hook, &wish(rung)).await;
            applied(hand, hook, &Wish::Probation).await;
            applied(hand, hook, &Wish::Restore).await;
            assert_restored(&read(hand, hook).await, &original, rung.as_str());
            applied(hand, hook, &wish(rung)).await;
            applied(hand, hook, &Wish::Restore).await;
            let shown = hand.shown(hook, &Wish::Restore, &author()).await;
            assert!(shown.iter().all(|shown| shown.heard.is_ok()), "{shown:?}");
            assert_restored(&read(hand, hook).await, &original, rung.as_str());
        }
    }
}

/// A way of one's own, past whatever cuts.
pub fn straight(client: &Client) -> Hand {
    hand(vec![Server::new("straight", client.clone(), true)])
}

/// Dies at every request there is, before and after it has arrived, and is then brought back by another process.
/// Says at how many places.
pub async fn killed_anywhere_is_brought_back(client: &Client, hook: &HookId, bypasses: &[Wish]) -> usize {
    let straight = straight(client);
    let original = read(&straight, hook).await;
    let mut places = 0;
    for bypass in bypasses {
        for probation in [false, true] {
            let mut wishes = vec![bypass.clone(), Wish::Restore];
            if probation {
                wishes.insert(1, Wish::Probation);
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
                    let (process, reached) = (cutting.hand().await, async {
                        while cutting.count() < last {
                            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                        }
                    });
                    let all_of_it = async {
                        for wish in &wishes {
                            process.carry_out(hook, wish, &author_of(wish)).await;
                        }
                    };
                    // What is dropped at that moment is what kill -9 ends.
                    let through = tokio::select! {
                        () = all_of_it => cutting.count() < last,
                        () = reached => false,
                    };
                    if arrives {
                        // The request has arrived, so it is carried out even though nobody waits for its answer.
                        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                    }
                    drop(process);
                    let what =
                        format!("{bypass:?}, probation {probation}, request {last}, arrives {arrives}");
                    let left = read(&straight, hook).await;
                    for (webhook, standing) in touched(&left) {
                        assert_eq!(webhook, &*hook.webhook, "{what}");
                        assert!(
                            matches!(standing, Standing::Bypassed { .. } | Standing::Ignored { .. }),
                            "{what}: {standing:?}"
                        );
                    }
                    let report = straight.carry_out(hook, &Wish::Restore, &author()).await;
                    assert!(
                        matches!(report.outcome, Outcome::Applied | Outcome::AlreadySo),
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

/// Loses one request, or its answer, or has it answered wrongly, at every place; the wish comes true all the same.
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
                let hand = cutting.hand().await;
                let what = format!("{rung}, {bad:?} at {place}");
                let report = hand.carry_out(hook, &wish(rung), &author()).await;
                assert_eq!(report.outcome, Outcome::Applied, "{what}: {:?}", report.steps);
                let restored = hand.carry_out(hook, &Wish::Restore, &author()).await;
                assert_eq!(restored.outcome, Outcome::Applied, "{what}: {:?}", restored.steps);
                assert_restored(&read(&straight, hook).await, &original, &what);
                if cutting.count() < place {
                    break;
                }
                if cutting.writes().contains(&place) && bad == Fate::AnswerLost {
                    let steps = report.steps.iter().chain(&restored.steps);
                    assert!(
                        steps
                            .into_iter()
                            .any(|step| matches!(step, Step::Ambiguous { .. })),
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
