//! docs/diagnosis.md as a function of the tables in the code and of the measurements.
//!
//! The test that compares the page with the code includes this file, so it may use the library but nothing else of the
//! campaign.

use std::fmt::Write;

use hookwatch::domain::diagnose::rules::{DiagnosisRule, TABLE};
use hookwatch::domain::thresholds::{CHOSEN, KUBERNETES, MEASURED as FROM_A_SERVER, Threshold};
use hookwatch::domain::vocabulary::Health;

/// Begins each line with measurements. The first such line names the run that they are from.
pub const MEASURED: &str = "Measured: ";

const HEAD: &str = "\
# Diagnosis

<!-- Written by `campaign document`; the last section says how. -->

How hookwatch decides that a webhook is at fault, rule by rule, and how often each rule is right. The words are explained
in [Concepts](concepts.md), the overall figures in [Accuracy](accuracy.md).

## How a verdict is made

Every two seconds, and five times a second while anything is odd, hookwatch judges every webhook. It reads three witnesses, and
none of them is trusted alone:

| Witness | What it sees first | Where it is blind |
|---|---|---|
| Probes | Which backend fails, at which phase: dial, TLS, request, answer. | It takes another way through the network than the API server. |
| The API servers' metrics | What real calls met: how many, how long, how they ended. | A call counts once it has ended. A name stands for every webhook that has it. |
| Canaries: dry-run writes | A write as users send it, with the API server's own error. | Webhooks whose rules match no canary. |

1. hookwatch puts the evidence of the three together, once.
2. It tries the rules below from the top. **The first rule that applies makes the verdict.** No other rule is read.
3. The verdict carries the rule's name (`rule` in the JSON of an assessment), so you can look it up here.

A rule makes the webhook `Failing` (accused), `Suspect` (worth a look, not accused), `Healthy` or `Unknown`. A verdict
of `Failing` or `Suspect` carries two numbers:

- **webhook**: how likely it is that this webhook is at fault, whatever the cause.
- **cause**: how likely it is that this webhook is at fault and that the named cause is why.

Both are constants of the rule. The [campaign](accuracy.md) plays random incidents on a model of an API server, and
counts how often each rule is right: these shares are what the constants should be, and stand beside them below.

How to read what was measured:

- A verdict counts once for each webhook, rule and cause of an incident, however often it comes back.
- The webhook was at fault when it had a fault during the verdict or in the 70 s before it. The cause was right when it
  is that fault's.
- The shares of a rule that only suspects are of all its suspicions, however short.
- \"Named\" means: of all faults that users felt, the rule called the right webhook `Failing`. Several rules may name one
  fault in turn, so these shares add up to more than 100 %; \"before any other rule\" counts each fault once.
- The incidents come from a model. Its cluster is not yours, so take the shares as an order of rules and not as a promise.

## What is never done

- Silence is never healthy. A webhook without evidence is `Unknown`.
- High latency alone accuses no webhook. A slow webhook must also explain why writes are slow.
- Probes alone accuse no webhook at once. They must fail for `dead_alone`, at least twice, with the way to the pods open.
- A name that does not resolve for hookwatch accuses no webhook by itself: API servers may ask other name servers.
- Probes alone never say that writes are refused. A call, a canary or the inventory must show it.
- When no backend of anything answers, probes accuse no webhook: the fault may be hookwatch's own.
- A webhook's own words accuse no webhook. Only a refusal that begins with the API server's words does.
- Counters of a name that several webhooks share accuse none of them by themselves.
- Denials are no fault. A webhook that denies a lot is `Suspect` at most. Where it denies writes of the control plane's kinds that it
  let through before, writes are `Blocked`, and that is told without a culprit.
- A webhook without rules is never `Failing`, whatever its probes say: the API server does not call it.
- Nothing is learned that moves a rule, its place or its numbers. The same recording gives the same verdicts.
- A verdict changes nothing in the cluster. A [bypass](breaker.md) is decided apart, and needs two witnesses that do not
  depend on each other.

";

const TAIL: &str = "\
## How to change it

| To change | Edit |
|---|---|
| a rule, its place, its verdict or its two numbers; which rules the breaker does not act on | [`rules.rs`](../src/domain/diagnose/rules.rs) |
| the conditions that rules name | [`conditions.rs`](../src/domain/diagnose/conditions.rs) |
| a threshold | [`thresholds.rs`](../src/domain/thresholds.rs) |
| when probes call one backend dead or slow | [`probing.rs`](../src/domain/observe/probing.rs) |
| what the probes of all backends add up to | [`probes.rs`](../src/domain/diagnose/probes.rs) |
| when counters say that calls fail or are slow | [`counters.rs`](../src/domain/diagnose/counters.rs) |
| which canaries and refusals name a webhook | [`canaries.rs`](../src/domain/observe/canaries.rs), [`evidence.rs`](../src/domain/diagnose/evidence.rs) |
| pooled connections and rollouts | [`passing.rs`](../src/domain/diagnose/passing.rs) |
| conversion webhooks and APIServices | [`extension.rs`](../src/domain/diagnose/extension.rs) |
| when writes flow, wait or are blocked | [`plane.rs`](../src/domain/diagnose/plane.rs) |
| trouble that is no webhook's | [`elsewhere.rs`](../src/domain/diagnose/plane/elsewhere.rs) |
| the sentences of a verdict | [`words.rs`](../src/domain/diagnose/words.rs) |

Then measure what the change does, write the new numbers into the table, and write this page again:

```sh
cargo run --release --example campaign -- fit --incidents 5000 --seed 1
cargo run --release --example campaign -- --incidents 5000 --seed 1 --output json > report.json
cargo run --release --features ablation --example campaign -- ablate --breaker skip --into ablation.json
cargo run --release --example campaign -- document --report report.json --ablation ablation.json > docs/diagnosis.md
```

Where the tables alone have changed, `HOOKWATCH_BLESS=1 cargo test --test repository diagnosis` writes the page with the
figures that it has.
";

/// The two confidences of a rule: that the webhook is at fault, and that the cause is right as well.
pub fn confidences(rule: &DiagnosisRule) -> (f64, f64) {
    (rule.webhook_confidence, rule.confidence)
}

/// The whole page. `measured` returns the measurements of a rule or threshold by its name, and for "" the run they are from.
pub fn page(measured: &dyn Fn(&str) -> Option<String>) -> String {
    let mut text = format!("{HEAD}## The rules\n\nIn the order in which they are tried.\n\n");
    push(&mut text, measured(""));
    for rule in TABLE {
        section(&mut text, rule, measured);
    }
    text.push_str("## The thresholds\n\n");
    for (title, about, table) in [
        ("From Kubernetes", FROM_KUBERNETES, KUBERNETES),
        ("Measured", "Measured on a real API server.", FROM_A_SERVER),
    ] {
        let _ = writeln!(text, "### {title}\n\n{about}\n\n{COLUMNS}\n|---|---|---|");
        for threshold in table {
            let _ = writeln!(text, "{}", row(threshold));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "### Chosen\n\n{FROM_HAND}\n");
    let _ = writeln!(text, "{COLUMNS} Half | Twice |\n|---|---|---|---|---|");
    for threshold in CHOSEN {
        let cost = measured(threshold.name).unwrap_or_else(|| "not tried | not tried".to_owned());
        let _ = writeln!(text, "{} {cost} |", row(threshold));
    }
    text.push('\n');
    text + TAIL
}

fn push(text: &mut String, measured: Option<String>) {
    let measured = measured.unwrap_or_else(|| "nothing yet.".to_owned());
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{MEASURED}{measured}\n");
}

fn section(text: &mut String, rule: &DiagnosisRule, measured: &dyn Fn(&str) -> Option<String>) {
    let _ = writeln!(text, "### `{}`\n\n{}\n", rule.name, joined(rule.needs));
    let (webhook, cause) = confidences(rule);
    let _ = match rule.health {
        Health::Failing | Health::Suspect => writeln!(
            text,
            "Verdict: **{:?}**. Confidence: webhook {webhook:.2}, cause {cause:.2}.\n",
            rule.health
        ),
        Health::Healthy => writeln!(text, "Verdict: **Healthy**. Confidence: {webhook:.2}.\n"),
        Health::Unknown => writeln!(text, "Verdict: **Unknown**.\n"),
    };
    if matches!(rule.health, Health::Failing | Health::Suspect) {
        push(text, measured(rule.name));
    }
}

/// Joins the lines of a comment in the code into one.
fn joined(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

const FROM_KUBERNETES: &str = "\
Constants of Kubernetes, or what follows from one, with their place in its source (release 1.36).";

const FROM_HAND: &str = "\
Chosen, not fitted. The last two columns say what half and twice the value change, as `campaign ablate` found it: in how many
of its incidents any verdict or action changes, by how many points the share of right (wrong) culprits moves,
and how many bypasses come sooner. A value of which both change nothing guards against what the campaign does not draw, or
bounds what is remembered or told.";

const COLUMNS: &str = "| Name | Value | What it means |";

fn row(threshold: &Threshold) -> String {
    let about = joined(threshold.about).replace('|', "\\|");
    // Intra-doc links become plain code.
    let about = about.replace("[`", "`").replace("`]", "`");
    format!("| `{}` | {} | {about} |", threshold.name, value(threshold.value))
}

/// Formats `s(90)` as 90 s and `ms(5_500)` as 5500 ms.
fn value(code: &str) -> String {
    let code = code.replace('_', "");
    let inside = |unit: &str| {
        let number = code.strip_prefix(unit)?.strip_prefix('(')?.strip_suffix(')')?;
        Some(format!("{number} {unit}"))
    };
    inside("s").or_else(|| inside("ms")).unwrap_or(code)
}
