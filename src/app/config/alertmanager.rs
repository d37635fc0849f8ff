//! The section `alertmanager`: the Alertmanagers that alerts are pushed to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Section, endpoint};
use crate::domain::report::alerts::{DeliveryPace, LABELS};
use crate::io::endpoint::EndpointTarget;
use crate::io::report::alertmanager::{AlertEnvelope, MAX_ALERTMANAGERS};

/// Most labels that can be added to every alert.
const MAX_LABELS: usize = 32;
/// Most bytes in the value of an added label.
const MAX_VALUE: usize = 1_024;

/// Where alerts are pushed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertmanagerConfig {
    /// Every Alertmanager; none to push nothing.
    pub targets: Vec<EndpointTarget>,
    /// How often alerts are pushed, and how long one push may take.
    pub pace: DeliveryPace,
    /// What is the same for every alert: its added labels, its link and its lifetime.
    pub envelope: AlertEnvelope,
}

impl AlertmanagerConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let targets = section.list("targets", target);
        if targets.len() > MAX_ALERTMANAGERS {
            section.error("targets", format!("are more than {MAX_ALERTMANAGERS}"));
        }
        for (at, target) in targets.iter().enumerate() {
            let name = target.name();
            if targets[..at].iter().any(|other| other.name() == name) {
                section.error("targets", format!("name {name} twice"));
            }
        }
        let second = Duration::from_secs(1);
        let pace = DeliveryPace {
            resend: section.duration("resendInterval", Duration::from_secs(30), second),
            timeout: section.duration("timeout", Duration::from_secs(10), second),
        };
        let generator_url = section.read("externalURL", endpoint::address).map(String::from);
        let envelope = AlertEnvelope {
            labels: labels(section),
            generator_url,
            ahead: pace.ahead(),
        };
        Self {
            targets,
            pace,
            envelope,
        }
    }
}

fn target(section: &mut Section<'_>) -> Option<EndpointTarget> {
    let url = section.required_text("url");
    endpoint::read(section, url, |url| {
        let says_more = url.path().contains("/api/v2");
        says_more.then_some("is to end before /api/v2/alerts, which hookwatch adds")
    })
}

fn labels(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let labels = section.texts("labels");
    if labels.len() > MAX_LABELS {
        section.error("labels", format!("are more than {MAX_LABELS}"));
    }
    for (name, value) in &labels {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let key = format!("labels.{name}");
        if !name.chars().all(is_word) || name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            section.error(
                &key,
                "is no name of a label: letters, digits and _, no digit first",
            );
        } else if name.starts_with("__") {
            section.error(&key, "begins with __, which is Prometheus's own");
        } else if LABELS.contains(&name.as_str()) {
            section.error(&key, "is set by hookwatch itself");
        } else if value.is_empty() || value.len() > MAX_VALUE {
            section.error(&key, format!("must have 1 to {MAX_VALUE} bytes"));
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArguments};
    use super::*;
    use crate::io::endpoint::Auth;

    fn parse(text: &str) -> Result<AlertmanagerConfig, Vec<String>> {
        match Config::parse(text, &ConfigArguments::default()) {
            Ok(config) => Ok(config.alertmanager),
            Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
        }
    }

    #[test]
    fn nothing_is_pushed_unless_it_is_said_where() {
        let config = parse("").unwrap();
        assert_eq!(config.targets, []);
        assert_eq!(config.pace.ahead(), Duration::from_secs(130));
        assert_eq!(config.envelope.ahead, config.pace.ahead());
    }

    #[test]
    fn an_alertmanager_is_called_by_its_address_with_the_prefix() {
        let config = parse(
            "alertmanager: {labels: {cluster: prod}, externalURL: 'https://hookwatch.example.com/', targets: [
               {url: 'http://127.0.0.1:9093', username: u, passwordFile: /p},
               {url: 'https://am.example.com/a/b/', caFile: /ca, certFile: /c, keyFile: /k, tokenFile: /t},
               {url: 'http://[::1]:9093'}]}",
        )
        .unwrap();
        let names: Vec<_> = config.targets.iter().map(EndpointTarget::name).collect();
        assert_eq!(names, ["127.0.0.1:9093", "am.example.com:443/a/b", "[::1]:9093"]);
        assert_eq!(config.envelope.labels["cluster"], "prod");
        assert_eq!(
            config.targets[0].auth,
            Auth::Basic {
                username: "u".to_owned(),
                password_file: "/p".into()
            }
        );
        assert_eq!(
            config.targets[1].client_certificate,
            Some(("/c".into(), "/k".into()))
        );
    }

    #[test]
    fn every_mistake_is_named_by_its_key_and_a_password_is_not_repeated() {
        let text =
            "alertmanager: {resendInterval: 1ms, labels: {'1a': b, __a: b, severity: x, empty: '', n: 1},
            externalURL: 'example.com', targets: [
              {url: 'https://u:hunter2@am.example.com'},
              {url: 'hunter2 with spaces'},
              {url: 'ftp://am.example.com'},
              {url: 'https://am.example.com/api/v2/alerts'},
              {url: 'https://am.example.com/?a=b'},
              {},
              {url: 'https://a', certFile: /c},
              {url: 'https://a:443/', keyFile: /k},
              {url: 'http://b', username: u},
              {url: 'http://c', passwordFile: /p},
              {url: 'http://d', username: 'a:b', passwordFile: /p},
              {url: 'http://e', username: u, passwordFile: /p, tokenFile: /t, password: hunter2},
              {url: 'http://f', caFile: /c}]}";
        let errors = parse(text).unwrap_err();
        let keys: Vec<_> = errors
            .iter()
            .map(|error| {
                error
                    .split(": ")
                    .next()
                    .unwrap()
                    .trim_start_matches("alertmanager.")
            })
            .collect();
        assert_eq!(
            keys,
            [
                "targets[0].url",
                "targets[1].url",
                "targets[2].url",
                "targets[3].url",
                "targets[4].url",
                "targets[5].url",
                "targets[6].keyFile",
                "targets[7].certFile",
                "targets[8].passwordFile",
                "targets[9].username",
                "targets[10].username",
                "targets[11].tokenFile",
                "targets[11].password",
                "targets[12].url",
                "targets",
                "resendInterval",
                "externalURL",
                "labels.n",
                "labels.1a",
                "labels.__a",
                "labels.empty",
                "labels.severity",
            ]
        );
        assert!(!errors.concat().contains("hunter2"), "{errors:?}");
    }

    #[test]
    fn more_alertmanagers_than_a_person_can_mean_are_refused() {
        let targets: Vec<_> = (0..17).map(|n| format!("{{url: 'http://a{n}'}}")).collect();
        let text = format!("alertmanager: {{targets: [{}]}}", targets.join(", "));
        assert_eq!(
            parse(&text).unwrap_err(),
            ["alertmanager.targets: are more than 16"]
        );
    }
}
