//! Defaults of CustomResourceDefinitions and APIServices, for the hooks in them only (1.36,
//! `apiextensions-apiserver/pkg/apis/apiextensions/v1/defaults.go` and
//! `kube-aggregator/pkg/apis/apiregistration/v1/defaults.go`).

use serde_json::{Value, json};

use super::{fill, inner};

pub(super) fn definition(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else {
        return;
    };
    if let Some(conversion) = inner(spec, "conversion") {
        conversion.entry("strategy").or_insert_with(|| json!("None"));
    }
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        fill(service, "port", json!(443));
    }
}

pub(super) fn registration(object: &mut Value) {
    if let Some(service) = object.pointer_mut("/spec/service") {
        fill(service, "port", json!(443));
    }
}
