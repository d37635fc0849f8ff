//! What a fault cost, in words.

use super::timeline::DemoEvent;
use crate::lab::clients::Casualties;

/// What the same fault cost with the breaker and without it.
pub fn compared(with: Casualties, without: Casualties) -> [DemoEvent; 2] {
    [("with breaker", with), ("without breaker", without)].map(|(label, casualties)| DemoEvent::Breaker {
        label,
        text: format!("casualties: {}", sentence(casualties)),
    })
}

/// The casualties in one sentence; `none` if nothing was lost.
pub fn sentence(casualties: Casualties) -> String {
    let Casualties {
        leaders_lost,
        node_leases_expired,
        nodes_not_ready,
        writes_timed_out,
        servers_not_started,
    } = casualties;
    let lost = [
        counted(
            leaders_lost,
            "leader lost its Lease and exited",
            "leaders lost their Leases and exited",
        ),
        counted(node_leases_expired, "node Lease expired", "node Leases expired"),
        counted(nodes_not_ready, "node went NotReady", "nodes went NotReady"),
        counted(
            servers_not_started,
            "API server did not start",
            "API servers did not start",
        ),
    ];
    let lost: Vec<String> = lost.into_iter().flatten().collect();
    let writes = counted(writes_timed_out, "write timed out", "writes timed out");
    match (lost.is_empty(), writes) {
        (true, None) => "none".to_owned(),
        (true, Some(writes)) => format!("no leader or node lost; {writes}"),
        (false, None) => lost.join(", "),
        (false, Some(writes)) => format!("{}; {writes}", lost.join(", ")),
    }
}

fn counted(number: u64, one: &str, many: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {many}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_lost_is_not_spoken_of() {
        let none = Casualties::default();
        assert_eq!(sentence(none), "none");
        let late = Casualties {
            writes_timed_out: 3,
            ..none
        };
        assert_eq!(sentence(late), "no leader or node lost; 3 writes timed out");
        let outage = Casualties {
            leaders_lost: 2,
            node_leases_expired: 3,
            writes_timed_out: 40,
            servers_not_started: 1,
            ..none
        };
        assert_eq!(
            sentence(outage),
            "2 leaders lost their Leases and exited, 3 node Leases expired, 1 API server did not start; 40 writes \
             timed out"
        );
    }
}
