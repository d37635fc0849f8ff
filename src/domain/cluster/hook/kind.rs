//! The kinds of hooks, and the data that only hooks outside admission (conversion webhooks and APIServices) have.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use crate::text::named;
use crate::time::Time;

/// What the API server calls a hook for.
///
/// The API server calls mutating admission hooks one after the other, so that their times add up, and validating ones all at
/// once, so that only the slowest counts (kube-apiserver 1.36,
/// `admission/plugin/webhook/{mutating,validating}/dispatcher.go`). The two other kinds take no part in admission: they
/// affect one resource or one API version, reads included, and are never bypassed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum HookKind {
    /// An entry of a `MutatingWebhookConfiguration`.
    Mutating,
    /// An entry of a `ValidatingWebhookConfiguration`.
    Validating,
    /// The conversion webhook of a `CustomResourceDefinition`.
    Conversion,
    /// An `APIService` whose requests the API server proxies to another server.
    Aggregated,
}

named!(
    HookKind,
    "The name in reports, and the value of the label `kind`."
);

impl HookKind {
    /// The kinds that take part in admission.
    pub const ADMISSION: [Self; 2] = [Self::Validating, Self::Mutating];

    /// The Kubernetes kind of the object that holds hooks of this kind.
    pub const fn configuration_kind(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Conversion => "CustomResourceDefinition",
            Self::Aggregated => "APIService",
        }
    }

    /// The `apiVersion` of that object.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Mutating | Self::Validating => "admissionregistration.k8s.io/v1",
            Self::Conversion => "apiextensions.k8s.io/v1",
            Self::Aggregated => "apiregistration.k8s.io/v1",
        }
    }

    /// Where the API server serves the objects that hold hooks of this kind.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Mutating => "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            Self::Validating => "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            Self::Conversion => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            Self::Aggregated => "/apis/apiregistration.k8s.io/v1/apiservices",
        }
    }

    /// Whether hooks of this kind are called for writes that match their rules.
    pub const fn is_admission(self) -> bool {
        matches!(self, Self::Mutating | Self::Validating)
    }
}

/// What a hook that takes no part in admission serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extension {
    /// The resource of a [`HookKind::Conversion`].
    Conversion(Conversion),
    /// The API version of a [`HookKind::Aggregated`].
    Aggregated(Aggregated),
}

/// What a conversion webhook converts.
///
/// The API server calls it whenever an object is requested in another version than the one it is stored or sent in, for
/// reads and watches too, and gives it [`Conversion::TIMEOUT`] regardless of the request's own deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversion {
    /// API group of the resource.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The version in which objects are stored now.
    pub stored: String,
    /// The other served versions: requests in one of them need a conversion.
    pub others: Vec<String>,
}

impl Conversion {
    /// How long one conversion may take. It cannot be set (1.36: the default of webhook clients in
    /// `apiserver/pkg/util/webhook/authentication.go`; `webhook_converter.go` sets no deadline of its own).
    pub const TIMEOUT: Duration = Duration::from_secs(30);
}

/// The API version that another server serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregated {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// `insecureSkipTLSVerify`: the API server accepts any certificate.
    pub insecure: bool,
    /// The condition `Available`, which the API server's aggregator sets; `None` before its first check.
    pub available: Option<Available>,
}

impl Aggregated {
    /// How long the aggregator waits for the discovery document before it calls the service unavailable (1.36,
    /// `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`).
    pub const TIMEOUT: Duration = Duration::from_secs(5);
}

/// The condition `Available` of an APIService.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Available {
    /// `status`; `None` for `Unknown`.
    pub status: Option<bool>,
    /// `reason`, one word.
    pub reason: String,
    /// `message`, cut to a bounded length.
    pub message: String,
    /// `lastTransitionTime`.
    pub since: Option<Time>,
}
