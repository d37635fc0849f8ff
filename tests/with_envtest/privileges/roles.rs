//! The shipped roles, held against what the daemon asks for, and taken away one verb at a time.

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::act::leadership::ReplicaRole;
use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::io::report::metrics::Metrics;
use http::Method;
use serde_json::{Value, json};

use super::audit::{Permission, asked_by, granted};
use super::changes::ACCOUNT;
use super::cluster::{Cluster, assessed, config, configuration, manifests, play, until};
use crate::Outcome;

/// What every cluster permits to all users unless it was changed (`system:public-info-viewer`, `system:discovery`
/// and `system:basic-user`). No role of ours has the last two: nothing is lost without discovery, and who it is (which is
/// asked by creating what is never stored) hookwatch takes to be the account that is shipped.
pub const GRANTED_TO_ALL: [&str; 4] = [
    "/readyz",
    "/version",
    "/apis/admissionregistration.k8s.io/v1",
    "selfsubjectreviews.authentication.k8s.io",
];

/// Everything that is ever written, and no dry run.
const WRITES: [&str; 5] = [
    "patch leases.coordination.k8s.io hookwatch in hookwatch",
    "create events in default",
    "patch events in default",
    "create validatingwebhookconfigurations.admissionregistration.k8s.io hookwatch-ledger",
    "patch validatingwebhookconfigurations.admissionregistration.k8s.io hookwatch-ledger",
];

/// What a daemon shows of itself.
struct Seen<'a> {
    assessment: &'a Assessment,
    metrics: String,
}

impl<'a> Seen<'a> {
    fn of(engine: &Engine, assessment: &'a Assessment) -> Self {
        let metrics = Metrics::text(&engine.shown.metrics.families(Some(assessment), &[])).unwrap();
        Self {
            assessment,
            metrics: String::from_utf8(metrics).unwrap(),
        }
    }

    /// Whether an Event has come to this.
    fn has_event(&self, outcome: &str) -> bool {
        let line = format!("hookwatch_events_total{{outcome=\"{outcome}\"}} ");
        let mut counts = self.metrics.lines().filter_map(|it| it.strip_prefix(&line));
        counts.any(|count| count != "0")
    }
}

/// Something that the daemon does, and whether it shows.
type Feature = (&'static str, fn(&Seen<'_>) -> bool);

const FEATURES: [Feature; 23] = [
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
    ("conversion webhooks", |it| has_hook(it, HookKind::Conversion)),
    ("aggregated APIs", |it| has_hook(it, HookKind::Aggregated)),
    ("conversion webhooks kept up to date", |it| {
        is_watched(it, "CustomResourceDefinitions")
    }),
    ("aggregated APIs kept up to date", |it| {
        is_watched(it, "APIServices")
    }),
    ("the only node of a hook", |it| is_watched(it, "Node ")),
    ("replicas", |it| {
        it.assessment.sources.api_servers_trouble.is_none()
    }),
    ("scrapes", |it| {
        let mut scrapes = it.assessment.sources.scrapes.iter();
        scrapes.any(|scrape| scrape.age_seconds.is_some() && scrape.failure.is_none())
    }),
    ("readiness", |it| {
        let mut scrapes = it.assessment.sources.scrapes.iter();
        scrapes.any(|scrape| scrape.readiness.state == "ready")
    }),
    ("the release", |it| {
        let mut scrapes = it.assessment.sources.scrapes.iter();
        scrapes.any(|scrape| scrape.version.is_some())
    }),
    ("node Leases", |it| {
        ["current", "none"].contains(&it.assessment.sources.node_leases.state)
    }),
    ("the canary of hookwatch", |it| is_written(it, "own_namespace")),
    ("the canary of kube-system", |it| is_written(it, "kube_system")),
    ("the canary of kube-node-lease", |it| is_written(it, "node_lease")),
    ("leadership", |it| {
        let replica = it.assessment.replica.as_ref();
        replica.is_some_and(|replica| replica.role == ReplicaRole::Leader)
    }),
    ("Events", |it| it.has_event("written") || it.has_event("repeated")),
    ("acting", |it| it.assessment.breaker.effective == AutoBreak::On),
];

fn has_hook(seen: &Seen<'_>, kind: HookKind) -> bool {
    let name = match kind {
        HookKind::Validating | HookKind::Mutating => "policy",
        HookKind::Conversion => "policies.hooks.example.com",
        HookKind::Aggregated => "v1.policy.example.com",
    };
    let mut hooks = seen.assessment.hooks.iter();
    hooks.any(|verdict| verdict.kind == kind && verdict.configuration.as_deref() == Some(name))
}

fn is_watched(seen: &Seen<'_>, kind: &str) -> bool {
    let sources = &seen.assessment.sources;
    let mut troubles = sources.inventory_trouble.iter();
    sources.inventory_age_seconds.is_some() && !troubles.any(|trouble| trouble.starts_with(kind))
}

fn is_written(seen: &Seen<'_>, canary: &str) -> bool {
    let mut canaries = seen.assessment.control_plane.canaries.iter();
    canaries.any(|view| view.canary.as_str() == canary && view.state == "written")
}

/// What is lost without a permission, and nothing else.
fn costs(permission: &Permission) -> &'static [&'static str] {
    let name = permission.to_string();
    match name.as_str() {
        "list validatingwebhookconfigurations.admissionregistration.k8s.io" => &[
            "validating hooks",
            "validating hooks kept up to date",
            "leadership",
            "Events",
        ],
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
        "list customresourcedefinitions.apiextensions.k8s.io" => {
            &["conversion webhooks", "conversion webhooks kept up to date"]
        }
        "watch customresourcedefinitions.apiextensions.k8s.io" => &["conversion webhooks kept up to date"],
        "list apiservices.apiregistration.k8s.io" => &["aggregated APIs", "aggregated APIs kept up to date"],
        "watch apiservices.apiregistration.k8s.io" => &["aggregated APIs kept up to date"],
        "list nodes" | "watch nodes" => &["the only node of a hook"],
        "get /metrics" => &["scrapes"],
        "list leases.coordination.k8s.io in kube-node-lease" => &["node Leases"],
        "get leases.coordination.k8s.io hookwatch in hookwatch"
        | "patch leases.coordination.k8s.io hookwatch in hookwatch" => &["leadership", "Events"],
        "get events in default" | "create events in default" | "patch events in default" => &["Events"],
        "patch configmaps hookwatch-canary in hookwatch" => &["the canary of hookwatch"],
        "patch configmaps hookwatch-canary in kube-system" => &["the canary of kube-system"],
        "patch leases.coordination.k8s.io hookwatch-canary in kube-node-lease" => {
            &["the canary of kube-node-lease"]
        }
        // The Lease is blocked, so that the ledger decides.
        "patch validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            &["acting", "leadership", "Events"]
        }
        "patch mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "create validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "get validatingadmissionpolicies.admissionregistration.k8s.io hookwatch-fence" => &["acting"],
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

/// Whether a request was for this, under the name that stands there, or any if none does.
fn is(what: &str, asked: &Permission) -> bool {
    let under_any = Permission {
        name: None,
        ..asked.clone()
    };
    [asked.to_string(), under_any.to_string()]
        .iter()
        .any(|asked| asked == what)
}

/// Says no to the Lease, so that the ledger is used and that there is something to say: nobody listens on that port.
fn blocks_the_lease() -> Value {
    let mut hook = configuration("ValidatingWebhookConfiguration", "blocks-the-lease");
    hook["metadata"]["annotations"] = json!({});
    hook["webhooks"][0]["name"] = "blocks-the-lease.example.com".into();
    hook["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:1/"});
    hook["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "hookwatch"}});
    hook["webhooks"][0]["rules"] = json!([{
        "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["leases"],
    }]);
    hook
}

/// Everything applied, and in force.
async fn cluster() -> Cluster {
    let cluster = Cluster::with("overlays/breaker").await;
    cluster.with_hooks().await;
    cluster.apply(&blocks_the_lease()).await;
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
        let answer = super::cluster::ask(&another, Method::DELETE, &target, &Value::Null).await;
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

async fn everything_works(engine: &Engine) {
    assessed(engine, "every feature works", |assessment| {
        let seen = Seen::of(engine, assessment);
        FEATURES.iter().all(|(_, works)| works(&seen))
    })
    .await;
}

pub fn are_enough_and_none_is_idle() -> Outcome {
    play(async {
        let cluster = cluster().await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &cluster.token("hookwatch", None).await);
        let config = config(&kubeconfig, "autoBreak: on");
        let engine = Engine::start(&config).await.unwrap();
        everything_works(&engine).await;
        engine.stop().await;
        // What one has said the next one says again.
        let engine = Engine::start(&config).await.unwrap();
        assessed(&engine, "an Event is counted up", |assessment| {
            Seen::of(&engine, assessment).has_event("repeated")
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
            let is_granted = granted.iter().any(|granted| granted.allows(&asked.permission));
            if !is_granted {
                if !GRANTED_TO_ALL.contains(&asked.permission.what.as_str()) {
                    wrong.push(format!("{} is granted by somebody else", asked.permission));
                }
                continue;
            }
            let writes = !["get", "list", "watch"].contains(&asked.permission.verb.as_str());
            if writes && !asked.dry_run && !WRITES.iter().any(|write| is(write, &asked.permission)) {
                wrong.push(format!("{} is a write", asked.permission));
            }
        }
        for write in WRITES {
            if !asked
                .iter()
                .any(|asked| !asked.dry_run && is(write, &asked.permission))
            {
                wrong.push(format!("nobody had to {write}"));
            }
        }
        for permission in granted {
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
    })
}

pub fn each_that_is_missing_is_named_and_costs_its_feature_alone() -> Outcome {
    play(async {
        let cluster = cluster().await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &cluster.token("hookwatch", None).await);
        let config = config(&kubeconfig, "autoBreak: on");
        let roles: Vec<Value> = manifests("overlays/breaker")
            .into_iter()
            .filter(|object| object["rules"].is_array())
            .collect();
        // Whoever comes later finds the Events and the ledger that were made here.
        let engine = Engine::start(&config).await.unwrap();
        everything_works(&engine).await;
        engine.stop().await;
        for permission in granted(&manifests("overlays/breaker")) {
            if GRANTED_TO_ALL.contains(&permission.what.as_str()) {
                continue;
            }
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
                let seen = Seen::of(&engine, assessment);
                let rest = FEATURES
                    .iter()
                    .all(|(feature, works)| works(&seen) != lost.contains(feature));
                // What becomes of Events is counted, and told in the log.
                let is_said = match lost {
                    ["Events"] => seen.has_event("forbidden"),
                    _ => said.contains(&named),
                };
                is_said && rest
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
    })
}

/// How the API server names what was missing.
fn names(permission: &Permission) -> String {
    let Permission { verb, what, .. } = permission;
    if what.starts_with('/') {
        format!("cannot {verb} path \"{what}\"")
    } else {
        format!("cannot {verb} resource \"{}\"", what.split('.').next().unwrap())
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

/// Whether every feature shows, for whoever only wants to know that the daemon is in order: it may not act, and has
/// nothing to say.
pub fn sees_everything(assessment: &Assessment) -> bool {
    let seen = Seen {
        assessment,
        metrics: String::new(),
    };
    FEATURES
        .iter()
        .all(|(name, works)| ["acting", "Events"].contains(name) || works(&seen))
}
