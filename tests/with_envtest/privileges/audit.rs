//! The API server's own account of who asked for what.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// One permission: what is asked of RBAC. Whether a name was asked for is known from the audit log only where the
/// request has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub verb: String,
    /// `resource.group`, or a path.
    pub what: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

/// A request that the account made.
#[derive(Debug, Clone)]
pub struct Asked {
    pub permission: Permission,
    pub code: u64,
    /// Which token it was made with.
    pub credential: String,
    pub dry_run: bool,
    pub uri: String,
    /// Which program it says it is.
    pub agent: String,
}

/// Everything that a user has asked for so far, failed authentication included: that has no user any more.
pub fn asked_by(log: &Path, user: &str) -> Vec<Asked> {
    let text = std::fs::read_to_string(log).unwrap();
    // The last line may be half written.
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["user"]["username"] == user || event["responseStatus"]["code"] == 401)
        .map(|event| asked(&event))
        .collect()
}

fn asked(event: &Value) -> Asked {
    let text = |value: &Value| value.as_str().map(str::to_owned).filter(|text| !text.is_empty());
    let uri = text(&event["requestURI"]).unwrap_or_default();
    let object = &event["objectRef"];
    let what = match text(&object["resource"]) {
        Some(resource) => match (text(&object["apiGroup"]), text(&object["subresource"])) {
            (group, Some(subresource)) => format!("{resource}.{}/{subresource}", group.unwrap_or_default()),
            (Some(group), None) => format!("{resource}.{group}"),
            (None, None) => resource,
        },
        None => uri.split('?').next().unwrap_or_default().to_owned(),
    };
    let credential = &event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    Asked {
        permission: Permission {
            verb: text(&event["verb"]).unwrap_or_default(),
            what,
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
        },
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        credential: text(credential).unwrap_or_default(),
        dry_run: uri.contains("dryRun=All"),
        uri,
        agent: text(&event["userAgent"]).unwrap_or_default(),
    }
}

/// What the roles among these objects grant.
pub fn granted(objects: &[Value]) -> BTreeSet<Permission> {
    let mut granted = BTreeSet::new();
    for role in objects {
        let words = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let group = words(&rule["apiGroups"]).join("");
            let names = words(&rule["resourceNames"]);
            let whats = words(&rule["resources"])
                .into_iter()
                .map(|resource| match group.as_str() {
                    "" => resource,
                    group => format!("{resource}.{group}"),
                });
            for what in whats.chain(words(&rule["nonResourceURLs"])) {
                for verb in words(&rule["verbs"]) {
                    let permission = |name: Option<&String>| Permission {
                        verb: verb.clone(),
                        what: what.clone(),
                        namespace: role["metadata"]["namespace"].as_str().map(str::to_owned),
                        name: name.cloned(),
                    };
                    match names.as_slice() {
                        [] => drop(granted.insert(permission(None))),
                        names => granted.extend(names.iter().map(|name| permission(Some(name)))),
                    }
                }
            }
        }
    }
    granted
}

impl Permission {
    /// Whether RBAC would allow a request because of this.
    pub fn allows(&self, request: &Self) -> bool {
        let covers = |granted: &Option<String>, asked: &Option<String>| granted.is_none() || granted == asked;
        self.verb == request.verb
            && self.what == request.what
            && covers(&self.namespace, &request.namespace)
            && covers(&self.name, &request.name)
    }
}
