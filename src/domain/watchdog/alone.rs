//! The judgement by hookwatch's own evidence alone, while the diagnosis uses a Prometheus too.
//!
//! Everything is then judged in two rounds. The breaker gets only the one without the Prometheus, which has a memory of its
//! own, so that a Prometheus can neither add a witness nor remove one. The round with the Prometheus is published; where the
//! two differ, the verdict depends on the Prometheus, and its confidence is lowered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attention::{is_news, is_trouble};
use super::{Evidence, Watchdog, for_breaker, judge_all};
use crate::act::breaker::Judged;
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{HookKind, Subject};
use crate::diagnose::LOST_PATH;
use crate::diagnose::plane::{LastWitnessed, PlaneEvidence};
use crate::diagnose::scene::{Before, Scene};
use crate::diagnose::verdict::{NonHookCause, Verdict};
use crate::observe::history::{History, Windows};
use crate::observe::observations::{Observations, Sick};
use crate::observe::stored::StoredWindows;
use crate::time::Time;
use crate::vocabulary::{Cause, Health, NotAHook};

/// The memory of the rounds without a Prometheus.
#[derive(Debug, Default)]
pub(super) struct Alone {
    pub(super) verdicts: BTreeMap<Subject, Before>,
    pub(super) witnessed: LastWitnessed,
}

/// The result of one round without a Prometheus.
pub(super) struct Own {
    pub(super) judged: Arc<Judged>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) elsewhere: Option<NonHookCause>,
    pub(super) lesson: Lesson,
}

/// What a tick teaches the baseline.
pub(super) enum Lesson {
    /// Nothing, and intervals that are still in quarantine are dropped.
    Doubt,
    /// What was counted, without these hooks, which have been in trouble for long.
    Without(BTreeSet<(HookKind, String)>),
}

impl Lesson {
    /// Only calm times teach. `in_trouble`: writes are slow or blocked, or another cause than a hook was found.
    pub(super) fn of(verdicts: &[Verdict], in_trouble: bool, now: Time) -> Self {
        if in_trouble || verdicts.iter().any(|verdict| is_news(verdict, now)) {
            return Self::Doubt;
        }
        let troubled = verdicts.iter().filter(|verdict| is_trouble(verdict));
        let troubled = troubled.map(|verdict| (verdict.kind, verdict.webhook.to_string()));
        Self::Without(troubled.collect())
    }

    pub(super) fn teach(&self, history: &mut History, now: Time) {
        match self {
            Self::Doubt => history.doubt(),
            Self::Without(troubled) => history.learn(now, |key| troubled.contains(key)),
        }
    }
}

impl Watchdog {
    pub(super) fn judge_alone(&mut self, windows: &Windows, sick: &[Sick], now: Time) -> Own {
        let known = self.alone.take().unwrap_or_else(|| Alone {
            verdicts: self.verdicts.clone(),
            witnessed: self.witnessed,
        });
        let plane = plane(&self.seen, windows, false, sick, now);
        let scene = Scene::new(&self.seen, &plane, &known.verdicts, now);
        let all = judge_all(&scene);
        let elsewhere = elsewhere(&scene, &all);
        let (tampering, fence) = (&mut self.tampering, self.fence.as_ref());
        let judged = for_breaker(&scene, &all, elsewhere.is_some(), tampering, fence);
        let verdicts: Vec<Verdict> = all.into_iter().map(|(_, verdict)| verdict).collect();
        let mut witnessed = known.witnessed;
        let remembered = remembered(&known.verdicts, &verdicts, windows, now);
        let writes = plane.settled(elsewhere.as_ref(), &verdicts, &remembered, &mut witnessed);
        self.alone = Some(Alone {
            verdicts: remembered,
            witnessed,
        });
        let lesson = Lesson::of(&verdicts, writes.in_trouble || elsewhere.is_some(), now);
        Own {
            judged,
            verdicts,
            elsewhere,
            lesson,
        }
    }
}

/// Lowers the confidence of verdicts that are not the same without the Prometheus, and adds a sentence on where their counters
/// come from.
pub(super) fn temper(all: &mut [(Evidence<'_>, Verdict)], own: &[Verdict], stored: &StoredWindows) {
    let own: BTreeMap<Subject, &Verdict> = own.iter().map(|verdict| (verdict.subject(), verdict)).collect();
    for (evidence, verdict) in all {
        let alone = own.get(&verdict.subject());
        let same = alone.is_some_and(|alone| alone.rule == verdict.rule && alone.cause == verdict.cause);
        // If both rounds agree, confidence is not lowered below that of the round without the Prometheus.
        let agrees = alone.filter(|alone| (alone.health, alone.cause) == (verdict.health, verdict.cause));
        let lowered = |confidence: f64, floor: fn(&Verdict) -> f64| {
            let least = agrees.map_or(0.0, |alone| floor(alone).min(confidence));
            (confidence * stored.trust()).max(least)
        };
        let confidence = lowered(verdict.confidence, |alone| alone.confidence);
        let webhook_confidence = lowered(verdict.webhook_confidence, |alone| alone.webhook_confidence);
        let mut said = stored.sentence();
        if !same && confidence < verdict.confidence {
            let before = verdict.confidence;
            said += &format!(" Confidence is lowered from {before:.2} to {confidence:.2} for that.");
            (verdict.confidence, verdict.webhook_confidence) = (confidence, webhook_confidence);
        }
        if !same || evidence.counters.calls >= 1.0 {
            verdict.evidence.push(said);
        }
    }
}

/// The same for a cause other than a hook.
pub(super) fn temper_elsewhere(
    found: Option<&mut NonHookCause>,
    own: Option<&NonHookCause>,
    stored: &StoredWindows,
) {
    let Some(found) = found.filter(|found| own.is_none_or(|own| own.cause != found.cause)) else {
        return;
    };
    let before = found.confidence;
    found.confidence *= stored.trust();
    let (said, after) = (stored.sentence(), found.confidence);
    let lowered = format!("{said} Confidence is lowered from {before:.2} to {after:.2} for that.");
    found.evidence.push(lowered);
}

/// The evidence on the control plane from these windows: those of a Prometheus if `is_stored`, else of hookwatch's own scrapes.
pub(super) fn plane<'a>(
    seen: &'a Observations,
    windows: &'a Windows,
    is_stored: bool,
    sick: &[Sick],
    now: Time,
) -> PlaneEvidence<'a> {
    let counted = if is_stored {
        seen.stored.history()
    } else {
        &seen.history
    };
    let unanswered = seen.servers.unanswered(&seen.history, now);
    PlaneEvidence {
        now,
        windows,
        baseline: &counted.baseline,
        canaries: &seen.canaries,
        unanswered,
        cut_off: unanswered.is_some() && seen.self_doubt(&seen.states(now), now),
        sick: sick.first().map(|sick| sick.sentence(now)),
        one_sided: if is_stored {
            BTreeMap::new()
        } else {
            seen.history.one_sided(windows, now)
        },
    }
}

/// The cause other than a hook. [`NotAHook::Unexplained`] counts only while no named hook can be the reason.
pub(super) fn elsewhere(scene: &Scene<'_>, all: &[(Evidence<'_>, Verdict)]) -> Option<NonHookCause> {
    let is_explained = all.iter().any(|(_, verdict)| verdict.can_hold_writes_up());
    let found = scene.elsewhere.clone();
    found.filter(|found| !is_explained || found.cause != NotAHook::Unexplained)
}

/// What the next round remembers of this one's verdicts; `before` is what this one remembered.
pub(super) fn remembered(
    before: &BTreeMap<Subject, Before>,
    verdicts: &[Verdict],
    windows: &Windows,
    now: Time,
) -> BTreeMap<Subject, Before> {
    let newest = windows.newest.as_ref().map_or(now, |newest| newest.from);
    let remembered = verdicts.iter().map(|verdict| {
        let subject = verdict.subject();
        let known = before.get(&subject);
        let named = known.is_some_and(|known| known.named);
        // No call shows that a bypassed hook is healthy; for a shielded one the calls it still gets do.
        let asked = verdict
            .bypass
            .is_none_or(|bypass| bypass == BypassCondition::Shield);
        let is_well = verdict.health == Health::Healthy && asked;
        let is_cleared = named && is_well;
        let cleared = known.and_then(|known| known.cleared);
        let hangs = verdict.can_hold_writes_up() && verdict.cause == Some(Cause::Hanging);
        let hung_before = known.and_then(|known| known.hung_until);
        let known = known.filter(|known| known.cause == verdict.cause);
        let before = Before {
            health: verdict.health,
            cause: verdict.cause,
            since: verdict.since,
            whole: known.is_some_and(|known| known.whole) || verdict.no_backend_answers(),
            named: verdict.health == Health::Failing || named && !is_cleared,
            cleared: is_cleared.then_some(newest).or(cleared),
            on_lost_path: verdict.incident == LOST_PATH,
            hung_until: hangs.then_some(now).or(hung_before),
        };
        (subject, before)
    });
    remembered.collect()
}
