//! Defaults and validation of the two webhook configuration kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::cel::Program;
use super::super::status::FieldError;
use super::fill;

pub(super) fn default(object: &mut Value, mutating: bool) {
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        fill(webhook, "failurePolicy", json!("Fail"));
        fill(webhook, "matchPolicy", json!("Equivalent"));
        fill(webhook, "namespaceSelector", json!({}));
        fill(webhook, "objectSelector", json!({}));
        fill(webhook, "timeoutSeconds", json!(10));
        if mutating {
            fill(webhook, "reinvocationPolicy", json!("Never"));
        }
        if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
            fill(service, "port", json!(443));
        }
        let rules = webhook.get_mut("rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            fill(rule, "scope", json!("*"));
        }
    }
}

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let webhooks = match object.get("webhooks") {
        None | Some(Value::Null) => return,
        Some(Value::Array(webhooks)) => webhooks,
        Some(other) => {
            errors.push(FieldError::invalid("webhooks", other, "must be a list"));
            return;
        }
    };
    let mut names = BTreeSet::new();
    for (index, webhook) in webhooks.iter().enumerate() {
        let at = format!("webhooks[{index}]");
        let name = webhook.get("name").and_then(Value::as_str).unwrap_or_default();
        validate_name(name, &at, errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &json!(name)));
        }
        let field = |name: &str| webhook.get(name).unwrap_or(&Value::Null);
        validate_choices(webhook, &at, errors);
        let timeout = field("timeoutSeconds");
        if !timeout
            .as_i64()
            .is_some_and(|seconds| (1..=30).contains(&seconds))
        {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(format!("{at}.timeoutSeconds"), timeout, why));
        }
        validate_versions(field("admissionReviewVersions"), &at, errors);
        validate_rules(field("rules"), &at, errors);
        validate_client(field("clientConfig"), &at, errors);
        for selector in ["namespaceSelector", "objectSelector"] {
            validate_selector(field(selector), &format!("{at}.{selector}"), errors);
        }
        // Match conditions that were accepted once are not compiled again.
        let unchanged = old
            .and_then(|old| old.get("webhooks"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .any(|old| old.get("matchConditions") == webhook.get("matchConditions"));
        if !unchanged {
            validate_conditions(field("matchConditions"), &at, errors);
        }
    }
}

fn validate_name(name: &str, at: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    } else if name.split('.').count() < 3 || name.split('.').any(str::is_empty) {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), why));
    }
}

fn validate_choices(webhook: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for (field, allowed) in [
        ("failurePolicy", &["Fail", "Ignore"][..]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ] {
        match webhook.get(field) {
            None | Some(Value::Null) if field == "sideEffects" => {
                let why = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(format!("{at}.{field}"), why));
            }
            None | Some(Value::Null) => {}
            Some(value) if value.as_str().is_some_and(|value| allowed.contains(&value)) => {}
            Some(value) => errors.push(FieldError::unsupported(format!("{at}.{field}"), value, allowed)),
        }
    }
}

fn validate_versions(versions: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let at = format!("{at}.admissionReviewVersions");
    let known: Vec<&str> = versions
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if known.is_empty() {
        errors.push(FieldError::required(at, "must specify one of v1, v1beta1"));
    } else if !known.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(at, versions, why));
    }
}

fn validate_rules(rules: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for (index, rule) in rules.as_array().into_iter().flatten().enumerate() {
        for field in ["operations", "apiGroups", "apiVersions", "resources"] {
            if rule
                .get(field)
                .and_then(Value::as_array)
                .is_none_or(|items| items.is_empty())
            {
                errors.push(FieldError::required(format!("{at}.rules[{index}].{field}"), ""));
            }
        }
        let scope = rule.get("scope").and_then(Value::as_str).unwrap_or("*");
        let scopes = ["*", "Cluster", "Namespaced"];
        if !scopes.contains(&scope) {
            let at = format!("{at}.rules[{index}].scope");
            errors.push(FieldError::unsupported(at, &json!(scope), &scopes));
        }
    }
}

fn validate_client(client: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let at = format!("{at}.clientConfig");
    match (client.get("url"), client.get("service")) {
        (None, None) | (Some(_), Some(_)) => {
            let why = "exactly one of url or service is required";
            errors.push(FieldError::required(at, why));
        }
        (Some(url), None) => {
            let text = url.as_str().unwrap_or_default();
            let host = text
                .strip_prefix("https://")
                .and_then(|rest| rest.split('/').next());
            let plain = !text.contains(['?', '#', '@']);
            if !plain || host.is_none_or(str::is_empty) {
                let why = "'https' is the only allowed URL scheme; a host must be specified; user information, \
                           query parameters and fragments are not permitted";
                errors.push(FieldError::invalid(format!("{at}.url"), url, why));
            }
        }
        (None, Some(service)) => {
            for field in ["name", "namespace"] {
                if service
                    .get(field)
                    .and_then(Value::as_str)
                    .is_none_or(str::is_empty)
                {
                    let why = format!("service {field} is required");
                    errors.push(FieldError::required(format!("{at}.service.{field}"), &why));
                }
            }
            let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
            if !(1..=65_535).contains(&port) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(
                    format!("{at}.service.port"),
                    &json!(port),
                    why,
                ));
            }
        }
    }
}

fn validate_selector(selector: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (index, expression) in expressions.enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        let operator = expression
            .get("operator")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let values = expression
            .get("values")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        match operator {
            "In" | "NotIn" if values == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{at}.values"), why));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::invalid(format!("{at}.values"), &json!(values), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                &json!(operator),
                "not a valid selector operator",
            )),
        }
    }
}

fn validate_conditions(conditions: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    if conditions.len() > 64 {
        let at = format!("{at}.matchConditions");
        errors.push(FieldError::too_many(at, conditions.len(), 64));
        return;
    }
    for (index, condition) in conditions.iter().enumerate() {
        let at = format!("{at}.matchConditions[{index}]");
        let text = |field: &str| {
            condition
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .trim()
        };
        let (name, expression) = (text("name"), text("expression"));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if !is_qualified_name(name) {
            let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                       an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                       validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
            errors.push(FieldError::invalid(format!("{at}.name"), &json!(name), why));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &json!(name)));
        }
        if expression.is_empty() {
            errors.push(FieldError::required(format!("{at}.expression"), ""));
        } else if let Err(why) = Program::of(expression) {
            errors.push(FieldError::invalid(
                format!("{at}.expression"),
                &json!(expression),
                &why,
            ));
        }
    }
}

/// Whether a text is a name of up to 63 characters, optionally after a DNS subdomain and a slash (`IsQualifiedName`).
fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let domain = |domain: &str| {
        let label = |label: &str| {
            let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            label.chars().all(|c| lower(c) || c == '-') && label.starts_with(lower) && label.ends_with(lower)
        };
        domain.len() <= 253 && domain.split('.').all(label)
    };
    name.len() <= 63
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(inner)
        && prefix.is_none_or(domain)
}

#[cfg(test)]
mod tests {
    use super::super::{default, validate};
    use super::*;
    use crate::lab::api::kinds::{MUTATING, VALIDATING};

    fn webhook() -> Value {
        json!({
            "name": "w.policy.example",
            "clientConfig": {"service": {"namespace": "a", "name": "b"}},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    }

    #[test]
    fn what_is_absent_is_filled_in() {
        let mut object = json!({"webhooks": [webhook()]});
        default(MUTATING, &mut object);
        let webhook = &object["webhooks"][0];
        for (pointer, wanted) in [
            ("/failurePolicy", json!("Fail")),
            ("/timeoutSeconds", json!(10)),
            ("/matchPolicy", json!("Equivalent")),
            ("/namespaceSelector", json!({})),
            ("/objectSelector", json!({})),
            ("/reinvocationPolicy", json!("Never")),
            ("/clientConfig/service/port", json!(443)),
            ("/rules/0/scope", json!("*")),
        ] {
            assert_eq!(webhook.pointer(pointer), Some(&wanted), "{pointer}");
        }
        assert_eq!(validate(MUTATING, "x", &object, None), Ok(()));
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        for (pointer, value, field) in [
            ("/name", json!("short"), "webhooks[0].name"),
            ("/timeoutSeconds", json!(31), "webhooks[0].timeoutSeconds"),
            ("/timeoutSeconds", json!(0), "webhooks[0].timeoutSeconds"),
            ("/sideEffects", json!("Some"), "webhooks[0].sideEffects"),
            ("/sideEffects", json!(null), "webhooks[0].sideEffects"),
            ("/failurePolicy", json!("fail"), "webhooks[0].failurePolicy"),
            (
                "/admissionReviewVersions",
                json!([]),
                "webhooks[0].admissionReviewVersions",
            ),
            (
                "/admissionReviewVersions",
                json!(["v9"]),
                "webhooks[0].admissionReviewVersions",
            ),
            ("/clientConfig", json!({}), "webhooks[0].clientConfig"),
            (
                "/clientConfig",
                json!({"url": "http://x"}),
                "webhooks[0].clientConfig.url",
            ),
            (
                "/rules/0/operations",
                json!([]),
                "webhooks[0].rules[0].operations",
            ),
            (
                "/namespaceSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "webhooks[0].namespaceSelector.matchExpressions[0].values",
            ),
        ] {
            let mut object = json!({"webhooks": [webhook()]});
            default(VALIDATING, &mut object);
            *object["webhooks"][0].pointer_mut(pointer).expect(pointer) = value;
            let refused = validate(VALIDATING, "x", &object, None).expect_err(pointer);
            assert_eq!(refused.code, 422);
            assert_eq!(refused.status["details"]["causes"][0]["field"], field);
        }
    }

    #[test]
    fn names_and_conditions_are_unique_and_conditions_compile() {
        let mut object = json!({"webhooks": [webhook(), webhook()]});
        object["webhooks"][0]["matchConditions"] = json!([
            {"name": "a", "expression": "true"},
            {"name": "a", "expression": "request.dryRun &&"},
        ]);
        default(VALIDATING, &mut object);
        let refused = validate(VALIDATING, "x", &object, None).expect_err("refused");
        let fields: Vec<&str> = refused.status["details"]["causes"]
            .as_array()
            .expect("causes")
            .iter()
            .filter_map(|cause| cause["field"].as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "webhooks[0].matchConditions[1].name",
                "webhooks[0].matchConditions[1].expression",
                "webhooks[1].name",
            ]
        );
    }

    #[test]
    fn a_condition_has_a_qualified_name() {
        for (name, fine) in [
            ("hookwatch.dev/skip", true),
            ("c0", true),
            ("A_b.c-d", true),
            ("a b", false),
            ("-a", false),
            ("/a", false),
            ("Upper.example/a", false),
            ("a.example/b/c", false),
        ] {
            assert_eq!(is_qualified_name(name), fine, "{name:?}");
        }
    }

    #[test]
    fn an_empty_list_of_webhooks_is_fine() {
        assert_eq!(validate(VALIDATING, "x", &json!({"webhooks": []}), None), Ok(()));
    }
}
