//! The page without a mouse, and its contrast as a browser computes it.

use hookwatch::domain::audit::findings::NODES_GOING;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::io::report::page::past::Past;
use serde_json::{Value, json};

use super::chromium::Chromium;
use super::fixture;
use super::served::Served;

const TAB: u32 = 9;
const ENTER: u32 = 13;
const SPACE: u32 = 32;

/// Numbers what can be focused, in the order of the document; what is in a folded part cannot.
const NUMBER: &str = "window.all = [...document.querySelectorAll('a[href], summary')].filter((element) => \
     element.checkVisibility() || element.className === 'skip'); \
     all.forEach((element, at) => element.dataset.at = at); return all.length";
/// Where the focus is, and how thick the line around it.
const FOCUS: &str = "const here = document.activeElement; \
     if (!here || here === document.body) return [null, '', 0]; \
     const style = getComputedStyle(here); const box = here.getBoundingClientRect(); \
     return [Number(here.dataset.at ?? -1), here.className || here.parentElement.className || here.textContent, \
     style.outlineStyle === 'solid' && box.bottom > 0 && box.top < innerHeight ? parseFloat(style.outlineWidth) : 0]";

fn incident() -> Assessment {
    let since = fixture::recorded("quiet")
        .at
        .before(std::time::Duration::from_secs(480));
    let mut assessment = fixture::with(vec![
        fixture::failing("validating-webhook.openpolicyagent.org", since),
        fixture::healthy("sidecar-injector.istio.io"),
    ]);
    let going = fixture::finding(
        NODES_GOING,
        "sidecar-injector.istio.io",
        "Both endpoints are on one node.",
    );
    assessment.audit = fixture::found(std::iter::once(going));
    assessment
}

async fn focus(chromium: &Chromium) -> (Value, String, f64) {
    let found = chromium.run(FOCUS).await;
    let name = found[1].as_str().unwrap().to_owned();
    (found[0].clone(), name, found[2].as_f64().unwrap())
}

pub async fn the_page_works_by_keyboard_alone(chromium: &Chromium) {
    let served = Served::start(incident(), 8).await;
    chromium.size(1280, 700, "light").await;
    chromium.open(&served.url("/")).await;
    let all = chromium.run(NUMBER).await.as_u64().unwrap();
    assert!(all >= 5, "{all}");
    // In the order of the document, each seen, and out again at the end: no trap.
    for expected in 0..all {
        chromium.press("Tab", TAB, false).await;
        let (at, name, line) = focus(chromium).await;
        assert_eq!(at, json!(expected), "the focus is on {name}");
        assert!(line >= 2.0, "nothing shows that the focus is on {name}");
    }
    chromium.press("Tab", TAB, false).await;
    assert_eq!(focus(chromium).await.0, Value::Null, "out of the page");
    chromium.press("Tab", TAB, true).await;
    assert_eq!(focus(chromium).await.0, json!(all - 1), "and back");

    // The first stop leads past everything to the webhooks, and the next is the first of them, whose evidence is open.
    chromium.open(&served.url("/")).await;
    chromium.run(NUMBER).await;
    chromium.press("Tab", TAB, false).await;
    assert_eq!(focus(chromium).await.1, "skip");
    chromium.press("Enter", ENTER, false).await;
    chromium.press("Tab", TAB, false).await;
    assert_eq!(focus(chromium).await.1, "hook failing");
    let row = "details.hook.failing";
    assert!(chromium.has_attribute(row, "open").await);
    chromium.press(" ", SPACE, false).await;
    assert!(!chromium.has_attribute(row, "open").await, "space folds it");
    chromium.press("Enter", ENTER, false).await;
    assert!(chromium.has_attribute(row, "open").await, "enter unfolds it");
    // An update of the page takes the focus from nothing.
    chromium
        .run("window.updates = 0; const asked = window.fetch; window.fetch = (...all) => { window.updates += 1; \
              return asked(...all); }; return true")
        .await;
    chromium.until("return window.updates >= 2").await;
    assert_eq!(focus(chromium).await.1, "hook failing");
}

/// Every piece of text whose contrast with what is behind it is less than WCAG's level AA demands.
const FAINT: &str = r#"
const channel = (value) => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return { r, g, b, a }; };
const over = (top, under) => { const mix = (name) => top[name] * top.a + under[name] * (1 - top.a); return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 }; };
const light = ({ r, g, b }) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
};
document.querySelectorAll("details").forEach((part) => part.open = true);
const faint = [];
let seen = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg, script, noscript, .skip")) continue;
  const style = getComputedStyle(element);
  const [under, ink] = [behind(element), parse(style.color)];
  const [a, b] = [light(over(ink, under)), light(under)].sort((x, y) => y - x);
  const size = parseFloat(style.fontSize);
  const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  seen += 1;
  if ((a + 0.05) / (b + 0.05) < needed) faint.push(`${((a + 0.05) / (b + 0.05)).toFixed(2)} ${walker.currentNode.data.slice(0, 60)}`);
}
return [seen, faint];
"#;

pub async fn all_text_can_be_read_in_light_and_in_the_dark(chromium: &Chromium) {
    let with_past = |assessment: Assessment, minutes| {
        let past = fixture::hour(&assessment, minutes);
        (assessment, past)
    };
    let pages: [(&str, (Assessment, Past)); 3] = [
        ("incident", with_past(incident(), 8)),
        ("bypassed", fixture::bypassed()),
        ("quiet", with_past(fixture::recorded("quiet"), 0)),
    ];
    for (name, (assessment, past)) in pages {
        let served = Served::start_with(assessment, past).await;
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)] {
            chromium.size(width, 900, scheme).await;
            chromium.open(&served.url("/")).await;
            let found = chromium.run(FAINT).await;
            assert!(found[0].as_u64().unwrap() > 30, "{name}: {found}");
            assert_eq!(found[1], json!([]), "{name}, {scheme}, {width} px");
        }
    }
}
