//! Who writes what, and how often.

use hookwatch::domain::text::named;
use strum::IntoStaticStr;

use super::timeline::Timeline;
use super::{At, SECOND};

/// A verb as the API server's metrics spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Verb {
    Post,
    Put,
    Patch,
    Delete,
    /// Meets no hook.
    List,
}

named!(Verb, "The `verb` label.");

impl Verb {
    /// What admission calls it.
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Post => "CREATE",
            Self::Put | Self::Patch => "UPDATE",
            Self::Delete => "DELETE",
            Self::List => "",
        }
    }
}

/// Where an object lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    KubeSystem,
    NodeLeases,
    /// hookwatch's own namespace.
    Hookwatch,
    Tenant,
    /// In no namespace.
    Cluster,
}

impl Place {
    /// The namespace's name.
    pub const fn namespace(self) -> Option<&'static str> {
        match self {
            Self::KubeSystem => Some("kube-system"),
            Self::NodeLeases => Some("kube-node-lease"),
            Self::Hookwatch => Some("hookwatch"),
            Self::Tenant => Some("team-a"),
            Self::Cluster => None,
        }
    }
}

/// Requests of one sort.
#[derive(Debug, Clone)]
pub struct Class {
    pub verb: Verb,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub place: Place,
    /// Per second, by clients that do not wait for the answer to the last one; before the tide.
    pub rate: Timeline<f64>,
    /// Whether the tide moves it: heartbeats come as they always do.
    pub tidal: bool,
    /// How long the client waits, and tells the API server so by `?timeout=`.
    pub patience: Option<At>,
    /// How many times as long as a plain object it takes to read and write.
    pub weight: f64,
    /// Whether it takes one of the tenants' seats.
    pub workload: bool,
    /// Whether quota is reckoned for it.
    pub quota: bool,
    pub dry_run: bool,
}

impl Class {
    /// Tenants' plain writes of one resource.
    pub fn new(verb: Verb, group: &'static str, resource: &'static str, place: Place, rate: f64) -> Self {
        Self {
            verb,
            group,
            resource,
            subresource: "",
            place,
            rate: Timeline::always(rate),
            tidal: place == Place::Tenant,
            patience: None,
            weight: 1.0,
            workload: place == Place::Tenant,
            quota: place == Place::Tenant && verb == Verb::Post,
            dry_run: false,
        }
    }

    /// The renewal of leases: its client gives up early.
    pub fn leases(place: Place, rate: f64, patience_seconds: u64) -> Self {
        Self {
            patience: Some(patience_seconds * SECOND),
            tidal: false,
            ..Self::new(Verb::Put, "coordination.k8s.io", "leases", place, rate)
        }
    }

    /// What kubelets and controllers write about the state of things.
    pub fn status(group: &'static str, resource: &'static str, place: Place, rate: f64) -> Self {
        Self {
            subresource: "status",
            workload: false,
            tidal: false,
            quota: false,
            ..Self::new(Verb::Patch, group, resource, place, rate)
        }
    }

    /// One of hookwatch's canaries.
    pub fn canary(place: Place) -> Self {
        let (group, resource) = match place {
            Place::NodeLeases => ("coordination.k8s.io", "leases"),
            _ => ("", "configmaps"),
        };
        Self {
            workload: true,
            dry_run: true,
            quota: false,
            ..Self::new(Verb::Patch, group, resource, place, 0.0)
        }
    }
}

/// A client that sends its next request when the last one was answered.
#[derive(Debug, Clone)]
pub struct Worker {
    /// What it does in turn: the class, and how often it leaves that out.
    pub round: Vec<(usize, f64)>,
    /// Seconds between an answer and the next request.
    pub think: f64,
}
