//! Whether a webhook is called for a write of the control plane, as far as that can be known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::estate::{Estate, service_key};
use super::writes::{self, ObjectScope, WriteSort};
use crate::cluster::hook::{Hook, Labels, Scope, Selector, SelectorOperator};
use crate::cluster::matching::RequestShape;
use crate::cluster::matching::conditions::{
    ConditionCompiler, ConditionOutcome, ConditionRequest, MatchConditions, RequestObject,
};

/// Stands for the tenant's namespace if none is known. No namespace can have this name.
pub const TENANT: &str = "(tenant)";

/// The label with a namespace's name, which the API server sets on every namespace.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Most different tenants' namespaces that are checked. Namespaces that no namespaceSelector can tell apart count as one.
pub(super) const MAX_TENANTS: usize = 30;
/// Most writes that [`named`] returns for one webhook.
const MAX_WRITES: usize = 30;
/// Most pairs of a group and a resource of one rule that [`named`] considers.
const MAX_NAMED: usize = 1_000;

/// Whether a webhook is called for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// It is not called.
    No,
    /// Its match conditions err, so it is not called. Under `failurePolicy: Fail` the API server refuses the write, even while the
    /// webhook works.
    Errs,
    /// It may be called: a condition or label is unknown.
    May,
    /// It is called.
    Yes,
}

impl From<ConditionOutcome> for Reach {
    fn from(outcome: ConditionOutcome) -> Self {
        match outcome {
            ConditionOutcome::False => Self::No,
            ConditionOutcome::Error => Self::Errs,
            ConditionOutcome::Unknown => Self::May,
            ConditionOutcome::True => Self::Yes,
        }
    }
}

/// A webhook with its compiled match conditions.
pub struct HookReader {
    /// The webhook.
    pub hook: Arc<Hook>,
    pub(super) conditions: MatchConditions,
}

/// The namespaces of tenants, as far as selectors can tell them apart.
#[derive(Debug, Clone)]
pub struct Tenants {
    /// Name and labels of one namespace of each set that no namespaceSelector can tell apart. The labels are `None` if unknown.
    known: Vec<(String, Option<Labels>)>,
    /// The first namespace beyond [`MAX_TENANTS`]; `None` if all are checked.
    pub(super) left_out: Option<String>,
}

impl Tenants {
    /// The tenants of an estate. For manifests, and if no tenant's namespace is known, one with unknown labels is assumed.
    pub fn of(estate: &Estate) -> Self {
        let own: BTreeSet<String> = estate
            .subjects
            .iter()
            .filter_map(|s| Some(service_key(&s.hook)?.0))
            .collect();
        let told_apart = selected_labels(estate);
        // Keyed by the labels that selectors name, so that namespaces with none of them come first.
        let mut different = BTreeMap::new();
        let tenants = estate.namespaces.keys();
        for name in tenants.filter(|name| !name.starts_with("kube-") && !own.contains(*name)) {
            let labels = estate.labels(name);
            let class = labels.iter().filter_map(|(key, value)| {
                let (key, values) = told_apart.get_key_value(key.as_str())?;
                Some((*key, values.get(value.as_str()).copied()))
            });
            let class: Vec<_> = class.collect();
            different.entry(class).or_insert((name.clone(), Some(labels)));
        }
        let mut different = different.into_values();
        let known: Vec<_> = different.by_ref().take(MAX_TENANTS).collect();
        let left_out = different.next().map(|(name, _)| name);
        // A set of manifests is not the whole cluster, so tenants may be elsewhere.
        if known.is_empty() || !estate.is_cluster {
            return Self {
                known: vec![(TENANT.to_owned(), None)],
                left_out: None,
            };
        }
        Self { known, left_out }
    }

    /// Whether the labels of a tenant's namespace are unknown.
    fn are_unknown(&self) -> bool {
        self.known.iter().any(|(_, labels)| labels.is_none())
    }
}

/// The keys and values by which namespaceSelectors tell namespaces apart.
fn selected_labels(estate: &Estate) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for subject in &estate.subjects {
        let selector = &subject.hook.namespace_selector;
        for (key, value) in &selector.match_labels {
            found.entry(key).or_default().insert(value);
        }
        for requirement in &selector.expressions {
            let values = requirement.values.iter().map(String::as_str);
            found.entry(&requirement.key).or_default().extend(values);
        }
    }
    found
}

/// Whether a selector may select a tenant's namespace. Any labels are possible there, except that its name does not begin with
/// `kube-`.
pub fn selects_tenants(selector: &Selector) -> bool {
    let is_tenant = |name: &String| !name.starts_with("kube-");
    let by_label = selector.match_labels.get(NAME_LABEL).is_none_or(is_tenant);
    by_label
        && selector.expressions.iter().all(|requirement| {
            let names = requirement.key == NAME_LABEL && requirement.operator == SelectorOperator::In;
            !names || requirement.values.iter().any(is_tenant)
        })
}

impl HookReader {
    /// Compiles the conditions of a webhook.
    pub fn new(hook: Arc<Hook>, compiler: &ConditionCompiler) -> Self {
        let expressions = hook
            .match_conditions
            .iter()
            .map(|condition| &*condition.expression);
        let conditions = compiler.conditions(expressions);
        Self { hook, conditions }
    }

    /// Whether it is called for a write. `own` is the namespace that [`ObjectScope::Own`] means, with the labels of the Pods
    /// there; if it is `None`, writes to own Pods are [`Reach::No`].
    pub fn reach(
        &self,
        write: &WriteSort,
        estate: &Estate,
        tenants: &Tenants,
        own: Option<(&str, &[&Labels])>,
    ) -> Reach {
        let labels: Option<Labels> = write.labels.map(|labels| {
            let pairs = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            pairs.collect()
        });
        match write.place {
            ObjectScope::Cluster => self.at(write, None, None, labels.as_ref()),
            ObjectScope::In(namespace) => {
                let namespace_labels = estate.labels(namespace);
                self.at(write, Some(namespace), Some(&namespace_labels), labels.as_ref())
            }
            ObjectScope::Own => {
                let Some((namespace, pods)) = own else {
                    return Reach::No;
                };
                let namespace_labels = estate.labels(namespace);
                let at = |labels| self.at(write, Some(namespace), Some(&namespace_labels), labels);
                // Bindings and tokens do not have the Pod's labels.
                let are_pods = write.object[2] == "pods" && labels.is_none();
                if pods.is_empty() || !are_pods {
                    return at(labels.as_ref());
                }
                let each = pods.iter().map(|labels| at(Some(*labels)));
                each.fold(Reach::No, Ord::max)
            }
            ObjectScope::Tenant | ObjectScope::Namespace => {
                if tenants.are_unknown() && !selects_tenants(&self.hook.namespace_selector) {
                    return Reach::No;
                }
                let mut farthest = Reach::No;
                for (name, known) in &tenants.known {
                    let of_object = match write.place {
                        ObjectScope::Namespace => known.as_ref(),
                        _ => labels.as_ref(),
                    };
                    let reach = self.at(write, Some(name), known.as_ref(), of_object);
                    farthest = farthest.max(reach);
                    if farthest == Reach::Yes {
                        break;
                    }
                }
                farthest
            }
        }
    }

    /// Whether it is called for a tenant's write of a namespaced object that a rule names, given as group, version, resource and
    /// subresource.
    pub fn reach_named(&self, object: &[String; 4], operation: &str, tenants: &Tenants) -> Reach {
        if tenants.are_unknown() && !selects_tenants(&self.hook.namespace_selector) {
            return Reach::No;
        }
        let each = tenants.known.iter().map(|(name, labels)| {
            self.reach_of_user(RequestShape {
                namespace: Some(name),
                namespace_labels: labels.as_ref(),
                ..RequestShape::new(operation, object.each_ref().map(String::as_str))
            })
        });
        each.max().unwrap_or(Reach::No)
    }

    /// Whether it is called for an ordinary user's write of this shape.
    pub fn reach_of_user(&self, shape: RequestShape<'_>) -> Reach {
        let asked = ConditionRequest {
            shape,
            kind: None,
            name: "x",
            by: writes::TENANT,
            dry_run: false,
        };
        self.asked(&asked, None)
    }

    fn at(
        &self,
        write: &WriteSort,
        namespace: Option<&str>,
        namespace_labels: Option<&Labels>,
        labels: Option<&Labels>,
    ) -> Reach {
        let shape = RequestShape {
            namespace_labels,
            object_labels: labels.filter(|_| write.operation != "DELETE"),
            old_labels: labels.filter(|_| write.operation != "CREATE"),
            ..write.shape(namespace)
        };
        let asked = ConditionRequest {
            shape,
            kind: Some(write.kind),
            name: write.object_name,
            by: write.by,
            dry_run: false,
        };
        match self.asked(&asked, write.objects().as_ref()) {
            // Unknown labels may not match the objectSelector. Tenants choose their labels, so some tenant's objects do match.
            Reach::Yes
                if labels.is_none()
                    && !self.hook.object_selector.is_empty()
                    && write.place != ObjectScope::Tenant =>
            {
                Reach::May
            }
            reach => reach,
        }
    }

    /// Whether it is called for a request. `objects` are the new and the old object, if they are known.
    fn asked(&self, request: &ConditionRequest<'_>, objects: Option<&[Value; 2]>) -> Reach {
        if !self.hook.could_match(&request.shape) {
            return Reach::No;
        }
        let known = objects.map(|objects| objects.each_ref().map(RequestObject::Object));
        let [new, old] = known.unwrap_or([RequestObject::Unknown; 2]);
        let (new, old) = match request.shape.operation {
            "CREATE" => (new, RequestObject::Null),
            "DELETE" => (RequestObject::Null, old),
            _ => (new, old),
        };
        Reach::from(self.conditions.outcome(request, new, old))
    }
}

/// The writes of namespaced objects that a webhook's rules name, as group, version, resource and subresource with an operation. A
/// rule for all resources of a group counts as one resource, `*`. Rules for all groups are left out:
/// [`super::writes::WRITES`] covers them.
pub fn named(hook: &Hook) -> Vec<([String; 4], &'static str)> {
    let plain = |name: &&String| !name.contains('*');
    let mut found = Vec::new();
    for rule in &hook.rules {
        let mut operations = ["CREATE", "UPDATE", "DELETE"].into_iter();
        let operation = operations.find(|known| rule.names_operation(known));
        let Some(operation) = operation else { continue };
        // Lazy: even a small rule, with many groups and many resources, has millions of pairs.
        let groups = rule.api_groups.iter().filter(plain);
        let pairs = groups.flat_map(|group| rule.resources.iter().map(move |name| (group, name)));
        for (group, name) in pairs.take(MAX_NAMED) {
            if found.len() >= MAX_WRITES {
                return found;
            }
            let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
            let subresource = if subresource == "*" { "" } else { subresource };
            let clustered = rule.scope == Scope::Cluster
                || CLUSTERED.contains(&resource)
                || resource == "*" && CLUSTERED_GROUPS.contains(&group.as_str());
            if !clustered {
                let object = [group, rule.version(), resource, subresource].map(str::to_owned);
                found.push((object, operation));
            }
        }
    }
    found
}

/// Cluster-scoped resources of Kubernetes. A rule for one of them may have any `scope`.
const CLUSTERED: [&str; 28] = [
    "nodes",
    "namespaces",
    "persistentvolumes",
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
    "apiservices",
    "storageclasses",
    "priorityclasses",
    "ingressclasses",
    "runtimeclasses",
    "certificatesigningrequests",
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "volumeattachments",
    "volumeattributesclasses",
    "csidrivers",
    "csinodes",
    "flowschemas",
    "prioritylevelconfigurations",
    "ipaddresses",
    "servicecidrs",
    "clustertrustbundles",
    "resourceslices",
    "deviceclasses",
];

/// API groups of Kubernetes whose resources are all, or almost all, cluster-scoped.
const CLUSTERED_GROUPS: [&str; 9] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "node.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::{HookId, HookKind, HookRule, HookTarget, MatchCondition, SelectorRequirement};
    use crate::cluster::matching::LEASES;
    use crate::cluster::matching::tests::hook;

    /// How far a webhook reaches each of these writes.
    fn reaches(hook: Hook, is_meant: impl Fn(&WriteSort) -> bool) -> Vec<Reach> {
        let reader = HookReader::new(Arc::new(hook), &ConditionCompiler::for_forecasts());
        let (estate, labels) = (Estate::default(), Labels::new());
        let tenants = Tenants {
            known: vec![(TENANT.to_owned(), Some(labels.clone()))],
            left_out: None,
        };
        let writes = writes::WRITES.iter().filter(|write| is_meant(write));
        let reaches =
            writes.map(|write| reader.reach(write, &estate, &tenants, Some(("policy", &[&labels]))));
        reaches.collect()
    }

    /// A webhook for every write that has such a match condition.
    fn on_condition(expression: &str) -> Hook {
        let mut hook = hook(&["*/*"]);
        hook.rules[0].operations = vec!["*".to_owned()];
        hook.match_conditions = vec![MatchCondition {
            name: "c".to_owned(),
            expression: expression.to_owned(),
        }];
        hook
    }

    #[test]
    fn a_renewal_changes_the_times_of_a_lease_that_has_every_field_which_all_have() {
        let outcome = |expression: &str| {
            let mut reaches = reaches(on_condition(expression), |write| write.object == LEASES);
            assert_eq!(reaches.len(), 3);
            reaches.dedup();
            (reaches.len() == 1).then(|| reaches.remove(0))
        };
        for (expression, wanted) in [
            (
                "request.operation == 'CREATE' || object.spec != oldObject.spec",
                Some(Reach::Yes),
            ),
            (
                "object.spec.renewTime != oldObject.spec.renewTime",
                Some(Reach::Yes),
            ),
            ("object.metadata.uid != oldObject.metadata.uid", Some(Reach::No)),
            ("object.metadata.creationTimestamp == ''", Some(Reach::No)),
            (
                "object.metadata.resourceVersion != oldObject.metadata.resourceVersion",
                Some(Reach::No),
            ),
            (
                "object.spec.holderIdentity != oldObject.spec.holderIdentity",
                Some(Reach::No),
            ),
            ("object.metadata.labels['a'] == 'b'", Some(Reach::Errs)),
            // Leaders acquire a Lease, and nodes own theirs.
            ("object.spec.acquireTime == ''", None),
            ("object.metadata.ownerReferences.size() == 1", None),
        ] {
            assert_eq!(outcome(expression), wanted, "{expression}");
        }
    }

    #[test]
    fn a_condition_on_the_name_errs_where_a_name_is_generated_or_a_collection_deleted() {
        let errs = |operation: &str, resource: &str| {
            let is_meant = |write: &WriteSort| {
                write.operation == operation && write.object[2] == resource && write.object[3].is_empty()
            };
            let mut reaches = reaches(on_condition("request.name != 'a'"), is_meant);
            reaches.sort_unstable();
            reaches.dedup();
            reaches
        };
        assert_eq!(errs("CREATE", "pods"), [Reach::Errs]);
        assert_eq!(errs("CREATE", "endpointslices"), [Reach::Errs]);
        assert_eq!(errs("DELETE", "pods"), [Reach::Errs]);
        assert_eq!(
            errs("DELETE", "configmaps"),
            [Reach::Errs, Reach::Yes],
            "a tenant names what it deletes"
        );
        assert_eq!(errs("UPDATE", "endpointslices"), [Reach::Yes]);
    }

    #[test]
    fn an_object_selector_takes_no_binding_and_no_token_as_they_have_no_labels() {
        let is_meant = |write: &WriteSort| ["binding", "token"].contains(&write.object[3]);
        for (operator, wanted) in [
            (SelectorOperator::Exists, Reach::No),
            (SelectorOperator::DoesNotExist, Reach::Yes),
        ] {
            let mut hook = on_condition("true");
            hook.object_selector.expressions = vec![SelectorRequirement {
                key: "app".to_owned(),
                operator,
                values: Vec::new(),
            }];
            assert_eq!(reaches(hook, is_meant), [wanted; 5], "{operator:?}");
        }
    }

    #[test]
    fn what_is_in_no_namespace_is_no_write_of_a_tenant_though_its_rule_does_not_say_so() {
        let mut hook = hook(&["widgets"]);
        hook.rules[0].api_groups = vec!["example.com".to_owned()];
        let all = [
            "volumeattachments",
            "csinodes",
            "flowschemas",
            "selfsubjectreviews",
            "servicecidrs",
        ];
        hook.rules[0].resources = all.map(str::to_owned).to_vec();
        assert_eq!(named(&hook), []);
        hook.rules[0].resources.push("resourceclaims".to_owned());
        assert_eq!(named(&hook).len(), 1);
    }

    #[test]
    fn a_small_rule_of_many_groups_and_resources_makes_no_long_list() {
        let names = || (0..3_000).map(|number| format!("n{number}")).collect();
        let id = HookId::new(HookKind::Validating, "c", "w");
        let mut hook = Hook::new(id, HookTarget::Invalid("none".to_owned()));
        hook.rules = vec![HookRule {
            operations: vec!["*".to_owned()],
            api_groups: names(),
            api_versions: vec!["v1".to_owned()],
            resources: names(),
            scope: Scope::All,
        }];
        let found = named(&hook);
        assert_eq!(found.len(), MAX_WRITES);
        assert!(found.capacity() <= 3 * MAX_WRITES, "{}", found.capacity());
    }
}
