//! Which writes a security hook under hookwatch's shield still gets, on any API server.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::domain::act::bypass::edit::Desired;
use hookwatch::domain::cluster::hook::HookId;
use hookwatch::domain::observe::canary::CanaryOutcome;
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::bypassing::{applied, desired, read, straight, validating};
use super::cutting::author;

const NODE: &str = "system:node:n";

/// A write and its user.
struct Write {
    what: &'static str,
    method: &'static str,
    path: String,
    body: Value,
    user: Option<&'static str>,
    groups: Vec<&'static str>,
}

impl Write {
    fn make(what: &'static str, path: &str, body: Value) -> Self {
        Self {
            what,
            method: "POST",
            path: path.to_owned(),
            body,
            user: None,
            groups: Vec::new(),
        }
    }

    fn change(what: &'static str, path: &str, body: Value) -> Self {
        Self {
            method: "PATCH",
            ..Self::make(what, path, body)
        }
    }

    fn by(self, user: &'static str, groups: &[&'static str]) -> Self {
        Self {
            user: Some(user),
            groups: groups.to_vec(),
            ..self
        }
    }

    /// By a controller of kube-system.
    fn by_controller(self, user: &'static str) -> Self {
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ];
        self.by(user, &groups)
    }

    fn by_node(self) -> Self {
        self.by(NODE, &["system:nodes", "system:authenticated"])
    }

    async fn send(&self, client: &Client) -> (u16, String) {
        let content_type = match self.method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = http::Request::builder()
            .method(self.method)
            .uri(&self.path)
            .header("content-type", content_type)
            .header("accept", "application/json");
        if let Some(user) = self.user {
            request = request.header("impersonate-user", user);
        }
        for group in &self.groups {
            request = request.header("impersonate-group", *group);
        }
        let body = Body::from(self.body.to_string().into_bytes());
        let answer = client.send(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x-1", "uid": "6c8d1f5e-0000-4000-8000-000000000001",
            "controller": true,
        }]},
        "spec": {"containers": [{"name": "c", "image": "example/c:1"}]},
    })
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn priority_class(name: &str) -> Value {
    json!({"metadata": {"name": name}, "value": 1_000})
}

const REPLICA_SETS: &str = "system:serviceaccount:kube-system:replicaset-controller";

/// The writes that the shield exempts. `real`: on a real API server, which has more kinds.
fn spared(real: bool) -> Vec<Write> {
    let start_up = |write: Write| write.by("system:apiserver", &["system:masters"]);
    let mut all = vec![
        Write::make(
            "a ConfigMap of kube-system",
            "/api/v1/namespaces/kube-system/configmaps",
            named("a"),
        ),
        Write::make(
            "a Pod of kube-system",
            "/api/v1/namespaces/kube-system/pods",
            pod("p"),
        )
        .by_controller(REPLICA_SETS),
        Write::make(
            "a node's Lease",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}}),
        )
        .by_node(),
        Write::change(
            "a node's heartbeat",
            "/api/v1/nodes/n/status",
            json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}}),
        )
        .by_node(),
        start_up(Write::make(
            "a bootstrap role",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "bootstrap"}, "rules": []}),
        )),
    ];
    if real {
        all.push(start_up(Write::make(
            "a bootstrap priority class",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            priority_class("bootstrap"),
        )));
    }
    all
}

/// The writes that the shield does not exempt.
fn asked(real: bool) -> Vec<Write> {
    let pods = "/api/v1/namespaces/tenant/pods";
    let mut all = vec![
        // As the ReplicaSet of a tenant's Deployment creates it.
        Write::make("a tenant's Pod", pods, pod("q")).by_controller(REPLICA_SETS),
        Write::make("a tenant's Pod of a Job", pods, pod("q"))
            .by_controller("system:serviceaccount:kube-system:job-controller"),
        Write::make("a tenant's own Pod", pods, pod("q")),
        Write::make(
            "a tenant's ConfigMap",
            "/api/v1/namespaces/tenant/configmaps",
            named("a"),
        ),
        Write::make(
            "a role that a person makes",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "people"}, "rules": []}),
        ),
    ];
    if real {
        let replica_set = json!({
            "metadata": {"name": "x-1"},
            "spec": {
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod("x")["spec"]},
            },
        });
        all.push(
            Write::make(
                "a tenant's ReplicaSet",
                "/apis/apps/v1/namespaces/tenant/replicasets",
                replica_set,
            )
            .by_controller("system:serviceaccount:kube-system:deployment-controller"),
        );
        all.push(Write::make(
            "a priority class that a person makes",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            priority_class("people"),
        ));
    }
    all
}

/// A backend that denies everything, and its certificate authority.
async fn denying(name: &str) -> (Authority, LabBackend) {
    let (authority, host) = (Authority::new(name).unwrap(), "127.0.0.1".parse().unwrap());
    let certificate = authority.issue("127.0.0.1").unwrap();
    let backend = LabBackend::start_group(&[host], BackendRole::Validating, &certificate)
        .await
        .unwrap()
        .remove(0);
    let denies = Behaviour::Deny(403, "it was asked".into());
    backend.behave(denies).await.unwrap();
    (authority, backend)
}

/// Registers a security hook that denies everything, shields it with hookwatch's edit as `account`, and sends writes. `admin`
/// may impersonate every user.
pub async fn a_shielded_security_hook_is_still_asked_about_tenants(
    admin: &Client,
    account: &Client,
    real: bool,
) {
    have(admin, Write::make("a node", "/api/v1/nodes", named("n"))).await;
    let (authority, backend) = denying("security").await;
    let hook = validating("security", "security.example.com");
    register(admin, &hook, &backend, &authority).await;

    // Before the shield, it gets all of the writes.
    for write in spared(real).iter().chain(&asked(real)) {
        assert_denied(write, admin).await;
    }
    let writer = straight(account);
    let shield = desired(Rung::Shield);
    applied(&writer, &hook, &shield).await;
    let shown = writer.propagation(&hook, &shield, &author()).await;
    assert!(shown.iter().all(|shown| shown.propagated.is_ok()), "{shown:?}");
    let before = backend.counters().reviews();
    for write in spared(real) {
        let (status, text) = write.send(admin).await;
        assert!((200..300).contains(&status), "{}: {text}", write.what);
    }
    assert_eq!(
        backend.counters().reviews(),
        before,
        "it was asked about what is spared"
    );
    let asked = asked(real);
    for write in &asked {
        assert_denied(write, admin).await;
    }
    let reviews = backend.counters().reviews() - before;
    assert_eq!(reviews, asked.len() as u64, "each of them");
    applied(&writer, &hook, &Desired::Restore).await;
    assert!(!read(&writer, &hook).await.to_string().contains("hookwatch.dev"));
    delete(admin, &hook).await;
}

async fn delete(admin: &Client, hook: &HookId) {
    let target = format!("{}/{}", hook.kind.path(), hook.configuration);
    let gone = Write {
        method: "DELETE",
        ..Write::make("the hook", &target, json!({}))
    };
    assert_eq!(gone.send(admin).await.0, 200);
}

async fn assert_denied(write: &Write, admin: &Client) {
    let (status, text) = write.send(admin).await;
    assert!(
        status == 403 && text.contains("it was asked"),
        "{}: {status} {text}",
        write.what
    );
}

/// Creates an object that may already exist.
async fn have(admin: &Client, write: Write) {
    let (status, text) = write.send(admin).await;
    assert!(status == 201 || status == 409, "{}: {text}", write.what);
}

/// Registers the hook, which is in force when this returns, and creates the namespace `tenant`.
async fn register(admin: &Client, hook: &HookId, backend: &LabBackend, authority: &Authority) {
    have(
        admin,
        Write::make("a namespace", "/api/v1/namespaces", named("tenant")),
    )
    .await;
    let object = json!({
        "apiVersion": hook.kind.api_version(), "kind": hook.kind.configuration_kind(),
        "metadata": {"name": &*hook.configuration},
        "webhooks": [{
            "name": &*hook.webhook, "failurePolicy": "Fail", "timeoutSeconds": 2, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://{}/admit", backend.address()),
                "caBundle": BASE64_STANDARD.encode(authority.pem()),
            },
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
            // What an API server writes by itself now and then is not to be counted here, nor refused.
            "matchConditions": [{
                "name": "not-its-own",
                "expression": "!(request.resource.resource in ['leases', 'events'] && request.userInfo.username == \
                               'system:apiserver')",
            }],
        }],
    });
    let made = Write::make("the hook", hook.kind.path(), object)
        .send(admin)
        .await;
    assert_eq!(made.0, 201, "{}", made.1);
    let begin = std::time::Instant::now();
    let probe = Write::make(
        "a probe",
        "/api/v1/namespaces/tenant/configmaps?dryRun=All",
        named("probe"),
    );
    while !probe.send(admin).await.1.contains("it was asked") {
        assert!(
            begin.elapsed() < std::time::Duration::from_secs(30),
            "the hook is not in force"
        );
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
}

/// A hook whose error bodies imitate the API server's message about another hook accuses only itself.
pub async fn a_hook_that_frames_another_accuses_itself_alone(admin: &Client) {
    let (authority, backend) = denying("liar").await;
    let liar = validating("liar", "liar.example.com");
    register(admin, &liar, &backend, &authority).await;
    let post = "Post \"https://security.security.svc:443/?timeout=10s\": context deadline exceeded";
    let whole = format!(
        "Internal error occurred: failed calling webhook \"security.example.com\": failed to call webhook: {post}"
    );
    let write = Write::make(
        "a canary",
        "/api/v1/namespaces/tenant/configmaps?dryRun=All",
        named("canary"),
    );
    for text in [whole.as_str(), post, "\": security.example.com", "\n\n"] {
        let errors = [500, 503, 429, 400, 401, 403, 404, 406, 415].map(|status| {
            let text = text.to_owned();
            Behaviour::HttpStatus(status, text.into())
        });
        let denials = [500, 403, 200].map(|status| Behaviour::Deny(status, text.to_owned().into()));
        for behaviour in errors.into_iter().chain(denials) {
            backend.behave(behaviour.clone()).await.unwrap();
            let (status, answer) = write.send(admin).await;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let message = answer["message"].as_str().unwrap();
            let accused = match CanaryOutcome::from_status(status, message) {
                CanaryOutcome::CallFailed(failure) => failure.webhook,
                CanaryOutcome::Denied { webhook } => webhook,
                other => panic!("{behaviour:?}: {other:?}"),
            };
            assert_eq!(accused, *liar.webhook, "{behaviour:?}: {message}");
        }
    }
    delete(admin, &liar).await;
}
