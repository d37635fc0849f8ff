//! One page of a list, visited object by object.
//!
//! Reading `items` into a `Vec` first would hold every unrelated object at once; here each is handed over and
//! gone before the next one is parsed.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::lean::Lean;

/// Parses a page and hands every item, read by `how`, to `take`.
///
/// # Errors
/// When the page is not JSON or not a list; items seen before were handed over.
pub(super) fn visit(
    page: &[u8],
    how: Lean,
    take: &mut dyn FnMut(Value),
) -> Result<ListMeta, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(page);
    let meta = PageSeed(how, take).deserialize(&mut json)?;
    json.end()?;
    Ok(meta)
}

struct PageSeed<'a>(Lean, &'a mut dyn FnMut(Value));

impl<'de> DeserializeSeed<'de> for PageSeed<'_> {
    type Value = ListMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ListMeta, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageSeed<'_> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListMeta, A::Error> {
        let mut meta = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => meta = Some(map.next_value()?),
                "items" => map.next_value_seed(ItemsSeed(self.0, &mut *self.1))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        meta.ok_or_else(|| serde::de::Error::missing_field("metadata"))
    }
}

struct ItemsSeed<'a>(Lean, &'a mut dyn FnMut(Value));

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Go writes an empty list as null when it was never made.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects or null")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(self.0)? {
            (self.1)(item);
        }
        Ok(())
    }
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
