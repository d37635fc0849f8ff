//! Judges whether the daemon was right, by comparing its assessments with what the scenario did.

use std::time::Duration;

use serde::Serialize;

use super::report::finding;
use super::timeline::DemoEvent;
use crate::app::terminal::view::shown::{ShownAssessment, ShownHook};
use crate::domain::vocabulary::{Health, Writes};
use crate::lab::cluster::LabHook;
use crate::lab::scenario::{Expected, ExpectedHealth, Scenario};

/// The part of a demo in which an assessment was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoPhase {
    /// Before anything was broken.
    Baseline,
    /// This long after the fault.
    Fault(Duration),
    /// After the fault was removed.
    Recovery,
}

/// A hook that was named while the fault lasted, with the last cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeenVerdict {
    /// The webhook's name.
    pub webhook: String,
    /// Its configuration.
    pub configuration: String,
    /// `Validating` or `Mutating`.
    pub kind: String,
    /// The name of the cause, for example `Hanging`.
    pub cause: String,
    /// The effect on writes, for example `Blocking`.
    pub effect: String,
    /// The confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// When it got this cause, counted from the fault.
    pub after_seconds: f64,
}

impl SeenVerdict {
    /// Whether writes suffer: only then may the breaker bypass the hook.
    pub fn harms_writes(&self) -> bool {
        matches!(&*self.effect, "Blocking" | "Delaying")
    }
}

/// Follows the assessments of one demo.
#[derive(Debug)]
pub struct Judge {
    scenario: &'static Scenario,
    /// When each of the expected verdicts appeared.
    appeared: Vec<Option<Duration>>,
    not_a_hook_appeared: Option<Duration>,
    /// When the expected forecast was made.
    foreseen: Option<Duration>,
    evidence_seen: bool,
    verdicts: Vec<SeenVerdict>,
    worst_writes: Option<Writes>,
    /// The last assessment while the fault lasted.
    last: Option<ShownAssessment>,
    objections: Vec<String>,
}

impl Judge {
    pub fn new(scenario: &'static Scenario) -> Self {
        Self {
            scenario,
            appeared: vec![None; scenario.expected.len()],
            not_a_hook_appeared: None,
            foreseen: None,
            evidence_seen: false,
            verdicts: Vec::new(),
            worst_writes: None,
            last: None,
            objections: Vec::new(),
        }
    }

    /// Takes in one assessment; returns the events for what is new in it.
    pub fn observe(&mut self, phase: DemoPhase, assessment: &ShownAssessment) -> Vec<DemoEvent> {
        let mut news = Vec::new();
        self.object_to_false_culprits(phase, assessment, &mut news);
        let DemoPhase::Fault(after) = phase else {
            return news;
        };
        self.look_for_evidence(assessment, &mut news);
        self.look_for_risk(after, assessment, &mut news);
        self.look_for_verdicts(after, assessment, &mut news);
        for hook in &assessment.hooks {
            self.remember(after, hook);
        }
        let writes = assessment.control_plane.writes;
        self.worst_writes = self.worst_writes.max(Some(writes));
        self.last = Some(assessment.clone());
        news
    }

    /// Whether every expected verdict has appeared; false if none is expected.
    pub fn has_verdict(&self) -> bool {
        self.time_to_verdict().is_some()
    }

    /// Time from the fault to the last of the expected verdicts; `None` until all have appeared.
    pub fn time_to_verdict(&self) -> Option<Duration> {
        let hooks = self.appeared.iter().copied();
        let other = self.scenario.not_a_hook.map(|_| self.not_a_hook_appeared);
        let all: Option<Vec<Duration>> = hooks.chain(other).collect();
        all?.into_iter().max()
    }

    /// The worst state of writes while the fault lasted.
    pub fn worst_writes(&self) -> Writes {
        self.worst_writes.unwrap_or(Writes::Unknown)
    }

    /// Every hook that was named while the fault lasted.
    pub fn verdicts(&self) -> &[SeenVerdict] {
        &self.verdicts
    }

    /// The cause of trouble that is not a webhook, as last named while the fault lasted.
    pub fn not_a_hook(&self) -> Option<&str> {
        let last = self.last.as_ref()?;
        Some(last.control_plane.not_a_hook.as_ref()?.cause.as_str())
    }

    /// What was wrong with the daemon's verdicts; empty when they were right.
    pub fn objections(&self) -> Vec<String> {
        let mut objections = self.objections.clone();
        for (expected, appeared) in self.scenario.expected.iter().zip(&self.appeared) {
            objections.extend(self.object_to_the_end(expected, *appeared));
        }
        let first = self.appeared.iter().flatten().min();
        let in_time = self
            .foreseen
            .is_some_and(|foreseen| first.is_none_or(|first| foreseen < *first));
        if let Some(wanted) = self.scenario.foreseen.filter(|_| !in_time) {
            objections.push(format!("{wanted:?} was not foreseen before it happened"));
        }
        match (self.scenario.not_a_hook, self.not_a_hook()) {
            (wanted, found) if wanted == found => {}
            // A webhook that recovered is no longer named, and a busy machine is slow for an unknown reason.
            (None, Some("Unexplained")) if self.scenario.mends_itself() => {}
            (Some(wanted), found) => objections.push(format!(
                "no webhook was behind it but {wanted}; in the end it was {}",
                found.unwrap_or("not said")
            )),
            (None, found) => objections.push(format!("blamed {} in the end", found.unwrap_or_default())),
        }
        if self.last.is_none() {
            objections.push("no assessment was read while the fault lasted".to_owned());
        }
        objections
    }

    fn expected(&self, hook: &ShownHook) -> Option<&'static Expected> {
        self.scenario
            .expected
            .iter()
            .find(|expected| is_of(expected.hook, hook))
    }

    fn object_to_false_culprits(
        &mut self,
        phase: DemoPhase,
        assessment: &ShownAssessment,
        news: &mut Vec<DemoEvent>,
    ) {
        for hook in assessment
            .hooks
            .iter()
            .filter(|hook| hook.health == Health::Failing)
        {
            let cause = hook.cause.as_deref().unwrap_or("no cause");
            let objection = match self.expected(hook) {
                Some(expected)
                    if expected.health == ExpectedHealth::Failing && phase != DemoPhase::Baseline =>
                {
                    continue;
                }
                Some(_) => format!("{} works, but was called Failing ({cause})", hook.webhook),
                None => format!(
                    "{} had no part in it, but was called Failing ({cause})",
                    hook.webhook
                ),
            };
            if self.object(objection) {
                news.push(verdict(hook, false));
            }
        }
        let nothing_is_wrong = self.scenario.expected.is_empty() && self.scenario.not_a_hook.is_none();
        if let Some(trouble) = &assessment.control_plane.not_a_hook
            && nothing_is_wrong
        {
            self.object(format!("nothing was wrong, but {} was named", trouble.cause));
        }
    }

    fn object(&mut self, objection: String) -> bool {
        let is_new = !self.objections.contains(&objection);
        if is_new {
            self.objections.push(objection);
        }
        is_new
    }

    fn look_for_evidence(&mut self, assessment: &ShownAssessment, news: &mut Vec<DemoEvent>) {
        if self.evidence_seen {
            return;
        }
        let control_plane = &assessment.control_plane;
        let hook = assessment
            .hooks
            .iter()
            .filter(|hook| matches!(hook.health, Health::Suspect | Health::Failing))
            .find_map(|hook| hook.evidence.first().or(Some(&hook.summary)));
        let impaired = matches!(control_plane.writes, Writes::Delayed | Writes::Blocked);
        let writes = impaired.then_some(&control_plane.summary);
        if let Some(text) = hook.or(writes) {
            self.evidence_seen = true;
            news.push(DemoEvent::Evidence(text.to_string()));
        }
    }

    fn look_for_risk(&mut self, after: Duration, assessment: &ShownAssessment, news: &mut Vec<DemoEvent>) {
        let Some(wanted) = self.scenario.foreseen.filter(|_| self.foreseen.is_none()) else {
            return;
        };
        let of_it = |object: &str| {
            let webhook = object.rsplit('/').next();
            let hook = assessment
                .hooks
                .iter()
                .find(|hook| Some(&*hook.webhook) == webhook);
            hook.is_some_and(|hook| self.expected(hook).is_some())
        };
        let mut findings = assessment.audit.findings.iter();
        let found = findings.find(|found| found.message.contains(wanted) && of_it(&found.object));
        if let Some(risk) = found.map(|found| found.message.to_string()) {
            self.foreseen = Some(after);
            news.push(DemoEvent::Risk(risk));
        }
    }

    fn look_for_verdicts(
        &mut self,
        after: Duration,
        assessment: &ShownAssessment,
        news: &mut Vec<DemoEvent>,
    ) {
        for (expected, appeared) in self.scenario.expected.iter().zip(&mut self.appeared) {
            let found = assessment
                .hooks
                .iter()
                .find(|hook| is_of(expected.hook, hook) && has_verdict(expected, hook));
            if let (None, Some(hook)) = (&appeared, found) {
                *appeared = Some(after);
                news.push(verdict(hook, true));
            }
        }
        if let Some(trouble) = &assessment.control_plane.not_a_hook
            && self.not_a_hook_appeared.is_none()
            && self.scenario.not_a_hook == Some(trouble.cause.as_str())
        {
            self.not_a_hook_appeared = Some(after);
            news.push(DemoEvent::Verdict {
                culprit: "no webhook".to_owned(),
                finding: finding(Some(&trouble.cause), None, trouble.confidence),
                evidence: trouble.evidence.iter().map(ToString::to_string).collect(),
                expected: true,
            });
        }
    }

    fn remember(&mut self, after: Duration, hook: &ShownHook) {
        let Some(cause) = &hook.cause else { return };
        // A suspicion does not count as a verdict, unless the scenario expects just that.
        let called_for = |expected: &Expected| is_of(expected.hook, hook) && has_verdict(expected, hook);
        if hook.health != Health::Failing && !self.scenario.expected.iter().any(called_for) {
            return;
        }
        let seen = SeenVerdict {
            webhook: hook.webhook.to_string(),
            configuration: hook.configuration.as_deref().unwrap_or_default().to_owned(),
            kind: hook.kind.to_string(),
            cause: cause.to_string(),
            effect: hook.effect.to_string(),
            confidence: hook.confidence,
            after_seconds: rounded(after),
        };
        let known = self.verdicts.iter_mut().find(|known| {
            (&known.kind, &known.configuration, &known.webhook)
                == (&seen.kind, &seen.configuration, &seen.webhook)
        });
        match known {
            // Its effect is the one from before the bypass.
            Some(_) if is_uncalled(hook) => {}
            Some(known) if known.cause == seen.cause => {
                (known.effect, known.confidence) = (seen.effect, seen.confidence);
            }
            Some(known) => *known = seen,
            None => self.verdicts.push(seen),
        }
    }

    /// What is wrong with the verdict on one expected hook at the end of the fault.
    fn object_to_the_end(&self, expected: &Expected, appeared: Option<Duration>) -> Option<String> {
        let name = expected.hook.webhook();
        if appeared.is_none() {
            return Some(format!("{name} was never called {}", wanted(expected)));
        }
        let hook = self
            .last
            .as_ref()?
            .hooks
            .iter()
            .find(|hook| is_of(expected.hook, hook));
        let Some(hook) = hook else {
            return Some(format!("{name} was gone from the assessment in the end"));
        };
        if self.scenario.mends_itself() && hook.health == Health::Healthy {
            return None;
        }
        // A hook without calls has no effect, and only probes show its state.
        if is_uncalled(hook) && hook.cause.is_some() {
            return None;
        }
        // Another hook's shield exempts the canaries that were the evidence, so this one may be only suspect again.
        let named = |other: &ShownHook| self.expected(other).is_some() && other.bypass.is_some();
        let doubt = hook.health == Health::Suspect && hook.cause.as_deref() == Some(expected.cause);
        if doubt && &*hook.effect == "FailingOpen" && self.last.iter().flat_map(|last| &last.hooks).any(named)
        {
            return None;
        }
        // What a shield exempts is no longer blocked.
        let effect_is_right = expected
            .effect
            .is_none_or(|effect| hook.bypass.is_some() || &*hook.effect == effect);
        (!has_verdict(expected, hook) || !effect_is_right).then(|| {
            format!(
                "in the end {name} was called {:?} {} {}, not {}",
                hook.health,
                hook.cause.as_deref().unwrap_or("(no cause)"),
                hook.effect,
                wanted(expected)
            )
        })
    }
}

/// Seconds with three decimals, as they are printed.
pub fn rounded(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// The event for a new verdict. `expected`: the scenario calls for it.
fn verdict(hook: &ShownHook, expected: bool) -> DemoEvent {
    DemoEvent::Verdict {
        finding: finding(hook.cause.as_deref(), Some(&hook.effect), hook.confidence),
        culprit: hook.webhook.to_string(),
        evidence: hook.evidence.iter().map(ToString::to_string).collect(),
        expected,
    }
}

fn wanted(expected: &Expected) -> String {
    let effect = expected.effect.map(|effect| format!(" {effect}"));
    format!(
        "{} {}{}",
        expected.health.as_str(),
        expected.cause,
        effect.unwrap_or_default()
    )
}

/// Whether a verdict is about this hook of the lab.
pub fn is_of(lab: LabHook, hook: &ShownHook) -> bool {
    &*hook.webhook == lab.webhook() && hook.configuration.as_deref() == Some(lab.configuration())
}

/// Whether no user's write reaches the hook, so that it harms none.
fn is_uncalled(hook: &ShownHook) -> bool {
    matches!(hook.bypass.as_deref(), Some("skip" | "probation"))
}

fn has_verdict(expected: &Expected, hook: &ShownHook) -> bool {
    let health = match expected.health {
        ExpectedHealth::Failing => Health::Failing,
        ExpectedHealth::Suspect => Health::Suspect,
    };
    hook.health == health && hook.cause.as_deref() == Some(expected.cause)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lab::scenario::by_name;

    fn said(hook: LabHook, health: &str, cause: Option<&str>, effect: &str) -> Value {
        json!({
            "kind": "Validating", "configuration": hook.configuration(), "webhook": hook.webhook(),
            "health": health, "cause": cause, "effect": effect, "confidence": 0.9,
            "summary": "a summary", "evidence": ["first", "second"],
        })
    }

    fn healthy(hook: LabHook) -> Value {
        said(hook, "Healthy", None, "None")
    }

    fn assessment(writes: &str, not_a_hook: Option<&str>, hooks: &[Value]) -> ShownAssessment {
        let not_a_hook = not_a_hook.map(|cause| json!({"cause": cause, "evidence": []}));
        let control_plane = json!({"writes": writes, "summary": "writes hang", "not_a_hook": not_a_hook});
        let at = "2026-11-21T00:11:02.156Z";
        serde_json::from_value(json!({"at": at, "control_plane": control_plane, "hooks": hooks})).unwrap()
    }

    fn fault(seconds: u64) -> DemoPhase {
        DemoPhase::Fault(Duration::from_secs(seconds))
    }

    fn judge(name: &str) -> Judge {
        Judge::new(by_name(name).unwrap())
    }

    fn hanging() -> ShownAssessment {
        let opa = said(LabHook::Opa, "Failing", Some("Hanging"), "Blocking");
        assessment("Blocked", None, &[opa, healthy(LabHook::Policy)])
    }

    #[test]
    fn the_expected_verdict_is_right_and_timed_at_its_first_appearance() {
        let mut judge = judge("validating-hang");
        let calm = assessment("Flowing", None, &[healthy(LabHook::Opa)]);
        let doubt = said(LabHook::Opa, "Suspect", None, "None");
        let doubt = assessment("Delayed", None, &[doubt]);
        assert_eq!(judge.observe(DemoPhase::Baseline, &calm), []);
        assert_eq!(judge.observe(fault(1), &calm), []);
        assert_eq!(
            judge.observe(fault(2), &doubt),
            [DemoEvent::Evidence("first".into())]
        );
        assert!(matches!(
            &judge.observe(fault(3), &hanging())[..],
            [DemoEvent::Verdict { expected: true, .. }]
        ));
        assert_eq!(judge.observe(fault(8), &hanging()), []);
        judge.observe(DemoPhase::Recovery, &hanging());
        assert_eq!(judge.objections(), [""; 0]);
        assert_eq!(judge.time_to_verdict(), Some(Duration::from_secs(3)));
        assert_eq!(judge.worst_writes(), Writes::Blocked);
        let verdicts = judge.verdicts();
        assert_eq!((verdicts.len(), verdicts[0].after_seconds), (1, 3.0));
    }

    #[test]
    fn a_wrong_cause_on_the_way_is_forgiven_and_at_the_end_it_is_not() {
        let mut judge = judge("validating-hang");
        let slow = said(LabHook::Opa, "Failing", Some("Slow"), "Delaying");
        let slow = assessment("Delayed", None, &[slow]);
        judge.observe(fault(1), &slow);
        assert!(!judge.has_verdict());
        judge.observe(fault(2), &hanging());
        assert_eq!(judge.objections(), [""; 0]);
        assert_eq!(judge.verdicts()[0].cause, "Hanging");
        assert_eq!(judge.verdicts()[0].after_seconds, 2.0);
        judge.observe(fault(9), &slow);
        assert_eq!(judge.objections().len(), 1, "{:?}", judge.objections());
    }

    #[test]
    fn what_fails_open_may_be_in_doubt_again_once_another_one_is_shielded() {
        let mut judge = judge("two-culprits");
        let mut opa = said(LabHook::Opa, "Failing", Some("Erroring"), "Blocking");
        let policy = said(LabHook::Policy, "Failing", Some("Hanging"), "Delaying");
        judge.observe(fault(2), &assessment("Blocked", None, &[opa.clone(), policy]));
        let doubt = said(LabHook::Policy, "Suspect", Some("Hanging"), "FailingOpen");
        judge.observe(
            fault(3),
            &assessment("Blocked", None, &[opa.clone(), doubt.clone()]),
        );
        assert_eq!(judge.objections().len(), 1, "{:?}", judge.objections());
        opa["bypass"] = "shield".into();
        judge.observe(fault(4), &assessment("Blocked", None, &[opa, doubt]));
        assert_eq!(judge.objections(), [""; 0]);
    }

    #[test]
    fn a_false_culprit_is_wrong_whenever_it_is_named() {
        let accused = said(LabHook::Quota, "Failing", Some("Slow"), "Delaying");
        let calm = assessment("Flowing", None, std::slice::from_ref(&accused));
        for phase in [DemoPhase::Baseline, fault(1), DemoPhase::Recovery] {
            let mut judge = judge("validating-hang");
            let news = judge.observe(phase, &calm);
            assert!(
                news.iter()
                    .any(|news| matches!(news, DemoEvent::Verdict { expected: false, .. })),
                "{phase:?}"
            );
            assert_eq!(judge.observe(phase, &calm), [], "said once only");
            judge.observe(fault(2), &hanging());
            assert_eq!(judge.objections().len(), 1, "{phase:?}");
        }
    }

    #[test]
    fn the_culprit_itself_is_innocent_before_the_fault() {
        let mut judge = judge("validating-hang");
        judge.observe(DemoPhase::Baseline, &hanging());
        judge.observe(fault(1), &hanging());
        assert_eq!(judge.objections().len(), 1);
    }

    #[test]
    fn no_verdict_in_time_is_wrong() {
        let mut judge = judge("validating-hang");
        judge.observe(fault(60), &assessment("Blocked", None, &[healthy(LabHook::Opa)]));
        assert_eq!(judge.time_to_verdict(), None);
        assert_eq!(judge.objections().len(), 1);
    }

    #[test]
    fn a_hook_that_works_must_not_be_called_failing() {
        let mut judge = judge("one-of-three-refused");
        let suspect = said(LabHook::Opa, "Suspect", Some("Partial"), "None");
        judge.observe(fault(2), &assessment("Flowing", None, &[suspect]));
        assert!(judge.has_verdict());
        assert_eq!(judge.objections(), [""; 0]);
        let failing = said(LabHook::Opa, "Failing", Some("Partial"), "None");
        judge.observe(fault(3), &assessment("Flowing", None, &[failing]));
        assert_eq!(judge.objections().len(), 2, "{:?}", judge.objections());
    }

    #[test]
    fn the_effect_counts_where_only_one_is_right() {
        let mut judge = judge("mutating-hang-fail-open");
        let blocking = said(LabHook::Policy, "Failing", Some("Hanging"), "Blocking");
        judge.observe(fault(3), &assessment("Delayed", None, &[blocking]));
        assert_eq!(judge.objections().len(), 1);
        let open = said(LabHook::Policy, "Failing", Some("Hanging"), "Delaying");
        judge.observe(fault(4), &assessment("Delayed", None, &[open]));
        assert_eq!(judge.objections(), [""; 0]);
        assert_eq!(judge.time_to_verdict(), Some(Duration::from_secs(3)));
    }

    #[test]
    fn two_culprits_take_as_long_as_the_later_one() {
        let mut judge = judge("two-culprits");
        let opa = said(LabHook::Opa, "Failing", Some("Erroring"), "Blocking");
        let policy = said(LabHook::Policy, "Failing", Some("Hanging"), "Delaying");
        judge.observe(fault(2), &assessment("Blocked", None, std::slice::from_ref(&opa)));
        assert!(!judge.has_verdict());
        judge.observe(fault(6), &assessment("Blocked", None, &[opa, policy]));
        assert_eq!(judge.time_to_verdict(), Some(Duration::from_secs(6)));
        assert_eq!(judge.objections(), [""; 0]);
    }

    #[test]
    fn trouble_that_is_no_hook_has_to_be_named_and_only_then() {
        let mut right = judge("etcd-slow");
        let news = right.observe(fault(4), &assessment("Delayed", Some("EtcdSlow"), &[]));
        assert!(matches!(
            &news[..],
            [DemoEvent::Evidence(_), DemoEvent::Verdict { expected: true, .. }]
        ));
        assert_eq!(right.time_to_verdict(), Some(Duration::from_secs(4)));
        assert_eq!(right.objections(), [""; 0]);
        assert_eq!(right.not_a_hook(), Some("EtcdSlow"));

        let mut silent = judge("etcd-slow");
        silent.observe(fault(4), &assessment("Delayed", None, &[]));
        assert_eq!(silent.objections().len(), 1);

        let mut both = judge("validating-hang");
        let opa = said(LabHook::Opa, "Failing", Some("Hanging"), "Blocking");
        let blamed = assessment("Blocked", Some("Overloaded"), &[opa]);
        both.observe(fault(2), &blamed);
        assert_eq!(both.objections().len(), 1);
    }

    #[test]
    fn quiet_is_right_only_when_nothing_is_ever_said() {
        let mut judge = judge("quiet");
        judge.observe(fault(1), &assessment("Flowing", None, &[healthy(LabHook::Opa)]));
        assert_eq!(judge.objections(), [""; 0]);
        judge.observe(fault(2), &assessment("Flowing", Some("Overloaded"), &[]));
        judge.observe(fault(3), &assessment("Flowing", None, &[]));
        assert_eq!(judge.objections().len(), 1);
    }
}
