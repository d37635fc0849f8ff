//! The clients of the API server: what they write and how often.

use hookwatch::domain::text::named;
use strum::IntoStaticStr;

use super::timeline::Timeline;
use super::{At, SECOND};

/// The `verb` label of the API server's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Verb {
    Post,
    Put,
    Patch,
    Delete,
    /// A read: the API server calls no webhook for it.
    List,
}

named!(Verb, "The `verb` label.");

impl Verb {
    /// The operation in admission requests and webhook rules; empty for reads.
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
    /// Cluster-scoped.
    Cluster,
}

impl Place {
    /// The namespace's name; `None` for cluster-scoped objects.
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

/// A class of requests: same verb, resource and place.
#[derive(Debug, Clone)]
pub struct Class {
    pub verb: Verb,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub place: Place,
    /// Requests per second of open-loop clients (which do not wait for answers), before `Cluster::tide` multiplies it.
    pub rate: Timeline<f64>,
    /// Whether `Cluster::tide` multiplies the rate; it does not for heartbeats.
    pub tidal: bool,
    /// The client's timeout, which it also sends to the API server as `?timeout=`; `None` for no timeout.
    pub patience: Option<At>,
    /// Processing time relative to that of a small object (1.0).
    pub weight: f64,
    /// Whether it takes a seat of the tenants' priority level (flow control).
    pub workload: bool,
    /// Whether quota admission applies to it.
    pub quota: bool,
    pub dry_run: bool,
}

impl Class {
    /// Writes of one resource. For [`Place::Tenant`] they take tenants' seats, follow the tide and, on CREATE, have quota.
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

    /// Renewals of Leases, by clients with a short timeout.
    pub fn leases(place: Place, rate: f64, patience_seconds: u64) -> Self {
        Self {
            patience: Some(patience_seconds * SECOND),
            tidal: false,
            ..Self::new(Verb::Put, "coordination.k8s.io", "leases", place, rate)
        }
    }

    /// Writes of the `status` subresource by kubelets and controllers.
    pub fn status(group: &'static str, resource: &'static str, place: Place, rate: f64) -> Self {
        Self {
            subresource: "status",
            workload: false,
            tidal: false,
            quota: false,
            ..Self::new(Verb::Patch, group, resource, place, rate)
        }
    }

    /// hookwatch's canaries: dry-run patches. The rate is 0 because the observers send them.
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

/// A closed-loop client: it sends its next request after the last one is answered.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The steps of its cycle: index of the class, and the probability of skipping the step.
    pub round: Vec<(usize, f64)>,
    /// Mean seconds between an answer and the next request (exponentially distributed).
    pub think: f64,
}
