//! Pictures of `top` and of `audit`.

use std::process::Command;
use std::time::Duration;

use hookwatch::app::terminal::view::screen;
use hookwatch::app::terminal::view::state::ScreenState;
use hookwatch::app::text::cut;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::cells::svg;
use crate::moments::moment;
use crate::sources::same;

fn top(name: &str, title: &str, (recording, at): (&str, u64), (columns, rows): (u16, u16)) {
    let known = moment(recording, Duration::from_secs(at)).known;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| {
            screen::draw(
                &known,
                &ScreenState::default(),
                true,
                frame.area(),
                frame.buffer_mut(),
            );
        })
        .unwrap();
    same(name, &svg(title, terminal.backend().buffer()));
}

#[test]
fn the_pictures_of_top_are_what_it_draws() {
    let what = "hookwatch top while a webhook hangs";
    top("top-incident.svg", what, ("plan", 24), (100, 26));
    let what = "hookwatch top while a webhook that hangs is shielded";
    top("top-shield.svg", what, ("shield", 55), (100, 24));
    let what = "hookwatch top on a quiet cluster";
    top("top-quiet.svg", what, ("quiet", 60), (100, 18));
    let what = "hookwatch top in a terminal of 40 columns while a webhook hangs";
    top("top-narrow.svg", what, ("plan", 24), (40, 22));
}

/// Lines of the audit of a published incident: how many of what, the critical finding, and what dies when.
fn audited() -> Vec<String> {
    let said = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
        .args(["audit", "examples/audit/gke-opa-outage.yaml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let parts: Vec<&str> = said.split("\n\n").collect();
    let critical = parts.iter().find(|part| part.starts_with("CRITICAL")).unwrap();
    let (forecast, _) = parts
        .iter()
        .find(|part| part.starts_with("Forecast"))
        .and_then(|part| part.split_once("    if its backends refuse"))
        .unwrap();
    let lines =
        |text: &str, most: usize| -> Vec<String> { text.lines().take(most).map(str::to_owned).collect() };
    let gap = || ["  …".to_owned(), String::new()];
    let mut shown = lines(parts[0], 1);
    shown.push(String::new());
    shown.extend(lines(critical, 4));
    shown.extend(gap());
    shown.extend(lines(forecast, 20));
    shown.extend(gap());
    shown
}

#[test]
fn the_picture_of_the_audit_is_what_it_prints() {
    const COLUMNS: u16 = 110;
    let lines = audited();
    let rows = u16::try_from(lines.len()).unwrap() + 1;
    let mut buffer = Buffer::empty(Rect::new(0, 0, COLUMNS, rows));
    let quiet = Style::new().fg(Color::DarkGray);
    buffer.set_string(
        0,
        0,
        "$ hookwatch audit examples/audit/gke-opa-outage.yaml",
        quiet,
    );
    for (line, y) in lines.iter().zip(1..) {
        let heading = line.starts_with("CRITICAL") || line.starts_with("Forecast");
        let style = if heading {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        };
        buffer.set_string(0, y, cut(line, usize::from(COLUMNS)), style);
    }
    let title = "hookwatch audit of the manifest behind a published outage";
    same("audit.svg", &svg(title, &buffer));
}
