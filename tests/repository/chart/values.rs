//! The values: what the schema takes and refuses, and what is said about them after an installation.

use std::collections::BTreeSet;

use boon::{Compiler, Schemas};
use hookwatch::app::config::Config;
use serde_json::{Value, json};

use super::same::cases;
use crate::helm::{CHART, rendered, values};
use crate::read;

/// Keys of the configuration that the chart sets by itself.
const SET: [&str; 3] = ["namespace", "canaries.kubeSystem", "canaries.nodeLease"];

fn schema() -> Value {
    serde_json::from_str(&read(format!("{CHART}/values.schema.json"))).unwrap()
}

/// What the schema says against the chart's own values with some changed, as Helm would before it renders anything.
fn refusal(changed: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("values", schema()).unwrap();
    let schema = compiler.compile("values", &mut schemas).unwrap();
    let values = values(changed);
    let refused = schemas.validate(&values, schema).err();
    refused.map(|error| error.to_string())
}

#[test]
fn the_schema_takes_the_values_of_every_case() {
    for case in cases() {
        assert_eq!(refusal(&case.values), None, "{}", case.values);
    }
}

#[test]
fn the_schema_refuses_wrong_types_unknown_keys_and_values_out_of_range() {
    for (changed, at) in [
        (json!({"replicas": "two"}), "/replicas"),
        (json!({"breaker": {"enabled": "yes"}}), "/breaker/enabled"),
        (
            json!({"networkPolicy": {"scrapeFrom": "not a namespace"}}),
            "/networkPolicy/scrapeFrom",
        ),
        // Without any, a rule admits everything.
        (
            json!({"networkPolicy": {"scrapeFrom": []}}),
            "/networkPolicy/scrapeFrom",
        ),
        (json!({"image": {"repository": ""}}), "/image/repository"),
        (
            json!({"monitoring": {"runbooks": "wiki"}}),
            "/monitoring/runbooks",
        ),
        (
            json!({"podLabels": {"app.kubernetes.io/name": "mine"}}),
            "/podLabels",
        ),
        (json!({"fence": {"maySkip": ["it's"]}}), "/fence/maySkip/0"),
        (json!({"breker": {"enabled": true}}), "breker"),
        (json!({"image": {"name": "hookwatch"}}), "name"),
        (json!({"config": {"probes": {"levle": "http"}}}), "levle"),
        (json!({"config": {"namespace": "elsewhere"}}), "namespace"),
        // As YAML's older readers take `autoBreak: on`.
        (json!({"config": {"autoBreak": true}}), "/config/autoBreak"),
        (
            json!({"config": {"scrapes": {"interval": 15}}}),
            "/config/scrapes/interval",
        ),
        (
            json!({"config": {"breaker": {"mostSkipped": 21}}}),
            "/config/breaker/mostSkipped",
        ),
        // No other port is in the Service.
        (
            json!({"config": {"serve": {"metricsListen": "0.0.0.0:9999"}}}),
            "/config/serve/metricsListen",
        ),
        // Nobody acts without a fence.
        (
            json!({"breaker": {"enabled": true}, "fence": {"enabled": false}}),
            "/fence/enabled",
        ),
        (
            json!({"expiry": {"enabled": true}, "fence": {"enabled": false}}),
            "/fence/enabled",
        ),
        // It would never have the permission to prove the fence.
        (json!({"config": {"autoBreak": "on"}}), "/breaker/enabled"),
        // Helm takes the key away before it looks at the schema.
        (
            json!({"breaker": {"enabled": true}, "fence": {"enabled": null}}),
            "enabled",
        ),
        (json!({"breaker": {"enabled": true}, "fence": null}), "fence"),
        (json!({"replicas": null}), "replicas"),
    ] {
        let refused = refusal(&changed).unwrap_or_else(|| panic!("{changed} is taken"));
        assert!(refused.contains(at), "{changed}: {refused}");
    }
}

#[test]
fn a_namespace_that_others_use_is_refused() {
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let refused = std::panic::catch_unwind(|| rendered(namespace, &json!({})));
        let Err(why) = refused else {
            panic!("{namespace} is taken")
        };
        let why = why.downcast_ref::<String>().unwrap();
        assert!(why.contains("a namespace that holds nothing else"), "{why}");
    }
}

/// Every key below an object of the schema, as in `probes.hooks[].level`.
fn keys(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let items = schema["items"].as_object().map(|_| &schema["items"]);
    if let Some(items) = items {
        keys(items, &format!("{path}[]"), found);
    }
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{key}");
        keys(below, &path, found);
        found.insert(path);
    }
}

#[test]
fn the_schema_has_every_key_of_the_configuration_and_no_other() {
    let mut found = BTreeSet::new();
    keys(&schema()["properties"]["config"], "", &mut found);
    let expected = Config::keys();
    assert!(SET.iter().all(|key| expected.contains(*key)));
    assert_eq!(
        found,
        expected
            .into_iter()
            .filter(|key| !SET.contains(&key.as_str()))
            .collect()
    );
}

#[test]
fn every_value_has_a_default_and_a_comment() {
    let values = values(&json!({}));
    let known = schema()["properties"].clone();
    let named = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut expected = named(&known);
    expected.remove("global");
    assert_eq!(named(&values), expected);
    for (key, below) in values.as_object().unwrap() {
        let properties = &known[key]["properties"];
        if key != "config" && properties.is_object() && key != "resources" {
            assert_eq!(named(below), named(properties), "{key}");
        }
    }
    let text = read(format!("{CHART}/values.yaml"));
    let lines: Vec<&str> = text.lines().collect();
    for key in named(&values) {
        let at = lines
            .iter()
            .position(|line| line.starts_with(&format!("{key}:")))
            .expect(&key);
        let explained = [lines[at - 1], lines.get(at + 1).copied().unwrap_or_default()];
        // Of two that belong together the first is explained.
        let is_pair = ["volumeMounts", "tolerations", "podAnnotations"].contains(&key.as_str());
        assert!(
            is_pair || explained.iter().any(|line| line.trim().starts_with('#')),
            "{key}"
        );
    }
}

#[test]
fn the_notes_have_the_labels_of_the_namespace_what_is_lost_and_commands_that_are_understood() {
    let mut count = 0;
    let both = json!({"controlPlane": {"enabled": true}, "gatekeeper": {"enabled": true}});
    for mut changed in [json!({}), both] {
        let notes = rendered("platform-hooks", &changed).notes;
        let words = notes
            .split_whitespace()
            .filter(|word| word.contains('=') && !word.starts_with("--") && !word.contains(".enabled"));
        let told: BTreeSet<String> = words.map(str::to_owned).collect();
        changed["namespace"] = json!({"create": true});
        let release = rendered("platform-hooks", &changed);
        let namespace = release
            .objects
            .iter()
            .find(|object| object["kind"] == "Namespace")
            .unwrap();
        let labels = namespace["metadata"]["labels"].as_object().unwrap().iter();
        let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap()));
        assert_eq!(told, labels.collect());
        let commands = notes.lines().filter_map(|line| line.strip_prefix("  hookwatch "));
        for command in commands.inspect(|_| count += 1) {
            let typed = std::iter::once("hookwatch").chain(command.split(' '));
            hookwatch::cli::command().try_get_matches_from(typed).unwrap();
        }
        assert!(!release.notes.contains("kubectl label"));
    }
    assert_eq!(count, 4);
    for value in ["canaries.kubeSystem", "canaries.nodeLease", "fence.enabled"] {
        let (section, key) = value.split_once('.').unwrap();
        let off = rendered("platform-hooks", &json!({section: {key: false}})).notes;
        let told = format!("{value} is off: ");
        assert!(
            off.contains(&told) && !rendered("platform-hooks", &json!({})).notes.contains(&told),
            "{off}"
        );
    }
}

#[test]
fn the_chart_is_of_this_release() {
    let chart: Value = serde_saphyr::from_str(&read(format!("{CHART}/Chart.yaml"))).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let release = rendered("platform-hooks", &json!({}));
    let image = format!("hookwatch:{}", env!("CARGO_PKG_VERSION"));
    assert!(release.objects.iter().any(|object| {
        object.pointer("/spec/template/spec/containers/0/image") == Some(&image.clone().into())
    }));
}
