//! What the commands tell of what they did, what they could not do, and what they would do.

use std::process::Stdio;

use hookwatch::domain::act::bypass::Rung;
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::lab::directory::PrivateDirectory;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::bypassing::{applied, assert_restored, desired, read, straight, validating};
use super::cutting::{Cutting, Fate};
use super::{Lab, Terminal, a, change, create, hook, lab};

fn mutating() -> HookId {
    HookId::new(HookKind::Mutating, "policy", "a.example.com")
}

/// The binary, on its way to this lab through something.
fn through(cutting: &Cutting) -> Terminal {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", cutting.address)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let directory = PrivateDirectory::create().unwrap();
    let kubeconfig = directory.write("kubeconfig", &kubeconfig.to_string()).unwrap();
    Terminal {
        directory,
        kubeconfig,
    }
}

/// Both webhooks called `a` are skipped.
async fn both_skipped(lab: &Lab) {
    let writer = straight(&lab.client);
    for hook in [a(), mutating()] {
        applied(&writer, &hook, &desired(Rung::Skip)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_one_kind_is_restored_without_the_other_kind() {
    let lab = lab().await;
    let (terminal, writer) = (Terminal::new(&lab), straight(&lab.client));
    let original = read(&writer, &a()).await;
    both_skipped(&lab).await;
    let skipped = read(&writer, &mutating()).await;
    let told = terminal
        .run(&["restore", "--all", "--kind", "validating", "--yes"])
        .await;
    assert_eq!(told.0, Some(0), "{told:?}");
    assert_eq!(read(&writer, &mutating()).await, skipped);
    assert_restored(
        &read(&writer, &a()).await,
        &original,
        "of the kind that was named",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_log_that_cannot_be_opened_is_refused_before_any_change_and_one_that_is_full_is_told_after_it()
 {
    let lab = lab().await;
    let (terminal, writer) = (Terminal::new(&lab), straight(&lab.client));
    let originals = [read(&writer, &a()).await, read(&writer, &mutating()).await];
    both_skipped(&lab).await;
    let skipped = read(&writer, &a()).await;
    let bypass = ["break", "policy/b.example.com", "--kind", "validating"];
    for words in [
        &[&bypass[..], &["--reason", "x", "--yes"]].concat()[..],
        &["restore", "--all", "--yes"],
        &["freeze", "--reason", "x"],
        &["unfreeze"],
    ] {
        let log = ["--audit-log", "/nowhere/audit.jsonl"];
        let (code, shown, said) = terminal.run(&[words, &log].concat()).await;
        let told = said.contains("nothing was changed") && said.contains("leave --audit-log away");
        assert!(code == Some(64) && told, "{words:?}: {code:?} {shown} {said}");
    }
    assert_eq!(read(&writer, &a()).await, skipped);
    let log = "/dev/full";
    let (code, shown, said) = terminal
        .run(&["restore", "--all", "--yes", "--audit-log", log])
        .await;
    assert_eq!(code, Some(0), "{shown}{said}");
    let why = "the change is made; only the line about it could not be written to the audit log /dev/full";
    assert_eq!(said.matches(why).count(), 2, "{said}");
    for (hook, original) in [a(), mutating()].iter().zip(&originals) {
        assert_restored(&read(&writer, hook).await, original, "without a log");
    }
    let (code, shown, said) = terminal
        .run(&["freeze", "--reason", "x", "--audit-log", log])
        .await;
    assert!(
        code == Some(0) && shown.contains("Frozen: ") && said.contains(why),
        "{code:?} {shown} {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_a_webhook_that_is_bypassed_has_the_new_end_that_break_would_give_it() {
    let lab = lab().await;
    both_skipped(&lab).await;
    let hook = ["policy/a.example.com", "--kind", "validating", "--rung", "skip"];
    let (code, shown, said) = Terminal::new(&lab).run(&[&["plan"], &hook[..]].concat()).await;
    assert!(
        code == Some(0) && shown.contains("(replaced)") && !shown.contains("it is so already"),
        "{code:?} {shown} {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_gone_is_restored_and_not_bypassed() {
    let lab = lab().await;
    both_skipped(&lab).await;
    // What hookwatch noted of it is still there.
    change(&lab.client, &a(), json!({"webhooks": []})).await;
    let terminal = Terminal::new(&lab);
    let hook = ["policy/a.example.com", "--kind", "validating", "--yes"];
    let (code, shown, said) = terminal
        .run(&[&["break", "--reason", "x"], &hook[..]].concat())
        .await;
    assert!(
        code == Some(1) && said.contains("there is no such webhook any more"),
        "{code:?} {shown} {said}"
    );
    let (code, shown, said) = terminal.run(&[&["restore"], &hook[..]].concat()).await;
    assert_eq!(code, Some(0), "{shown} {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_can_be_listed_it_is_not_said_that_there_is_nothing_to_restore() {
    let lab = lab().await;
    let refused = Cutting::start(lab.client.clone(), |_| Fate::Answered(403, None)).await;
    let (code, shown, said) = through(&refused).run(&["restore", "--all", "--yes"]).await;
    assert!(
        code == Some(1) && !shown.contains("Nothing to restore") && said.contains("WebhookConfigurations: "),
        "{code:?} {shown} {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_a_freeze_whose_answer_is_lost_is_told_as_an_end() {
    let lab = lab().await;
    let straight = Terminal::new(&lab);
    let freeze = ["freeze", "--reason", "an upgrade"];
    assert_eq!(straight.run(&freeze).await.0, Some(0));
    let counting = Cutting::start(lab.client.clone(), |_| Fate::Pass).await;
    let (code, shown, said) = through(&counting).run(&["unfreeze"]).await;
    assert!(
        code == Some(0) && shown.contains("Not frozen any more."),
        "{code:?} {shown} {said}"
    );
    // The last request is the write.
    let last = counting.count();
    assert_eq!(straight.run(&freeze).await.0, Some(0));
    let losing = Cutting::start(lab.client.clone(), move |number| {
        if number == last {
            Fate::AnswerLost
        } else {
            Fate::Pass
        }
    })
    .await;
    let (code, shown, said) = through(&losing).run(&["unfreeze"]).await;
    assert!(
        code == Some(0) && shown.contains("Not frozen any more."),
        "{code:?} {shown} {said}"
    );
    assert!(losing.count() > last, "it has looked again");
    let (_, shown, _) = straight.run(&["unfreeze"]).await;
    assert!(shown.contains("It was not frozen."), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_programs_has_each_change_and_is_empty_where_it_is_refused() {
    let lab = lab().await;
    let off = json!({"hookwatch.dev/breaker": "off"});
    let hooks = vec![hook("a.example.com", "Fail", 10, json!([]))];
    create(&lab.client, HookKind::Validating, "off", off, hooks).await;
    let terminal = Terminal::new(&lab);
    let plan = async |target: &str| {
        let words = ["plan", target, "--kind", "validating", "--output", "json"];
        let (code, shown, said) = terminal.run(&words).await;
        let plan: Value =
            serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown} {said}"));
        (code, plan)
    };
    let (code, planned) = plan("policy/a.example.com").await;
    assert_eq!(code, Some(0), "{planned:#}");
    let one = &planned[0];
    assert_eq!(
        (&one["kind"], &one["configuration"], &one["webhook"]),
        (&json!("validating"), &json!("policy"), &json!("a.example.com"))
    );
    let changes = one["changes"].as_array().unwrap();
    let condition =
        |change: &Value| change["after"]["name"] == "hookwatch.dev/shield" && change["before"].is_null();
    assert!(changes.iter().any(condition), "{planned:#}");
    assert!(
        changes.iter().all(|change| change["what"].is_string()),
        "{planned:#}"
    );
    assert_eq!(plan("off/a.example.com").await, (Some(1), json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_webhooks_are_bypassed_by_one_command_and_one_that_is_refused_keeps_none_of_the_others_from_it()
 {
    let lab = lab().await;
    let off = json!({"hookwatch.dev/breaker": "off"});
    let hooks = vec![hook("a.example.com", "Fail", 10, json!([]))];
    create(&lab.client, HookKind::Validating, "off", off, hooks).await;
    let (terminal, writer) = (Terminal::new(&lab), straight(&lab.client));
    let all = [
        "policy/a.example.com",
        "off/a.example.com",
        "none/a.example.com",
        "policy/b.example.com",
        "policy/a.example.com",
        "--kind",
        "validating",
    ];
    let (before, refused) = (read(&writer, &a()).await, validating("off", "a.example.com"));
    let untouched = read(&writer, &refused).await;
    let (code, shown, said) = terminal.run(&[&["plan"], &all[..]].concat()).await;
    assert!(
        code == Some(1) && shown.matches("hookwatch.dev/shield").count() == 2,
        "{code:?} {shown} {said}"
    );
    assert_eq!(read(&writer, &a()).await, before);
    let asked = [&["break"], &all[..], &["--reason", "x"]].concat();
    let (_, _, said) = terminal.run(&asked).await;
    assert_eq!(said.matches("give --yes").count(), 1, "asked once: {said}");
    let (code, shown, said) = terminal.run(&[&asked[..], &["--yes"]].concat()).await;
    assert_eq!(code, Some(1), "one was refused: {said}");
    assert_eq!(shown.matches("On https://127.0.0.1:").count(), 1, "{shown}");
    assert!(
        said.contains("there is no configuration \"none\"") && said.contains("WebhookConfiguration \"off\""),
        "{said}"
    );
    assert_eq!(shown.matches(": bypassed (shield) until").count(), 2, "{shown}");
    let after = read(&writer, &a()).await;
    for number in 0..2 {
        let conditions = after["webhooks"][number]["matchConditions"].to_string();
        assert!(
            conditions.contains("hookwatch.dev/shield"),
            "{number}: {conditions}"
        );
    }
    assert_eq!(read(&writer, &refused).await, untouched);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_the_cluster_calls_things_turns_a_line_or_steers_the_terminal() {
    let lab = lab().await;
    let name = "a\u{202e}b\u{200b}c.example.com";
    create(
        &lab.client,
        HookKind::Validating,
        "odd",
        json!({}),
        vec![hook(name, "Fail", 10, json!([]))],
    )
    .await;
    let terminal = Terminal::new(&lab);
    let shown = "a\u{fffd}b\u{fffd}c.example.com";
    for words in [
        &["plan", "odd/mistyped"][..],
        &["break", "odd/mistyped", "--reason", "x", "--yes"],
        &["diagnose", "--for", "6s"],
    ] {
        let (_, out, complained) = terminal.run(words).await;
        let said = out + &complained;
        assert!(said.contains(shown), "{words:?}: {said:?}");
        assert!(!said.contains(['\u{202e}', '\u{200b}']), "{words:?}: {said:?}");
    }
}

impl Terminal {
    /// Runs the binary with both of its outputs closed; its exit code.
    async fn run_unread(&self, words: &[&str]) -> Option<i32> {
        let closed = || Stdio::from(std::io::pipe().unwrap().1);
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(closed()).stderr(closed());
        let ended = tokio::task::spawn_blocking(move || command.status().unwrap());
        ended.await.unwrap().code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_and_a_restore_whose_outputs_are_closed_are_carried_out() {
    let lab = lab().await;
    let (terminal, writer) = (Terminal::new(&lab), straight(&lab.client));
    let original = read(&writer, &a()).await;
    let target = ["policy/a.example.com", "--kind", "validating", "--yes"];
    for output in ["text", "json"] {
        let asked = [&["break"][..], &target, &["--reason", "x", "--output", output]].concat();
        assert_eq!(terminal.run_unread(&asked).await, Some(0), "{output}");
        assert_ne!(read(&writer, &a()).await["webhooks"], original["webhooks"]);
        let asked = [&["restore"][..], &target].concat();
        assert_eq!(terminal.run_unread(&asked).await, Some(0), "{output}");
        assert_restored(&read(&writer, &a()).await, &original, output);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_while_a_webhook_was_skipped_is_listed() {
    let lab = lab().await;
    let mut asked = hook("maps.example.com", "Fail", 10, json!([]));
    asked["rules"] =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]);
    create(&lab.client, HookKind::Validating, "maps", json!({}), vec![asked]).await;
    let maps = validating("maps", "maps.example.com");
    applied(&straight(&lab.client), &maps, &desired(Rung::Skip)).await;
    let api: Api<ConfigMap> = Api::namespaced(lab.client.clone(), "default");
    let made = serde_json::from_value(json!({"metadata": {"name": "made"}})).unwrap();
    api.create(&PostParams::default(), &made).await.unwrap();
    let words = ["unchecked", "maps/maps.example.com", "--since", "1m"];
    let (code, shown, said) = Terminal::new(&lab).run(&words).await;
    assert_eq!(code, Some(0), "{shown}{said}");
    assert!(
        shown.contains("configmaps in default: 1 made, 0 changed (made)"),
        "{shown}"
    );
}
