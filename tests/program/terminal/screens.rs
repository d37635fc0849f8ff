//! `top` in a terminal: what it shows, what keys do, and what it stands.

use std::cell::Cell;
use std::time::Duration;

use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Writes;

use super::fixture;
use super::pty::{Pty, keep};
use super::served::Served;

fn top(rows: u16, columns: u16, served: &Served) -> Pty {
    Pty::hookwatch(rows, columns, &["top", "--server", &served.url()], &[])
}

/// Three hooks, of which one hangs.
pub fn incident() -> Assessment {
    let since = fixture::recorded("quiet").at.before(Duration::from_secs(42));
    let mut assessment = fixture::with(vec![
        fixture::failing("validating-webhook.openpolicyagent.org", since),
        fixture::healthy("sidecar-injector.istio.io"),
        fixture::healthy("webhook.cert-manager.io"),
    ]);
    assessment.control_plane.symptoms = vec!["3 of 40 nodes have not renewed their lease for 41 s.".into()];
    assessment
}

fn quiet() -> Assessment {
    fixture::with(vec![
        fixture::healthy("sidecar-injector.istio.io"),
        fixture::healthy("webhook.cert-manager.io"),
    ])
}

#[test]
fn a_quiet_cluster_and_then_an_incident() {
    let served = Served::start(quiet());
    let terminal = top(24, 100, &served);
    keep("quiet", &terminal.wait_for_text("WRITES FLOWING"));
    served.judge(incident());
    // The letter under the curve says when it began.
    let screen = terminal.wait_for("the incident and its mark", |screen| {
        let text = screen.contents();
        text.contains("WRITES BLOCKED") && text.lines().any(|line| line.trim() == "F")
    });
    keep("incident", &screen);
    for said in [
        "Next: Restart the webhook's server",
        "Hanging",
        "1 failing",
        "> failing",
        "> ",
    ] {
        assert!(screen.contains(said), "no {said:?}:\n{screen}");
    }
    terminal.type_keys("q");
    assert!(terminal.end().0.success());
}

#[test]
fn keys_move_filter_sort_and_open_the_evidence() {
    let served = Served::start(fixture::many(500, 3));
    let terminal = top(30, 120, &served);
    keep(
        "many",
        &terminal.wait_for_text("500 webhooks: 3 failing, 0 suspect, 0 unknown, 497 healthy"),
    );
    terminal.type_keys("\u{1b}[B");
    terminal.wait_for_text("> failing Hanging         8 min   Blocking    93 %  0.97 policy-0001");
    terminal.type_keys("j\r");
    let evidence = terminal.wait_for_text("A dry-run write that meets this webhook was refused");
    keep("evidence", &evidence);
    assert!(
        evidence.contains("policy-0002.validate.example.com"),
        "{evidence}"
    );
    assert!(evidence.contains("dead endpoint 10.0.0.0:8443"), "{evidence}");
    terminal.type_keys("\u{1b}");
    terminal.wait_for_text("policy-0000");
    terminal.type_keys("/0499");
    terminal.wait_for_text("1 with \"0499\"");
    terminal.type_keys("\r");
    let filtered = terminal.wait_for_text("> healthy");
    assert!(
        filtered.contains("policy-0499") && !filtered.contains("> failing"),
        "{filtered}"
    );
    terminal.type_keys("\u{1b}");
    terminal.wait_for("all of them", |screen| {
        !screen.contents().contains("with \"0499\"")
    });
    terminal.type_keys("sss");
    terminal.wait_for_text("; by name");
    terminal.type_keys("?");
    keep("help", &terminal.wait_for_text("a webhook was named as failing"));
    terminal.type_keys("?p");
    terminal.wait_for_text("PAUSED");
    served.judge(quiet());
    // What came meanwhile is shown when it goes on.
    terminal.wait_for_text("PAUSED, all of this is 3 s old");
    terminal.type_keys("p");
    terminal.wait_for_text("2 webhooks: 0 failing");
    terminal.type_keys("\u{3}");
    assert!(terminal.end().0.success());
}

#[test]
fn a_terminal_of_any_size_has_the_verdict_and_it_follows_a_new_size() {
    let served = Served::start(incident());
    let terminal = top(24, 20, &served);
    let narrow = terminal.wait_for_text("> F");
    keep("20-columns", &narrow);
    assert!(narrow.contains("BLOCKED for 42 s"), "{narrow}");
    terminal.resize(3, 80);
    let low = terminal.wait_for("three rows", |screen| {
        let text = screen.contents();
        text.contains("WRITES BLOCKED for 42 s") && text.contains("> failing Hanging")
    });
    keep("3-rows", &low);
    terminal.resize(3, 20);
    keep(
        "3-rows-of-20-columns",
        &terminal.wait_for_text("BLOCKED for 42 s"),
    );
    for (rows, columns) in [(1, 1), (1, 200), (2, 5), (60, 4), (60, 200)] {
        terminal.resize(rows, columns);
    }
    let large = terminal.wait_for_text("CONFIGURATION");
    keep("60-rows-of-200-columns", &large);
    assert!(large.contains("q quit  ? help"), "{large}");
    terminal.type_keys("q");
    assert!(terminal.end().0.success());
}

#[test]
fn a_daemon_that_goes_away_leaves_what_it_said_last_and_its_age_until_it_is_back() {
    let served = Served::start(incident());
    let address = served.address;
    let terminal = top(24, 100, &served);
    terminal.wait_for_text("WRITES BLOCKED");
    drop(served);
    let gone = terminal.wait_for_text("NO ANSWER, all of this is");
    keep("gone", &gone);
    assert!(
        gone.contains("WRITES BLOCKED") && gone.contains("no hookwatch answers at"),
        "{gone}"
    );
    let served = Served::at(address, quiet(), |_| {});
    let back = terminal.wait_for_text("WRITES FLOWING");
    assert!(!back.contains("NO ANSWER"), "{back}");
    drop(served);
    terminal.type_keys("q");
    assert!(terminal.end().0.success());
}

#[test]
fn nothing_answers_at_first_and_then_a_daemon_does() {
    let served = Served::start(quiet());
    let address = served.address;
    drop(served);
    let url = format!("http://{address}");
    let terminal = Pty::hookwatch(24, 100, &["top", "--server", &url], &[]);
    let nobody = terminal.wait_for_text("NO ANSWER yet: no hookwatch answers");
    keep("nobody", &nobody);
    assert!(nobody.contains("diagnose"), "{nobody}");
    let _served = Served::at(address, quiet(), |_| {});
    terminal.wait_for_text("WRITES FLOWING");
    terminal.type_keys("\u{1b}");
    assert!(terminal.end().0.success());
}

#[test]
fn names_that_mean_harm_do_none() {
    let mut assessment = fixture::nasty();
    assessment.hooks[0].summary = "\u{1b}]0;stolen\u{7}\u{1b}[2J\u{1b}[?1049l\u{9b}31m".into();
    assessment.control_plane.summary = assessment.hooks[0].summary.clone();
    let served = Served::start(assessment);
    let terminal = top(30, 120, &served);
    let screen = terminal.wait_for_text("> failing");
    keep("nasty", &screen);
    terminal.type_keys("\r");
    keep("nasty-evidence", &terminal.wait_for_text("evidence"));
    let raw = String::from_utf8(terminal.raw()).unwrap();
    assert!(
        !raw.contains("\u{1b}]") && !raw.contains('\u{9b}') && !raw.contains('\u{7}'),
        "{screen}"
    );
    for turn in ['\u{202e}', '\u{2066}', '\u{200d}'] {
        assert!(!raw.contains(turn), "{turn:?}");
    }
    assert_eq!(raw.matches("\u{1b}[?1049l").count(), 0);
    assert!(
        screen.contains("🔥.example.com") && screen.contains("שלום"),
        "{screen}"
    );
    terminal.type_keys("q");
    assert!(terminal.end().0.success());
}

/// Whether any cell of the screen has a colour.
fn has_colour(screen: &vt100::Screen) -> bool {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    (0..rows).any(|row| {
        (0..columns).any(|column| {
            let cell = screen.cell(row, column);
            cell.is_some_and(|cell| {
                (cell.fgcolor(), cell.bgcolor()) != (vt100::Color::Default, vt100::Color::Default)
            })
        })
    })
}

#[test]
fn there_are_colours_unless_they_are_not_wanted() {
    let served = Served::start(incident());
    let url = served.url();
    for (flag, variable, colour) in [
        (None, None, true),
        (None, Some(("NO_COLOR", "")), true),
        (Some("--no-color"), None, false),
        (None, Some(("NO_COLOR", "1")), false),
        (None, Some(("TERM", "dumb")), false),
    ] {
        let mut arguments = vec!["top", "--server", &url];
        arguments.extend(flag);
        let environment: Vec<_> = variable.into_iter().collect();
        let terminal = Pty::hookwatch(24, 100, &arguments, &environment);
        terminal.wait_for_text("> failing");
        let found = Cell::new(false);
        terminal.wait_for("a screen", |screen| {
            found.set(has_colour(screen));
            true
        });
        assert_eq!(found.get(), colour, "{flag:?} {variable:?}");
        terminal.type_keys("q");
        assert!(terminal.end().0.success());
    }
}

#[test]
fn what_is_unknown_is_not_shown_as_well() {
    let mut assessment = quiet();
    assessment.control_plane.writes = Writes::Unknown;
    assessment.sources.hooks_listed = false;
    assessment.hooks.clear();
    let served = Served::start(assessment);
    let terminal = top(24, 100, &served);
    let screen = terminal.wait_for_text("WRITES UNKNOWN");
    assert!(
        screen.contains("the webhook configurations could not be read"),
        "{screen}"
    );
    terminal.type_keys("q");
    assert!(terminal.end().0.success());
}
