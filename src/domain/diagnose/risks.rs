//! What is not wrong yet: a sentence for whoever can still prevent it, and never a change of health.

use std::collections::BTreeMap;

use crate::domain::hook::Hook;
use crate::domain::inventory::NodeState;
use crate::domain::observations::Meets;
use crate::domain::risk::{Risk, RiskKind};

/// The risks of one hook.
pub(super) fn risks(hook: &Hook, nodes: &BTreeMap<String, NodeState>, meets: Option<Meets>) -> Vec<Risk> {
    let apart = meets.is_some_and(|meets| meets.tells_apart);
    let singled_out = apart.then(|| Risk {
        kind: RiskKind::NamesHookwatch,
        text: "Its matchConditions or objectSelector tell hookwatch's canaries from the same writes of others: canaries do not \
               meet it as other writes do, and it may be shielded only once calls of others fail. Make it treat hookwatch like \
               other clients."
            .to_owned(),
    });
    on_one_node(hook, nodes).into_iter().chain(singled_out).collect()
}

fn on_one_node(hook: &Hook, nodes: &BTreeMap<String, NodeState>) -> Option<Risk> {
    let (node, endpoints) = hook.only_node()?;
    let both = (endpoints == 2).then(|| "Both backends".to_owned());
    let all = both.unwrap_or_else(|| format!("All {endpoints} backends"));
    let state = nodes.get(node).filter(|state| state.ready == Some(false));
    let Some(state) = state else {
        let text = format!(
            "{all} are on node {node:?}: when that fails, this hook does. Spread them with podAntiAffinity or \
             topologySpreadConstraints."
        );
        let kind = RiskKind::OneNode;
        return Some(Risk { kind, text });
    };
    let since = state
        .since
        .map_or_else(String::new, |since| format!(" since {since}"));
    let text = format!(
        "{all} are on node {node:?}, which is NotReady{since}: this hook fails as soon as they stop answering, and no \
         other node has one to take over."
    );
    let kind = RiskKind::NodeNotReady;
    Some(Risk { kind, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hook::{Endpoint, ServiceState, ServiceTarget, Target};
    use crate::domain::matching::tests::hook;
    use crate::domain::observations::Spared;
    use crate::domain::time::Time;

    fn on(nodes: &[Option<&str>]) -> Hook {
        let endpoint = |(last, node): (usize, &Option<&str>)| Endpoint {
            address: ([10, 0, 0, last as u8], 8443).into(),
            ready: true,
            serving: true,
            terminating: false,
            node: node.map(str::to_owned),
            pod: None,
        };
        let mut hook = hook(&["*"]);
        hook.target = Target::Service(ServiceTarget {
            namespace: "opa".into(),
            name: "opa".into(),
            port: 443,
            path: "/".into(),
            service: ServiceState::Found {
                by_hand: false,
                cluster_ip: None,
                endpoints: nodes.iter().enumerate().map(endpoint).collect(),
            },
        });
        hook
    }

    fn nodes(ready: bool) -> BTreeMap<String, NodeState> {
        let state = NodeState {
            ready: Some(ready),
            since: Some(Time::from_unix_millis(0)),
        };
        [("a".to_owned(), state)].into()
    }

    /// The sentence of the only risk.
    fn one(hook: &Hook, nodes: &BTreeMap<String, NodeState>, kind: RiskKind) -> String {
        let risks = risks(hook, nodes, None);
        let [risk] = risks.as_slice() else {
            panic!("one risk: {risks:?}")
        };
        assert_eq!(risk.kind, kind);
        risk.text.clone()
    }

    #[test]
    fn two_backends_on_one_node_are_a_risk_and_a_prediction_once_that_node_is_not_ready() {
        let hook = on(&[Some("a"), Some("a"), Some("a")]);
        let standing = one(&hook, &nodes(true), RiskKind::OneNode);
        assert!(
            standing.starts_with("All 3 backends are on node \"a\": when that fails"),
            "{standing}"
        );
        let both = one(&on(&[Some("a"), Some("a")]), &nodes(true), RiskKind::OneNode);
        assert!(both.starts_with("Both backends are on node"), "{both}");
        assert_eq!(
            one(&hook, &BTreeMap::new(), RiskKind::OneNode),
            standing,
            "also where nodes may not be read"
        );
        let predicted = one(&hook, &nodes(false), RiskKind::NodeNotReady);
        assert!(
            predicted.contains("is NotReady since 1970-01-01T00:00:00.000Z: this hook fails"),
            "{predicted}"
        );
    }

    #[test]
    fn a_hook_that_tells_canaries_from_other_writes_is_told_of() {
        let hook = on(&[Some("a"), Some("b")]);
        let told = |tells_apart| {
            let spared = Spared::Perhaps;
            risks(&hook, &nodes(true), Some(Meets { spared, tells_apart }))
        };
        assert_eq!(told(false), []);
        let told: Vec<RiskKind> = told(true).into_iter().map(|risk| risk.kind).collect();
        assert_eq!(told, [RiskKind::NamesHookwatch]);
    }

    #[test]
    fn spread_or_single_or_unknown_backends_are_no_such_risk() {
        for on_nodes in [
            &[Some("a"), Some("b")][..],
            &[Some("a")],
            &[],
            &[None, None],
            &[Some("a"), None],
        ] {
            assert_eq!(risks(&on(on_nodes), &nodes(false), None), [], "{on_nodes:?}");
        }
    }
}
