//! The API server's metrics of conversion webhooks (by CRD) and of APIServices (by name).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::sums::{Counted, counted};
use super::{Cumulative, LabelSource, Part, Results, Snapshot};

/// API group and resource.
pub type ResourceKey = (String, String);

/// Conversions of one CRD between all its versions. The API server does not count a conversion of an object that already has
/// the requested version.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ConversionSeries {
    /// `succeeded="true"`.
    pub succeeded: Cumulative,
    /// `succeeded="false"`.
    pub failed: Cumulative,
}

impl ConversionSeries {
    /// Mean seconds per conversion from which clients notice the delay.
    const NOTABLE: f64 = 0.1;

    /// Whether conversions failed, or took so long that requests for the resource were noticeably delayed.
    pub fn is_in_trouble(&self) -> bool {
        self.failed.count >= 1.0 || self.succeeded.mean().is_some_and(|mean| mean >= Self::NOTABLE)
    }
}

counted!(ConversionSeries: succeeded, failed);

/// The part of one API server's metrics about conversion webhooks and APIServices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExtensionSeries {
    /// `apiserver_crd_conversion_webhook_duration_seconds` by `crd_name`.
    pub conversions: BTreeMap<String, ConversionSeries>,
    /// The gauge `aggregator_unavailable_apiservice` by `name`, where it is not 0. Every group and version of a CRD has an
    /// APIService that is never unavailable, so zeros are not kept.
    pub unavailable: BTreeMap<String, f64>,
    /// `aggregator_unavailable_apiservice_total` by `name`: how often the APIService became unavailable.
    pub became_unavailable: BTreeMap<String, f64>,
    /// Results of writes (without dry runs) by group and resource.
    #[serde(with = "super::pairs")]
    pub results: BTreeMap<ResourceKey, Results>,
}

impl ExtensionSeries {
    /// Most names kept in each map; samples of further ones are left out and counted as complaints.
    pub const MAX_NAMES: usize = 10_000;

    /// Adds a conversion sample. Returns false when a limit excluded it.
    pub(super) fn record_conversion(&mut self, part: Part, labels: &impl LabelSource, value: f64) -> bool {
        let Some(series) = bounded_entry(&mut self.conversions, labels.get("crd_name")) else {
            return false;
        };
        match labels.get("succeeded") {
            "true" => series.succeeded.absorb(part, value),
            _ => series.failed.absorb(part, value),
        }
        true
    }

    /// Adds a sample of the aggregator's gauge. Returns false when a limit excluded it.
    pub(super) fn record_unavailable(&mut self, labels: &impl LabelSource, value: f64) -> bool {
        value <= 0.0
            || bounded_entry(&mut self.unavailable, labels.get("name"))
                .map(|known| *known = value)
                .is_some()
    }

    /// Adds a sample of the aggregator's counter, summed over its reasons. Returns false when a limit excluded it.
    pub(super) fn record_became_unavailable(&mut self, labels: &impl LabelSource, value: f64) -> bool {
        bounded_entry(&mut self.became_unavailable, labels.get("name"))
            .map(|known| *known += value)
            .is_some()
    }

    /// Resources whose requests fail or are slow because of their conversions. A CRD's name is `RESOURCE.GROUP`.
    pub fn converted_with_trouble(&self) -> BTreeSet<ResourceKey> {
        let troubled = self
            .conversions
            .iter()
            .filter(|(_, series)| series.is_in_trouble());
        troubled
            .filter_map(|(crd, _)| crd.split_once('.'))
            .map(|(resource, group)| (group.to_owned(), resource.to_owned()))
            .collect()
    }
}

counted!(ExtensionSeries: conversions, became_unavailable, results; gauges: unavailable);

impl Snapshot {
    /// Removes the writes of these resources, because what delays them affects no other resource.
    pub fn set_aside(&mut self, resources: &BTreeSet<ResourceKey>) {
        if resources.is_empty() {
            return;
        }
        self.writes
            .retain(|key, _| !resources.contains(&(key.group.clone(), key.resource.clone())));
        for resource in resources {
            if let Some(results) = self.others.results.remove(resource) {
                self.write_results.take_off(&results);
            }
        }
    }
}

fn bounded_entry<'a, V: Default>(map: &'a mut BTreeMap<String, V>, name: &str) -> Option<&'a mut V> {
    if map.len() >= ExtensionSeries::MAX_NAMES && !map.contains_key(name) {
        return None;
    }
    Some(map.entry(name.to_owned()).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::exposition::Exposition;

    /// As a kube-apiserver 1.36.2 wrote them.
    const SCRAPE: &str = include_str!("../../../../tests/fixtures/formats/other-kinds-1.36.2.prom");

    fn read(text: &str) -> Snapshot {
        let mut exposition = Exposition::new();
        exposition.feed(text.as_bytes());
        let (snapshot, complaints) = exposition.finish();
        assert_eq!((complaints.unreadable, complaints.left_out), (0, 0));
        snapshot
    }

    fn line(name: &str, labels: &str, value: f64) -> String {
        format!("{name}{{{labels}}} {value}\n")
    }

    #[test]
    fn what_a_real_api_server_said_of_conversions_and_apiservices_is_read() {
        let others = read(SCRAPE).others;
        let refused = &others.conversions["gadgets.lab.hookwatch.dev"];
        assert_eq!((refused.failed.count, refused.succeeded.count), (3.0, 4.0));
        let well = &others.conversions["widgets.lab.hookwatch.dev"];
        assert!(well.succeeded.count >= 1.0 && !well.is_in_trouble(), "{well:?}");
        assert_eq!(others.unavailable["v1alpha1.missing.hookwatch.dev"], 1.0);
        // Only what was available before counts as having become unavailable.
        let became = [("v1alpha1.empty.hookwatch.dev".to_owned(), 1.0)];
        assert_eq!(others.became_unavailable, BTreeMap::from(became));
        assert!(
            !others.unavailable.contains_key("v1.apps"),
            "local ones never are"
        );
    }

    #[test]
    fn versions_and_reasons_are_summed_up_and_gauges_are_no_counters() {
        const CONVERSIONS: &str = "apiserver_crd_conversion_webhook_duration_seconds";
        let converted = |from, succeeded| {
            format!("crd_name=\"w.e\",from_version=\"{from}\",to_version=\"v9\",succeeded=\"{succeeded}\"")
        };
        let text = [
            // The name before 1.28.
            line(
                "apiserver_crd_webhook_conversion_duration_seconds_count",
                &converted("v1", true),
                2.0,
            ),
            line(&format!("{CONVERSIONS}_count"), &converted("v2", true), 3.0),
            line(&format!("{CONVERSIONS}_sum"), &converted("v2", true), 1.5),
            line(&format!("{CONVERSIONS}_count"), &converted("v2", false), 1.0),
            line("aggregator_unavailable_apiservice", "name=\"v1.e\"", 1.0),
            line("aggregator_unavailable_apiservice", "name=\"v2.e\"", 0.0),
            line(
                "aggregator_unavailable_apiservice_total",
                "name=\"v1.e\",reason=\"MissingEndpoints\"",
                1.0,
            ),
            line(
                "aggregator_unavailable_apiservice_total",
                "name=\"v1.e\",reason=\"FailedDiscoveryCheck\"",
                2.0,
            ),
        ]
        .concat();
        let snapshot = read(&text);
        let series = snapshot.others.conversions["w.e"];
        assert_eq!((series.succeeded.count, series.succeeded.sum), (5.0, 1.5));
        assert_eq!(series.failed.count, 1.0);
        let gained = snapshot.since(&snapshot).others;
        assert_eq!(gained.unavailable, BTreeMap::from([("v1.e".to_owned(), 1.0)]));
        assert!(gained.conversions.is_empty() && gained.became_unavailable.is_empty());
        let since_start = snapshot.since(&Snapshot::default()).others;
        assert_eq!(since_start.became_unavailable["v1.e"], 3.0);
    }

    #[test]
    fn names_beyond_the_bound_are_left_out() {
        let mut others = ExtensionSeries::default();
        struct Name(String);
        impl LabelSource for Name {
            fn get(&self, _: &str) -> &str {
                &self.0
            }
        }
        let kept = (0..ExtensionSeries::MAX_NAMES + 3)
            .filter(|n| others.record_conversion(Part::Count, &Name(format!("c{n}")), 1.0));
        assert_eq!(kept.count(), ExtensionSeries::MAX_NAMES);
    }

    #[test]
    fn a_resource_set_aside_takes_its_writes_and_their_results_with_it() {
        let write = |resource: &str, code: &str| {
            let labels = format!("verb=\"PUT\",group=\"e.example\",resource=\"{resource}\"");
            line("apiserver_request_duration_seconds_sum", &labels, 30.0)
                + &line("apiserver_request_duration_seconds_count", &labels, 1.0)
                + &line(
                    "apiserver_request_total",
                    &format!("{labels},code=\"{code}\""),
                    1.0,
                )
        };
        let mut snapshot = read(&(write("widgets", "500") + &write("gadgets", "200")));
        assert_eq!(
            (snapshot.write_results.failed, snapshot.write_results.ok),
            (1.0, 1.0)
        );
        snapshot.set_aside(&BTreeSet::from([("e.example".to_owned(), "widgets".to_owned())]));
        assert_eq!(
            (snapshot.write_results.failed, snapshot.write_results.ok),
            (0.0, 1.0)
        );
        assert_eq!(snapshot.all_writes().duration.count, 1.0);
    }
}
