//! The claims that rules make about webhooks, and whether they are right.
//!
//! A verdict is a claim when it is `Failing`, for however short a time, or when it is `Suspect` for 5 s or more with the
//! cause `Partial` or `Denying`. It is right about the webhook when the webhook had a fault during the verdict or up to
//! [`GRACE`] before it, and right about the cause when the fault has that cause. Every rule that made the verdict makes
//! the claim. When a rule repeats a claim about a webhook, it counts once.

use std::collections::BTreeSet;

use hookwatch::domain::vocabulary::{Cause, Health};

use super::{GRACE, causes};
use crate::incident::{Fault, Incident, Kind};
use crate::model::{At, SECOND, as_seconds};
use crate::play::{Played, Turn};

/// A suspicion must last this long to count as a claim.
const LASTING: At = 5 * SECOND;

/// A claimed confidence, and whether the claim was right.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Estimate {
    pub claimed: f64,
    pub right: bool,
}

/// What a rule said about a webhook.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Claim {
    pub hook: usize,
    pub rule: &'static str,
    /// Whether the verdict was `Failing`; otherwise `Suspect`.
    pub failing: bool,
    /// Whether it counts as a claim; otherwise it is a suspicion that was too short or had another cause than `Partial` or
    /// `Denying`.
    pub counted: bool,
    /// The webhook's actual fault, if any.
    pub kind: Option<Kind>,
    /// The cause of the verdict.
    pub said: &'static str,
    /// The claim that the webhook is at fault.
    pub webhook: Estimate,
    /// The claim that the webhook is at fault and the cause is right.
    pub cause: Estimate,
}

/// A span during which a webhook had the same verdict.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    pub from: At,
    pub until: At,
    pub cause: Cause,
    pub turn: &'a Turn,
}

impl<'a> Span<'a> {
    /// The rules that made the verdict, each with the time (from, until) during which it did.
    fn rules(self) -> impl Iterator<Item = (At, At, &'static str)> + use<'a> {
        let spoken = &self.turn.spoken;
        spoken.iter().enumerate().map(move |(index, this)| {
            let until = spoken.get(index + 1).map_or(self.until, |next| next.at);
            (this.at, until, this.rule)
        })
    }

    /// Whether an event from `from` until `until` overlaps the span or ended less than [`GRACE`] before it.
    fn meets(&self, from: At, until: At) -> bool {
        self.from < until + GRACE && self.until > from
    }
}

/// The spans during which a webhook had this health with a cause.
pub fn spans(turns: &[Turn], end: At, health: Health) -> impl Iterator<Item = Span<'_>> {
    turns.iter().enumerate().filter_map(move |(index, turn)| {
        let until = turns.get(index + 1).map_or(end, |next| next.at);
        let cause = turn.cause.filter(|_| turn.health == health)?;
        let from = turn.at;
        Some(Span {
            from,
            until,
            cause,
            turn,
        })
    })
}

/// The rule that first called a webhook of the fault `Failing` within a span, and every rule that did.
pub fn naming(
    fault: &Fault,
    (from, until): (At, At),
    incident: &Incident,
    played: &Played,
) -> (Option<&'static str>, BTreeSet<&'static str>) {
    let turns = fault.hooks.iter().map(|hook| &played.trace.hooks[*hook]);
    let named = turns.flat_map(|turns| spans(turns, incident.end, Health::Failing).flat_map(Span::rules));
    let within: Vec<(At, &'static str)> = named
        .map(|(begun, over, rule)| (begun.max(from), over.min(until), rule))
        .filter(|(begun, over, _)| begun < over)
        .map(|(begun, _, rule)| (begun, rule))
        .collect();
    let first = within.iter().min_by_key(|(begun, _)| *begun);
    let first = first.map(|(_, rule)| *rule);
    (first, within.into_iter().map(|(_, rule)| rule).collect())
}

/// The truth about a webhook during a verdict: its fault, and whether webhook and cause of the verdict are right.
struct Truth {
    kind: Option<Kind>,
    webhook: bool,
    cause: bool,
}

impl Truth {
    fn of(hook: usize, span: &Span<'_>, incident: &Incident, played: &Played) -> Self {
        let failing = span.turn.health == Health::Failing;
        let mut faults = incident.faults.iter().filter(|fault| {
            let blamed = !failing || fault.kind != Kind::Denying;
            blamed && fault.hooks.contains(&hook) && span.meets(fault.from, fault.until)
        });
        let gap = span.cause == Cause::RolloutGap && lost_in_a_rollout(hook, span, incident, played);
        let said = |fault: &Fault| causes(fault, incident).contains(&span.cause);
        let first = faults.next();
        let named = first.is_some_and(said);
        Self {
            kind: first.map(|fault| fault.kind),
            webhook: first.is_some() || gap,
            // A suspicion may have the cause of any fault of the webhook; `Failing` must have the cause of the first.
            cause: named || gap || !failing && faults.any(said),
        }
    }
}

/// Whether calls of the webhook failed in a rollout that was part of the noise.
fn lost_in_a_rollout(hook: usize, span: &Span<'_>, incident: &Incident, played: &Played) -> bool {
    let service = incident.cluster.hooks[hook].service;
    let gaps = incident.gaps.iter().filter(|gap| gap.service == service);
    gaps.filter(|gap| span.meets(gap.from, gap.until)).any(|gap| {
        let mut calls = played.ledger.calls(hook, gap.from, gap.until);
        calls.any(|call| call.failed)
    })
}

/// The wrong `Failing` verdicts in words, and every claim and suspicion.
pub fn claims(incident: &Incident, played: &Played) -> (Vec<String>, Vec<Claim>) {
    let trace = &played.trace;
    let (mut wrong, mut claims) = (Vec::new(), Vec::new());
    for (hook, turns) in trace.hooks.iter().enumerate() {
        let name = &incident.cluster.hooks[hook].id.webhook;
        for span in spans(turns, incident.end, Health::Failing) {
            let truth = Truth::of(hook, &span, incident, played);
            if !truth.webhook {
                let (from, spoken) = (as_seconds(span.from), as_seconds(span.until - span.from));
                wrong.push(format!("{name} {} at {from:.1} s for {spoken:.1} s", span.cause));
            }
            claim(hook, &span, &truth, &mut claims);
        }
        for span in spans(turns, incident.end, Health::Suspect) {
            let truth = Truth::of(hook, &span, incident, played);
            claim(hook, &span, &truth, &mut claims);
        }
    }
    wrong.extend(
        trace
            .strangers
            .iter()
            .take(1)
            .map(|(at, name)| format!("{name}, which no configuration has, at {:.1} s", as_seconds(*at))),
    );
    (wrong, claims)
}

/// Adds the claim of each rule in a span, or merges it into an equal claim.
fn claim(hook: usize, span: &Span<'_>, truth: &Truth, claims: &mut Vec<Claim>) {
    let failing = span.turn.health == Health::Failing;
    let for_suspects = matches!(span.cause, Cause::Partial | Cause::Denying);
    let counted = failing || for_suspects && span.until - span.from >= LASTING;
    for spoken in &span.turn.spoken {
        let estimate = |claimed, right| Estimate { claimed, right };
        let claim = Claim {
            hook,
            rule: spoken.rule,
            failing,
            counted,
            kind: truth.kind,
            said: span.cause.as_str(),
            webhook: estimate(spoken.webhook, truth.webhook),
            cause: estimate(spoken.cause, truth.cause),
        };
        match claims.iter_mut().find(|known| known.is_same(&claim)) {
            Some(known) => {
                known.counted |= claim.counted;
                known.webhook.claimed = known.webhook.claimed.max(claim.webhook.claimed);
                known.cause.claimed = known.cause.claimed.max(claim.cause.claimed);
            }
            None => claims.push(claim),
        }
    }
}

impl Claim {
    fn is_same(&self, other: &Self) -> bool {
        let key = |claim: &Self| {
            let right = (claim.webhook.right, claim.cause.right);
            (claim.hook, claim.rule, claim.failing, claim.said, right)
        };
        key(self) == key(other)
    }
}
