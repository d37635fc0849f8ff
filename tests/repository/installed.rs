//! deploy/: what starts the daemon starts it as it is: its arguments, its configuration, its ports and paths.

use std::path::PathBuf;
use std::process::Command;

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::domain::act::fence::AutoBreak;
use serde_json::Value;

use crate::deploy::objects;
use crate::{read, root, skip};

const BASE: &str = "deploy/base/configuration.yaml";
const BREAKER: &str = "deploy/components/breaker/configuration.yaml";
const NODE: &str = "deploy/control-plane-node/hookwatch.yaml";
const UNIT: &str = "deploy/control-plane-node/hookwatch.service";

fn object(path: &str, kind: &str) -> Value {
    let objects = objects(path);
    let found = objects.into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("{path}: no {kind}"))
}

/// Every container that runs hookwatch, with the Pod it is in.
fn pods() -> Vec<(&'static str, Value)> {
    let deployment = object("deploy/base/deployment.yaml", "Deployment");
    let job = object("deploy/components/expiry/expiry.yaml", "CronJob");
    let alone = object("deploy/control-plane-node/static-pod.yaml", "Pod");
    vec![
        ("the Deployment", deployment["spec"]["template"]["spec"].clone()),
        (
            "the CronJob",
            job["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone(),
        ),
        ("the static Pod", alone["spec"].clone()),
    ]
}

fn arguments(container: &Value) -> Vec<String> {
    let arguments = container["args"].as_array().unwrap();
    arguments
        .iter()
        .map(|argument| argument.as_str().unwrap().to_owned())
        .collect()
}

/// The text that a configuration consists of, whichever way it is shipped.
fn text(path: &str) -> String {
    match path {
        NODE => read(path),
        path => {
            let map = object(path, "ConfigMap");
            map["data"]["hookwatch.yaml"].as_str().unwrap().to_owned()
        }
    }
}

fn config(path: &str) -> Config {
    Config::parse(&text(path), &ConfigArguments::default())
        .unwrap_or_else(|errors| panic!("{path}: {errors:?}"))
}

/// What the unit has for a key.
fn unit(key: &str) -> String {
    let text = read(UNIT);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key}=")));
    value.unwrap_or_else(|| panic!("{UNIT}: no {key}")).to_owned()
}

#[test]
fn every_command_line_is_one_of_the_commands() {
    let mut lines: Vec<(String, Vec<String>)> = pods()
        .into_iter()
        .flat_map(|(whose, pod)| {
            let containers = pod["containers"].as_array().unwrap().clone();
            containers
                .into_iter()
                .map(move |container| (whose.to_owned(), arguments(&container)))
        })
        .collect();
    let words: Vec<String> = unit("ExecStart").split(' ').map(str::to_owned).collect();
    lines.push((UNIT.to_owned(), words[1..].to_vec()));
    assert_eq!(lines.len(), 4);
    for (whose, line) in lines {
        let line = std::iter::once("hookwatch".to_owned()).chain(line);
        if let Err(error) = hookwatch::cli::command().try_get_matches_from(line) {
            panic!("{whose}: {error}");
        }
    }
}

#[test]
fn the_page_is_for_the_host_alone_and_only_the_overlay_acts() {
    for (path, mode) in [
        (BASE, AutoBreak::Plan),
        (BREAKER, AutoBreak::On),
        (NODE, AutoBreak::Plan),
    ] {
        let config = config(path);
        assert!(config.listen.ip().is_loopback(), "{path}");
        assert_eq!(config.auto_break, mode, "{path}");
        assert!(config.serve.metrics.is_some(), "{path}");
        // All that the three differ by; else a change of one would be forgotten in the others.
        let mut same = Config {
            auto_break: AutoBreak::Plan,
            ..config
        };
        same.breaker = self::config(BASE).breaker;
        assert_eq!(same, self::config(BASE), "{path}");
    }
}

#[test]
fn ports_and_paths_are_those_of_the_daemon() {
    let port = config(BASE).serve.metrics.unwrap().port();
    let policy = object("deploy/base/network.yaml", "NetworkPolicy");
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], port);
    let from = &policy["spec"]["ingress"][0]["from"];
    let scrapers = &from[0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"];
    assert!(scrapers.is_string(), "who may scrape is named: {from}");
    assert_eq!(policy["spec"]["egress"][0], serde_json::json!({}));
    let service = object("deploy/base/service.yaml", "Service");
    assert_eq!(service["spec"]["ports"][0]["port"], port);
    // What the daemon's own documentation calls its paths.
    let documented = read("docs/configuration.md");
    let mut probes = 0;
    for (whose, pod) in pods() {
        for container in pod["containers"].as_array().unwrap() {
            let ports = container["ports"].as_array().cloned().unwrap_or_default();
            for of_container in &ports {
                assert_eq!(of_container["containerPort"], port, "{whose}");
                assert_eq!(service["spec"]["ports"][0]["targetPort"], of_container["name"]);
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let Some(get) = container[probe]["httpGet"].as_object() else {
                    continue;
                };
                assert_eq!(get["port"], ports[0]["name"], "{whose}: {probe}");
                let path = get["path"].as_str().unwrap();
                assert!(
                    ["/live", "/ready"].contains(&path) && documented.contains(path),
                    "{whose}: {path}"
                );
                // While no API server answers, nobody is ready, and to start anew would not help.
                assert_eq!(path == "/ready", probe == "readinessProbe", "{whose}: {probe}");
                probes += 1;
            }
        }
    }
    assert_eq!(probes, 4);
    let selector = serde_json::json!({"app.kubernetes.io/name": "hookwatch"});
    let deployment = object("deploy/base/deployment.yaml", "Deployment");
    for selects in [
        &service["spec"]["selector"],
        &policy["spec"]["podSelector"]["matchLabels"],
        &deployment["spec"]["selector"]["matchLabels"],
        &deployment["spec"]["template"]["metadata"]["labels"],
        &object("deploy/base/deployment.yaml", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selects, &selector);
    }
}

#[test]
fn every_container_is_restricted_and_of_this_release() {
    for (whose, pod) in pods() {
        for container in pod["containers"].as_array().unwrap() {
            let of_both = |key: &str| match &container["securityContext"][key] {
                Value::Null => pod["securityContext"][key].clone(),
                value => value.clone(),
            };
            assert_eq!(of_both("allowPrivilegeEscalation"), false, "{whose}");
            assert_eq!(of_both("readOnlyRootFilesystem"), true, "{whose}");
            assert_eq!(of_both("runAsNonRoot"), true, "{whose}");
            assert_eq!(of_both("seccompProfile")["type"], "RuntimeDefault", "{whose}");
            assert_eq!(
                of_both("capabilities")["drop"],
                serde_json::json!(["ALL"]),
                "{whose}"
            );
            assert!(
                container["resources"]["limits"]["memory"].is_string(),
                "{whose}: no limit"
            );
            let image = format!("hookwatch:{}", env!("CARGO_PKG_VERSION"));
            assert_eq!(container["image"], image, "{whose}");
        }
    }
}

#[test]
fn what_the_static_pod_names_is_on_the_node() {
    let pod = object("deploy/control-plane-node/static-pod.yaml", "Pod");
    let text = pod.to_string();
    for named in [
        "serviceAccountName",
        "configMap",
        "secretKeyRef",
        "configMapKeyRef",
        "projected",
    ] {
        assert!(
            !text.contains(named),
            "the kubelet refuses a static Pod with {named}"
        );
    }
    let volume = &pod["spec"]["volumes"][0];
    let mounted = &pod["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(volume["name"], mounted["name"]);
    assert_eq!(volume["hostPath"]["path"], "/etc/hookwatch");
    assert_eq!(mounted["mountPath"], "/etc/hookwatch");
}

#[test]
fn systemd_takes_the_unit_as_it_is() {
    // What is started need not be installed here: a stand-in is, and nothing else is changed.
    let folder = tempfile::tempdir().unwrap();
    let stand_in = PathBuf::from("/bin/true");
    let changed = read(UNIT).replace("/usr/local/bin/hookwatch ", &format!("{} ", stand_in.display()));
    let file = folder.path().join("hookwatch.service");
    std::fs::write(&file, &changed).unwrap();
    let verify = |file: &std::path::Path| {
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(file)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Some((output.status.success(), said))
    };
    let Some((is_good, said)) = verify(&file) else {
        return skip("no systemd-analyze on this machine; it comes with systemd");
    };
    assert!(is_good && said.is_empty(), "{said}");
    std::fs::write(&file, changed.replace("Restart=always", "Restart=sometimes")).unwrap();
    assert!(
        verify(&file).is_some_and(|(is_good, said)| !is_good && !said.is_empty()),
        "nothing is verified"
    );
    assert!(root().join(UNIT).exists());
}

#[test]
fn the_image_has_an_unprivileged_user_and_is_made_of_what_the_manifests_expect() {
    let text = read("deploy/Containerfile");
    let lines = |word: &str| -> Vec<String> {
        let found = text.lines().filter_map(|line| line.strip_prefix(word));
        found.map(|rest| rest.trim().to_owned()).collect()
    };
    // What runs in production carries no lab.
    for what in [&text, &read(".github/workflows/release.yaml")] {
        let builds = what.lines().filter(|line| line.contains("cargo build"));
        let without: Vec<bool> = builds
            .map(|line| line.contains(" --no-default-features "))
            .collect();
        assert!(
            !without.is_empty() && without.iter().all(|without| *without),
            "{what}"
        );
    }
    // No registry is named: where images come from is its user's affair.
    let manifest = read("Cargo.toml");
    let rust = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let builder = format!("BUILDER=rust:{}", rust.unwrap().trim_matches('"'));
    assert_eq!(lines("ARG "), [builder.as_str(), "STAGE=compiled"]);
    let stages = lines("FROM ");
    assert_eq!(
        stages,
        [
            "${BUILDER} AS compiled",
            "scratch AS prebuilt",
            "${STAGE} AS chosen",
            "scratch"
        ]
    );
    for (whose, pod) in pods() {
        // OpenShift refuses a Pod that chooses its user. Of the static Pod the files on the node belong to that user.
        let user = &pod["securityContext"]["runAsUser"];
        if whose == "the static Pod" {
            assert_eq!(lines("USER "), [format!("{user}:{user}")], "{whose}");
        } else {
            assert!(user.is_null(), "{whose}: {user}");
        }
        // Only then do its arguments reach the binary.
        assert!(pod["containers"][0]["command"].is_null(), "{whose}");
    }
    assert_eq!(lines("ENTRYPOINT "), ["[\"/hookwatch\"]"]);
}
