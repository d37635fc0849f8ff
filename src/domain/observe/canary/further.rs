//! Configured canaries: objects of the operator's choice, for hooks that none of the built-in canaries matches.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CanaryTarget;
use crate::text::is_dns_label;

/// Longest name of a configured canary, in bytes.
pub const MAX_NAME: usize = 32;
/// Most canaries that can be configured.
pub const MAX_FURTHER: usize = 16;
/// Largest object of a configured canary, in bytes of JSON.
pub const MAX_OBJECT: usize = 16 << 10;
/// The `metadata.name` of every canary's object.
pub const OBJECT: &str = "hookwatch-canary";

/// The name of a configured canary: 1 to 32 of lower-case letters, digits and `-`. Stored inline, so that it is `Copy`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CanaryName {
    bytes: [u8; MAX_NAME],
    length: u8,
}

impl CanaryName {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(known) {
            return Err(format!(
                "{name:?} cannot be a canary's name: 1 to {MAX_NAME} of a-z, 0-9 and -"
            ));
        }
        let mut bytes = [0; MAX_NAME];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            bytes,
            length: name.len() as u8,
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // `parse` lets only ASCII in.
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for CanaryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A configured canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherCanary {
    /// Its identity in reports and metrics, made from its name.
    pub target: CanaryTarget,
    /// The namespace of its object.
    pub namespace: String,
    /// The plural name of the resource, such as `pods`.
    pub resource: String,
    /// The object, with `apiVersion`, `kind`, name and namespace.
    pub object: Value,
}

impl FurtherCanary {
    /// Builds a configured canary and checks what can be checked without the API server.
    ///
    /// # Errors
    /// For each wrong value: the configuration key, and what is wrong.
    pub fn new(
        name: &str,
        namespace: &str,
        resource: &str,
        object: Value,
    ) -> Result<Self, Vec<(&'static str, String)>> {
        let mut wrong = Vec::new();
        let target = match CanaryName::parse(name) {
            Ok(name) => CanaryTarget::Further(name),
            Err(why) => {
                wrong.push(("name", why));
                CanaryTarget::OwnNamespace
            }
        };
        if !is_dns_label(namespace) {
            wrong.push(("namespace", format!("{namespace:?} cannot be a namespace's name")));
        }
        if resource.is_empty()
            || !resource
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            wrong.push((
                "resource",
                format!(
                    "{resource:?} is no resource's plural name such as pods; subresources cannot be written"
                ),
            ));
        }
        let object = match with_names(object, namespace) {
            Ok(object) => object,
            Err(why) => {
                wrong.push(("object", why));
                Value::Null
            }
        };
        if wrong.is_empty() {
            Ok(Self {
                target,
                namespace: namespace.to_owned(),
                resource: resource.to_owned(),
                object,
            })
        } else {
            Err(wrong)
        }
    }

    /// API group and version of the resource; the group is empty for the core group.
    pub fn group_version(&self) -> (&str, &str) {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        version.split_once('/').unwrap_or(("", version))
    }

    /// The labels of its object, for objectSelectors.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.object.pointer("/metadata/labels").and_then(Value::as_object);
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        labels.into_iter().flatten().filter_map(text).collect()
    }
}

/// The object with the common name of all canaries and the canary's namespace.
fn with_names(mut object: Value, namespace: &str) -> Result<Value, String> {
    if object.to_string().len() > MAX_OBJECT {
        return Err(format!("is larger than {} KiB", MAX_OBJECT >> 10));
    }
    let Some(fields) = object.as_object_mut() else {
        return Err("must be a mapping: the object to write".to_owned());
    };
    for field in ["apiVersion", "kind"] {
        if fields
            .get(field)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            return Err(format!("has no {field}"));
        }
    }
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Default::default()));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err("has a metadata that is no mapping".to_owned());
    };
    if metadata.contains_key("name") || metadata.contains_key("generateName") {
        return Err(format!("has a name; every canary is called {OBJECT}"));
    }
    if metadata.get("namespace").is_some_and(|found| found != namespace) {
        return Err("has another namespace than the canary".to_owned());
    }
    metadata.insert("name".to_owned(), OBJECT.into());
    metadata.insert("namespace".to_owned(), namespace.into());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "canary"}}, "spec": {}})
    }

    #[test]
    fn a_canary_has_the_name_of_all_of_them_and_its_own_in_what_is_said() {
        let canary = FurtherCanary::new("tenant-pods", "team-a", "pods", pod()).unwrap();
        assert_eq!(canary.object["metadata"]["name"], OBJECT);
        assert_eq!(canary.object["metadata"]["namespace"], "team-a");
        assert_eq!(canary.group_version(), ("", "v1"));
        assert_eq!(canary.labels()["app"], "canary");
        assert_eq!(canary.target.as_str(), "tenant-pods");
        let json = serde_json::to_string(&canary).unwrap();
        assert_eq!(serde_json::from_str::<FurtherCanary>(&json).unwrap(), canary);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_with_its_key() {
        let wrong = FurtherCanary::new("Tenant pods", "Team", "pods/status", json!("pod")).unwrap_err();
        let keys: Vec<_> = wrong.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["name", "namespace", "resource", "object"]);
        let object = |object: Value| {
            let wrong = FurtherCanary::new("a", "team-a", "pods", object).unwrap_err();
            wrong[0].1.clone()
        };
        assert!(object(json!({"kind": "Pod"})).contains("apiVersion"));
        assert!(
            object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})).contains("name")
        );
        let elsewhere = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "b"}});
        assert!(object(elsewhere).contains("another namespace"));
        let large = json!({"apiVersion": "v1", "kind": "Pod", "data": "x".repeat(MAX_OBJECT)});
        assert!(object(large).contains("larger than 16 KiB"));
    }
}
