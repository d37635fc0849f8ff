//! Announcements about a hook in the cluster itself: Kubernetes Events on its configuration, one per change.
//!
//! Every replica tracks changes, but only the leader announces them. A new leader announces what is wrong now, as the previous
//! one may have died before it did. Its Events have the same names, so a repetition increases the Event's count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::hook::HookId;
use crate::diagnose::verdict::Verdict;
use crate::text::{bounded, human, stable_hash};
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// Least time between two announcements about one hook. Changes in between are announced in their latest state.
pub const PER_HOOK: Duration = Duration::from_secs(30);
/// Most announcements that may be made at once, about all hooks together.
pub const BURST: u32 = 20;
/// Time after which one more announcement may be made once [`BURST`] is used up.
pub const EVERY: Duration = Duration::from_secs(5);
/// A recovery that was not announced within this time is dropped.
const STALE: Duration = Duration::from_secs(60);
/// The reason of an Event about a recovered hook; the other reasons are the names of causes.
pub const RECOVERED: &str = "Recovered";
/// Most bytes of a configuration's name that go into the name of an Event.
const MAX_NAME: usize = 200;

/// One announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The name of the Event: the same for the same reason on the same hook.
    pub name: String,
    /// The hook.
    pub hook: HookId,
    /// `metadata.uid` of its configuration; empty if unknown.
    pub uid: String,
    /// The name of the cause, or [`RECOVERED`].
    pub reason: &'static str,
    /// Whether the Event's type is `Warning`, and not `Normal`.
    pub warning: bool,
    /// The message, at most 1024 bytes, the limit of an Event.
    pub note: String,
}

#[derive(Debug, Clone, Copy)]
struct AnnouncedState {
    /// The cause of failure; `None` if the hook has recovered.
    wrong: Option<Cause>,
    /// When that began; `None` once it has been announced.
    owed: Option<Time>,
    /// When the last announcement about this hook was made.
    last: Option<Time>,
    /// When the hook began to fail.
    since: Time,
}

/// Remembers what was announced and what is still due.
#[derive(Debug, Default)]
pub struct Announcer {
    hooks: BTreeMap<HookId, AnnouncedState>,
    /// When the budget of [`BURST`] announcements will be full again.
    paid_off: Time,
}

impl Announcer {
    /// Records the current verdicts, and returns the announcements that are due: none unless this replica `leads`. `uid` returns
    /// the uid of a hook's configuration.
    pub fn look(
        &mut self,
        verdicts: &[Verdict],
        uid: impl Fn(&HookId) -> Option<String>,
        leads: bool,
        now: Time,
    ) -> Vec<Announcement> {
        let mut said = Vec::new();
        let mut seen = BTreeMap::new();
        for verdict in verdicts {
            // Without a configuration there is no object for the Event.
            let Some(hook) = verdict.hook() else { continue };
            let Some(mut told) = update(self.hooks.get(&hook).copied(), verdict, now) else {
                continue;
            };
            let rested = told.last.is_none_or(|last| now.since(last) >= PER_HOOK);
            if leads && told.owed.is_some() && rested && self.spend(now) {
                let uid = uid(&hook).unwrap_or_default();
                said.push(announcement(&hook, &uid, told, verdict, now));
                (told.owed, told.last) = (None, Some(now));
            }
            let over = told.wrong.is_none()
                && told.owed.is_none_or(|owed| now.since(owed) >= STALE)
                && told.last.is_none_or(|last| now.since(last) >= PER_HOOK);
            if !over {
                seen.insert(hook, told);
            }
        }
        self.hooks = seen;
        said
    }

    /// Takes one announcement from the budget; false if the budget is used up.
    fn spend(&mut self, now: Time) -> bool {
        let paid_off = self.paid_off.max(now);
        if paid_off.since(now) >= EVERY * BURST {
            return false;
        }
        self.paid_off = paid_off + EVERY;
        true
    }
}

/// The state of a hook after this verdict; `None` if there is nothing to remember.
fn update(told: Option<AnnouncedState>, verdict: &Verdict, now: Time) -> Option<AnnouncedState> {
    let wrong = match (verdict.health, verdict.cause) {
        (Health::Failing, Some(cause)) => Some(cause),
        (Health::Healthy, _) => None,
        // Neither failing nor healthy: nothing to announce.
        _ => return told,
    };
    match (told, wrong) {
        (None, None) => None,
        (None, Some(_)) => Some(AnnouncedState {
            wrong,
            owed: Some(now),
            last: None,
            since: verdict.since.unwrap_or(now),
        }),
        (Some(told), _) if told.wrong == wrong => Some(told),
        (Some(told), _) => Some(AnnouncedState {
            wrong,
            owed: Some(now),
            // Kept over changes of the cause: the recovery announces how long the hook failed.
            since: match told.wrong {
                None => verdict.since.unwrap_or(now),
                Some(_) => told.since,
            },
            ..told
        }),
    }
}

fn announcement(
    hook: &HookId,
    uid: &str,
    told: AnnouncedState,
    verdict: &Verdict,
    now: Time,
) -> Announcement {
    let reason = told.wrong.map_or(RECOVERED, Cause::as_str);
    let webhook = &hook.webhook;
    let note = match told.wrong {
        Some(_) => {
            let evidence = verdict.evidence.first().map_or("", String::as_str);
            format!("Webhook {webhook:?}: {} {evidence}", verdict.summary)
        }
        None => format!(
            "Webhook {webhook:?} recovered after {}. {}",
            human(now.since(told.since)),
            verdict.summary
        ),
    };
    of_action(hook, uid, reason, told.wrong.is_some(), note.trim_end())
}

/// The announcement of an action on a hook. `note` is cut to 1024 bytes, the limit of an Event.
pub fn of_action(hook: &HookId, uid: &str, reason: &'static str, warning: bool, note: &str) -> Announcement {
    Announcement {
        name: name(hook, uid, reason),
        hook: hook.clone(),
        uid: uid.to_owned(),
        reason,
        warning,
        note: bounded(note),
    }
}

/// The name of an Event, as a DNS subdomain: the configuration's name and a hash of everything that identifies the Event.
fn name(hook: &HookId, uid: &str, reason: &str) -> String {
    let parts = [
        hook.kind.configuration_kind(),
        &hook.configuration,
        uid,
        &hook.webhook,
        reason,
    ];
    let hash = stable_hash(&parts);
    let end = hook.configuration.floor_char_boundary(MAX_NAME);
    let beginning = hook.configuration[..end].trim_end_matches(['.', '-']);
    format!("{beginning}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::HookKind;
    use crate::report::alerts;
    use crate::vocabulary::Effect;

    fn verdict(webhook: &str, health: Health, cause: Option<Cause>) -> Verdict {
        Verdict {
            cause,
            evidence: vec!["a canary named it".into(), "more".into()],
            ..alerts::tests::verdict(webhook, health, Cause::Hanging, Effect::Blocking)
        }
    }

    fn failing(cause: Cause) -> Vec<Verdict> {
        vec![verdict("w", Health::Failing, Some(cause))]
    }

    fn well() -> Vec<Verdict> {
        vec![verdict("w", Health::Healthy, None)]
    }

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_000_000 + seconds * 1_000)
    }

    fn reasons(said: &[Announcement]) -> Vec<&str> {
        said.iter().map(|said| said.reason).collect()
    }

    fn look(announcer: &mut Announcer, verdicts: &[Verdict], leads: bool, now: u64) -> Vec<Announcement> {
        announcer.look(verdicts, |_| Some("u".to_owned()), leads, at(now))
    }

    #[test]
    fn a_failure_its_change_and_its_end_are_each_said_once() {
        let mut announcer = Announcer::default();
        let mut look = |verdicts: &[Verdict], now| look(&mut announcer, verdicts, true, now);
        assert_eq!(look(&well(), 0), []);
        let said = look(&failing(Cause::Hanging), 10);
        assert_eq!(reasons(&said), ["Hanging"]);
        assert!(said[0].warning);
        assert_eq!(
            said[0].note,
            "Webhook \"w\": It does not answer. a canary named it"
        );
        assert_eq!(look(&failing(Cause::Hanging), 11), []);
        assert_eq!(reasons(&look(&failing(Cause::Refused), 50)), ["Refused"]);
        assert_eq!(look(&[verdict("w", Health::Suspect, Some(Cause::Slow))], 60), []);
        assert_eq!(look(&[verdict("w", Health::Unknown, None)], 70), []);
        let said = look(&well(), 90);
        assert_eq!((reasons(&said), said[0].warning), (vec![RECOVERED], false));
        assert!(said[0].note.contains("after 80.0 s"), "{}", said[0].note);
        assert_eq!(look(&well(), 91), []);
    }

    #[test]
    fn a_hook_that_flaps_is_told_of_as_it_is_when_its_turn_comes() {
        let mut announcer = Announcer::default();
        let mut said = Vec::new();
        for second in 0..300 {
            let verdicts = match second % 2 {
                0 => failing(Cause::Hanging),
                _ => well(),
            };
            said.extend(look(&mut announcer, &verdicts, true, second));
        }
        assert!((8..=10).contains(&said.len()), "{}", said.len());
    }

    #[test]
    fn many_hooks_at_once_are_told_of_in_time_and_not_all_at_once() {
        let mut announcer = Announcer::default();
        let verdicts: Vec<_> = (0..50)
            .map(|n| verdict(&format!("w{n}"), Health::Failing, Some(Cause::Hanging)))
            .collect();
        assert_eq!(look(&mut announcer, &verdicts, true, 0).len(), BURST as usize);
        assert_eq!(look(&mut announcer, &verdicts, true, 0).len(), 0);
        let later: usize = (1..=150)
            .map(|second| look(&mut announcer, &verdicts, true, second).len())
            .sum();
        assert_eq!(later, 30);
    }

    #[test]
    fn a_follower_says_nothing_and_a_new_leader_says_what_is_wrong_and_what_has_just_ended() {
        let mut announcer = Announcer::default();
        assert_eq!(look(&mut announcer, &failing(Cause::Hanging), false, 0), []);
        let said = look(&mut announcer, &failing(Cause::Hanging), true, 500);
        assert_eq!(reasons(&said), ["Hanging"]);

        let mut announcer = Announcer::default();
        look(&mut announcer, &failing(Cause::Hanging), false, 0);
        assert_eq!(look(&mut announcer, &well(), false, 10), []);
        assert_eq!(reasons(&look(&mut announcer, &well(), true, 40)), [RECOVERED]);

        let mut announcer = Announcer::default();
        look(&mut announcer, &failing(Cause::Hanging), false, 0);
        look(&mut announcer, &well(), false, 10);
        look(&mut announcer, &well(), false, 80);
        assert_eq!(
            look(&mut announcer, &well(), true, 81),
            [],
            "that is no news any more"
        );
    }

    #[test]
    fn the_same_has_the_same_name_and_another_another() {
        let name = |webhook: &str, reason: &str| {
            let hook = HookId::new(HookKind::Validating, "policy", webhook);
            super::name(&hook, "u", reason)
        };
        // Written down: other releases have to come to the same.
        assert_eq!(name("w", "Hanging"), name("w", "Hanging"));
        assert_ne!(name("w", "Hanging"), name("w", "Refused"));
        assert_ne!(name("w", "Hanging"), name("v", "Hanging"));
        let long = HookId::new(HookKind::Validating, &format!("{}.b", "a".repeat(199)), "w");
        let long = super::name(&long, "u", "Hanging");
        assert!(long.len() <= 253 && !long.contains(".."), "{long}");
    }

    #[test]
    fn a_note_is_no_longer_than_an_event_takes() {
        let mut verdicts = failing(Cause::Hanging);
        verdicts[0].evidence = vec!["x\u{1F4A5}\n".repeat(1_000)];
        let said = look(&mut Announcer::default(), &verdicts, true, 0);
        assert!(said[0].note.len() <= 1_024 && !said[0].note.contains('\n'));
    }
}
