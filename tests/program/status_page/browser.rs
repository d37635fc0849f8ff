//! The page in a real browser: what is clicked, what is asked for, what stays when it updates itself.

use hookwatch::domain::audit::findings::{NODES_GOING, ONE_NODE};
use serde_json::{Value, json};

use super::access;
use super::chromium::{Chromium, is_here};
use super::fixture;
use super::served::Served;
use crate::held::HeldDemo;

const WIDER_THAN_THE_WINDOW: &str = "return document.documentElement.scrollWidth > innerWidth";
/// Counts the updates of the page from now on.
const COUNT: &str = "window.updates = 0; const asked = window.fetch; window.fetch = (...all) => { \
                     window.updates += 1; return asked(...all); }; return true";

/// The page asked for itself and then for its changing part, and for nothing else.
async fn asked_only_for_itself(chromium: &Chromium, url: &str) {
    let requests = chromium.requests().await;
    let documents = requests.iter().filter(|(kind, _)| kind == "Document").count();
    assert_eq!(documents, 1, "{requests:?}");
    for (kind, asked) in &requests {
        let own =
            asked == &format!("{url}/") || asked == &format!("{url}/fragment") || asked.starts_with("data:");
        assert!(own, "{kind} {asked}");
    }
}

async fn an_incident_unfolds() {
    let demo = HeldDemo::start(&["--scenario", "validating-hang"]);
    let url = demo.text("daemon").to_owned();
    let chromium = Chromium::start().await;
    chromium.size(1280, 900, "light").await;
    chromium.open(&format!("{url}/")).await;
    // It began before there was a culprit; the rest it learns by itself.
    chromium.run(COUNT).await;
    chromium
        .until("return document.querySelector('#verdict.blocked') !== null")
        .await;
    chromium
        .until("return document.querySelector('.hook.failing') !== null")
        .await;
    chromium
        .until("return document.title.startsWith('Writes blocked')")
        .await;

    // The culprit's evidence is a click away, and stays where it was put while the page updates itself.
    let culprit = ".hook.failing";
    if !chromium.has_attribute(culprit, "open").await {
        chromium.click(&format!("{culprit} > summary")).await;
    }
    let healthy = ".hook.healthy";
    chromium.click(&format!("{healthy} > summary")).await;
    assert!(chromium.has_attribute(culprit, "open").await && chromium.has_attribute(healthy, "open").await);
    chromium
        .run("window.row = document.querySelector('.hook.healthy'); scrollTo(0, 240); return true")
        .await;
    chromium.run("window.updates = 0; return true").await;
    chromium.until("return window.updates >= 3").await;
    // Evidence that came in above moves the rest down, and the browser scrolls along: only the way to the top is wrong.
    let kept =
        "return [row.isConnected && row.open, scrollY >= 240, document.querySelector('.hook.failing').open]";
    assert_eq!(chromium.run(kept).await, json!([true, true, true]));
    let evidence = chromium
        .run("return document.querySelector('.hook.failing .body').innerText")
        .await;
    assert!(
        evidence.as_str().unwrap().contains("All 3 backends are bad"),
        "{evidence}"
    );
    assert_eq!(
        chromium
            .run("return document.querySelectorAll('#timeline .m.bad').length > 0")
            .await,
        json!(true)
    );
    chromium.run("scrollTo(0, 0); return true").await;
    chromium.picture("incident-light").await;
    chromium.size(1280, 900, "dark").await;
    chromium.picture("incident-dark").await;
    chromium.size(390, 844, "light").await;
    chromium.picture("incident-phone").await;
    assert_eq!(chromium.run(WIDER_THAN_THE_WINDOW).await, json!(false));

    asked_only_for_itself(&chromium, &url).await;
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);

    // With nobody there to answer, what is shown is not taken for the present.
    drop(demo);
    chromium
        .until("return document.body.classList.contains('old')")
        .await;
    assert_eq!(
        chromium
            .run("return document.getElementById('live').textContent")
            .await,
        "hookwatch does not answer; everything below is old"
    );
}

async fn a_bypass_is_shown_for_what_it_is(chromium: &Chromium) {
    let (assessment, past) = fixture::bypassed();
    let served = Served::start_with(assessment, past).await;
    for (name, width, scheme) in [
        ("bypassed-light", 1280, "light"),
        ("bypassed-dark", 1280, "dark"),
        ("bypassed-phone", 390, "light"),
    ] {
        chromium.size(width, 900, scheme).await;
        chromium.open(&served.url("/")).await;
        chromium.picture(name).await;
        assert_eq!(chromium.run(WIDER_THAN_THE_WINDOW).await, json!(false), "{name}");
    }
    let told = "return document.querySelector('.hook.failing .bypass').textContent";
    assert_eq!(chromium.run(told).await, json!("bypassed (skip)"));
    let marks = "return document.querySelectorAll('#timeline .chart .m.act').length";
    assert_eq!(chromium.run(marks).await, json!(3));
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

async fn hostile_names_do_nothing(chromium: &Chromium) {
    let served = Served::start(fixture::nasty(), 8).await;
    chromium.size(1280, 900, "light").await;
    chromium.open(&served.url("/")).await;
    chromium.run(COUNT).await;
    chromium.until("return window.updates >= 2").await;
    let names = chromium
        .run("return [...document.querySelectorAll('.hook .name > bdi')].map((name) => name.textContent)")
        .await;
    let expected = fixture::NASTY.map(|name| name.replace(['\u{202e}', '\u{2066}'], "\u{fffd}"));
    assert_eq!(names, json!(expected));
    assert_eq!(
        chromium
            .run("return [document.scripts.length, document.images.length]")
            .await,
        json!([1, 0])
    );
    // The policy would refuse what got past the escaping: nothing did, so there is nothing to complain of.
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
    chromium.picture("hostile").await;
    let refused = "const script = document.createElement('script'); script.textContent = 'window.broken = true'; \
                   document.body.append(script); return window.broken === undefined";
    assert_eq!(
        chromium.run(refused).await,
        json!(true),
        "the policy lets no other script run"
    );
    assert_ne!(chromium.complaints().await, [] as [Value; 0]);
}

async fn five_hundred_hooks_fit_on_a_telephone(chromium: &Chromium) {
    let served = Served::start(fixture::many(500, 3), 8).await;
    for (name, width, scheme) in [("many-desk", 1280, "light"), ("many-phone", 390, "dark")] {
        chromium.size(width, 844, scheme).await;
        chromium.open(&served.url("/")).await;
        chromium.picture(name).await;
        assert_eq!(chromium.run(WIDER_THAN_THE_WINDOW).await, json!(false), "{name}");
    }
    assert!(!chromium.has_attribute("#well", "open").await);
    chromium.click("#well > summary").await;
    assert!(chromium.has_attribute("#well", "open").await);
    let names = chromium
        .run("return document.querySelectorAll('#well li').length")
        .await;
    assert_eq!(names, json!(497));
    chromium.run(COUNT).await;
    chromium.until("return window.updates >= 2").await;
    assert!(chromium.has_attribute("#well", "open").await);
    chromium.picture("many-unfolded").await;
    assert_eq!(chromium.run(WIDER_THAN_THE_WINDOW).await, json!(false));
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

async fn ten_thousand_hooks_do_not_hang_it(chromium: &Chromium) {
    let served = Served::start(fixture::many(10_000, 9_000), 8).await;
    chromium.size(1280, 900, "light").await;
    chromium.open(&served.url("/")).await;
    chromium.run(COUNT).await;
    chromium.until("return window.updates >= 2").await;
    let rows = chromium
        .run("return document.querySelectorAll('#hooks > details').length")
        .await;
    assert!(rows.as_u64().is_some_and(|rows| rows >= 14), "{rows}");
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

async fn everything_is_there_without_scripts() {
    let served = Served::start(fixture::many(12, 2), 8).await;
    let chromium = Chromium::start().await;
    chromium.size(1280, 900, "light").await;
    chromium
        .devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}))
        .await;
    chromium.open(&served.url("/")).await;
    let (first, second) = ("details.hook:nth-of-type(1)", "details.hook:nth-of-type(2)");
    assert!(
        chromium.has_attribute(first, "open").await,
        "the first culprit's evidence is open"
    );
    assert!(!chromium.has_attribute(second, "open").await);
    chromium.click(&format!("{second} > summary")).await;
    assert!(chromium.has_attribute(second, "open").await);
    chromium.picture("without-scripts").await;
    asked_only_for_itself(&chromium, &served.url("")).await;
    let requests = chromium.requests().await;
    assert!(
        !requests.iter().any(|(_, url)| url.ends_with("/fragment")),
        "{requests:?}"
    );
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

async fn a_quiet_cluster_is_calm(chromium: &Chromium) {
    let served = Served::start(fixture::recorded("quiet"), 0).await;
    for (name, width, scheme) in [("quiet-light", 1280, "light"), ("quiet-phone", 390, "dark")] {
        chromium.size(width, 844, scheme).await;
        chromium.open(&served.url("/")).await;
        chromium.picture(name).await;
    }
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

async fn what_to_change_is_there_before_anything_fails(chromium: &Chromium) {
    let mut calm = fixture::with(vec![
        fixture::healthy("policy.example.com"),
        fixture::healthy("quota.example.com"),
    ]);
    let going = "Both ready endpoints are on node \"node-1\", which is cordoned, as before a drain since 2026-11-21T00:11:02.156Z. \
                 Their Pods are evicted next, and none can start there. Once they are gone, every request that matches is refused.";
    calm.audit = fixture::found(
        [
            fixture::finding(
                ONE_NODE,
                "quota.example.com",
                "All 3 ready endpoints are on node \"node-2\".",
            ),
            fixture::finding(NODES_GOING, "policy.example.com", going),
        ]
        .into_iter(),
    );
    let served = Served::start(calm, 0).await;
    for (name, width, scheme) in [("findings-light", 1280, "light"), ("findings-phone", 390, "dark")] {
        chromium.size(width, 1400, scheme).await;
        chromium.open(&served.url("/")).await;
        let shown = "document.querySelector('.finding summary').click(); return document.querySelector('.finding').innerText";
        let shown = chromium.run(shown).await;
        let shown = shown.as_str().unwrap_or_default();
        for part in ["cordoned", "kubectl patch", "nodes-going"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        chromium.picture(name).await;
    }
    assert_eq!(chromium.complaints().await, [] as [Value; 0]);
}

/// What the line at the top says while every answer to the page has this status; `null` stands for no answer.
async fn said_at(chromium: &Chromium, status: Value) -> String {
    let answers = format!(
        "const status = {status}; window.fetch = async () => {{ \
         if (status === null) throw new TypeError('no route'); return new Response('', {{ status }}); }}; return true"
    );
    chromium.run(&answers).await;
    let said = "document.getElementById('live').textContent";
    chromium
        .until(&format!(
            "return document.body.classList.contains('old') && {said} !== window.before"
        ))
        .await;
    let told = chromium
        .run(&format!("window.before = {said}; return {said}"))
        .await;
    told.as_str().unwrap_or_default().to_owned()
}

async fn a_page_that_is_not_admitted_any_more_says_so_and_not_that_nothing_answers(chromium: &Chromium) {
    let served = Served::start(fixture::recorded("quiet"), 0).await;
    chromium.size(1280, 900, "light").await;
    chromium.open(&served.url("/")).await;
    for (status, said) in [
        (json!(401), "hookwatch asks for the token again: reload the page"),
        (
            json!(403),
            "hookwatch does not admit this browser any more: reload the page",
        ),
        (json!(500), "hookwatch answers with status 500"),
        (Value::Null, "hookwatch does not answer"),
    ] {
        let told = said_at(chromium, status).await;
        assert_eq!(told, format!("{said}; everything below is old"));
        assert_eq!(
            chromium.run("return document.title").await,
            json!("old · hookwatch")
        );
    }
}

async fn a_hidden_tab_has_the_state_in_its_title_and_says_when_the_daemon_does_not_judge(
    chromium: &Chromium,
) {
    let served = Served::start(fixture::recorded("quiet"), 0).await;
    chromium.open(&served.url("/")).await;
    let hidden =
        "Object.defineProperty(document, 'hidden', { value: true }); document.title = ''; return true";
    chromium.run(hidden).await;
    chromium
        .until("return document.title === 'Writes flowing · hookwatch'")
        .await;
    let silent = "const page = '<main id=page><section id=verdict><p id=alarm>x</p><p class=state><b>Writes flowing</b></p>\
                  </section></main>'; window.fetch = async () => new Response(page); return true";
    chromium.run(silent).await;
    chromium
        .until("return document.title === 'old · hookwatch'")
        .await;
    let said =
        "return [document.body.classList.contains('old'), document.getElementById('live').textContent]";
    assert_eq!(
        chromium.run(said).await,
        json!([true, "hookwatch does not judge any more"])
    );
}

/// One after the other: a browser is a lot for a small machine.
#[test]
fn the_page_works_in_a_real_browser() {
    if !is_here() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // One browser for all that looks at a page that does not change.
        let chromium = Chromium::start().await;
        a_quiet_cluster_is_calm(&chromium).await;
        chromium.forget().await;
        what_to_change_is_there_before_anything_fails(&chromium).await;
        chromium.forget().await;
        a_bypass_is_shown_for_what_it_is(&chromium).await;
        chromium.forget().await;
        access::the_page_works_by_keyboard_alone(&chromium).await;
        chromium.forget().await;
        access::all_text_can_be_read_in_light_and_in_the_dark(&chromium).await;
        chromium.forget().await;
        a_page_that_is_not_admitted_any_more_says_so_and_not_that_nothing_answers(&chromium).await;
        chromium.forget().await;
        a_hidden_tab_has_the_state_in_its_title_and_says_when_the_daemon_does_not_judge(&chromium).await;
        chromium.forget().await;
        hostile_names_do_nothing(&chromium).await;
        chromium.forget().await;
        five_hundred_hooks_fit_on_a_telephone(&chromium).await;
        chromium.forget().await;
        ten_thousand_hooks_do_not_hang_it(&chromium).await;
        drop(chromium);
        // These ask for what was requested in all, and the first of them takes the scripts away.
        everything_is_there_without_scripts().await;
        an_incident_unfolds().await;
    });
}
