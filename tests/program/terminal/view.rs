//! What is drawn, as a function of what is known, on a terminal that is a value.

use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::terminal::view::shown::ShownAssessment;
use hookwatch::app::terminal::view::state::ScreenState;
use hookwatch::app::terminal::view::{ViewModel, screen};
use hookwatch::app::text::CleanText;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::report::assessment::Assessment;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::fixture;
use super::pty::keep;
use super::screens::incident;

fn known(assessment: &Assessment) -> ViewModel {
    let seen = ShownAssessment::parse(&serde_json::to_vec(assessment).unwrap()).unwrap();
    let mut known = ViewModel {
        server: CleanText::new("http://127.0.0.1:9880"),
        ..ViewModel::default()
    };
    known.history.observe(&seen);
    known.seen = Some(Arc::new(seen));
    known
}

fn drawn(known: &ViewModel, state: &ScreenState, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| {
            screen::draw(known, state, true, frame.area(), frame.buffer_mut());
        })
        .unwrap();
    let buffer = terminal.backend().buffer();
    let rows = (0..rows).map(|y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

#[test]
fn every_health_a_daemon_writes_is_read() {
    let assessment = incident();
    let known = known(&assessment);
    let seen = known.seen.unwrap();
    assert_eq!(seen.control_plane.writes, assessment.control_plane.writes);
    let healths: Vec<_> = seen.hooks.iter().map(|hook| hook.health).collect();
    let written: Vec<_> = assessment.hooks.iter().map(|hook| hook.health).collect();
    assert_eq!(healths, written);
    assert!(seen.sources.hooks_listed);
    assert_eq!(
        seen.control_plane.canaries.len(),
        assessment.control_plane.canaries.len()
    );
}

#[test]
fn every_way_to_be_behind_is_told_above_the_verdict() {
    let mut known = known(&incident());
    let state = ScreenState::default();
    assert!(!drawn(&known, &state, 100, 24).contains("old"));
    known.age = Duration::from_secs(7);
    assert!(drawn(&known, &state, 100, 24).contains("the newest answer is 7 s old"));
    known.silent = Some(CleanText::new("nothing has been judged for 12 s"));
    assert!(drawn(&known, &state, 100, 24).contains("NOTHING IS JUDGED"));
    known.trouble = Some(CleanText::new("gone"));
    let screen = drawn(&known, &state, 100, 24);
    assert!(screen.contains("NO ANSWER, all of this is 7 s old: gone") && screen.contains("WRITES BLOCKED"));
    // On the smallest screen it is all that is told.
    assert!(drawn(&known, &state, 40, 1).contains("NO ANSWER"));
}

#[test]
fn what_hookwatch_does_not_see_is_told_under_the_verdict_on_any_screen() {
    let mut blind = fixture::with(vec![fixture::healthy("a")]);
    blind.sources.self_doubt = true;
    for (columns, rows) in [(100, 24), (40, 22), (80, 3)] {
        let screen = drawn(&known(&blind), &ScreenState::default(), columns, rows);
        let mut lines = screen
            .lines()
            .skip_while(|line| !line.starts_with("WRITES FLOWING"));
        let told = lines.nth(1).unwrap();
        assert!(
            told.starts_with("hookwatch does not see everything: "),
            "{screen}"
        );
    }
}

#[test]
fn a_replica_that_does_not_lead_says_that_only_the_leader_shows_what_would_be_bypassed() {
    let mut assessment = incident();
    assessment.replica = Some(fixture::follower());
    let screen = drawn(&known(&assessment), &ScreenState::default(), 120, 24);
    assert!(screen.contains("only the leader shows: pod-2."), "{screen}");
}

#[test]
fn a_narrow_terminal_shows_what_the_breaker_did_and_a_wide_one_also_why() {
    let (mut assessment, _) = fixture::bypassed();
    assessment.breaker.wanted = AutoBreak::On;
    assessment.breaker.effective = AutoBreak::Plan;
    assessment.breaker.why = "The fence was not tried yet.".to_owned();
    assessment.breaker.frozen = Some("Frozen by anna: a drill.".to_owned());
    let narrow = drawn(&known(&assessment), &ScreenState::default(), 44, 30);
    assert!(
        narrow.contains("breaker plan, frozen; bypassed (skip): "),
        "{narrow}"
    );
    let wide = drawn(&known(&assessment), &ScreenState::default(), 200, 30);
    assert!(
        wide.contains("; not on: The fence was not tried yet.; Frozen by anna: a drill."),
        "{wide}"
    );
}

#[test]
fn the_advice_is_on_the_first_webhook_that_a_person_can_bypass_and_the_detail_says_where_it_is_called() {
    let since = fixture::recorded("quiet").at;
    let mut shielded = fixture::failing("shielded", since);
    (shielded.by_hand, shielded.advice) = (None, Some("Fix the shielded one."));
    let known = known(&fixture::with(vec![shielded, fixture::failing("second", since)]));
    let screen = drawn(&known, &ScreenState::default(), 100, 24);
    assert!(screen.contains("Next: Restart the webhook's server."), "{screen}");
    let mut state = ScreenState::default();
    let room = Default::default();
    state.key(KeyEvent::from(KeyCode::Enter), known.seen.as_deref(), room);
    let detail = drawn(&known, &state, 200, 24);
    assert!(detail.contains(", called at policy/policy:443"), "{detail}");
}

#[test]
fn ten_thousand_hooks_are_drawn_and_moved_through() {
    let known = known(&fixture::many(10_000, 700));
    let seen = known.seen.clone().unwrap();
    let mut state = ScreenState::default();
    let mut room = Default::default();
    for code in [
        KeyCode::End,
        KeyCode::Char('s'),
        KeyCode::Char('s'),
        KeyCode::Char('s'),
        KeyCode::PageUp,
    ] {
        state.key(KeyEvent::from(code), Some(&seen), room);
        let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
        terminal
            .draw(|frame| room = screen::draw(&known, &state, true, frame.area(), frame.buffer_mut()))
            .unwrap();
    }
    let screen = drawn(&known, &state, 200, 60);
    keep("10000-hooks", &screen);
    assert!(
        screen.contains("10000 webhooks: 700 failing") && screen.contains("policy-99"),
        "{screen}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written, typed and resized: nothing panics, and no cell holds what a terminal would obey.
    #[test]
    fn nothing_that_is_written_or_typed_breaks_the_screen(
        names in prop::collection::vec("\\PC{0,40}|[\\x00-\\x1f\\u{80}-\\u{9f}\u{202e}\u{200d}🔥日é]{0,20}", 0..12),
        keys in "[jkqsgGp/?\r\u{1b}\u{8} a-c日]{0,20}",
        columns in 1_u16..140, rows in 1_u16..50,
    ) {
        let since = fixture::recorded("quiet").at;
        let hooks = names.iter().map(|name| fixture::failing(name, since)).collect();
        let mut assessment = fixture::with(hooks);
        assessment.control_plane.symptoms = names.clone();
        let known = known(&assessment);
        let seen = known.seen.clone().unwrap();
        let (mut state, mut room) = (ScreenState::default(), Default::default());
        for key in keys.chars() {
            let code = match key {
                '\r' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            state.key(KeyEvent::from(code), Some(&seen), room);
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal
                .draw(|frame| room = screen::draw(&known, &state, false, frame.area(), frame.buffer_mut()))
                .unwrap();
            for cell in &terminal.backend().buffer().content {
                let bad = |character: char| character.is_control() || "\u{202e}\u{200d}\u{2066}".contains(character);
                prop_assert!(!cell.symbol().chars().any(bad), "{:?}", cell.symbol());
            }
        }
    }
}
