//! A genuine `AdmissionReview`, as the API server would send it for a dry-run write of ours.
//!
//! Pure: the hook's rules and who we are come in, bytes go out. The object is one that the hook's own rules
//! match, because a hook may rightly choke on a kind that it never registered for.

use serde_json::{Value, json};

use crate::domain::hook::{Hook, HookKind, Rule, Scope, Selector, SelectorOperator};
use crate::domain::time::Time;

pub(super) mod answer;
mod objects;

use objects::{KINDS, Kind};

/// The versions the API server speaks, best first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The name of the object in the review. It never comes to exist.
const NAME: &str = "hookwatch-probe";

/// As whom and where a review is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewSubject {
    /// Our own namespace: the object of the review lies there.
    pub namespace: String,
    /// Our own user name, `system:serviceaccount:<namespace>:<name>` in a cluster.
    pub username: String,
    /// Our own groups.
    pub groups: Vec<String>,
}

/// A review ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Review {
    /// The version of `admission.k8s.io`: `v1` or `v1beta1`.
    pub(super) version: &'static str,
    /// `request.uid`.
    pub(super) uid: String,
    /// Whether the hook may answer with a patch.
    pub(super) mutating: bool,
    /// The JSON.
    pub(super) body: Vec<u8>,
}

/// The operations a review can be made for, best first. CONNECT and subresources are left alone: their
/// objects are options of a call that is not being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Delete];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Makes the review of one probe.
///
/// # Errors
/// Why this hook gets none.
pub(super) fn build(hook: &Hook, subject: &ReviewSubject, uid: String, now: Time) -> Result<Review, String> {
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

    let object = object(kind, subject, &uid, now, &hook.object_selector);
    let with_object = operation != Operation::Delete;
    let with_old = operation != Operation::Create;
    let group_version_kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let group_version_resource =
        json!({"group": kind.group, "version": kind.version, "resource": kind.resource});
    let mut request = json!({
        "uid": uid,
        "kind": group_version_kind,
        "resource": group_version_resource,
        "requestKind": group_version_kind,
        "requestResource": group_version_resource,
        "name": NAME,
        "operation": operation.as_str(),
        "userInfo": {"username": subject.username, "groups": subject.groups},
        "object": if with_object { object.clone() } else { Value::Null },
        "oldObject": if with_old { object } else { Value::Null },
        "dryRun": true,
        "options": {"kind": operation.options(), "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]},
    });
    // A request about a Namespace carries its own name there.
    if kind.namespaced {
        request["namespace"] = json!(subject.namespace);
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

/// The first kind, in the table's order, that any rule matches, with the gentlest operation.
fn pick(rules: &[Rule]) -> Option<(&'static Kind, Operation)> {
    Operation::ALL.iter().find_map(|operation| {
        let kind = KINDS
            .iter()
            .find(|kind| rules.iter().any(|rule| matches(rule, kind, *operation)))?;
        Some((kind, *operation))
    })
}

/// The API server's `rules.Matcher` for an object without a subresource.
fn matches(rule: &Rule, kind: &Kind, operation: Operation) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    let resource = rule.resources.iter().any(|pattern| {
        let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
        (resource == "*" || resource == kind.resource) && (subresource == "*" || subresource.is_empty())
    });
    let scope = match rule.scope {
        Scope::All => true,
        Scope::Cluster => !kind.namespaced,
        Scope::Namespaced => kind.namespaced,
    };
    resource
        && scope
        && has(&rule.operations, operation.as_str())
        && has(&rule.api_groups, kind.group)
        && has(&rule.api_versions, kind.version)
}

fn object(kind: &Kind, subject: &ReviewSubject, uid: &str, now: Time, selector: &Selector) -> Value {
    let api_version = if kind.group.is_empty() {
        kind.version.to_owned()
    } else {
        format!("{}/{}", kind.group, kind.version)
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
        metadata["namespace"] = json!(subject.namespace);
    }
    let mut object = json!({"apiVersion": api_version, "kind": kind.kind, "metadata": metadata});
    for (field, value) in (kind.rest)(&subject.namespace) {
        object[field] = value;
    }
    object
}

/// Labels that meet an objectSelector as far as one can without contradiction.
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
