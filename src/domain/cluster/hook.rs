//! A hook: one entry under `webhooks:` of a webhook configuration, the conversion webhook of a CustomResourceDefinition, or
//! the server behind an APIService, as the API server uses it. The last two take no part in admission ([`Extension`]).
//!
//! Defaults are resolved here once (`failurePolicy`, `timeoutSeconds`, ...), so the rest of the domain never
//! asks what an absent field means.

mod added;
mod fingerprint;
mod kind;
mod level;
mod service;
mod terms;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use crate::text::named;
use crate::time::Time;
use crate::vocabulary::Cause;

pub use added::{Added, NEVER_OWN, SPARE_ANNOTATION};
pub use kind::{Aggregated, Available, Conversion, Extension, HookKind};
pub use level::ProbeLevel;
pub use service::{Endpoint, NamespacedName, ServiceState, ServiceTarget};
pub use terms::{ConnectionTerms, ProbeTarget};
pub use written::{Trusted, WrittenEntry};

/// Labels of one object.
pub type Labels = BTreeMap<String, String>;

/// What a verdict is about: kind, configuration and webhook name. The configuration is `None` for a webhook that only the API
/// server's metrics name.
pub type Subject = (HookKind, Option<Arc<str>>, Arc<str>);

/// The identity of a hook: kind, configuration and webhook name.
///
/// A webhook's name is unique only within its configuration. For a conversion webhook or an APIService both names are that of
/// its object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HookId {
    /// What the API server calls it for.
    pub kind: HookKind,
    /// `metadata.name` of the configuration.
    pub configuration: Arc<str>,
    /// `name` of the entry.
    pub webhook: Arc<str>,
}

impl HookId {
    /// The identity of the webhook named `webhook` in the configuration named `configuration`.
    pub fn new(kind: HookKind, configuration: &str, webhook: &str) -> Self {
        Self {
            kind,
            configuration: configuration.into(),
            webhook: webhook.into(),
        }
    }

    /// The key of its metric series. The API server's metrics name the webhook, but not its configuration.
    pub fn counted_as(&self) -> (HookKind, String) {
        (self.kind, self.webhook.to_string())
    }

    /// The subject of verdicts on this hook.
    pub fn subject(&self) -> Subject {
        let configuration = Arc::clone(&self.configuration);
        (self.kind, Some(configuration), Arc::clone(&self.webhook))
    }

    /// Where to find the hook: the kind and name of its object, and for an admission webhook its name in that object.
    pub fn object(&self) -> String {
        let (object, configuration) = (self.kind.configuration_kind(), &self.configuration);
        if self.kind.is_admission() {
            format!("{object} {configuration:?}, webhook {:?}", self.webhook)
        } else {
            format!("{object} {configuration:?}")
        }
    }
}

impl fmt::Display for HookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            HookKind::Conversion => write!(f, "conversion webhook of {:?}", self.configuration),
            HookKind::Aggregated => write!(f, "aggregated API {:?}", self.configuration),
            HookKind::Mutating | HookKind::Validating => write!(
                f,
                "{} webhook {:?} of {:?}",
                self.kind, self.webhook, self.configuration
            ),
        }
    }
}

/// What the API server does with a request when a call to the hook fails (never for a denial).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailurePolicy {
    /// The request is refused. The default when the field is absent.
    Fail,
    /// The request continues without the hook, after waiting for it.
    Ignore,
}

/// `clientConfig`, resolved: where the API server sends the hook's reviews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookTarget {
    /// `clientConfig.service`, with what is known of that Service.
    Service(ServiceTarget),
    /// `clientConfig.url`.
    Url(UrlTarget),
    /// Neither, or unusable, so that every call by the API server fails. The text says what is wrong.
    Invalid(String),
}

impl HookTarget {
    /// The destination of calls, without the path: hooks with the same destination share their backends and fail together.
    /// Derived from the configurations only, never from EndpointSlices, which tenants may write. `None` for an invalid target.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Service(target) => Some(format!("{}/{}:{}", target.namespace, target.name, target.port)),
            Self::Url(url) => Some(format!("{}:{}", url.host, url.port)),
            Self::Invalid(_) => None,
        }
    }

    /// Whether something other than the cluster's EndpointSlice controller writes, or may write, the Service's endpoints.
    pub fn is_listed_by_hand(&self) -> bool {
        matches!(self, Self::Service(target) if matches!(target.service, ServiceState::Found { by_hand: true, .. }))
    }

    /// The host and port of requests. A URL's port is left out if it is 443. `None` for an invalid target.
    pub fn authority(&self) -> Option<String> {
        match self {
            Self::Service(target) => Some(format!("{}:{}", target.server_name(), target.port)),
            Self::Url(target) => {
                let host = if target.host.contains(':') {
                    format!("[{}]", target.host)
                } else {
                    target.host.clone()
                };
                Some(match target.port {
                    443 => host,
                    port => format!("{host}:{port}"),
                })
            }
            Self::Invalid(_) => None,
        }
    }
}

/// A hook reached by URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlTarget {
    /// The host as written: a name or an IP address (without brackets).
    pub host: String,
    /// The port; 443 when absent.
    pub port: u16,
    /// Path, beginning with `/`.
    pub path: String,
}

/// `matchPolicy`: whether rules also take requests for the same resource in another group or version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum MatchPolicy {
    /// Only what the rules name.
    Exact,
    /// Also the resources that they name, served in another group or version. The default when the field is absent.
    #[default]
    Equivalent,
}

/// One entry of `rules:`. `*` means all, as in the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HookRule {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    /// API groups; the empty string is the core group.
    pub api_groups: Vec<String>,
    /// API versions.
    pub api_versions: Vec<String>,
    /// `pods`, `pods/status`, `*`, `*/*`, `pods/*` or `*/status`.
    pub resources: Vec<String>,
    /// Whether the rule is limited to cluster-scoped or namespaced objects.
    pub scope: Scope,
}

/// `scope` of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Scope {
    /// `*`, the default.
    #[default]
    All,
    /// Only cluster-scoped objects.
    Cluster,
    /// Only namespaced objects.
    Namespaced,
}

/// A label selector, as Kubernetes defines it. Empty selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selector {
    /// `matchLabels`.
    pub match_labels: Labels,
    /// `matchExpressions`.
    pub expressions: Vec<SelectorRequirement>,
}

/// One requirement of a selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectorRequirement {
    /// The label's key.
    pub key: String,
    /// What the label must be.
    pub operator: SelectorOperator,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The operators of a selector requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, EnumString)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present, with any value.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Most match conditions of a webhook that the API server accepts.
pub const MAX_CONDITIONS: usize = 64;

/// One entry of `matchConditions:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchCondition {
    /// Its name, unique within the hook.
    pub name: String,
    /// The CEL expression.
    pub expression: String,
}

/// One hook with everything that the diagnosis and the probes need to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Its identity.
    pub id: HookId,
    /// `metadata.uid` of its configuration; empty if unknown.
    pub configuration_uid: String,
    /// When its configuration was created, if the object says so.
    pub created: Option<Time>,
    /// Where its calls go.
    pub target: HookTarget,
    /// The PEM bytes of `caBundle`; empty means the system's roots.
    #[serde(with = "fingerprint")]
    pub ca_bundle: Arc<[u8]>,
    /// `failurePolicy`; `Fail` when absent.
    pub failure_policy: FailurePolicy,
    /// `timeoutSeconds`; 10 s when absent, limited to 1 to 30 s. Fixed for hooks that take no part in admission.
    pub timeout: Duration,
    /// `rules`; a hook without any matches nothing.
    pub rules: Vec<HookRule>,
    /// `matchPolicy`; `Equivalent` when absent.
    #[serde(default)]
    pub match_policy: MatchPolicy,
    /// `namespaceSelector`.
    pub namespace_selector: Selector,
    /// `objectSelector`.
    pub object_selector: Selector,
    /// `matchConditions`.
    pub match_conditions: Vec<MatchCondition>,
    /// True when `sideEffects` is `None` or `NoneOnDryRun`, so that a dry run reaches the hook.
    pub dry_run_safe: bool,
    /// `reinvocationPolicy: IfNeeded`: the API server calls this mutating hook again if a later one changed the object.
    #[serde(default)]
    pub reinvoked: bool,
    /// `admissionReviewVersions` in the order of preference.
    pub review_versions: Vec<String>,
    /// What the annotation `hookwatch.dev/probe` on the configuration asks for.
    pub probe_level: Option<ProbeLevel>,
    /// What the annotation `hookwatch.dev/spare` on the configuration adds to what a shield of this hook spares.
    #[serde(default)]
    pub added: Added,
    /// What the annotation `hookwatch.dev/breaker` on the configuration says, by which its owner permits less than the rules do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<String>,
    /// Its index in its object, and fields that only an audit uses.
    #[serde(default)]
    pub written: WrittenEntry,
    /// What a conversion webhook or an APIService serves; `None` for an admission webhook.
    #[serde(default, rename = "other")]
    pub extension: Option<Extension>,
    /// Sentences about faults of the entry itself (such as a `caBundle` that is no PEM, or no rules), each naming the field.
    pub problems: Vec<String>,
}

impl Hook {
    /// The default of `timeoutSeconds` (kube-apiserver 1.36, `apis/admissionregistration/v1/defaults.go`).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// A hook with this target and the default of every other field.
    pub fn new(id: HookId, target: HookTarget) -> Self {
        Self {
            id,
            configuration_uid: String::new(),
            created: None,
            target,
            ca_bundle: Arc::default(),
            failure_policy: FailurePolicy::Fail,
            timeout: Self::DEFAULT_TIMEOUT,
            rules: Vec::new(),
            match_policy: MatchPolicy::default(),
            namespace_selector: Selector::default(),
            object_selector: Selector::default(),
            match_conditions: Vec::new(),
            dry_run_safe: true,
            reinvoked: false,
            review_versions: Vec::new(),
            probe_level: None,
            added: Added::default(),
            breaker: None,
            written: WrittenEntry::default(),
            extension: None,
            problems: Vec::new(),
        }
    }

    /// The cause of failure that the inventory alone shows: no Service, no such port on it, or no ready endpoint. `None` for a
    /// URL, and for a Service that has not been read.
    pub fn without_backends(&self) -> Option<Cause> {
        match &self.target.service()?.service {
            ServiceState::Missing | ServiceState::NoSuchPort { .. } => Some(Cause::NoService),
            ServiceState::Found { endpoints, .. } if !endpoints.iter().any(|endpoint| endpoint.ready) => {
                Some(Cause::NoEndpoints)
            }
            ServiceState::Found { .. } | ServiceState::Unknown { .. } => None,
        }
    }

    /// The addresses the API server may dial for this hook, without duplicates.
    ///
    /// Endpoints that are not ready are left out: the API server would not pick them. Empty if the Service is unknown.
    pub fn backends(&self) -> Vec<Backend> {
        let service = match &self.target {
            HookTarget::Invalid(_) => return Vec::new(),
            HookTarget::Url(url) => {
                return vec![Backend {
                    path: BackendPath::Url,
                    address: BackendAddress::Host(url.host.clone(), url.port),
                }];
            }
            HookTarget::Service(target) => &target.service,
        };
        let ServiceState::Found {
            cluster_ip,
            endpoints,
            ..
        } = service
        else {
            return Vec::new();
        };
        let of_socket = |path, address: &SocketAddr| Backend {
            path,
            address: BackendAddress::Socket(*address),
        };
        let ready = endpoints.iter().filter(|endpoint| endpoint.ready);
        let ready = ready.map(|endpoint| of_socket(BackendPath::Endpoint, &endpoint.address));
        let cluster_ip = cluster_ip
            .iter()
            .map(|address| of_socket(BackendPath::ClusterIp, address));
        ready.chain(cluster_ip).collect()
    }

    /// The TLS server name and HTTP host that the API server uses for this hook; `None` for an invalid target.
    pub fn server_name(&self) -> Option<String> {
        match &self.target {
            HookTarget::Service(service) => Some(service.server_name()),
            HookTarget::Url(url) => Some(url.host.clone()),
            HookTarget::Invalid(_) => None,
        }
    }

    /// Whether the API server calls this hook at `url`, given without its query, as the API server's refusals quote it.
    pub fn is_called_at(&self, url: &str) -> bool {
        let Some(rest) = url.strip_prefix("https://") else {
            return false;
        };
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let plain = |authority: &str| authority.trim_end_matches(":443").to_ascii_lowercase();
        let is_own = |own: String| plain(&own) == plain(authority);
        path == self.url_path() && self.target.authority().is_some_and(is_own)
    }

    /// The path of the hook's URL, beginning with `/`.
    pub fn url_path(&self) -> &str {
        match &self.target {
            HookTarget::Service(service) => &service.path,
            HookTarget::Url(url) => &url.path,
            HookTarget::Invalid(_) => "/",
        }
    }
}

/// One address the API server may dial for a hook.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Backend {
    /// How the API server gets to this address.
    pub path: BackendPath,
    /// The address itself.
    pub address: BackendAddress,
}

/// Reads the serialized form. The kind of address follows from `path`: that of a URL is a [`BackendAddress::Host`], even if it
/// is an IP literal, and all others are a [`BackendAddress::Socket`].
impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        #[derive(Deserialize)]
        struct WrittenBackend<'a> {
            path: BackendPath,
            #[serde(borrow)]
            address: std::borrow::Cow<'a, str>,
        }
        let WrittenBackend { path, address } = WrittenBackend::deserialize(deserializer)?;
        let unreadable = || D::Error::custom(format!("{address:?} is not an address with a port"));
        let address = if path == BackendPath::Url {
            let (host, port) = address.rsplit_once(':').ok_or_else(unreadable)?;
            let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let port = port.parse().map_err(|_| unreadable())?;
            BackendAddress::Host(literal.unwrap_or(host).to_owned(), port)
        } else {
            BackendAddress::Socket(address.parse().map_err(|_| unreadable())?)
        };
        Ok(Self { path, address })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            BackendPath::Endpoint => write!(f, "endpoint {}", self.address),
            BackendPath::ClusterIp => write!(f, "cluster IP {}", self.address),
            BackendPath::Url => write!(f, "url host {}", self.address),
        }
    }
}

/// How the API server gets to a backend.
///
/// By default it dials the ClusterIP; with `--enable-aggregator-routing` it picks a ready endpoint itself.
/// That flag cannot be seen from outside, so hookwatch probes both, and the path is a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BackendPath {
    /// An address of an EndpointSlice.
    Endpoint,
    /// The Service's virtual address, served by the dataplane.
    ClusterIp,
    /// The host of `clientConfig.url`.
    Url,
}

named!(BackendPath, "The value of the `path` label in metrics.");

/// Where to dial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendAddress {
    /// An address and a port.
    Socket(SocketAddr),
    /// The host of a URL (a name to resolve, or an IP literal without brackets), and a port.
    Host(String, u16),
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl Serialize for BackendAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
