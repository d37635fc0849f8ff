//! Which canaries are written, and how often.

use std::time::Duration;

use super::section::Section;
use crate::domain::observe::canary::{CanaryTarget, FurtherCanary, MAX_FURTHER};

/// How canaries are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryConfig {
    /// Time between two canaries of one target in calm times. 1 s to 1 min.
    pub interval: Duration,
    /// The same while something is odd. 500 ms to 1 min, and at most `interval`.
    pub alert_interval: Duration,
    /// The built-in canaries that are written.
    pub targets: Vec<CanaryTarget>,
    /// Canaries from the configuration, each with the object that it writes. No two have the same name.
    pub further: Vec<FurtherCanary>,
}

impl CanaryConfig {
    /// Every canary that is written.
    pub fn all(&self) -> impl Iterator<Item = CanaryTarget> {
        let further = self.further.iter().map(|canary| canary.target);
        self.targets.iter().copied().chain(further)
    }

    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let second = Duration::from_secs(1);
        let (interval, alert_interval) =
            section.intervals((2 * second, second), (2 * second, Duration::from_millis(500)));
        let targets = [
            ("ownNamespace", CanaryTarget::OwnNamespace),
            ("kubeSystem", CanaryTarget::KubeSystem),
            ("nodeLease", CanaryTarget::NodeLease),
        ];
        Self {
            interval,
            alert_interval,
            targets: targets
                .into_iter()
                .filter(|(key, _)| section.flag(key, true))
                .map(|(_, target)| target)
                .collect(),
            further: further(section),
        }
    }
}

fn further(section: &mut Section<'_>) -> Vec<FurtherCanary> {
    let further = section.list("further", |entry| {
        let name = entry.required_text("name");
        let namespace = entry.required_text("namespace");
        let resource = entry.required_text("resource");
        let object = entry.take("object");
        if object.is_none() {
            entry.error("object", "is missing");
        }
        match FurtherCanary::new(&name?, &namespace?, &resource?, object?) {
            Ok(canary) => Some(canary),
            Err(wrong) => {
                for (key, what) in wrong {
                    entry.error(key, what);
                }
                None
            }
        }
    });
    if further.len() > MAX_FURTHER {
        section.error("further", format!("has more than {MAX_FURTHER} canaries"));
    }
    for (number, canary) in further.iter().enumerate() {
        if further[..number]
            .iter()
            .any(|other| other.target == canary.target)
        {
            let name = canary.target.as_str();
            section.error("further", format!("has two canaries that are called {name:?}"));
        }
    }
    further
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::{Config, ConfigArguments};

    fn read(further: &str) -> Result<CanaryConfig, Vec<String>> {
        let text = format!("canaries:\n  further:\n{further}");
        let config = Config::parse(&text, &ConfigArguments::default());
        config
            .map(|config| config.canaries)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    const POD: &str = "  - name: tenant-pods\n    namespace: team-a\n    resource: pods\n    object:\n      \
                       apiVersion: v1\n      kind: Pod\n";

    #[test]
    fn further_canaries_are_written_beside_those_that_are_always_there() {
        let config = read(POD).unwrap();
        let names: Vec<String> = config.all().map(String::from).collect();
        assert_eq!(
            names,
            ["own_namespace", "kube_system", "node_lease", "tenant-pods"]
        );
    }

    #[test]
    fn a_bad_one_is_named_by_its_key_and_so_is_a_name_that_comes_twice() {
        let bad =
            read("  - name: Tenants\n    namespace: team-a\n    resource: pods\n    object: {kind: Pod}\n");
        let bad = bad.unwrap_err();
        assert!(
            bad[0].starts_with("canaries.further[0].name: \"Tenants\""),
            "{bad:?}"
        );
        assert!(
            bad[1].starts_with("canaries.further[0].object: has no apiVersion"),
            "{bad:?}"
        );
        let missing = read("  - name: a\n").unwrap_err();
        assert_eq!(missing.len(), 3, "{missing:?}");
        let twice = read(&POD.repeat(2)).unwrap_err();
        assert!(
            twice[0].contains("two canaries that are called \"tenant-pods\""),
            "{twice:?}"
        );
        let many: String = (0..17)
            .map(|number| POD.replace("tenant-pods", &format!("pods-{number}")))
            .collect();
        assert!(read(&many).unwrap_err()[0].contains("more than 16"));
    }
}
