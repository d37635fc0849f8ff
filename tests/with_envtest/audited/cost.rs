//! What the audit of a large cluster costs. Takes minutes, so only on request.

use std::fs::{File, read_to_string};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::iter;
use http::Method;
use serde_json::{Value, json};

use super::super::Outcome;
use super::super::privileges::cluster::{Cluster, ask, play};

/// Set for the measurement, to the binary that is measured: a release build.
const ASKED_FOR: &str = "HOOKWATCH_MEASURE_AUDIT";
const WEBHOOKS: usize = 1_000;
const PODS: usize = 10_000;
const NAMESPACES: usize = 20;
/// The kernel's unit of CPU time in /proc, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn of_a_large_cluster() -> Outcome {
    let Some(binary) = std::env::var_os(ASKED_FOR) else {
        return Outcome::Skipped(format!(
            "minutes; only where {ASKED_FOR} is set to a release build"
        ));
    };
    play(async {
        let cluster = Cluster::start().await;
        fill(&cluster).await;
        let kubeconfig = cluster.admin_kubeconfig();
        let output = kubeconfig.with_extension("json");
        let measure = move || {
            let mut child = Command::new(binary)
                .args(["audit", "--output", "json", "--kubeconfig"])
                .arg(&kubeconfig)
                .stdout(File::create(&output).unwrap())
                .stderr(Stdio::inherit())
                .spawn()
                .unwrap();
            let mut peak = 0;
            // One that has ended is still there until it is waited for.
            while !stat(child.id()).starts_with('Z') {
                let status = read_to_string(format!("/proc/{}/status", child.id())).unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
                peak = peak.max(kilobytes.unwrap_or(0_u64));
                std::thread::sleep(Duration::from_millis(2));
            }
            let stat = stat(child.id());
            let fields: Vec<&str> = stat.split(' ').collect();
            let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
            let seconds = (ticks(11) + ticks(12)) / TICKS_PER_SECOND;
            child.wait().unwrap();
            (seconds, peak / 1_024, read_to_string(&output).unwrap())
        };
        let (seconds, megabytes, said) = tokio::task::spawn_blocking(measure).await.unwrap();
        let document: Value = serde_json::from_str(&said).unwrap();
        let count = |field: &str| document[field].as_array().unwrap().len();
        println!(
            "    {WEBHOOKS} webhooks, {PODS} Pods: {seconds:.2} s of CPU, {megabytes} MB at most; {} findings, {} forecasts",
            count("findings"),
            count("forecasts")
        );
        assert_eq!(count("forecasts"), 3 * WEBHOOKS);
        assert!(seconds < 1.0 && megabytes < 200, "{seconds} s, {megabytes} MB");
    })
}

/// What the kernel says of a process, after its name.
fn stat(id: u32) -> String {
    let stat = read_to_string(format!("/proc/{id}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.to_owned()
}

async fn fill(cluster: &Cluster) {
    let place = |at: usize| format!("place-{}", at % NAMESPACES);
    let mut objects: Vec<(String, Value)> = Vec::new();
    for at in 0..NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place(at)}});
        objects.push(("/api/v1/namespaces".to_owned(), namespace));
    }
    post(cluster, std::mem::take(&mut objects)).await;
    for at in 0..NAMESPACES {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        objects.push((
            format!("/api/v1/namespaces/{}/serviceaccounts", place(at)),
            account,
        ));
    }
    post(cluster, std::mem::take(&mut objects)).await;
    for at in 0..PODS {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{at}"), "labels": {"app": "a"}},
                         "spec": {"containers": [{"name": "c", "image": "example/c"}]}});
        objects.push((format!("/api/v1/namespaces/{}/pods", place(at)), pod));
    }
    for at in 0..WEBHOOKS {
        let (name, namespace) = (format!("hook-{at}"), place(at));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                             "spec": {"selector": {"app": name}, "ports": [{"port": 443, "targetPort": 8443}]}});
        let endpoints = (0..3).map(|endpoint| {
            json!({"addresses": [format!("10.1.{}.{}", at / 80, 1 + at % 80 * 3 + endpoint)], "conditions": {"ready": true}})
        });
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                           "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                           "ports": [{"name": "", "port": 8443, "protocol": "TCP"}], "endpoints": endpoints.collect::<Vec<_>>()});
        let labels = json!({"app": name});
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 3,
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "example/c", "ports": [{"containerPort": 8443}]}]}}}});
        objects.push((format!("/api/v1/namespaces/{namespace}/services"), service));
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        objects.push((slices, slice));
        objects.push((
            format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            workload,
        ));
    }
    post(cluster, std::mem::take(&mut objects)).await;
    // Last, as nothing but webhook configurations can be written once they are known.
    for at in 0..WEBHOOKS {
        let kind = if at % 2 == 0 { "Mutating" } else { "Validating" };
        let name = format!("hook-{at}");
        let (policy, resources) = if at % 3 == 0 {
            ("Fail", "*/*")
        } else {
            ("Ignore", "widgets")
        };
        let conditions = json!([{"name": "c", "expression": "!('system:nodes' in request.userInfo.groups)"}]);
        let webhook = json!({
            "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
            "clientConfig": {"service": {"namespace": place(at), "name": name}}, "failurePolicy": policy,
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}],
            "matchConditions": conditions,
        });
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        objects.push((path, json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                                   "metadata": {"name": name}, "webhooks": [webhook]})));
    }
    post(cluster, objects).await;
}

/// Writes them, some at a time.
async fn post(cluster: &Cluster, objects: Vec<(String, Value)>) {
    let written = iter(objects).map(async |(path, object)| {
        let answer = ask(&cluster.admin, Method::POST, &path, &object).await;
        assert!(answer.is_success() || answer.status == 409, "{path}: {answer:?}");
    });
    written.buffer_unordered(16).collect::<Vec<()>>().await;
}
