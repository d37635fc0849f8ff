//! The colours of states: readable on each background, and different to those who do not see red or green.

use std::collections::BTreeMap;
use std::path::Path;

/// Linear red, green and blue, 0 to 1.
type Rgb = [f64; 3];

/// What an eye makes of a colour, as a matrix for linear light; at full severity, by Machado, Oliveira and Fernandes (2009).
const EYES: [(&str, [Rgb; 3]); 3] = [
    ("most", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
];
/// Colours of states: failing, suspect, bypassed, and all else.
const STATES: [&str; 4] = ["trouble", "odd", "act", "quiet"];
/// The least distance in CIELAB at which two colours are told apart at a glance. About 2 is just noticeable.
const APART: f64 = 20.0;

fn colour(text: &str) -> Rgb {
    let digits = text.strip_prefix('#').unwrap();
    let wide = match digits.len() {
        3 => digits.chars().flat_map(|c| [c, c]).collect(),
        _ => digits.to_owned(),
    };
    [0, 2, 4].map(|at| {
        let value = f64::from(u8::from_str_radix(&wide[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    })
}

fn seen(by: &[Rgb; 3], colour: Rgb) -> Rgb {
    by.map(|row| {
        let sum: f64 = row.iter().zip(colour).map(|(a, b)| a * b).sum();
        sum.clamp(0.0, 1.0)
    })
}

fn lab([r, g, b]: Rgb) -> Rgb {
    let part = |x: f64| {
        if x > 0.008856 {
            x.cbrt()
        } else {
            7.787 * x + 16.0 / 116.0
        }
    };
    let x = part((0.412_456 * r + 0.357_576 * g + 0.180_438 * b) / 0.95047);
    let y = part(0.212_673 * r + 0.715_152 * g + 0.072_175 * b);
    let z = part((0.019_334 * r + 0.119_192 * g + 0.950_304 * b) / 1.08883);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(by: &[Rgb; 3], a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (lab(seen(by, a)), lab(seen(by, b)));
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// As WCAG 2.2 defines it, 1 to 21.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let light = |[r, g, b]: Rgb| 0.2126 * r + 0.7152 * g + 0.0722 * b;
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// The two sets of colours of the style sheet: light, then dark.
fn palettes() -> [BTreeMap<String, Rgb>; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/io/report/page/page.css");
    let sheet = std::fs::read_to_string(path).unwrap();
    let sets: Vec<BTreeMap<String, Rgb>> = sheet
        .split(":root {")
        .skip(1)
        .map(|rest| {
            let rules = rest.split('}').next().unwrap().split(';');
            let named = rules.filter_map(|rule| rule.trim().strip_prefix("--")?.split_once(": "));
            // Tints have an alpha: what is on them is measured in the browser.
            let solid = named.filter(|(_, value)| value.len() <= 7);
            solid
                .map(|(name, value)| (name.to_owned(), colour(value)))
                .collect()
        })
        .collect();
    sets.try_into().unwrap()
}

#[test]
fn states_are_told_apart_by_the_colour_blind_too() {
    for palette in palettes() {
        for (who, eye) in &EYES {
            for (at, a) in STATES.iter().enumerate() {
                for b in &STATES[at + 1..] {
                    let apart = distance(eye, palette[*a], palette[*b]);
                    assert!(apart >= APART, "{a} and {b}, to {who}: {apart:.1}");
                }
            }
            let curves = distance(eye, palette["curve"], palette["update"]);
            assert!(curves >= APART, "the two curves, to {who}: {curves:.1}");
        }
    }
}

#[test]
fn text_and_marks_stand_out_from_every_background() {
    for palette in palettes() {
        for paper in ["page", "card", "hover"] {
            for ink in ["ink", "quiet", "trouble", "odd", "act"] {
                let found = contrast(palette[ink], palette[paper]);
                assert!(found >= 4.5, "{ink} on {paper}: {found:.2}");
            }
            for mark in ["soft", "curve", "update"] {
                let found = contrast(palette[mark], palette[paper]);
                assert!(found >= 3.0, "{mark} on {paper}: {found:.2}");
            }
        }
    }
}

#[test]
fn a_red_and_a_green_of_one_lightness_are_found_to_be_alike() {
    let (red, green) = (colour("#b8860b"), colour("#7f9a2a"));
    let apart: Vec<f64> = EYES.iter().map(|(_, eye)| distance(eye, red, green)).collect();
    assert!(apart[0] >= APART && apart[2] < APART, "{apart:?}");
}
