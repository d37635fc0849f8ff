//! Metrics that an API server does not expose: releases differ, and some can be switched off.
//!
//! A family without any series is not exposed at all, so most absent families are merely empty. Only two kinds are reported as
//! missing: those that every API server has from its first request on, and those that must have series because of what another
//! family shows.

use super::{Family, HookSeries, Snapshot};

/// A set of families. It is serialized as their names, since the bits differ between hookwatch's releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<Family>", into = "Vec<Family>")]
pub struct FamilySet(u32);

impl From<Vec<Family>> for FamilySet {
    fn from(families: Vec<Family>) -> Self {
        let mut set = Self::default();
        families.into_iter().for_each(|family| set.insert(family));
        set
    }
}

impl From<FamilySet> for Vec<Family> {
    fn from(set: FamilySet) -> Self {
        let all = Family::ALL.iter().copied();
        all.filter(|family| set.contains(*family)).collect()
    }
}

impl FamilySet {
    /// Adds a family.
    pub const fn insert(&mut self, family: Family) {
        self.0 |= 1 << family as u32;
    }

    /// Adds all families of another set.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether the set contains a family.
    pub const fn contains(self, family: Family) -> bool {
        self.0 & (1 << family as u32) != 0
    }
}

/// The first minor release that counts a call without an answer under the code 503; earlier ones count it as 400 (`callHook` in
/// `apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go` of 1.33 and of 1.34).
const UNANSWERED_IS_503: u32 = 34;

/// A family, the consequence of its absence, and whether an API server that does not expose it should have series of it.
type Absence = (Family, &'static str, fn(&Snapshot) -> bool);

#[rustfmt::skip] // a table
const ABSENCES: [Absence; 10] = [
    (Family::RequestDuration, "how long writes take is judged by canaries alone", |_| true),
    (Family::RequestSli, "slowness is told from that of webhooks by what is usual, not measured",
        |it| !it.seen.contains(Family::RequestSlo)),
    (Family::RequestTotal, "whether writes fail is judged by canaries and the webhooks' own counters", |_| true),
    (Family::InFlight, "an overload is judged without the number of requests under way", |_| true),
    (Family::Etcd, "a slow etcd cannot be told from other slowness of the API server", |_| true),
    (Family::ProcessStart, "several API servers behind one address cannot be told apart", |_| true),
    (Family::HookDuration, "slow webhooks are found by probes and canaries alone", |it| {
        let others = [Family::HookRequests, Family::HookRejections, Family::HookFailOpen];
        others.into_iter().any(|other| it.seen.contains(other))
    }),
    (Family::HookRequests, "what webhooks answer is judged without HTTP codes",
        |it| it.seen.contains(Family::HookDuration)),
    (Family::HookRejections, "denials are told from failed calls by HTTP codes alone",
        |it| it.hooks.values().any(|series| series.rejected.count >= 1.0)),
    (Family::HookFailOpen,
        "calls got no answer and refused nothing; whether objects passed unseen is judged by probes alone",
        |it| it.seen.contains(Family::HookDuration) && it.hooks.values().any(HookSeries::must_have_failed_open)),
];

impl Snapshot {
    /// One sentence per missing family; empty for what is not an API server.
    pub fn missing(&self) -> Vec<String> {
        let is_missing = |(family, _, matters): &&Absence| {
            let has = match family {
                Family::ProcessStart => self.process_start.is_some(),
                family => self.seen.contains(*family),
            };
            self.is_api_server && !has && matters(self)
        };
        let missing = ABSENCES.iter().filter(is_missing);
        missing
            .map(|(family, without, _)| format!("this API server shows no {}: {without}", family.name()))
            .collect()
    }
}

impl Snapshot {
    /// Computes denials and failed calls from the HTTP codes of calls, if the API server exposes no rejection counter.
    ///
    /// An API server that has the counter and has refused nothing yet has no call with `rejected="true"` either, so for it this
    /// computes zeros.
    pub fn make_up_for_rejections(&mut self) {
        if self.seen.contains(Family::HookRejections) || !self.seen.contains(Family::HookRequests) {
            return;
        }
        for series in self.hooks.values_mut() {
            let unanswered = series.codes.get(&503).copied().unwrap_or(0.0);
            series.rejections.calling = unanswered.min(series.rejected.count);
            series.rejections.denied = series.rejected.count - series.rejections.calling;
        }
    }

    /// Moves calls without an answer from the code 400 to 503, as releases from 1.34 count them. For increases only.
    pub(super) fn tell_unanswered(&mut self) {
        if self.minor.is_some_and(|minor| minor < UNANSWERED_IS_503) {
            self.hooks.values_mut().for_each(HookSeries::tell_unanswered);
        }
    }
}

impl HookSeries {
    /// Moves calls without an answer from 400, which also counts denials, to 503. Calls whose client gave up show in no other
    /// counter, so everything under 400 that is not a denial counts as unanswered.
    fn tell_unanswered(&mut self) {
        let Some(count) = self.codes.get(&400).copied() else {
            return;
        };
        let denied = self.rejections.denied - self.rejections.denied_otherwise;
        // Recordings of older hookwatch versions do not split denials by code. Failed calls that have no other code are unanswered
        // in any case.
        let others: f64 = self.codes.range(401..=600).map(|(_, count)| count).sum();
        let at_least = self.rejections.calling + self.fail_open - others;
        let unanswered = (count - denied).max(at_least).clamp(0.0, count);
        self.codes.insert(400, count - unanswered);
        *self.codes.entry(503).or_default() += unanswered;
    }

    /// Whether so many calls without an answer (503) refused no request that they must have failed open. A few prove nothing,
    /// since a client that gives up early leaves such a call as well.
    fn must_have_failed_open(&self) -> bool {
        let unanswered = self.codes.get(&503).copied().unwrap_or(0.0) - self.rejected.count;
        unanswered >= 3.0 && unanswered >= 0.5 * self.calls.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::exposition::Exposition;

    const WHOLE: &str = "apiserver_request_duration_seconds_sum{verb=\"GET\"} 1\n\
        apiserver_request_sli_duration_seconds_sum{verb=\"GET\"} 1\n\
        apiserver_request_total{verb=\"GET\",code=\"200\"} 1\n\
        apiserver_current_inflight_requests{request_kind=\"mutating\"} 0\n\
        etcd_request_duration_seconds_sum{operation=\"get\"} 1\n\
        process_start_time_seconds 1\n";
    const CALLED: &str = "apiserver_admission_webhook_admission_duration_seconds_count{name=\"w\",type=\"admit\",rejected=\"false\"} 5\n\
         apiserver_admission_webhook_request_total{name=\"w\",type=\"admit\",code=\"200\",rejected=\"false\"} 5\n";

    fn missing(text: &str) -> Vec<String> {
        let mut exposition = Exposition::new();
        exposition.feed(text.as_bytes());
        exposition.finish().0.missing()
    }

    fn without(text: &str, family: &str) -> String {
        let lines = text.lines().filter(|line| !line.starts_with(family));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn an_api_server_whose_hooks_did_nothing_yet_lacks_nothing() {
        assert_eq!(missing(WHOLE), [] as [&str; 0]);
        assert_eq!(missing(&format!("{WHOLE}{CALLED}")), [] as [&str; 0]);
    }

    #[test]
    fn each_family_that_every_api_server_has_is_missed_by_name() {
        for family in [
            "apiserver_request_duration_seconds",
            "apiserver_request_sli_duration_seconds",
            "apiserver_request_total",
            "apiserver_current_inflight_requests",
            "etcd_request_duration_seconds",
            "process_start_time_seconds",
        ] {
            let said = missing(&without(WHOLE, family));
            assert_eq!(said.len(), 1, "{family}: {said:?}");
            assert!(
                said[0].starts_with(&format!("this API server shows no {family}: ")),
                "{said:?}"
            );
        }
    }

    #[test]
    fn the_older_name_of_the_sli_family_will_do() {
        let text = WHOLE.replace("_sli_", "_slo_");
        assert_eq!(missing(&text), [] as [&str; 0]);
    }

    #[test]
    fn a_family_that_another_one_vouches_for_is_missed() {
        let rejected = CALLED.replace("false", "true");
        let unanswered = CALLED.replace("200", "503");
        for (called, absent) in [
            (
                without(CALLED, "apiserver_admission_webhook_admission"),
                "apiserver_admission_webhook_admission_duration_seconds",
            ),
            (
                without(CALLED, "apiserver_admission_webhook_request"),
                "apiserver_admission_webhook_request_total",
            ),
            (rejected, "apiserver_admission_webhook_rejection_count"),
            (unanswered, "apiserver_admission_webhook_fail_open_count"),
        ] {
            let said = missing(&format!("{WHOLE}{called}"));
            assert!(
                said.len() == 1 && said[0].contains(&format!("no {absent}:")),
                "{said:?}"
            );
        }
    }

    /// What was gained of one webhook on a release: calls by code, calls that failed, and denials by code.
    fn gained(minor: &str, codes: &[(u16, u32)], failed: u32, denied: &[(u16, u32)]) -> HookSeries {
        const ADMISSION: &str = "apiserver_admission_webhook";
        let hook = "name=\"h\",operation=\"CREATE\",type=\"validating\"";
        let calls: u32 = codes.iter().map(|(_, count)| count).sum();
        let mut text = format!(
            "{ADMISSION}_admission_duration_seconds_count{{{hook},rejected=\"true\"}} {calls}\n\
             {ADMISSION}_rejection_count{{{hook},error_type=\"calling_webhook_error\",rejection_code=\"400\"}} {failed}\n\
             kubernetes_build_info{{major=\"1\",minor=\"{minor}\"}} 1\n"
        );
        for (code, count) in codes {
            text +=
                &format!("{ADMISSION}_request_total{{{hook},code=\"{code}\",rejected=\"true\"}} {count}\n");
        }
        for (code, count) in denied {
            text += &format!(
                "{ADMISSION}_rejection_count{{{hook},error_type=\"no_error\",rejection_code=\"{code}\"}} {count}\n"
            );
        }
        let mut exposition = Exposition::new();
        exposition.feed(text.as_bytes());
        let gain = exposition.finish().0.since(&Snapshot::default());
        gain.hooks.into_values().next().unwrap()
    }

    #[test]
    fn before_1_34_a_400_is_a_call_without_an_answer_or_a_denial() {
        let gain = |minor: &str| gained(minor, &[(400, 5)], 3, &[(400, 2)]);
        for older in ["27", "33+"] {
            let series = gain(older);
            assert_eq!((series.codes[&503], series.codes[&400]), (3.0, 2.0), "{older}");
            assert_eq!(series.own_errors(), 0.0, "{older}");
        }
        assert_eq!(gain("34").own_errors(), 3.0);
    }

    #[test]
    fn before_1_34_a_call_whose_client_gave_up_is_no_answer_either() {
        // Six time out and four clients give up; of the denials only those without a code of their own are 400s.
        for (codes, denied) in [
            (&[(400, 10)][..], &[][..]),
            (&[(400, 10), (403, 5)], &[(403, 5)]),
            (&[(400, 12), (403, 5)], &[(400, 2), (403, 5)]),
        ] {
            let series = gained("33", codes, 6, denied);
            assert_eq!(series.codes[&503], 10.0, "{codes:?}");
            assert_eq!(series.own_errors(), 0.0, "{codes:?}");
            assert_eq!(
                series.answered(),
                series.rejections.denied,
                "a denial is an answer: {codes:?}"
            );
        }
    }

    #[test]
    fn before_1_34_a_denial_beside_http_errors_of_the_hooks_own_is_no_call_without_an_answer() {
        let series = gained("33", &[(400, 2), (500, 3)], 3, &[(400, 2)]);
        assert_eq!((series.own_errors(), series.codes[&503]), (3.0, 0.0));
    }

    #[test]
    fn a_recording_that_does_not_tell_denials_by_their_codes_is_judged_by_what_failed() {
        let mut series = HookSeries {
            codes: [(400, 10.0), (500, 1.0)].into(),
            ..HookSeries::default()
        };
        series.rejections.denied = 8.0;
        series.rejections.calling = 6.0;
        series.tell_unanswered();
        assert_eq!((series.codes[&400], series.codes[&503]), (5.0, 5.0));
    }
}
