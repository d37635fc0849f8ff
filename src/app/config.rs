//! The configuration: read from a file, the environment and flags, and checked as a whole before anything is opened.
//!
//! Three sources, the later overriding the earlier: a YAML file, the environment, flags. Every mistake in them is
//! reported at once, each with its key, so a file need not be fixed one error at a time.

mod alertmanager;
mod breaker;
mod canaries;
mod endpoint;
mod leadership;
mod prometheus;
mod record;
mod section;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::section::{Notes, Section};
use crate::domain::act::breaker::BreakerTimes;
use crate::domain::act::breaker::policy::Policy;
use crate::domain::act::fence::AutoBreak;
use crate::domain::cluster::hook::{HookId, ProbeLevel};
use crate::domain::observe::schedule::Rates;
use crate::domain::text::is_dns_label;
use crate::io::act::breaker::RetryPolicy;
use crate::io::observe::ReadingLimits;

pub use alertmanager::AlertmanagerConfig;
pub use canaries::CanaryConfig;
pub use leadership::LeadershipConfig;
pub use prometheus::{PrometheusArguments, PrometheusConfig};
pub use record::RecordConfig;
pub use serve::ServeConfig;

/// Largest configuration file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// What was given on the command line or in the environment; the same for every command that meets a cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArguments {
    /// YAML file with the configuration
    #[arg(long, env = "HOOKWATCH_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig to use; default: as kubectl finds it, or the Pod's own account
    #[arg(long, env = "HOOKWATCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; for `diagnose` it may be given several times
    #[arg(long, env = "HOOKWATCH_CONTEXT", value_name = "NAME")]
    pub context: Vec<String>,
    /// Namespace of hookwatch, where it writes its own canary
    #[arg(long, env = "HOOKWATCH_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Address for the status page, /metrics, /live, /ready and the API
    #[arg(long, env = "HOOKWATCH_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Folder to write every observation to, for `replay`
    #[arg(long, env = "HOOKWATCH_RECORD", value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// What hookwatch does about a culprit: off, plan or on [default: plan; without a value: on]
    ///
    /// With `plan` it only says what it would do. With `on` it bypasses the culprit as far as the section `breaker` of the
    /// configuration permits, and restores it, as long as the fence around its account is proven.
    #[arg(
        long,
        env = "HOOKWATCH_AUTO_BREAK",
        value_name = "MODE",
        num_args = 0..=1,
        default_missing_value = "on"
    )]
    pub auto_break: Option<String>,
    /// What stands in for scrapes
    #[command(flatten)]
    pub prometheus: PrometheusArguments,
}

/// The configuration, complete and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Kubeconfig file; `None` to infer it.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` for its current one.
    pub context: Option<String>,
    /// hookwatch's own namespace.
    pub namespace: String,
    /// Where the HTTP server listens.
    pub listen: SocketAddr,
    /// The HTTP server's separate listener for metrics, its token and its TLS.
    pub serve: ServeConfig,
    /// How the API servers are scraped.
    pub scrapes: ScrapeConfig,
    /// The Prometheus that is read while API servers cannot be scraped; `None` to read none.
    pub prometheus: Option<PrometheusConfig>,
    /// How backends are probed.
    pub probes: ProbeConfig,
    /// How canaries are written.
    pub canaries: CanaryConfig,
    /// Where observations are recorded; `None` for nowhere.
    pub record: Option<RecordConfig>,
    /// Whether a culprit is bypassed, or hookwatch only says so, or neither.
    pub auto_break: AutoBreak,
    /// Which bypasses are permitted.
    pub breaker: Policy,
    /// File to append one line of JSON to for every change of a webhook configuration; `None` for none.
    pub audit_log: Option<PathBuf>,
    /// Whether the breaker may act without a proven fence. No key sets this: only a lab without ValidatingAdmissionPolicies
    /// does.
    pub without_fence: bool,
    /// The breaker's time limits. No key sets them; tests shorten them.
    pub breaker_times: BreakerTimes,
    /// How often the breaker tries a change, and how long it waits for one answer. No key sets this either.
    pub breaker_retries: RetryPolicy,
    /// How several daemons agree on one that leads.
    pub leadership: LeadershipConfig,
    /// Whether the leader writes Kubernetes Events.
    pub events: bool,
    /// Where alerts are pushed.
    pub alertmanager: AlertmanagerConfig,
}

/// How the API servers are scraped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// False to do without the API servers' own metrics.
    pub enabled: bool,
    /// Time between two scrapes of one target in calm times. 1 s to 1 min.
    pub interval: Duration,
    /// The same while something is odd. 1 s to 1 min, and at most `interval`.
    pub alert_interval: Duration,
    /// The bounds of one scrape: 1 s to 1 min, 1 MiB to 4 GiB.
    pub limits: ReadingLimits,
}

/// How backends are probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeConfig {
    /// How far probes go by default.
    pub level: ProbeLevel,
    /// How often backends are probed: intervals of 1 s (500 ms when something is odd) to 1 min.
    pub rates: Rates,
    /// Probes in flight at once, over all hooks. 1 to 1000.
    pub concurrency: usize,
    /// Whether ClusterIPs are probed in addition to endpoints. They can be reached only from inside the cluster.
    pub cluster_ip: bool,
    /// Levels for single webhooks, by the names of configuration and webhook. They override the annotation on the object.
    pub hooks: BTreeMap<(String, String), ProbeLevel>,
}

impl ProbeConfig {
    /// The probe level of a hook: from its entry in `hooks`, else from its object's annotation, else the default. Only
    /// admission webhooks can be sent a review; for others the level is `Http` at most.
    pub fn level_of(&self, id: &HookId, annotation: Option<ProbeLevel>) -> ProbeLevel {
        let key = (id.configuration.to_string(), id.webhook.to_string());
        let level = self.hooks.get(&key).copied().or(annotation).unwrap_or(self.level);
        if id.kind.is_admission() {
            level
        } else {
            level.min(ProbeLevel::Http)
        }
    }
}

/// A mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct ConfigError {
    /// The key or flag that it is in, for example `probes.hooks[0].level`.
    pub key: String,
    /// What is wrong with it and what would be right.
    pub what: String,
}

impl ConfigError {
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            what: what.into(),
        }
    }
}

impl Config {
    /// Reads the file that the arguments name, if any, and checks everything together.
    ///
    /// # Errors
    /// All mistakes found.
    pub fn load(arguments: &ConfigArguments) -> Result<Self, Vec<ConfigError>> {
        let text = match &arguments.config {
            Some(path) => read(path).map_err(|error| vec![error])?,
            None => String::new(),
        };
        Self::parse(&text, arguments)
    }

    /// Checks the text of a configuration file together with the arguments.
    ///
    /// # Errors
    /// All mistakes found.
    pub fn parse(text: &str, arguments: &ConfigArguments) -> Result<Self, Vec<ConfigError>> {
        let unfit = |what: String| Err(vec![ConfigError::new("the file", what)]);
        let file = match serde_saphyr::from_str::<Value>(text) {
            _ if text.trim().is_empty() => Map::new(),
            Ok(Value::Object(file)) => file,
            Ok(Value::Null) => Map::new(),
            Ok(_) => return unfit("must be a mapping of keys to values".to_owned()),
            Err(error) => return unfit(format!("is not valid YAML: {error}")),
        };
        let mut notes = Notes::default();
        let config = Self::read(file, arguments, &mut notes);
        config.filter(|_| notes.errors.is_empty()).ok_or(notes.errors)
    }

    /// Every key that a configuration file can have, as in `probes.hooks[].level`.
    pub fn keys() -> BTreeSet<String> {
        let mut notes = Notes::default();
        // What is in a list is read only where the list has an entry.
        let file = Map::from_iter([
            ("probes".to_owned(), json!({"hooks": [{}]})),
            ("breaker".to_owned(), json!({"rules": [{}]})),
            ("canaries".to_owned(), json!({"further": [{}]})),
            ("alertmanager".to_owned(), json!({"targets": [{}]})),
        ]);
        Self::read(file, &ConfigArguments::default(), &mut notes);
        notes.known.iter().map(|key| key.replace("[0]", "[]")).collect()
    }

    /// Reads every key and notes what is wrong; `None` if there is no address to listen on.
    fn read(file: Map<String, Value>, arguments: &ConfigArguments, notes: &mut Notes) -> Option<Self> {
        let ConfigArguments {
            config: _,
            kubeconfig,
            context,
            namespace,
            listen,
            record,
            auto_break,
            prometheus,
        } = arguments;
        let mut file = Section {
            path: String::new(),
            keys: file,
            notes,
        };
        let kubeconfig = kubeconfig.clone().or(file.text("kubeconfig").map(PathBuf::from));
        let context = one_context(&mut file, context);
        let namespace = text_or(&mut file, "namespace", namespace.as_deref(), "hookwatch");
        let listen = text_or(&mut file, "listen", listen.as_deref(), "127.0.0.1:9880");
        let serve = file.section("serve", ServeConfig::read);
        let scrapes = file.section("scrapes", ScrapeConfig::read);
        let prometheus = file.section("prometheus", |section| {
            PrometheusConfig::read(section, prometheus)
        });
        let probes = file.section("probes", ProbeConfig::read);
        let canaries = file.section("canaries", CanaryConfig::read);
        let record = file.section("record", |section| RecordConfig::read(section, record.clone()));
        let auto_break = file.auto_break("autoBreak", auto_break.as_deref());
        let (breaker, audit_log) = file.section("breaker", breaker::read);
        let leadership = file.section("leadership", LeadershipConfig::read);
        let events = file.flag("events", true);
        let alertmanager = file.section("alertmanager", AlertmanagerConfig::read);
        file.refuse_the_rest();
        if !is_dns_label(&namespace) {
            file.error("namespace", format!("{namespace:?} cannot be a namespace's name"));
        }
        let listen = listener(&mut file, &listen, serve.metrics)?;
        Some(Self {
            kubeconfig,
            context,
            namespace,
            listen,
            serve,
            scrapes,
            prometheus,
            probes,
            canaries,
            record,
            auto_break,
            breaker,
            audit_log,
            without_fence: false,
            breaker_times: BreakerTimes::default(),
            breaker_retries: RetryPolicy::default(),
            leadership,
            events,
            alertmanager,
        })
    }
}

const MIB: u64 = 1 << 20;

impl ScrapeConfig {
    fn read(section: &mut Section<'_>) -> Self {
        let second = Duration::from_secs(1);
        let (interval, alert_interval) =
            section.intervals((Duration::from_secs(15), second), (2 * second, second));
        Self {
            enabled: section.flag("enabled", true),
            interval,
            alert_interval,
            limits: ReadingLimits {
                timeout: section.duration("timeout", Duration::from_secs(10), Duration::from_secs(1)),
                max_bytes: section.number("maxMebibytes", 256, 1..=4_096) * MIB,
            },
        }
    }
}

impl ProbeConfig {
    fn read(section: &mut Section<'_>) -> Self {
        let second = Duration::from_secs(1);
        let (interval, alert_interval) = section.intervals(
            (Duration::from_secs(5), second),
            (second, Duration::from_millis(500)),
        );
        Self {
            level: section.level("level", ProbeLevel::Http),
            rates: Rates {
                interval,
                alert_interval,
                per_second: section.number("mostPerSecond", 200, 1..=10_000) as u32,
                per_backend: section.number("mostPerBackend", 2, 1..=1_000) as u32,
                per_backend_alert: section.number("mostPerBackendAlert", 5, 1..=1_000) as u32,
            },
            concurrency: section.number("concurrency", 256, 1..=1_000) as usize,
            cluster_ip: section.flag("clusterIP", true),
            hooks: levels(section),
        }
    }
}

/// The levels of single webhooks.
fn levels(section: &mut Section<'_>) -> BTreeMap<(String, String), ProbeLevel> {
    let entries = section.list("hooks", |entry| {
        let configuration = entry.required_text("configuration");
        let webhook = entry.required_text("webhook");
        let level = entry.level("level", ProbeLevel::Http);
        Some(((configuration?, webhook?), level))
    });
    let mut levels = BTreeMap::new();
    for ((configuration, webhook), level) in entries {
        let twice = format!("has {webhook} of {configuration} twice");
        if levels.insert((configuration, webhook), level).is_some() {
            section.error("hooks", twice);
        }
    }
    levels
}

/// The one context that was typed, else that of the file.
fn one_context(file: &mut Section<'_>, typed: &[String]) -> Option<String> {
    if typed.len() > 1 {
        file.error(
            "--context",
            "is given more than once: one daemon watches one cluster",
        );
    }
    typed.first().cloned().or(file.text("context"))
}

/// The address of the page and the API. The metrics' own address must be another one.
fn listener(file: &mut Section<'_>, text: &str, metrics: Option<SocketAddr>) -> Option<SocketAddr> {
    let listen = file.address("listen", text, "127.0.0.1:9880 or [::1]:9880")?;
    // With port 0 each gets a free port of its own.
    if metrics == Some(listen) && listen.port() != 0 {
        file.error("serve.metricsListen", "is the address that listen has already");
    }
    Some(listen)
}

/// What was typed, else what the file says, else the default.
fn text_or(file: &mut Section<'_>, key: &str, typed: Option<&str>, default: &str) -> String {
    let text = typed.map(str::to_owned).or(file.text(key));
    text.unwrap_or_else(|| default.to_owned())
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let key = path.display().to_string();
    let bytes = crate::io::file::read(path, MAX_FILE)
        .map_err(|error| ConfigError::new(&key, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| ConfigError::new(key, "is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::observe::canary::CanaryTarget;

    fn keys(text: &str) -> Vec<String> {
        match Config::parse(text, &ConfigArguments::default()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.into_iter().map(|error| error.key).collect(),
        }
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let config = Config::parse("", &ConfigArguments::default()).expect("defaults are valid");
        assert_eq!(config.namespace, "hookwatch");
        assert_eq!(config.probes.rates.interval, Duration::from_secs(5));
        assert_eq!(config.scrapes.interval, Duration::from_secs(15));
        assert_eq!(config.canaries.targets, CanaryTarget::ALL);
        assert_eq!(config.probes.level, ProbeLevel::Http);
        assert_eq!(
            config,
            Config::parse("# nothing\n", &ConfigArguments::default()).expect("a comment")
        );
    }

    #[test]
    fn two_listeners_need_two_addresses() {
        let of = |metrics: &str| {
            keys(&format!(
                "listen: 127.0.0.1:9880\nserve: {{metricsListen: '{metrics}'}}"
            ))
        };
        assert_eq!(of("127.0.0.1:9880"), ["serve.metricsListen"]);
        assert_eq!(of("127.0.0.1:9881"), [""; 0]);
    }

    #[test]
    fn a_mistake_in_the_file_is_found_though_a_flag_says_otherwise_and_one_in_the_flag_is_named_by_it() {
        let wrong = |file: &str, flag: &str| {
            let typed = ConfigArguments {
                auto_break: Some(flag.to_owned()),
                ..ConfigArguments::default()
            };
            let read = Config::parse(&format!("autoBreak: {file}"), &typed);
            let errors = read.err().unwrap_or_default();
            errors.into_iter().map(|error| error.key).collect::<Vec<_>>()
        };
        assert_eq!(wrong("sideways", "plan"), ["autoBreak"]);
        assert_eq!(wrong("on", "sideways"), ["--auto-break"]);
        assert_eq!(wrong("off", "on"), [""; 0]);
        assert_eq!(keys("scrapes:\n  interval: 10"), ["scrapes.interval"]);
    }

    #[test]
    fn every_mistake_is_found_at_once_and_named_by_its_key() {
        let text = "
namespace: Not_A_Name
listen: nowhere
color: blue
scrapes:
  interval: soon
  maxMebibytes: 0
  retries: 3
probes:
  level: deep
  concurrency: many
  hooks:
    - configuration: a
      level: off
    - nonsense
canaries:
  interval: 1ms
  kubeSystem: perhaps
";
        assert_eq!(
            keys(text),
            [
                "scrapes.interval",
                "scrapes.maxMebibytes",
                "scrapes.retries",
                "probes.level",
                "probes.concurrency",
                "probes.hooks[0].webhook",
                "probes.hooks[1]",
                "canaries.interval",
                "canaries.kubeSystem",
                "color",
                "namespace",
                "listen",
            ]
        );
    }

    #[test]
    fn every_key_is_known_down_to_those_within_lists() {
        let keys = Config::keys();
        for key in [
            "listen",
            "probes",
            "probes.clusterIP",
            "probes.hooks",
            "probes.hooks[].webhook",
        ] {
            assert!(keys.contains(key), "{key} is not among {keys:?}");
        }
        assert!(!keys.contains("color"));
    }

    #[test]
    fn what_is_no_yaml_or_no_mapping_is_one_clear_error() {
        assert_eq!(keys("a: [1, 2"), ["the file"]);
        assert_eq!(keys("- a\n- b\n"), ["the file"]);
    }

    #[test]
    fn flags_override_the_file() {
        let arguments = ConfigArguments {
            namespace: Some("elsewhere".to_owned()),
            listen: Some("[::1]:1".to_owned()),
            ..ConfigArguments::default()
        };
        let config = Config::parse("namespace: here\nlisten: 127.0.0.1:9", &arguments).expect("valid");
        assert_eq!(
            (config.namespace.as_str(), config.listen.to_string().as_str()),
            ("elsewhere", "[::1]:1")
        );
    }

    #[test]
    fn a_bare_on_or_off_of_any_yaml_reader_is_a_mode() {
        let mode = |text: &str| {
            Config::parse(text, &ConfigArguments::default())
                .expect("valid")
                .auto_break
        };
        assert_eq!(mode(""), AutoBreak::Plan);
        for (text, expected) in [
            ("autoBreak: on", AutoBreak::On),
            ("autoBreak: 'off'", AutoBreak::Off),
            ("autoBreak: false", AutoBreak::Off),
            ("autoBreak: plan", AutoBreak::Plan),
        ] {
            assert_eq!(mode(text), expected, "{text}");
        }
        assert_eq!(keys("autoBreak: sometimes"), ["autoBreak"]);
    }

    #[test]
    fn an_incident_is_never_watched_less_closely_and_no_webhook_has_two_levels() {
        let config = Config::parse(
            "scrapes: {interval: 5s, alertInterval: 1m}\ncanaries: {interval: 1s}",
            &ConfigArguments::default(),
        );
        let config = config.expect("valid");
        assert_eq!(config.scrapes.alert_interval, Duration::from_secs(5));
        assert_eq!(config.canaries.alert_interval, Duration::from_secs(1));
        let twice = "{configuration: c, webhook: w, level: off}, {configuration: c, webhook: w}";
        assert_eq!(keys(&format!("probes: {{hooks: [{twice}]}}")), ["probes.hooks"]);
    }

    #[test]
    fn the_configuration_overrides_an_annotation_and_the_annotation_the_default() {
        let text = "probes: {level: handshake, hooks: [{configuration: c, webhook: w, level: off}]}";
        let config = Config::parse(text, &ConfigArguments::default())
            .expect("valid")
            .probes;
        let id = |webhook| HookId::new(crate::domain::cluster::hook::HookKind::Validating, "c", webhook);
        assert_eq!(
            config.level_of(&id("w"), Some(ProbeLevel::Review)),
            ProbeLevel::Off
        );
        assert_eq!(
            config.level_of(&id("x"), Some(ProbeLevel::Review)),
            ProbeLevel::Review
        );
        assert_eq!(config.level_of(&id("x"), None), ProbeLevel::Handshake);
        let converter = HookId::new(crate::domain::cluster::hook::HookKind::Conversion, "w.e", "w.e");
        assert_eq!(
            config.level_of(&converter, Some(ProbeLevel::Review)),
            ProbeLevel::Http
        );
    }
}
