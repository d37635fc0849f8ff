//! The protobuf wire format: varints, and fields behind tags.

/// Why the rest of a message cannot be read.
pub(super) type Malformed = &'static str;

const TOO_LONG: Malformed = "a number is longer than 64 bits";

/// A varint, read byte by byte: seven bits each, the lowest first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Number {
    value: u64,
    bits: u32,
}

impl Number {
    /// Adds the next byte. Returns the number after its last byte, and then starts with the next number.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        // The tenth byte has room for one bit.
        if self.bits == 63 && byte > 1 {
            return Err(TOO_LONG);
        }
        self.value |= u64::from(byte & 0x7f) << self.bits;
        self.bits += 7;
        if byte & 0x80 == 0 {
            return Ok(Some(std::mem::take(self).value));
        }
        Ok(None)
    }

    /// Whether no byte of the next number was read yet.
    pub(super) fn is_fresh(self) -> bool {
        self.bits == 0
    }
}

/// How a field's content is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    /// A length and that many bytes: texts and messages.
    Bytes,
    Fixed32,
}

/// Splits a tag into a field's number and its wire type.
pub(super) fn tag(tag: u64) -> Result<(u64, WireType), Malformed> {
    let shape = match tag & 7 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::Bytes,
        5 => WireType::Fixed32,
        _ => return Err("a field of a shape that does not exist"),
    };
    match tag >> 3 {
        0 => Err("a field with the number 0"),
        field => Ok((field, shape)),
    }
}

/// A field's content.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'message> {
    Varint(u64),
    Double(f64),
    Bytes(&'message [u8]),
    /// A value of 32 bits; no used field has this type.
    Single,
}

/// Iterates over the fields of a complete message; ends after the first malformed one.
pub(super) struct MessageFields<'message>(pub(super) &'message [u8]);

impl<'message> Iterator for MessageFields<'message> {
    type Item = Result<(u64, Value<'message>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'message> MessageFields<'message> {
    fn field(&mut self) -> Result<(u64, Value<'message>), Malformed> {
        let (field, shape) = tag(self.varint()?)?;
        let value = match shape {
            WireType::Varint => Value::Varint(self.varint()?),
            WireType::Fixed64 => Value::Double(f64::from_le_bytes(self.array()?)),
            WireType::Fixed32 => self.array::<4>().map(|_| Value::Single)?,
            WireType::Bytes => {
                let length = self.varint()?;
                Value::Bytes(self.bytes(length)?)
            }
        };
        Ok((field, value))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = Number::default();
        for (at, byte) in self.0.iter().enumerate() {
            if let Some(value) = number.push(*byte)? {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err("a message ends within a number")
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self
            .0
            .split_first_chunk()
            .ok_or("a message ends within a number")?;
        self.0 = rest;
        Ok(*array)
    }

    fn bytes(&mut self, length: u64) -> Result<&'message [u8], Malformed> {
        let (bytes, rest) = usize::try_from(length)
            .ok()
            .and_then(|length| self.0.split_at_checked(length))
            .ok_or("a field reaches beyond its message")?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<Option<u64>, Malformed> {
        let mut number = Number::default();
        for byte in bytes {
            if let Some(value) = number.push(*byte)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    #[test]
    fn numbers_end_at_64_bits() {
        assert_eq!(number(&[0x7f]), Ok(Some(127)));
        assert_eq!(number(&[0x80, 0x01]), Ok(Some(128)));
        assert_eq!(number(&[0x80, 0x80, 0x00]), Ok(Some(0)));
        assert_eq!(number(&[0x80]), Ok(None));
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(number(&most), Ok(Some(u64::MAX)));
        most[9] = 2;
        assert_eq!(number(&most), Err(TOO_LONG));
        assert_eq!(number(&[0x80; 11]), Err(TOO_LONG));
    }

    #[test]
    fn a_broken_field_is_the_last_one() {
        for broken in [
            &b"\x08"[..],
            b"\x09\0\0\0\0\0\0\0",
            b"\x0d\0\0\0",
            b"\x0a\x02a",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0b",
            b"\x00\x00",
        ] {
            let message = [&b"\x10\x05"[..], broken].concat();
            let mut fields = MessageFields(&message);
            assert!(matches!(fields.next(), Some(Ok((2, Value::Varint(5))))));
            assert!(matches!(fields.next(), Some(Err(_))), "{broken:?}");
            assert!(fields.next().is_none());
        }
    }
}
