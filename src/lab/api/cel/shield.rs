//! Compares what a shield's condition spares with what hookwatch counts as spared.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::{Program, Variables};
use crate::domain::cluster::condition::spare::{LINES, Spare, SparedWriter};
use crate::domain::cluster::hook::Added;
use crate::domain::cluster::matching::conditions::{
    ConditionCompiler, ConditionOutcome, ConditionRequest, RequestObject,
};
use crate::domain::cluster::matching::{RequestShape, Requester};

const NAMESPACES: [&str; 6] = [
    "kube-system",
    "kube-node-lease",
    "hookwatch",
    "tenant",
    "policy",
    "default",
];

/// Every object of the table, those that an owner can add, and similar ones.
fn objects() -> Vec<(&'static str, &'static str, &'static str)> {
    let listed = LINES.iter().flat_map(|line| line.what.objects());
    let near = [
        ("", "pods", ""),
        ("", "pods", "exec"),
        ("", "pods", "eviction"),
        ("", "namespaces", ""),
        ("", "namespaces", "finalize"),
        ("", "configmaps", ""),
        ("other.example", "nodes", ""),
        ("apps", "deployments", ""),
        ("apps", "deployments", "scale"),
        ("apps", "replicasets", "status"),
        ("coordination.k8s.io", "leases", ""),
    ];
    listed.chain(near).collect()
}

/// Every writer of the table, and others.
fn users() -> Vec<&'static str> {
    let users = LINES.iter().flat_map(|line| match line.writer {
        SparedWriter::Users(users) => users,
        SparedWriter::Anyone | SparedWriter::Group(_) => &[][..],
    });
    let others = [
        "a-person",
        "system:serviceaccount:tenant:node-controller",
        "system:serviceaccount:kube-system:replicaset-controller",
    ];
    users.copied().chain(others).collect()
}

fn added() -> impl Strategy<Value = Added> {
    let own = proptest::option::of(select(vec!["policy".to_owned()]));
    let leases = subsequence(vec!["tenant".to_owned(), "policy".to_owned()], 0..=2);
    (own, leases).prop_map(|(own, leases)| Added { own, leases })
}

fn of(shape: &RequestShape<'_>, by: Option<Requester<'_>>, bare: bool) -> Value {
    let mut request = json!({
        "operation": shape.operation, "dryRun": false, "userInfo": {},
        "resource": {"group": shape.group, "version": "v1", "resource": shape.resource},
    });
    if let Some(namespace) = shape.namespace {
        request["namespace"] = namespace.into();
    }
    // An API server omits an absent subresource; others send it as an empty string.
    if !shape.subresource.is_empty() || !bare {
        request["subResource"] = shape.subresource.into();
    }
    if let Some(by) = by {
        request["userInfo"] = json!({"username": by.user, "groups": by.groups});
    }
    request
}

thread_local! {
    /// Shared by all cases, because compiling takes longer than all evaluations.
    static FORECASTS: ConditionCompiler = ConditionCompiler::for_forecasts();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_condition_spares_what_hookwatch_takes_for_spared_and_nothing_else(
        object in select(objects()),
        operation in select(vec!["CREATE", "UPDATE", "DELETE", "CONNECT"]),
        namespace in proptest::option::of(select(NAMESPACES.to_vec())),
        user in select(users()),
        groups in subsequence(vec!["system:nodes", "system:bootstrappers", "system:masters"], 0..=3),
        anonymous in proptest::bool::weighted(0.05),
        bare in proptest::bool::ANY,
        added in added(),
    ) {
        let (group, resource, subresource) = object;
        let shape = RequestShape { operation, group, version: "v1", resource, subresource, namespace, ..Default::default() };
        let by = Requester { user: if anonymous { "" } else { user }, groups: if anonymous { &[] } else { &groups } };
        let spare = Spare { hookwatch_namespace: "hookwatch", added: &added };
        let request = of(&shape, (!anonymous).then_some(by), bare);
        let text = spare.expression();
        let conditions = FORECASTS.with(|compiler| compiler.conditions([text.as_str()].into_iter()));
        let asked = Program::of(&text).unwrap().evaluate(Variables {
            request: &request,
            object: &Value::Null,
            old_object: &Value::Null,
        });
        prop_assert_eq!(asked, Ok(!spare.spares(&shape, Some(by))), "{}", request);
        // The evaluator of forecasts agrees.
        let asked = ConditionRequest { shape, kind: None, name: "x", by, dry_run: false };
        let wanted = if spare.spares(&shape, Some(by)) { ConditionOutcome::False } else { ConditionOutcome::True };
        prop_assert_eq!(conditions.outcome(&asked, RequestObject::Null, RequestObject::Null), wanted, "{}", request);
        prop_assert!(spare.spares(&shape, None) || !spare.spares(&shape, Some(by)), "unknown writers widen");
        let pod = (group, resource, subresource) == ("", "pods", "") && operation != "DELETE";
        let elsewhere = namespace.is_some_and(|namespace| namespace == "tenant" || namespace == "default");
        prop_assert!(!(pod && elsewhere && spare.spares(&shape, Some(by))), "a tenant's Pod never passes");
    }
}
