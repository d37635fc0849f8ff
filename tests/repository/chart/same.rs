//! What is rendered is what a kustomization comes to.

use std::collections::BTreeMap;
use std::path::Path;

use hookwatch::app::config::{Config, ConfigArguments};
use serde_json::{Value, json};

use crate::deploy::{SECOND, objects};
use crate::helm::rendered;
use crate::{read, root};

/// The objects of a kustomization, as far as those of deploy/ go.
fn kustomized(folder: &Path) -> Vec<Value> {
    let kustomization: Value = serde_saphyr::from_str(&read(folder.join("kustomization.yaml"))).unwrap();
    let list = |key: &str| kustomization[key].as_array().cloned().unwrap_or_default();
    let path = |value: &Value| folder.join(value.as_str().unwrap());
    let mut all = Vec::new();
    for resource in list("resources").iter().map(path) {
        if root().join(&resource).is_dir() {
            all.extend(kustomized(&resource));
        } else {
            all.extend(objects(resource.to_str().unwrap()));
        }
    }
    for component in list("components").iter().map(path) {
        add(&mut all, &component);
    }
    patch(&mut all, folder);
    all
}

/// What a component adds: its objects, then its patches.
fn add(all: &mut Vec<Value>, component: &Path) {
    let kustomization: Value = serde_saphyr::from_str(&read(component.join("kustomization.yaml"))).unwrap();
    for resource in kustomization["resources"].as_array().into_iter().flatten() {
        let path = component.join(resource.as_str().unwrap());
        all.extend(objects(path.to_str().unwrap()));
    }
    patch(all, component);
}

/// Applies the patches of a kustomization.
fn patch(all: &mut [Value], folder: &Path) {
    let kustomization: Value = serde_saphyr::from_str(&read(folder.join("kustomization.yaml"))).unwrap();
    for patch in kustomization["patches"].as_array().into_iter().flatten() {
        let path = folder.join(patch["path"].as_str().expect("a patch in a file"));
        for patch in objects(path.to_str().unwrap()) {
            let same = |object: &&mut Value| {
                object["kind"] == patch["kind"] && object["metadata"]["name"] == patch["metadata"]["name"]
            };
            let object = all
                .iter_mut()
                .find(same)
                .unwrap_or_else(|| panic!("{}: of nothing", path.display()));
            assert!(
                !lists_meet(object, &patch),
                "{}: a list is patched",
                path.display()
            );
            json_patch::merge(object, &patch);
        }
    }
}

/// Whether both have a list in one place: by their kind kustomize would merge some of them.
fn lists_meet(under: &Value, over: &Value) -> bool {
    let (Some(under), Some(over)) = (under.as_object(), over.as_object()) else {
        return under.is_array() && over.is_array();
    };
    over.iter()
        .any(|(key, over)| under.get(key).is_some_and(|under| lists_meet(under, over)))
}

/// The same objects for another namespace.
fn moved(object: &Value, namespace: &str) -> Value {
    let mut text = object.to_string();
    for (from, to) in [
        (
            r#""namespace":"hookwatch""#,
            format!(r#""namespace":"{namespace}""#),
        ),
        ("--namespace=hookwatch", format!("--namespace={namespace}")),
        (
            "system:serviceaccount:hookwatch:",
            format!("system:serviceaccount:{namespace}:"),
        ),
        (
            r#"\"kube-node-lease\", \"hookwatch\"]"#,
            format!(r#"\"kube-node-lease\", \"{namespace}\"]"#),
        ),
    ] {
        text = text.replace(from, &to);
    }
    let mut object: Value = serde_json::from_str(&text).unwrap();
    if object["kind"] == "Namespace" {
        object["metadata"]["name"] = namespace.into();
    }
    object
}

fn config(text: &str) -> Config {
    Config::parse(text, &ConfigArguments::default()).unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

/// Objects by kind, namespace and name, with the configuration as the daemon reads it, in its own namespace, and without
/// what makes new Pods of a new configuration.
fn by_name(objects: &[Value]) -> BTreeMap<String, Value> {
    let mut named = BTreeMap::new();
    for object in objects {
        let mut object = object.clone();
        let metadata = object["metadata"].clone();
        if let Some(text) = object["data"]["hookwatch.yaml"].as_str() {
            let read = config(text);
            let namespace = metadata["namespace"].as_str().unwrap().to_owned();
            object["data"] = format!("{:?}", Config { namespace, ..read }).into();
        }
        if object["kind"] == "Deployment" {
            let template = object["spec"]["template"]["metadata"].as_object_mut().unwrap();
            if let Some(annotations) = template.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("checksum/configuration");
                if annotations.is_empty() {
                    template.remove("annotations");
                }
            }
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!(
            "{} {}/{}",
            word(&object["kind"]),
            word(&metadata["namespace"]),
            word(&metadata["name"])
        );
        assert!(
            named.insert(name.clone(), object).is_none(),
            "{name} is there twice"
        );
    }
    named
}

const EVERYTHING: &str = include_str!("everything.yaml");

/// Values, and the kustomization that they stand for.
pub struct Case {
    namespace: &'static str,
    pub values: Value,
    folders: &'static [&'static str],
    components: &'static [&'static str],
    /// What one would add in a kustomization of one's own; `false` for an object that is not to be.
    own: fn(&mut Value) -> bool,
}

const fn all_of_it(_: &mut Value) -> bool {
    true
}

fn no_namespace(object: &mut Value) -> bool {
    object["kind"] != "Namespace"
}

/// What may be missing where something is locked or old.
fn least(object: &mut Value) -> bool {
    let kind = object["kind"].as_str().unwrap();
    let newer = [
        "ValidatingAdmission",
        "FlowSchema",
        "PriorityLevel",
        "ValidatingWebhook",
        "MutatingWebhook",
    ];
    if let Some(text) = object["data"]["hookwatch.yaml"].as_str() {
        let text = format!("{text}canaries: {{kubeSystem: false, nodeLease: false}}\n");
        object["data"]["hookwatch.yaml"] = text.into();
        return true;
    }
    !newer.iter().any(|newer| kind.starts_with(newer))
}

fn everything(object: &mut Value) -> bool {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let at = |object: &mut Value, pointer: &str, value: Value| {
        *object
            .pointer_mut(pointer)
            .unwrap_or_else(|| panic!("{kind} has no {pointer}")) = value;
    };
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    match (kind.as_str(), name.as_str()) {
        ("Deployment", _) => {
            let container = "/spec/template/spec/containers/0";
            at(object, "/spec/replicas", json!(3));
            at(
                object,
                &format!("{container}/image"),
                json!("images.example.com/hookwatch@sha256:0123"),
            );
            at(
                object,
                &format!("{container}/resources"),
                json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
            );
            let metadata = &mut object["spec"]["template"]["metadata"];
            metadata["labels"]["team"] = "platform".into();
            metadata["annotations"] = json!({"owner": "platform"});
            let pod = &mut object["spec"]["template"]["spec"];
            pod["imagePullSecrets"] = json!([{"name": "pull"}]);
            pod["nodeSelector"]["disk"] = "fast".into();
            let secret = json!({"name": "tls", "secret": {"secretName": "tls"}});
            for (pointer, value) in [
                ("/tolerations", json!({"operator": "Exists"})),
                ("/volumes", secret),
                (
                    "/containers/0/volumeMounts",
                    json!({"name": "tls", "mountPath": "/tls"}),
                ),
            ] {
                pod.pointer_mut(pointer)
                    .unwrap()
                    .as_array_mut()
                    .unwrap()
                    .push(value);
            }
            pod["containers"][0]["env"] = json!([{"name": "HOOKWATCH_LOG", "value": "debug"}]);
            pod["containers"][0]["imagePullPolicy"] = "Always".into();
        }
        ("CronJob", _) => {
            let template = &mut object["spec"]["jobTemplate"]["spec"]["template"];
            template["metadata"] =
                json!({"labels": {"team": "platform"}, "annotations": {"owner": "platform"}});
            let pod = &mut template["spec"];
            pod["imagePullSecrets"] = json!([{"name": "pull"}]);
            pod["nodeSelector"] = json!({"disk": "fast"});
            pod["tolerations"] = json!([{"operator": "Exists"}]);
            pod["containers"][0]["image"] = "images.example.com/hookwatch@sha256:0123".into();
            pod["containers"][0]["imagePullPolicy"] = "Always".into();
        }
        ("NetworkPolicy", _) => {
            let from = ["observability", "agents"].map(|namespace| {
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}})
            });
            at(object, "/spec/ingress/0/from", json!(from));
        }
        ("ValidatingAdmissionPolicy", "hookwatch-fence") => {
            at(
                object,
                "/spec/variables/0/expression",
                json!(r#"["gatekeeper","opa"]"#),
            );
        }
        ("ServiceMonitor", _) => object["metadata"]["labels"]["release"] = "prometheus".into(),
        ("PrometheusRule", _) => {
            let published = "https://github.com/hookwatch/hookwatch/blob/main/docs/runbooks/";
            let text = object
                .to_string()
                .replace(published, "https://wiki.example.com/alerts/");
            *object = serde_json::from_str(&text).unwrap();
            object["metadata"]["labels"]["release"] = "prometheus".into();
        }
        ("ConfigMap", "hookwatch") => {
            let text = "autoBreak: plan\nevents: false\nlisten: 127.0.0.1:1\nserve: {metricsListen: '[::]:9881'}\n\
                        canaries: {interval: 5s}\nbreaker: {rules: [{name: all, rungs: [shield, skip]}]}\n";
            object["data"]["hookwatch.yaml"] = text.into();
        }
        _ => {}
    }
    true
}

/// What no kustomization has, because its files lie outside of it: what docs/status-page.md makes with kubectl.
fn dashboards() -> Value {
    let files = ["breaker.json", "overview.json", "webhook.json"];
    let data: BTreeMap<&str, String> = files
        .into_iter()
        .map(|file| (file, read(Path::new("dashboards").join(file))))
        .collect();
    let labels = json!({"app.kubernetes.io/name": "hookwatch", "grafana_dashboard": "1"});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "hookwatch-dashboards", "namespace": "hookwatch", "labels": labels},
    })
}

pub fn cases() -> [Case; 6] {
    let case = |values, folders, own| Case {
        namespace: "hookwatch",
        values,
        folders,
        components: &[],
        own,
    };
    [
        case(
            json!({"namespace": {"create": true}}),
            &["overlays/observe"],
            all_of_it,
        ),
        case(
            json!({"breaker": {"enabled": true}}),
            &["overlays/breaker"],
            no_namespace,
        ),
        case(
            json!({
                "breaker": {"enabled": true}, "expiry": {"enabled": true}, "unchecked": {"enabled": true},
                "monitoring": {"enabled": true}, "view": {"enabled": true},
            }),
            &[
                "overlays/expiry",
                "overlays/unchecked",
                "overlays/view",
                "monitoring",
            ],
            no_namespace,
        ),
        case(
            json!({"namespace": {"create": true}, "controlPlane": {"enabled": true}}),
            &["overlays/control-plane"],
            all_of_it,
        ),
        case(
            json!({
                "canaries": {"kubeSystem": false, "nodeLease": false}, "fence": {"enabled": false},
                "flowControl": {"enabled": false}, "namespace": {"create": true},
            }),
            &["base"],
            least,
        ),
        Case {
            namespace: SECOND,
            values: serde_saphyr::from_str(EVERYTHING).unwrap(),
            folders: &[
                "overlays/expiry",
                "overlays/unchecked",
                "overlays/view",
                "monitoring",
            ],
            components: &["components/control-plane", "components/gatekeeper"],
            own: everything,
        },
    ]
}

#[test]
fn the_objects_are_those_of_the_kustomizations() {
    for case in cases() {
        let mut expected = Vec::new();
        for folder in case.folders {
            expected.extend(kustomized(&Path::new("deploy").join(folder)));
        }
        for component in case.components {
            add(&mut expected, &Path::new("deploy").join(component));
        }
        expected.retain_mut(case.own);
        if case.values["monitoring"]["dashboards"] == true {
            expected.push(dashboards());
        }
        let expected: Vec<Value> = expected
            .iter()
            .map(|object| moved(object, case.namespace))
            .collect();
        let (chart, expected) = (
            by_name(&rendered(case.namespace, &case.values).objects),
            by_name(&expected),
        );
        let told = format!("{} in {}", case.values, case.namespace);
        assert_eq!(
            chart.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{told}"
        );
        for (name, object) in expected {
            assert_eq!(chart[&name], object, "{name} of {told}");
        }
    }
}
