//! The breaker in a demo: what it did to the lab's configurations, when writes flowed again, and whether everything was
//! restored. All of it is observed from outside: in the daemon's assessment, the users' writes, and the objects.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::judge::{SeenVerdict, rounded};
use super::survival::WithoutBreaker;
use super::timeline::DemoEvent;
use crate::app::terminal::view::shown::{ShownAssessment, ShownStanding};
use crate::domain::act::bypass::{FIELD_MANAGER, Rung, touched};
use crate::lab::cluster::LabHook;
use crate::lab::workload::{FirstSuccess, Flow};

/// How long writes are observed after a bypass. Writes that began before it have ended by then: the longest timeout of a lab
/// hook is 10 s.
const LOOK: Duration = Duration::from_secs(12);

/// What the breaker achieved in a demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakerReport {
    /// The highest rung of the first bypass; `None` if nothing was bypassed.
    pub rung: Option<String>,
    /// From the fault until the bypass had propagated to every API server.
    pub bypassed_after_seconds: Option<f64>,
    /// From the fault to the end of the first create or update that the culprit matches, that began after the fault and that
    /// succeeded at once: within half a second, or within five times the usual time.
    pub first_write_after_seconds: Option<f64>,
    /// The same in probe intervals.
    pub first_write_after_intervals: Option<f64>,
    /// The median time of writes that succeeded under the bypass, as a multiple of the usual median.
    pub writes_take_times_usual: Option<f64>,
    /// From the removal of the fault until every API server calls the skipped webhooks again, for at least what a shield does
    /// not exempt; `None` if none was skipped.
    pub asked_again_after_seconds: Option<f64>,
    /// Namespaces where at least four of five writes succeeded at once under the bypass.
    pub flowing: Vec<String>,
    /// Namespaces where fewer did.
    pub waiting: Vec<String>,
    /// Culprits that were not bypassed, with the guard rail that kept the breaker from it.
    pub held_back: BTreeMap<String, String>,
    /// Whether nothing is bypassed any more.
    pub restored: bool,
    /// Whether every configuration is what it was, and hookwatch owns none of its fields.
    pub restored_identical: bool,
    /// The same scenario without the breaker; `None` when nothing was bypassed.
    pub without_breaker: Option<WithoutBreaker>,
}

/// Follows the breaker through one demo.
pub struct BreakerFollower {
    client: kube::Client,
    originals: Vec<(LabHook, Value)>,
    /// The last message about each hook.
    told: BTreeMap<String, String>,
    held_back: BTreeMap<String, (String, String)>,
    /// The webhooks that were bypassed, in order, each with its highest rung.
    bypassed: Vec<(String, String)>,
    /// From the fault until the first bypass had propagated to every API server.
    pub(super) bypassed_after: Option<Duration>,
    /// When the last further bypass was seen, or a higher rung of one; only later writes are evidence about it.
    pub(super) bypassed_at: Option<Instant>,
    first_write: Option<Duration>,
    flows: Vec<Flow>,
    slowdown: Option<f64>,
    asked_again: Option<Duration>,
    restored: bool,
    objections: Vec<String>,
}

impl BreakerFollower {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            originals: Vec::new(),
            told: BTreeMap::new(),
            held_back: BTreeMap::new(),
            bypassed: Vec::new(),
            bypassed_after: None,
            bypassed_at: None,
            first_write: None,
            flows: Vec::new(),
            slowdown: None,
            asked_again: None,
            restored: false,
            objections: Vec::new(),
        }
    }

    /// Records the configurations as their owner applies them.
    pub async fn note(&mut self, hooks: &[LabHook]) -> anyhow::Result<()> {
        self.originals.clear();
        for hook in hooks {
            let found = hook.read(&self.client).await?;
            let applied = hook.apply(&self.client, &found, true).await?;
            self.originals.push((*hook, applied));
        }
        Ok(())
    }

    pub fn has_bypassed(&self) -> bool {
        self.bypassed_at.is_some()
    }

    /// The webhooks that were bypassed, in order.
    pub fn bypassed(&self) -> Vec<String> {
        self.bypassed.iter().map(|(webhook, _)| webhook.clone()).collect()
    }

    /// Culprits that were not bypassed, with the guard rail that kept the breaker from it.
    pub fn held_back(&self) -> BTreeMap<String, String> {
        let reasons = self.held_back.iter();
        reasons
            .map(|(webhook, (reason, _))| (webhook.clone(), reason.clone()))
            .collect()
    }

    /// Whether everything expected during the fault was observed.
    pub fn is_through(&self) -> bool {
        self.first_write.is_some() && self.bypassed_at.is_some_and(|at| at.elapsed() >= LOOK)
    }

    /// Returns what is new in an assessment and in the users' writes. `since` is when the fault was in force.
    pub fn observe(
        &mut self,
        since: Instant,
        assessment: &ShownAssessment,
        first: Option<FirstSuccess>,
    ) -> Vec<DemoEvent> {
        let mut events = Vec::new();
        for standing in &assessment.breaker.hooks {
            events.extend(self.stands(since, standing));
        }
        if self.first_write.is_none()
            && let Some(first) = first
        {
            let after = first.ended.saturating_duration_since(since);
            self.first_write = Some(after);
            let text = format!("{}, {:.1} s after the fault", first.request, after.as_secs_f64());
            events.push(DemoEvent::Breaker {
                label: "write succeeds",
                text,
            });
        }
        events
    }

    fn stands(&mut self, since: Instant, standing: &ShownStanding) -> Option<DemoEvent> {
        let webhook = standing.webhook.as_str();
        if let Some(reason) = &standing.held_back {
            let why = (reason.to_string(), standing.words.to_string());
            self.held_back.insert(webhook.to_owned(), why);
        }
        let before = self.told.get(webhook).map(String::as_str);
        let (state, label, text) = match (standing.state.as_str(), &standing.rung) {
            ("bypassed", _) if !standing.effective => return None,
            ("bypassed", Some(rung)) => {
                let text = format!("{webhook} is bypassed ({rung}): {}", standing.words);
                (format!("bypassed {rung}"), "bypassed", text)
            }
            ("probation", _) => {
                let text = format!("{webhook}: {}", standing.words);
                ("probation".to_owned(), "probation", text)
            }
            ("contested", _) => {
                let text = format!("{webhook}: {}", standing.words);
                ("contested".to_owned(), "contested", text)
            }
            // Nothing was done to this webhook.
            _ => return None,
        };
        if before == Some(&state) {
            return None;
        }
        if let ("bypassed", Some(rung)) = (label, &standing.rung) {
            self.held_back.remove(webhook);
            if self.bypassed_at.is_none() {
                (self.bypassed_at, self.bypassed_after) = (Some(Instant::now()), Some(since.elapsed()));
            }
            match self.bypassed.iter_mut().find(|(known, _)| known == webhook) {
                // A higher rung follows a lower one.
                Some((_, known)) if Rung::parse(known).ok() < Rung::parse(rung).ok() => {
                    *known = rung.to_string();
                    self.bypassed_at = Some(Instant::now());
                }
                Some(_) => {}
                None => self.bypassed.push((webhook.to_owned(), rung.to_string())),
            }
        }
        self.told.insert(webhook.to_owned(), state);
        Some(DemoEvent::Breaker { label, text })
    }

    /// Checks whether skipped webhooks are called again. `after` is the time since the removal of the fault.
    pub fn observe_return(&mut self, after: Duration, assessment: &ShownAssessment) {
        let skipped = self.bypassed.iter().any(|(_, rung)| rung == "skip");
        let standings = &assessment.breaker.hooks;
        // A skip that ends and a shield that begins are not effective until they have propagated to every API server.
        let skips = |standing: &ShownStanding| {
            standing.state.as_str() == "bypassed"
                && (!standing.effective || standing.rung.as_ref().is_some_and(|rung| rung.as_str() == "skip"))
        };
        if skipped && self.asked_again.is_none() && !standings.iter().any(skips) {
            self.asked_again = Some(after);
        }
    }

    /// The report at the end of the fault: the outcomes of writes under the bypass, their duration as a multiple of the
    /// usual, and which culprits were not bypassed and why.
    pub fn under_the_fault(
        &mut self,
        flows: Vec<Flow>,
        slowdown: Option<f64>,
        verdicts: &[SeenVerdict],
    ) -> Vec<DemoEvent> {
        self.slowdown = slowdown;
        let mut events = Vec::new();
        let told = |label, flows: Vec<&Flow>, what: &dyn Fn(u64, u64) -> String| {
            let names: Vec<&str> = flows.iter().map(|flow| flow.namespace.as_str()).collect();
            let at_once = flows.iter().map(|flow| flow.at_once).sum();
            let held_up = flows.iter().map(|flow| flow.held_up()).sum();
            (!flows.is_empty()).then(|| DemoEvent::Breaker {
                label,
                text: format!("to {}: {}", names.join(", "), what(at_once, held_up)),
            })
        };
        if self.has_bypassed() {
            let (free, held_up): (Vec<&Flow>, Vec<&Flow>) = flows.iter().partition(|flow| flow.is_free());
            let of = |at_once, held_up| match held_up {
                0 => format!("{at_once} since the bypass, all of them at once"),
                _ => format!(
                    "{} since the bypass, {at_once} of them at once",
                    at_once + held_up
                ),
            };
            events.extend(told("writes flow", free, &of));
            events.extend(told("writes wait", held_up, &|at_once, held_up| {
                let all = at_once + held_up;
                format!("{all} since the bypass, {held_up} of them late, refused or still waiting")
            }));
        }
        self.flows = flows;
        for verdict in verdicts
            .iter()
            .filter(|verdict| !self.is_bypassed(&verdict.webhook))
        {
            let webhook = &verdict.webhook;
            let text = match self.held_back.get(webhook) {
                Some((reason, words)) => format!("{webhook}: {words} ({reason})"),
                None if verdict.harms_writes() => continue,
                None => format!(
                    "{webhook}: its effect is {}, and only what blocks or delays writes is bypassed",
                    verdict.effect
                ),
            };
            events.push(DemoEvent::Breaker {
                label: "not bypassed",
                text,
            });
        }
        events
    }

    fn is_bypassed(&self, webhook: &str) -> bool {
        self.bypassed.iter().any(|(bypassed, _)| bypassed == webhook)
    }

    /// Looks at all objects. Returns whether nothing is bypassed and every object is what it was.
    pub async fn look_at_objects(&mut self) -> anyhow::Result<bool> {
        let mut objections = Vec::new();
        let mut ours = false;
        for (hook, original) in &self.originals {
            let object = hook.read(&self.client).await?;
            let name = hook.configuration();
            ours |= !touched(&object).is_empty();
            for part in ["/webhooks", "/metadata/annotations", "/metadata/labels"] {
                // Compared as text, so that every byte counts.
                let text = |object: &Value| object.pointer(part).map(Value::to_string);
                if text(&object) != text(original) {
                    objections.push(format!("{part} of {name} is not what it was"));
                }
            }
            let claims = object["metadata"]["managedFields"].to_string();
            if claims.contains(&format!("\"manager\":\"{FIELD_MANAGER}\"")) {
                objections.push(format!("hookwatch still owns fields of {name}"));
            }
        }
        self.restored = !ours;
        self.objections = objections;
        Ok(self.restored && self.objections.is_empty())
    }

    /// The final check: the owner applies everything once more, without force, and every result is reported. `after` is
    /// the time since the recovery.
    pub async fn check(&mut self, after: Duration) -> anyhow::Result<Vec<DemoEvent>> {
        let bypassed = self.has_bypassed();
        let mut events = Vec::new();
        let mut check = |label, good: &str, objections: Vec<String>| {
            let passed = objections.is_empty();
            let text = if passed {
                good.to_owned()
            } else {
                objections.join("; ")
            };
            events.push(DemoEvent::Check { passed, label, text });
        };
        let still_there = (!self.restored).then(|| "a bypass is still there".to_owned());
        let restored = if bypassed {
            format!(
                "nothing is bypassed any more, {:.1} s after the recovery",
                after.as_secs_f64()
            )
        } else {
            "nothing was bypassed, and no configuration is changed".to_owned()
        };
        check("restored", &restored, still_there.into_iter().collect());
        let (owned, changed): (Vec<String>, Vec<String>) = self
            .objections
            .iter()
            .cloned()
            .partition(|objection| objection.starts_with("hookwatch still owns"));
        let all = self.originals.len();
        let same = format!("all {all} configurations are what they were, byte for byte");
        check("identical", &same, changed);
        check("managedFields", "nothing of them is hookwatch's", owned);
        let mut refused = Vec::new();
        for (hook, original) in &self.originals {
            if let Err(error) = hook.apply(&self.client, original, false).await {
                let name = hook.configuration();
                refused.push(format!("the owner cannot apply {name}: {error:#}"));
            }
        }
        self.objections.extend(refused.iter().cloned());
        let applied = "their owner applies them by server-side apply, without force";
        check("owner applies", applied, refused);
        Ok(events)
    }

    /// The report, and what is wrong with the outcome, as sentences.
    pub fn report(&self, interval: Duration, verdicts: &[SeenVerdict]) -> (BreakerReport, Vec<String>) {
        let mut objections = self.objections.clone();
        for verdict in verdicts {
            let webhook = &verdict.webhook;
            let is_explained = self.is_bypassed(webhook) || self.held_back.contains_key(webhook);
            if verdict.harms_writes() && !is_explained {
                objections.push(format!("{webhook} was not bypassed, and it is not said why"));
            }
        }
        for (webhook, _) in &self.bypassed {
            if !verdicts.iter().any(|verdict| verdict.webhook == *webhook) {
                objections.push(format!("{webhook} was bypassed and is no culprit"));
            }
        }
        if self.has_bypassed() && self.first_write.is_none() {
            objections.push("no write went through at once while the fault lasted".to_owned());
        }
        objections.extend(self.still_held_up());
        if !self.restored {
            objections.push("a bypass is still there".to_owned());
        }
        let in_intervals =
            |after: Duration| (after.as_secs_f64() / interval.as_secs_f64() * 100.0).round() / 100.0;
        let namespaces = |free: bool| {
            let flows = self.flows.iter().filter(|flow| flow.is_free() == free);
            let flows = flows.filter(|_| self.has_bypassed());
            flows.map(|flow| flow.namespace.clone()).collect()
        };
        let first_write = self.first_write.filter(|_| self.has_bypassed());
        let report = BreakerReport {
            rung: self.bypassed.first().map(|(_, rung)| rung.clone()),
            bypassed_after_seconds: self.bypassed_after.map(rounded),
            first_write_after_seconds: first_write.map(rounded),
            first_write_after_intervals: first_write.map(in_intervals),
            writes_take_times_usual: self
                .slowdown
                .filter(|_| self.has_bypassed())
                .map(|times| (times * 100.0).round() / 100.0),
            asked_again_after_seconds: self.asked_again.map(rounded),
            flowing: namespaces(true),
            waiting: namespaces(false),
            held_back: self.held_back(),
            restored: self.restored,
            restored_identical: self.restored && self.objections.is_empty(),
            without_breaker: None,
        };
        (report, objections)
    }

    /// Writes that the bypass should have unblocked and did not: control-plane writes always, all writes where the hook
    /// is no longer called. Unknown where another culprit was left alone.
    fn still_held_up(&self) -> Option<String> {
        let (_, rung) = self.bypassed.first().filter(|_| self.held_back.is_empty())?;
        let freed = |flow: &&Flow| rung != "shield" || flow.namespace.starts_with("kube-");
        let held_up = self.flows.iter().filter(freed).find(|flow| !flow.is_free())?;
        Some(format!(
            "writes to {} did not flow under the bypass",
            held_up.namespace
        ))
    }
}
