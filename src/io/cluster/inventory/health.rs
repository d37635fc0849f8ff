//! How the watches are doing, one by one and together.

use std::fmt;

use super::object::WatchedKind;
use crate::domain::cluster::inventory::InventoryHealth;
use crate::domain::time::Time;

/// How one watch is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchHealth {
    /// What it watches.
    pub kind: WatchedKind,
    /// In which namespace, or which node; `None` for all.
    pub namespace: Option<String>,
    /// Its state.
    pub state: WatchState,
    /// When what it delivered was last known to be all there is. On a quiet watch the API server says so
    /// about once a minute.
    pub known_good: Option<Time>,
}

/// The state of one watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// Nothing was read yet.
    Starting,
    /// It delivered its list and is open.
    Open,
    /// It is broken and is being repaired.
    Broken {
        /// What it said.
        why: String,
    },
    /// Reading is forbidden, or there is no such kind. Tried again every half minute.
    Refused {
        /// Which permission would help.
        why: String,
    },
}

impl fmt::Display for WatchHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(node) if self.kind == WatchedKind::Nodes => write!(f, "Node {node:?}"),
            Some(namespace) => write!(f, "{} in namespace {namespace:?}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// The worst of all watches, with the first that is so and how many more there are.
pub(super) fn overall(watches: &[WatchHealth]) -> InventoryHealth {
    let stale = says(watches, |state| match state {
        WatchState::Starting => Some("nothing was read yet"),
        WatchState::Broken { why } => Some(why),
        WatchState::Open | WatchState::Refused { .. } => None,
    });
    if let Some(why) = stale {
        return InventoryHealth::Stale { why };
    }
    let limited = says(watches, |state| match state {
        WatchState::Refused { why } => Some(why),
        _ => None,
    });
    limited.map_or(InventoryHealth::Current, |why| InventoryHealth::Limited { why })
}

fn says(watches: &[WatchHealth], pick: impl Fn(&WatchState) -> Option<&str>) -> Option<String> {
    let mut picked = watches
        .iter()
        .filter_map(|watch| Some((watch, pick(&watch.state)?)));
    let (first, why) = picked.next()?;
    let further = match picked.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{first}: {why}{further}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(kind: WatchedKind, state: WatchState) -> WatchHealth {
        WatchHealth {
            kind,
            namespace: (kind == WatchedKind::Services).then(|| "ns".to_owned()),
            state,
            known_good: None,
        }
    }

    #[test]
    fn the_worst_watch_speaks_for_all_and_the_others_are_counted() {
        let broken = || WatchState::Broken { why: "lost".into() };
        let refused = || WatchState::Refused {
            why: "grant list".into(),
        };
        let open = watch(WatchedKind::Validating, WatchState::Open);
        assert_eq!(overall(&[]), InventoryHealth::Current);
        assert_eq!(overall(std::slice::from_ref(&open)), InventoryHealth::Current);
        let limited = [open.clone(), watch(WatchedKind::Namespaces, refused())];
        assert_eq!(
            overall(&limited),
            InventoryHealth::Limited {
                why: "Namespaces: grant list".into()
            }
        );
        let stale = [
            watch(WatchedKind::Namespaces, refused()),
            watch(WatchedKind::Services, broken()),
            watch(WatchedKind::Mutating, broken()),
        ];
        assert_eq!(
            overall(&stale),
            InventoryHealth::Stale {
                why: "Services in namespace \"ns\": lost (and 1 more)".into()
            }
        );
    }
}
