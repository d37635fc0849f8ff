//! One page of a list, read object by object.
//!
//! Parsing all `items` at once would hold every unrelated object in memory. Here an item is parsed only after the one
//! before it was handed over.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::lean::Lean;

#[derive(Deserialize)]
#[serde(expecting = "a list of objects")]
struct RawList<'a> {
    metadata: ListMeta,
    /// Go encodes a nil slice as null.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// Parses a page and hands every item, without the fields that `how` skips, to `take`.
///
/// # Errors
/// When the page is not JSON or not a list.
pub(super) fn visit(
    page: &[u8],
    how: Lean,
    take: &mut dyn FnMut(Value),
) -> Result<ListMeta, serde_json::Error> {
    let list: RawList<'_> = serde_json::from_slice(page)?;
    for item in list.items.unwrap_or_default() {
        take(how.read(item.get().as_bytes())?);
    }
    Ok(list.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> (Vec<Value>, Result<ListMeta, String>) {
        let mut items = Vec::new();
        let meta = visit(page.as_bytes(), Lean(&[]), &mut |item| items.push(item));
        (items, meta.map_err(|error| error.to_string()))
    }

    #[test]
    fn items_are_handed_over_whatever_stands_around_them() {
        let (items, meta) = read(
            r#"{"kind":"List","items":[1,{"a":2}],"x":[{}],"metadata":{"resourceVersion":"7","continue":"c"}}"#,
        );
        assert_eq!(items.len(), 2);
        let expected = ListMeta {
            resource_version: Some("7".into()),
            continue_: Some("c".into()),
            ..ListMeta::default()
        };
        assert_eq!(meta, Ok(expected));
    }

    #[test]
    fn an_empty_list_may_be_null_or_absent() {
        for page in [
            r#"{"metadata":{},"items":null}"#,
            r#"{"metadata":{},"items":[]}"#,
            r#"{"metadata":{}}"#,
        ] {
            let (items, meta) = read(page);
            assert!(items.is_empty() && meta == Ok(ListMeta::default()), "{page}");
        }
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for page in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"items":{}}"#,
            r#"{"metadata":{}} x"#,
        ] {
            assert!(read(page).1.is_err(), "{page}");
        }
    }
}
