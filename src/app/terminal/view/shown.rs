//! What `status`, `top` and `demo` read from a daemon's assessment.
//!
//! This is not the type that the daemon serializes, as the daemon may be of another release: fields that are missing get
//! defaults, and unknown ones are ignored. Every string is a [`CleanText`].

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::app::text::CleanText;
use crate::domain::act::leadership::ReplicaView;
use crate::domain::diagnose::verdict::called_at;
use crate::domain::observe::views::BlindSpot;
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};

/// An assessment, as far as a terminal shows it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownAssessment {
    /// When it was made, by the daemon's clock.
    pub at: Time,
    /// The control plane.
    pub control_plane: ShownControlPlane,
    /// Every hook, the worst first.
    pub hooks: Vec<ShownHook>,
    /// The state of the sources of evidence.
    #[serde(default)]
    pub sources: ShownSources,
    /// The breaker's mode, and the hooks that it deals with.
    #[serde(default)]
    pub breaker: ShownBreaker,
    /// The daemon's role in the election; `None` if it takes part in none.
    #[serde(default)]
    pub replica: Option<ShownReplica>,
    /// What the last audit found.
    #[serde(default)]
    pub audit: ShownAudit,
    /// Objects that could not be interpreted.
    #[serde(default)]
    pub problems: Vec<ShownProblem>,
}

/// The state of the control plane.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownControlPlane {
    /// Whether it takes writes.
    #[serde(deserialize_with = "writes")]
    pub writes: Writes,
    /// When that state began, by the daemon's clock.
    pub since: Option<Time>,
    /// The state in one sentence, with the culprit where there is one.
    pub summary: CleanText,
    /// The deadlines that come next, for example when leaders exit.
    #[serde(default)]
    pub clocks: Vec<CleanText>,
    /// Other symptoms of the control plane.
    #[serde(default)]
    pub symptoms: Vec<CleanText>,
    /// Recent mean time per write, in seconds.
    pub write_seconds: Option<f64>,
    /// The same in usual times.
    pub usual_write_seconds: Option<f64>,
    /// The cause of impaired writes if it is not a webhook.
    pub not_a_hook: Option<ShownNonHookCause>,
    /// The state of each canary.
    #[serde(default)]
    pub canaries: Vec<ShownCanary>,
}

/// A cause of trouble that is not a webhook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownNonHookCause {
    /// The name of the cause, such as `Unexplained`.
    pub cause: CleanText,
    /// How sure this is, 0 to 1.
    #[serde(default)]
    pub confidence: f64,
    /// The observations behind it.
    #[serde(default)]
    pub evidence: Vec<CleanText>,
}

/// One canary.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownCanary {
    /// The canary's target, by the object that it writes.
    pub canary: CleanText,
    /// Its state, in a word.
    pub state: CleanText,
    /// A sentence about the last one; empty from a daemon that does not say.
    #[serde(default)]
    pub detail: CleanText,
}

/// The verdict on one hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownHook {
    /// `Validating`, `Mutating` and so on, as written.
    pub kind: CleanText,
    /// Its configuration, where it is known.
    pub configuration: Option<CleanText>,
    /// `name` of the entry in its configuration.
    pub webhook: CleanText,
    /// What it shares with webhooks that fail together with it: mostly the address of its backends.
    #[serde(default)]
    pub incident: CleanText,
    /// Its health; `Unknown` for a word of a later release.
    #[serde(deserialize_with = "health")]
    pub health: Health,
    /// The name of the cause; `None` when it is healthy or unknown.
    pub cause: Option<CleanText>,
    /// What the failure does to writes.
    #[serde(default)]
    pub effect: CleanText,
    /// How sure this is, 0 to 1.
    #[serde(default)]
    pub confidence: f64,
    /// The rule that made the verdict.
    #[serde(default)]
    pub rule: CleanText,
    /// Its share of the extra time per write, 0 to 1; `None` if there is no extra time.
    pub excess_share: Option<f64>,
    /// When the cause began to hold, by the daemon's clock.
    pub since: Option<Time>,
    /// The verdict in one sentence.
    #[serde(default)]
    pub summary: CleanText,
    /// The observations behind it.
    #[serde(default)]
    pub evidence: Vec<CleanText>,
    /// The next step; `None` when there is nothing to do.
    pub advice: Option<CleanText>,
    /// Its backends.
    #[serde(default)]
    pub backends: Vec<ShownBackend>,
    /// The rung of its bypass; `None` if it is not bypassed.
    pub bypass: Option<CleanText>,
    /// The command that bypasses it; `None` where a bypass would not help.
    #[serde(default)]
    pub by_hand: Option<ShownByHand>,
}

/// A hook's identity: its kind, its configuration and its name.
pub type HookKey = (CleanText, Option<CleanText>, CleanText);

impl ShownHook {
    /// The confidence as it is shown; `None` without a cause.
    pub fn shown_confidence(&self) -> Option<String> {
        self.cause.as_ref().map(|_| format!("{:.2}", self.confidence))
    }

    /// Where its calls go, where that is known.
    pub fn called_at(&self) -> Option<&str> {
        called_at(self.incident.as_str(), self.webhook.as_str())
    }

    /// Its identity.
    pub fn key(&self) -> HookKey {
        (
            self.kind.clone(),
            self.configuration.clone(),
            self.webhook.clone(),
        )
    }
}

/// What a person may type to bypass a hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownByHand {
    /// The `hookwatch break` command, ready to paste.
    #[serde(deserialize_with = "command")]
    pub command: CleanText,
    /// Its effect, in a few sentences.
    pub meaning: CleanText,
    /// The webhook whose command names this one, too.
    #[serde(default)]
    pub shared_with: Option<CleanText>,
}

/// What the last audit found.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ShownAudit {
    /// How many findings are critical.
    pub critical: usize,
    /// How many are warnings.
    pub warning: usize,
    /// How many are only information.
    pub info: usize,
    /// The worst of them, in order.
    pub findings: Vec<ShownFinding>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownFinding {
    /// The finding's stable identifier.
    pub id: CleanText,
    /// `critical`, `warning` or `info`.
    pub severity: CleanText,
    /// Kind, configuration and webhook between slashes.
    pub object: CleanText,
    /// What would happen, and what to do.
    #[serde(default)]
    pub message: CleanText,
}

/// One backend of a hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownBackend {
    /// How the address is known, for example from an endpoint.
    pub path: CleanText,
    /// Its address.
    pub address: CleanText,
    /// Its state, in a word.
    pub state: CleanText,
    /// Its state, in a sentence.
    #[serde(default)]
    pub detail: CleanText,
}

/// The state of the sources of evidence.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ShownSources {
    /// Seconds since the inventory was known to be current.
    pub inventory_age_seconds: Option<f64>,
    /// Why the inventory is not current.
    pub inventory_trouble: Vec<CleanText>,
    /// Whether the webhook configurations could be listed at all.
    pub hooks_listed: bool,
    /// Why it is not known which API servers there are.
    pub api_servers_trouble: Option<CleanText>,
    /// Whether probes come as often as they should.
    pub probes: ShownProbes,
    /// Every probe fails at once.
    pub self_doubt: bool,
}

/// Whether probes are on time.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ShownProbes {
    /// Why probes are late and what that means; empty while they are on time.
    pub late: Vec<CleanText>,
}

/// The breaker's mode, and the hooks that it deals with.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ShownBreaker {
    /// The configured mode.
    pub wanted: CleanText,
    /// The mode in force: `on` becomes `plan` while the fence is not proven.
    pub effective: CleanText,
    /// The reason for that mode, in one sentence.
    pub why: CleanText,
    /// A person's order to begin no bypass, in words; `None` without one.
    #[serde(default)]
    pub frozen: Option<CleanText>,
    /// The hooks that it deals with.
    pub hooks: Vec<ShownStanding>,
}

/// One hook as the breaker sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownStanding {
    /// The kind of the hook, `Validating` or `Mutating`, as written.
    pub kind: CleanText,
    /// Its configuration.
    pub configuration: CleanText,
    /// `name` of the entry in its configuration.
    pub webhook: CleanText,
    /// `enforcing`, `bypassed` and so on.
    pub state: CleanText,
    /// The rung of its bypass; `None` if it is not bypassed.
    pub rung: Option<CleanText>,
    /// Whether the bypass has propagated to every API server.
    #[serde(default)]
    pub effective: bool,
    /// When that state began, by the daemon's clock.
    pub since: Option<Time>,
    /// The rung at which it would be bypassed in the mode `on`.
    pub would_bypass: Option<CleanText>,
    /// The guard rail that keeps the breaker from bypassing it; `None` if none does.
    pub held_back: Option<CleanText>,
    /// The last message about it.
    #[serde(default)]
    pub words: CleanText,
}

impl ShownStanding {
    /// The identity of its hook.
    pub fn key(&self) -> HookKey {
        (
            self.kind.clone(),
            Some(self.configuration.clone()),
            self.webhook.clone(),
        )
    }
}

/// The daemon's role in the election; `None` if it takes part in none.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownReplica {
    /// The replica's own name in the election.
    pub identity: CleanText,
    /// `Leader`, `Follower` or `Unknown`.
    pub role: CleanText,
    /// The leader's name; `None` when it is unknown.
    pub holder: Option<CleanText>,
    /// Which object decided it, the Lease or the ledger; `None` when no leader is known.
    pub by: Option<CleanText>,
    /// What is wrong with this replica's part in the election, as a sentence.
    pub trouble: Option<CleanText>,
}

/// An object that could not be made sense of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ShownProblem {
    /// The object, as `Kind namespace/name`.
    pub object: CleanText,
    /// What is wrong with it.
    pub what: CleanText,
}

/// The answer is not an assessment.
#[derive(Debug, thiserror::Error)]
#[error("what answers is no assessment of hookwatch ({0})")]
pub struct NoAssessment(#[from] serde_json::Error);

impl ShownAssessment {
    /// Parses an answer of `/api/v1/assessment`.
    pub fn parse(json: &[u8]) -> Result<Self, NoAssessment> {
        Ok(serde_json::from_slice(json)?)
    }

    /// How many hooks have this health.
    pub fn count(&self, health: Health) -> usize {
        self.hooks.iter().filter(|hook| hook.health == health).count()
    }

    /// What the audit found of a hook, the worst first.
    pub fn found<'a>(&'a self, hook: &ShownHook) -> impl Iterator<Item = &'a ShownFinding> {
        let configuration = hook.configuration.as_ref().map_or("", |name| name.as_str());
        let object = format!(
            "{}WebhookConfiguration/{configuration}/{}",
            hook.kind, hook.webhook
        );
        let all = self.audit.findings.iter();
        all.filter(move |found| found.object.as_str() == object)
    }

    /// The breaker's standing on a hook.
    pub fn standing(&self, hook: &ShownHook) -> Option<&ShownStanding> {
        let same = |standing: &&ShownStanding| {
            standing.webhook == hook.webhook
                && Some(&standing.configuration) == hook.configuration.as_ref()
                && standing.kind == hook.kind
        };
        self.breaker.hooks.iter().find(same)
    }

    /// Why a failing webhook could be missed; `None` while nothing hides one.
    pub fn blind_to(&self) -> Option<BlindSpot> {
        let sources = &self.sources;
        BlindSpot::of(
            sources.hooks_listed,
            sources.inventory_age_seconds,
            sources.self_doubt,
        )
    }

    /// The sentence about the control plane, without the symptoms at its end, which are listed separately.
    pub fn sentence(&self) -> &str {
        let plane = &self.control_plane;
        let symptoms = plane.symptoms.iter().rev();
        symptoms.fold(plane.summary.as_str(), |sentence, symptom| {
            let rest = sentence.strip_suffix(symptom.as_str()).map(str::trim_end);
            rest.filter(|rest| !rest.is_empty()).unwrap_or(sentence)
        })
    }

    /// How long the cause of a hook's verdict has held, in words.
    pub fn lasted(&self, hook: &ShownHook) -> Option<String> {
        hook.since.map(|since| lasting(self.at.since(since)))
    }

    /// The next step for the first culprit that a person can bypass, or, if there is none, for the first culprit.
    pub fn advice(&self) -> Option<&CleanText> {
        let mut culprits = self.culprits();
        let first = self.culprits().next();
        let leading = culprits.find(|hook| hook.by_hand.is_some()).or(first);
        leading.and_then(|hook| hook.advice.as_ref())
    }

    fn culprits(&self) -> impl Iterator<Item = &ShownHook> {
        self.hooks.iter().filter(|hook| hook.health == Health::Failing)
    }

    /// While a webhook fails: the sentence that only the leader shows what the breaker does. `None` from a leader.
    pub fn left_to_leader(&self) -> Option<String> {
        let replica = self.replica.as_ref()?;
        let matters = self.breaker.effective.as_str() != "off" && self.culprits().next().is_some();
        let follows = !replica.role.as_str().eq_ignore_ascii_case("leader");
        let holder = replica.holder.as_ref().map(|holder| holder.as_str());
        (matters && follows).then(|| ReplicaView::only_the_leader_shows(holder))
    }

    /// Who leads, in words.
    pub fn leader(&self) -> String {
        let Some(replica) = &self.replica else {
            return "this daemon takes part in no election".to_owned();
        };
        let mut said = match &replica.holder {
            Some(holder) if *holder == replica.identity => format!("{holder} leads, the one asked"),
            Some(holder) => format!("{holder} leads; answered by {}", replica.identity),
            None => format!("no leader is known; answered by {}", replica.identity),
        };
        if let Some(by) = &replica.by {
            said.push_str(&format!(" (by the {by})"));
        }
        if let Some(trouble) = &replica.trouble {
            said.push_str(&format!(": {trouble}"));
        }
        said
    }
}

impl ShownStanding {
    /// The state, the rung and the guard rail, in a few words.
    pub fn short(&self) -> String {
        match (&self.rung, &self.would_bypass, &self.held_back) {
            (Some(rung), ..) if self.state.as_str() != "bypassed" => format!("{} ({rung})", self.state),
            (Some(rung), ..) if self.effective => format!("bypassed ({rung})"),
            (Some(rung), ..) => format!("bypassed ({rung}), not on every API server yet"),
            (None, Some(rung), Some(why)) => format!("would be bypassed ({rung}), held back ({why})"),
            (None, Some(rung), None) => format!("would be bypassed ({rung})"),
            (None, None, Some(why)) => format!("held back ({why})"),
            (None, None, None) => self.state.as_str().to_owned(),
        }
    }
}

/// A duration in one unit: `42 s`, `8 min`, `3 h`, `2 d`.
pub fn lasting(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

fn health<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Health, D::Error> {
    let name = CleanText::deserialize(deserializer)?;
    let same = |health: &Health| health.as_str().eq_ignore_ascii_case(name.as_str());
    // An unknown word of a later release must not become "healthy".
    Ok(Health::ALL.iter().copied().find(same).unwrap_or(Health::Unknown))
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CleanText, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(CleanText::command(&text))
}

fn writes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Writes, D::Error> {
    let name = CleanText::deserialize(deserializer)?;
    let same = |writes: &Writes| writes.as_str().eq_ignore_ascii_case(name.as_str());
    Ok(Writes::ALL.iter().copied().find(same).unwrap_or(Writes::Unknown))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_later_release_says_is_never_taken_for_healthy_and_what_it_leaves_out_is_no_error() {
        let seen = json!({
            "at": "2026-11-21T00:11:02.156Z", "news": [1],
            "control_plane": {"writes": "Sluggish", "summary": "s"},
            "hooks": [{"kind": "Validating", "webhook": "w", "health": "Radiant", "news": {}}],
        });
        let seen = ShownAssessment::parse(seen.to_string().as_bytes()).expect("an assessment");
        assert_eq!(seen.control_plane.writes, Writes::Unknown);
        assert_eq!(seen.hooks[0].health, Health::Unknown);
        assert_eq!(seen.at.as_read_at(seen.at), "00:11:02");
    }

    #[test]
    fn what_is_no_assessment_is_refused() {
        for other in ["", "ok", "{}", "[]", r#"{"status":"up"}"#] {
            assert!(ShownAssessment::parse(other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn a_duration_is_told_in_one_unit() {
        let told =
            [0, 42, 119, 120, 7_199, 7_200, 172_800].map(|seconds| lasting(Duration::from_secs(seconds)));
        assert_eq!(told, ["0 s", "42 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }

    #[test]
    fn a_bypass_on_trial_is_told_from_one_in_force() {
        let standing = |rest: serde_json::Value| {
            let mut whole =
                json!({"kind": "Validating", "configuration": "c", "webhook": "w", "state": "enforcing"});
            for (key, value) in rest.as_object().expect("an object") {
                whole[key] = value.clone();
            }
            serde_json::from_value::<ShownStanding>(whole)
                .expect("a standing")
                .short()
        };
        assert_eq!(
            standing(json!({"state": "bypassed", "rung": "skip", "effective": true})),
            "bypassed (skip)"
        );
        assert!(
            standing(json!({"state": "bypassed", "rung": "skip"})).contains("not on every API server yet")
        );
        assert_eq!(
            standing(json!({"state": "probation", "rung": "skip"})),
            "probation (skip)"
        );
        assert_eq!(
            standing(json!({"would_bypass": "shield"})),
            "would be bypassed (shield)"
        );
        assert_eq!(standing(json!({"held_back": "budget"})), "held back (budget)");
        assert_eq!(standing(json!({})), "enforcing");
    }
}
