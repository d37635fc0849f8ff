//! How soon one broken webhook is found among a thousand, compared with a single one.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::document::{Section, Table};
use crate::estate::{self, Size};
use crate::noise::{Samples, digits};
use crate::watched::Watched;

const RUNS: u32 = 30;
const NONE: Size = Size {
    webhooks: 0,
    paths: 1,
    services: 0,
    endpoints: 0,
    host: None,
};
const MANY: Size = Size {
    webhooks: 999,
    services: 40,
    endpoints: 3,
    ..NONE
};
/// Each fault begins this much later in the daemon's probe interval than the one before.
const PHASE: Duration = Duration::from_millis(370);

/// Measures both at the same time.
///
/// # Errors
/// When the daemon's binary is missing or does not start, or a fault is not found.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let mut section = Section::new("One broken webhook among many");
    if quick {
        section.skip("A fault among a thousand webhooks", "this was a quick run");
        return Ok(section);
    }
    let (alone, among) = Runtime::new()?.block_on(async {
        // Both at once, so that other load on the machine affects both.
        let alone = Watched::start(1, 0, async |client| estate::build(client, NONE).await).await?;
        let among =
            Watched::start(2, MANY.services, async |client| estate::build(client, MANY).await).await?;
        let (mut found_alone, mut found_among) = (Samples::default(), Samples::default());
        for run in 0..RUNS {
            let (one, other) = tokio::try_join!(alone.breaks(), among.breaks())?;
            eprintln!("  {run}: alone {:.1} s, among a thousand {:.1} s", one, other);
            found_alone.push(one);
            found_among.push(other);
            tokio::try_join!(alone.recovers(), among.recovers())?;
            tokio::time::sleep(PHASE * (run + 1)).await;
        }
        anyhow::Ok((found_alone, found_among))
    })?;
    section.say(&format!(
        "A webhook with a backend of its own hangs; `hookwatch run` with default settings watches it beside the embedded control \
         plane. It meets no writes, so its probes alone find it. The same fault at the same instant, {RUNS} times, for a daemon \
         that watches it alone and for one that watches 999 others on 40 Services of three endpoints. Seconds from the fault to \
         a verdict that names its cause (Hanging; Suspect, as nothing else meets the webhook)."
    ));
    let mut table = Table::new(&["Webhooks", "Median", "95 %", "Worst"]);
    for (webhooks, found) in [("1", &alone), ("1000", &among)] {
        table.row(&[
            webhooks.to_owned(),
            found.to_string(),
            digits(found.quantile(0.95)),
            digits(found.quantile(1.0)),
        ]);
    }
    section.table(table);
    // With faults at random instants of a 5 s interval, the medians of 30 faults differ by a tenth by chance.
    for (part, what) in [(0.5, "medians"), (0.95, "95 %")] {
        section.goal(
            &format!("found among a thousand / found alone, by the {what}"),
            std::iter::once(among.quantile(part) / alone.quantile(part)).collect(),
            "1.2 or less",
            |ratio| ratio <= 1.2,
        );
    }
    Ok(section)
}
