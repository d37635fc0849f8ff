//! The section `prometheus`: a Prometheus that is read while the API servers cannot be scraped.

use std::path::PathBuf;
use std::time::Duration;

use super::{MIB, Section, endpoint};
use crate::io::endpoint::{Auth, EndpointTarget};
use crate::io::observe::ReadingLimits;
use crate::io::observe::prometheus::{SELECTOR, selector};

const NEEDS_URL: [&str; 7] = [
    "tokenFile",
    "caFile",
    "certFile",
    "keyFile",
    "username",
    "passwordFile",
    "selector",
];

/// What was given of it on the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PrometheusArguments {
    /// A Prometheus to read the API servers' metrics from while they cannot be scraped
    #[arg(long, env = "HOOKWATCH_PROMETHEUS", value_name = "URL")]
    pub prometheus: Option<String>,
    /// File with the bearer token for it
    #[arg(long, env = "HOOKWATCH_PROMETHEUS_TOKEN_FILE", value_name = "FILE")]
    pub prometheus_token_file: Option<PathBuf>,
    /// PEM file with the authorities that may have signed its certificate
    #[arg(long, env = "HOOKWATCH_PROMETHEUS_CA_FILE", value_name = "FILE")]
    pub prometheus_ca_file: Option<PathBuf>,
    /// Matchers for the API servers of this cluster, for example job="apiserver",cluster="prod"
    #[arg(long, env = "HOOKWATCH_PROMETHEUS_SELECTOR", value_name = "MATCHERS")]
    pub prometheus_selector: Option<String>,
}

/// Which Prometheus is read, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusConfig {
    /// Its URL, the CA to trust, and hookwatch's credentials.
    pub target: EndpointTarget,
    /// Matchers for the series of this cluster's API servers.
    pub selector: String,
    /// Time between two readings. 1 s to 1 min.
    pub interval: Duration,
    /// Bounds of one reading.
    pub limits: ReadingLimits,
}

impl PrometheusConfig {
    /// `None` without a valid URL.
    pub(super) fn read(section: &mut Section<'_>, typed: &PrometheusArguments) -> Option<Self> {
        let in_file = NEEDS_URL.iter().any(|key| section.says(key));
        let url = section.text("url");
        let url = typed.prometheus.clone().or(url);
        let is_set = url.is_some();
        let target = endpoint::read(section, url, |url| {
            let says_more = url.path().contains("/api/v1");
            says_more.then_some("is to end before /api/v1/query, which hookwatch adds")
        });
        let chosen = section.text("selector");
        let chosen = typed.prometheus_selector.clone().or(chosen);
        let chosen = selector(chosen.as_deref().unwrap_or(SELECTOR));
        let chosen = chosen.map_err(|why| section.error("selector", why)).ok();
        let second = Duration::from_secs(1);
        let interval = section.duration("interval", Duration::from_secs(15), second);
        let limits = ReadingLimits {
            timeout: section.duration("timeout", Duration::from_secs(10), second),
            max_bytes: section.number("maxMebibytes", 64, 1..=1_024) * MIB,
        };
        let typed_without = [
            typed.prometheus_token_file.is_some(),
            typed.prometheus_ca_file.is_some(),
            typed.prometheus_selector.is_some(),
        ];
        if !is_set && (in_file || typed_without.contains(&true)) {
            section.error("url", "is missing: give --prometheus or the key");
        }
        let mut target = target?;
        if let Some(token_file) = typed.prometheus_token_file.clone() {
            target.auth = Auth::Bearer { token_file };
        }
        if typed.prometheus_ca_file.is_some() && target.url.scheme() == "http" {
            section.error(
                "url",
                "must begin with https:// where --prometheus-ca-file is given",
            );
        }
        target.ca_file = typed.prometheus_ca_file.clone().or(target.ca_file);
        Some(Self {
            target,
            selector: chosen?,
            interval,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArguments};
    use super::*;

    fn parse(text: &str, typed: PrometheusArguments) -> Result<Option<PrometheusConfig>, Vec<String>> {
        let arguments = ConfigArguments {
            prometheus: typed,
            ..ConfigArguments::default()
        };
        match Config::parse(text, &arguments) {
            Ok(config) => Ok(config.prometheus),
            Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
        }
    }

    #[test]
    fn none_is_read_unless_its_address_is_given() {
        assert_eq!(parse("", PrometheusArguments::default()), Ok(None));
        let alone = PrometheusArguments {
            prometheus_selector: Some("job=\"apiserver\"".to_owned()),
            ..PrometheusArguments::default()
        };
        let by_flag = parse("", alone).unwrap_err();
        let by_key = parse("prometheus: {tokenFile: /t}", PrometheusArguments::default()).unwrap_err();
        for errors in [by_flag, by_key] {
            assert!(errors[0].starts_with("prometheus.url: is missing"), "{errors:?}");
        }
    }

    #[test]
    fn a_key_without_a_value_is_as_one_that_is_not_there() {
        let text = "prometheus: {url: , tokenFile: , caFile: , selector: }";
        assert_eq!(parse(text, PrometheusArguments::default()), Ok(None));
    }

    #[test]
    fn authorities_that_are_typed_want_tls_as_those_in_the_file_do() {
        let typed = || PrometheusArguments {
            prometheus_ca_file: Some("/ca".into()),
            ..PrometheusArguments::default()
        };
        let errors = parse("prometheus: {url: 'http://p:9090'}", typed()).unwrap_err();
        assert!(
            errors[0].starts_with("prometheus.url: must begin with https://"),
            "{errors:?}"
        );
        assert!(parse("prometheus: {url: 'https://p:9090'}", typed()).is_ok());
    }

    #[test]
    fn what_is_typed_overrides_the_file() {
        let typed = PrometheusArguments {
            prometheus: Some("https://thanos.example.com/prefix/".to_owned()),
            prometheus_token_file: Some("/typed".into()),
            prometheus_ca_file: None,
            prometheus_selector: Some("{cluster=\"prod\", job=\"apiserver\"}".to_owned()),
        };
        let text = "prometheus: {url: 'http://127.0.0.1:9090', username: u, passwordFile: /p, caFile: /ca, interval: 30s}";
        let config = parse(text, typed).unwrap().unwrap();
        assert_eq!(config.target.name(), "thanos.example.com:443/prefix");
        assert_eq!(
            config.target.auth,
            Auth::Bearer {
                token_file: "/typed".into()
            }
        );
        assert_eq!(config.target.ca_file, Some("/ca".into()));
        assert_eq!(config.selector, "cluster=\"prod\", job=\"apiserver\"");
        assert_eq!(config.interval, Duration::from_secs(30));
    }

    #[test]
    fn an_address_or_a_selector_that_cannot_be_right_is_refused_with_what_would_be() {
        for (text, says) in [
            ("{url: 'http://p:9090/api/v1/query'}", "end before /api/v1/query"),
            (
                "{url: 'http://u:hunter2@p:9090'}",
                "must not have a user or password",
            ),
            ("{url: 'http://p', selector: apiserver}", "must be matchers"),
            (
                "{url: 'http://p', selector: '__name__=\"up\"'}",
                "hookwatch adds the names",
            ),
            ("{url: 'http://p', maxMebibytes: 0}", "prometheus.maxMebibytes"),
            ("{url: 'http://p', query: up}", "prometheus.query"),
        ] {
            let errors = parse(&format!("prometheus: {text}"), PrometheusArguments::default()).unwrap_err();
            let told = errors.join("; ");
            assert!(told.contains(says) && !told.contains("hunter2"), "{told}");
        }
    }
}
