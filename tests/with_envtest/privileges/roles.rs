//! The shipped roles, held against what the daemon asks for, and taken away one verb at a time.

use std::collections::BTreeSet;

use hookwatch::app::engine::Engine;
use hookwatch::domain::fence::AutoBreak;
use hookwatch::domain::hook::HookKind;
use hookwatch::domain::verdict::Assessment;
use http::Method;
use serde_json::{Value, json};

use super::audit::{Permission, asked_by, granted};
use super::changes::ACCOUNT;
use super::cluster::{Cluster, assessed, block_on, config, manifests, until};
use crate::{Outcome, missing};

/// Permissions for what the daemon does not do yet: `verb what`, and what it will be for. Whoever makes it do it takes
/// the line away and says in [`costs`] what is lost without the permission.
const LATER: [(&str, &str); 13] = [
    (
        "list customresourcedefinitions.apiextensions.k8s.io",
        "conversion webhooks",
    ),
    (
        "watch customresourcedefinitions.apiextensions.k8s.io",
        "conversion webhooks",
    ),
    ("list apiservices.apiregistration.k8s.io", "aggregated APIs"),
    ("watch apiservices.apiregistration.k8s.io", "aggregated APIs"),
    ("get /readyz", "replicas that say that they are ready"),
    (
        "list leases.coordination.k8s.io in kube-node-lease",
        "the nodes' heartbeats",
    ),
    ("create leases.coordination.k8s.io in hookwatch", "leadership"),
    (
        "get leases.coordination.k8s.io hookwatch in hookwatch",
        "leadership",
    ),
    (
        "update leases.coordination.k8s.io hookwatch in hookwatch",
        "leadership",
    ),
    (
        "patch leases.coordination.k8s.io hookwatch in hookwatch",
        "leadership",
    ),
    ("create events.events.k8s.io in default", "Events"),
    ("patch events.events.k8s.io in default", "Events"),
    (
        "* validatingwebhookconfigurations.admissionregistration.k8s.io hookwatch-ledger",
        "the ledger",
    ),
];

/// Something that the daemon does, and whether an assessment shows it done.
type Feature = (&'static str, fn(&Assessment) -> bool);

const FEATURES: [Feature; 13] = [
    ("validating hooks", |it| has_hook(it, HookKind::Validating)),
    ("mutating hooks", |it| has_hook(it, HookKind::Mutating)),
    ("validating hooks kept up to date", |it| {
        is_watched(it, "ValidatingWebhookConfigurations")
    }),
    ("mutating hooks kept up to date", |it| {
        is_watched(it, "MutatingWebhookConfigurations")
    }),
    ("namespaces' labels", |it| is_watched(it, "Namespaces")),
    ("Services", |it| is_watched(it, "Services")),
    ("EndpointSlices", |it| is_watched(it, "EndpointSlices")),
    ("replicas", |it| it.sources.api_servers_trouble.is_none()),
    ("scrapes", |it| {
        let scrapes = &it.sources.scrapes;
        scrapes
            .iter()
            .any(|scrape| scrape.age_seconds.is_some() && scrape.failure.is_none())
    }),
    ("the canary of hookwatch", |it| is_written(it, "own_namespace")),
    ("the canary of kube-system", |it| is_written(it, "kube_system")),
    ("the canary of kube-node-lease", |it| is_written(it, "node_lease")),
    ("acting", |it| it.breaker.effective == AutoBreak::On),
];

fn has_hook(assessment: &Assessment, kind: HookKind) -> bool {
    let mut hooks = assessment.hooks.iter();
    hooks.any(|verdict| verdict.kind == kind && verdict.configuration.as_deref() == Some("policy"))
}

fn is_watched(assessment: &Assessment, kind: &str) -> bool {
    let mut troubles = assessment.sources.inventory_trouble.iter();
    assessment.sources.inventory_age_seconds.is_some() && !troubles.any(|trouble| trouble.starts_with(kind))
}

fn is_written(assessment: &Assessment, canary: &str) -> bool {
    let mut canaries = assessment.control_plane.canaries.iter();
    canaries.any(|view| view.canary.as_str() == canary && view.state == "written")
}

/// What is lost without a permission, and nothing else.
fn costs(permission: &Permission) -> &'static [&'static str] {
    let name = permission.to_string();
    match name.as_str() {
        "list validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            &["validating hooks", "validating hooks kept up to date"]
        }
        "watch validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            &["validating hooks kept up to date"]
        }
        "list mutatingwebhookconfigurations.admissionregistration.k8s.io" => {
            &["mutating hooks", "mutating hooks kept up to date"]
        }
        "watch mutatingwebhookconfigurations.admissionregistration.k8s.io" => {
            &["mutating hooks kept up to date"]
        }
        "list namespaces" | "watch namespaces" => &["namespaces' labels"],
        "list services" | "watch services" => &["Services"],
        "list endpointslices.discovery.k8s.io" => &["EndpointSlices", "replicas"],
        "watch endpointslices.discovery.k8s.io" => &["EndpointSlices"],
        "get /metrics" => &["scrapes"],
        "patch configmaps hookwatch-canary in hookwatch" => &["the canary of hookwatch"],
        "patch configmaps hookwatch-canary in kube-system" => &["the canary of kube-system"],
        "patch leases.coordination.k8s.io hookwatch-canary in kube-node-lease" => {
            &["the canary of kube-node-lease"]
        }
        "patch validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "patch mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "create validatingwebhookconfigurations.admissionregistration.k8s.io" => &["acting"],
        _ => panic!("nobody says what is lost without {name}"),
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.what)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

fn is_for_later(permission: &Permission) -> bool {
    let name = permission.to_string();
    LATER.iter().any(|(later, _)| match later.strip_prefix("* ") {
        Some(what) => name.split_once(' ').is_some_and(|(_, rest)| rest == what),
        None => name == *later,
    })
}

/// What the daemon of this version has a use for.
fn in_use() -> BTreeSet<Permission> {
    let granted = granted(&manifests("overlays/breaker"));
    let (later, now): (BTreeSet<_>, BTreeSet<_>) = granted.into_iter().partition(is_for_later);
    let unknown = LATER
        .iter()
        .find(|(name, _)| !name.starts_with('*') && !later.iter().any(|it| it.to_string() == *name));
    assert_eq!(unknown, None, "is not granted");
    now
}

/// Everything applied, and in force.
async fn cluster() -> Cluster {
    let cluster = Cluster::with("overlays/breaker").await;
    cluster.with_hooks().await;
    for permission in granted(&manifests("overlays/breaker")) {
        until(&format!("the account may {permission}"), async || {
            may(&cluster, &permission).await
        })
        .await;
    }
    // The fence counts from when another account of the namespace meets it; this one's requests are counted.
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "another", "namespace": "hookwatch"},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "another"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "another", "namespace": "hookwatch"}],
    });
    cluster.apply(&account).await;
    cluster.apply(&binding).await;
    let another = cluster.client("another").await;
    until("the fence is in force", async || {
        let target = format!(
            "{}/validatingwebhookconfigurations/policy?dryRun=All",
            super::cluster::CONFIGURATIONS
        );
        let answer = super::cluster::ask(
            &another,
            Method::DELETE,
            &target,
            "application/json",
            &Value::Null,
        )
        .await;
        answer.message().contains("hookwatch-fence")
    })
    .await;
    cluster
}

/// Asks the authorizer.
async fn may(cluster: &Cluster, permission: &Permission) -> bool {
    let mut spec =
        json!({"user": ACCOUNT, "groups": ["system:serviceaccounts", "system:serviceaccounts:hookwatch"]});
    if permission.what.starts_with('/') {
        spec["nonResourceAttributes"] = json!({"path": permission.what, "verb": permission.verb});
    } else {
        let (resource, group) = permission.what.split_once('.').unwrap_or((&permission.what, ""));
        spec["resourceAttributes"] = json!({
            "verb": permission.verb, "resource": resource, "group": group,
            "namespace": permission.namespace, "name": permission.name,
        });
    }
    let review =
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let answer = cluster
        .admin(
            Method::POST,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            &review,
        )
        .await;
    answer["status"]["allowed"] == true
}

fn works(feature: &str, assessment: &Assessment) -> bool {
    let known = FEATURES.iter().find(|(name, _)| *name == feature);
    known.expect(feature).1(assessment)
}

pub fn are_enough_and_none_is_idle() -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    block_on(async {
        let cluster = cluster().await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &cluster.token("hookwatch", None).await);
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: on"))
            .await
            .unwrap();
        assessed(&engine, "every feature works", |assessment| {
            FEATURES.iter().all(|(_, works)| works(assessment))
        })
        .await;
        engine.stop().await;

        let granted = granted(&manifests("overlays/breaker"));
        let asked = asked_by(cluster.audit_log(), ACCOUNT);
        let mut wrong = Vec::new();
        for asked in &asked {
            if matches!(asked.code, 401 | 403) {
                wrong.push(format!("{} for {} {}", asked.code, asked.permission, asked.uri));
            }
            if !granted.iter().any(|granted| granted.allows(&asked.permission)) {
                wrong.push(format!("{} is granted by somebody else", asked.permission));
            }
            let writes = !["get", "list", "watch"].contains(&asked.permission.verb.as_str());
            if writes && !asked.dry_run {
                wrong.push(format!("{} is a write", asked.permission));
            }
        }
        for permission in in_use() {
            if !asked.iter().any(|asked| permission.allows(&asked.permission)) {
                wrong.push(format!("{permission} is idle"));
            }
        }
        assert!(
            wrong.is_empty(),
            "of {} requests:\n{}",
            asked.len(),
            wrong.join("\n")
        );
    });
    Outcome::Held
}

pub fn each_that_is_missing_is_named_and_costs_its_feature_alone() -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    block_on(async {
        let cluster = cluster().await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &cluster.token("hookwatch", None).await);
        let config = config(&kubeconfig, "autoBreak: on");
        let roles: Vec<Value> = manifests("overlays/breaker")
            .into_iter()
            .filter(|object| object["rules"].is_array())
            .collect();
        for permission in in_use() {
            for role in &roles {
                cluster.apply(&without(role, &permission)).await;
            }
            until(&format!("the account may not {permission}"), async || {
                !may(&cluster, &permission).await
            })
            .await;
            let engine = Engine::start(&config).await.unwrap();
            let named = names(&permission);
            let lost = costs(&permission);
            let what = format!("only {lost:?} is lost without {permission}, and {named:?} is said");
            assessed(&engine, &what, |assessment| {
                let said = serde_json::to_string(assessment).unwrap().replace("\\\"", "\"");
                let rest = FEATURES
                    .iter()
                    .all(|(feature, works)| works(assessment) != lost.contains(feature));
                said.contains(&named) && rest
            })
            .await;
            engine.stop().await;
            for role in &roles {
                cluster.apply(role).await;
            }
            until(&format!("the account may {permission} again"), async || {
                may(&cluster, &permission).await
            })
            .await;
        }
    });
    Outcome::Held
}

/// How the API server names what was missing.
fn names(permission: &Permission) -> String {
    let Permission { verb, what, .. } = permission;
    match what.starts_with('/') {
        true => format!("cannot {verb} path \"{what}\""),
        false => format!("cannot {verb} resource \"{}\"", what.split('.').next().unwrap()),
    }
}

/// A role with one permission fewer.
fn without(role: &Value, permission: &Permission) -> Value {
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let one_by_one = granted(&[json!({"metadata": role["metadata"], "rules": [rule]})]);
        for kept in one_by_one.iter().filter(|granted| *granted != permission) {
            let mut rule = json!({"verbs": [kept.verb]});
            if kept.what.starts_with('/') {
                rule["nonResourceURLs"] = json!([kept.what]);
            } else {
                let (resource, group) = kept.what.split_once('.').unwrap_or((&kept.what, ""));
                rule["resources"] = json!([resource]);
                rule["apiGroups"] = json!([group]);
            }
            if let Some(name) = &kept.name {
                rule["resourceNames"] = json!([name]);
            }
            rules.push(rule);
        }
    }
    let mut role = role.clone();
    role["rules"] = rules.into();
    role
}

/// Whether every feature shows, for whoever only wants to know that the daemon is in order.
pub fn sees_everything(assessment: &Assessment) -> bool {
    FEATURES
        .iter()
        .all(|(name, _)| *name == "acting" || works(name, assessment))
}
