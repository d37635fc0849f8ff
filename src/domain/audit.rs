//! What would happen if a webhook died now, and what to change today.
//!
//! Everything here is a function of an [`Estate`]: the webhooks as configured, and what is known of their backends. The
//! [`forecast`] says which functions of the control plane fail, in what order and after how many seconds; [`findings`] come from
//! it and from the fields of the configurations. The breaker does not use any of it.

pub mod estate;
pub mod findings;
pub mod forecast;
pub mod patch;
pub mod periodic;
pub mod reach;
pub mod writes;

use std::time::Duration;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::text::named;

pub use estate::{AuditedHook, Estate, SourceLocation};
pub use findings::{Finding, FindingSeverity};
pub use forecast::{Auditor, BackendFailure, Casualty, Forecast};

/// Functions of a control plane that an outage of a webhook can stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Function {
    /// kube-controller-manager and kube-scheduler keep their Leases.
    LeaderElection,
    /// Nodes renew their Leases.
    NodeHeartbeat,
    /// An API server that starts becomes ready.
    ApiServerStart,
    /// Pods are bound to nodes.
    PodScheduling,
    /// The webhook's own Pods are recreated.
    OwnPods,
    /// Pods in kube-system are recreated.
    KubeSystemPods,
    /// Namespaces are created.
    NamespaceCreate,
    /// Namespaces are deleted.
    NamespaceDelete,
    /// The endpoints of Services follow their Pods.
    ServiceEndpoints,
    /// Pods and nodes get tokens.
    TokenRequest,
    /// Tenants write their objects.
    TenantWrites,
}

named!(Function, "Its name in reports.", all);

impl Function {
    /// What the loss of the function means, as a clause for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::LeaderElection => {
                "kube-controller-manager or kube-scheduler cannot renew its Lease and exits"
            }
            Self::NodeHeartbeat => "node Leases expire; nodes are NotReady 10 to 15 s later",
            Self::ApiServerStart => "an API server that starts then gives up and exits",
            Self::PodScheduling => "no Pod is bound to a node",
            Self::OwnPods => "the webhook's own Pods cannot come back",
            Self::KubeSystemPods => "no Pod in kube-system is made again",
            Self::NamespaceCreate => "no namespace is created",
            Self::NamespaceDelete => "no namespace is deleted",
            Self::ServiceEndpoints => "Services keep the endpoints of Pods that are gone",
            Self::TokenRequest => "no new Pod gets the token of its account",
            Self::TenantWrites => "tenants' writes are refused",
        }
    }

    /// Whether a cluster stops working without it. The other functions can wait, or are what the webhook is meant to review.
    pub const fn is_vital(self) -> bool {
        !matches!(
            self,
            Self::NamespaceCreate | Self::NamespaceDelete | Self::TenantWrites
        )
    }
}

/// A duration in seconds, rounded to one decimal for reports.
pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}
