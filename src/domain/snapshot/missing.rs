//! What an API server does not tell: releases differ in their metrics, and some can be switched off.
//!
//! A family without any series is not written at all, so most that are absent have merely nothing to tell. Only two
//! kinds are known to be missing: those that every API server has from its first request on, and those about which
//! another family says that there should be something.

use super::{Family, HookSeries, Snapshot};

/// A set of families. It is written down by their names: the bits are this release's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<Family>", into = "Vec<Family>")]
pub struct Families(u32);

impl From<Vec<Family>> for Families {
    fn from(families: Vec<Family>) -> Self {
        let mut set = Self::default();
        families.into_iter().for_each(|family| set.insert(family));
        set
    }
}

impl From<Families> for Vec<Family> {
    fn from(set: Families) -> Self {
        let all = Family::ALL.into_iter();
        all.filter(|family| set.contains(*family)).collect()
    }
}

impl Families {
    /// Adds one.
    pub const fn insert(&mut self, family: Family) {
        self.0 |= 1 << family as u32;
    }

    /// Adds all of another set.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether it is in the set.
    pub const fn contains(self, family: Family) -> bool {
        self.0 & (1 << family as u32) != 0
    }
}

/// What is missing, and what is judged without it.
type Absence = (&'static str, &'static str);

const REQUEST_DURATION: Absence = (
    "apiserver_request_duration_seconds",
    "how long writes take is judged by canaries alone",
);
const REQUEST_SLI: Absence = (
    "apiserver_request_sli_duration_seconds",
    "slowness is told from that of hooks by what is usual, not measured",
);
const REQUEST_TOTAL: Absence = (
    "apiserver_request_total",
    "whether writes fail is judged by canaries and the hooks' own counters",
);
const IN_FLIGHT: Absence = (
    "apiserver_current_inflight_requests",
    "an overload is judged without the number of requests under way",
);
const ETCD: Absence = (
    "etcd_request_duration_seconds",
    "a slow etcd cannot be told from other slowness of the API server",
);
const PROCESS_START: Absence = (
    "process_start_time_seconds",
    "several API servers behind one address cannot be told apart",
);
const HOOK_DURATION: Absence = (
    "apiserver_admission_webhook_admission_duration_seconds",
    "slow hooks are found by probes and canaries alone",
);
const HOOK_REQUESTS: Absence = (
    "apiserver_admission_webhook_request_total",
    "what hooks answer is judged without HTTP codes",
);
const HOOK_REJECTIONS: Absence = (
    "apiserver_admission_webhook_rejection_count",
    "denials are told from failed calls by HTTP codes alone",
);
const HOOK_FAIL_OPEN: Absence = (
    "apiserver_admission_webhook_fail_open_count",
    "calls got no answer and refused nothing; whether objects passed unseen is judged by probes alone",
);

impl Snapshot {
    /// One sentence per family that is missing.
    pub fn missing(&self) -> Vec<String> {
        let has = |family| self.seen.contains(family);
        let any = |of: fn(&HookSeries) -> bool| self.hooks.values().any(of);
        let absent = [
            (REQUEST_DURATION, !has(Family::RequestDuration)),
            (REQUEST_SLI, !has(Family::RequestSli) && !has(Family::RequestSlo)),
            (REQUEST_TOTAL, !has(Family::RequestTotal)),
            (IN_FLIGHT, !has(Family::InFlight)),
            (ETCD, !has(Family::Etcd)),
            (PROCESS_START, self.process_start.is_none()),
            (
                HOOK_DURATION,
                !has(Family::HookDuration)
                    && (has(Family::HookRequests)
                        || has(Family::HookRejections)
                        || has(Family::HookFailOpen)),
            ),
            (
                HOOK_REQUESTS,
                !has(Family::HookRequests) && has(Family::HookDuration),
            ),
            (
                HOOK_REJECTIONS,
                !has(Family::HookRejections) && any(|series| series.rejected.count >= 1.0),
            ),
            (
                HOOK_FAIL_OPEN,
                !has(Family::HookFailOpen)
                    && has(Family::HookDuration)
                    && any(HookSeries::must_have_failed_open),
            ),
        ];
        absent
            .into_iter()
            .filter(|(_, is_missing)| self.is_api_server && *is_missing)
            .map(|((family, without), _)| format!("this API server shows no {family}: {without}"))
            .collect()
    }
}

impl Snapshot {
    /// Works out the refusals by kind from the codes of calls, where the API server does not count them.
    ///
    /// An API server that does count them and merely refused nothing yet has no call with `rejected="true"` either, so
    /// that nothing is made up for it.
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
}

impl HookSeries {
    /// Calls without an answer (503) beyond those that refused a request. A client that gives up early leaves such
    /// a call as well, so a few prove nothing.
    fn must_have_failed_open(&self) -> bool {
        let unanswered = self.codes.get(&503).copied().unwrap_or(0.0) - self.rejected.count;
        unanswered >= 3.0 && unanswered >= 0.5 * self.calls.count
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::exposition::Exposition;

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
}
