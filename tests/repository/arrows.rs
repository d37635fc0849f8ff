//! The arrow rule: `domain` <- `io` <- `app` <- `cli`, with `lab` beside `io`; and between the rooms of `domain` and of `io`.
//!
//! That `domain` knows no other layer and no other crates than those of its manifest is held by the compiler: it is a package.
//! That it has no clock, no I/O and no threads from the standard library is held by the lints of `clippy.toml`.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{files, read};
use paths::mentions;

/// The rooms of `domain`, each with those that it knows, which stand before it: so there is no circle.
const ROOMS: [(&str, &[&str]); 8] = [
    ("cluster", &[]),
    ("observe", &["cluster"]),
    ("diagnose", &["cluster", "observe"]),
    ("act", &["cluster"]),
    ("audit", &["cluster"]),
    ("report", &["cluster", "observe", "diagnose", "act", "audit"]),
    (
        "watchdog",
        &["cluster", "observe", "diagnose", "act", "audit", "report"],
    ),
    ("recording", &["observe", "watchdog"]),
];

/// The rooms of `io`, likewise.
const ROOMS_OF_IO: [(&str, &[&str]); 14] = [
    ("file", &[]),
    ("client", &["file"]),
    ("endpoint", &["file"]),
    ("missing", &[]),
    ("recorder", &[]),
    ("wall", &[]),
    ("coordination", &["client"]),
    ("daemon", &["client", "endpoint"]),
    ("cluster", &["client"]),
    ("observe", &["client", "endpoint", "missing"]),
    ("act", &["client", "coordination", "observe"]),
    (
        "report",
        &["wall", "client", "endpoint", "coordination", "cluster"],
    ),
    ("http", &["file", "report"]),
    ("telemetry", &["file", "client", "report"]),
];

/// What stands below the rooms of `domain`. It knows none of them.
const GROUND: [&str; 5] = ["row", "text", "thresholds", "time", "vocabulary"];

/// What is drawn in a terminal, and the text that it and other commands show, may know this and crates without effects: it is
/// pure as `domain` is, but in `app`, as only commands have a terminal.
const VIEW: [&str; 3] = ["app::terminal::view", "app::text", "domain"];

/// What it may use of crates that `domain` does without: cells, widths, and keys, which are values.
const VIEW_PATHS: [&str; 5] = [
    "ratatui::buffer",
    "ratatui::crossterm::event::Key",
    "ratatui::layout",
    "ratatui::style",
    "unicode_width",
];

/// What of the crate `module` may know; `None` for all.
fn may_know(module: &[&str]) -> Option<Vec<String>> {
    let room = |layer, own, rooms: &[(&str, &[&str])], ground: &[&str]| {
        let known = rooms.iter().find(|(room, _)| *room == own);
        let known = known.map_or(&[][..], |(_, known)| known);
        let names = known.iter().chain(ground).chain([&own]);
        names.map(|name| format!("{layer}::{name}")).collect()
    };
    let known: &[&str] = match module {
        ["domain", own, ..] => return Some(room("domain", own, &ROOMS, &GROUND)),
        ["io", own, ..] => {
            let mut known: Vec<_> = room("io", own, &ROOMS_OF_IO, &["Clock", "error", "lock"]);
            known.push("domain".to_owned());
            return Some(known);
        }
        ["io"] => &["io", "domain"],
        ["lab", ..] => &["lab", "domain"],
        ["app", "terminal", "view", ..] | ["app", "text"] => &VIEW,
        ["app", "demo", ..] => &["app", "io", "domain", "lab"],
        ["app", ..] => &["app", "io", "domain"],
        _ => return None,
    };
    Some(known.iter().copied().map(str::to_owned).collect())
}

/// Everything in a file that its module may not know. `dependencies` are the names of all crates in use.
fn offences(module: &[&str], text: &str, dependencies: &BTreeSet<String>) -> Vec<String> {
    let Some(known) = may_know(module) else {
        return Vec::new();
    };
    let pure = self::dependencies(&read("src/domain/Cargo.toml"));
    let is_view = known == VIEW;
    let is_offence = |path: &Vec<String>| match &*path[0] {
        "crate" => {
            let told = path[1..].join("::") + "::";
            !known.iter().any(|known| told.starts_with(&format!("{known}::")))
        }
        // The library by its own name.
        "hookwatch" => true,
        krate => {
            let told = path.join("::");
            let is_pure = pure.contains(krate) || VIEW_PATHS.iter().any(|allowed| told.starts_with(allowed));
            is_view && dependencies.contains(krate) && !is_pure
        }
    };
    let paths = mentions(text, module).paths.into_iter().filter(is_offence);
    paths
        .map(|path| format!("{} must not know {}", module.join("::"), path.join("::")))
        .collect()
}

/// The names of `[dependencies]` as code spells them.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest
        .split("\n[")
        .find(|section| section.starts_with("dependencies]"));
    section
        .expect("Cargo.toml has dependencies")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once([' ', '.']))
        .map(|(name, _)| name.replace('-', "_"))
        .collect()
}

/// `src/domain/cluster/hook.rs` is the module `domain::cluster::hook`.
fn module(path: &Path) -> Vec<String> {
    let path = path.strip_prefix("src").unwrap().with_extension("");
    path.iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// The modules that exist in tests only, by the files that declare them.
fn test_modules() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for path in files("src", ".rs") {
        let parent = module(&path);
        let names: Vec<&str> = parent.iter().map(String::as_str).collect();
        // What lib.rs declares stands beside it, not below it.
        let parent = if names == ["lib"] {
            Vec::new()
        } else {
            parent.clone()
        };
        for name in mentions(&read(&path), &names).test_modules {
            found.push(parent.iter().cloned().chain([name]).collect());
        }
    }
    found
}

#[test]
fn no_layer_knows_what_it_must_not_know() {
    let dependencies = dependencies(&read("Cargo.toml"));
    assert!(dependencies.contains("tokio") && dependencies.contains("k8s_openapi"));
    let tests = test_modules();
    let mut found = Vec::new();
    let mut looked_at = BTreeSet::new();
    for path in files("src", ".rs") {
        let module = module(&path);
        // Those of the package are no modules of it.
        let of_package = module.starts_with(&["domain".to_owned(), "tests".to_owned()]);
        if of_package || tests.iter().any(|test| module.starts_with(test)) {
            continue;
        }
        let names: Vec<&str> = module.iter().map(String::as_str).collect();
        looked_at.insert(module[0].clone());
        for offence in offences(&names, &read(&path), &dependencies) {
            found.push(format!("{}: {offence}", path.display()));
        }
    }
    for layer in ["domain", "io", "app", "lab"] {
        assert!(looked_at.contains(layer), "{layer} was not looked at");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_room_knows_only_rooms_before_it_and_all_of_domain_and_io_is_in_a_room() {
    for (layer, rooms, ground) in [
        (
            "domain",
            &ROOMS[..],
            &[&GROUND[..], &["lib", "tests"]].concat()[..],
        ),
        ("io", &ROOMS_OF_IO[..], &["error", "testing"]),
    ] {
        for (at, (room, known)) in rooms.iter().enumerate() {
            for other in *known {
                let before = rooms[..at].iter().any(|(room, _)| room == other);
                assert!(before, "{room} knows {other}, which does not stand before it");
            }
        }
        let named = rooms.iter().map(|(room, _)| *room).chain(ground.iter().copied());
        let named: BTreeSet<String> = named.map(str::to_owned).collect();
        let modules = files(&format!("src/{layer}"), ".rs");
        let found: BTreeSet<String> = modules.iter().map(|path| module(path)[1].clone()).collect();
        assert_eq!(found, named, "{layer}");
    }
}

/// Which modules of `app` each of its modules knows, by these files.
fn known_in_app(files: &[(Vec<String>, String)]) -> BTreeMap<&str, BTreeSet<String>> {
    let modules: BTreeSet<&str> = files.iter().map(|(module, _)| module[1].as_str()).collect();
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (module, text) in files {
        let names: Vec<&str> = module.iter().map(String::as_str).collect();
        let others = mentions(text, &names)
            .paths
            .into_iter()
            .filter_map(|path| match &*path {
                [krate, app, other, ..] if krate == "crate" && app == "app" => Some(other.clone()),
                _ => None,
            });
        let others = others.filter(|other| *other != module[1] && modules.contains(other.as_str()));
        known.entry(&module[1]).or_default().extend(others);
    }
    known
}

/// The modules that know each other in a circle, or know one that does.
fn in_circles(mut known: BTreeMap<&str, BTreeSet<String>>) -> Vec<String> {
    loop {
        let first = known.iter().find(|(_, others)| others.is_empty());
        let Some(first) = first.map(|(module, _)| *module) else {
            let told = known
                .iter()
                .map(|(module, others)| format!("{module} knows {others:?}"));
            return told.collect();
        };
        known.remove(first);
        known.values_mut().for_each(|others| _ = others.remove(first));
    }
}

#[test]
fn no_modules_of_app_know_each_other_in_a_circle() {
    let tests = test_modules();
    let files = files("src/app", ".rs").into_iter();
    let files = files.map(|path| (module(&path), read(&path)));
    let files: Vec<_> = files
        .filter(|(module, _)| !tests.iter().any(|test| module.starts_with(test)))
        .collect();
    let known = known_in_app(&files);
    assert!(known.len() > 8 && known["terminal"].contains("text"), "{known:?}");
    assert_eq!(in_circles(known), [""; 0]);
    let file = |name: &str, text: &str| (["app", name].map(str::to_owned).to_vec(), text.to_owned());
    let circle = [
        file(
            "progress",
            "use super::text::clean; fn f() { crate::app::terminal::status() }",
        ),
        file("terminal", "use super::progress::during;"),
        file("text", ""),
    ];
    assert_eq!(in_circles(known_in_app(&circle)).len(), 2);
}

#[test]
fn a_room_that_must_not_be_known_is_seen() {
    for (module, text) in [
        (
            vec!["domain", "cluster", "hook"],
            "use crate::observe::probe::Phase;",
        ),
        (vec!["domain", "cluster"], "use super::observe::probe::Phase;"),
        (
            vec!["domain", "act", "breaker", "decide"],
            "fn f(x: crate::diagnose::verdict::Verdict) {}",
        ),
        (vec!["domain", "diagnose", "rules"], "use super::super::act;"),
        (vec!["domain", "observe", "canary"], "use crate::*;"),
        (vec!["domain", "time"], "use super::cluster::hook::Hook;"),
        (
            vec!["io", "client", "answer"],
            "use crate::io::observe::probe::Prober;",
        ),
        (
            vec!["io", "report", "page"],
            "use super::super::telemetry::Tracer;",
        ),
    ] {
        assert!(offences_in(&module, text) > 0, "not seen in: {text}");
    }
    for (module, text) in [
        (
            vec!["domain", "report", "alerts"],
            "use crate::act::fence::AutoBreak;",
        ),
        (
            vec!["domain", "observe", "canary"],
            "use super::probe::Phase; use crate::time::Time;",
        ),
        (
            vec!["domain", "act", "breaker"],
            "#[cfg(test)] mod tests { use crate::watchdog; }",
        ),
        (
            vec!["io", "observe", "scrape"],
            "use crate::io::Clock; use crate::io::client::Connection; use crate::domain::report::alerts;",
        ),
    ] {
        assert_eq!(offences_in(&module, text), 0, "{text}");
    }
}

fn offences_in(module: &[&str], text: &str) -> usize {
    let dependencies = ["tokio", "kube", "tracing", "serde", "k8s_openapi"].map(str::to_owned);
    offences(module, text, &dependencies.into()).len()
}

#[test]
fn every_way_to_write_an_offence_is_seen() {
    for text in [
        "use crate::io::observe::probe::Prober;",
        "use crate::{domain::cluster::hook::Hook, io::{self, probe}};",
        "use super::super::io;",
        "use super::super::{io::Clock};",
        "fn f(x: crate::app::config::Config) {}",
        "fn f() { super::super::lab::api::serve() }",
        "mod inner { use super::super::super::io::Clock; }",
        "use crate as all;",
        "use crate::*;",
        "fn f<'a>(x: &'a str) -> &'a str { crate::io::f(x) }",
        "#[cfg(test)] mod tests { fn f() {} } use crate::io;",
        "#[cfg(test)] mod tests; use crate::io;",
    ] {
        assert!(
            offences_in(&["domain", "cluster"], text) > 0,
            "not seen in: {text}"
        );
    }
    assert!(offences_in(&["io", "probe"], "use crate::app::config::Config;") > 0);
    assert!(offences_in(&["io", "probe", "plan"], "use super::super::super::lab;") > 0);
    assert!(offences_in(&["lab", "api"], "use crate::io::testing::Server;") > 0);
    assert!(offences_in(&["app", "engine"], "use crate::lab::api;") > 0);
    assert!(offences_in(&["app", "engine"], "use crate::cli;") > 0);
}

#[test]
fn what_is_drawn_in_a_terminal_is_a_function_of_its_arguments() {
    let dependencies = ["tokio", "ratatui", "serde", "unicode_width"]
        .map(str::to_owned)
        .into();
    let view = |text: &str| offences(&["app", "terminal", "view", "screen"], text, &dependencies).len();
    for text in [
        "use crate::io::daemon::Daemon;",
        "use crate::app::terminal::Guard;",
        "use super::super::ServerArguments;",
        "use tokio::time::Instant;",
        "use ratatui::crossterm::terminal::size;",
        "use ratatui::crossterm::event::read;",
        "use ratatui::Terminal;",
    ] {
        assert!(view(text) > 0, "not seen in: {text}");
    }
    for text in [
        "use crate::app::text::CleanText; use crate::domain::time::Time;",
        "use ratatui::buffer::Buffer; use ratatui::crossterm::event::{KeyCode, KeyEvent};",
        "use std::collections::VecDeque; use serde::Deserialize; use unicode_width::UnicodeWidthChar;",
    ] {
        assert_eq!(view(text), 0, "{text}");
    }
    let files = files("src/app/terminal/view", ".rs");
    assert!(files.len() >= 6, "{files:?}");
}

#[test]
fn what_is_allowed_is_no_offence() {
    for text in [
        "use super::hook::{Hook, HookId}; use crate::time::Time;",
        "use std::{fmt, sync::Arc, time::Duration, net::{IpAddr, SocketAddr}};",
        "use serde::Serialize; #[derive(Serialize)] struct A;",
        "// use crate::io;\n/// as in [`crate::io::observe::probe`]\n/* use tokio; */",
        "const TEXT: &str = \"use crate::io; tokio::spawn\";",
        "fn f(io: u8, kube: Kube) { io.tokio(); Kube::new(); Self::lab() }",
        "mod inner { use super::super::time::Time; }",
        "#[cfg(test)] mod tests { use crate::io; #[test] fn f() {} }",
        "#[cfg(test)]\nmod tests;",
    ] {
        let found = offences(&["domain", "hook"], text, &["tokio".to_owned()].into());
        assert!(found.is_empty(), "{found:?} in: {text}");
    }
    assert_eq!(
        offences_in(&["io", "probe"], "use tokio::net::TcpStream; use crate::domain;"),
        0
    );
    assert_eq!(
        offences_in(&["lab", "api"], "use tokio::net::TcpStream; use crate::domain;"),
        0
    );
    assert_eq!(offences_in(&["app", "demo", "stage"], "use crate::lab::api;"), 0);
}
