//! What tests are about that older releases of Kubernetes lack.

use std::process::Command;

use hookwatch::lab::envtest::binaries;

/// A feature, and the first minor release that has it by default.
struct Feature {
    what: &'static str,
    since: u32,
    /// How the names of the tests begin that need it.
    tests: &'static [&'static str],
}

const FEATURES: [Feature; 5] = [
    Feature {
        what: "version 1 of dynamic resource allocation, whose slices a shield spares",
        since: 34,
        tests: &["shield_spares_each_line_"],
    },
    Feature {
        what: "ValidatingAdmissionPolicy, of which the fence is made",
        since: 30,
        tests: &[
            "each_permission_that_is_missing_",
            "installed_a_release_in_another_namespace_",
            "installed_from_observing_",
            "installed_in_an_outage_",
            "installed_on_a_node_",
            "installed_the_pod_as_it_is_shipped_",
            "installed_upgraded_",
            "installed_where_kube_system_is_locked_",
            "replicas_the_shipped_permissions_are_enough",
            "running_",
            "the_fence_",
            "the_shipped_roles_are_enough_",
        ],
    },
    Feature {
        what: "tokens with an identity of their own (`jti`)",
        since: 30,
        tests: &["a_new_token_"],
    },
    Feature {
        what: "version 1 of flow control",
        since: 29,
        tests: &["installed_the_account_is_served_"],
    },
    Feature {
        what: "match conditions",
        since: 28,
        tests: &[
            "a_webhook_is_called_exactly_",
            "breaker_loses_no_client_",
            "bypass_",
            "hands_",
            "installed_a_bypass_outlives_",
            "shield_",
            "the_commands_of_the_runbooks_",
        ],
    },
];

/// Why a test cannot be played on the release that is installed, if so.
pub fn lacked(test: &str, minor: u32) -> Option<String> {
    let mut features = FEATURES.iter().filter(|feature| minor < feature.since);
    let feature = features.find(|feature| feature.tests.iter().any(|begin| test.starts_with(begin)))?;
    Some(format!("Kubernetes 1.{minor} has no {}", feature.what))
}

/// The minor release that the tests are played on; the newest thinkable where there is none or it does not say.
pub fn minor() -> u32 {
    let said = || {
        let output = Command::new(binaries::find().ok()?.kube_apiserver)
            .arg("--version")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.split('.').nth(1)?.parse().ok()
    };
    said().unwrap_or(u32::MAX)
}
