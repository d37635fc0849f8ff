//! The table of hooks: the worst first and in full. With many hooks the healthy ones are folded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use maud::{Markup, html};

use super::breaker;
use super::past::{self, Cell, Mark, ShownPast};
use super::text::{Foreign, ForeignCommand, clock, within};
use super::timeline::{called, tone};
use crate::domain::act::breaker::HookStanding;
use crate::domain::audit::{Finding, FindingSeverity};
use crate::domain::cluster::condition::BypassCondition;
use crate::domain::cluster::hook::Backend;
use crate::domain::diagnose::verdict::{BackendView, Verdict};
use crate::domain::report::assessment::Assessment;
use crate::domain::time::Time;
use crate::domain::vocabulary::{BackendHealth, Effect, Health};

/// Up to this number of hooks, all are shown in full.
pub(super) const ALL_IN_FULL: usize = 30;
/// With more hooks, the most that are shown in full.
pub(super) const MAX_IN_FULL: usize = 24;
/// Most bytes for the hooks shown in full.
const IN_FULL: usize = 64_000;
/// Most bytes for the lines of the other hooks that are not healthy.
const NOT_WELL: usize = 16_000;
/// Most bytes for each list within one hook.
const LIST: usize = 6_000;
/// Most backends drawn in the row of a hook; the details below it list all.
const IN_ROW: usize = 3;
/// Most past events listed with one hook.
const HISTORY: usize = 8;

/// The hooks that are shown in full, the worst first.
pub(super) fn in_full(hooks: &[Verdict]) -> &[Verdict] {
    if hooks.len() <= ALL_IN_FULL {
        return hooks;
    }
    // An assessment lists the worst hooks first, so all after the first healthy one are healthy.
    let unwell = hooks
        .iter()
        .position(|verdict| verdict.health == Health::Healthy)
        .unwrap_or(hooks.len());
    &hooks[..unwell.min(MAX_IN_FULL)]
}

/// The whole table. `room`: the bytes for the list of healthy hooks, given the bytes of the rest.
pub(super) fn table(assessment: &Assessment, past: &ShownPast, room: impl Fn(usize) -> usize) -> Markup {
    let hooks = &*assessment.hooks;
    let first = in_full(hooks);
    let (known, nothing) = (known(assessment, past), HookContext::default());
    // The first culprit is unfolded, so that its evidence is visible without a click.
    let mut open = true;
    let rows = first.iter().map(|verdict| {
        let opened = open && verdict.health == Health::Failing;
        open &= !opened;
        (verdict, opened)
    });
    let (rows, left_out) = within(IN_FULL, rows, |(verdict, opened)| {
        let known = known.get(&past::anchor(verdict)).unwrap_or(&nothing);
        row(verdict, past, known, (opened, assessment.at))
    });
    let rest = &hooks[first.len() - left_out..];
    let (well, unwell): (Vec<&Verdict>, Vec<&Verdict>) =
        rest.iter().partition(|verdict| verdict.health == Health::Healthy);
    let above = html! {
        @if hooks.is_empty() {
            p.quiet { "No webhooks are known." }
        } @else if !first.is_empty() {
            div.head aria-hidden="true" {
                span { "health" } span { "webhook" } span { "cause, effect" } span.n { "share" }
                span { "probes" } span.n { "since (UTC)" }
            }
        }
        (rows)
        @if !unwell.is_empty() { (folded("unwell", "more that are not healthy", &unwell, NOT_WELL)) }
    };
    let room = room(above.0.len());
    html! {
        section #hooks tabindex="-1" {
            h2 { "Webhooks " span.quiet { (hooks.len()) } }
            (above)
            @if !well.is_empty() { (folded("well", "healthy", &well, room)) }
        }
    }
}

fn folded(name: &str, what: &str, hooks: &[&Verdict], room: usize) -> Markup {
    let (lines, left_out) = within(room, hooks, |verdict| {
        let backends = &verdict.backends;
        let alive = backends
            .iter()
            .filter(|backend| backend.state == BackendHealth::Alive)
            .count();
        html! {
            li id=(id(past::anchor(verdict))) { (Foreign(&verdict.webhook)) " " small { (alive) "/" (backends.len()) " · " (Foreign(configuration(verdict))) } }
        }
    });
    html! {
        details.fold id=(name) {
            summary { b { (hooks.len()) " " (what) } span.quiet { "webhook, backends alive, configuration" } }
            ul.lines { (lines) }
            @if left_out > 0 {
                p.quiet { "and " (left_out) " more; all of them are in the " a href="/api/v1/assessment" { "API" } "." }
            }
        }
    }
}

fn configuration(verdict: &Verdict) -> &str {
    verdict.configuration.as_deref().unwrap_or("in no configuration")
}

pub(super) fn id(anchor: u64) -> String {
    format!("h{anchor:016x}")
}

/// What is known of one hook in addition to its verdict.
#[derive(Default)]
struct HookContext<'a> {
    happened: Vec<&'a Mark>,
    stands: Option<&'a HookStanding>,
    found: Vec<&'a Finding>,
}

impl HookContext<'_> {
    /// What the breaker says of the hook, unless that is only that it is enforced.
    fn handled(&self) -> Option<&HookStanding> {
        self.stands.filter(|stands| breaker::state(stands).is_some())
    }

    /// The breaker's state in a few words; if the breaker has none, according to the match condition in the configuration.
    fn breaker(&self, verdict: &Verdict) -> Option<String> {
        let stands = self.handled().and_then(breaker::state);
        stands.or_else(|| match verdict.bypass? {
            BypassCondition::Probation => Some("on probation".to_owned()),
            bypass => Some(format!("bypassed ({})", bypass.as_str())),
        })
    }
}

/// The context of every hook, by its anchor.
fn known<'a>(assessment: &'a Assessment, past: &'a ShownPast) -> BTreeMap<u64, HookContext<'a>> {
    let mut known: BTreeMap<u64, HookContext<'a>> = BTreeMap::new();
    for standing in &assessment.breaker.hooks {
        let hook = &standing.hook;
        let anchor = past::anchor_of(hook.kind, &hook.configuration, &hook.webhook);
        known.entry(anchor).or_default().stands = Some(standing);
    }
    for finding in &assessment.audit.findings {
        if let Some(id) = &finding.hook {
            let anchor = past::anchor_of(id.kind, &id.configuration, &id.webhook);
            known.entry(anchor).or_default().found.push(finding);
        }
    }
    for mark in &past.marks {
        if let Some(hook) = &mark.hook {
            known.entry(hook.anchor).or_default().happened.push(mark);
        }
    }
    known
}

fn row(verdict: &Verdict, past: &ShownPast, known: &HookContext<'_>, (open, now): (bool, Time)) -> Markup {
    let breaker = known.breaker(verdict);
    let anchor = past::anchor(verdict);
    let health = verdict.health.as_str();
    let tracks = past.tracks.get(&anchor);
    let share = verdict
        .excess_share
        .filter(|share| *share >= 0.005)
        .map(|share| format!("{:.0} %", share * 100.0));
    html! {
        details.hook.(health) id=(id(anchor)) open[open] {
            summary {
                span.health { (health) }
                span.name {
                    (Foreign(&verdict.webhook))
                    small { (verdict.kind.as_str()) " · " (Foreign(configuration(verdict))) }
                }
                span.cause {
                    @if let Some(cause) = verdict.cause {
                        (cause.as_str())
                        // Beside a bypass the effect `none` would say nothing new.
                        @if verdict.effect != Effect::None || breaker.is_none() { small { (verdict.effect.as_str()) } }
                    }
                    @if let Some(state) = &breaker { small.bypass { (state) } }
                }
                span.n.share { @if let Some(share) = share { (share) } }
                span.sparks {
                    @for (number, backend) in verdict.backends.iter().take(IN_ROW).enumerate() {
                        (spark(backend, tracks, anchor, number))
                    }
                    @if verdict.backends.len() > IN_ROW { small { "+" (verdict.backends.len() - IN_ROW) } }
                }
                span.n.since { @if let Some(since) = verdict.since { (clock(since, now)) } }
            }
            div.body {
                (evidence(verdict, &known.found)) (standing(breaker.as_deref(), known.handled(), now)) (backends(verdict, tracks))
                (canaries(verdict)) (history(&known.happened, now))
            }
        }
    }
}

fn evidence(verdict: &Verdict, found: &[&Finding]) -> Markup {
    let (evidence, more) = within(LIST, &verdict.evidence, |said| html! { li { (Foreign(said)) } });
    let told = found
        .iter()
        .filter(|finding| finding.severity >= FindingSeverity::Warning);
    let (risks, _) = within(LIST / 2, told, |finding| {
        html! { li.risk { (finding.severity.as_str()) ": " (finding.kind.title) ". " (Foreign(&finding.message)) } }
    });
    html! {
        p { (Foreign(&verdict.summary)) }
        @if verdict.cause.is_some() {
            p.quiet {
                "Confidence " span.n { (format!("{:.2}", verdict.confidence)) } " (that it is this webhook: "
                span.n { (format!("{:.2}", verdict.webhook_confidence)) } "), effect " (verdict.effect.as_str())
                ", rule " (verdict.rule)
                @if let Some(place) = verdict.called_at() { ", called at " (Foreign(place)) }
                "."
            }
        }
        @if !verdict.evidence.is_empty() {
            h3 { "Evidence" }
            ul { (evidence) @if more > 0 { li.quiet { "and " (more) " more in the API" } } }
        }
        @if !risks.0.is_empty() {
            h3 { "What to change" }
            ul { (risks) }
        }
        @if let Some(advice) = verdict.advice { p.next { b { "Next: " } (advice) } }
        (commands(verdict))
    }
}

/// The commands with which a person bypasses or restores the hook.
fn commands(verdict: &Verdict) -> Markup {
    html! {
        @if let Some(by_hand) = &verdict.by_hand {
            p.next {
                b { "To bypass it: " }
                @match &by_hand.shared_with {
                    Some(first) => { "the command for " (Foreign(first)) " names it, too." },
                    None => { (ForeignCommand(&by_hand.command)) " " (by_hand.meaning) }
                }
            }
        }
        @if let Some(command) = verdict.restore_command() {
            p.next { b { "To restore it: " } (ForeignCommand(&command)) }
        }
    }
}

fn standing(state: Option<&str>, stands: Option<&HookStanding>, now: Time) -> Markup {
    html! {
        @if let Some(state) = state {
            p {
                b { "Breaker: " span.bypass { (state) } }
                @if let Some(stands) = stands { " since " (clock(stands.since, now)) " UTC. " (Foreign(&stands.words)) } @else { "." }
            }
        }
    }
}

/// The canaries that the hook's rules match, which show whether the API server gets an answer from it.
fn canaries(verdict: &Verdict) -> Markup {
    let names: Vec<&str> = verdict.canaries.iter().map(|canary| canary.as_str()).collect();
    html! {
        @if verdict.kind.is_admission() {
            p.quiet {
                @if names.is_empty() { "No canary covers it." } @else { "Canaries that cover it: " (names.join(", ")) "." }
            }
        }
    }
}

fn backends(verdict: &Verdict, tracks: Option<&BTreeMap<Backend, Vec<Cell>>>) -> Markup {
    let anchor = past::anchor(verdict);
    let (rows, more) = within(LIST, verdict.backends.iter().enumerate(), |(number, backend)| {
        html! {
            li.(backend.state.as_str()) {
                span.state { (backend.state.as_str()) }
                span.where { (Foreign(&backend.backend.to_string())) }
                @if number < IN_ROW {
                    // Reuses the picture in the hook's row.
                    (framed(backend, html! { use href={ "#" (picture(anchor, number)) } {} }))
                } @else { (spark(backend, tracks, anchor, number)) }
                span.detail { (Foreign(&backend.detail)) }
            }
        }
    });
    html! {
        h3 { "Backends " span.quiet { "slowest probe per minute, last 60 min" } }
        @if verdict.backends.is_empty() { p.quiet { "None are known." } }
        ul.backends { (rows) }
        @if more > 0 { p.quiet { "and " (more) " more in the API" } }
    }
}

fn history(happened: &[&Mark], now: Time) -> Markup {
    let (lines, _) = within(LIST / 2, happened.iter().take(HISTORY), |mark| {
        html! { li { (clock(mark.at, now)) " " span.(tone(mark.kind)) { (called(mark.kind)) } " " (Foreign(&mark.text)) } }
    });
    html! {
        @if !happened.is_empty() {
            h3 { "History " span.quiet { "UTC" } }
            ul.marks { (lines) }
        }
    }
}

/// The id of a backend's picture within the page.
fn picture(anchor: u64, number: usize) -> String {
    format!("s{anchor:x}-{number}")
}

/// A chart with a step per minute. The height is the time of the slowest probe, logarithmic from 1 ms to 10 s, so that all
/// backends can be compared. A minute with a failure has full height in another colour.
fn spark(
    backend: &BackendView,
    tracks: Option<&BTreeMap<Backend, Vec<Cell>>>,
    anchor: u64,
    number: usize,
) -> Markup {
    let (mut good, mut bad) = (Steps::default(), Steps::default());
    let cells = tracks.and_then(|tracks| tracks.get(&backend.backend));
    let minutes = cells.map(Vec::as_slice).unwrap_or_default().chunks(2).map(minute);
    for (at, cell) in minutes.enumerate() {
        if let Cell::Took { millis, failed } = cell {
            let magnitude = (f32::from(millis.max(1)).log10() / 4.0).clamp(0.0, 1.0);
            if failed {
                bad.add(at, 16)
            } else {
                good.add(at, 2 + (magnitude * 14.0) as u32)
            }
        }
    }
    let (good, bad) = (good.path(), bad.path());
    framed(
        backend,
        html! {
            g id=(picture(anchor, number)) {
                path.base d="M0 15.5H120" {}
                @if !good.is_empty() { path.up d=(good) {} }
                @if !bad.is_empty() { path.down d=(bad) {} }
            }
        },
    )
}

fn framed(backend: &BackendView, drawn: Markup) -> Markup {
    html! {
        svg.spark viewBox="0 0 120 16" width="120" height="16" role="img"
            aria-label={ (backend.state.as_str()) " " (backend.backend.path.as_str()) } { (drawn) }
    }
}

/// Steps two units wide. Adjacent steps of the same height are merged.
#[derive(Default)]
struct Steps(Vec<(usize, usize, u32)>);

impl Steps {
    fn add(&mut self, at: usize, height: u32) {
        match self.0.last_mut() {
            Some((_, end, last)) if *end == at && *last == height => *end = at + 1,
            _ => self.0.push((at, at + 1, height)),
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        let mut last_end = None;
        for (begin, end, height) in &self.0 {
            let (begin, end, top) = (begin * 2, end * 2, 16 - height);
            // Writing to a String cannot fail.
            let _ = match last_end {
                Some(last) if last == begin => write!(path, "V{top}H{end}"),
                Some(_) => write!(path, "V16M{begin} 16V{top}H{end}"),
                None => write!(path, "M{begin} 16V{top}H{end}"),
            };
            last_end = Some(end);
        }
        if last_end.is_some() {
            path.push_str("V16");
        }
        path
    }
}

fn minute(cells: &[Cell]) -> Cell {
    cells.iter().fold(Cell::Empty, |sum, cell| match (sum, *cell) {
        (Cell::Empty, cell) | (cell, Cell::Empty) => cell,
        (
            Cell::Took { millis, failed },
            Cell::Took {
                millis: other,
                failed: also,
            },
        ) => Cell::Took {
            millis: millis.max(other),
            failed: failed || also,
        },
    })
}

/// The list of past events, the newest first. Names of hooks that are still there are links to them.
pub(super) fn happened(past: &ShownPast, assessment: &Assessment) -> Markup {
    let now = assessment.at;
    let there: BTreeSet<u64> = assessment.hooks.iter().map(past::anchor).collect();
    let (lines, left_out) = within(10_000, &past.marks, |mark| {
        html! {
            li {
                (clock(mark.at, now)) " "
                span.tag.(tone(mark.kind)) { (called(mark.kind)) } " "
                span.text {
                    @match &mark.hook {
                        None => (Foreign(&mark.text)),
                        Some(hook) => {
                            // The sentence contains the webhook's name; that occurrence becomes the link.
                            @let (before, after) = mark.text.split_once(&*hook.webhook).unwrap_or(("", &mark.text));
                            (Foreign(before))
                            @if there.contains(&hook.anchor) {
                                a href={ "#" (id(hook.anchor)) } { (Foreign(&hook.webhook)) }
                            } @else { (Foreign(&hook.webhook)) }
                            " " (Foreign(after.trim_start()))
                        }
                    }
                    @if let Some(began) = mark.began { span.quiet { " Began " (clock(began, now)) "." } }
                }
            }
        }
    });
    html! {
        section #happened {
            h2 { "What happened " span.quiet { "last hour, UTC" } }
            @if past.marks.is_empty() { p.quiet { "No changes." } }
            ul.marks.long { (lines) @if left_out > 0 { li.quiet { "and " (left_out) " earlier" } } }
        }
    }
}
