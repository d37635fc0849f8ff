//! Bypasses and their ends on the lab's API server, whatever happens to the requests, and the two commands.

#[path = "../support/bypassing.rs"]
mod bypassing;
mod commands;
#[path = "../support/cutting.rs"]
mod cutting;
#[path = "../support/shielding.rs"]
mod shielding;

use std::process::Command;

use bypassing::{
    applied, assert_restored, author_of, desired, every_rung_comes_and_goes, ignore,
    killed_anywhere_is_brought_back, one_that_is_lost_is_made_good, read, straight, validating,
};
use cutting::{Cutting, Fate, author, writer};
use hookwatch::app::engine::clock;
use hookwatch::domain::act::bypass::edit::{Desired, EditRefusal};
use hookwatch::domain::act::bypass::{Rung, STATE_ANNOTATION};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::io::act::breaker::{ApiServerClient, PatchOutcome, PatchRefusal, PatchStep};
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::cluster::{client_for, configurations};
use hookwatch::lab::directory::PrivateDirectory;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::programs::hookwatch;

struct Lab {
    client: Client,
    server: ApiServer,
}

fn hook(name: &str, policy: &str, seconds: u64, conditions: Value) -> Value {
    let mut hook = json!({
        "name": name, "failurePolicy": policy, "timeoutSeconds": seconds, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"]}],
    });
    if conditions != json!([]) {
        hook["matchConditions"] = conditions;
    }
    hook
}

async fn create(client: &Client, kind: HookKind, name: &str, annotations: Value, hooks: Vec<Value>) {
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.configuration_kind(),
        "metadata": {"name": name, "annotations": annotations}, "webhooks": hooks,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    configurations(client, kind)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

async fn change(client: &Client, hook: &HookId, patch: Value) {
    let patch = Patch::Merge(patch);
    let api = configurations(client, hook.kind);
    api.patch(&hook.configuration, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn lab() -> Lab {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
    let client = client_for(&server.kubeconfig()).await.unwrap();
    let theirs = json!([{"name": "theirs", "expression": "true"}]);
    for kind in [HookKind::Validating, HookKind::Mutating] {
        let hooks = vec![
            hook("a.example.com", "Fail", 10, theirs.clone()),
            hook("b.example.com", "Ignore", 5, json!([])),
        ];
        create(&client, kind, "policy", json!({}), hooks).await;
    }
    Lab { client, server }
}

fn a() -> HookId {
    validating("policy", "a.example.com")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rung_comes_and_goes_without_a_trace() {
    let lab = lab().await;
    let hooks: Vec<HookId> = [HookKind::Validating, HookKind::Mutating]
        .into_iter()
        .flat_map(|kind| {
            ["a.example.com", "b.example.com"].map(|webhook| HookId::new(kind, "policy", webhook))
        })
        .collect();
    every_rung_comes_and_goes(&straight(&lab.client), &hooks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shielded_security_hook_is_still_asked_about_what_tenants_write() {
    let lab = lab().await;
    shielding::a_shielded_security_hook_is_still_asked_about_tenants(&lab.client, &lab.client, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_frames_another_in_what_it_says_accuses_itself_alone() {
    let lab = lab().await;
    shielding::a_hook_that_frames_another_accuses_itself_alone(&lab.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_between_any_two_requests_leaves_what_can_be_restored() {
    let lab = lab().await;
    let bypasses = [desired(Rung::Shield), desired(Rung::Skip), ignore()];
    let places = killed_anywhere_is_brought_back(&lab.client, &a(), &bypasses).await;
    assert!(places > 50, "{places} places");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_lost_or_answered_wrongly_is_made_good() {
    let lab = lab().await;
    let places = one_that_is_lost_is_made_good(&lab.client, &a()).await;
    assert!(places > 40, "{places} places");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_api_server_takes_over_from_one_that_is_away() {
    let lab = lab().await;
    let away = Cutting::start(lab.client.clone(), |_| Fate::Lost).await;
    let busy = Cutting::start(lab.client.clone(), |_| Fate::Answered(429, Some(60))).await;
    let well = Cutting::start(lab.client.clone(), |_| Fate::Pass).await;
    let servers = vec![away.server().await, busy.server().await, well.server().await];
    let writer = writer(servers);
    applied(&writer, &a(), &desired(Rung::Skip)).await;
    let shown = writer.propagation(&a(), &Desired::Probation, &author()).await;
    assert!(
        shown.iter().all(|shown| shown.propagated.is_err()),
        "it is not on probation: {shown:?}"
    );
    applied(&writer, &a(), &Desired::Restore).await;
    assert!(away.count() > 0 && busy.count() > 0 && well.count() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_api_servers_are_reported_in_time() {
    let lab = lab().await;
    let away = Cutting::start(lab.client.clone(), |_| Fate::Lost).await;
    let patience = hookwatch::io::act::breaker::RetryPolicy {
        whole: std::time::Duration::from_millis(300),
        first_wait: std::time::Duration::from_millis(20),
        ..Default::default()
    };
    let writer = hookwatch::io::act::breaker::ConfigWriter::new(vec![away.server().await], clock(), patience);
    let report = writer.carry_out(&a(), &Desired::Restore, &author()).await;
    assert!(matches!(report.outcome, PatchOutcome::GaveUp(_)), "{report:?}");
    let none =
        hookwatch::io::act::breaker::ConfigWriter::new(Vec::<ApiServerClient>::new(), clock(), patience);
    let report = none.carry_out(&a(), &Desired::Restore, &author()).await;
    assert!(matches!(report.outcome, PatchOutcome::GaveUp(_)), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_keeps_changing_the_object_wins() {
    let lab = lab().await;
    let (client, hook) = (lab.client.clone(), a());
    // Before each of our writes somebody else changes what it rests on.
    let (changes, wanted) = tokio::sync::mpsc::unbounded_channel::<std::sync::mpsc::Sender<()>>();
    let other = tokio::spawn(async move {
        let mut wanted = wanted;
        let mut seconds = 1_u64;
        while let Some(done) = wanted.recv().await {
            seconds = seconds % 30 + 1;
            let hooks = vec![with_time(seconds)];
            change(&client, &hook, json!({"webhooks": hooks})).await;
            let _ = done.send(());
        }
    });
    let cutting = Cutting::start(lab.client.clone(), move |number| {
        if number % 2 == 0 {
            let (done, is_done) = std::sync::mpsc::channel();
            changes.send(done).unwrap();
            tokio::task::block_in_place(|| is_done.recv().unwrap());
        }
        Fate::Pass
    })
    .await;
    let report = cutting
        .writer()
        .await
        .carry_out(&a(), &ignore(), &author_of(&ignore()))
        .await;
    assert_eq!(report.outcome, PatchOutcome::Contended, "{:?}", report.steps);
    assert!(
        report
            .steps
            .iter()
            .all(|step| matches!(step, PatchStep::Conflict { .. }))
    );
    assert_eq!(report.steps.len(), 6);
    drop(cutting);
    other.await.unwrap();
}

fn with_time(seconds: u64) -> Value {
    hook("a.example.com", "Fail", seconds, json!([]))
}

/// A configuration whose webhook has no room for another match condition.
async fn full(lab: &Lab) {
    let full: Vec<Value> = (0..64)
        .map(|index| json!({"name": format!("c{index}"), "expression": "true"}))
        .collect();
    let hooks = vec![hook("a.example.com", "Fail", 10, json!(full))];
    create(&lab.client, HookKind::Validating, "full", json!({}), hooks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_be_touched_is_refused_and_stays_as_it_is() {
    let lab = lab().await;
    let off = json!({"hookwatch.dev/breaker": "off"});
    create(
        &lab.client,
        HookKind::Validating,
        "off",
        off,
        vec![hook("a.example.com", "Fail", 10, json!([]))],
    )
    .await;
    full(&lab).await;
    let writer = straight(&lab.client);
    for (configuration, refusal) in [
        ("off", EditRefusal::OptedOut),
        ("full", EditRefusal::ConditionsFull(64)),
    ] {
        let hook = validating(configuration, "a.example.com");
        let before = read(&writer, &hook).await;
        let report = writer.carry_out(&hook, &desired(Rung::Skip), &author()).await;
        assert_eq!(
            report.outcome,
            PatchOutcome::Refused(PatchRefusal::ByPlan(refusal))
        );
        assert_eq!(read(&writer, &hook).await, before);
    }
    for hook in [validating("none", "a.example.com"), validating("policy", "none")] {
        let report = writer.carry_out(&hook, &desired(Rung::Skip), &author()).await;
        assert_eq!(report.outcome, PatchOutcome::Gone);
    }
}

/// The binary, at this lab.
struct Terminal {
    directory: PrivateDirectory,
    kubeconfig: std::path::PathBuf,
}

impl Terminal {
    fn new(lab: &Lab) -> Self {
        let directory = PrivateDirectory::create().unwrap();
        let kubeconfig = directory.write("kubeconfig", &lab.server.kubeconfig()).unwrap();
        Self {
            directory,
            kubeconfig,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = hookwatch();
        command.args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command.env("USER", "anna");
        command
    }

    async fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.command(words);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    fn audit(&self) -> (std::path::PathBuf, impl Fn() -> Vec<Value> + use<>) {
        let path = self.directory.path().join("audit.jsonl");
        let file = path.clone();
        (path, move || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_name_is_answered_with_those_that_there_are() {
    let lab = lab().await;
    let terminal = Terminal::new(&lab);
    for (mistyped, answer) in [
        ("polcy/a.example.com", "there is no configuration \"polcy\""),
        ("policy/a.exmple.com", "it has \"a.example.com\""),
    ] {
        let (code, _, said) = terminal.run(&["break", mistyped, "--reason", "x", "--yes"]).await;
        assert!(code == Some(64) && said.contains(answer), "{code:?} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shield_that_would_restore_no_write_is_planned_with_a_warning() {
    let lab = lab().await;
    let mut tenants = hook("tenants.example.com", "Fail", 10, json!([]));
    tenants["namespaceSelector"] = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kube-node-lease"]},
    ]});
    let mut configmaps = hook("configmaps.example.com", "Fail", 10, json!([]));
    configmaps["rules"] =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]);
    let all = hook("all.example.com", "Fail", 10, json!([]));
    let hooks = vec![tenants, configmaps, all];
    create(&lab.client, HookKind::Validating, "spared", json!({}), hooks).await;
    let terminal = Terminal::new(&lab);
    for (webhook, rung, warned) in [
        ("tenants", "shield", Some("This shield restores no write")),
        ("tenants", "skip", None),
        ("configmaps", "shield", Some("This shield may restore no write")),
        ("all", "shield", None),
    ] {
        let target = format!("spared/{webhook}.example.com");
        let (code, shown, said) = terminal.run(&["plan", &target, "--rung", rung]).await;
        assert_eq!(code, Some(0), "{said}");
        let warning = shown.lines().find(|line| line.starts_with("This shield "));
        assert!(
            warning.is_none() == warned.is_none() && warned.is_none_or(|it| shown.contains(it)),
            "{webhook} {rung}: {shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_bypasses_a_hook_and_brings_it_back_without_a_daemon() {
    let lab = lab().await;
    let terminal = Terminal::new(&lab);
    let writer = straight(&lab.client);
    let original = read(&writer, &a()).await;
    let (path, audit) = terminal.audit();
    let log = path.to_str().unwrap();
    let hook = ["policy/a.example.com", "--kind", "validating", "--audit-log", log];

    let (code, _, said) = terminal
        .run(&["break", "policy/a.example.com", "--reason", "x", "--yes"])
        .await;
    assert!(code == Some(64) && said.contains("--kind"), "{code:?} {said}");
    let why = ["--reason", "ticket 7: it hangs"];
    let (code, shown, said) = terminal.run(&[&["break"], &hook[..], &why].concat()).await;
    assert!(code == Some(1) && said.contains("give --yes"), "{code:?} {said}");
    assert!(
        shown.contains("what tenants write still will.\n")
            && shown.contains("+ {\"expression\":")
            && shown.contains("hookwatch.dev/shield"),
        "{shown}"
    );
    assert_eq!(read(&writer, &a()).await, original, "nobody agreed");

    let asked = |rung| {
        [
            &["break"],
            &hook[..],
            &why,
            &["--rung", rung, "--for", "1h", "--yes"],
        ]
        .concat()
    };
    let (code, _, said) = terminal.run(&asked("ignore")).await;
    assert!(
        code == Some(1) && said.contains("use --rung skip"),
        "{code:?} {said}"
    );
    assert_eq!(
        read(&writer, &a()).await,
        original,
        "a match condition can be added"
    );
    let (code, shown, said) = terminal.run(&asked("skip")).await;
    assert!(
        code == Some(0) && shown.contains("bypassed (skip) until") && shown.contains("has it in force"),
        "{code:?} {shown} {said}"
    );
    let bypassed = read(&writer, &a()).await;
    let text = bypassed["metadata"]["annotations"][STATE_ANNOTATION]
        .as_str()
        .unwrap();
    assert!(
        text.contains("anna@") && text.contains("ticket 7: it hangs"),
        "{text}"
    );
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(lab.client.clone(), "default");
    let events = events.list(&Default::default()).await.unwrap();
    let event = events
        .items
        .iter()
        .find(|event| event.reason.as_deref() == Some("Bypassed"))
        .unwrap();
    assert!(
        event.message.as_deref().unwrap().contains("ticket 7"),
        "{event:?}"
    );

    let (code, shown, _) = terminal.run(&["restore", "--expired", "--yes"]).await;
    assert!(
        code == Some(0) && shown.contains("Nothing to restore."),
        "{code:?} {shown}"
    );
    let (code, shown, said) = terminal
        .run(&[
            "restore",
            "--all",
            "--yes",
            "--output",
            "json",
            "--audit-log",
            log,
        ])
        .await;
    assert_eq!(code, Some(0), "{said}");
    let done: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&done[0]["action"], &done[0]["outcome"]),
        (&json!("restore"), &json!("applied"))
    );
    assert_restored(&read(&writer, &a()).await, &original, "by hand");
    let audit = audit();
    let actions: Vec<&str> = audit.iter().filter_map(|line| line["action"].as_str()).collect();
    assert_eq!(actions, ["bypass", "restore"]);
    assert_eq!(audit[0]["reason"], "ticket 7: it hangs");
    let (code, shown, _) = terminal.run(&["restore", "--all"]).await;
    assert!(
        code == Some(0) && shown.contains("Nothing to restore."),
        "{code:?} {shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_failures_ignored_where_no_condition_can_be_added_and_ends_that() {
    let lab = lab().await;
    full(&lab).await;
    let (terminal, writer) = (Terminal::new(&lab), straight(&lab.client));
    let hook = validating("full", "a.example.com");
    let original = read(&writer, &hook).await;
    let asked = [
        "break",
        "full/a.example.com",
        "--reason",
        "x",
        "--yes",
        "--rung",
        "ignore",
    ];
    let (code, shown, said) = terminal.run(&[&asked[..], &["--for", "1s"]].concat()).await;
    assert!(
        code == Some(0) && shown.contains("bypassed (ignore) until"),
        "{code:?} {shown} {said}"
    );
    assert!(
        shown.contains("- \"Fail\"") && shown.contains("+ \"Ignore\""),
        "{shown}"
    );
    let ignored = read(&writer, &hook).await;
    let fields = |object: &Value| {
        (
            object["webhooks"][0]["failurePolicy"].clone(),
            object["webhooks"][0]["timeoutSeconds"].clone(),
        )
    };
    assert_eq!(fields(&ignored), (json!("Ignore"), json!(1)));
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let (code, shown, said) = terminal.run(&["restore", "--expired", "--yes"]).await;
    assert!(
        code == Some(0) && shown.contains("- \"Ignore\""),
        "{code:?} {shown} {said}"
    );
    assert_restored(&read(&writer, &hook).await, &original, "ignored by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_brought_back_and_what_is_not_stays() {
    let lab = lab().await;
    let terminal = Terminal::new(&lab);
    let writer = straight(&lab.client);
    let original = read(&writer, &a()).await;
    let short = [
        "break",
        "policy/a.example.com",
        "--kind",
        "validating",
        "--reason",
        "x",
        "--yes",
        "--for",
        "1s",
    ];
    assert_eq!(terminal.run(&short).await.0, Some(0));
    let long = [
        "break",
        "policy/b.example.com",
        "--kind",
        "validating",
        "--reason",
        "x",
        "--yes",
    ];
    assert_eq!(terminal.run(&long).await.0, Some(0));
    // What a rule lets stay at its limit has no end.
    let held = HookId::new(HookKind::Mutating, "policy", "b.example.com");
    let Desired::Bypass { rung, mut why } = desired(Rung::Shield) else {
        panic!("a bypass")
    };
    why.expires = None;
    applied(&writer, &held, &Desired::Bypass { rung, why }).await;
    let stays = read(&writer, &held).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let (code, shown, said) = terminal.run(&["restore", "--expired", "--yes"]).await;
    assert!(
        code == Some(0) && shown.contains("a.example.com") && !shown.contains("b.example.com"),
        "{shown}{said}"
    );
    let one = read(&writer, &a()).await;
    assert_eq!(one["webhooks"][0], original["webhooks"][0]);
    assert_eq!(read(&writer, &held).await, stays);
    assert_eq!(
        terminal
            .run(&["restore", "policy/b.example.com", "--yes"])
            .await
            .0,
        Some(64),
        "of two kinds"
    );
    assert_eq!(
        terminal
            .run(&["restore", "policy/b.example.com", "--kind", "validating", "--yes"])
            .await
            .0,
        Some(0)
    );
    assert_restored(&read(&writer, &a()).await, &original, "both");
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_on_one_object_is_told_and_keeps_nothing_else_from_coming_back() {
    let lab = lab().await;
    let terminal = Terminal::new(&lab);
    let writer = straight(&lab.client);
    let original = read(&writer, &a()).await;
    let mutating = HookId::new(HookKind::Mutating, "policy", "a.example.com");
    applied(&writer, &a(), &desired(Rung::Skip)).await;
    applied(&writer, &mutating, &ignore()).await;
    let spoiled = json!({"metadata": {"annotations": {STATE_ANNOTATION: "by hand"}}});
    change(&lab.client, &a(), spoiled).await;
    let broken = read(&writer, &mutating).await["metadata"]["annotations"][STATE_ANNOTATION].clone();
    let broken = broken.as_str().unwrap().replace("=Fail/10", "=Fail/99");
    change(
        &lab.client,
        &mutating,
        json!({"metadata": {"annotations": {STATE_ANNOTATION: broken}}}),
    )
    .await;
    let (code, shown, said) = terminal.run(&["restore", "--all", "--yes"]).await;
    assert!(
        code == Some(1) && said.contains("=Fail/99"),
        "{code:?} {shown} {said}"
    );
    assert_restored(&read(&writer, &a()).await, &original, "by its condition's name");
}
