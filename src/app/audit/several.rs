//! Several clusters in one call: each is audited separately, and reports are printed even if another cluster cannot be
//! audited.

use std::process::ExitCode;

use futures::future::join_all;
use serde_json::{Value, json};

use super::baseline::AuditBaseline;
use super::{
    AuditArguments, AuditOutput, AuditReport, NOT_AUDITED, NotChosen, exit_code, formats, of_cluster, report,
    text,
};
use crate::app::progress::during;
use crate::app::{BAD_USAGE, BadUsage, contexts, print, to_json};
use crate::domain::text::bounded;

/// Every exit code, the worst last: a missing context does not hide a critical finding, and a cluster that cannot be
/// audited does not hide a missing context.
const WORST_LAST: [u8; 5] = [0, 1, NOT_AUDITED, BAD_USAGE, 2];
/// The code of a cluster without the webhook of `--if-down`: the same as without a finding.
const NOT_THERE: u8 = 0;

/// A report, or the exit code and the reason for its absence.
type ContextAudit = Result<AuditReport, (u8, String)>;

/// Audits the clusters of all contexts and prints one report on each.
pub(super) async fn audit(arguments: &AuditArguments) -> anyhow::Result<ExitCode> {
    if let Some(why) = refused(arguments) {
        return Err(BadUsage::new(why).into());
    }
    let audits = arguments.context.iter().map(|context| async move {
        let of_one = AuditArguments {
            context: vec![context.clone()],
            ..arguments.clone()
        };
        let read = of_cluster(&of_one).await;
        let audited = read.and_then(|(estate, unreadable)| {
            Ok(report(&estate, &unreadable, &of_one, &AuditBaseline::default())?)
        });
        let audited = audited.map_err(|error| (code_of(&error), bounded(&error.to_string())));
        (context.as_str(), audited)
    });
    let what = format!("reading {} clusters", arguments.context.len());
    let audits: Vec<(&str, ContextAudit)> = during(&what, join_all(audits)).await;
    print(&match arguments.output {
        AuditOutput::Json => to_json(&document(&audits))?,
        // The last two are refused above.
        AuditOutput::Text | AuditOutput::Sarif | AuditOutput::Junit => told(&audits),
    })?;
    Ok(ExitCode::from(worst(&audits)))
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(NotChosen::Missing(..)) => NOT_THERE,
        Some(NotChosen::Ambiguous(..)) => BAD_USAGE,
        None if error.is::<BadUsage>() => BAD_USAGE,
        None => NOT_AUDITED,
    }
}

/// The exit code of all. A webhook that no cluster has is bad usage.
fn worst(audits: &[(&str, ContextAudit)]) -> u8 {
    if audits
        .iter()
        .all(|(_, audited)| matches!(audited, Err((NOT_THERE, _))))
    {
        return BAD_USAGE;
    }
    let codes = audits.iter().map(|(_, audited)| match audited {
        Ok(report) => exit_code(&report.findings),
        Err((code, _)) => *code,
    });
    contexts::worst(&WORST_LAST, codes)
}

/// Why several contexts cannot be combined with the other arguments.
fn refused(arguments: &AuditArguments) -> Option<String> {
    let why = if arguments.write_baseline.is_some() {
        "--write-baseline takes the findings of one cluster: give one --context"
    } else if arguments.baseline.is_some() {
        "--baseline accepts findings of one cluster, and would hide those of others: give one --context"
    } else if matches!(arguments.output, AuditOutput::Sarif | AuditOutput::Junit) {
        "SARIF and JUnit are of one cluster: give one --context"
    } else {
        return contexts::refusal(&arguments.context).map(|what| format!("--context {what}"));
    };
    Some(why.to_owned())
}

fn document(audits: &[(&str, ContextAudit)]) -> Value {
    let contexts = audits.iter().map(|(context, audited)| {
        let mut document = match audited {
            Ok(report) => formats::document(report),
            Err(_) => json!({"findings": [], "forecasts": []}),
        };
        document["context"] = (*context).into();
        document["error"] = audited.as_ref().err().map(|(_, why)| why.clone()).into();
        document
    });
    json!({ "contexts": contexts.collect::<Vec<_>>() })
}

fn told(audits: &[(&str, ContextAudit)]) -> String {
    let one = |(context, audited): &(&str, ContextAudit)| match audited {
        Ok(report) => format!("context {context}\n{}", text::report(report)),
        Err((_, why)) => format!("context {context}\nNOT AUDITED: {why}\n"),
    };
    audits.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::domain::audit::Finding;
    use crate::domain::audit::findings::UNREADABLE_INPUT;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: AuditArguments,
    }

    fn why(line: &str) -> Option<String> {
        let words = ["audit", "--context", "a", "--context", "b"].into_iter();
        let parsed = Line::try_parse_from(words.chain(line.split_whitespace())).unwrap();
        refused(&parsed.arguments)
    }

    #[test]
    fn what_would_mix_clusters_up_is_refused() {
        assert_eq!(why(""), None);
        assert_eq!(why("--if-down c/w --output json"), None);
        for line in [
            "--baseline f",
            "--write-baseline f",
            "--output sarif",
            "--output junit",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn a_cluster_without_the_webhook_hides_no_exit_code_and_a_webhook_that_none_has_is_bad_usage() {
        let failed = |error: anyhow::Error| ("x", Err((code_of(&error), String::new())));
        let missing = || failed(NotChosen::Missing("c".to_owned(), "w".to_owned()).into());
        let unread = || failed(anyhow::anyhow!("no way to it"));
        let warned = || {
            let findings = vec![Finding::new(UNREADABLE_INPUT, String::new(), String::new())];
            let report = AuditReport {
                findings,
                accepted: 0,
                forecasts: Vec::new(),
                hooks: 1,
                is_cluster: true,
                in_depth: true,
                source: String::new(),
            };
            ("x", Ok(report))
        };
        assert_eq!(worst(&[missing(), warned()]), 1);
        assert_eq!(worst(&[missing(), unread()]), NOT_AUDITED);
        assert_eq!(
            worst(&[warned(), failed(BadUsage::new("no such context").into())]),
            BAD_USAGE
        );
        assert_eq!(worst(&[missing(), missing()]), BAD_USAGE);
    }
}
