//! A JSON parser that skips fields by name.
//!
//! A CustomResourceDefinition is nearly all schema, hundreds of kilobytes of it, and a cluster may have thousands. The
//! value of a skipped field is scanned but never built in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses any JSON value without the fields of these names, at any depth.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lean(pub(super) &'static [&'static str]);

impl Lean {
    /// Parses one document; trailing text is an error.
    pub(super) fn read(self, text: &[u8]) -> Result<Value, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let value = self.deserialize(&mut json)?;
        json.end()?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Lean {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Lean {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if self.0.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                read.insert(name, fields.next_value_seed(self)?);
            }
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_skipped_is_gone_at_any_depth_and_the_rest_is_as_it_was() {
        let text = br#"{"a":[{"schema":{"deep":[1,2,{}]},"b":-1.5}],"schema":null,"c":"schema"}"#;
        let read = Lean(&["schema"]).read(text).expect("JSON");
        assert_eq!(read, json!({"a": [{"b": -1.5}], "c": "schema"}));
        assert!(Lean(&["schema"]).read(br#"{"schema":{]}"#).is_err());
        assert!(Lean(&[]).read(b"{} x").is_err());
    }

    proptest! {
        #[test]
        fn with_nothing_to_skip_it_reads_as_any_reader_does(
            text in r#"(\{"[ab]":(-?[0-9]{1,25}|"[a-z\\u0041]{0,9}"|null|true|\[1,2\]|1e3)\}|[0-9a-z"{}\[\],:]{0,20})"#
        ) {
            let usual = serde_json::from_slice::<Value>(text.as_bytes()).ok();
            prop_assert_eq!(Lean(&[]).read(text.as_bytes()).ok(), usual);
        }
    }
}
