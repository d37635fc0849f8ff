//! Bypasses and their ends on a real API server, as the account that deploy/overlays/breaker makes, behind the fence.

mod by_kubectl;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hookwatch::app::engine::clock;
use hookwatch::domain::act::bypass::edit::{Author, Desired};
use hookwatch::domain::act::bypass::{BypassStanding, Rung, standing, touched};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::io::act::breaker::{ApiServerClient, ConfigWriter, PatchOutcome, PatchStep};
use hookwatch::lab::balancer::Balancer;
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::bypassing::{
    applied, assert_restored, desired, every_rung_comes_and_goes, ignore, killed_anywhere_is_brought_back,
    names_hookwatch, one_that_is_lost_is_made_good, read, spec, straight, validating,
};
use super::cutting::{author, writer};
use super::documents::documented;
use super::privileges::cluster::{Answer, CONFIGURATIONS, Cluster, ask, ask_as, play, until};
use super::{Named, Outcome as Played, named};

pub fn tests() -> Vec<Named> {
    vec![
        named("bypass_every_rung_comes_and_goes_without_a_trace", every_rung),
        named("bypass_owners_and_others_keep_what_is_theirs", owners_and_others),
        named("bypass_killed_anywhere_is_brought_back", killed),
        named("bypass_undone_by_kubectl_alone", by_kubectl::by_kubectl),
        named("bypass_shown_by_each_of_two_api_servers", two_api_servers),
    ]
}

const A: &str = "a.example.com";
const B: &str = "b.example.com";

/// What its owner keeps at home.
fn manifest(kind: HookKind, name: &str) -> Value {
    let hook = |name: &str, policy: &str, seconds: u64| {
        json!({
            "name": name, "failurePolicy": policy, "timeoutSeconds": seconds, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"],
            }],
        })
    };
    let mut first = hook(A, "Fail", 10);
    first["matchConditions"] =
        json!([{"name": "theirs.example.com", "expression": "request.operation != \"CONNECT\""}]);
    json!({
        "apiVersion": kind.api_version(), "kind": kind.configuration_kind(),
        "metadata": {"name": name, "labels": {"team": "a"}, "annotations": {"hookwatch.dev/breaker": "skip"}},
        "webhooks": [first, hook(B, "Fail", 7)],
    })
}

/// A server-side apply without force, as the owner's pipeline does it.
async fn owner_applies(cluster: &Cluster, hook: &HookId, object: &Value) -> Answer {
    let target = format!("{}/{}?fieldManager=owner", hook.kind.path(), hook.configuration);
    ask_as(
        &cluster.admin,
        Method::PATCH,
        &target,
        "application/apply-patch+yaml",
        object,
    )
    .await
}

async fn theirs(cluster: &Cluster, hook: &HookId, patch: Value) {
    let target = format!(
        "{}/{}?fieldManager=somebody",
        hook.kind.path(),
        hook.configuration
    );
    cluster.admin(Method::PATCH, &target, &patch).await;
}

/// A control plane with the overlay in force, and the account of hookwatch's.
async fn fenced() -> (Cluster, Client) {
    let cluster = Cluster::with("overlays/breaker").await;
    for kind in [HookKind::Validating, HookKind::Mutating] {
        let hook = HookId::new(kind, "policy", A);
        let answer = owner_applies(&cluster, &hook, &manifest(kind, "policy")).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    let account = cluster.client("hookwatch").await;
    until("the fence is in force and the account may act", async || {
        let target = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/policy?dryRun=All");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let answer = ask(&account, Method::PATCH, &target, &label).await;
        answer.message().contains("hookwatch-fence")
    })
    .await;
    (cluster, account)
}

fn a() -> HookId {
    validating("policy", A)
}

fn every_rung() -> Played {
    play(async {
        let (cluster, account) = fenced().await;
        let writer = straight(&account);
        let hooks = [HookKind::Validating, HookKind::Mutating]
            .into_iter()
            .flat_map(|kind| [A, B].map(|webhook| HookId::new(kind, "policy", webhook)));
        let hooks: Vec<HookId> = hooks.collect();
        every_rung_comes_and_goes(&writer, &hooks).await;
        for hook in &hooks {
            let answer = owner_applies(&cluster, hook, &manifest(hook.kind, "policy")).await;
            assert!(answer.is_success(), "the owner's next apply: {answer:?}");
        }
        // Another value, too, meets no conflict.
        for &rung in Rung::ALL {
            applied(&writer, &a(), &desired(rung)).await;
            applied(&writer, &a(), &Desired::Restore).await;
            let mut other = manifest(HookKind::Validating, "policy");
            other["webhooks"][0]["failurePolicy"] = "Ignore".into();
            other["webhooks"][0]["timeoutSeconds"] = 20.into();
            let answer = owner_applies(&cluster, &a(), &other).await;
            assert!(answer.is_success(), "{rung}: {answer:?}");
            let answer = owner_applies(&cluster, &a(), &manifest(HookKind::Validating, "policy")).await;
            assert!(answer.is_success(), "{rung}: {answer:?}");
        }
    })
}

fn owners_and_others() -> Played {
    play(async {
        let (cluster, account) = fenced().await;
        let writer = straight(&account);
        let original = read(&writer, &a()).await;

        // Two hooks of one object, one after the other.
        let b = validating("policy", B);
        applied(&writer, &a(), &desired(Rung::Shield)).await;
        applied(&writer, &b, &desired(Rung::Skip)).await;
        applied(&writer, &a(), &Desired::Restore).await;
        let between = read(&writer, &a()).await;
        assert_eq!(between["webhooks"][0], original["webhooks"][0]);
        assert!(matches!(standing(&between, B), BypassStanding::Bypassed { .. }));
        applied(&writer, &b, &Desired::Restore).await;
        assert_restored(&read(&writer, &a()).await, &original, "two hooks");

        ignored_by_hand(&cluster, &writer, &original).await;

        // Its owner sets the time while failures are ignored.
        let person = straight(&cluster.admin);
        applied(&person, &a(), &ignore()).await;
        theirs(
            &cluster,
            &a(),
            json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 20}]),
        )
        .await;
        applied(&person, &a(), &Desired::Restore).await;
        let restored = read(&writer, &a()).await;
        assert_eq!(restored["webhooks"][0]["failurePolicy"], "Fail");
        assert_eq!(restored["webhooks"][0]["timeoutSeconds"], 20);
        theirs(
            &cluster,
            &a(),
            json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 10}]),
        )
        .await;

        // Its owner applies Ignore meanwhile: that is what they want, now.
        applied(&person, &a(), &ignore()).await;
        let mut ignoring = manifest(HookKind::Validating, "policy");
        ignoring["webhooks"][0]["failurePolicy"] = "Ignore".into();
        ignoring["webhooks"][0]
            .as_object_mut()
            .unwrap()
            .remove("timeoutSeconds");
        let answer = owner_applies(&cluster, &a(), &ignoring).await;
        assert!(answer.is_success(), "{answer:?}");
        applied(&person, &a(), &Desired::Restore).await;
        let restored = read(&writer, &a()).await;
        assert_eq!(restored["webhooks"][0]["failurePolicy"], "Ignore");
        assert_eq!(restored["webhooks"][0]["timeoutSeconds"], 10);
        assert!(!names_hookwatch(&restored), "{restored:#}");
        let answer = owner_applies(&cluster, &a(), &manifest(HookKind::Validating, "policy")).await;
        assert!(answer.is_success(), "{answer:?}");

        // Order, bundle and conditions change while it is bypassed.
        let original = read(&writer, &a()).await;
        applied(&writer, &a(), &desired(Rung::Shield)).await;
        let more = json!({"name": "more.example.com", "expression": "true"});
        let change = json!([
            {"op": "move", "from": "/webhooks/0", "path": "/webhooks/1"},
            {"op": "add", "path": "/webhooks/1/matchConditions/0", "value": more},
        ]);
        theirs(&cluster, &a(), change).await;
        applied(&writer, &a(), &Desired::Restore).await;
        let mut expected = original.clone();
        expected["webhooks"].as_array_mut().unwrap().reverse();
        expected["webhooks"][1]["matchConditions"]
            .as_array_mut()
            .unwrap()
            .insert(0, more);
        assert_restored(&read(&writer, &a()).await, &expected, "others' changes");
        theirs(
            &cluster,
            &a(),
            json!([{"op": "replace", "path": "/webhooks", "value": original["webhooks"]}]),
        )
        .await;

        renamed(&cluster, &writer, &original).await;
        wiped_and_nonsense(&cluster, &account).await;
        while_others_write(&cluster, &account).await;
    })
}

/// Its owner renames it while it is bypassed. What is noted under the old name is brought back first, as the daemon does.
async fn renamed(cluster: &Cluster, writer: &ConfigWriter, original: &Value) {
    for rung in [Rung::Shield, Rung::Skip] {
        applied(writer, &a(), &desired(rung)).await;
        let rename = json!([{"op": "replace", "path": "/webhooks/0/name", "value": "renamed.example.com"}]);
        theirs(cluster, &a(), rename).await;
        let report = writer.carry_out(&a(), &Desired::Restore, &author()).await;
        let left = touched(&read(writer, &a()).await);
        assert!(left.is_empty(), "{rung}: {left:?} after {report:?}");
        let back = json!([{"op": "replace", "path": "/webhooks/0/name", "value": A}]);
        theirs(cluster, &a(), back).await;
        assert_restored(&read(writer, &a()).await, original, "renamed");
    }
}

async fn wiped_and_nonsense(cluster: &Cluster, account: &Client) {
    let writer = straight(account);
    let original = read(&writer, &a()).await;
    let annotation = "/metadata/annotations/hookwatch.dev~1bypass";
    for &rung in Rung::ALL {
        applied(&writer, &a(), &desired(rung)).await;
        theirs(cluster, &a(), json!([{"op": "remove", "path": annotation}])).await;
        applied(&writer, &a(), &Desired::Restore).await;
        assert_restored(&read(&writer, &a()).await, &original, "wiped");
        applied(&writer, &a(), &desired(rung)).await;
        let text = read(&writer, &a()).await["metadata"]["annotations"]["hookwatch.dev/bypass"].clone();
        let text = text.as_str().unwrap().replacen('{', "", 1);
        theirs(
            cluster,
            &a(),
            json!([{"op": "replace", "path": annotation, "value": text}]),
        )
        .await;
        applied(&writer, &a(), &Desired::Restore).await;
        assert_restored(&read(&writer, &a()).await, &original, "nonsense");
    }
}

/// The daemon shields beside what a person has done, and leaves that to a person: the fence would refuse the rest.
async fn ignored_by_hand(cluster: &Cluster, writer: &ConfigWriter, original: &Value) {
    let person = straight(&cluster.admin);
    let fenced = Author {
        fenced: true,
        ..author()
    };
    applied(&person, &a(), &ignore()).await;
    let ignored = read(writer, &a()).await;
    for desired in [desired(Rung::Shield), Desired::Restore] {
        let report = writer.carry_out(&a(), &desired, &fenced).await;
        assert_eq!(
            report.outcome,
            PatchOutcome::Applied,
            "{desired:?}: {:?}",
            report.steps
        );
    }
    let left = read(writer, &a()).await;
    assert_eq!(left["webhooks"], ignored["webhooks"]);
    assert!(
        matches!(standing(&left, A), BypassStanding::Ignored { .. }),
        "{left:#}"
    );
    let report = writer.carry_out(&a(), &Desired::Restore, &author()).await;
    let PatchOutcome::Refused(why) = report.outcome else {
        panic!("{report:?}")
    };
    assert!(
        why.to_string()
            .contains("nothing of a webhook changes but matchConditions"),
        "{why}"
    );
    applied(&person, &a(), &Desired::Restore).await;
    assert_restored(&read(writer, &a()).await, original, "ignored by hand");
}

/// Somebody rotates the bundle all the time.
async fn while_others_write(cluster: &Cluster, account: &Client) {
    let writer = straight(account);
    let original = read(&writer, &a()).await;
    let (stop, admin) = (Arc::new(AtomicBool::new(false)), cluster.admin.clone());
    let over = Arc::clone(&stop);
    let rotating = tokio::spawn(async move {
        let (mut count, target) = (0_usize, format!("{}/policy", a().kind.path()));
        while !over.load(Ordering::SeqCst) {
            count += 1;
            let patch = json!([
                {"op": "add", "path": "/metadata/labels/rotation", "value": count.to_string()},
                {"op": "replace", "path": "/webhooks/1/timeoutSeconds", "value": 5 + count % 20},
            ]);
            let answer = ask(&admin, Method::PATCH, &target, &patch).await;
            assert!(answer.is_success(), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        count
    });
    for _ in 0..5 {
        for &rung in Rung::ALL {
            applied(&writer, &a(), &desired(rung)).await;
            applied(&writer, &a(), &Desired::Restore).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let count = rotating.await.unwrap();
    let mut expected = original;
    expected["metadata"]["labels"]["rotation"] = count.to_string().into();
    expected["webhooks"][1]["timeoutSeconds"] = (5 + count % 20).into();
    assert_restored(&read(&writer, &a()).await, &expected, "beside another writer");
    assert!(count > 10, "{count} writes");
}

fn killed() -> Played {
    play(async {
        let (cluster, account) = fenced().await;
        let rungs: Vec<Desired> = Rung::ALL.iter().copied().map(desired).collect();
        let killed = killed_anywhere_is_brought_back(&account, &a(), &rungs).await
            + killed_anywhere_is_brought_back(&cluster.admin, &a(), &[ignore()]).await;
        let lost = one_that_is_lost_is_made_good(&account, &a()).await;
        println!("killed at {killed} places; {lost} requests lost, or answered wrongly, and made good");
        assert!(killed > 50 && lost > 40);
        // What the fence would not let through is said, and not tried for ever.
        let mut elsewhere = author();
        elsewhere.namespace = "elsewhere".to_owned();
        let report = straight(&account)
            .carry_out(&a(), &desired(Rung::Shield), &elsewhere)
            .await;
        let PatchOutcome::Refused(why) = report.outcome else {
            panic!("{report:?}")
        };
        assert!(why.to_string().contains("hookwatch-fence"), "{why}");
        assert!(
            !report
                .steps
                .iter()
                .any(|step| matches!(step, PatchStep::Applied { .. }))
        );
        expiry(&cluster).await;
    })
}

/// What the CronJob runs, under its account, is enough for what it is there for.
async fn expiry(cluster: &Cluster) {
    cluster.deploy("overlays/expiry").await;
    let writer = straight(&cluster.client("hookwatch-expiry").await);
    until("its role is in force", async || {
        writer.read(HookKind::Validating, "policy").await.is_ok()
    })
    .await;
    let original = read(&writer, &a()).await;
    let daemon = straight(&cluster.client("hookwatch").await);
    applied(&daemon, &validating("policy", B), &desired(Rung::Skip)).await;
    let Desired::Bypass { rung, mut why } = desired(Rung::Shield) else {
        panic!("a bypass")
    };
    why.expires = Some(clock()());
    applied(
        &daemon,
        &a(),
        &Desired::Bypass {
            rung,
            why: why.clone(),
        },
    )
    .await;
    // What a person has done to fields is over as well, and the fence keeps it from this account.
    let (ignored, person) = (
        HookId::new(HookKind::Mutating, "policy", A),
        straight(&cluster.admin),
    );
    let unignored = read(&writer, &ignored).await;
    applied(&person, &ignored, &Desired::Ignore { why }).await;
    let token = cluster.token("hookwatch-expiry", None).await;
    let (kubeconfig, _) = cluster.kubeconfig("expiry", &token);
    let run = tokio::task::spawn_blocking(move || {
        std::process::Command::new(env!("CARGO_BIN_EXE_hookwatch"))
            .args(["restore", "--expired", "--yes", "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .unwrap()
    });
    let output = run.await.unwrap();
    let (said, told) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success() && said.contains(A) && !said.contains(B),
        "{said}{told}"
    );
    assert!(
        !told.contains("Event") && !told.contains("addresses"),
        "a permission is missing: {told}"
    );
    assert!(said.contains("only an administrator can end that"), "{said}");
    assert!(matches!(
        standing(&read(&writer, &ignored).await, A),
        BypassStanding::Ignored { .. }
    ));
    applied(&person, &ignored, &Desired::Restore).await;
    assert_restored(&read(&writer, &ignored).await, &unignored, "by an administrator");
    let left = read(&writer, &a()).await;
    assert_eq!(left["webhooks"][0], original["webhooks"][0]);
    assert!(
        matches!(standing(&left, B), BypassStanding::Bypassed { .. }),
        "its time is not over"
    );
    applied(&writer, &validating("policy", B), &Desired::Restore).await;
    assert_restored(&read(&writer, &a()).await, &original, "by the CronJob's account");
}

fn two_api_servers() -> Played {
    play(async {
        let directory = PrivateDirectory::create().unwrap();
        let envtest = Envtest::start(directory.path()).await.unwrap();
        let second = envtest.second().unwrap();
        second.ready(Duration::from_secs(120)).await.unwrap();
        let addresses = [envtest.address(), second.address()];
        let balancer = Balancer::start(addresses.to_vec()).await.unwrap();
        let mut servers = Vec::new();
        for address in addresses {
            let client = client_for(&envtest.kubeconfig_for(address)).await.unwrap();
            servers.push(ApiServerClient::new(&address.to_string(), client, true));
        }
        let admin = client_for(&envtest.kubeconfig()).await.unwrap();
        let target = format!("{}/policy?fieldManager=owner", a().kind.path());
        let object = manifest(HookKind::Validating, "policy");
        let made = ask_as(
            &admin,
            Method::PATCH,
            &target,
            "application/apply-patch+yaml",
            &object,
        )
        .await;
        assert!(made.is_success(), "{made:?}");

        let each = writer(servers);
        let behind = client_for(&envtest.kubeconfig_for(balancer.address()))
            .await
            .unwrap();
        let behind = writer(vec![ApiServerClient::new("balancer", behind, false)]);
        let original = read(&each, &a()).await;
        for &rung in Rung::ALL {
            let bypass = desired(rung);
            applied(&behind, &a(), &bypass).await;
            let shown = each.propagation(&a(), &bypass, &author()).await;
            assert!(
                shown.len() == 2 && shown.iter().all(|shown| shown.propagated.is_ok()),
                "{shown:?}"
            );
            let met = balancer.handed_out();
            let shown = behind.propagation(&a(), &bypass, &author()).await;
            assert!(shown.len() == 1 && shown[0].propagated.is_ok(), "{shown:?}");
            // The first may find one that is open still.
            let dialled = balancer.handed_out() - met;
            assert!(dialled >= 4, "each visit is a connection of its own: {dialled}");
            applied(&each, &a(), &Desired::Restore).await;
            let shown = each.propagation(&a(), &Desired::Restore, &author()).await;
            assert!(shown.iter().all(|shown| shown.propagated.is_ok()), "{shown:?}");
            assert_restored(&read(&behind, &a()).await, &original, rung.as_str());
        }
    })
}
