//! The counters of one API-server process as the core reads them: samples with the API server's names and labels.

use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::observe::snapshot::{Family, LabelSource, Snapshot};

use super::cluster::{Cluster, Release};
use super::counters::{Counters, Histogram};
use super::traffic::{Class, Verb};
use super::{At, as_seconds};

/// Label names and values of one sample.
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl LabelSource for Labels<'_> {
    fn get(&self, name: &str) -> &str {
        let label = self.0.iter().find(|(known, _)| *known == name);
        label.map_or("", |(_, value)| value)
    }
}

/// Records samples into a [`Snapshot`], as the parser of a real `/metrics` response does.
struct Samples(Snapshot);

impl Samples {
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        if let Some((family, part)) = Family::of_series(name) {
            self.0.record(family, part, &Labels(labels), value);
        }
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        // A real histogram series appears with its first observation.
        if histogram.count > 0 {
            self.sample(&format!("{name}_sum"), labels, histogram.sum);
            self.sample(&format!("{name}_count"), labels, histogram.count as f64);
        }
    }
}

/// The metrics that a process exposes at `at`. `started` is the process start time in Unix seconds.
pub fn snapshot(cluster: &Cluster, counters: &Counters, release: Release, started: f64, at: At) -> Snapshot {
    let mut samples = Samples(Snapshot::default());
    samples.sample("process_start_time_seconds", &[], started);
    samples.sample("process_cpu_seconds_total", &[], as_seconds(at));
    requests(&mut samples, &cluster.classes, counters, release);
    hooks(&mut samples, cluster, counters, release);
    samples.histogram(
        "etcd_request_duration_seconds",
        &[("operation", "get")],
        &counters.etcd,
    );
    let level = [("priority_level", "workload-low"), ("execute", "true")];
    samples.histogram(
        "apiserver_flowcontrol_request_wait_duration_seconds",
        &level,
        &counters.wait,
    );
    if counters.turned_away > 0 {
        let labels = [("priority_level", "workload-low"), ("reason", "time-out")];
        let name = "apiserver_flowcontrol_rejected_requests_total";
        samples.sample(name, &labels, counters.turned_away as f64);
    }
    let gauges = [
        (
            "apiserver_current_inflight_requests",
            "mutating",
            counters.writing.shown(at),
        ),
        (
            "apiserver_current_inflight_requests",
            "readOnly",
            counters.reading,
        ),
        (
            "apiserver_current_inqueue_requests",
            "mutating",
            counters.queued.shown(at),
        ),
    ];
    for (name, kind, value) in gauges {
        samples.sample(name, &[("request_kind", kind)], value as f64);
    }
    samples.0
}

fn requests(samples: &mut Samples, classes: &[Class], counters: &Counters, release: Release) {
    let reads = [("verb", "LIST"), ("resource", "pods"), ("dry_run", "")];
    samples.histogram("apiserver_request_duration_seconds", &reads, &counters.reads);
    for (class, requests) in classes.iter().zip(&counters.requests) {
        let labels = [
            ("verb", class.verb.as_str()),
            ("group", class.group),
            ("resource", class.resource),
            ("subresource", class.subresource),
            ("dry_run", if class.dry_run { "All" } else { "" }),
        ];
        samples.histogram("apiserver_request_duration_seconds", &labels, &requests.duration);
        // The API server does not record this metric for dry runs.
        if !class.dry_run {
            let name = match release {
                Release::Old => None,
                Release::Middle => Some("apiserver_request_slo_duration_seconds"),
                Release::New => Some("apiserver_request_sli_duration_seconds"),
            };
            if let Some(name) = name {
                samples.histogram(name, &labels[..4], &requests.sli);
            }
        }
        for (code, count) in &requests.codes {
            let code = code.to_string();
            let [verb, group, resource, subresource, dry_run] = labels;
            let labels = [
                verb,
                group,
                resource,
                subresource,
                dry_run,
                ("code", code.as_str()),
            ];
            samples.sample("apiserver_request_total", &labels, *count as f64);
        }
    }
}

fn hooks(samples: &mut Samples, cluster: &Cluster, counters: &Counters, release: Release) {
    for (series, calls) in counters.calls.iter().enumerate() {
        let Some(hook) = cluster.hooks.iter().find(|hook| hook.series == series) else {
            continue;
        };
        let kind = match hook.id.kind {
            HookKind::Mutating => "admit",
            _ => "validating",
        };
        let name = ("name", &*hook.id.webhook);
        let yes_no = |yes: bool| if yes { "true" } else { "false" };
        for ((operation, rejected), histogram) in &calls.durations {
            let labels = [
                name,
                ("type", kind),
                ("operation", *operation),
                ("rejected", yes_no(*rejected)),
            ];
            samples.histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                &labels,
                histogram,
            );
        }
        for ((operation, failed, code), count) in &calls.rejections {
            // Release::Old reports code 0 for a failed call.
            let code = if *failed && release == Release::Old {
                0
            } else {
                *code
            }
            .to_string();
            let error_type = if *failed {
                "calling_webhook_error"
            } else {
                "no_error"
            };
            let labels = [
                name,
                ("type", kind),
                ("operation", *operation),
                ("error_type", error_type),
                ("rejection_code", code.as_str()),
            ];
            samples.sample(
                "apiserver_admission_webhook_rejection_count",
                &labels,
                *count as f64,
            );
        }
        if release == Release::Old {
            continue;
        }
        for ((operation, code, rejected), count) in &calls.codes {
            let code = code.to_string();
            let labels = [
                name,
                ("type", kind),
                ("operation", *operation),
                ("code", code.as_str()),
                ("rejected", yes_no(*rejected)),
            ];
            samples.sample(
                "apiserver_admission_webhook_request_total",
                &labels,
                *count as f64,
            );
        }
        if calls.fail_open > 0 {
            let labels = [name, ("type", kind)];
            samples.sample(
                "apiserver_admission_webhook_fail_open_count",
                &labels,
                calls.fail_open as f64,
            );
        }
    }
}

/// Whether a request is a CREATE or UPDATE and not a dry run.
pub fn is_write(class: &Class) -> bool {
    !class.dry_run && matches!(class.verb, Verb::Post | Verb::Put | Verb::Patch)
}
