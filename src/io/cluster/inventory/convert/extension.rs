//! Converts CustomResourceDefinitions and APIServices to the hooks behind them.
//!
//! [`super::super::lean`] has already removed the schemas. Most objects of either kind have no hook: CRDs without a
//! conversion webhook, and APIServices that kube-apiserver serves itself.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig as ConversionClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;

use super::{Problems, instant, look_at_bundle, probe_level, service_target, target};
use crate::domain::cluster::hook::{
    Aggregated, Available, Conversion, Extension, Hook, HookId, HookKind, HookTarget,
};
use crate::domain::text::bounded;

/// Most served versions of one CRD that are kept, not counting the storage version.
const MAX_VERSIONS: usize = 32;

/// The conversion webhook of a CRD; `None` if it has none.
pub(in crate::io::cluster::inventory) fn conversion(definition: CustomResourceDefinition) -> Option<Hook> {
    let CustomResourceDefinition { metadata, spec, .. } = definition;
    let conversion = spec.conversion.filter(|it| it.strategy == "Webhook")?;
    let webhook = conversion.webhook?;
    let client = client_config(webhook.client_config.unwrap_or_default());
    // The API server treats a caBundle of only white space as empty (1.36, `webhook_converter.go`).
    let ca_bundle = client.ca_bundle.as_ref().map_or(&[][..], |bytes| &bytes.0);
    let ca_bundle = if ca_bundle.trim_ascii().is_empty() {
        &[]
    } else {
        ca_bundle
    };
    let stored = spec.versions.iter().find(|version| version.storage);
    let others = spec
        .versions
        .iter()
        .filter(|version| version.served && !version.storage)
        .take(MAX_VERSIONS);
    let conversion = Conversion {
        group: spec.group,
        resource: spec.names.plural,
        stored: stored.map_or_else(String::new, |version| version.name.clone()),
        others: others.map(|version| version.name.clone()).collect(),
    };
    Some(Hook {
        timeout: Conversion::TIMEOUT,
        review_versions: webhook.conversion_review_versions,
        extension: Some(Extension::Conversion(conversion)),
        ..hook(HookKind::Conversion, &metadata, target(&client), ca_bundle)
    })
}

/// The same fields in the type that admission webhooks have.
fn client_config(config: ConversionClientConfig) -> WebhookClientConfig {
    WebhookClientConfig {
        ca_bundle: config.ca_bundle,
        service: config.service.map(|service| ServiceReference {
            name: service.name,
            namespace: service.namespace,
            path: service.path,
            port: service.port,
        }),
        url: config.url,
    }
}

/// The server behind an APIService; `None` if the API server serves it itself.
pub(in crate::io::cluster::inventory) fn aggregated(registration: APIService) -> Option<Hook> {
    let APIService {
        metadata,
        spec,
        status,
    } = registration;
    let spec = spec.unwrap_or_default();
    let service = spec.service?;
    let name = metadata.name.as_deref().unwrap_or_default();
    let (group, version) = (spec.group.unwrap_or_default(), spec.version.unwrap_or_default());
    // The path that the aggregator requests to check whether the service is available (1.36,
    // `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`).
    let path = match name {
        "v1." => format!("/api/{version}"),
        _ => format!("/apis/{group}/{version}"),
    };
    let [service_namespace, service_name] = [service.namespace, service.name].map(Option::unwrap_or_default);
    let target = service_target(&service_namespace, &service_name, service.port, path);
    let ca_bundle = spec.ca_bundle.as_ref().map_or(&[][..], |bytes| &bytes.0);
    let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
    let available = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Available");
    let aggregated = Aggregated {
        group,
        version,
        insecure: spec.insecure_skip_tls_verify.unwrap_or_default(),
        available: available.map(|condition| Available {
            status: match condition.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: bounded(&condition.reason.unwrap_or_default()),
            message: bounded(&condition.message.unwrap_or_default()),
            since: condition.last_transition_time.as_ref().and_then(instant),
        }),
    };
    Some(Hook {
        timeout: Aggregated::TIMEOUT,
        extension: Some(Extension::Aggregated(aggregated)),
        ..hook(HookKind::Aggregated, &metadata, target, ca_bundle)
    })
}

/// The fields that both kinds have in common. These hooks have no rules, so that no write matches them and no dry run
/// reaches them. The caller sets the timeout.
fn hook(kind: HookKind, metadata: &ObjectMeta, target: HookTarget, ca_bundle: &[u8]) -> Hook {
    let name = metadata.name.as_deref().unwrap_or_default();
    let id = HookId::new(kind, name, name);
    let mut problems = Problems::of(&id);
    let probe_level = probe_level(metadata, &mut problems);
    look_at_bundle(ca_bundle, &mut problems);
    if let HookTarget::Invalid(why) = &target {
        problems.add(why);
    }
    Hook {
        configuration_uid: metadata.uid.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().and_then(instant),
        ca_bundle: Arc::from(ca_bundle),
        dry_run_safe: false,
        probe_level,
        problems: problems.sentences,
        ..Hook::new(id, target)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::domain::cluster::hook::ProbeLevel;
    use crate::domain::time::Time;

    fn definition(conversion: &Value) -> Value {
        json!({
            "metadata": {"name": "widgets.example.com", "uid": "u-1",
                "annotations": {"hookwatch.dev/probe": "handshake"}},
            "spec": {
                "group": "example.com",
                "names": {"plural": "widgets", "kind": "Widget"},
                "scope": "Namespaced",
                "versions": [
                    {"name": "v1", "served": true, "storage": true},
                    {"name": "v1beta1", "served": true, "storage": false},
                    {"name": "v1alpha1", "served": false, "storage": false},
                ],
                "conversion": conversion,
            },
        })
    }

    fn converted(conversion: &Value) -> Option<Hook> {
        super::conversion(serde_json::from_value(definition(conversion)).expect("a definition"))
    }

    #[test]
    fn a_conversion_webhook_is_a_hook_with_the_name_of_its_definition() {
        let hook = converted(&json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"caBundle": "IAo=",
                "service": {"namespace": "n", "name": "s", "path": "/convert"}},
        }}))
        .expect("a hook");
        assert_eq!(
            hook.id,
            HookId::new(HookKind::Conversion, "widgets.example.com", "widgets.example.com")
        );
        assert_eq!(hook.timeout, Duration::from_secs(30));
        assert_eq!(hook.probe_level, Some(ProbeLevel::Handshake));
        assert!(
            hook.ca_bundle.is_empty() && hook.problems.is_empty(),
            "white space is no bundle: {:?}",
            hook.problems
        );
        let HookTarget::Service(target) = &hook.target else {
            panic!("{:?}", hook.target);
        };
        assert_eq!((target.port, target.path.as_str()), (443, "/convert"));
        assert_eq!(
            hook.extension,
            Some(Extension::Conversion(Conversion {
                group: "example.com".into(),
                resource: "widgets".into(),
                stored: "v1".into(),
                others: vec!["v1beta1".into()],
            }))
        );
    }

    #[test]
    fn most_definitions_have_no_hook() {
        for conversion in [
            json!(null),
            json!({"strategy": "None"}),
            json!({"strategy": "Webhook"}),
        ] {
            assert_eq!(converted(&conversion), None);
        }
    }

    #[test]
    fn a_conversion_webhook_by_url_is_no_different() {
        let hook = converted(&json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "https://127.0.0.1:8443/convert"}}}));
        assert!(matches!(hook.expect("a hook").target, HookTarget::Url(url) if url.port == 8443));
    }

    fn registered(name: &str, spec: &Value, conditions: &Value) -> Option<Hook> {
        let registration = json!({"metadata": {"name": name}, "spec": spec,
            "status": {"conditions": conditions}});
        aggregated(serde_json::from_value(registration).expect("a registration"))
    }

    #[test]
    fn an_apiservice_is_a_hook_where_another_server_answers_for_it() {
        let local = json!({"group": "apps", "version": "v1"});
        assert_eq!(registered("v1.apps", &local, &json!([])), None);
        let spec = json!({"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": "metrics-server"}});
        let condition = json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints",
            "message": "endpointslices for service/metrics-server have no addresses",
            "lastTransitionTime": "2026-11-21T00:11:02Z"}]);
        let hook = registered("v1beta1.metrics.k8s.io", &spec, &condition).expect("a hook");
        assert_eq!(hook.url_path(), "/apis/metrics.k8s.io/v1beta1");
        assert_eq!(
            hook.server_name().as_deref(),
            Some("metrics-server.kube-system.svc")
        );
        let Some(Extension::Aggregated(aggregated)) = hook.extension else {
            panic!("{:?}", hook.extension);
        };
        assert!(aggregated.insecure);
        let available = aggregated.available.expect("a condition");
        assert_eq!(
            (available.status, available.reason.as_str()),
            (Some(false), "MissingEndpoints")
        );
        assert_eq!(available.since, Some(Time::from_unix_millis(1_795_219_862_000)));
    }

    #[test]
    fn the_legacy_group_is_asked_for_under_its_own_path() {
        let spec = json!({"version": "v1", "service": {"namespace": "n", "name": "s", "port": 6443}, "caBundle": "eA=="});
        let hook = registered("v1.", &spec, &json!([])).expect("a hook");
        assert_eq!(hook.url_path(), "/api/v1");
        let [problem] = &hook.problems[..] else {
            panic!("{:?}", hook.problems);
        };
        assert!(
            problem.starts_with("APIService \"v1.\": caBundle holds no PEM"),
            "{problem}"
        );
    }
}
