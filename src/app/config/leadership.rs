//! The section `leadership`: how replicas elect a leader.

use std::time::Duration;

use super::Section;
use crate::domain::text::is_dns_label;

/// How several daemons agree on one that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadershipConfig {
    /// False to take no part in the election, for a daemon that runs alone: it writes no Events, and bypasses without asking
    /// others.
    pub enabled: bool,
    /// Name of the Lease, in hookwatch's own namespace.
    pub lease: String,
    /// How long a leader must be silent before another takes over. 5 s to 1 min.
    pub term: Duration,
}

impl LeadershipConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let lease = section.text("lease").unwrap_or_else(|| "hookwatch".to_owned());
        if !is_dns_label(&lease) {
            section.error("lease", format!("{lease:?} cannot be a Lease's name"));
        }
        Self {
            enabled: section.flag("enabled", true),
            lease,
            term: section.duration("leaseDuration", Duration::from_secs(15), Duration::from_secs(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArguments};
    use super::*;

    #[test]
    fn a_daemon_takes_part_unless_it_is_told_not_to_and_its_lease_has_a_name() {
        let parse = |text| Config::parse(text, &ConfigArguments::default());
        let config = parse("").expect("valid");
        assert!(config.leadership.enabled && config.events);
        assert_eq!(config.leadership.term, Duration::from_secs(15));
        let config = parse("events: false\nleadership: {enabled: false, lease: other}").expect("valid");
        assert!(!config.leadership.enabled && !config.events);
        assert_eq!(config.leadership.lease, "other");
        let errors = parse("leadership: {lease: No_Name, leaseDuration: 1s}").expect_err("two mistakes");
        let keys: Vec<_> = errors.into_iter().map(|error| error.key).collect();
        assert_eq!(keys, ["leadership.lease", "leadership.leaseDuration"]);
    }
}
