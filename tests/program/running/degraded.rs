//! API servers in trouble: writes that are lost, that are done and not answered, or that are answered wrongly.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;

use super::between::{Between, Done, Fate, Target};
use super::outage::until;
use super::{Lab, all, all_is_well, assessed, block_on, bypassed, outage, restored};
use crate::programs::hookwatch;

const OPA: LabHook = LabHook::Opa;

/// A whole bypass and its end, where every other write of each kind meets this fate.
async fn every_other(fate: Fate, rung: Rung) {
    let what = format!("{rung}, {fate:?}");
    let lab = Lab::start().await;
    let between = Between::start(&lab.kubeconfig, move |write| match write.of_kind % 2 {
        1 => fate,
        _ => Fate::Pass,
    })
    .await;
    let mut config = lab.config(&between.kubeconfig, rung);
    // An answer that never comes is waited for by every other write.
    config.breaker_retries.attempt = Duration::from_secs(1);
    let engine = Engine::start(&config).await.unwrap();
    assessed(&engine, "all is well", all_is_well).await;
    lab.behave(OPA, Behaviour::Refused).await;
    bypassed(&engine, OPA).await;
    lab.behave(OPA, Behaviour::Healthy).await;
    restored(&lab, &engine, &between, &what).await;
    engine.stop().await;
    let done = between.done();
    let of_opa = |done: &&Done| done.write.target == Target::Configuration(OPA.configuration().to_owned());
    let changes: Vec<Done> = between.changes().iter().filter(of_opa).cloned().collect();
    assert!(done.iter().any(|done| done.fate == fate), "{what}: {done:?}");
    // What was done and not answered was found out by reading, and not done again.
    // From skip it goes over probation.
    let expected = if rung == Rung::Shield { 2 } else { 3 };
    assert_eq!(changes.len(), expected, "{what}: {done:#?}");
    let book = lab.outage.book().await;
    let line = book.entries.values().next().expect("the book remembers it");
    assert!(line.reverts == 0 && !line.contested, "{what}: {book:?}");
}

#[test]
fn a_bypass_and_its_end_get_through_whatever_becomes_of_every_other_write() {
    let fates = [
        Fate::Lost,
        Fate::AnswerLost,
        Fate::Silence,
        Fate::SilenceAfter,
        Fate::Answered(429),
        Fate::Answered(503),
        Fate::Misreported(500),
    ];
    let runs = fates.into_iter().map(|fate| (fate, Rung::Shield));
    let runs = runs.chain([(Fate::AnswerLost, Rung::Skip)]);
    let runs = runs.map(|(fate, rung)| (format!("{rung}, {fate:?}"), every_other(fate, rung)));
    block_on(all(runs));
}

/// There is no way to the API server at all while the hook begins to fail, and while it becomes well.
#[test]
fn what_is_due_while_there_is_no_way_to_the_api_server_is_done_as_soon_as_there_is_one() {
    block_on(async {
        let lab = Lab::start().await;
        let between = Between::start(&lab.kubeconfig, |_| Fate::Pass).await;
        let engine = lab.daemon(&between, Rung::Shield).await;
        let without = async |behaviour| {
            between.cut(true);
            let made = between.changes().len();
            lab.behave(OPA, behaviour).await;
            assessed(&engine, "it is known that nothing is known", |it| {
                it.sources.inventory_age_seconds.is_some_and(|age| age > 5.0)
            })
            .await;
            assert_eq!(between.changes().len(), made);
            between.cut(false);
        };
        without(Behaviour::Refused).await;
        bypassed(&engine, OPA).await;
        without(Behaviour::Healthy).await;
        restored(&lab, &engine, &between, "there is a way again").await;
        engine.stop().await;
        assert_eq!(between.changes().len(), 2, "{:?}", between.changes());
    });
}

/// What a person runs beside the daemon.
async fn run(lab: &Lab, command: &[&str]) {
    let file = format!("kubeconfig-to-{}", command[0]);
    let kubeconfig = lab.directory.write(&file, &lab.kubeconfig).unwrap();
    let mut program = hookwatch();
    program.args(command).arg("--kubeconfig").arg(kubeconfig);
    let done = tokio::task::spawn_blocking(move || program.output())
        .await
        .unwrap()
        .unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
}

#[test]
fn while_frozen_nothing_is_bypassed_and_the_daemon_says_who_froze_it() {
    block_on(async {
        let lab = Lab::start().await;
        let between = Between::start(&lab.kubeconfig, |_| Fate::Pass).await;
        let engine = lab.daemon(&between, Rung::Shield).await;
        run(&lab, &["freeze", "--reason", "an upgrade"]).await;
        assessed(&engine, "it knows of the order", |it| {
            it.breaker
                .frozen
                .as_ref()
                .is_some_and(|said| said.contains(": an upgrade. "))
        })
        .await;
        lab.behave(OPA, Behaviour::Refused).await;
        assessed(&engine, "it is held back", |it| {
            let told = outage::told(it, OPA);
            told.is_some_and(|told| told.held_back.as_deref() == Some("frozen"))
        })
        .await;
        assert_eq!(between.changes().len(), 0);
        run(&lab, &["unfreeze"]).await;
        bypassed(&engine, OPA).await;
        assessed(&engine, "the order is over", |it| it.breaker.frozen.is_none()).await;
        engine.stop().await;
    });
}

/// The disk is a pipe that takes nothing until it is read.
#[test]
fn a_stop_waits_until_the_change_under_way_has_its_line_in_the_audit_log() {
    block_on(async {
        let lab = Lab::start().await;
        let between = Between::start(&lab.kubeconfig, |write| match write.target {
            Target::Ledger => Fate::Pass,
            Target::Configuration(_) => Fate::Late,
        })
        .await;
        let log = lab.directory.path().join("audit.jsonl");
        let made = std::process::Command::new("mkfifo").arg(&log).status();
        assert!(made.unwrap().success());
        let mut config = lab.config(&between.kubeconfig, Rung::Shield);
        config.audit_log = Some(log.clone());
        let engine = Engine::start(&config).await.unwrap();
        assessed(&engine, "all is well", all_is_well).await;
        lab.behave(OPA, Behaviour::Refused).await;
        until("the change is under way", async || between.late() > 0).await;
        let mut stopping = tokio::spawn(engine.stop());
        between.let_arrive();
        let waits = tokio::time::timeout(Duration::from_secs(1), &mut stopping)
            .await
            .is_err();
        // Read in any case: what writes to it would keep this process from ending.
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(File::open(log)?).read_line(&mut line)?;
            std::io::Result::Ok(line)
        });
        let line = line.await.unwrap().unwrap();
        assert!(waits, "it had stopped before this was written: {line}");
        stopping.await.unwrap();
        assert_eq!(between.changes().len(), 1, "{:?}", between.done());
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&line["action"], &line["outcome"]),
            (&"bypass".into(), &"applied".into())
        );
        assert_eq!(line["webhook"], OPA.webhook());
    });
}

/// One API server reads and never writes; there is another.
async fn over_another(fate: Fate) {
    let lab = Lab::start().await;
    let between = Between::beside(&lab.kubeconfig, move |_| fate).await;
    let engine = lab.daemon(&between, Rung::Shield).await;
    lab.behave(OPA, Behaviour::Refused).await;
    bypassed(&engine, OPA).await;
    lab.behave(OPA, Behaviour::Healthy).await;
    restored(&lab, &engine, &between, &format!("{fate:?}")).await;
    engine.stop().await;
    let done = between.done();
    assert!(
        !done.is_empty() && done.iter().all(|done| !done.was_made()),
        "{done:?}"
    );
}

#[test]
fn what_one_api_server_does_not_write_another_one_does() {
    let fates = [
        Fate::Lost,
        Fate::Silence,
        Fate::Answered(429),
        Fate::Answered(503),
    ];
    block_on(all(fates.map(|fate| (format!("{fate:?}"), over_another(fate)))));
}

#[test]
fn an_api_server_that_writes_nothing_is_asked_ever_more_rarely_and_nothing_is_lost() {
    block_on(async {
        let lab = Lab::start().await;
        let between = Between::start(&lab.kubeconfig, |write| match write.target {
            Target::Ledger => Fate::Pass,
            Target::Configuration(_) => Fate::Answered(500),
        })
        .await;
        let engine = lab.daemon(&between, Rung::Shield).await;
        lab.behave(OPA, Behaviour::Refused).await;
        let failed = |done: &[Done]| -> Vec<Instant> {
            let failed = done.iter().filter(|done| done.fate != Fate::Pass);
            failed.map(|done| done.at).collect()
        };
        let sixth = between.until(|done| failed(done).len() >= 6);
        tokio::time::timeout(outage::GUARD, sixth).await.unwrap();
        let at = failed(&between.done());
        // 0.2 + 0.4 + 0.8 + 1.6 + 3.2 s, and what the requests took.
        assert!(at[5] - at[0] >= Duration::from_millis(6_200), "{at:?}");
        assert!(between.changes().is_empty());
        lab.outage.assert_restorable("nothing was written").await;
        engine.stop().await;
    });
}
