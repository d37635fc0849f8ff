//! Webhook configurations, compiled once per change for the requests that pass through them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::super::call::{CallDestination, CallTarget};
use super::super::cel::Program;
use super::super::kinds::{MUTATING, ServedKind, VALIDATING};
use super::super::store::ObjectStore;
use crate::domain::cluster::hook::{
    HookRule, Labels, MatchPolicy, Scope, Selector, SelectorOperator, SelectorRequirement,
};

/// One webhook, parsed and compiled.
#[derive(Debug)]
pub(super) struct AdmissionHook {
    pub name: String,
    pub mutating: bool,
    /// `failurePolicy: Ignore`.
    pub ignores_failures: bool,
    pub timeout: Duration,
    pub rules: Vec<HookRule>,
    pub match_policy: MatchPolicy,
    pub namespace_selector: Selector,
    pub object_selector: Selector,
    /// The text of each match condition and what it compiles to.
    pub conditions: Vec<(String, Result<Arc<Program>, String>)>,
    /// `sideEffects` is None or NoneOnDryRun.
    pub dry_run_safe: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvocable: bool,
    /// The first of `admissionReviewVersions` that the API server knows; `None` when it knows none of them.
    pub review_version: Option<&'static str>,
    pub target: CallTarget,
}

/// All webhooks in the order they are asked.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    pub mutating: Vec<Arc<AdmissionHook>>,
    pub validating: Vec<Arc<AdmissionHook>>,
}

/// Keeps the compiled hooks until a configuration changes.
#[derive(Debug, Default)]
pub(super) struct Compiled(Mutex<((u64, u64), Arc<Hooks>)>);

impl Compiled {
    /// The hooks as configured now.
    pub(super) fn now(&self, store: &ObjectStore) -> Arc<Hooks> {
        let version = (store.touched(MUTATING), store.touched(VALIDATING));
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.0 != version {
            let hooks = Hooks {
                mutating: compile(store, MUTATING),
                validating: compile(store, VALIDATING),
            };
            *compiled = (version, Arc::new(hooks));
        }
        Arc::clone(&compiled.1)
    }
}

/// The store lists by name, which is the order the API server asks configurations in.
fn compile(store: &ObjectStore, kind: &'static ServedKind) -> Vec<Arc<AdmissionHook>> {
    let (_, configurations) = store.list(kind, None);
    let webhooks = configurations.iter().flat_map(|configuration| {
        let webhooks = configuration.object.get("webhooks").and_then(Value::as_array);
        webhooks.into_iter().flatten()
    });
    webhooks
        .map(|webhook| Arc::new(hook(webhook, kind == MUTATING)))
        .collect()
}

fn hook(webhook: &Value, mutating: bool) -> AdmissionHook {
    let text = |field: &str| webhook[field].as_str().unwrap_or_default();
    let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
    let versions = strings(&webhook["admissionReviewVersions"]);
    AdmissionHook {
        name: text("name").to_owned(),
        mutating,
        ignores_failures: text("failurePolicy") == "Ignore",
        timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10)),
        rules: webhook["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .map(rule)
            .collect(),
        match_policy: match text("matchPolicy") {
            "Exact" => MatchPolicy::Exact,
            _ => MatchPolicy::Equivalent,
        },
        namespace_selector: selector(&webhook["namespaceSelector"]),
        object_selector: selector(&webhook["objectSelector"]),
        conditions: conditions
            .map(|condition| {
                let text = condition["expression"].as_str().unwrap_or_default();
                (text.to_owned(), Program::of(text))
            })
            .collect(),
        dry_run_safe: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        reinvocable: text("reinvocationPolicy") == "IfNeeded",
        review_version: versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        }),
        target: target(&webhook["clientConfig"]),
    }
}

pub(in crate::lab::api) fn target(client: &Value) -> CallTarget {
    let ca_bundle = client["caBundle"].as_str().unwrap_or_default();
    // Invalid base64 is passed on as it is: it holds no certificate either, so the call fails with the right error.
    let ca_bundle = BASE64_STANDARD
        .decode(ca_bundle)
        .unwrap_or_else(|_| ca_bundle.as_bytes().to_vec());
    let slashed = |path: &str| {
        if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        }
    };
    if let Some(service) = client.get("service").filter(|service| service.is_object()) {
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let port = service["port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(443);
        let host = format!("{name}.{namespace}.svc");
        return CallTarget {
            url: format!("https://{host}:{port}{}", slashed(&text("path"))),
            destination: CallDestination::Service { namespace, name },
            host,
            port,
            ca_bundle,
        };
    }
    let url = client["url"].as_str().unwrap_or_default();
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A colon inside brackets belongs to an IPv6 address.
    let port = authority
        .rsplit_once(':')
        .filter(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
    let (host, port) = match port.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host, port),
        None => (authority, 443),
    };
    CallTarget {
        destination: CallDestination::Url,
        host: host.to_owned(),
        port,
        url: format!("https://{authority}{}", slashed(path)),
        ca_bundle,
    }
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| Some(item.as_str()?.to_owned())).collect()
}

fn rule(rule: &Value) -> HookRule {
    HookRule {
        operations: strings(&rule["operations"]),
        api_groups: strings(&rule["apiGroups"]),
        api_versions: strings(&rule["apiVersions"]),
        resources: strings(&rule["resources"]),
        scope: match rule["scope"].as_str() {
            Some("Cluster") => Scope::Cluster,
            Some("Namespaced") => Scope::Namespaced,
            _ => Scope::All,
        },
    }
}

fn selector(selector: &Value) -> Selector {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let match_labels: Labels = labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    Selector {
        match_labels,
        expressions: expressions
            .map(|expression| SelectorRequirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator: match expression["operator"].as_str() {
                    Some("NotIn") => SelectorOperator::NotIn,
                    Some("Exists") => SelectorOperator::Exists,
                    Some("DoesNotExist") => SelectorOperator::DoesNotExist,
                    // Nothing else passes validation.
                    _ => SelectorOperator::In,
                },
                values: strings(&expression["values"]),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_and_a_url_become_the_address_they_mean() {
        let service = target(&json!({"service": {"namespace": "opa", "name": "opa", "path": "/v0/admit"}}));
        assert_eq!(service.url, "https://opa.opa.svc:443/v0/admit");
        assert_eq!((service.host.as_str(), service.port), ("opa.opa.svc", 443));
        for (url, whole, host, port) in [
            (
                "https://127.0.0.1:8443/x",
                "https://127.0.0.1:8443/x",
                "127.0.0.1",
                8443,
            ),
            (
                "https://hooks.example",
                "https://hooks.example/",
                "hooks.example",
                443,
            ),
            ("https://[::1]:9443/", "https://[::1]:9443/", "[::1]", 9443),
            ("https://[::1]/", "https://[::1]/", "[::1]", 443),
        ] {
            let target = target(&json!({"url": url}));
            assert_eq!(
                (target.url.as_str(), target.host.as_str(), target.port),
                (whole, host, port)
            );
        }
    }
}
