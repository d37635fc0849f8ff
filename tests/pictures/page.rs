//! Pictures of the status page.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use hookwatch::io::report::page::{Model, document};
use serde_json::json;

use crate::chromium::Chromium;
use crate::moments::{Moment, moment};
use crate::sources::{self, BLESS, folder, hash, is_blessing};

struct Shot {
    name: &'static str,
    recording: &'static str,
    /// Seconds after the recording began.
    at: u64,
    width: u32,
    height: u32,
    scheme: &'static str,
}

const fn shot(
    name: &'static str,
    (recording, at): (&'static str, u64),
    (width, height): (u32, u32),
    scheme: &'static str,
) -> Shot {
    Shot {
        name,
        recording,
        at,
        width,
        height,
        scheme,
    }
}

const QUIET: (&str, u64) = ("quiet", 60);
const INCIDENT: (&str, u64) = ("plan", 24);
const SHIELDED: (&str, u64) = ("shield", 55);
const DESK: (u32, u32) = (1000, 900);
const PHONE: (u32, u32) = (390, 844);

const SHOTS: [Shot; 6] = [
    shot("page-quiet.png", QUIET, (1000, 760), "light"),
    shot("page-incident.png", INCIDENT, DESK, "light"),
    shot("page-incident-dark.png", INCIDENT, (1000, 620), "dark"),
    shot("page-incident-phone.png", INCIDENT, PHONE, "light"),
    shot("page-shield.png", SHIELDED, DESK, "light"),
    shot("page-shield-phone.png", SHIELDED, PHONE, "dark"),
];

/// The page without what would ask for a newer one, and without its foot, which has the release.
fn source(moment: &Moment) -> String {
    let model = Model::new(Arc::clone(&moment.assessment), &moment.past, None);
    let whole = document(&Model::fragment(Some(&model)), None);
    let (page, _) = whole.split_once("<footer>").unwrap();
    page.replace("<span id=\"live\" role=\"status\">", "<span id=\"live\">live")
        .replace("<noscript>reloads every 15 s</noscript>", "")
}

#[test]
fn every_picture_of_the_page_is_of_the_page_as_it_is() {
    let mut known = sources::read();
    let mut old = Vec::new();
    for shot in &SHOTS {
        let page = source(&moment(shot.recording, Duration::from_secs(shot.at)));
        let setting = format!("{}x{} {}", shot.width, shot.height, shot.scheme);
        let of = hash(format!("{setting}\n{page}").as_bytes());
        let picture = std::fs::read(folder().join(shot.name)).unwrap_or_default();
        if known.get(shot.name) != Some(&(of.clone(), hash(&picture))) {
            old.push((shot, page, of));
        }
    }
    if is_blessing() && !old.is_empty() {
        std::fs::create_dir_all(folder()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let chromium = Chromium::start().await;
            for (shot, page, of) in &old {
                let picture = take(&chromium, shot, page).await;
                known.insert(shot.name.to_owned(), (of.clone(), hash(&picture)));
            }
        });
        known.retain(|name, _| SHOTS.iter().any(|shot| shot.name == name));
        sources::write(&known);
        return;
    }
    let names: Vec<&str> = old.iter().map(|(shot, ..)| shot.name).collect();
    assert!(names.is_empty(), "these pictures are old: {names:?}. {BLESS}");
}

async fn take(chromium: &Chromium, shot: &Shot, page: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.html", shot.name));
    std::fs::write(&file, page).unwrap();
    chromium.size(shot.width, shot.height, shot.scheme).await;
    if shot.width < 500 {
        let metrics =
            json!({"width": shot.width, "height": shot.height, "deviceScaleFactor": 1.5, "mobile": true});
        chromium
            .devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }
    chromium.open(&format!("file://{}", file.display())).await;
    let taken = json!({"format": "png", "optimizeForSpeed": false});
    let taken = chromium.devtools("Page.captureScreenshot", taken).await;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(taken["data"].as_str().unwrap())
        .unwrap();
    std::fs::write(folder().join(shot.name), &bytes).unwrap();
    bytes
}

#[test]
fn all_pictures_together_are_small_and_each_is_in_a_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents: String = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([root.join("README.md"), root.join("dashboards/README.md")])
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(|path| std::fs::read_to_string(path).unwrap_or_default())
        .collect();
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        bytes += entry.metadata().unwrap().len();
        let is_shown = documents.contains(&format!("pictures/{name})"));
        assert!(is_shown, "{name} is in no document");
    }
    assert!(bytes < 1_000_000, "{bytes} bytes");
}
