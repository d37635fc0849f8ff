//! docs/telemetry.md: every variable that is read, every name that is sent, and no other.

use std::cell::RefCell;
use std::collections::BTreeSet;

use hookwatch::io::report::metrics::Loss;
use hookwatch::io::telemetry::TelemetrySettings;

use crate::{files, quoted, read, shipped, text_of};

const DOCUMENT: &str = "docs/telemetry.md";

/// Every variable that is asked for, whatever the others say. What can be said of each signal is listed once.
fn asked() -> BTreeSet<String> {
    let asked = RefCell::new(BTreeSet::new());
    let ways = ["http/protobuf", "grpc"];
    for protocol in ways {
        let _ = TelemetrySettings::from_variables(|name| {
            let of_both = name
                .replace("OTLP_TRACES_", "OTLP_")
                .replace("OTLP_METRICS_", "OTLP_");
            asked.borrow_mut().insert(of_both);
            let value = match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => "127.0.0.1:4317",
                "OTEL_EXPORTER_OTLP_PROTOCOL" => protocol,
                "OTEL_TRACES_SAMPLER" => "traceidratio",
                _ => return None,
            };
            Some(value.to_owned())
        });
    }
    asked.into_inner()
}

/// The first cells of the rows of the table below a heading.
fn rows(document: &str, heading: &str) -> BTreeSet<String> {
    let section = document.split(&format!("\n## {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.trim_start_matches('|').split('|').next());
    cells.flat_map(quoted).map(str::to_owned).collect()
}

#[test]
fn every_variable_that_is_read_is_documented_and_no_other() {
    assert_eq!(rows(&read(DOCUMENT), "Variables"), asked());
}

#[test]
fn every_attribute_is_documented_and_no_other() {
    let mut written = BTreeSet::new();
    for path in files("src/io/telemetry", ".rs") {
        let source = read(&path);
        let source = text_of(&shipped(&source));
        if path.ends_with("settings.rs") {
            continue;
        }
        for call in source.split("KeyValue::new(").skip(1) {
            let name = call.split('"').nth(1).unwrap_or_default();
            written.insert(name.to_owned());
        }
    }
    assert_eq!(rows(&read(DOCUMENT), "Traces"), written);
}

#[test]
fn every_reason_of_a_loss_is_documented_and_no_other() {
    let reasons: BTreeSet<String> = Loss::ALL.iter().map(|loss| loss.as_str().to_owned()).collect();
    assert_eq!(rows(&read(DOCUMENT), "Bounds"), reasons);
}
