//! deploy/: every object is one that Kubernetes knows, field by field.
//!
//! Decoding alone would pass over a field that is misspelt. So each object is decoded as its kind and written again, and
//! everything that stood in the file has to stand there still.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::deploy::{manifests, objects};

/// Kinds that come with something else than Kubernetes. The Prometheus operator's are held against the rules that they
/// are made from, and kustomize itself reads its own.
const OTHERS: [&str; 4] = ["Kustomization", "Component", "ServiceMonitor", "PrometheusRule"];

/// An object as its kind has it, or why it is none.
fn again(object: &Value) -> Result<Value, String> {
    fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
        let typed: K = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        serde_json::to_value(typed).map_err(|error| error.to_string())
    }
    match object["kind"].as_str().unwrap_or_default() {
        "ClusterRole" => through::<ClusterRole>(object),
        "ClusterRoleBinding" => through::<ClusterRoleBinding>(object),
        "ConfigMap" => through::<ConfigMap>(object),
        "CronJob" => through::<CronJob>(object),
        "Deployment" => through::<Deployment>(object),
        "FlowSchema" => through::<FlowSchema>(object),
        "Lease" => through::<Lease>(object),
        "Namespace" => through::<Namespace>(object),
        "NetworkPolicy" => through::<NetworkPolicy>(object),
        "Pod" => through::<Pod>(object),
        "PodDisruptionBudget" => through::<PodDisruptionBudget>(object),
        "PriorityClass" => through::<PriorityClass>(object),
        "PriorityLevelConfiguration" => through::<PriorityLevelConfiguration>(object),
        "Role" => through::<Role>(object),
        "RoleBinding" => through::<RoleBinding>(object),
        "Service" => through::<Service>(object),
        "ServiceAccount" => through::<ServiceAccount>(object),
        "MutatingWebhookConfiguration" => through::<MutatingWebhookConfiguration>(object),
        "ValidatingWebhookConfiguration" => through::<ValidatingWebhookConfiguration>(object),
        "ValidatingAdmissionPolicy" => through::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => through::<ValidatingAdmissionPolicyBinding>(object),
        kind => Err(format!("{kind:?} is not among the kinds that are tested")),
    }
}

/// Where something that was written is not there any more.
fn lost(written: &Value, kept: &Value, path: &str) -> Vec<String> {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => written
            .iter()
            .flat_map(|(key, value)| {
                let path = format!("{path}.{key}");
                kept.get(key)
                    .map_or_else(|| vec![path.clone()], |kept| lost(value, kept, &path))
            })
            .collect(),
        (Value::Array(written), Value::Array(kept)) if written.len() == kept.len() => {
            let pairs = written.iter().zip(kept).enumerate();
            pairs
                .flat_map(|(place, (value, kept))| lost(value, kept, &format!("{path}[{place}]")))
                .collect()
        }
        (written, kept) if written == kept => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

#[test]
fn every_object_is_of_its_kind_and_loses_no_field() {
    let mut count = 0;
    for path in manifests() {
        let path = path.to_string_lossy();
        for object in objects(&path) {
            let is_other = object["kind"].as_str().is_none_or(|kind| OTHERS.contains(&kind));
            if is_other {
                continue;
            }
            let again = again(&object).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(lost(&object, &again, ""), [""; 0], "{path}");
            count += 1;
        }
    }
    assert!(count > 30, "only {count} objects were found");
}

#[test]
fn a_field_that_is_misspelt_is_found_wherever_it_is() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}]}]},
    });
    assert_eq!(lost(&object, &again(&object).unwrap(), ""), [""; 0]);
    object["spec"]["containers"][0]["ports"][0]["hostport"] = 1.into();
    assert_eq!(
        lost(&object, &again(&object).unwrap(), ""),
        [".spec.containers[0].ports[0].hostport"]
    );
    object["spec"]["containers"] = "none".into();
    assert!(again(&object).is_err());
}
