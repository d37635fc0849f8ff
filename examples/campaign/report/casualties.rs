//! The damage to the control plane in all incidents.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::casualties::Casualties;
use crate::score::Score;

/// The sum over all incidents.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    pub incidents_with_leaders_lost: usize,
    #[serde(flatten)]
    pub casualties: Casualties,
    /// Indexes of the incidents in which a leader was lost.
    pub incidents: Vec<u64>,
}

/// The damage with and without the breaker.
#[derive(Debug, Default, Serialize)]
pub struct CasualtyReport {
    pub without_breaker: Sum,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_breaker: Option<Sum>,
    /// Why leaders were lost with it: by reason, the indexes of the incidents.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_because: BTreeMap<&'static str, Vec<u64>>,
}

impl CasualtyReport {
    pub(super) fn of(scores: &[Score]) -> Self {
        let of = |which: fn(&Score) -> Option<Casualties>| {
            let mut costs = scores
                .iter()
                .filter_map(|score| Some((score.index, which(score)?)))
                .peekable();
            costs.peek().is_some().then(|| Sum::of(costs))
        };
        let mut lost_because: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for score in scores {
            if let Some(reason) = score.toll.lost_because {
                lost_because.entry(reason).or_default().push(score.index);
            }
        }
        Self {
            lost_because,
            without_breaker: of(|score| Some(score.toll.without_breaker)).unwrap_or_default(),
            with_breaker: of(|score| score.toll.with_breaker),
        }
    }
}

impl Sum {
    fn of(costs: impl Iterator<Item = (u64, Casualties)>) -> Self {
        let mut sum = Self::default();
        for (index, cost) in costs {
            if cost.leaders_lost > 0 {
                sum.incidents.push(index);
            }
            sum.casualties.leaders_lost += cost.leaders_lost;
            sum.casualties.leases_expired += cost.leases_expired;
            sum.casualties.nodes_not_ready += cost.nodes_not_ready;
        }
        sum.incidents_with_leaders_lost = sum.incidents.len();
        sum
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        writeln!(
            f,
            "{name:<20} {:>18} {:>13} {:>20} {:>15}",
            self.incidents_with_leaders_lost,
            self.casualties.leaders_lost,
            self.casualties.leases_expired,
            self.casualties.nodes_not_ready
        )
    }
}

impl fmt::Display for CasualtyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "casualties";
        writeln!(
            f,
            "\n{title:<20} with leaders lost  leaders lost  node leases expired  nodes not ready"
        )?;
        self.without_breaker.line(f, "without the breaker")?;
        match &self.with_breaker {
            Some(with) => with.line(f, "with the breaker")?,
            None => return Ok(()),
        }
        for (reason, incidents) in &self.lost_because {
            writeln!(f, "lost: {reason:<28} {:>4} {incidents:?}", incidents.len())?;
        }
        Ok(())
    }
}
