//! deploy/monitoring: the same alerts for the Prometheus operator, and what it takes to scrape the daemon.

use std::process::Command;

use serde_json::Value;

use crate::{in_ci, read, root, skip};

/// Each file of rules with the object that is made of it.
const OBJECTS: [(&str, &str, &str); 2] = [
    (
        "alerts/hookwatch.rules.yaml",
        "deploy/monitoring/rules.yaml",
        "hookwatch",
    ),
    (
        "alerts/apiserver-only.rules.yaml",
        "deploy/monitoring/apiserver-only.yaml",
        "hookwatch-apiserver-only",
    ),
];

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The object of a file of rules: its groups, comments included, as the object's specification.
fn object(source: &str, name: &str) -> String {
    let text = read(source);
    let (_, groups) = text.split_once("\ngroups:\n").expect("groups");
    let mut object = format!(
        "# Made from {source}; HOOKWATCH_BLESS=1 cargo test --test repository rewrites it.\n\
         apiVersion: monitoring.coreos.com/v1\n\
         kind: PrometheusRule\n\
         metadata:\n  name: {name}\n  namespace: hookwatch\n  labels:\n    app.kubernetes.io/name: hookwatch\n\
         spec:\n  groups:\n"
    );
    for line in groups.lines() {
        if !line.is_empty() {
            object.push_str("  ");
            object.push_str(line);
        }
        object.push('\n');
    }
    object
}

#[test]
fn the_objects_have_the_rules_of_the_files_and_nothing_else() {
    for (source, path, name) in OBJECTS {
        let made = object(source, name);
        if std::env::var_os("HOOKWATCH_BLESS").is_some() && !in_ci() {
            std::fs::write(root().join(path), &made).unwrap();
        }
        assert_eq!(read(path), made, "{path}: HOOKWATCH_BLESS=1 rewrites it");
        // The text is one thing, what a reader of YAML makes of it another.
        let (file, object) = (yaml(source), yaml(path));
        assert_eq!(object["spec"]["groups"], file["groups"], "{path}");
        assert_eq!(object["kind"], "PrometheusRule");
    }
}

#[test]
fn the_service_monitor_finds_the_service_and_its_port() {
    let (service, monitor) = (
        yaml("deploy/base/service.yaml"),
        yaml("deploy/monitoring/servicemonitor.yaml"),
    );
    let labels = &service["metadata"]["labels"];
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[label], value, "{label}");
    }
    assert_eq!(service["metadata"]["namespace"], monitor["metadata"]["namespace"]);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(endpoint["path"], "/metrics");
}

#[test]
fn amtool_agrees_with_the_inhibition_and_it_speaks_of_alerts_that_exist() {
    const FILE: &str = "alerts/alertmanager-inhibit.yaml";
    let rules = yaml(FILE);
    let known: std::collections::BTreeSet<String> = crate::alerts::all_names();
    for rule in rules["inhibit_rules"].as_array().unwrap() {
        for matcher in ["source_matchers", "target_matchers"]
            .into_iter()
            .flat_map(|side| rule[side].as_array().unwrap())
        {
            let matcher = matcher.as_str().unwrap();
            let Some(value) = matcher.strip_prefix("alertname") else {
                continue;
            };
            let names = value.trim_start_matches(['=', '~']).trim_matches('"');
            for name in names.split('|').filter(|name| *name != "Hookwatch.+") {
                assert!(known.contains(name), "{FILE}: there is no {name}");
            }
        }
        assert!(
            rule["equal"].as_array().unwrap().contains(&"cluster".into()),
            "{rule}: another cluster's alert would make one silent"
        );
    }
    if Command::new("amtool").arg("--version").output().is_err() {
        return skip("no amtool on this machine; it comes with Alertmanager");
    }
    // The file holds one part of a configuration; the rest is what any has.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alertmanager.yaml");
    let whole = format!("{}route: {{receiver: r}}\nreceivers: [{{name: r}}]\n", read(FILE));
    std::fs::write(&file, whole).unwrap();
    let output = Command::new("amtool")
        .arg("check-config")
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
