//! Which requests the shield exempts and which not, and which requests never reach a hook.

use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::hook::Added;
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use serde_json::{Value, json};

use super::ask::Ask;
use super::hooks::{backend, catch_all, configmap, configmaps};
use super::lab::{MUTATING, VALIDATING, configurations};
use super::play::Play;

const OWN: &str = "hookwatch";
const OURSELVES: &str = "system:serviceaccount:hookwatch:hookwatch";
const NODE: &str = "system:node:shielded";
const NODES: &[&str] = &["system:nodes"];
const CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";

const SLICES: &str = "system:serviceaccount:kube-system:endpointslice-controller";
const SLICES_PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/shielded/endpointslices";
const NODE_CONTROLLER: &str = "system:serviceaccount:kube-system:node-controller";

pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "example/c:1"}]},
    })
}

/// A certificate signing request that an API server accepts.
pub fn signing_request() -> Value {
    use base64::Engine;
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    json!({
        "metadata": {"name": "shielded"},
        "spec": {
            "request": base64::prelude::BASE64_STANDARD.encode(pem),
            "signerName": "fidelity.example/any",
            "usages": ["digital signature"],
        },
    })
}

pub fn review(group: &str, path: &str, spec: Value) -> Ask {
    Ask::post(&format!("/apis/{group}/v1/{path}"), json!({"spec": spec}))
}

pub fn access() -> Value {
    json!({"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shielded"}})
}

pub async fn the_shield_spares_what_keeps_the_control_plane_alive_and_nothing_else(play: &mut Play) {
    set_the_stage(play).await;
    let denying = backend(
        &play.authority,
        BackendRole::Validating,
        Behaviour::Deny(403, "it was asked".into()),
    )
    .await;
    let mut hook = catch_all("shielded.fidelity.example", denying.address(), &play.authority);
    let condition = BypassCondition::Shield;
    hook["matchConditions"] = json!([{
        "name": condition.name(), "expression": condition.expression(OWN, OURSELVES, &Added::default()),
    }]);
    play.register(false, "shielded", &[hook]).await;
    let before = denying.counters().reviews();
    for (step, ask) in spared() {
        let answer = play.tell(&format!("spared: {step}"), ask).await;
        assert!(answer.is_success(), "{step}: {}", answer.text);
    }
    for (step, ask) in not_spared() {
        let answer = play.tell(&format!("not spared: {step}"), ask).await;
        assert_eq!(answer.status, 403, "{step}: {}", answer.text);
        assert!(
            answer.message().ends_with("it was asked"),
            "{step}: {}",
            answer.text
        );
    }
    let asked = denying.counters().reviews() - before;
    assert_eq!(asked, u64::try_from(not_spared().len()).unwrap());
}

async fn set_the_stage(play: &Play) {
    for name in ["shielded", OWN] {
        play.lab.namespace(name).await;
    }
    for (path, body) in [
        ("/api/v1/namespaces/shielded/pods", pod("p")),
        ("/api/v1/namespaces/kube-system/pods", pod("p")),
        (
            "/api/v1/namespaces/shielded/serviceaccounts",
            json!({"metadata": {"name": "s"}}),
        ),
        ("/api/v1/nodes", json!({"metadata": {"name": "other"}})),
        (&configmaps("shielded"), configmap("there")),
    ] {
        play.lab.have(path, body).await;
    }
}

fn lease(namespace: &str, name: &str) -> Ask {
    Ask::post(
        &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
        json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}}),
    )
}

fn status_of(path: &str, user: &str, groups: &[&str]) -> Ask {
    let patch = json!({"status": {"phase": "Running"}});
    Ask::merge_patch(&format!("{path}/status"), patch).user(user, groups)
}

fn cluster_role(name: &str) -> Ask {
    Ask::post(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        json!({"metadata": {"name": name}, "rules": []}),
    )
}

fn token() -> Ask {
    let spec = json!({"audiences": ["fidelity"], "expirationSeconds": 3600});
    Ask::post(
        "/api/v1/namespaces/shielded/serviceaccounts/s/token",
        json!({"spec": spec}),
    )
}

fn spared() -> Vec<(&'static str, Ask)> {
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    let slices = SLICES_PATH;
    vec![
        (
            "a ConfigMap of kube-system",
            Ask::post(&configmaps("kube-system"), configmap("shielded")),
        ),
        (
            "a ConfigMap of kube-node-lease",
            Ask::post(&configmaps("kube-node-lease"), configmap("shielded")),
        ),
        (
            "a ConfigMap of hookwatch's own",
            Ask::post(&configmaps(OWN), configmap("shielded")),
        ),
        (
            "its update",
            Ask::merge_patch(
                &format!("{}/shielded", configmaps(OWN)),
                json!({"data": {"k": "w"}}),
            ),
        ),
        (
            "its deletion",
            Ask::delete(&format!("{}/shielded", configmaps(OWN))),
        ),
        ("hookwatch's Lease", lease(OWN, "hookwatch")),
        (
            "a node's Lease",
            lease("kube-node-lease", "shielded").user(NODE, NODES),
        ),
        (
            "a node's Node",
            Ask::post("/api/v1/nodes", json!({"metadata": {"name": "shielded"}})).user(NODE, NODES),
        ),
        (
            "a node's heartbeat",
            Ask::merge_patch(
                "/api/v1/nodes/shielded/status",
                json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}}),
            )
            .user(NODE, NODES),
        ),
        (
            "a node's CSINode",
            Ask::post(
                "/apis/storage.k8s.io/v1/csinodes",
                json!({"metadata": {"name": "shielded"}, "spec": {"drivers": []}}),
            )
            .user(NODE, NODES),
        ),
        (
            "a node's CertificateSigningRequest",
            Ask::post(
                "/apis/certificates.k8s.io/v1/certificatesigningrequests",
                signing_request(),
            )
            .user(NODE, NODES),
        ),
        ("a token for a tenant's Pod", token().user(NODE, NODES)),
        (
            "how a tenant's Pod is",
            status_of("/api/v1/namespaces/shielded/pods/p", NODE, NODES),
        ),
        (
            "a TokenReview",
            review(authentication, "tokenreviews", json!({"token": "nobody's"})),
        ),
        (
            "a SelfSubjectReview",
            Ask::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})),
        ),
        (
            "a SubjectAccessReview",
            review(authorization, "subjectaccessreviews", access()),
        ),
        (
            "a LocalSubjectAccessReview of a tenant's",
            review(
                authorization,
                "namespaces/shielded/localsubjectaccessreviews",
                access(),
            ),
        ),
        (
            "a SelfSubjectAccessReview",
            review(
                authorization,
                "selfsubjectaccessreviews",
                json!({"resourceAttributes": access()["resourceAttributes"]}),
            ),
        ),
        (
            "a SelfSubjectRulesReview",
            review(
                authorization,
                "selfsubjectrulesreviews",
                json!({"namespace": "shielded"}),
            ),
        ),
        (
            "an EndpointSlice of a tenant's, by its controller",
            Ask::post(slices, endpoint_slice()).user(SLICES, &[]),
        ),
        (
            "a role that an API server makes",
            cluster_role("shielded").user("system:apiserver", &["system:masters"]),
        ),
        (
            "a node's taint, by the controller of nodes",
            Ask::merge_patch("/api/v1/nodes/other", json!({"metadata": {"labels": {"a": "b"}}}))
                .user(NODE_CONTROLLER, &[]),
        ),
        (
            "a condition of a node, by a manager without credentials for each controller",
            Ask::merge_patch(
                "/api/v1/nodes/other/status",
                json!({"status": {"phase": "Running"}}),
            )
            .user("system:kube-controller-manager", &[]),
        ),
    ]
}

fn endpoint_slice() -> Value {
    json!({
        "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4", "endpoints": [], "ports": [],
    })
}

fn not_spared() -> Vec<(&'static str, Ask)> {
    let pods = "/api/v1/namespaces/shielded/pods";
    vec![
        (
            "a tenant's Pod that a controller of kube-system makes",
            Ask::post(pods, pod("q")).user(CONTROLLER, &[]),
        ),
        (
            "a tenant's Pod that a node makes",
            Ask::post(pods, pod("q")).user(NODE, NODES),
        ),
        (
            "a tenant's ConfigMap",
            Ask::post(&configmaps("shielded"), configmap("a")),
        ),
        (
            "a tenant's ConfigMap that a node makes",
            Ask::post(&configmaps("shielded"), configmap("a")).user(NODE, NODES),
        ),
        (
            "a tenant's ConfigMap that hookwatch makes",
            Ask::post(&configmaps("shielded"), configmap("a")).user(OURSELVES, &[]),
        ),
        ("a tenant's Lease", lease("shielded", "a")),
        (
            "a Namespace",
            Ask::post("/api/v1/namespaces", json!({"metadata": {"name": "unshielded"}})),
        ),
        (
            "the labels of kube-system",
            Ask::merge_patch(
                "/api/v1/namespaces/kube-system",
                json!({"metadata": {"labels": {"a": "b"}}}),
            ),
        ),
        (
            "the deletion of a Namespace",
            Ask::delete("/api/v1/namespaces/shielded").dry_run(),
        ),
        (
            "a connection into kube-system",
            Ask::post(
                "/api/v1/namespaces/kube-system/pods/p/exec?command=ls&stdout=true",
                Value::Null,
            ),
        ),
        ("a role that a person makes", cluster_role("unshielded")),
        (
            "a Node that a person makes",
            Ask::post("/api/v1/nodes", json!({"metadata": {"name": "unshielded"}})),
        ),
        (
            "a heartbeat that a person sends",
            status_of("/api/v1/nodes/other", "a-person", &["people"]),
        ),
        ("a token that a person asks for", token()),
        (
            "how a tenant's Pod is, says a person",
            status_of("/api/v1/namespaces/shielded/pods/p", "a-person", &["people"]),
        ),
        (
            "an eviction by a node",
            Ask::post(
                "/api/v1/namespaces/shielded/pods/p/eviction",
                json!({"metadata": {"name": "p"}}),
            )
            .user(NODE, NODES),
        ),
        (
            "an EndpointSlice of a tenant's, by himself",
            Ask::post(SLICES_PATH, endpoint_slice()).user("a-person", &["people"]),
        ),
        (
            "a tenant's ConfigMap that an API server makes",
            Ask::post(&configmaps("shielded"), configmap("a")).user("system:apiserver", &["system:masters"]),
        ),
        (
            "a tenant's Pod that the manager of all controllers makes",
            Ask::post(pods, pod("q")).user("system:kube-controller-manager", &[]),
        ),
        (
            "a deletion by a person",
            Ask::delete("/api/v1/namespaces/shielded/pods/p").user("a-person", &["people"]),
        ),
        (
            "a Node's label by another controller",
            Ask::merge_patch("/api/v1/nodes/other", json!({"metadata": {"labels": {"a": "c"}}}))
                .user(CONTROLLER, &[]),
        ),
        (
            "all ConfigMaps of a tenant's",
            Ask::delete(&configmaps("shielded")),
        ),
    ]
}

/// An admission policy that matches nothing, and its binding; `mutating` or validating.
fn policies(mutating: bool) -> [Value; 2] {
    let constraints = json!({"resourceRules": [{
        "apiGroups": ["nobody.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"],
    }]});
    let (says, binds) = if mutating {
        let mutation = json!({
            "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"},
        });
        let says = json!({
            "matchConstraints": constraints, "reinvocationPolicy": "Never", "mutations": [mutation],
        });
        (says, json!({"policyName": "exempt"}))
    } else {
        (
            json!({"matchConstraints": constraints, "validations": [{"expression": "true"}]}),
            json!({"policyName": "exempt", "validationActions": ["Deny"]}),
        )
    };
    [says, binds].map(|spec| json!({"metadata": {"name": "exempt"}, "spec": spec}))
}

pub async fn no_hook_is_asked_about_webhook_configurations_and_policies(play: &mut Play) {
    let (_hung, hook) = hung_for_all(play).await;
    let mut other = hook;
    other["rules"][0]["resources"] = json!(["nothing"]);
    let others = json!({"metadata": {"name": "other"}, "webhooks": [other]});
    let [policy, binding] = policies(false);
    let all = [
        (VALIDATING, "other", others.clone()),
        (MUTATING, "other", others),
        ("validatingadmissionpolicies", "exempt", policy),
        ("validatingadmissionpolicybindings", "exempt", binding),
    ];
    are_written_at_once(play, all).await;
}

pub async fn no_hook_is_asked_about_mutating_policies(play: &mut Play) {
    let _hung = hung_for_all(play).await;
    let [policy, binding] = policies(true);
    let all = [
        ("mutatingadmissionpolicies", "exempt", policy),
        ("mutatingadmissionpolicybindings", "exempt", binding),
    ];
    are_written_at_once(play, all).await;
}

/// Registers a catch-all hook of each kind. They hang while the returned backend lives; also returns the mutating one.
async fn hung_for_all(play: &mut Play) -> (LabBackend, Value) {
    play.lab.namespace("exempt").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let catch_all = |name: &str| {
        let mut hook = catch_all(name, hung.address(), &play.authority);
        // Exclude the API server's own writes, whose calls would be counted as well.
        hook["matchConditions"] = json!([{
            "name": "not-its-own", "expression": "request.userInfo.username != 'system:apiserver'",
        }]);
        hook
    };
    let [validating, hook] = ["validating.fidelity.example", "mutating.fidelity.example"].map(catch_all);
    play.register(false, "exempt", &[validating]).await;
    play.register(true, "exempt", std::slice::from_ref(&hook)).await;
    (hung, hook)
}

/// Creates, changes and deletes each of these objects, and sends a write that is refused, for comparison.
async fn are_written_at_once<const N: usize>(play: &mut Play, all: [(&str, &str, Value); N]) {
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    for (resource, name, body) in all {
        let path = configurations(resource, name);
        for (what, ask) in [
            ("POST", Ask::post(&configurations(resource, ""), body)),
            ("PATCH", Ask::merge_patch(&path, patch.clone())),
            ("DELETE", Ask::delete(&path)),
        ] {
            let answer = play.ask(&format!("{what} of {resource}"), ask).await;
            assert!(answer.is_success(), "{}", answer.text);
            assert_eq!(play.class(answer.took), "at once");
        }
    }
    let blocked = Ask::post(&configmaps("exempt"), configmap("a"));
    let blocked = play.ask("anything else", blocked).await;
    assert_eq!(blocked.status, 500, "{}", blocked.text);
}
