//! The part of a Node that is kept: the fields that show whether its Pods may soon be removed.

use serde_json::Value;

use crate::domain::cluster::inventory::{NodeState, NodeTrouble, Sign};
use crate::domain::time::Time;

/// Taints of a node that is about to be removed or is shut down. In order, they are set by: cluster-autoscaler, Karpenter,
/// the cloud controller manager, an administrator. The last one is in `kubernetes/api/core/v1/well_known_taints.go`.
const LEAVING: [&str; 4] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];
/// The taint of a cordoned node. Its `timeAdded` says since when (1.36, `nodelifecycle.SwapNodeControllerTaint`).
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// Reads a Node. Leaves out the heartbeat times: each would look like a change.
pub(in crate::io) fn state(node: &Value) -> NodeState {
    let conditions = items(&node["status"]["conditions"]);
    let condition = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let taint = |key: &str| {
        let mut taints = items(&node["spec"]["taints"]).iter();
        taints.find(|taint| taint["key"] == key)
    };
    let ready = condition("Ready");
    let mut signs = Vec::new();
    for (kind, trouble) in [
        ("MemoryPressure", NodeTrouble::OutOfMemory),
        ("DiskPressure", NodeTrouble::OutOfDisk),
        ("PIDPressure", NodeTrouble::OutOfProcesses),
    ] {
        if let Some(known) = condition(kind).filter(|known| known["status"] == "True") {
            let since = instant(&known["lastTransitionTime"]);
            signs.push(Sign { trouble, since });
        }
    }
    if node["spec"]["unschedulable"] == true {
        signs.push(Sign {
            trouble: NodeTrouble::Cordoned,
            since: taint(CORDONED).and_then(|taint| instant(&taint["timeAdded"])),
        });
    }
    if let Some(taint) = LEAVING.into_iter().find_map(taint) {
        signs.push(Sign {
            trouble: NodeTrouble::Leaving,
            since: instant(&taint["timeAdded"]),
        });
    }
    NodeState {
        ready: ready.map(|ready| ready["status"] == "True"),
        since: ready.and_then(|ready| instant(&ready["lastTransitionTime"])),
        zone: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
            .as_str()
            .map(str::to_owned),
        signs,
    }
}

/// The items of a JSON array; empty for any other value.
pub(in crate::io::cluster) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn instant(value: &Value) -> Option<Time> {
    Time::parse(value.as_str()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn trouble(spec: Value, condition: &str, status: &str) -> Option<(NodeTrouble, Option<Time>)> {
        let condition = json!({"type": condition, "status": status, "lastTransitionTime": SINCE});
        let ready = json!({"type": "Ready", "status": "True"});
        let node = json!({"spec": spec, "status": {"conditions": [condition, ready]}});
        state(&node).trouble().map(|sign| (sign.trouble, sign.since))
    }

    #[test]
    fn each_sign_that_pods_are_about_to_go_is_read_with_its_time() {
        let since = instant(&SINCE.into());
        assert!(since.is_some());
        for (condition, told) in [
            ("MemoryPressure", NodeTrouble::OutOfMemory),
            ("DiskPressure", NodeTrouble::OutOfDisk),
            ("PIDPressure", NodeTrouble::OutOfProcesses),
        ] {
            assert_eq!(trouble(json!({}), condition, "True"), Some((told, since)));
            assert_eq!(trouble(json!({}), condition, "False"), None);
        }
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule", "timeAdded": SINCE}]);
        let cordoned = json!({"unschedulable": true, "taints": taint(CORDONED)});
        assert_eq!(
            trouble(cordoned, "Other", "True"),
            Some((NodeTrouble::Cordoned, since))
        );
        assert_eq!(
            trouble(json!({"unschedulable": true}), "Other", "True"),
            Some((NodeTrouble::Cordoned, None))
        );
        for key in LEAVING {
            assert_eq!(
                trouble(json!({"taints": taint(key)}), "Other", "True"),
                Some((NodeTrouble::Leaving, since)),
                "{key}"
            );
        }
        assert_eq!(trouble(json!({"taints": taint("gpu")}), "Other", "True"), None);
    }

    #[test]
    fn a_node_that_is_not_ready_is_told_so_whatever_else_it_says() {
        let ready = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": SINCE});
        let node = json!({"spec": {"unschedulable": true}, "status": {"conditions": [ready]}});
        let sign = state(&node).trouble().expect("trouble");
        assert_eq!(
            (sign.trouble, sign.since),
            (NodeTrouble::NotReady, instant(&SINCE.into()))
        );
        assert_eq!(state(&json!("junk")), NodeState::default());
    }
}
