//! deploy/: the fence speaks of what the code writes, and of nothing else; and the tables name every permission.

use hookwatch::domain::cluster::hook::{Added, SPARE_ANNOTATION};
use std::collections::BTreeSet;
use std::path::PathBuf;

use hookwatch::domain::act::breaker::policy::PERMIT_ANNOTATION;
use hookwatch::domain::act::bypass::{FIELD_MANAGER, OPT_OUT_ANNOTATION, STATE_ANNOTATION, original};
use hookwatch::domain::act::fence::{FENCE, FenceAttempt, MaySkip, PROOF, PROOF_SPARE};
use hookwatch::domain::act::ledger;
use hookwatch::domain::cluster::condition::{BypassCondition, CONDITION_PREFIX};
use hookwatch::domain::cluster::hook::HookKind;
use serde_json::{Value, json};

use crate::helm::{CHART, rendered};
use crate::{files, read};

/// The namespace of the manifests, and one that only the chart knows.
const NAMESPACE: &str = "hookwatch";
pub const SECOND: &str = "platform-hooks";

/// Every object in a file of manifests.
pub fn objects(path: &str) -> Vec<Value> {
    let text = read(path);
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{path}: {error}")))
        .collect()
}

/// The files that are applied as they are, and kustomizations; the chart's are not YAML before they are rendered.
pub fn manifests() -> Vec<PathBuf> {
    let all = files("deploy", ".yaml").into_iter();
    all.filter(|path| !path.starts_with(CHART)).collect()
}

/// Both policies and their bindings: of the manifests, and of the chart for another namespace, with that namespace.
fn fences() -> [(&'static str, Vec<Value>); 2] {
    let chart = rendered(SECOND, &json!({})).objects;
    let policies = chart.into_iter().filter(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
    });
    [
        (NAMESPACE, objects("deploy/base/fence.yaml")),
        (SECOND, policies.collect()),
    ]
}

fn fence(objects: &[Value]) -> &Value {
    let of_kind = |object: &&Value| {
        object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == FENCE
    };
    objects.iter().find(of_kind).expect("the fence")
}

/// What a variable of the fence stands for.
fn variable(objects: &[Value], name: &str) -> String {
    let variables = fence(objects)["spec"]["variables"].as_array().unwrap();
    let variable = variables.iter().find(|variable| variable["name"] == name);
    variable.expect(name)["expression"].as_str().unwrap().to_owned()
}

fn text(namespace: &str, condition: BypassCondition, added: &Added) -> String {
    let account = format!("system:serviceaccount:{namespace}:hookwatch");
    let text = condition.expression(namespace, &account, added);
    assert!(
        !text.contains(['\'', '\\']),
        "it cannot stand in a raw string: {text}"
    );
    text
}

#[test]
fn beside_the_control_plane_both_ways_to_install_tolerate_the_taints_of_every_kind_of_server() {
    let component = objects("deploy/components/control-plane/deployment.yaml").remove(0);
    let tolerations = &component["spec"]["template"]["spec"]["tolerations"];
    for key in [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "CriticalAddonsOnly",
        "node-role.kubernetes.io/etcd",
    ] {
        let mut all = tolerations.as_array().unwrap().iter();
        assert!(all.any(|it| it["key"] == key), "{key}");
    }
    let chart = rendered(NAMESPACE, &json!({"controlPlane": {"enabled": true}})).objects;
    let deployment = chart.iter().find(|it| it["kind"] == "Deployment").unwrap();
    assert_eq!(
        &deployment["spec"]["template"]["spec"]["tolerations"],
        tolerations
    );
}

#[test]
fn the_fence_lets_exactly_our_conditions_be_written() {
    let none = Added::default();
    for (namespace, objects) in fences() {
        let texts = [BypassCondition::Skip, BypassCondition::Probation].map(|condition| {
            let text = text(namespace, condition, &none);
            format!("\"{}\": r'{text}'", condition.name())
        });
        let texts = format!("{{ {} }}", texts.join(", "));
        assert_eq!(variable(&objects, "conditions"), texts, "{namespace}");
    }
}

#[test]
fn the_fence_puts_a_shield_together_as_the_code_does() {
    for (namespace, objects) in fences() {
        puts_a_shield_together(namespace, &objects);
    }
}

fn puts_a_shield_together(namespace: &str, objects: &[Value]) {
    let variable = |name: &str| variable(objects, name);
    let shield = |own: Option<&str>, leases: &[&str]| {
        let leases = leases.iter().map(|namespace| (*namespace).to_owned()).collect();
        let own = own.map(str::to_owned);
        text(namespace, BypassCondition::Shield, &Added { own, leases })
    };
    let plain = shield(None, &[]);
    let base = plain.strip_suffix(')').unwrap();
    assert_eq!(variable("shield"), format!("r'{base}'"));
    // Where names stand in what an owner adds.
    let pieces = |text: &str, name: &str| {
        let added = text.strip_prefix(base).unwrap().strip_suffix(')').unwrap();
        let (before, after) = added.split_once(name).unwrap();
        [before.to_owned(), after.to_owned()]
    };
    let [before, after] = pieces(&shield(Some("NAME"), &[]), "NAME");
    assert_eq!(variable("shieldOwn"), format!("[r'{before}', r'{after}']"));
    let [before, after] = pieces(&shield(None, &["ONE", "TWO"]), r#"ONE", "TWO"#);
    assert_eq!(
        variable("shieldLeases"),
        format!(
            "size(variables.spareLeases) != 1 ? \"\" : r'{before}' \
             + variables.spareLeases[0].substring(7).replace(\"+\", \"\\\", \\\"\") + r'{after}'"
        )
    );
    // First the hook's own, then Leases.
    let both = shield(Some("NAME"), &["ONE"]);
    assert!(both.starts_with(shield(Some("NAME"), &[]).strip_suffix(')').unwrap()));
}

#[test]
fn what_the_fence_is_tried_at_is_never_called() {
    for object in objects("deploy/base/proof.yaml") {
        assert_eq!(object["metadata"]["name"], PROOF);
        let webhooks = object["webhooks"].as_array().unwrap();
        assert!(
            webhooks
                .iter()
                .all(|webhook| webhook["rules"] == serde_json::json!([]))
        );
        assert!(
            webhooks
                .iter()
                .all(|webhook| webhook["clientConfig"]["service"]["namespace"] == PROOF)
        );
        let spare = &object["metadata"]["annotations"][SPARE_ANNOTATION];
        if object["kind"] == "ValidatingWebhookConfiguration" {
            assert_eq!(spare, PROOF_SPARE)
        } else {
            assert!(spare.is_null())
        }
    }
}

#[test]
fn the_fence_knows_our_names() {
    let objects = objects("deploy/base/fence.yaml");
    let fence = fence(&objects);
    let text = fence["spec"].to_string().replace("\\\"", "\"");
    let quoted = |name: &str| format!("\"{name}\"");
    for name in [
        CONDITION_PREFIX,
        STATE_ANNOTATION,
        OPT_OUT_ANNOTATION,
        ledger::OBJECT,
        FIELD_MANAGER,
    ] {
        assert!(text.contains(&quoted(name)), "{name}");
    }
    let ours = text.split('"').filter(|word| word.contains("hookwatch.dev"));
    let known: BTreeSet<String> = [
        CONDITION_PREFIX,
        STATE_ANNOTATION,
        OPT_OUT_ANNOTATION,
        SPARE_ANNOTATION,
        PERMIT_ANNOTATION,
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(
        BypassCondition::ALL
            .iter()
            .copied()
            .map(|condition| condition.name().to_owned()),
    )
    .chain([format!("f:{STATE_ANNOTATION}"), CONDITION_PREFIX.to_owned()])
    .collect();
    for word in ours.filter(|word| !word.contains(' ') && !word.contains('\\')) {
        assert!(known.contains(word), "{word} is known to the fence alone");
    }
    // By which the fence knows an original.
    assert_eq!(original("w", "Fail", 10), "w=Fail/10");
    assert!(text.contains("text.startsWith(w.name + \"=Fail/\")"));
}

#[test]
fn what_the_proof_waits_for_is_what_the_fence_says() {
    let objects = objects("deploy/base/fence.yaml");
    let fence = fence(&objects);
    let validations = fence["spec"]["validations"].as_array().unwrap();
    let said: BTreeSet<&str> = validations
        .iter()
        .map(|validation| validation["message"].as_str().expect("a message"))
        .collect();
    assert_eq!(said.len(), validations.len(), "each says something else");
    for attempt in FenceAttempt::ALL {
        for kind in [HookKind::Validating, HookKind::Mutating] {
            if let Some(refusal) = attempt.refusal(kind, &MaySkip::default()) {
                assert!(said.contains(refusal), "{refusal}");
            }
        }
    }
}

#[test]
fn both_policies_are_bound_and_refuse_when_in_doubt() {
    for (namespace, objects) in fences() {
        are_bound_and_refuse(namespace, &objects);
    }
}

fn are_bound_and_refuse(namespace: &str, objects: &[Value]) {
    let kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let mut count = 0;
    for policy in kind("ValidatingAdmissionPolicy") {
        count += 1;
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        let name = &policy["metadata"]["name"];
        let binding = kind("ValidatingAdmissionPolicyBinding")
            .find(|binding| binding["spec"]["policyName"] == *name && binding["metadata"]["name"] == *name);
        let binding = binding.unwrap_or_else(|| panic!("{name} is not bound under its own name"));
        assert_eq!(binding["spec"]["validationActions"], serde_json::json!(["Deny"]));
        assert!(
            binding["spec"].get("matchResources").is_none(),
            "{name} is bound everywhere"
        );
        // Whoever is not hookwatch meets the match condition alone: it must not err.
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
        let [condition] = conditions.as_slice() else {
            panic!("{name} has one match condition")
        };
        let expected = format!(
            "has(request.userInfo.username) && request.userInfo.username.startsWith(\"system:serviceaccount:{namespace}:\")"
        );
        assert_eq!(condition["expression"], expected);
    }
    assert_eq!(count, 2);
}

/// Each rule as it stands in the tables: `verbs`, `resources`, whatever else limits it.
fn rules() -> BTreeSet<(String, String)> {
    let mut rules = BTreeSet::new();
    for path in [
        "deploy/base/observe.yaml",
        "deploy/components/canaries/kube-system.yaml",
        "deploy/components/canaries/kube-node-lease.yaml",
        "deploy/components/breaker/act.yaml",
        "deploy/components/expiry/expiry.yaml",
        "deploy/overlays/unchecked/unchecked.yaml",
        "deploy/overlays/view/view.yaml",
    ] {
        for role in objects(path) {
            let words = |list: &Value| -> Vec<String> {
                let list = list.as_array().into_iter().flatten();
                list.map(|word| word.as_str().unwrap().to_owned()).collect()
            };
            for rule in role["rules"].as_array().into_iter().flatten() {
                assert!(!rule.to_string().contains('*'), "{path}: a wildcard: {rule}");
                let group = words(&rule["apiGroups"]).join("");
                for what in words(&rule["resources"])
                    .into_iter()
                    .chain(words(&rule["nonResourceURLs"]))
                {
                    let what = match group.as_str() {
                        "" => what,
                        group => format!("{what}.{group}"),
                    };
                    for verb in words(&rule["verbs"]) {
                        rules.insert((verb, what.clone()));
                    }
                }
            }
        }
    }
    rules
}

/// What is asked and no role has, since most clusters permit it to all users. It is explained like the rest.
const OF_ALL_USERS: [(&str, &str); 5] = [
    ("get", "/apis/admissionregistration.k8s.io/v1"),
    ("create", "selfsubjectreviews.authentication.k8s.io"),
    ("get", "/apis"),
    ("get", "/apis/GROUP/VERSION"),
    ("get", "/api/v1"),
];

#[test]
fn every_permission_is_explained_and_no_other() {
    let document = read("deploy/README.md");
    let mut explained = BTreeSet::new();
    for row in document.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let (verbs, whats) = (crate::quoted(cells[0]), crate::quoted(cells[1]));
        for verb in &verbs {
            explained.extend(whats.iter().map(|what| ((*verb).to_owned(), (*what).to_owned())));
        }
    }
    let mut expected = rules();
    for (verb, what) in OF_ALL_USERS {
        assert!(
            expected.insert((verb.to_owned(), what.to_owned())),
            "a role has {what}"
        );
    }
    assert_eq!(explained, expected);
}

#[test]
fn who_only_sees_may_list_and_watch_webhook_configurations_and_create_nothing_but_events() {
    let files = [
        "deploy/base/observe.yaml",
        "deploy/components/canaries/kube-system.yaml",
        "deploy/components/canaries/kube-node-lease.yaml",
    ];
    for role in files.into_iter().flat_map(objects) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            if text.contains("webhookconfigurations") {
                assert_eq!(rule["verbs"], serde_json::json!(["list", "watch"]), "{rule}");
            }
            if text.contains("\"create\"") {
                assert_eq!(rule["resources"], serde_json::json!(["events"]), "{rule}");
            }
            assert!(
                !text.contains("\"update\"") && !text.contains("\"delete"),
                "{rule}"
            );
            // Whatever else may be changed goes by a name.
            if text.contains("\"patch\"") && !text.contains("\"events\"") {
                assert!(rule["resourceNames"].is_array(), "{rule}");
            }
        }
    }
}

#[test]
fn every_manifest_is_in_a_kustomization() {
    let mut count = 0;
    for path in manifests() {
        let (folder, name) = (
            path.parent().unwrap(),
            path.file_name().unwrap().to_string_lossy(),
        );
        // What is there is copied to a node, and never applied.
        if name == "kustomization.yaml" || folder.ends_with("control-plane-node") {
            continue;
        }
        let kustomization: Value = serde_saphyr::from_str(&read(folder.join("kustomization.yaml"))).unwrap();
        let list = |key: &str| kustomization[key].as_array().cloned().unwrap_or_default();
        let is_patch = list("patches").iter().any(|patch| patch["path"] == *name);
        assert!(
            is_patch || list("resources").iter().any(|resource| *resource == *name),
            "{}",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 6);
}
