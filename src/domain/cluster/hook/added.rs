//! The writes that the owner of a configuration adds to those that a shield spares.

use serde::{Deserialize, Serialize};

use crate::text::is_dns_label;

/// The annotation on a configuration by which its owner adds to what a shield spares. Its counterpart
/// [`crate::act::bypass::OPT_OUT_ANNOTATION`] restricts bypasses.
///
/// Items are separated by commas. `self` spares writes in the namespace of the hook's own Service that its Pods need to
/// recover: Pods with their bindings and tokens, ReplicaSets and Deployments. `leases=ns1+ns2` spares Leases in at most eight
/// namespaces, such as those of the leaders of operators, autoscalers and drivers.
pub const SPARE_ANNOTATION: &str = "hookwatch.dev/spare";

/// Most namespaces whose Leases an owner can add with `leases=`.
const MAX_NAMESPACES: usize = 8;
/// Longest annotation that is read, in characters: `self` with eight of the longest namespace names has 523.
const MAX_ANNOTATION: usize = 600;
/// Shared namespaces: `self` never spares their Pods, even if the hook's Service is there.
pub const NEVER_OWN: [&str; 2] = ["default", "kube-public"];

/// The parsed value of [`SPARE_ANNOTATION`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Added {
    /// The namespace of the hook's own Pods, which `self` spares; `None` without `self`.
    pub own: Option<String>,
    /// The namespaces whose Leases are spared.
    pub leases: Vec<String>,
}

impl Added {
    /// Parses the annotation's value for a webhook whose Service is in `namespace` (`None` for a URL). Also returns a sentence
    /// about each item that is ignored. The fence parses it the same way (`deploy/base/fence.yaml`).
    pub fn read(value: Option<&str>, namespace: Option<&str>) -> (Self, Vec<String>) {
        let (mut added, mut said) = (Self::default(), Vec::new());
        let Some(value) = value else { return (added, said) };
        if value.chars().count() > MAX_ANNOTATION {
            said.push(format!(
                "it is longer than {MAX_ANNOTATION} characters and is ignored"
            ));
            return (added, said);
        }
        let is_list = |item: &&str| leases(item).is_some();
        let lists = value.split(',').filter(is_list).count();
        for item in value.split(',') {
            match (item, leases(item)) {
                ("self", _) => match namespace.filter(|name| is_dns_label(name) && !NEVER_OWN.contains(name))
                {
                    Some(namespace) => added.own = Some(namespace.to_owned()),
                    None => said.push(
                        "self is ignored: the webhook has no Service in a namespace of its own".to_owned(),
                    ),
                },
                (_, Some(namespaces)) if lists == 1 => added.leases = namespaces,
                (_, Some(_)) => said.push(format!("{item:?} is ignored: give one list of Leases only")),
                (_, None) => said.push(format!(
                    "{item:?} is ignored: expected self or leases=NAMESPACE+NAMESPACE with at most \
                     {MAX_NAMESPACES} namespaces"
                )),
            }
        }
        (added, said)
    }
}

/// The namespaces of an item `leases=...`; `None` for anything else.
fn leases(item: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = item.strip_prefix("leases=")?.split('+').collect();
    let right = names.len() <= MAX_NAMESPACES && names.iter().all(|name| is_dns_label(name));
    right.then(|| names.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> (Added, usize) {
        let (added, said) = Added::read(Some(value), Some("policy"));
        (added, said.len())
    }

    #[test]
    fn an_owner_adds_the_hooks_own_pods_and_leases_of_namespaces() {
        let (added, said) = read("self,leases=a+b-1");
        assert_eq!((added.own.as_deref(), said), (Some("policy"), 0));
        assert_eq!(added.leases, ["a", "b-1"]);
    }

    #[test]
    fn anything_else_adds_nothing_and_is_said() {
        let long = format!("leases={}", "a".repeat(64));
        for value in [
            "",
            " self",
            "SELF",
            "self=x",
            "pods",
            "leases",
            "leases=",
            "leases=a+",
            "leases=a b",
            "leases=-a",
            "leases=A",
            "leases=a\"] || true",
            "leases=a+b+c+d+e+f+g+h+i",
            &long,
        ] {
            assert_eq!(read(value), (Added::default(), 1), "{value:?}");
        }
        assert_eq!(read("leases=a,leases=b"), (Added::default(), 2));
        assert_eq!(read(&"self,".repeat(200)), (Added::default(), 1));
        let (added, said) = read("self,pods");
        assert_eq!(
            (added.own.is_some(), said),
            (true, 1),
            "what is right counts all the same"
        );
    }

    #[test]
    fn pods_of_shared_namespaces_are_never_a_hooks_own() {
        for namespace in [None, Some("default"), Some("kube-public")] {
            let (added, said) = Added::read(Some("self"), namespace);
            assert_eq!((added, said.len()), (Added::default(), 1), "{namespace:?}");
        }
    }
}
