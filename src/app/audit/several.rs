//! Several clusters in one call: each is audited by itself, and a report on one is printed though another cannot be audited.

use std::process::ExitCode;

use futures::future::join_all;
use serde_json::{Value, json};

use super::baseline::AuditBaseline;
use super::{
    AuditArguments, AuditOutput, AuditReport, NOT_AUDITED, exit_code, formats, of_cluster, report, text,
};
use crate::app::progress::during;
use crate::app::{BAD_USAGE, BadUsage, contexts, print, to_json};
use crate::domain::text::bounded;

/// Every exit code, the worst last: a critical finding is not hidden by a context that is not there, nor that by a cluster
/// that cannot be audited.
const WORST_LAST: [u8; 5] = [0, 1, NOT_AUDITED, BAD_USAGE, 2];

type Audited = Result<AuditReport, (u8, String)>;

/// Audits the clusters of all contexts and prints one report on each.
pub(super) async fn audit(arguments: &AuditArguments, baseline: &AuditBaseline) -> anyhow::Result<ExitCode> {
    if let Some(why) = refused(arguments) {
        return Err(BadUsage::new(why).into());
    }
    let audits = arguments.context.iter().map(|context| async move {
        let read = of_cluster(arguments, Some(context)).await;
        let audited =
            read.and_then(|(estate, unreadable)| Ok(report(&estate, &unreadable, arguments, baseline)?));
        let audited = audited.map_err(|error| {
            let is_usage = error.is::<BadUsage>();
            let code = if is_usage { BAD_USAGE } else { NOT_AUDITED };
            (code, bounded(&error.to_string()))
        });
        (context.as_str(), audited)
    });
    let what = format!("reading {} clusters", arguments.context.len());
    let audits: Vec<(&str, Audited)> = during(&what, join_all(audits)).await;
    print(&match arguments.output {
        AuditOutput::Json => to_json(&document(&audits))?,
        _ => told(&audits),
    })?;
    let codes = audits.iter().map(|(_, audited)| match audited {
        Ok(report) => exit_code(&report.findings),
        Err((code, _)) => *code,
    });
    Ok(ExitCode::from(contexts::worst(&WORST_LAST, codes)))
}

/// Why several contexts do not go with the rest.
fn refused(arguments: &AuditArguments) -> Option<String> {
    let why = if !arguments.paths.is_empty() {
        "manifests are audited without any context"
    } else if arguments.write_baseline.is_some() {
        "--write-baseline takes the findings of one cluster: give one --context"
    } else if matches!(arguments.output, AuditOutput::Sarif | AuditOutput::Junit) {
        "SARIF and JUnit are of one cluster: give one --context"
    } else {
        return contexts::refusal(&arguments.context).map(|what| format!("--context {what}"));
    };
    Some(why.to_owned())
}

fn document(audits: &[(&str, Audited)]) -> Value {
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

fn told(audits: &[(&str, Audited)]) -> String {
    let one = |(context, audited): &(&str, Audited)| match audited {
        Ok(report) => format!("context {context}\n{}", text::report(report)),
        Err((_, why)) => format!("context {context}\nNOT AUDITED: {why}\n"),
    };
    audits.iter().map(one).collect::<Vec<_>>().join("\n")
}
