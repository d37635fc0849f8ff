//! Converts a webhook configuration to hooks, with the API server's defaults filled in.
//!
//! The endpoints behind a hook are resolved later, once its Service and EndpointSlices are known; see `service`.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition as ApiMatchCondition, MutatingWebhook, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time as ApiTime};
use serde::Deserialize;
use x509_parser::prelude::GeneralName;

use crate::domain::act::bypass::OPT_OUT_ANNOTATION;
use crate::domain::act::fence::PROOF;
use crate::domain::cluster::hook::{
    Added, FailurePolicy, Hook, HookId, HookKind, HookRule, HookTarget, MatchCondition, MatchPolicy,
    ProbeLevel, SPARE_ANNOTATION, Scope, Selector, SelectorRequirement, ServiceState, ServiceTarget, Trusted,
    WrittenEntry,
};
use crate::domain::time::Time;
use crate::io::client::certificate::{blocks, may_sign};

pub(super) mod extension;
pub(in crate::io) mod node;
pub(in crate::io) mod service;
mod url;

/// The annotation on a configuration that sets the [`ProbeLevel`] of its hooks.
pub const PROBE_ANNOTATION: &str = "hookwatch.dev/probe";
/// The range of `timeoutSeconds` that the API server accepts.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i32> = 1..=30;
/// `clientConfig.service.port` when absent.
const DEFAULT_SERVICE_PORT: i32 = 443;

/// Most certificates kept of one caBundle.
const MAX_TRUSTED: usize = 20;
/// Most subject alternative names kept of one certificate.
const MAX_NAMES: usize = 20;
/// Most characters kept of the opt-out annotation's value.
const MAX_SAID: usize = 100;

/// Annotations that make a controller inject `caBundle`.
const INJECTORS: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// A configuration of either kind. Mutating webhooks have all fields of validating ones, and `reinvocationPolicy`.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a webhook configuration")]
pub struct Configuration {
    metadata: Option<ObjectMeta>,
    webhooks: Option<Vec<MutatingWebhook>>,
}

/// The hooks of a configuration. The configuration named [`PROOF`] has none as long as its webhooks have no rules.
pub fn hooks(kind: HookKind, configuration: Configuration) -> Vec<Hook> {
    let metadata = configuration.metadata.unwrap_or_default();
    // The name alone must not hide a webhook: one with rules is called, and so is a hook.
    let is_proof = metadata.name.as_deref() == Some(PROOF);
    let entries = configuration.webhooks.unwrap_or_default().into_iter().enumerate();
    entries
        .filter(|(_, entry)| !is_proof || entry.rules.as_ref().is_some_and(|rules| !rules.is_empty()))
        .map(|(at, entry)| hook(kind, &metadata, at, entry))
        .collect()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    Some(metadata.annotations.as_ref()?.get(key)?)
}

/// The value of the probe annotation; `None` if it is missing or invalid.
fn probe_level(metadata: &ObjectMeta, problems: &mut Problems) -> Option<ProbeLevel> {
    let level = ProbeLevel::parse(annotation(metadata, PROBE_ANNOTATION)?);
    level
        .map_err(|why| problems.add(format!("annotation {PROBE_ANNOTATION}: {why}")))
        .ok()
}

fn instant(time: &ApiTime) -> Option<Time> {
    Time::of(time.0)
}

/// As [`trusted`], and reports a problem if the bundle is not empty but contains no certificate.
fn look_at_bundle(ca_bundle: &[u8], problems: &mut Problems) -> (Option<[Time; 2]>, Vec<Trusted>) {
    let (last, trusted) = trusted(ca_bundle);
    if !ca_bundle.is_empty() && trusted.is_empty() {
        problems.add(
            "caBundle holds no PEM certificate, so every call fails; put the CA's certificate there, or leave \
             it empty to use the system's roots",
        );
    }
    (last, trusted)
}

fn hook(kind: HookKind, metadata: &ObjectMeta, at: usize, entry: MutatingWebhook) -> Hook {
    let id = HookId::new(kind, metadata.name.as_deref().unwrap_or_default(), &entry.name);
    let mut problems = Problems::of(&id);

    let probe_level = probe_level(metadata, &mut problems);
    let ca_bundle = entry
        .client_config
        .ca_bundle
        .as_ref()
        .map_or(&[][..], |bytes| &bytes.0);
    let (last_ca, trusted) = look_at_bundle(ca_bundle, &mut problems);
    let rules = entry.rules.unwrap_or_default();
    if rules.is_empty() {
        problems.add("rules is empty, so the webhook is never called");
    }
    let target = target(&entry.client_config);
    let added = added(metadata, &target, &mut problems);
    if let HookTarget::Invalid(why) = &target {
        problems.add(format!("clientConfig: {why}"));
    }
    let conditions = entry.match_conditions.unwrap_or_default();
    Hook {
        configuration_uid: metadata.uid.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().and_then(instant),
        ca_bundle: ca_bundle.into(),
        failure_policy: failure_policy(entry.failure_policy.as_deref()),
        timeout: timeout(entry.timeout_seconds, &mut problems),
        rules: rules.into_iter().map(rule).collect(),
        match_policy: match_policy(entry.match_policy.as_deref()),
        namespace_selector: selector("namespaceSelector", entry.namespace_selector, &mut problems),
        object_selector: selector("objectSelector", entry.object_selector, &mut problems),
        match_conditions: conditions.into_iter().map(match_condition).collect(),
        dry_run_safe: matches!(entry.side_effects.as_str(), "None" | "NoneOnDryRun"),
        reinvoked: kind == HookKind::Mutating && entry.reinvocation_policy.as_deref() == Some("IfNeeded"),
        written: WrittenEntry {
            entry: at,
            timeout_is_default: entry.timeout_seconds.is_none(),
            ca_is_injected: INJECTORS.iter().any(|key| annotation(metadata, key).is_some()),
            ca_ends: last_ca.map(|[_, ends]| ends),
            ca_begins: last_ca.map(|[begins, _]| begins),
            trusted,
        },
        review_versions: entry.admission_review_versions,
        probe_level,
        added,
        breaker: annotation(metadata, OPT_OUT_ANNOTATION).map(|text| text.chars().take(MAX_SAID).collect()),
        target,
        extension: None,
        problems: problems.sentences,
        id,
    }
}

/// What [`SPARE_ANNOTATION`] adds to the requests that a bypass spares.
fn added(metadata: &ObjectMeta, target: &HookTarget, problems: &mut Problems) -> Added {
    let service = match target {
        HookTarget::Service(service) => Some(&*service.namespace),
        HookTarget::Url(_) | HookTarget::Invalid(_) => None,
    };
    let (added, said) = Added::read(annotation(metadata, SPARE_ANNOTATION), service);
    for why in said {
        problems.add(format!("annotation {SPARE_ANNOTATION}: {why}"));
    }
    added
}

fn failure_policy(said: Option<&str>) -> FailurePolicy {
    match said {
        Some("Ignore") => FailurePolicy::Ignore,
        _ => FailurePolicy::Fail,
    }
}

fn match_policy(said: Option<&str>) -> MatchPolicy {
    match said {
        Some("Exact") => MatchPolicy::Exact,
        _ => MatchPolicy::Equivalent,
    }
}

fn match_condition(condition: ApiMatchCondition) -> MatchCondition {
    MatchCondition {
        name: condition.name,
        expression: condition.expression,
    }
}

/// Collects problems as sentences. Each names the hook, so that it can be read on its own.
pub(in crate::io) struct Problems {
    who: String,
    pub(super) sentences: Vec<String>,
}

impl Problems {
    pub(in crate::io) fn of(id: &HookId) -> Self {
        Self {
            who: id.object(),
            sentences: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, what: impl AsRef<str>) {
        self.sentences.push(format!("{}: {}", self.who, what.as_ref()));
    }
}

/// The validity (not before, not after) of the certificate in a bundle that expires last, and the first [`MAX_TRUSTED`]
/// certificates. Skips other PEM blocks and certificates that cannot be parsed, as Go does.
fn trusted(bundle: &[u8]) -> (Option<[Time; 2]>, Vec<Trusted>) {
    let (mut last, mut all) = (None::<[Time; 2]>, Vec::new());
    for der in blocks(bundle) {
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(&der) else {
            continue;
        };
        let validity = certificate.validity();
        let valid = [validity.not_before.timestamp(), validity.not_after.timestamp()];
        let valid = valid.map(Time::from_unix_seconds);
        if last.is_none_or(|[_, ends]| ends < valid[1]) {
            last = Some(valid);
        }
        if all.len() < MAX_TRUSTED {
            let names = certificate.subject_alternative_name().ok().flatten();
            let names = names.iter().flat_map(|names| &names.value.general_names);
            let names = names.filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
                _ => None,
            });
            all.push(Trusted {
                signs: may_sign(&certificate),
                names: names.take(MAX_NAMES).collect(),
            });
        }
    }
    (last, all)
}

/// An IP address in a certificate: 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn timeout(seconds: Option<i32>, problems: &mut Problems) -> Duration {
    let Some(seconds) = seconds else {
        return Hook::DEFAULT_TIMEOUT;
    };
    let held = seconds.clamp(*TIMEOUT_SECONDS.start(), *TIMEOUT_SECONDS.end());
    if held != seconds {
        problems.add(format!(
            "timeoutSeconds {seconds} is outside 1 to 30; {held} is assumed"
        ));
    }
    Duration::from_secs(u64::from(held.unsigned_abs()))
}

fn target(config: &WebhookClientConfig) -> HookTarget {
    match (&config.service, &config.url) {
        (Some(_), Some(_)) => HookTarget::Invalid("both service and url are set; keep one".to_owned()),
        (None, None) => HookTarget::Invalid("neither service nor url is set".to_owned()),
        (None, Some(url)) => match url::parse(url) {
            Ok(target) => HookTarget::Url(target),
            Err(why) => HookTarget::Invalid(why),
        },
        (Some(service), None) => {
            let path = called_path(service.path.as_deref().unwrap_or_default());
            service_target(&service.namespace, &service.name, service.port, path)
        }
    }
}

/// The path as the API server requests it and quotes it in error messages: client-go cleans it with Go's `path.Join`
/// (`rest/url_utils.go`, `rest/request.go`), so it has no trailing slash.
fn called_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A Service target whose Service has not been read yet; port 443 if `port` is `None`.
fn service_target(namespace: &str, name: &str, port: Option<i32>, path: String) -> HookTarget {
    let port = port.unwrap_or(DEFAULT_SERVICE_PORT);
    let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else {
        return HookTarget::Invalid(format!("service.port {port} is not a port"));
    };
    HookTarget::Service(ServiceTarget {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        port,
        path,
        service: ServiceState::Unknown {
            why: service::NOT_READ.to_owned(),
        },
    })
}

fn rule(rule: RuleWithOperations) -> HookRule {
    HookRule {
        operations: rule.operations.unwrap_or_default(),
        api_groups: rule.api_groups.unwrap_or_default(),
        api_versions: rule.api_versions.unwrap_or_default(),
        resources: rule.resources.unwrap_or_default(),
        scope: match rule.scope.as_deref() {
            Some("Cluster") => Scope::Cluster,
            Some("Namespaced") => Scope::Namespaced,
            _ => Scope::All,
        },
    }
}

fn selector(field: &str, selector: Option<LabelSelector>, problems: &mut Problems) -> Selector {
    let selector = selector.unwrap_or_default();
    let expressions = selector.match_expressions.unwrap_or_default();
    Selector {
        match_labels: selector.match_labels.unwrap_or_default(),
        expressions: expressions
            .into_iter()
            .filter_map(|requirement| {
                let Ok(operator) = requirement.operator.parse() else {
                    problems.add(format!(
                        "{field}: the operator {:?} is not known; the requirement on {:?} is left out",
                        requirement.operator, requirement.key
                    ));
                    return None;
                };
                Some(SelectorRequirement {
                    key: requirement.key,
                    operator,
                    values: requirement.values.unwrap_or_default(),
                })
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::domain::cluster::hook::{SelectorOperator, UrlTarget};
    use crate::domain::cluster::inventory::Inventory;

    fn hooks_of(kind: HookKind, configuration: Value) -> Vec<Hook> {
        hooks(
            kind,
            serde_json::from_value(configuration).expect("a configuration"),
        )
    }

    /// The one hook of a ValidatingWebhookConfiguration whose entry is `entry`, laid over the least one.
    fn hook_of(entry: Value) -> Hook {
        let mut webhook = json!({
            "name": "w.example",
            "clientConfig": {"service": {"namespace": "n", "name": "s"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        });
        for (field, value) in entry.as_object().expect("an object") {
            webhook[field] = value.clone();
        }
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "c", "uid": "u-1", "creationTimestamp": "2026-11-21T00:11:02Z"},
            "webhooks": [webhook],
        });
        let mut hooks = hooks_of(HookKind::Validating, configuration);
        assert_eq!(hooks.len(), 1);
        hooks.remove(0)
    }

    fn base64(bytes: &[u8]) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    #[test]
    fn the_path_is_the_one_that_the_api_server_asks_and_quotes() {
        for (path, called) in [("/v/", "/v"), ("v", "/v"), ("", "/"), ("/a//./b/../c/", "/a/c")] {
            let service = json!({"namespace": "n", "name": "s", "path": path});
            let hook = hook_of(json!({"clientConfig": {"service": service}}));
            assert_eq!(hook.url_path(), called, "{path}");
            assert!(
                hook.is_called_at(&format!("https://s.n.svc:443{called}")),
                "{path}"
            );
        }
    }

    #[test]
    fn absent_fields_get_the_api_servers_defaults() {
        let hook = hook_of(json!({}));
        assert_eq!(hook.id, HookId::new(HookKind::Validating, "c", "w.example"));
        assert_eq!(hook.configuration_uid, "u-1");
        assert_eq!(hook.created, Some(Time::from_unix_millis(1_795_219_862_000)));
        assert_eq!(hook.failure_policy, FailurePolicy::Fail);
        assert_eq!(hook.timeout, Duration::from_secs(10));
        assert_eq!(hook.rules[0].scope, Scope::All);
        assert_eq!(hook.match_policy, MatchPolicy::Equivalent);
        assert_eq!(hook.namespace_selector, Selector::default());
        assert_eq!(hook.probe_level, None);
        assert!(hook.ca_bundle.is_empty() && hook.dry_run_safe);
        assert_eq!(hook.problems, Vec::<String>::new());
        let HookTarget::Service(target) = &hook.target else {
            panic!("{:?}", hook.target);
        };
        assert_eq!((target.port, target.path.as_str()), (443, "/"));
        assert!(matches!(target.service, ServiceState::Unknown { .. }));
    }

    #[test]
    fn every_field_is_taken_as_written() {
        let hook = hook_of(json!({
            "failurePolicy": "Ignore",
            "timeoutSeconds": 3,
            "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 8443, "path": "/v"}},
            "rules": [{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"],
                       "resources": ["*/*"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "objectSelector": {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["x"]}]},
            "matchConditions": [{"name": "m", "expression": "true"}],
            "sideEffects": "Some",
            "admissionReviewVersions": ["v1", "v1beta1"],
        }));
        assert_eq!(hook.failure_policy, FailurePolicy::Ignore);
        assert_eq!(hook.timeout, Duration::from_secs(3));
        assert_eq!(hook.rules[0].scope, Scope::Namespaced);
        assert_eq!(hook.rules[0].resources, ["*/*"]);
        assert_eq!(hook.namespace_selector.match_labels["a"], "b");
        assert_eq!(
            hook.object_selector.expressions,
            [SelectorRequirement {
                key: "k".into(),
                operator: SelectorOperator::NotIn,
                values: vec!["x".into()]
            }]
        );
        assert_eq!(hook.match_conditions[0].expression, "true");
        assert!(!hook.dry_run_safe);
        assert_eq!(hook.review_versions, ["v1", "v1beta1"]);
        let HookTarget::Service(target) = &hook.target else {
            panic!("{:?}", hook.target);
        };
        assert_eq!((target.port, target.path.as_str()), (8443, "/v"));
    }

    #[test]
    fn a_hook_by_url_is_no_different() {
        let hook = hook_of(json!({"clientConfig": {"url": "https://hooks.example:8443/v"}}));
        let url = UrlTarget {
            host: "hooks.example".into(),
            port: 8443,
            path: "/v".into(),
        };
        assert_eq!(hook.target, HookTarget::Url(url));
    }

    #[test]
    fn what_is_odd_is_said_in_a_sentence_that_names_the_hook() {
        let junk = base64(b"\n");
        let key = base64(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let service = json!({"namespace": "n", "name": "s"});
        for (entry, says) in [
            (
                json!({"clientConfig": {"service": service, "caBundle": junk}}),
                "caBundle holds no PEM certificate",
            ),
            (
                json!({"clientConfig": {"service": service, "caBundle": key}}),
                "caBundle holds no PEM certificate",
            ),
            (json!({"rules": []}), "rules is empty"),
            (json!({"timeoutSeconds": 31}), "timeoutSeconds 31 is outside"),
            (json!({"timeoutSeconds": 0}), "timeoutSeconds 0 is outside"),
            (json!({"clientConfig": {}}), "neither service nor url"),
            (
                json!({"clientConfig": {"service": service, "url": "https://h"}}),
                "both service and url",
            ),
            (json!({"clientConfig": {"url": "http://h"}}), "only https"),
            (
                json!({"clientConfig": {"service": {"namespace": "n", "name": "s", "port": 70000}}}),
                "service.port 70000",
            ),
            (
                json!({"objectSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}}),
                "objectSelector: the operator \"Near\"",
            ),
        ] {
            let hook = hook_of(entry.clone());
            let [problem] = &hook.problems[..] else {
                panic!("{entry}: {:?}", hook.problems);
            };
            assert!(
                problem.starts_with("ValidatingWebhookConfiguration \"c\", webhook \"w.example\": "),
                "{problem}"
            );
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn timeouts_are_held_within_the_api_servers_range() {
        for (seconds, held) in [(i32::MIN, 1), (0, 1), (1, 1), (30, 30), (i32::MAX, 30)] {
            let hook = hook_of(json!({"timeoutSeconds": seconds}));
            assert_eq!(hook.timeout, Duration::from_secs(held));
        }
    }

    #[test]
    fn one_good_certificate_makes_a_bundle_good_whatever_surrounds_it() {
        let certificate = rcgen::generate_simple_self_signed(["s.n.svc".to_owned()]).expect("a certificate");
        let pem = certificate.cert.pem();
        let junk = "hello\n-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        let cut_off = "-----BEGIN CERTIFICATE-----\ncut off\n";
        for bundle in [
            pem.clone(),
            format!("{junk}{pem}"),
            format!("{pem}{junk}"),
            format!("{cut_off}{pem}"),
        ] {
            let hook = hook_of(json!({"clientConfig":
                {"service": {"namespace": "n", "name": "s"}, "caBundle": base64(bundle.as_bytes())}}));
            assert_eq!(hook.problems, Vec::<String>::new(), "{bundle}");
            let valid = [hook.written.ca_begins, hook.written.ca_ends];
            assert!(valid[0].is_some() && valid[0] < valid[1], "{valid:?}");
            assert_eq!(&*hook.ca_bundle, bundle.as_bytes());
        }
    }

    /// The two hooks of a MutatingWebhookConfiguration with an annotation, called at this place.
    fn annotated(key: &str, value: &str, client_config: Value) -> Vec<Hook> {
        let webhook = json!({"name": "w", "clientConfig": client_config, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"]}]});
        let mut second = webhook.clone();
        second["name"] = json!("w2");
        let configuration = json!({
            "metadata": {"name": "c", "annotations": {key: value}},
            "webhooks": [webhook, second],
        });
        hooks_of(HookKind::Mutating, configuration)
    }

    #[test]
    fn the_probe_annotation_goes_for_all_hooks_of_a_configuration_and_junk_is_reported() {
        let configured = |value: &str| annotated(PROBE_ANNOTATION, value, json!({"url": "https://h"}));
        let hooks = configured("handshake");
        assert_eq!(hooks.len(), 2);
        assert!(
            hooks
                .iter()
                .all(|hook| hook.probe_level == Some(ProbeLevel::Handshake) && hook.problems.is_empty())
        );
        let hooks = configured("maybe");
        assert_eq!(hooks[1].probe_level, None);
        assert!(
            hooks[1].problems[0]
                .starts_with("MutatingWebhookConfiguration \"c\", webhook \"w2\": annotation"),
            "{:?}",
            hooks[1].problems
        );
    }

    #[test]
    fn an_item_of_the_spare_annotation_that_means_nothing_adds_nothing_and_is_a_problem_of_each_webhook() {
        let service = json!({"service": {"namespace": "n", "name": "s"}});
        let hooks = annotated(SPARE_ANNOTATION, "self,pods,leases=ops", service);
        let added = Added {
            own: Some("n".to_owned()),
            leases: vec!["ops".to_owned()],
        };
        assert!(hooks.iter().all(|hook| hook.added == added), "{hooks:?}");
        let inventory = Inventory {
            hooks: hooks.into_iter().map(Arc::new).collect(),
            ..Inventory::default()
        };
        // As an assessment has them.
        let problems = inventory.all_problems();
        let objects: Vec<&str> = problems.iter().map(|problem| &*problem.object).collect();
        let of = |webhook: &str| format!("MutatingWebhookConfiguration \"c\", webhook \"{webhook}\"");
        assert_eq!(objects, [of("w"), of("w2")]);
        for problem in &problems {
            let says = "annotation hookwatch.dev/spare: \"pods\" is ignored: ";
            assert!(problem.what.starts_with(says), "{problem:?}");
        }
    }

    #[test]
    fn mutating_webhooks_are_reinvoked_where_their_owner_asks_for_it() {
        for (kind, policy, reinvoked) in [
            (HookKind::Mutating, json!("IfNeeded"), true),
            (HookKind::Mutating, json!("Never"), false),
            (HookKind::Mutating, json!(null), false),
            (HookKind::Validating, json!("IfNeeded"), false),
        ] {
            let webhook = json!({"name": "w", "clientConfig": {"url": "https://h"}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "reinvocationPolicy": policy});
            let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
            let hooks = hooks_of(kind, configuration);
            assert_eq!(hooks[0].reinvoked, reinvoked, "{kind}: {policy}");
        }
    }

    #[test]
    fn a_configuration_without_webhooks_holds_no_hooks() {
        for configuration in [
            json!({"metadata": {"name": "hookwatch-ledger"}, "webhooks": []}),
            json!({"metadata": null, "webhooks": null}),
            json!({}),
        ] {
            assert_eq!(hooks_of(HookKind::Validating, configuration), []);
        }
    }
}
