//! Writes the Grafana dashboards of `dashboards/`: `cargo run --example dashboards`.

mod breaker;
mod grafana;
mod overview;
mod webhook;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    std::fs::create_dir_all(&folder)?;
    for (name, text) in files()? {
        std::fs::write(folder.join(name), text)?;
        println!("dashboards/{name}");
    }
    Ok(())
}

/// The file name and JSON of every dashboard.
fn files() -> std::io::Result<Vec<(&'static str, String)>> {
    let dashboards = [
        ("overview.json", overview::dashboard()),
        ("webhook.json", webhook::dashboard()),
        ("breaker.json", breaker::dashboard()),
    ];
    dashboards
        .iter()
        .map(|(name, dashboard)| Ok((*name, serde_json::to_string_pretty(dashboard)? + "\n")))
        .collect()
}
