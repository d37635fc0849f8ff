//! Webhooks that are drawn: rules, selectors, and conditions as projects publish them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Numbers that are the same each time.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Conditions of webhooks as projects publish them.
pub const PUBLISHED: [(&str, &str); 20] = [
    // kubernetes/website, examples/access, of 1.33.
    (
        "Kubernetes",
        r#"!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")"#,
    ),
    ("Kubernetes", r#"!("system:nodes" in request.userInfo.groups)"#),
    (
        "Kubernetes",
        r#"request.resource.group != "rbac.authorization.k8s.io""#,
    ),
    // kubernetes/kubernetes, cluster/gce/addons/cloud-pvl-admission.
    ("Kubernetes", "has(object.spec.gcePersistentDisk)"),
    // kyverno/kyverno 111e07bbec: pkg/controllers/webhook/bootstrap_exclusion.go, and test/conformance/chainsaw.
    (
        "Kyverno",
        r#"!(request.resource.group == "" && request.resource.resource == "nodes") && !(request.resource.group == "certificates.k8s.io" && request.resource.resource == "certificatesigningrequests")"#,
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'v1' && object.kind =='Pod')) || (has(object.metadata.labels) && has(object.metadata.labels.prod) && object.metadata.labels.prod == 'true')",
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'batch/v1' && object.kind =='CronJob')) || (has(object.spec.jobTemplate.spec.template.metadata.labels) && has(object.spec.jobTemplate.spec.template.metadata.labels.prod) && object.spec.jobTemplate.spec.template.metadata.labels.prod == 'true')",
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'apps/v1' && object.kind =='DaemonSet') || (object.apiVersion == 'apps/v1' && object.kind =='Deployment') || (object.apiVersion == 'apps/v1' && object.kind =='ReplicaSet') || (object.apiVersion == 'apps/v1' && object.kind =='StatefulSet') || (object.apiVersion == 'batch/v1' && object.kind =='Job')) || (has(object.spec.template.metadata.labels) && has(object.spec.template.metadata.labels.prod) && object.spec.template.metadata.labels.prod == 'true')",
    ),
    ("Kyverno", r#"("system:masters" in request.userInfo.groups)"#),
    // projectcapsule/capsule 65a4e19e: charts/capsule/values.yaml.
    (
        "Capsule",
        r#"!has(request.subResource) || request.subResource == """#,
    ),
    ("Capsule", r#"request.resource.resource != "events""#),
    (
        "Capsule",
        "request.resource.group == \"capsule.clastix.io\" ||\n!(\n  request.userInfo.username in [\n    \"kubernetes-admin\"\n  ]\n)\n",
    ),
    // rancher/webhook 31c772b1: pkg/resources/core/v1/secret/mutator.go.
    (
        "Rancher",
        r#"request.operation == 'DELETE' || (object != null && object.type == "provisioning.cattle.io/cloud-credential" && request.operation == 'CREATE') || (object != null && object.metadata.namespace == "cattle-local-user-passwords")"#,
    ),
    // kubevirt/kubevirt d923fdb815: pkg/virt-operator/resource/generate/components/webhooks.go.
    ("KubeVirt", r#"object.metadata.name.startsWith("virt-launcher")"#),
    ("KubeVirt", r#"object.metadata.name.startsWith("hp-volume-")"#),
    // DataDog/datadog-agent: pkg/clusteragent/admission, of 0d98898008 and later.
    ("Datadog", "!(request.userInfo.username.startsWith('system:'))"),
    (
        "Datadog",
        r#"has(object.metadata.annotations) && "autoscaling.datadoghq.com/managed-by-dpa" in object.metadata.annotations"#,
    ),
    // solo-io/gloo, pull request 10554.
    (
        "Gloo",
        r#"request.resource.resource != "secrets" || ("labels" in oldObject.metadata && "foo" in oldObject.metadata.labels)"#,
    ),
    // hashicorp/vault-helm, pull request 1079.
    (
        "Vault",
        "has(object.metadata.annotations) && 'vault.hashicorp.com/agent-inject' in object.metadata.annotations",
    ),
    // kubernetes/kubernetes, test/integration/apiserver/admissionwebhook/match_conditions_test.go.
    ("Kubernetes", "object.metadata.namespace != 'kube-system'"),
];

/// Others, about every field and function that is evaluated.
const OTHERS: [&str; 13] = [
    r#"request.resource.resource != "leases""#,
    r#"!(request.userInfo.username.startsWith("system:serviceaccount:kube-system:"))"#,
    r#"has(request.namespace) ? !(request.namespace in ["kube-system", "matcher-b"]) : true"#,
    r#"!has(request.subResource) || request.subResource != "status""#,
    r#"request.operation != "DELETE""#,
    r#"object != null && has(object.metadata.labels) && "app" in object.metadata.labels"#,
    r#"oldObject == null || object == null || object.metadata.uid == oldObject.metadata.uid"#,
    r#"object.metadata.?labels["tier"].orValue("none") != "none""#,
    r#"request.kind.kind in ["Pod", "ConfigMap", "Deployment", "Widget", "Namespace"]"#,
    r#"request.userInfo.groups.exists(group, group.startsWith("system:serviceaccounts"))"#,
    r#"request.name.matches("^matcher.*")"#,
    // Those that err for some.
    r#"request.namespace != "matcher-a""#,
    r#"object.metadata.labels["app"] == "web""#,
];

/// In the documentation of Kubernetes as well: what is not known before.
const UNKNOWN: &str = r#"authorizer.group("example.com").resource("widgets").check("breakglass").allowed()"#;

const SELECTORS: [&str; 8] = [
    r#"{}"#,
    r#"{"matchLabels": {"env": "prod"}}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "Exists"}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}"#,
    r#"{"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "matcher-b"]}]}"#,
    r#"{"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}"#,
];

fn rule(draw: &mut Draw) -> Value {
    let operations: &[&[&str]] = &[
        &["*"],
        &["CREATE"],
        &["UPDATE"],
        &["CREATE", "UPDATE"],
        &["DELETE"],
        &["CREATE", "UPDATE", "DELETE"],
    ];
    let groups: &[&[&str]] = &[
        &["*"],
        &["*"],
        &["*"],
        &["", "apps"],
        &[""],
        &["matcher.example"],
        &["events.k8s.io", "autoscaling"],
        &["coordination.k8s.io", "", "rbac.authorization.k8s.io"],
    ];
    let versions: &[&[&str]] = &[
        &["*"],
        &["*"],
        &["v1"],
        &["v2"],
        &["v1", "v2"],
        &["v3", "v1beta1"],
    ];
    let resources: &[&[&str]] = &[
        &["*/*"],
        &["*"],
        &["*/*"],
        &["pods", "configmaps", "widgets"],
        &["pods/*", "*/status"],
        &["widgets", "widgets/status", "events", "horizontalpodautoscalers"],
        &["deployments", "deployments/scale", "leases", "namespaces"],
        &["nodes", "clusterroles", "namespaces", "configmaps"],
        &["*/scale", "*"],
    ];
    let scopes = ["*", "*", "Namespaced", "Cluster"];
    json!({
        "operations": draw.one(operations), "apiGroups": draw.one(groups), "apiVersions": draw.one(versions),
        "resources": draw.one(resources), "scope": draw.one(&scopes),
    })
}

/// Of three webhooks, the first has conditions that are published, each of them in its turn, the second others.
fn conditions(draw: &mut Draw, place: usize) -> Vec<Value> {
    let mut chosen: BTreeSet<&str> = BTreeSet::new();
    match place % 3 {
        0 => {
            chosen.insert(PUBLISHED[place / 3 % PUBLISHED.len()].1);
            if draw.chance(30) {
                chosen.insert(draw.one(&PUBLISHED).1);
            }
            if draw.chance(10) {
                chosen.insert(UNKNOWN);
            }
        }
        1 => {
            chosen.extend((0..=draw.below(2)).map(|_| *draw.one(&OTHERS)));
        }
        _ => {}
    }
    let named = chosen.iter().enumerate();
    named
        .map(|(at, text)| json!({"name": format!("c-{at}"), "expression": text}))
        .collect()
}

pub fn webhook(draw: &mut Draw, (name, place): (&str, usize), url: &str, ca: &str) -> Value {
    let mut rules = vec![rule(draw)];
    if draw.chance(60) {
        rules.push(rule(draw));
    }
    if draw.chance(72) {
        rules.push(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}));
    }
    let selector = |draw: &mut Draw| -> Value {
        let text = if draw.chance(60) {
            SELECTORS[0]
        } else {
            *draw.one(&SELECTORS)
        };
        serde_json::from_str(text).unwrap()
    };
    let conditions = conditions(draw, place);
    let policy = if draw.chance(60) { "Equivalent" } else { "Exact" };
    json!({
        "name": name, "clientConfig": {"url": format!("{url}/{name}"), "caBundle": ca}, "failurePolicy": "Ignore",
        "timeoutSeconds": 5, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules,
        "matchPolicy": policy, "namespaceSelector": selector(draw), "objectSelector": selector(draw),
        "matchConditions": conditions,
    })
}
