//! The control plane: the verdict at the top of the page, and the sources of evidence at its end.

use std::time::Duration;

use maud::{Markup, html};

use super::leading;
use super::text::{Foreign, ForeignCommand, clock, within};
use crate::domain::act::fence::BreakerView;
use crate::domain::act::leadership::ReplicaView;
use crate::domain::cluster::condition::BypassCondition;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::observe::views::{ScrapeView, StoredView};
use crate::domain::report::assessment::Assessment;
use crate::domain::text::{human, human_seconds};
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};

/// Most bytes of each list.
const LIST: usize = 4_000;

/// The verdict: one sentence, what to do next, and the numbers behind it.
pub(super) fn verdict(assessment: &Assessment, silent: Option<Duration>) -> Markup {
    let plane = &assessment.control_plane;
    let lasted = assessment.at.since(plane.since);
    let (clocks, _) = within(LIST, &plane.clocks, |said| html! { li { (Foreign(said)) } });
    let (symptoms, _) = within(LIST, &plane.symptoms, |said| html! { li { (Foreign(said)) } });
    // The summary ends with the symptoms. They are cut off, because the page lists them below it.
    let sentence = plane
        .symptoms
        .iter()
        .rev()
        .fold(&*plane.summary, |sentence, symptom| {
            let rest = sentence.strip_suffix(symptom.as_str()).map(str::trim_end);
            rest.filter(|rest| !rest.is_empty()).unwrap_or(sentence)
        });
    html! {
        section #verdict.(tone(assessment)) {
            @if let Some(silent) = silent {
                // A screen reader reads an alert aloud at every change, so the seconds are outside of it.
                p #alarm {
                    span role="alert" { "hookwatch does not judge any more: everything below is old." }
                    " It has judged nothing for " (human(silent)) "."
                }
            }
            p.state {
                b role="status" { "Writes " (plane.writes.as_str()) }
                span { "since " (clock(plane.since, assessment.at)) " UTC, for " (human(lasted)) }
            }
            h1 { (Foreign(sentence)) }
            @if let Some(why) = assessment.sources.blind_to() {
                p.next { b { "hookwatch does not see everything: " } (why.to_string()) "." }
            }
            @if let Some(advice) = leading(assessment).and_then(|verdict| verdict.advice) {
                p.next { b { "Next: " } (advice) }
            }
            @if let Some(by_hand) = leading(assessment).and_then(|verdict| verdict.by_hand.as_ref()) {
                p.next { b { "To bypass it: " } (ForeignCommand(&by_hand.command)) " " (by_hand.meaning) }
            }
            ul.effects { (clocks) (symptoms) }
            (elsewhere(assessment))
            (numbers(assessment))
        }
    }
}

/// The CSS class that colours the verdict. `flowing` only if nothing fails and no evidence is missing.
fn tone(assessment: &Assessment) -> &'static str {
    let plane = &assessment.control_plane;
    match plane.writes {
        Writes::Blocked => "blocked",
        Writes::Delayed => "delayed",
        _ if plane.not_a_hook.is_some() => "delayed",
        Writes::Flowing if leading(assessment).is_some() && assessment.culprits().all(is_out_of_the_way) => {
            "bypassed"
        }
        _ if leading(assessment).is_some() => "delayed",
        Writes::Flowing if assessment.sources.blind_to().is_none() => "flowing",
        Writes::Flowing | Writes::Unknown => "unknown",
    }
}

/// Whether a bypass keeps all users' writes away from this failing webhook.
fn is_out_of_the_way(verdict: &Verdict) -> bool {
    verdict.bypass.is_some_and(BypassCondition::covers_all_users)
}

fn elsewhere(assessment: &Assessment) -> Markup {
    html! {
        @if let Some(found) = &assessment.control_plane.not_a_hook {
            @let (evidence, _) = within(LIST, &found.evidence, |said| html! { li { (Foreign(said)) } });
            details #elsewhere open {
                summary { b { (found.cause.as_str()) } " " (found.cause.sentence())
                    span.quiet { " Confidence " (format!("{:.2}", found.confidence)) "." } }
                ul { (evidence) }
            }
        }
    }
}

fn numbers(assessment: &Assessment) -> Markup {
    let plane = &assessment.control_plane;
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), human_seconds);
    let share = leading(assessment).and_then(|verdict| verdict.excess_share);
    let failing = assessment.count(Health::Failing);
    html! {
        dl.numbers {
            div { dt { "per write, recently" } dd { (seconds(plane.write_seconds)) } }
            div { dt { "usually" } dd { (seconds(plane.usual_write_seconds)) } }
            div { dt { "culprit's share" } dd { @match share {
                Some(share) => (format!("{:.0} %", share * 100.0)),
                None => "–",
            } } }
            div { dt { "webhooks failing" } dd { (failing) span.quiet { " of " (assessment.hooks.len()) } } }
        }
    }
}

/// The sources of the assessment: how current and complete each is.
pub(super) fn sources(assessment: &Assessment) -> Markup {
    let sources = &assessment.sources;
    let (servers, more) = within(LIST, &sources.scrapes, server);
    let (problems, hidden) = within(LIST, &assessment.problems, |problem| {
        html! { li { (Foreign(&problem.object)) ": " (Foreign(&problem.what)) } }
    });
    html! {
        section #sources {
            h2 { "Where this comes from" }
            dl.sources {
                dt { "hooks" }
                dd { (hooks(assessment)) }
                dt { "canaries" }
                dd { ul { @for canary in &assessment.control_plane.canaries {
                    li { b { (canary.canary.as_str()) } " " (canary.state) " " span.quiet { (Foreign(&canary.detail)) } }
                } } }
                dt { "API servers" }
                dd { ul { (servers) @if more > 0 { li { "and " (more) " more" } } } }
                @if let Some(stored) = &sources.prometheus {
                    dt { "Prometheus" }
                    dd { (prometheus(stored)) }
                }
                dt { "node leases" }
                dd { (Foreign(&sources.node_leases.detail)) }
                dt { "breaker" }
                dd { (breaker(&assessment.breaker)) }
                @if let Some(view) = &assessment.replica {
                    dt { "replica" }
                    dd { (replica(view, assessment.at)) }
                }
                @if !sources.probes.late.is_empty() {
                    dt { "probes" }
                    dd { ul { @for late in &sources.probes.late { li { (Foreign(late)) } } } }
                }
                @if !assessment.problems.is_empty() {
                    dt { "problems" }
                    dd { ul { (problems) @if hidden > 0 { li { "and " (hidden) " more in the API" } } } }
                }
            }
        }
    }
}

/// The number of hooks by health, and why the inventory is incomplete, if it is.
fn hooks(assessment: &Assessment) -> Markup {
    let sources = &assessment.sources;
    let count = |health| assessment.count(health);
    let trouble = sources.inventory_trouble.iter();
    let trouble = trouble.chain(&sources.api_servers_trouble);
    let (trouble, _) = within(LIST, trouble, |said| html! { li { (Foreign(said)) } });
    html! {
        @if sources.inventory_age_seconds.is_some() && sources.hooks_listed {
            (count(Health::Failing)) " failing, " (count(Health::Suspect)) " suspect, "
            (count(Health::Healthy)) " healthy, " (count(Health::Unknown)) " unknown"
        } @else { "the webhook configurations could not be read" }
        ul { (trouble) }
    }
}

fn breaker(breaker: &BreakerView) -> Markup {
    html! {
        b { (breaker.effective.as_str()) }
        @if breaker.wanted != breaker.effective { " instead of " (breaker.wanted.as_str()) }
        " " (Foreign(&breaker.why))
        @if let Some(frozen) = &breaker.frozen { " " b { (Foreign(frozen)) } }
    }
}

fn replica(replica: &ReplicaView, now: Time) -> Markup {
    html! {
        b { (replica.role.as_str()) } " since " (clock(replica.since, now)) " UTC"
        @if let Some(holder) = &replica.holder { ", " (Foreign(holder)) " leads" }
        @if let Some(by) = replica.by { " (by the " (by.as_str()) ")" }
        @if let Some(trouble) = &replica.trouble { ": " (Foreign(trouble)) }
    }
}

fn prometheus(stored: &StoredView) -> Markup {
    html! {
        b { (Foreign(&stored.source)) } " "
        (Foreign(stored.failure.as_deref().unwrap_or("read")))
        @if let Some(age) = stored.age_seconds { ", newest scrape " (human_seconds(age)) " old" }
        @if stored.used { ", verdicts rest on it" } @else { ", not used" }
    }
}

fn server(server: &ScrapeView) -> Markup {
    let readiness = &server.readiness;
    html! {
        li {
            b { (Foreign(&server.target)) } " "
            @if let Some(version) = &server.version { (Foreign(version)) ", " }
            (Foreign(server.failure.as_deref().unwrap_or("scraped"))) ", "
            @match (readiness.state, &readiness.why) {
                ("unknown", Some(why)) => { "readiness unknown: " (Foreign(why)) }
                ("not_ready", _) => { "not ready: " (Foreign(&readiness.failing.join(", "))) }
                (state, _) => (state),
            }
        }
    }
}
