//! Findings about webhooks that convert the objects of a CustomResourceDefinition.

use super::{CONVERSION_SERVICE_MISSING, CONVERSION_STORED_VERSIONS, Finding, FindingKind};
use crate::audit::estate::{Converted, Estate};

pub(super) fn of_all(estate: &Estate, found: &mut Vec<Finding>) {
    for converted in &estate.converted {
        if let [first, .., last] = &converted.stored[..] {
            let message = format!(
                "Objects may be stored as {first} and as {last}, and a webhook converts between them. While it is down, no list that \
                 holds objects of another version than the one asked for succeeds, so controllers, garbage collection and the \
                 deletion of namespaces stop for them. Migrate all objects to one version, then take the others out of \
                 status.storedVersions."
            );
            found.push(of(CONVERSION_STORED_VERSIONS, converted, message));
        }
        if let Some(key @ (namespace, name)) = &converted.service
            && estate.is_cluster
            && estate.is_listed("Service", namespace)
            && !estate.services.contains_key(key)
        {
            let message = format!(
                "Service {namespace}/{name}, which converts its objects, does not exist: reads and writes in another version than the \
                 stored one fail."
            );
            found.push(of(CONVERSION_SERVICE_MISSING, converted, message));
        }
    }
}

fn of(kind: &'static FindingKind, converted: &Converted, message: String) -> Finding {
    Finding {
        source: converted.source.clone(),
        ..Finding::new(
            kind,
            format!("CustomResourceDefinition/{}", converted.name),
            message,
        )
    }
}
