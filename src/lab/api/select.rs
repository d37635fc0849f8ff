//! `labelSelector` and `fieldSelector` of LIST and WATCH.

use serde_json::Value;

use super::request::Query;
use super::status::ApiFailure;
use crate::domain::cluster::hook::{Labels, Selector, SelectorOperator, SelectorRequirement};

/// What a LIST or a WATCH is limited to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    labels: Selector,
    /// A field's path, a value, and whether the field must have that value (`=`) or another one (`!=`).
    fields: Vec<(String, String, bool)>,
}

impl Selection {
    /// Reads both selectors.
    pub(super) fn parse(query: &Query) -> Result<Self, ApiFailure> {
        let labels = parse_labels(query.get("labelSelector").unwrap_or_default())?;
        let fields = parse_fields(query.get("fieldSelector").unwrap_or_default())?;
        Ok(Self { labels, fields })
    }

    /// Whether it leaves nothing out.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is in it.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.fields.iter().all(|(field, value, equal)| {
            let found = field
                .split('.')
                .try_fold(object, |inside, name| inside.get(name))
                .and_then(Value::as_str)
                .unwrap_or_default();
            (found == value) == *equal
        }) && (self.labels.is_empty() || self.labels.matches(&labels_of(object)))
    }
}

/// `metadata.labels` of an object.
pub(super) fn labels_of(object: &Value) -> Labels {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn parse_labels(text: &str) -> Result<Selector, ApiFailure> {
    let mut selector = Selector::default();
    for term in split_outside_parentheses(text) {
        let requirement = parse_requirement(term).ok_or_else(|| {
            ApiFailure::bad_request(format!(
                "unable to parse requirement: {term:?} is no label selector"
            ))
        })?;
        selector.expressions.push(requirement);
    }
    Ok(selector)
}

fn parse_requirement(term: &str) -> Option<SelectorRequirement> {
    use SelectorOperator as Operator;
    let requirement = |key: &str, operator, values: Vec<String>| {
        let key = key.trim().to_owned();
        let legal = !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || "!=(),".contains(c));
        legal.then_some(SelectorRequirement {
            key,
            operator,
            values,
        })
    };
    if let Some((head, values)) = term.split_once('(') {
        let values = values
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => requirement(key, Operator::In, values),
            "notin" => requirement(key, Operator::NotIn, values),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return requirement(key, Operator::NotIn, vec![value.trim().to_owned()]);
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return requirement(key, Operator::In, vec![value.trim().to_owned()]);
    }
    match term.strip_prefix('!') {
        Some(key) => requirement(key, Operator::DoesNotExist, Vec::new()),
        None => requirement(term, Operator::Exists, Vec::new()),
    }
}

/// Accepts field selectors on any field, where the API server knows only a few per kind.
fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, ApiFailure> {
    let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let unequal = term.split_once("!=").map(|(field, value)| (field, value, false));
            let equal = || term.split_once("==").or_else(|| term.split_once('='));
            unequal
                .or_else(|| equal().map(|(field, value)| (field, value, true)))
                .map(|(field, value, equal)| (field.to_owned(), value.to_owned(), equal))
                .ok_or_else(|| {
                    ApiFailure::bad_request(format!("invalid selector: {term:?}; can't understand it"))
                })
        })
        .collect()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut terms, mut depth, mut begin) = (Vec::new(), 0_u32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    terms.push(text[begin..].trim());
    terms.retain(|term| !term.is_empty());
    terms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(query: &str, object: &Value) -> bool {
        let encoded = query.replace(' ', "%20");
        Selection::parse(&Query::parse(&encoded))
            .expect("a selector")
            .matches(object)
    }

    #[test]
    fn every_form_of_a_label_selector_is_understood() {
        let object = json!({"metadata": {"name": "x", "labels": {"app": "web", "tier": "gold"}}});
        for (selector, wanted) in [
            ("app=web", true),
            ("app==web,tier=silver", false),
            ("app!=web", false),
            ("none!=web", true),
            ("app in (web, db),tier", true),
            ("app notin (web)", false),
            ("!app", false),
            ("!none", true),
        ] {
            assert_eq!(
                selects(&format!("labelSelector={selector}"), &object),
                wanted,
                "{selector}"
            );
        }
    }

    #[test]
    fn a_field_selector_compares_a_field_of_the_object() {
        let object = json!({"metadata": {"name": "x", "namespace": "a"}});
        assert!(selects("fieldSelector=metadata.name=x", &object));
        assert!(!selects(
            "fieldSelector=metadata.name=x,metadata.namespace!=a",
            &object
        ));
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        for query in [
            "labelSelector=a%20b%20c",
            "labelSelector=x%20in%20(a",
            "fieldSelector=x",
        ] {
            assert_eq!(
                Selection::parse(&Query::parse(query)).map_err(|failure| failure.code),
                Err(400),
                "{query}"
            );
        }
    }
}
