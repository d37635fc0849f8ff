//! A genuine `AdmissionReview`, as the API server would send it for a dry-run write of ours.
//!
//! The function is pure: the hook's rules and our account go in, bytes come out. The object is one that the hook's own rules match,
//! because a hook may rightly fail on a kind that it never registered for.

use serde_json::{Value, json};

use crate::domain::cluster::hook::{Hook, HookKind, HookRule, Selector, SelectorOperator};
use crate::domain::cluster::matching::RequestShape;
use crate::domain::text::{named, own_account, own_groups};
use crate::domain::time::Time;

pub(super) mod answer;
mod objects;

use objects::{KINDS, ReviewedKind};
use strum::{IntoStaticStr, VariantArray};

/// The versions of `admission.k8s.io` that the API server supports. Their order does not matter: the hook's list decides.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The name of the object in the review. It is never created.
const NAME: &str = "hookwatch-probe";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Review {
    /// The version of `admission.k8s.io`: `v1` or `v1beta1`.
    pub(super) version: &'static str,
    pub(super) uid: String,
    /// Whether the hook may answer with a patch.
    pub(super) mutating: bool,
    pub(super) body: Vec<u8>,
}

/// The operations a review can be made for, the preferred one first. CONNECT and subresources are left out: their objects are
/// options of a call that is not being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "UPPERCASE")]
enum ReviewOperation {
    Create,
    Update,
    Delete,
}

named!(ReviewOperation, "Its name.", all);

impl ReviewOperation {
    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Makes the review of one probe: as the account that the daemon has in a cluster, of an object in its own `namespace`.
///
/// # Errors
/// Why this hook gets none.
pub(super) fn build(hook: &Hook, namespace: &str, uid: String, now: Time) -> Result<Review, String> {
    if !hook.dry_run_safe {
        return Err(
            "sideEffects is neither None nor NoneOnDryRun, so it must not be sent a review of ours".into(),
        );
    }
    let spoken = hook.review_versions.iter().find_map(|listed| {
        let known = VERSIONS.iter().find(|version| *version == listed);
        known.copied()
    });
    let version = spoken.ok_or("admissionReviewVersions lists neither v1 nor v1beta1")?;
    let (kind, operation) =
        pick(&hook.rules).ok_or("its rules match no kind that a review can be made of")?;

    let object = object(kind, namespace, &uid, now, &hook.object_selector);
    let with_object = operation != ReviewOperation::Delete;
    let with_old = operation != ReviewOperation::Create;
    let group_version_kind = json!({"group": kind.group, "version": "v1", "kind": kind.kind});
    let group_version_resource = json!({"group": kind.group, "version": "v1", "resource": kind.resource});
    let mut request = json!({
        "uid": uid,
        "kind": group_version_kind,
        "resource": group_version_resource,
        "requestKind": group_version_kind,
        "requestResource": group_version_resource,
        "name": NAME,
        "operation": operation.as_str(),
        "userInfo": {"username": own_account(namespace), "groups": own_groups(namespace)},
        "object": if with_object { object.clone() } else { Value::Null },
        "oldObject": if with_old { object } else { Value::Null },
        "dryRun": true,
        "options": {"kind": operation.options(), "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]},
    });
    // A request about a Namespace has the object's own name in this field.
    if kind.namespaced {
        request["namespace"] = json!(namespace);
    } else if kind.kind == "Namespace" {
        request["namespace"] = json!(NAME);
    }
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{version}"),
        "request": request,
    });
    Ok(Review {
        version,
        uid,
        mutating: hook.id.kind == HookKind::Mutating,
        body: review.to_string().into_bytes(),
    })
}

/// The first operation, in the order of [`ReviewOperation`], for which a rule matches any kind of the table, with the first such
/// kind.
fn pick(rules: &[HookRule]) -> Option<(&'static ReviewedKind, ReviewOperation)> {
    ReviewOperation::ALL.iter().find_map(|operation| {
        let kind = KINDS
            .iter()
            .find(|kind| rules.iter().any(|rule| rule.matches(&kind.request(*operation))))?;
        Some((kind, *operation))
    })
}

impl ReviewedKind {
    /// A write of an object of this kind, in a namespace where it has one.
    fn request(&self, operation: ReviewOperation) -> RequestShape<'static> {
        RequestShape {
            namespace: self.namespaced.then_some(NAME),
            ..RequestShape::new(operation.as_str(), [self.group, "v1", self.resource, ""])
        }
    }
}

fn object(kind: &ReviewedKind, namespace: &str, uid: &str, now: Time, selector: &Selector) -> Value {
    let api_version = if kind.group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{}/v1", kind.group)
    };
    let mut labels = labels(selector);
    labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("hookwatch"));
    // Kubernetes writes whole seconds.
    let created = Time::from_unix_millis(now.unix_millis() / 1_000 * 1_000).to_string();
    let mut metadata = json!({
        "name": NAME,
        "uid": uid,
        "creationTimestamp": created.replace(".000Z", "Z"),
        "labels": labels,
    });
    if kind.namespaced {
        metadata["namespace"] = json!(namespace);
    }
    let mut object = (kind.rest)(namespace);
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.kind.into();
    object["metadata"] = metadata;
    object
}

/// Labels that match an objectSelector, unless it contradicts itself.
fn labels(selector: &Selector) -> serde_json::Map<String, Value> {
    let required = selector
        .expressions
        .iter()
        .filter_map(|requirement| match requirement.operator {
            SelectorOperator::In => Some((&requirement.key, requirement.values.first()?.as_str())),
            SelectorOperator::Exists => Some((&requirement.key, "true")),
            SelectorOperator::NotIn | SelectorOperator::DoesNotExist => None,
        });
    let mut labels: serde_json::Map<String, Value> =
        required.map(|(key, value)| (key.clone(), json!(value))).collect();
    for (key, value) in &selector.match_labels {
        labels.insert(key.clone(), json!(value));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::hook::{HookId, HookTarget, Scope, SelectorRequirement};

    const NOW: Time = Time::from_unix_millis(1_795_219_862_156);

    fn hook(rules: Vec<HookRule>) -> Hook {
        let id = HookId::new(HookKind::Mutating, "configuration", "hook.example.com");
        Hook {
            rules,
            review_versions: vec!["v1".to_owned(), "v1beta1".to_owned()],
            ..Hook::new(id, HookTarget::Invalid(String::new()))
        }
    }

    fn rule(
        operations: &[&str],
        groups: &[&str],
        versions: &[&str],
        resources: &[&str],
        scope: Scope,
    ) -> HookRule {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        HookRule {
            operations: owned(operations),
            api_groups: owned(groups),
            api_versions: owned(versions),
            resources: owned(resources),
            scope,
        }
    }

    fn made(hook: &Hook) -> Value {
        let review = build(hook, "watch", "the-uid".to_owned(), NOW).expect("a review");
        serde_json::from_slice(&review.body).expect("JSON")
    }

    /// What a single rule gets: kind and operation.
    fn picked(rule: HookRule) -> Option<(&'static str, &'static str)> {
        pick(&[rule]).map(|(kind, operation)| (kind.kind, operation.as_str()))
    }

    #[test]
    fn a_review_has_every_field_the_api_server_sends() {
        let review = made(&hook(vec![rule(&["*"], &["*"], &["*"], &["*"], Scope::All)]));
        let expected = json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "the-uid",
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
                "name": "hookwatch-probe",
                "namespace": "watch",
                "operation": "CREATE",
                "userInfo": {
                    "username": "system:serviceaccount:watch:hookwatch",
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:watch", "system:authenticated"],
                },
                "object": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": "hookwatch-probe",
                        "namespace": "watch",
                        "uid": "the-uid",
                        "creationTimestamp": "2026-11-21T00:11:02Z",
                        "labels": {"app.kubernetes.io/managed-by": "hookwatch"},
                    },
                    "data": {"probe": "true"},
                },
                "oldObject": null,
                "dryRun": true,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]},
            },
        });
        assert_eq!(review, expected);
    }

    #[test]
    fn the_kind_is_one_that_the_rules_match() {
        let all = &["*"][..];
        let core =
            |operations: &[&str], resources: &[&str]| rule(operations, &[""], &["v1"], resources, Scope::All);
        assert_eq!(
            picked(core(all, &["pods", "secrets"])),
            Some(("Secret", "CREATE"))
        );
        assert_eq!(picked(core(&["UPDATE"], &["pods"])), Some(("Pod", "UPDATE")));
        assert_eq!(
            picked(core(&["DELETE", "CONNECT"], &["*/*"])),
            Some(("ConfigMap", "DELETE"))
        );
        assert_eq!(picked(core(all, &["pods/*"])), Some(("Pod", "CREATE")));
        let apps = rule(all, &["apps"], all, &["deployments"], Scope::Namespaced);
        assert_eq!(picked(apps), Some(("Deployment", "CREATE")));
        let cluster = rule(all, all, all, all, Scope::Cluster);
        assert_eq!(picked(cluster), Some(("Namespace", "CREATE")));
    }

    #[test]
    fn what_cannot_be_made_faithfully_is_not_made() {
        let all = &["*"][..];
        for rule in [
            rule(all, &[""], &["v1"], &["pods/exec", "*/status"], Scope::All),
            rule(&["CONNECT"], all, all, all, Scope::All),
            rule(all, &["apps"], &["v1beta1"], &["deployments"], Scope::All),
            rule(all, &["example.com"], all, all, Scope::All),
            rule(all, &["apps"], all, all, Scope::Cluster),
        ] {
            assert_eq!(picked(rule.clone()), None, "{rule:?}");
        }
        assert!(pick(&[]).is_none());
        let mut unsafe_hook = hook(vec![rule(all, all, all, all, Scope::All)]);
        unsafe_hook.dry_run_safe = false;
        assert!(build(&unsafe_hook, "watch", String::new(), NOW).is_err());
        let mut foreign = hook(vec![rule(all, all, all, all, Scope::All)]);
        foreign.review_versions = vec!["v2".to_owned()];
        assert!(build(&foreign, "watch", String::new(), NOW).is_err());
    }

    #[test]
    fn an_update_shows_both_objects_and_a_deletion_only_the_old_one() {
        let of = |operation: &str| {
            made(&hook(vec![rule(
                &[operation],
                &[""],
                &["v1"],
                &["configmaps"],
                Scope::All,
            )]))["request"]
                .clone()
        };
        let update = of("UPDATE");
        assert!(update["object"].is_object() && update["oldObject"].is_object());
        assert_eq!(update["options"]["kind"], "UpdateOptions");
        let delete = of("DELETE");
        assert!(delete["object"].is_null() && delete["oldObject"].is_object());
        assert_eq!(delete["options"]["kind"], "DeleteOptions");
    }

    #[test]
    fn the_first_version_both_sides_know_is_spoken() {
        let mut old = hook(vec![rule(&["*"], &["*"], &["*"], &["*"], Scope::All)]);
        old.review_versions = vec!["v2alpha1".to_owned(), "v1beta1".to_owned(), "v1".to_owned()];
        assert_eq!(made(&old)["apiVersion"], "admission.k8s.io/v1beta1");
    }

    #[test]
    fn the_object_has_the_labels_the_hook_selects() {
        let mut choosy = hook(vec![rule(&["*"], &["*"], &["*"], &["*"], Scope::All)]);
        choosy
            .object_selector
            .match_labels
            .insert("a".to_owned(), "1".to_owned());
        choosy.object_selector.expressions = [
            ("b", SelectorOperator::In, vec!["2", "3"]),
            ("c", SelectorOperator::Exists, vec![]),
            ("d", SelectorOperator::DoesNotExist, vec![]),
            ("e", SelectorOperator::NotIn, vec!["5"]),
        ]
        .map(|(key, operator, values)| SelectorRequirement {
            key: key.to_owned(),
            operator,
            values: values.into_iter().map(str::to_owned).collect(),
        })
        .to_vec();
        let labels = &made(&choosy)["request"]["object"]["metadata"]["labels"];
        let expected = json!({"a": "1", "b": "2", "c": "true", "app.kubernetes.io/managed-by": "hookwatch"});
        assert_eq!(labels, &expected);
    }

    #[test]
    fn a_namespace_lies_in_itself_and_other_cluster_objects_nowhere() {
        let of = |resource: &str| {
            made(&hook(vec![rule(
                &["CREATE"],
                &["*"],
                &["*"],
                &[resource],
                Scope::Cluster,
            )]))["request"]
                .clone()
        };
        assert_eq!(of("namespaces")["namespace"], NAME);
        assert_eq!(of("clusterroles").get("namespace"), None);
        assert_eq!(of("nodes")["object"]["metadata"].get("namespace"), None);
    }
}
