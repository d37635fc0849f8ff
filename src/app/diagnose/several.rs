//! Several clusters in one call: each is diagnosed separately and concurrently, and one that is unreachable does not
//! affect the others.

use std::process::ExitCode;

use futures::future::join_all;

use super::{Conclusion, DiagnoseArguments, Look, examine, report};
use crate::app::config::{Config, ConfigArguments, ConfigError};
use crate::app::progress::{ProgressLine, during};
use crate::app::{BAD_USAGE, BadUsage, Output, contexts, print, print_text, to_json};
use crate::domain::text::bounded;

/// Every exit code, the worst last: a script must not miss an outage (1, 3), and then a context that is not there (64).
const WORST_LAST: [u8; 5] = [0, 2, BAD_USAGE, 3, 1];

/// One configuration for each named context, or one without a context if none is named.
///
/// # Errors
/// All mistakes found.
pub fn configs(arguments: &ConfigArguments) -> Result<Vec<Config>, Vec<ConfigError>> {
    let load = |arguments: &ConfigArguments| -> Result<Config, Vec<ConfigError>> {
        let config = Config::load(arguments)?;
        // The folder in the file is for the daemon: this process may run as another user, and would mix two recordings.
        let record = config.record.filter(|_| arguments.record.is_some());
        Ok(Config { record, ..config })
    };
    let contexts = &arguments.context;
    if contexts.len() < 2 {
        return Ok(vec![load(arguments)?]);
    }
    let mistake = |key: &str, what: &str| Err(vec![ConfigError::new(key, what)]);
    if let Some(what) = contexts::refusal(contexts) {
        return mistake("--context", &what);
    }
    let of_one = |context: &String| {
        load(&ConfigArguments {
            context: vec![context.clone()],
            ..arguments.clone()
        })
    };
    let configs = contexts.iter().map(of_one).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = configs.first() else {
        return Ok(configs);
    };
    if first.record.is_some() {
        return mistake(
            "--record",
            "takes the observations of one cluster: give one --context",
        );
    }
    if first.prometheus.is_some() {
        let typed = arguments.prometheus.prometheus.is_some();
        return mistake(
            if typed { "--prometheus" } else { "prometheus" },
            "has the metrics of one cluster: give one --context, or leave it out",
        );
    }
    Ok(configs)
}

pub(super) async fn diagnose(
    configs: Vec<Config>,
    arguments: &DiagnoseArguments,
    program: &'static str,
) -> anyhow::Result<ExitCode> {
    let what = format!("looking at {} clusters", configs.len());
    let looks = configs.into_iter().map(|config| async {
        let context = config.context.clone().unwrap_or_default();
        let look = examine(config, arguments.at_most, program, &mut ProgressLine::off()).await;
        (context, look)
    });
    let looks: Vec<(String, anyhow::Result<Look>)> = during(&what, join_all(looks)).await;
    let codes: Vec<u8> = looks.iter().map(|(_, look)| code(look)).collect();
    let said = |look: anyhow::Result<Look>| look.map_err(|error| bounded(&format!("{error:#}")));
    let looks: Vec<_> = looks
        .into_iter()
        .map(|(context, look)| (context, said(look)))
        .collect();
    match arguments.output {
        Output::Json => print(&to_json(&document(&looks))?),
        Output::Text => print_text(&told(&looks)),
    }?;
    Ok(ExitCode::from(contexts::worst(&WORST_LAST, codes.into_iter())))
}

/// As with one cluster: an unreachable one is a usage error, and one that failed during the diagnosis is undecided.
fn code(look: &anyhow::Result<Look>) -> u8 {
    match look {
        Ok(look) => look.conclusion.exit_code(),
        Err(error) if error.is::<BadUsage>() => BAD_USAGE,
        Err(_) => Conclusion::CouldNotTell.exit_code(),
    }
}

fn document(looks: &[(String, Result<Look, String>)]) -> serde_json::Value {
    let contexts = looks.iter().map(|(context, look)| {
        let mut document = match look {
            Ok(look) => look.document(),
            Err(_) => super::document(Conclusion::CouldNotTell, None, &()),
        };
        document["context"] = context.as_str().into();
        document["error"] = look.as_ref().err().cloned().into();
        document
    });
    serde_json::json!({ "contexts": contexts.collect::<Vec<_>>() })
}

fn told(looks: &[(String, Result<Look, String>)]) -> String {
    let said = |look: &Result<Look, String>| match look {
        Ok(look) => look.conclusion.sentence().to_owned(),
        Err(why) => format!("NOT DIAGNOSED: {why}"),
    };
    let lines = looks
        .iter()
        .map(|(context, look)| format!("{context}: {}\n", said(look)));
    let mut text: String = lines.collect();
    for (context, look) in looks {
        if let Ok(look) = look {
            text += &format!("\ncontext {context}\n{}", report::report(look));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_clusters_is_an_outage_and_then_a_context_that_is_not_there() {
        for (codes, expected) in [
            (vec![0, 0], 0),
            (vec![0, 2], 2),
            (vec![2, 64, 0], 64),
            (vec![64, 3], 3),
            (vec![3, 1, 64], 1),
        ] {
            assert_eq!(
                contexts::worst(&WORST_LAST, codes.iter().copied()),
                expected,
                "{codes:?}"
            );
        }
    }

    #[test]
    fn one_look_is_recorded_where_that_is_typed_and_not_where_the_daemon_of_the_file_records() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "record: {directory: /var/lib/hookwatch}").unwrap();
        let mut arguments = ConfigArguments {
            config: Some(file.path().to_owned()),
            ..ConfigArguments::default()
        };
        let recorded = |arguments: &ConfigArguments| configs(arguments).unwrap()[0].record.is_some();
        assert!(!recorded(&arguments));
        arguments.record = Some("/tmp/x".into());
        assert!(recorded(&arguments));
    }

    #[test]
    fn what_would_mix_clusters_up_is_refused() {
        let of = |names: &[&str]| ConfigArguments {
            context: names.iter().map(|name| (*name).to_owned()).collect(),
            ..ConfigArguments::default()
        };
        let key = |arguments: &ConfigArguments| configs(arguments).unwrap_err()[0].key.clone();
        assert_eq!(key(&of(&["a", "b", "a"])), "--context");
        let mut with = of(&["a", "b"]);
        with.prometheus.prometheus = Some("http://127.0.0.1:9090".to_owned());
        assert_eq!(key(&with), "--prometheus");
        let mut with = of(&["a", "b"]);
        with.record = Some("/tmp/x".into());
        assert_eq!(key(&with), "--record");
        let configs = configs(&of(&["a", "b"])).unwrap();
        let named: Vec<_> = configs.iter().map(|config| config.context.as_deref()).collect();
        assert_eq!(named, [Some("a"), Some("b")]);
    }
}
