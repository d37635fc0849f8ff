//! The scenarios.

use std::borrow::Cow;
use std::time::Duration;

use super::{Arranged, Expected, ExpectedHealth, Fault, Scenario, SecondApiServerRole};
use crate::lab::backend::Behaviour;
use crate::lab::cluster::HookShape;
use crate::lab::cluster::LabHook::{self, Opa, Policy, Quota};

/// A fault that lasts this long lets every node's Lease expire: a Lease is valid for 40 s after its last renewal.
const LEASES_EXPIRE: Duration = Duration::from_secs(45);

/// A fault that lasts this long makes every leader exit: a leader exits 10 to 12 s after its last renewal.
const LEADERS_EXIT: Duration = Duration::from_secs(15);

/// The defaults of all other scenarios, and a scenario itself.
pub(super) const QUIET: Scenario = Scenario {
    name: "quiet",
    summary: "Nothing is broken, and hookwatch must report nothing.",
    symptom: "nothing",
    expected: &[],
    foreseen: None,
    not_a_hook: None,
    lasts_at_least: Duration::ZERO,
    second_api_server: SecondApiServerRole::None,
    loses_leader: false,
    hardly_any_users: false,
    arranged: &[],
    faults: &[],
};

/// The defaults of a hook's shape: a catch-all webhook with `Fail` and 10 s, at the Service of the validating one.
pub(super) const USUAL: HookShape = HookShape {
    at: Opa,
    ignores: false,
    timeout_seconds: 10,
    only_namespaces: false,
    spares_itself: true,
    siblings: 0,
};

/// All scenarios, the quiet one first.
pub static SCENARIOS: [Scenario; 28] = [
    QUIET,
    Scenario {
        name: "validating-slow",
        summary: "Every backend of the catch-all validating hook takes 800 ms longer.",
        symptom: "every kubectl apply takes a second; nothing fails",
        expected: &[failing(Opa, "Slow")],
        faults: &[all_of(Opa, Behaviour::Slow(Duration::from_millis(800)))],
        ..QUIET
    },
    Scenario {
        name: "validating-hang",
        summary: "All three backends of the catch-all validating hook stop, as under SIGSTOP.",
        symptom: "every create and update hangs; for 10 s nothing even fails",
        expected: &[failing(Opa, "Hanging")],
        faults: &[all_of(Opa, Behaviour::Stopped)],
        ..QUIET
    },
    Scenario {
        name: "validating-refused",
        summary: "All three backends of the catch-all validating hook are killed.",
        symptom: "every create and update fails at once; request latency falls",
        expected: &[failing(Opa, "Refused")],
        faults: &[all_of(Opa, Behaviour::Refused)],
        ..QUIET
    },
    Scenario {
        name: "one-of-three-refused",
        summary: "One of the three backends of the catch-all validating hook is killed.",
        symptom: "a few writes fail, or none at all",
        expected: &[suspect(Opa, "Partial")],
        faults: &[one_of(Opa, Behaviour::Refused)],
        ..QUIET
    },
    Scenario {
        name: "mutating-hang-fail-open",
        summary: "Both backends of the mutating hook accept connections and never answer; its policy is Ignore.",
        symptom: "new Secrets and ConfigMaps take 5 s each and go in unmutated; nothing fails",
        expected: &[failing(Policy, "Hanging").with("Delaying")],
        faults: &[all_of(Policy, Behaviour::AcceptAndHang)],
        ..QUIET
    },
    Scenario {
        name: "validating-http-500",
        summary: "Every backend of the catch-all validating hook answers 500.",
        symptom: "every create and update fails at once",
        expected: &[failing(Opa, "Erroring")],
        faults: &[all_of(Opa, Behaviour::HttpStatus(500, Cow::Borrowed("boom")))],
        ..QUIET
    },
    Scenario {
        name: "not-an-admission-review",
        summary: "Every backend of the catch-all validating hook answers 200 with some other JSON.",
        symptom: "every create and update fails at once",
        expected: &[failing(Opa, "Erroring")],
        faults: &[all_of(Opa, Behaviour::NotAnAdmissionReview)],
        ..QUIET
    },
    Scenario {
        name: "ca-mismatch",
        summary: "The catch-all validating hook's caBundle is replaced by that of another authority.",
        symptom: "every create and update fails with an x509 error",
        expected: &[failing(Opa, "TlsInvalid")],
        faults: &[Fault::WrongCaBundle(Opa)],
        ..QUIET
    },
    Scenario {
        name: "certificate-expired",
        summary: "The backends of the catch-all validating hook serve a certificate that has expired.",
        symptom: "every create and update fails with an x509 error",
        expected: &[failing(Opa, "TlsInvalid")],
        faults: &[Fault::ExpiredCertificates(Opa)],
        ..QUIET
    },
    Scenario {
        name: "no-endpoints",
        summary: "The Deployment behind the catch-all validating hook is scaled to zero: no endpoints, no backends.",
        symptom: "every create and update fails at once",
        expected: &[failing(Opa, "NoEndpoints")],
        // The API server resolves only when it dials: as long as backends live, its pooled connections hide that
        // the slice is empty.
        faults: &[Fault::NoEndpoints(Opa), all_of(Opa, Behaviour::Refused)],
        ..QUIET
    },
    Scenario {
        name: "deny-storm",
        summary: "The catch-all validating hook denies everything. It works; it is no fault of its own.",
        symptom: "every create and update is denied by policy",
        expected: &[suspect(Opa, "Denying")],
        not_a_hook: Some("Unexplained"),
        faults: &[all_of(
            Opa,
            Behaviour::Deny(403, Cow::Borrowed("denied by the lab's policy")),
        )],
        ..QUIET
    },
    Scenario {
        name: "etcd-slow",
        summary: "Storage operations take 120 ms and more. No hook has a part in it.",
        symptom: "everything is slow, with every hook well",
        not_a_hook: Some("EtcdSlow"),
        faults: &[Fault::SlowStorage(Duration::from_millis(120))],
        ..QUIET
    },
    Scenario {
        name: "read-overload",
        summary: "A flood of LISTs leaves the API server short of CPU. No hook has a part in it.",
        symptom: "everything is slow, hooks included",
        not_a_hook: Some("Overloaded"),
        faults: &[Fault::ReadOverload {
            readers: 12,
            // So little that the readers keep it busy even on a machine that has hardly any CPU time for them.
            millicores: 400,
        }],
        ..QUIET
    },
    Scenario {
        name: "two-culprits",
        summary: "The catch-all validating hook answers 500 while the mutating one hangs.",
        symptom: "every create and update fails, some of them only after 5 s",
        expected: &[failing(Opa, "Erroring"), failing(Policy, "Hanging")],
        faults: &[
            all_of(Opa, Behaviour::HttpStatus(500, Cow::Borrowed("boom"))),
            all_of(Policy, Behaviour::AcceptAndHang),
        ],
        ..QUIET
    },
    Scenario {
        name: "stale-connections",
        summary: "Two of the three backends of the catch-all validating hook vanish with their nodes, behind open \
                  connections; their endpoints are removed at once.",
        symptom: "some creates and updates hang for 10 s and fail, then everything works again",
        expected: &[failing(Opa, "StaleConnection")],
        faults: &[Fault::Vanish {
            hook: Opa,
            backends: 2,
        }],
        ..QUIET
    },
    Scenario {
        name: "rollout-gap",
        summary: "The mutating hook is rolled out again and again; its Pods are Ready before they serve, and stop \
                  while they are listed. Its policy is Ignore.",
        symptom: "a few new Secrets and ConfigMaps go in unmutated; nothing fails",
        expected: &[failing(Policy, "RolloutGap").with("FailingOpen")],
        faults: &[Fault::RestartWithoutEnd(Policy)],
        ..QUIET
    },
    Scenario {
        name: "all-on-one-node",
        summary: "All three backends of the catch-all validating hook are on one node; 4 s later that is NotReady, \
                  and 4 s after that it is lost.",
        symptom: "nothing for 8 s; then every create and update hangs",
        expected: &[failing(Opa, "Hanging")],
        foreseen: Some("which is NotReady"),
        faults: &[Fault::OnlyNodeLost(Opa)],
        ..QUIET
    },
    Scenario {
        name: "gke-opa-outage",
        summary: "The catch-all validating hook takes every request and answers none, as in the outage that \
                  hookwatch was made after: its sockets accept, its process hangs. A second API server starts in the meantime.",
        symptom: "every create and update hangs for 10 s, the control plane's own and the nodes' Leases included",
        expected: &[failing(Opa, "Hanging").with("Blocking")],
        lasts_at_least: LEASES_EXPIRE,
        second_api_server: SecondApiServerRole::StartsWithFault,
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "firewalled",
        summary: "A firewall drops every packet between the control plane and the pods of the catch-all validating \
                  hook, which is healthy and answers all other clients.",
        symptom: "every create and update hangs for 10 s and fails; the hook's own metrics and logs are fine",
        expected: &[failing(Opa, "Unreachable")],
        faults: &[Fault::Firewall(Opa)],
        ..QUIET
    },
    Scenario {
        name: "ignore-hang",
        summary: "A mutating and a validating hook, both shown everything and both ignored when they fail, share a \
                  Service and 10 s; it takes every request and answers none.",
        symptom: "every create and update takes 20 s; clients that wait less give up, leaders and kubelets included",
        expected: &[
            failing(Policy, "Hanging").with("Blocking"),
            failing(Opa, "Hanging").with("Blocking"),
        ],
        lasts_at_least: LEASES_EXPIRE,
        arranged: &[at_opa(Policy, true, 10), at_opa(Opa, true, 10)],
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "mixed-hang",
        summary: "A mutating hook that is ignored when it fails, a validating one that is not, and one for Namespaces \
                  alone share a Service and 10 s; it takes every request and answers none.",
        symptom: "every create and update hangs for 20 s and is refused",
        expected: &[
            failing(Policy, "Hanging"),
            failing(Opa, "Hanging").with("Blocking"),
            failing(Quota, "Hanging"),
        ],
        lasts_at_least: LEADERS_EXIT,
        arranged: &[
            at_opa(Policy, true, 10),
            at_opa(Opa, false, 10),
            arranged(
                Quota,
                HookShape {
                    only_namespaces: true,
                    ..USUAL
                },
            ),
        ],
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "ignore-default-hang",
        summary: "A mutating hook with 1 s and a validating one with 3 s, both shown everything and both ignored when \
                  they fail, share a Service that takes every request and answers none.",
        symptom: "every create and update takes 4 s; nothing fails, and nothing is checked",
        expected: &[
            failing(Policy, "Hanging").with("Delaying"),
            failing(Opa, "Hanging").with("Delaying"),
        ],
        arranged: &[at_opa(Policy, true, 1), at_opa(Opa, true, 3)],
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "slow-chain",
        summary: "A mutating and a validating hook, each with a Service of its own, take 2.6 s longer each.",
        symptom: "every create and update takes 5.2 s; leaders, which give each attempt 5 s, cannot renew",
        expected: &[
            failing(Policy, "Slow").with("Blocking"),
            failing(Opa, "Slow").with("Blocking"),
        ],
        arranged: &[arranged(Policy, HookShape { at: Policy, ..USUAL })],
        faults: &[
            all_of(Policy, Behaviour::Slow(Duration::from_millis(2_600))),
            all_of(Opa, Behaviour::Slow(Duration::from_millis(2_600))),
        ],
        ..QUIET
    },
    Scenario {
        name: "self-blocked",
        summary: "All Pods of the catch-all validating webhook are gone, and it reviews its own Pods: the ReplicaSet \
                  controller cannot replace them. The owner's annotation spares them under a shield.",
        symptom: "every create and update is refused at once, the webhook's own Pods included",
        expected: &[failing(Opa, "Refused").with("Blocking")],
        lasts_at_least: LEADERS_EXIT,
        arranged: &[arranged(
            Opa,
            HookShape {
                spares_itself: false,
                ..USUAL
            },
        )],
        faults: &[Fault::PodsGone(Opa)],
        ..QUIET
    },
    Scenario {
        name: "leader-lost",
        summary: "The catch-all validating webhook takes every request and answers none. At the same instant the leading \
                  replica of hookwatch is killed; one follower is left.",
        symptom: "every create and update hangs for 10 s, and hookwatch has no leader",
        expected: &[failing(Opa, "Hanging").with("Blocking")],
        lasts_at_least: LEADERS_EXIT,
        loses_leader: true,
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "first-hook-hang",
        summary: "A quiet cluster gets its first webhook, a catch-all that hangs from its first call.",
        symptom: "every create and update hangs for 10 s as soon as the webhook is registered",
        expected: &[failing(Opa, "Hanging").with("Blocking")],
        lasts_at_least: LEADERS_EXIT,
        hardly_any_users: true,
        faults: &[Fault::FirstHook(Opa)],
        ..QUIET
    },
    Scenario {
        name: "path-lost",
        summary: "The tunnel between the control plane and all webhooks accepts connections and delivers nothing.",
        symptom: "every create and update hangs for 10 s; no webhook answers, and hookwatch cannot reach any either",
        expected: &[
            failing(Opa, "Hanging"),
            failing(Policy, "Hanging"),
            failing(Quota, "Hanging"),
        ],
        lasts_at_least: LEADERS_EXIT,
        faults: &[
            all_of(Opa, Behaviour::AcceptAndHang),
            all_of(Policy, Behaviour::AcceptAndHang),
            all_of(Quota, Behaviour::AcceptAndHang),
        ],
        ..QUIET
    },
];

pub(super) const fn failing(hook: LabHook, cause: &'static str) -> Expected {
    Expected {
        hook,
        cause,
        health: ExpectedHealth::Failing,
        effect: None,
    }
}

pub(super) const fn suspect(hook: LabHook, cause: &'static str) -> Expected {
    Expected {
        hook,
        cause,
        health: ExpectedHealth::Suspect,
        effect: None,
    }
}

impl Expected {
    pub(super) const fn with(self, effect: &'static str) -> Self {
        Self {
            effect: Some(effect),
            ..self
        }
    }
}

pub(super) const fn arranged(hook: LabHook, shape: HookShape) -> Arranged {
    Arranged { hook, shape }
}

/// Calls a hook for everything, at the Service of the catch-all validating hook.
pub(super) const fn at_opa(hook: LabHook, ignores: bool, timeout_seconds: u8) -> Arranged {
    let shape = HookShape {
        ignores,
        timeout_seconds,
        ..USUAL
    };
    arranged(hook, shape)
}

pub(super) const fn all_of(hook: LabHook, behaviour: Behaviour) -> Fault {
    Fault::Behave {
        hook,
        backends: hook.backends(),
        behaviour,
    }
}

pub(super) const fn one_of(hook: LabHook, behaviour: Behaviour) -> Fault {
    Fault::Behave {
        hook,
        backends: 1,
        behaviour,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::scenario::by_name;

    const NAMES: [&str; 28] = [
        "quiet",
        "validating-slow",
        "validating-hang",
        "validating-refused",
        "one-of-three-refused",
        "mutating-hang-fail-open",
        "validating-http-500",
        "not-an-admission-review",
        "ca-mismatch",
        "certificate-expired",
        "no-endpoints",
        "deny-storm",
        "etcd-slow",
        "read-overload",
        "two-culprits",
        "stale-connections",
        "rollout-gap",
        "all-on-one-node",
        "gke-opa-outage",
        "firewalled",
        "ignore-hang",
        "mixed-hang",
        "ignore-default-hang",
        "slow-chain",
        "self-blocked",
        "leader-lost",
        "first-hook-hang",
        "path-lost",
    ];

    #[test]
    fn the_table_has_exactly_these_names() {
        assert_eq!(SCENARIOS.each_ref().map(|scenario| scenario.name), NAMES);
        let unknown = by_name("no-such").unwrap_err().to_string();
        assert!(NAMES.iter().all(|name| unknown.contains(name)), "{unknown}");
    }

    #[test]
    fn a_hook_is_expected_once_and_only_when_something_is_broken() {
        for scenario in &SCENARIOS {
            let says = !scenario.expected.is_empty() || scenario.not_a_hook.is_some();
            assert_eq!(says, !scenario.faults.is_empty(), "{}", scenario.name);
            for (index, expected) in scenario.expected.iter().enumerate() {
                let again = scenario.expected[index + 1..]
                    .iter()
                    .any(|other| other.hook == expected.hook);
                assert!(!again, "{}", scenario.name);
            }
        }
    }

    #[test]
    fn partial_and_denying_hooks_are_never_to_be_called_failing() {
        for expected in SCENARIOS.iter().flat_map(|scenario| scenario.expected) {
            let works = matches!(expected.cause, "Partial" | "Denying");
            assert_eq!(
                works,
                expected.health == ExpectedHealth::Suspect,
                "{}",
                expected.cause
            );
        }
    }
}
