//! The fence on a real API server, attacked with every verb that an account can have.

mod stored;
mod ways;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::fence::{AutoBreak, FENCE};
use hookwatch::io::act::fence::Fence;
use hookwatch::io::client::Connection;
use hookwatch::lab::certs::Authority;
use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};

use self::stored::{
    forty_shields, one_bypass_for_real, taken_back_once_its_owner_opted_out, three_hundred_webhooks,
};
use self::ways::{Account, Way, by_rbac, by_the_fence};
use super::changes::{self, Expect, OBJECTS, PLAIN, attempts};
use super::cluster::{Answer, CONFIGURATIONS, Cluster, ask, ask_as, assessed, config, play, until};
use crate::Outcome;

/// A genuine one: the API server checks that it is.
pub static CA_BUNDLE: LazyLock<String> = LazyLock::new(|| {
    let authority = Authority::new("somebody's").unwrap();
    BASE64_STANDARD.encode(authority.pem())
});

pub fn lets_through_what_a_bypass_takes_and_nothing_else() -> Outcome {
    play(async {
        let cluster = Cluster::with("base").await;
        let wide = wide(&cluster).await;
        objects(&cluster, &wide).await;
        let before = state(&cluster).await;
        let mut account = Account::default();
        changes_as_observer(&cluster, &before, &mut account).await;
        changes_with_every_verb(&wide, &before, &mut account).await;
        cluster.deploy("overlays/breaker").await;
        changes_as_actor(&cluster, &before, &mut account).await;
        makings_and_deletions(&wide, &mut account).await;
        canaries(&cluster, &wide, &mut account).await;
        for (object, is) in state(&cluster).await {
            if is != before[object] {
                account
                    .wrong
                    .push(format!("dry runs and refusals have changed {object}"));
            }
        }
        others(&cluster, &mut account).await;
        one_bypass_for_real(&cluster, &mut account).await;
        taken_back_once_its_owner_opted_out(&cluster, &mut account).await;
        three_hundred_webhooks(&cluster, &mut account).await;
        forty_shields(&cluster, &mut account).await;
        assert!(account.tried > 600, "{} attempts", account.tried);
        account.settle();
    })
}

/// An account of our namespace that RBAC lets do everything: what the fence is for.
async fn wide(cluster: &Cluster) -> Client {
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "wide", "namespace": "hookwatch"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "wide"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "wide", "namespace": "hookwatch"}],
        }),
    ] {
        cluster.apply(&object).await;
    }
    cluster.client("wide").await
}

/// Writes every object that attempts are made at. The bypass and the ledger are written through the fence.
async fn objects(cluster: &Cluster, wide: &Client) {
    let plain = |kind, name, more: Value| {
        let mut annotations =
            json!({"owner": "team-a", "hookwatch.dev/probe": "off", "hookwatch.dev/breaker": "skip"});
        json_patch::merge(&mut annotations, &more);
        changes::plain(kind, name, annotations)
    };
    let validating = "ValidatingWebhookConfiguration";
    let mutating = "MutatingWebhookConfiguration";
    for object in [
        plain(validating, "plain", json!({})),
        plain(mutating, "plain", json!({})),
        plain(validating, "bypassed", json!({})),
        plain(validating, "wiped", json!({})),
        plain(validating, "opted-out", json!({"hookwatch.dev/breaker": "Off "})),
        plain(
            validating,
            "unreadable",
            json!({"hookwatch.dev/breaker": "disabled"}),
        ),
        plain(
            validating,
            "at-shield",
            json!({"hookwatch.dev/breaker": " Shield"}),
        ),
        plain(mutating, "at-skip", json!({"hookwatch.dev/breaker": "SKIP\n"})),
        plain(
            validating,
            "at-ignore",
            json!({"hookwatch.dev/breaker": "Ignore"}),
        ),
        plain(validating, "ignored", json!({})),
        plain(validating, "unsaid", json!({"hookwatch.dev/breaker": null})),
        plain(
            validating,
            "while-dead",
            json!({"hookwatch.dev/breaker": null, "hookwatch.dev/permit": " skip-while-dead"}),
        ),
        plain(
            validating,
            "not-while-dead",
            json!({"hookwatch.dev/breaker": "shield", "hookwatch.dev/permit": "skip-while-dead"}),
        ),
        plain(validating, "older", json!({})),
        changes::spared(plain(
            validating,
            "spared",
            json!({"hookwatch.dev/spare": changes::SPARE}),
        )),
    ] {
        cluster.apply(&object).await;
    }
    // A policy is in force some moments after it was written.
    until("the fence is in force", async || {
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let target = format!("{CONFIGURATIONS}/{PLAIN}?dryRun=All");
        let answer = ask(wide, Method::PATCH, &target, &label).await;
        by_the_fence(&answer, "")
    })
    .await;
    let ledger = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": validating,
        "metadata": {"name": "hookwatch-ledger", "annotations": {"hookwatch.dev/made": "1"}}, "webhooks": [],
    });
    let target = format!("{CONFIGURATIONS}/validatingwebhookconfigurations?fieldManager=hookwatch");
    let made = ask(wide, Method::POST, &target, &ledger).await;
    assert!(made.is_success(), "{made:?}");
    let owned = json!({"metadata": {"annotations": {"owner": "team-a"}}});
    let target = format!("{CONFIGURATIONS}/{}", changes::LEDGER);
    cluster.admin(Method::PATCH, &target, &owned).await;
    for object in [changes::BYPASSED, changes::WIPED] {
        let before = get(&cluster.admin, object).await;
        let mut after = before.clone();
        changes::bypass(&mut after);
        let written = Way::JsonPatch.go(wide, object, &before, &after, false).await;
        assert!(written.is_success(), "{written:?}");
    }
    // As hookwatch did behind the fence of its release, and as a person did.
    let older: fn(&mut Value) = changes::older;
    for (object, change) in [(changes::OLDER, older), (changes::IGNORED, changes::ignore)] {
        let before = get(&cluster.admin, object).await;
        let mut after = before.clone();
        change(&mut after);
        let written = Way::JsonPatch
            .go(&cluster.admin, object, &before, &after, false)
            .await;
        assert!(written.is_success(), "{written:?}");
    }
    let wiped = json!({"metadata": {"annotations": {"hookwatch.dev/bypass": null}}});
    let target = format!("{CONFIGURATIONS}/{}", changes::WIPED);
    cluster.admin(Method::PATCH, &target, &wiped).await;
}

async fn get(client: &Client, object: &str) -> Value {
    let target = format!("{CONFIGURATIONS}/{object}");
    let answer = ask(client, Method::GET, &target, &Value::Null).await;
    assert!(answer.is_success(), "{answer:?}");
    answer.body
}

async fn state(cluster: &Cluster) -> BTreeMap<&'static str, Value> {
    let mut state = BTreeMap::new();
    for object in OBJECTS {
        state.insert(object, get(&cluster.admin, object).await);
    }
    state
}

async fn changes_as_observer(cluster: &Cluster, state: &BTreeMap<&str, Value>, account: &mut Account) {
    let observer = cluster.client("hookwatch").await;
    for attempt in attempts() {
        let before = &state[attempt.object];
        let mut after = before.clone();
        (attempt.change)(&mut after);
        for way in Way::ALL {
            let answer = way.go(&observer, attempt.object, before, &after, true).await;
            account.check(
                &format!("{} ({way:?}, observing)", attempt.name),
                by_rbac(&answer),
                &answer,
            );
        }
    }
}

async fn changes_with_every_verb(wide: &Client, state: &BTreeMap<&str, Value>, account: &mut Account) {
    for attempt in attempts() {
        let before = &state[attempt.object];
        let mut after = before.clone();
        (attempt.change)(&mut after);
        for way in Way::ALL {
            let name = format!("{} ({way:?})", attempt.name);
            let dry = way.go(wide, attempt.object, before, &after, true).await;
            if way == Way::Apply {
                // Whoever applies an object owns all of it: none of it is hookwatch's way to write.
                // The ledger is its own; and what is left out of it stays if it is somebody else's.
                let keeps = |object: &Value| object["metadata"]["annotations"]["owner"] == "team-a";
                let may = attempt.object == changes::LEDGER
                    && (attempt.expect == Expect::Allowed || (!keeps(&after) && keeps(&dry.body)));
                account.check(&name, dry.is_success() == may, &dry);
                continue;
            }
            let is_right = |answer: &Answer| match attempt.expect {
                Expect::Allowed => answer.is_success(),
                Expect::Fence(says) => by_the_fence(answer, says),
                Expect::Api(says) => !answer.is_success() && answer.message().contains(says),
            };
            account.check(&name, is_right(&dry), &dry);
            if attempt.expect != Expect::Allowed {
                let real = way.go(wide, attempt.object, before, &after, false).await;
                account.check(&format!("{name}, for real"), is_right(&real), &real);
            }
        }
    }
}

async fn changes_as_actor(cluster: &Cluster, state: &BTreeMap<&str, Value>, account: &mut Account) {
    let actor = cluster.client("hookwatch").await;
    until("the acting role is in force", async || {
        let nothing = &state[PLAIN];
        let answer = Way::JsonPatch.go(&actor, PLAIN, nothing, nothing, true).await;
        answer.is_success()
    })
    .await;
    for attempt in attempts() {
        let before = &state[attempt.object];
        let mut after = before.clone();
        (attempt.change)(&mut after);
        let patched = Way::JsonPatch
            .go(&actor, attempt.object, before, &after, true)
            .await;
        let right = match attempt.expect {
            Expect::Allowed => patched.is_success(),
            Expect::Fence(says) => by_the_fence(&patched, says),
            Expect::Api(says) => patched.message().contains(says),
        };
        account.check(&format!("{} (acting)", attempt.name), right, &patched);
        let put = Way::Put.go(&actor, attempt.object, before, &after, true).await;
        account.check(&format!("{} (Put, acting)", attempt.name), by_rbac(&put), &put);
    }
}

async fn makings_and_deletions(wide: &Client, account: &mut Account) {
    let validating = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
    let mutating = format!("{CONFIGURATIONS}/mutatingwebhookconfigurations");
    let webhooks = changes::plain("", "", json!({}))["webhooks"].clone();
    let object = |kind: &str, metadata: Value, webhooks: &Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": metadata, "webhooks": webhooks,
        })
    };
    let none = json!([]);
    let made = changes::MADE_OR_DELETED;
    for (what, target, object, says) in [
        (
            "a new one",
            &validating,
            object("Validating", json!({"name": "new"}), &webhooks),
            made,
        ),
        (
            "an empty one",
            &validating,
            object("Validating", json!({"name": "new"}), &none),
            made,
        ),
        (
            "a new mutating one",
            &mutating,
            object("Mutating", json!({"name": "new"}), &webhooks),
            made,
        ),
        (
            "a mutating ledger",
            &mutating,
            object("Mutating", json!({"name": "hookwatch-ledger"}), &none),
            made,
        ),
        (
            "a name made up by the API server",
            &validating,
            object("Validating", json!({"generateName": "hookwatch-"}), &none),
            made,
        ),
    ] {
        for dry_run in ["?dryRun=All", ""] {
            let answer = ask(wide, Method::POST, &format!("{target}{dry_run}"), &object).await;
            account.check(&format!("{what} {dry_run}"), by_the_fence(&answer, says), &answer);
        }
    }
    let applied = object("Validating", json!({"name": "new"}), &none);
    let target = format!("{validating}/new?fieldManager=hookwatch");
    let answer = ask_as(
        wide,
        Method::PATCH,
        &target,
        "application/apply-patch+yaml",
        &applied,
    )
    .await;
    account.check("a new one, applied", by_the_fence(&answer, made), &answer);
    for target in OBJECTS
        .map(|object| format!("{CONFIGURATIONS}/{object}"))
        .iter()
        .chain([&validating, &mutating])
    {
        for dry_run in ["?dryRun=All", ""] {
            let answer = ask(wide, Method::DELETE, &format!("{target}{dry_run}"), &Value::Null).await;
            account.check(
                &format!("the end of {target}{dry_run}"),
                by_the_fence(&answer, made),
                &answer,
            );
        }
    }
    // There is nothing of the kind; should there ever be, the fence is around it.
    for beside in [
        "v1/validatingwebhookconfigurations/plain/status",
        "v1/validatingwebhookconfigurations/plain/scale",
        "v1beta1/validatingwebhookconfigurations/plain",
    ] {
        let target = format!("/apis/admissionregistration.k8s.io/{beside}");
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let answer = ask(wide, Method::PATCH, &target, &label).await;
        account.check(beside, answer.status == 404, &answer);
    }
    let state = json!({"metadata": {"annotations": {"hookwatch.dev/bypass": "x"}}});
    let target = format!("{CONFIGURATIONS}/{PLAIN}?fieldManager=installer");
    let answer = ask(wide, Method::PATCH, &target, &state).await;
    account.check(
        "our annotation in another's name",
        by_the_fence(&answer, changes::OF_OWNERSHIP),
        &answer,
    );
    let mut ledger = object("Validating", json!({"name": "hookwatch-ledger"}), &webhooks);
    let target = format!("{validating}/hookwatch-ledger?fieldManager=hookwatch&force=true");
    let answer = ask_as(
        wide,
        Method::PATCH,
        &target,
        "application/apply-patch+yaml",
        &ledger,
    )
    .await;
    account.check(
        "a ledger with webhooks, applied",
        by_the_fence(&answer, changes::IN_THE_LEDGER),
        &answer,
    );
    ledger["webhooks"] = none;
    ledger["metadata"]["annotations"] = json!({"hookwatch.dev/made": "1"});
    let answer = ask_as(
        wide,
        Method::PATCH,
        &(target + "&dryRun=All"),
        "application/apply-patch+yaml",
        &ledger,
    )
    .await;
    account.check("the ledger, applied", answer.is_success(), &answer);
}

/// Whoever is not an account of our namespace meets no fence.
async fn others(cluster: &Cluster, account: &mut Account) {
    let before = get(&cluster.admin, PLAIN).await;
    for attempt in attempts().iter().filter(|attempt| attempt.object == PLAIN) {
        let mut after = before.clone();
        (attempt.change)(&mut after);
        let answer = Way::JsonPatch
            .go(&cluster.admin, PLAIN, &before, &after, true)
            .await;
        let right = match attempt.expect {
            Expect::Api(_) => !answer.is_success(),
            _ => answer.is_success(),
        };
        account.check(&format!("{} (administrator)", attempt.name), right, &answer);
    }
}

async fn canaries(cluster: &Cluster, wide: &Client, account: &mut Account) {
    let data = json!({"data": {"a": "b"}});
    let spec = json!({"spec": {"holderIdentity": "somebody"}});
    let config_map = "/api/v1/namespaces/kube-system/configmaps/hookwatch-canary";
    let own = "/api/v1/namespaces/hookwatch/configmaps/hookwatch-canary";
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hookwatch-canary";
    for (target, body) in [(config_map, &data), (own, &data), (lease, &spec)] {
        let mut outcomes = Vec::new();
        for dry_run in ["?dryRun=All", ""] {
            let target = format!("{target}{dry_run}");
            outcomes.push(ask(wide, Method::PATCH, &target, body).await);
            outcomes.push(ask(wide, Method::DELETE, &target, &Value::Null).await);
        }
        let refused = |answer: &Answer| {
            answer
                .message()
                .contains("hookwatch writes canaries by dry runs only")
        };
        account.check(
            &format!("{target}, a dry run"),
            outcomes[0].is_success(),
            &outcomes[0],
        );
        account.check(
            &format!("the end of {target}, a dry run"),
            outcomes[1].is_success(),
            &outcomes[1],
        );
        account.check(target, refused(&outcomes[2]), &outcomes[2]);
        account.check(
            &format!("the end of {target}"),
            refused(&outcomes[3]),
            &outcomes[3],
        );
        cluster.admin(Method::PATCH, target, body).await;
    }
}

pub fn is_proven_and_missed() -> Outcome {
    play(async {
        let cluster = Cluster::with("base").await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &cluster.token("hookwatch", None).await);
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: on"))
            .await
            .unwrap();
        let breaker = |effective, why: &'static str| {
            move |assessment: &hookwatch::domain::report::assessment::Assessment| {
                let breaker = &assessment.breaker;
                breaker.wanted == AutoBreak::On && breaker.effective == effective && breaker.why.contains(why)
            }
        };
        let plan = AutoBreak::Plan;
        assessed(
            &engine,
            "it may not act",
            breaker(plan, "deploy/overlays/breaker"),
        )
        .await;
        engine.stop().await;

        cluster.deploy("overlays/breaker").await;
        let connection = Connection::open(Some(&kubeconfig), None).await.unwrap();
        let fence = Arc::new(Fence::new(&connection, "hookwatch"));
        use hookwatch::domain::act::fence::{MaySkip, Proof};
        let proof = "validatingwebhookconfigurations/hookwatch-proof";
        let before = get(&cluster.admin, proof).await;
        // There is no webhook configuration yet but those that it is tried at.
        until("the role and the fence are in force", async || {
            fence.prove().await == Proof::Proven(MaySkip::default())
        })
        .await;
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: on"))
            .await
            .unwrap();
        assessed(
            &engine,
            "the fence is proven",
            breaker(AutoBreak::On, "is proven"),
        )
        .await;
        engine.stop().await;

        // A fence that was made for another release's shield.
        let policy = format!("{CONFIGURATIONS}/validatingadmissionpolicies/{FENCE}");
        let current = cluster.admin(Method::GET, &policy, &Value::Null).await;
        let mut older = current["spec"]["variables"].clone();
        let mut variables = older.as_array_mut().unwrap().iter_mut();
        let text = &mut variables.find(|variable| variable["name"] == "shield").unwrap()["expression"];
        *text = text
            .as_str()
            .unwrap()
            .replace("\"system:bootstrappers\"", "\"system:nobody\"")
            .into();
        let outdated = json!({"spec": {"variables": older}});
        cluster.admin(Method::PATCH, &policy, &outdated).await;
        until("an outdated fence is not proven", async || {
            matches!(fence.prove().await, Proof::NotProven(why) if why.contains("a shield in the text of this release"))
        })
        .await;
        let newest = json!({"spec": {"variables": current["spec"]["variables"]}});
        cluster.admin(Method::PATCH, &policy, &newest).await;
        until("the newest is", async || {
            fence.prove().await == Proof::Proven(MaySkip::default())
        })
        .await;

        // What is named may be skipped, the object that the fence is tried at among it.
        for named in ["hookwatch-proof", "*"] {
            cluster.let_skip(&[named]).await;
            until(
                "what the fence names may be skipped",
                async || matches!(fence.prove().await, Proof::Proven(may_skip) if may_skip.names(named)),
            )
            .await;
        }
        let mut odd = current["spec"]["variables"].clone();
        odd[0]["expression"] = "['hookwatch-proof']".into();
        cluster
            .admin(Method::PATCH, &policy, &json!({"spec": {"variables": odd}}))
            .await;
        until(
            "what is no JSON is told",
            async || matches!(fence.prove().await, Proof::NotProven(why) if why.contains("no list of names")),
        )
        .await;
        cluster.admin(Method::PATCH, &policy, &newest).await;
        until("the newest is again", async || {
            fence.prove().await == Proof::Proven(MaySkip::default())
        })
        .await;

        let binding = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings/{FENCE}");
        let warn = json!({"spec": {"validationActions": ["Warn", "Audit"]}});
        cluster.admin(Method::PATCH, &binding, &warn).await;
        until("a fence that only warns is none", async || {
            matches!(fence.prove().await, Proof::NotProven(_))
        })
        .await;
        cluster.admin(Method::DELETE, &binding, &Value::Null).await;
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: on"))
            .await
            .unwrap();
        assessed(&engine, "the fence is missed", breaker(plan, "does not hold")).await;
        engine.stop().await;
        assert_eq!(
            get(&cluster.admin, proof).await,
            before,
            "nothing of it was stored"
        );
    })
}
